//! The auditor of our own requests: from the history of each alone, as for those of the peer.
//!
//! It knows which call had which id on the wire, what was written, what came back and when its caller was told; and
//! it objects to a caller that is told twice, late, or what is another's, and to a cancel that should not be.

use std::collections::BTreeMap;
use std::time::Duration;

use countermand_core::{CallOutcome, Time};

use super::Breach;
use crate::model::read::{Key, key, object};
use crate::model::{Told, Verdict};
use crate::step::Label;

/// How a request of ours ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By its response.
    Settled,
    /// Its caller gave it up, or its SDK.
    GivenUp,
    /// It was out of time.
    TimedOut,
    /// What it was asked for was cancelled.
    WithParent,
    /// The connection was closed.
    CutOff,
}

/// What was seen of one request of ours.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its connection.
    pub link: usize,
    /// Its id on the wire.
    pub wire: u64,
    /// Its id as the SDK that made it spells it; `None` for a caller of ours.
    pub inner: Option<String>,
    /// Its progress token: on the wire, and as its caller spells it.
    pub progress: Option<(Key, String)>,
    /// Whether it is the handshake.
    pub initialize: bool,
    /// On whose behalf it was made.
    pub parent: Option<Label>,
    /// When.
    pub begun_at: Time,
    /// How long it may go without progress.
    pub idle: Option<Duration>,
    /// How long it may take.
    pub total: Option<Duration>,
    /// The last progress that reached its caller.
    pub moved_at: Option<Time>,
    /// Whether the writer has taken it.
    pub sent: bool,
    /// How its caller was told, and when.
    pub end: Option<(End, Time)>,
    /// Whether a cancel for it went out.
    pub cancelled: bool,
    /// Whether it asks for a task.
    pub asks_task: bool,
    /// Whether it became one, whose progress goes on.
    pub task: bool,
}

impl Call {
    /// Whether its caller waits.
    pub fn open(&self) -> bool {
        self.end.is_none()
    }

    /// When it is out of time, if ever.
    pub fn due(&self) -> Option<Time> {
        let idle = self.idle.map(|idle| self.moved_at.unwrap_or(self.begun_at).after(idle));
        idle.into_iter().chain(self.total.map(|total| self.begun_at.after(total))).min()
    }
}

/// The histories of all requests of our own side.
#[derive(Clone, Debug, Default)]
pub struct Calls(BTreeMap<Label, Call>);

impl Calls {
    /// What is known of a request.
    pub fn get(&self, label: Label) -> Option<&Call> {
        self.0.get(&label)
    }

    /// The same, to note something.
    pub fn get_mut(&mut self, label: Label) -> Option<&mut Call> {
        self.0.get_mut(&label)
    }

