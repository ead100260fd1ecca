//! The inbound table: every request of the peer that still matters, by wire id, by the id under
//! which the SDK behind us knows it, by progress token, and by generation.
//!
//! The table says what is there; who won is decided in `connection` and `outgoing`.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::entry::{Alias, Entry, Gone, Met, Name, Opening, Phase};
use crate::id::IdRef;
use crate::tree::small;
use crate::{Generation, Limits, Time};

/// Generations carry their place in the lowest bits: a look-up by generation needs no hash.
const PLACE_BITS: u32 = 17;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
/// Entries in flight, and entries retired, each at most: together they fit in `PLACE_BITS`.
const HALF: usize = 1 << (PLACE_BITS - 1);
/// Marks the position of an entry in the id index that stands under its alias.
const BY_ALIAS: u32 = 1 << 31;

#[derive(Debug)]
pub(crate) struct Table {
    /// Written in place, and left in place when vacant: moving an entry costs as much as finding it.
    entries: Vec<Entry>,
    vacant: Vec<u32>,
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
            entries: Vec::new(),
            vacant: Vec::new(),
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
        self.entries.len() - self.vacant.len() - self.retired_count
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

    /// What `by_wire`, `by_inner` and `insert` look for an id with.
    pub(crate) fn hash(&self, id: &IdRef<'_>) -> u64 {
        id.hash_with(&self.hasher)
    }

    /// The entry that a message of the peer means by this id.
    #[inline(always)]
    pub(crate) fn by_wire(&self, id: &IdRef<'_>, hash: u64) -> Option<&Entry> {
        let found = self.ids.find(hash, |&position| {
            let entry = self.at(position);
            position & BY_ALIAS == 0 && entry.current && id.matches(&entry.wire)
        });
        found.map(|&position| self.at(position))
    }

