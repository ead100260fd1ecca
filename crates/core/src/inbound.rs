//! The inbound table: every request of the peer that still matters, by wire id, by the id under
//! which the SDK behind us knows it, by progress token, and by generation.
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
//!
//! The table says what is there; who won is decided in `connection` and `outgoing`.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use slab::Slab;

use crate::id::{Id, IdRef};
use crate::tree::small;
use crate::{Generation, Limits, Time};

/// Generations carry their place in the lowest bits: a look-up by generation needs no hash.
const PLACE_BITS: u32 = 17;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
/// Entries in flight, and entries retired, each at most: together they fit in `PLACE_BITS`.
const HALF: usize = 1 << (PLACE_BITS - 1);
/// Marks the position of an entry in the id index that stands under its alias.
const BY_ALIAS: u32 = 1 << 31;

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
pub(crate) struct Entry {
    pub(crate) generation: Generation,
    wire: Id,
    /// The node of its token; given up when the entry is retired.
    pub(crate) token: Option<u32>,
    pub(crate) phase: Phase,
    pub(crate) initialize: bool,
    /// Asked for a task: its answer may carry a task handle.
    pub(crate) task: bool,
    /// Whether a cancel with this wire id means this entry: false once the id is used again.
    current: bool,
    progress: Option<Box<Name>>,
    alias: Option<Box<Name>>,
    pub(crate) cancelled: Option<Box<Cancelled>>,
}

/// What is only known of cancelled entries.
#[derive(Debug)]
pub(crate) struct Cancelled {
    pub(crate) at: Time,
    /// Its answer came and was swallowed: no other will come.
    pub(crate) swallowed: bool,
    retired_at: Option<Time>,
}

impl Cancelled {
    pub(crate) fn new(at: Time) -> Box<Self> {
        Box::new(Self { at, swallowed: false, retired_at: None })
    }

    /// Whether the SDK behind us may still send an answer under the old id.
    pub(crate) fn pending(&self) -> bool {
        !self.swallowed
    }
}

/// An id or progress token that may be known under another name to the SDK behind us.
#[derive(Debug)]
pub(crate) struct Name {
    /// As the SDK behind us knows it.
    inner: Id,
    /// The peer's own spelling, where the two differ.
    pub(crate) raw: Option<Box<str>>,
}

impl Entry {
    /// The id by which the peer knows it.
    pub(crate) fn wire(&self) -> &Id {
        &self.wire
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

    pub(crate) fn live(&self) -> bool {
        self.cancelled.is_none()
    }
}

/// What a new entry starts with.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) id: &'a IdRef<'a>,
    pub(crate) token: u32,
    pub(crate) initialize: bool,
    pub(crate) task: bool,
    pub(crate) alias: Option<Alias<'a>>,
    pub(crate) progress: Option<(IdRef<'a>, Option<Alias<'a>>)>,
}

/// Another name for an id or progress token, and the peer's spelling to translate it back.
#[derive(Debug)]
pub(crate) struct Alias<'a> {
    pub(crate) name: String,
    pub(crate) raw: &'a str,
}

impl Alias<'_> {
    fn name(&self) -> Box<Name> {
        let inner = Id::Str(self.name.as_bytes().into());
        Box::new(Name { inner, raw: Some(self.raw.into()) })
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    entries: Slab<Entry>,
    /// Places by the hash of the wire id and, where there is an alias, by the hash of that too.
    ids: HashTable<u32>,
    /// Places by the hash of the progress token as the SDK behind us knows it.
    progress: HashTable<u32>,
    hasher: RandomState,
    sequence: u64,
    /// In the order in which they were retired; a place that was given back since is skipped.
    retired: VecDeque<Generation>,
    retired_count: usize,
    max_in_flight: usize,
    max_retired: usize,
    retired_age: Duration,
}

