//! One request in the inbound table: what is kept of it, and how it comes and goes.
//!
//! The life of an entry:
//!
//! ```text
//! Waiting ─start─▶ Running ─finish─▶ Exited ─answer─▶ (gone)
//!    └──────────────── answer ─────────────────────▶ (gone)
//!
//! cancelled in any of these: answers and progress are swallowed from then on;
//! once the handler exited the entry is retired, and goes when it is old, crowded out, or its
//! answer was swallowed and no progress token keeps it.
//! ```

use std::sync::Arc;

use crate::id::{Id, IdRef};
use crate::signals::OTHER;
use crate::{Cause, Generation, Time};

/// How far the handler is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Read, and perhaps handed to the language; no handler has started.
    Waiting,
    /// Its handler runs.
    Running,
    /// Its handler has exited, or will never start.
    Exited,
}

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Facts, each for itself.
pub(crate) struct Entry {
    pub(crate) generation: Generation,
    pub(crate) wire: Id,
    /// Of the wire id; kept, because nothing here is as slow as hashing a string again.
    pub(crate) hash: u64,
    /// The node of its token; given up when the entry is retired.
    pub(crate) token: Option<u32>,
    pub(crate) phase: Phase,
    pub(crate) initialize: bool,
    /// Asked for a task: its answer may carry a task handle.
    pub(crate) task: bool,
    /// It has committed an effect that cannot be taken back.
    pub(crate) effects: bool,
    /// Its row among the signals.
    pub(crate) row: u32,
    /// Whether a cancel with this wire id means this entry: false once the id is used again.
    pub(crate) current: bool,
    pub(crate) progress: Option<Box<Name>>,
    pub(crate) alias: Option<Box<Name>>,
    pub(crate) cancelled: Option<Box<Cancelled>>,
}

/// What is only known of cancelled entries.
#[derive(Debug)]
pub(crate) struct Cancelled {
    pub(crate) at: Time,
    pub(crate) cause: Cause,
    pub(crate) reason: Option<Arc<str>>,
    /// Its answer came and was swallowed: no other will come.
    pub(crate) swallowed: bool,
    pub(crate) retired_at: Option<Time>,
}

/// An id or progress token that may be known under another name to the SDK behind us.
#[derive(Debug)]
pub(crate) struct Name {
    /// As the SDK behind us knows it.
    pub(crate) inner: Id,
    /// The peer's own spelling, where the two differ.
    pub(crate) raw: Option<Box<str>>,
}

impl Entry {
    /// What stands in a place that is not in use. No request has generation 0.
    pub(crate) fn vacant() -> Self {
        Self {
            generation: Generation(0),
            wire: Id::Int(0),
            hash: 0,
            token: None,
            phase: Phase::Waiting,
            initialize: false,
            task: false,
            effects: false,
            row: OTHER,
            current: false,
            progress: None,
            alias: None,
            cancelled: None,
        }
    }

    /// The id by which the SDK behind us knows it.
    pub(crate) fn inner(&self) -> &Id {
        self.alias.as_ref().map_or(&self.wire, |alias| &alias.inner)
    }

    /// How the peer spelt the id, where the SDK behind us was given another.
    pub(crate) fn raw_id(&self) -> Option<&str> {
        self.alias.as_ref().and_then(|alias| alias.raw.as_deref())
    }

    /// How the peer spelt the progress token, where the SDK behind us was given another.
    pub(crate) fn raw_progress(&self) -> Option<&str> {
        self.progress.as_ref().and_then(|name| name.raw.as_deref())
    }

    /// Whether its handler has started and has not exited.
    pub(crate) fn running(&self) -> bool {
        self.phase == Phase::Running
    }

    pub(crate) fn live(&self) -> bool {
        self.cancelled.is_none()
    }
}

/// What a new entry starts with.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) id: &'a IdRef<'a>,
    /// `Table::hash` of the id.
    pub(crate) hash: u64,
    /// The cancelled request that had this id until now.
    pub(crate) replaces: Option<Generation>,
    pub(crate) initialize: bool,
    pub(crate) task: bool,
    /// Its row among the signals.
    pub(crate) row: u32,
    pub(crate) alias: Option<Alias<'a>>,
    pub(crate) progress: Option<(IdRef<'a>, Option<Alias<'a>>)>,
}

/// What an answer meets.
#[derive(Debug)]
pub(crate) enum Met {
    /// No request has this id.
    Nothing,
    /// A request that was cancelled before.
    Cancelled(Generation),
    /// A live request, which is answered now and gone from the table.
    Live(Gone),
}

/// What is left to do for an entry that is gone.
#[derive(Debug)]
pub(crate) struct Gone {
    /// The node of its token, to be let go.
    pub(crate) token: Option<u32>,
    pub(crate) initialize: bool,
    pub(crate) task: bool,
    /// How the peer spelt the id, where the SDK behind us was given another.
    pub(crate) raw_id: Option<Box<str>>,
}

/// Another name for an id or progress token, and the peer's spelling to translate it back.
#[derive(Debug)]
pub(crate) struct Alias<'a> {
    pub(crate) name: &'a str,
    pub(crate) raw: &'a str,
}

impl Alias<'_> {
    pub(crate) fn name(&self) -> Name {
        let inner = Id::Str(self.name.as_bytes().into());
        Name { inner, raw: Some(self.raw.into()) }
    }
}