    /// The entry that the SDK behind us means by this id. One whose answer was swallowed is past
    /// meaning: the SDK answers once.
    pub(crate) fn by_inner(&self, id: &IdRef<'_>, hash: u64) -> Option<&Entry> {
        let found = self.ids.find(hash, |&position| known_as(&self.entries, position, id));
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
            let hash = self.hash(&id);
            if self.by_inner(&id, hash).is_none()
                && self.by_wire(&id, hash).is_none()
                && self.by_progress(&id).is_none()
            {
                return name;
            }
            attempt += 1;
        }
    }

    /// Puts a request in. The one that it replaces keeps its place for what is still sent for it, but
    /// is no longer meant by the peer.
    #[inline(always)]
    pub(crate) fn insert(&mut self, opening: &Opening<'_>, token: u32) -> Generation {
        if let Some(old) = opening.replaces
            && let Some(old) = self.get_mut(old)
        {
            debug_assert!(!old.live(), "a live request keeps its id");
            old.current = false;
            if old.alias.is_some() {
                // Nobody looks for it by this id any more; kept, it would slow down who does.
                let place = small(place_of(opening.replaces.unwrap()));
                if let Ok(found) = self.ids.find_entry(opening.hash, |&at| at == place) {
                    found.remove();
                }
            }
        }
        let place = self.vacant.pop().unwrap_or_else(|| self.grow());
        self.sequence += 1;
        let generation = Generation(self.sequence << PLACE_BITS | u64::from(place));
        let Self { entries, ids, progress, hasher, .. } = self;
        let entry = &mut entries[place as usize];
        entry.generation = generation;
        opening.id.write_to(&mut entry.wire);
        entry.hash = opening.hash;
        entry.token = Some(token);
        entry.phase = Phase::Waiting;
        entry.initialize = opening.initialize;
        entry.task = opening.task;
        entry.effects = false;
        entry.row = opening.row;
        entry.current = true;
        let named = opening.alias.is_some() || opening.progress.is_some();
        if named {
            entry.alias = opening.alias.as_ref().map(|alias| Box::new(alias.name()));
            entry.progress = opening.progress.as_ref().map(|(token, alias)| {
                let own = || Name { inner: token.to_id(), raw: None };
                Box::new(alias.as_ref().map_or_else(own, Alias::name))
            });
        }
        let entry = &entries[place as usize];
        let id_hash = |&at: &u32| id_hash(entries, at, hasher);
        ids.insert_unique(opening.hash, place, id_hash);
        if named {
            if entry.alias.is_some() {
                let hash = entry.inner().hash_with(hasher);
                ids.insert_unique(hash, place | BY_ALIAS, id_hash);
            }
            if let Some(name) = &entry.progress {
                let hash = name.inner.hash_with(hasher);
                progress.insert_unique(hash, place, |&at| progress_hash(entries, at, hasher));
            }
        }
        generation
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        if self.entries.len() == self.entries.capacity() {
            // A quarter more, not twice: what a busy moment took is kept for good.
            self.entries.reserve_exact(self.entries.len() / 4 + 16);
        }
        self.entries.push(Entry::vacant());
        small(self.entries.len() - 1)
    }

    /// What an answer under this id, as the SDK behind us knows it, meets. A live request is taken out
    /// for good.
    #[inline(always)]
    pub(crate) fn answer(&mut self, id: &IdRef<'_>) -> Met {
        let hash = self.hash(id);
        let Self { entries, ids, .. } = self;
        let Ok(found) = ids.find_entry(hash, |&position| known_as(entries, position, id)) else {
            return Met::Nothing;
        };
        let position = *found.get();
        let place = position & !BY_ALIAS;
        let entry = &entries[place as usize];
        if !entry.live() {
            return Met::Cancelled(entry.generation);
        }
        found.remove();
        if position & BY_ALIAS != 0 {
            let hash = entry.hash;
            self.forget(hash, place);
        }
        Met::Live(self.vacate(place))
    }

    /// Takes an entry out for good.
    pub(crate) fn remove(&mut self, generation: Generation) -> Option<Gone> {
        let hash = self.get(generation)?.hash;
        let place = small(place_of(generation));
        self.forget(hash, place);
        Some(self.vacate(place))
    }

    fn forget(&mut self, hash: u64, position: u32) {
        if let Ok(found) = self.ids.find_entry(hash, |&at| at == position) {
            found.remove();
        }
    }

    /// Empties a place whose wire id is no longer in the index.
    #[inline(always)]
    fn vacate(&mut self, place: u32) -> Gone {
        let entry = &mut self.entries[place as usize];
        entry.generation = Generation(0);
        entry.wire.keep_room();
        let (token, initialize, task) = (entry.token.take(), entry.initialize, entry.task);
        let mut raw_id = None;
        if entry.alias.is_some() || entry.progress.is_some() || entry.cancelled.is_some() {
            let alias = entry.alias.take();
            let progress = entry.progress.take();
            let cancelled = entry.cancelled.take();
            if let Some(alias) = alias {
                self.forget(alias.inner.hash_with(&self.hasher), place | BY_ALIAS);
                raw_id = alias.raw;
            }
            if let Some(name) = progress {
                let hash = name.inner.hash_with(&self.hasher);
                if let Ok(found) = self.progress.find_entry(hash, |&at| at == place) {
                    found.remove();
                }
            }
            if cancelled.is_some_and(|cancelled| cancelled.retired_at.is_some()) {
                self.retired_count -= 1;
            }
        }
        self.vacant.push(place);
        Gone { token, initialize, task, raw_id }
    }

    /// The handler of a cancelled request has exited, or its answer was swallowed: keeps what is
    /// still needed of it, for a bounded time. Both may come, in either order.
    pub(crate) fn retire(&mut self, generation: Generation, now: Time) {
        let Some(entry) = self.get_mut(generation) else {
            return;
        };
        let keeps_progress = entry.progress.is_some();
        let Some(cancelled) = &mut entry.cancelled else {
            return;
        };
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
        let live = self.iter().filter(|entry| entry.live());
        let mut live: Vec<_> = live.map(|entry| entry.generation).collect();
        live.sort_unstable();
        live
    }

    /// Every entry.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.generation.0 != 0)
    }

    fn retired_at(&self, generation: Generation) -> Option<Time> {
        self.get(generation)?.cancelled.as_ref()?.retired_at
    }
}

/// Whether `position` stands for the entry that the SDK behind us means by this id.
fn known_as(entries: &[Entry], position: u32, id: &IdRef<'_>) -> bool {
    let entry = &entries[(position & !BY_ALIAS) as usize];
    (position & BY_ALIAS != 0) == entry.alias.is_some()
        && id.matches(entry.inner())
        && entry.cancelled.as_ref().is_none_or(|cancelled| !cancelled.swallowed)
}

fn id_hash(entries: &[Entry], position: u32, hasher: &impl BuildHasher) -> u64 {
    let entry = &entries[(position & !BY_ALIAS) as usize];
    if position & BY_ALIAS == 0 { entry.hash } else { entry.inner().hash_with(hasher) }
}

fn progress_hash(entries: &[Entry], place: u32, hasher: &impl BuildHasher) -> u64 {
    let name = entries[place as usize].progress.as_ref();
    name.map_or(0, |name| name.inner.hash_with(hasher))
}

fn place_of(generation: Generation) -> usize {
    usize::try_from(generation.0 & PLACE_MASK).unwrap_or(usize::MAX)
}