impl Table {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            entries: Slab::new(),
            ids: HashTable::new(),
            progress: HashTable::new(),
            hasher: RandomState::default(),
            sequence: 0,
            retired: VecDeque::new(),
            retired_count: 0,
            max_in_flight: limits.max_in_flight.min(HALF),
            max_retired: limits.max_retired.min(HALF),
            retired_age: limits.retired_age,
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.entries.len() - self.retired_count
    }

    pub(crate) fn retired(&self) -> usize {
        self.retired_count
    }

    pub(crate) fn full(&self) -> bool {
        self.in_flight() >= self.max_in_flight
    }

    pub(crate) fn get(&self, generation: Generation) -> Option<&Entry> {
        self.entries.get(place_of(generation)).filter(|entry| entry.generation == generation)
    }

    pub(crate) fn get_mut(&mut self, generation: Generation) -> Option<&mut Entry> {
        self.entries.get_mut(place_of(generation)).filter(|entry| entry.generation == generation)
    }

    /// The entry that a message of the peer means by this id.
    pub(crate) fn by_wire(&self, id: &IdRef<'_>) -> Option<&Entry> {
        let found = self.ids.find(id.hash_with(&self.hasher), |&position| {
            let entry = self.at(position);
            position & BY_ALIAS == 0 && entry.current && id.matches(&entry.wire)
        });
        found.map(|&position| self.at(position))
    }

    /// The entry that the SDK behind us means by this id. One whose answer was swallowed is past
    /// meaning: the SDK answers once.
    pub(crate) fn by_inner(&self, id: &IdRef<'_>) -> Option<&Entry> {
        let found = self.ids.find(id.hash_with(&self.hasher), |&position| {
            let entry = self.at(position);
            (position & BY_ALIAS != 0) == entry.alias.is_some()
                && id.matches(entry.inner())
                && entry.cancelled.as_ref().is_none_or(|cancelled| !cancelled.swallowed)
        });
        found.map(|&position| self.at(position))
    }

    fn at(&self, position: u32) -> &Entry {
        &self.entries[(position & !BY_ALIAS) as usize]
    }

    /// The entry that the SDK behind us means by this progress token: a live one before a
    /// cancelled one, where careless peers gave one token twice.
    pub(crate) fn by_progress(&self, token: &IdRef<'_>) -> Option<&Entry> {
        let hash = token.hash_with(&self.hasher);
        let has = |place: &u32| {
            let name = self.at(*place).progress.as_ref();
            name.is_some_and(|name| token.matches(&name.inner))
        };
        let live = self.progress.find(hash, |place| has(place) && self.at(*place).live());
        live.or_else(|| self.progress.find(hash, has)).map(|&place| self.at(place))
    }

    /// A name that neither the peer nor anybody else uses on this connection now.
    pub(crate) fn fresh_name(&self) -> String {
        let mut attempt = 0u64;
        loop {
            let name = format!("countermand:{}:{attempt}", self.sequence + 1);
            let id = IdRef::Str(name.as_bytes().into());
            if self.by_inner(&id).is_none()
                && self.by_wire(&id).is_none()
                && self.by_progress(&id).is_none()
            {
                return name;
            }
            attempt += 1;
        }
    }

    /// Puts a request in. An older entry with this wire id must be cancelled; it keeps its place for
    /// what is still sent for it, but is no longer meant by the peer.
    pub(crate) fn insert(&mut self, opening: Opening<'_>) -> Generation {
        let wire_hash = opening.id.hash_with(&self.hasher);
        if let Some(old) = self.by_wire(opening.id).map(|old| old.generation)
            && let Some(old) = self.get_mut(old)
        {
            debug_assert!(!old.live(), "a live request keeps its id");
            old.current = false;
        }
        if self.entries.len() == self.entries.capacity() {
            // A quarter more, not twice: what a busy moment took is kept for good.
            self.entries.reserve_exact(self.entries.len() / 4 + 16);
        }
        self.sequence += 1;
        let place = self.entries.vacant_key();
        let generation = Generation(self.sequence << PLACE_BITS | place as u64);
        let progress = opening.progress.map(|(token, alias)| {
            alias.map_or_else(
                || Box::new(Name { inner: token.to_id(), raw: None }),
                |alias| alias.name(),
            )
        });
        self.entries.insert(Entry {
            generation,
            wire: opening.id.to_id(),
            token: Some(opening.token),
            phase: Phase::Waiting,
            initialize: opening.initialize,
            task: opening.task,
            current: true,
            progress,
            alias: opening.alias.map(|alias| alias.name()),
            cancelled: None,
        });
        let Self { entries, ids, progress, hasher, .. } = self;
        let entry = &entries[place];
        let place = small(place);
        ids.insert_unique(wire_hash, place, |&at| id_hash(entries, at, hasher));
        if entry.alias.is_some() {
            let hash = entry.inner().hash_with(hasher);
            ids.insert_unique(hash, place | BY_ALIAS, |&at| id_hash(entries, at, hasher));
        }
        if let Some(name) = &entry.progress {
            let hash = name.inner.hash_with(hasher);
            progress.insert_unique(hash, place, |&at| progress_hash(entries, at, hasher));
        }
        generation
    }

    /// Takes an entry out for good.
    pub(crate) fn remove(&mut self, generation: Generation) -> Option<Entry> {
        self.get(generation)?;
        let place = place_of(generation);
        let entry = self.entries.remove(place);
        let place = small(place);
        let Self { ids, progress, hasher, .. } = self;
        let mut forget = |hash: u64, position: u32| {
            if let Ok(found) = ids.find_entry(hash, |&at| at == position) {
                found.remove();
            }
        };
        forget(entry.wire.hash_with(hasher), place);
        if let Some(alias) = &entry.alias {
            forget(alias.inner.hash_with(hasher), place | BY_ALIAS);
        }
        if let Some(name) = &entry.progress
            && let Ok(found) = progress.find_entry(name.inner.hash_with(hasher), |&at| at == place)
        {
            found.remove();
        }
        if entry.cancelled.as_ref().is_some_and(|cancelled| cancelled.retired_at.is_some()) {
            self.retired_count -= 1;
        }
        Some(entry)
    }

    /// The handler of a cancelled request has exited, or its answer was swallowed: keeps what is
    /// still needed of it, for a bounded time. Both may come, in either order.
    pub(crate) fn retire(&mut self, generation: Generation, now: Time) {
        let Some(entry) = self.get_mut(generation) else { return };
        let keeps_progress = entry.progress.is_some();
        let Some(cancelled) = &mut entry.cancelled else { return };
        if entry.phase != Phase::Exited {
            return;
        }
        if cancelled.swallowed && !keeps_progress {
            self.remove(generation);
        } else if cancelled.retired_at.is_none() {
            cancelled.retired_at = Some(now);
            self.retired_count += 1;
            self.retired.push_back(generation);
            self.evict(now);
        }
    }

    /// Lets go of retired entries that are too old, or too many.
    pub(crate) fn evict(&mut self, now: Time) {
        while let Some(&oldest) = self.retired.front() {
            match self.retired_at(oldest) {
                None => {}
                Some(at)
                    if self.retired_count > self.max_retired
                        || at.after(self.retired_age) <= now =>
                {
                    self.remove(oldest);
                }
                Some(_) => break,
            }
            self.retired.pop_front();
        }
        // Entries that went before their time leave their names behind the oldest.
        if self.retired.len() > 2 * self.max_retired + 16 {
            let mut names = std::mem::take(&mut self.retired);
            names.retain(|&generation| self.retired_at(generation).is_some());
            self.retired = names;
        }
    }

    /// When [`evict`](Self::evict) next has something to do.
    pub(crate) fn next_eviction(&self) -> Option<Time> {
        let oldest = self.retired.iter().find_map(|&generation| self.retired_at(generation));
        oldest.map(|at| at.after(self.retired_age))
    }

    /// Every entry that nobody has cancelled.
    pub(crate) fn live(&self) -> Vec<Generation> {
        let live = self.entries.iter().filter(|(_, entry)| entry.live());
        let mut live: Vec<_> = live.map(|(_, entry)| entry.generation).collect();
        live.sort_unstable();
        live
    }

    fn retired_at(&self, generation: Generation) -> Option<Time> {
        self.get(generation)?.cancelled.as_ref()?.retired_at
    }
}

fn id_hash(entries: &Slab<Entry>, position: u32, hasher: &impl BuildHasher) -> u64 {
    let entry = &entries[(position & !BY_ALIAS) as usize];
    if position & BY_ALIAS == 0 {
        entry.wire.hash_with(hasher)
    } else {
        entry.inner().hash_with(hasher)
    }
}

fn progress_hash(entries: &Slab<Entry>, place: u32, hasher: &impl BuildHasher) -> u64 {
    let name = entries[place as usize].progress.as_ref();
    name.map_or(0, |name| name.inner.hash_with(hasher))
}

fn place_of(generation: Generation) -> usize {
    usize::try_from(generation.0 & PLACE_MASK).unwrap_or(usize::MAX)
}