    /// All of them, in the order of their labels.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = (Label, &Call)> {
        self.0.iter().map(|(label, call)| (*label, call))
    }

    /// The request that had this id on the wire of this connection.
    pub fn with_id(&self, link: usize, id: &Key) -> Option<(Label, &Call)> {
        let wire = id.natural()?;
        self.all().find(|(_, call)| call.link == link && call.wire == wire)
    }

    /// Whether our side has never asked anything on this connection: then no response is of ours.
    fn never(&self, link: usize) -> bool {
        self.all().all(|(_, call)| call.link != link)
    }

    /// A request was begun. `minted` says whether the id is of our making.
    pub fn begun(
        &mut self,
        label: Label,
        call: Call,
        minted: bool,
        frame: &str,
    ) -> Result<(), Breach> {
        let mine = || self.all().filter(|(_, other)| other.link == call.link);
        if mine().any(|(_, other)| other.wire == call.wire) {
            return Err(Breach::new("I10", format!("{} was used before", call.wire)));
        }
        let own = |other: &Call| other.inner.as_ref().is_none_or(|id| key(id) != Some(wire(other)));
        let last = mine().filter(|(_, other)| own(other)).map(|(_, other)| other.wire).max();
        if minted && Some(call.wire) <= last {
            return Err(Breach::new("I10", format!("{} after {last:?}", call.wire)));
        }
        if call.wire > (1 << 53) - 1 {
            return Err(Breach::new(
                "I10",
                format!("{} is read as another in JavaScript", call.wire),
            ));
        }
        if frame.contains(['\n', '\r']) {
            return Err(Breach::new("I4", format!("{frame:?} is more than one line")));
        }
        let id = object(frame).and_then(|fields| key(fields.get("id")?.get()));
        if id != Some(wire(&call)) {
            return Err(Breach::new(
                "I7",
                format!("{label} is {}, and went out as {frame}", call.wire),
            ));
        }
        self.0.insert(label, call);
        Ok(())
    }

    /// The writer asked whether it may write a request.
    pub fn transmitted(&mut self, label: Label, may: bool) -> Result<(), Breach> {
        let call = self.0.get_mut(&label).expect("a label that was given");
        if may != call.open() {
            return Err(Breach::new("I5", format!("transmit of {label}: {may}, {call:?}")));
        }
        call.sent |= may;
        Ok(())
    }

    /// The peer sent a response under this id, and this was said of it.
    pub fn responded(
        &mut self,
        link: usize,
        id: &Key,
        (verdict, lenient): (&Verdict, bool),
        (task, now): (bool, Time),
    ) -> Result<Option<Label>, Breach> {
        if self.never(link) && matches!(verdict, Verdict::Deliver(None, None)) {
            return Ok(None);
        }
        let other = id.other_type().filter(|_| lenient && self.with_id(link, id).is_none());
        let meant = self.with_id(link, other.as_ref().unwrap_or(id));
        let meant = meant.map(|(label, call)| (label, call.clone()));
        let waits = meant.as_ref().is_some_and(|(_, call)| call.open() && call.sent);
        let taken = match (verdict, &meant) {
            (Verdict::Settled(label), Some((meant, call))) => {
                label == meant && call.inner.is_none()
            }
            (Verdict::Settled(_), None) => false,
            (Verdict::Deliver(..), meant) => {
                meant.as_ref().is_some_and(|(_, call)| call.inner.is_some())
            }
            _ if waits => {
                return Err(Breach::new(
                    "I5",
                    format!("the response to {meant:?} was {verdict:?}"),
                ));
            }
            _ => return Ok(None),
        };
        let Some((label, _)) = meant.filter(|_| taken && waits) else {
            return Err(Breach::new("I6", format!("a response under {id:?} led to {verdict:?}")));
        };
        let call = self.0.get_mut(&label).expect("just found");
        call.task = task && call.asks_task && call.inner.is_some();
        call.end = Some((End::Settled, now));
        Ok(Some(label))
    }

    /// What an SDK was given for a response must be under the id by which it knows the request.
    pub fn delivered(&self, label: Label, frame: &str) -> Result<(), Breach> {
        let inner = self.0[&label].inner.as_deref().and_then(key);
        let id = object(frame).and_then(|fields| key(fields.get("id")?.get()));
        if id == inner {
            return Ok(());
        }
        Err(Breach::new("I6", format!("{frame} was given to {label}, {:?}", self.0[&label])))
    }

    /// The peer sent progress under this token, and this was said of it.
    pub fn progressed(
        &mut self,
        link: usize,
        token: &Key,
        (verdict, out): (&Verdict, Option<&str>),
        now: Time,
    ) -> Result<Option<Label>, Breach> {
        let named = |call: &&mut Call| {
            call.link == link && call.progress.as_ref().is_some_and(|(wire, _)| wire == token)
        };
        let waits = |call: &Call| call.open() && call.sent;
        let mut waiting = self.0.iter_mut().filter(|(_, call)| named(call) && waits(call));
        let told = match verdict {
            Verdict::Progress(label) => Some(*label),
            _ => None,
        };
        if let Some((label, call)) = waiting.next() {
            if waiting.next().is_some() {
                return Err(Breach::new("I6", format!("{token:?} is that of two requests")));
            }
            let own = out.and_then(token_of) == key(&call.progress.as_ref().expect("named").1);
            let right = match call.inner {
                None => told == Some(*label),
                Some(_) => matches!(verdict, Verdict::Deliver(None, _)) && own,
            };
            if !right {
                return Err(Breach::new(
                    "I6",
                    format!("progress of {call:?}: {verdict:?}, {out:?}"),
                ));
            }
            call.moved_at = Some(now);
            return Ok(Some(*label));
        }
        let lasts = self.0.values().any(|call| {
            let named = call.progress.as_ref().is_some_and(|(wire, _)| wire == token);
            call.link == link && named && call.task
        });
        let alien = self.never(link) && matches!(verdict, Verdict::Deliver(None, None));
        if matches!(verdict, Verdict::Ignored(_)) || lasts && told.is_none() || alien {
            return Ok(None);
        }
        Err(Breach::new("I6", format!("progress of nobody, {token:?}: {verdict:?}")))
    }

    /// The core wants this done; `end` is what has just happened, `closed` whether the connection is over, `meant` who
    /// was given up by name.
    pub fn told(
        &mut self,
        (link, told): (usize, &Told),
        (end, now): (End, Time),
        (closed, meant): (bool, Option<Label>),
        tripped: impl Fn(Label) -> bool,
    ) -> Result<(), Breach> {
        match told {
            Told::Abandoned { call: label, outcome, .. } => {
                let call = self.known(link, *label)?;
                if !call.open() || call.inner.is_some() {
                    return Err(Breach::new("I5", format!("{label} was told again: {call:?}")));
                }
                if call.sent != (*outcome == CallOutcome::Unknown) {
                    return Err(Breach::new("I5", format!("{outcome:?} of {label}: {call:?}")));
                }
                call.end = Some((end, now));
            }
            Told::Refused(id) => {
                let id = key(id);
                let own = |call: &Call| {
                    let own = call.inner.as_deref().and_then(key);
                    call.link == link && call.open() && own.is_some() && own == id
                };
                // An SDK that has two under one id hears of that whose asker was cancelled, the older first.
                let cut = |label: &Label, call: &Call| match call.parent {
                    _ if meant == Some(*label) => 3,
                    Some(parent) => 1 + usize::from(tripped(parent)),
                    None => 0,
                };
                let owners = self.0.iter_mut().rev().filter(|(_, call)| own(call));
                match owners.max_by_key(|(label, call)| cut(label, call)) {
                    Some((_, call)) => call.end = Some((end, now)),
                    None => return Err(Breach::new("I5", format!("{told:?} was told again"))),
                }
            }
            Told::Cancel { call: label, id, .. } => {
                let call = self.known(link, *label)?;
                if key(id) != Some(wire(call)) {
                    return Err(Breach::new("I7", format!("a cancel for {id}, not {call:?}")));
                }
                self.cancelled(*label, closed)?;
            }
            Told::CloseStream(label) => {
                let call = self.known(link, *label)?;
                if call.open() || !call.sent || call.initialize {
                    return Err(Breach::new("I7", format!("the stream of {call:?} was closed")));
                }
            }
            Told::CloseTransport => {
                let over =
                    |call: &Call| call.link == link && call.initialize && call.sent && !call.open();
                if closed || !self.0.values().any(over) {
                    return Err(Breach::new("I9", "the transport was closed for nothing"));
                }
            }
        }
        Ok(())
    }

    fn known(&mut self, link: usize, label: Label) -> Result<&mut Call, Breach> {
        let known = self.0.get_mut(&label).filter(|call| call.link == link);
        known.ok_or_else(|| Breach::new("I7", format!("{label} is no request of this connection")))
    }

    /// A cancel for a request of ours goes out.
    pub fn cancelled(&mut self, label: Label, closed: bool) -> Result<(), Breach> {
        let call = self.0.get_mut(&label).expect("a label that was given");
        if call.initialize {
            return Err(Breach::new("I9", format!("a cancel for the handshake: {call:?}")));
        }
        let settled = matches!(call.end, None | Some((End::Settled, _)));
        if settled || !call.sent || call.cancelled || closed {
            return Err(Breach::new("I7", format!("a cancel for {call:?}")));
        }
        call.cancelled = true;
        Ok(())
    }

    /// A cancel that an SDK sent was written under this id: it is one for a request that the SDK has given up.
    pub fn called_off(&mut self, link: usize, id: &Key, now: Time) -> Result<Label, Breach> {
        let Some(label) = self.with_id(link, id).map(|(label, _)| label) else {
            return Err(Breach::new("I7", format!("a cancel for {id:?}, which never was")));
        };
        let call = self.0.get_mut(&label).expect("just found");
        call.end.get_or_insert((End::GivenUp, now));
        self.cancelled(label, false)?;
        Ok(label)
    }

    /// An SDK gave a request up, and nothing goes out.
    pub fn let_be(&mut self, link: usize, inner: &Key, now: Time) -> Option<Label> {
        let meant = |call: &Call| {
            let own = call.inner.as_deref().and_then(key);
            call.link == link && call.open() && own.as_ref() == Some(inner)
        };
        let (label, call) = self.0.iter_mut().rfind(|(_, call)| meant(call))?;
        call.end = Some((End::GivenUp, now));
        Some(*label)
    }

    /// The connection was closed: nobody tells an SDK, whose transport is gone.
    pub fn closed(&mut self, link: usize, now: Time) {
        for call in self.0.values_mut() {
            if call.link == link && call.open() && call.inner.is_some() {
                call.end = Some((End::CutOff, now));
            }
        }
    }

    /// Nobody waits in vain: not on a closed connection, not beyond a deadline when the connections have just been
    /// told the time, not for somebody who has been cancelled.
    pub fn prompt(
        &self,
        now: Option<Time>,
        closed: impl Fn(usize) -> bool,
        tripped: impl Fn(Label) -> bool,
    ) -> Result<(), Breach> {
        for (label, call) in self.all().filter(|(_, call)| call.open()) {
            let overdue = call.due().zip(now).is_some_and(|(due, now)| due <= now);
            let cut = tripped(label) || call.parent.is_some_and(&tripped);
            if overdue || cut || closed(call.link) {
                return Err(Breach::new("I5", format!("{label} still waits: {call:?}")));
            }
        }
        Ok(())
    }
}

fn wire(call: &Call) -> Key {
    Key::Integer(call.wire.to_string())
}

/// The progress token of a progress notification.
pub fn token_of(frame: &str) -> Option<Key> {
    let fields = object(frame)?;
    let params = object(fields.get("params")?.get())?;
    key(params.get("progressToken")?.get())
}
