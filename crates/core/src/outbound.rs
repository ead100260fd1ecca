//! The outbound table: our own requests, by the id that they have on the wire.
//!
//! ```text
//! Queued ──transmit──▶ Pending ──response──▶ settled: its caller gets it
//!    └── abandoned: never sent   └── abandoned: a tombstone stays, for a bounded time and number
//! ```
//!
//! Two kinds of caller share it. Who asks the core for a request ([`Connection::begin`](crate::Connection::begin)) gets
//! an id that was never used. An SDK that sends a request of its own keeps its id where that is a number that
//! was never used either; else the request goes out under one of ours, and its response is translated back.
//!
//! The table says what is there; who won is decided in `caller`.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::{Call, CallOutcome, Id, Limits, Time};

/// Where our own ids begin once an SDK counts beside us, from 0 or 1: it would have to make as many requests first.
const ABOVE_AN_SDK: u64 = 1_000_000_000;
/// An SDK's larger ids do not stay: ours, which are larger still, are to be read exactly by every language.
const LARGEST_KEPT: u64 = (1 << 52) - 1;
/// Ids that an SDK has skipped and may still use; with more, the lowest count as used.
const MAX_GAPS: usize = 256;

/// One request of ours that is neither settled nor abandoned.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Facts, each for itself.
pub(crate) struct Outgoing {
    /// The writer has taken it: from now on it cannot be removed, only cancelled.
    pub(crate) transmitted: bool,
    pub(crate) initialize: bool,
    pub(crate) task: bool,
    /// An SDK waits for its response, under this id; `None` for a caller of ours.
    pub(crate) inner: Option<Inner>,
    pub(crate) token: u32,
    pub(crate) idle: Option<Duration>,
    /// When it has been idle for too long; moves with progress.
    pub(crate) idle_at: Option<Time>,
    pub(crate) total_at: Option<Time>,
    pub(crate) progress: Option<Progress>,
}

/// How an SDK knows a request of its own.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) id: Id,
    /// Its spelling, where the wire has another id.
    pub(crate) raw: Option<Box<str>>,
}

/// The progress token of a request.
#[derive(Debug)]
pub(crate) struct Progress {
    /// As the wire has it.
    pub(crate) wire: Id,
    /// The SDK's spelling, where the wire has another.
    pub(crate) raw: Option<Box<str>>,
}

impl Outgoing {
    fn deadline(&self) -> Option<Time> {
        self.idle_at.into_iter().chain(self.total_at).min()
    }
}

/// The memory of an abandoned request.
#[derive(Debug)]
pub(crate) struct Tombstone {
    pub(crate) at: Time,
    pub(crate) outcome: CallOutcome,
    pub(crate) progress: Option<Id>,
}

/// What a response, or another mention of an id, meets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meets {
    Pending,
    Abandoned,
    Answered,
    /// The id was used, and is remembered no more.
    Forgotten,
    NeverUsed,
}

#[derive(Debug)]
pub(crate) struct Outbound {
    live: HashMap<u64, Outgoing, RandomState>,
    /// Wire ids of requests whose SDK knows them by another id.
    aliases: HashMap<Id, u64, RandomState>,
    /// Requests that were made under an id whose SDK has used it again: the newest is meant.
    shadowed: usize,
    /// Wire ids by progress token, as the wire has it: of what is live, and of what was abandoned while there is a
    /// tombstone, since its progress may still come.
    progress: HashMap<Id, u64, RandomState>,
    deadlines: BTreeSet<(Time, u64)>,
    tombstones: HashMap<u64, Tombstone, RandomState>,
    /// In the order of their making; one that went before its time is skipped.
    buried: VecDeque<u64>,
    answered: VecDeque<u64>,
    /// Progress tokens of requests that became tasks: they outlive the response.
    lasting: VecDeque<Progress>,
    /// The last id of ours in the range that begins at 1, and in that which begins at [`ABOVE_AN_SDK`].
    low: u64,
    high: u64,
    /// The highest id that an SDK has used.
    highest: Option<u64>,
    gaps: BTreeSet<u64>,
    max_tombstones: usize,
    tombstone_age: Duration,
    max_tasks: usize,
}

impl Outbound {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            live: HashMap::default(),
            aliases: HashMap::default(),
            shadowed: 0,
            progress: HashMap::default(),
            deadlines: BTreeSet::new(),
            tombstones: HashMap::default(),
            buried: VecDeque::new(),
            answered: VecDeque::new(),
            lasting: VecDeque::new(),
            low: 0,
            high: ABOVE_AN_SDK - 1,
            highest: None,
            gaps: BTreeSet::new(),
            max_tombstones: limits.max_tombstones,
            tombstone_age: limits.tombstone_age,
            max_tasks: limits.max_tasks,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn tombstones(&self) -> usize {
        self.tombstones.len()
    }

    pub(crate) fn get(&self, call: Call) -> Option<&Outgoing> {
        self.live.get(&call.0)
    }

    pub(crate) fn get_mut(&mut self, call: Call) -> Option<&mut Outgoing> {
        self.live.get_mut(&call.0)
    }

    /// Every request that is not over.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let mut calls: Vec<_> = self.live.keys().copied().map(Call).collect();
        calls.sort_unstable();
        calls
    }

    /// An id that was never used on this connection, larger than all that were made here before.
    pub(crate) fn mint(&mut self) -> Call {
        let beside_an_sdk = self.highest.is_some() || self.low + 1 == ABOVE_AN_SDK;
        if !beside_an_sdk {
            self.low += 1;
            return Call(self.low);
        }
        self.high = self.high.max(self.highest.unwrap_or(0)) + 1;
        // What the SDK has skipped below counts as ours: to look for what is free could take for ever.
        while self.gaps.last().is_some_and(|&gap| gap >= ABOVE_AN_SDK) {
            self.gaps.pop_last();
        }
        Call(self.high)
    }

    /// The id of an SDK's request, if it may go out as it is; it counts as used from here on.
    pub(crate) fn keep(&mut self, id: &Id) -> Option<Call> {
        let &Id::Int(id) = id else { return None };
        let id = u64::try_from(id).ok().filter(|&id| id <= LARGEST_KEPT)?;
        if self.was_minted(id) {
            return None;
        }
        match self.highest {
            Some(highest) if id <= highest => {
                if !self.gaps.remove(&id) {
                    return None;
                }
            }
            highest => {
                let first = highest.map_or(0, |highest| highest + 1);
                for skipped in first.max(id.saturating_sub(MAX_GAPS as u64))..id {
                    if !self.was_minted(skipped) {
                        self.gaps.insert(skipped);
                    }
                }
                while self.gaps.len() > MAX_GAPS {
                    self.gaps.pop_first();
                }
                self.highest = Some(id);
            }
        }
        Some(Call(id))
    }

    fn was_minted(&self, id: u64) -> bool {
        (1..=self.low).contains(&id) || (ABOVE_AN_SDK..=self.high).contains(&id)
    }

    pub(crate) fn insert(&mut self, call: Call, outgoing: Outgoing) {
        if let Some(Inner { id, raw: Some(_) }) = &outgoing.inner {
            let before = self.aliases.insert(id.clone(), call.0);
            self.shadowed += usize::from(before.is_some());
        }
        if let Some(progress) = &outgoing.progress {
            self.progress.insert(progress.wire.clone(), call.0);
        }
        self.deadlines.extend(outgoing.deadline().map(|at| (at, call.0)));
        self.live.insert(call.0, outgoing);
    }

    /// Takes a request out, settled or abandoned.
    pub(crate) fn remove(&mut self, call: Call) -> Option<Outgoing> {
        let outgoing = self.live.remove(&call.0)?;
        if let Some(Inner { id, raw: Some(_) }) = &outgoing.inner {
            if self.aliases.get(id) != Some(&call.0) {
                self.shadowed -= 1;
            } else if let Some(before) = self.shadowed_by(id) {
                self.aliases.insert(id.clone(), before);
                self.shadowed -= 1;
            } else {
                self.aliases.remove(id);
            }
        }
        if let Some(at) = outgoing.deadline() {
            self.deadlines.remove(&(at, call.0));
        }
        Some(outgoing)
    }

    /// The newest request under this id that an SDK has used again.
    fn shadowed_by(&self, id: &Id) -> Option<u64> {
        if self.shadowed == 0 {
            return None;
        }
        let under = |outgoing: &Outgoing| {
            outgoing.inner.as_ref().is_some_and(|inner| inner.raw.is_some() && inner.id == *id)
        };
        self.live.iter().filter(|(_, outgoing)| under(outgoing)).map(|(&call, _)| call).max()
    }

    /// The request that an SDK means by this id of its own.
    pub(crate) fn by_inner(&self, id: &Id) -> Option<Call> {
        if let Some(&call) = self.aliases.get(id) {
            return Some(Call(call));
        }
        let &Id::Int(value) = id else { return None };
        let call = Call(u64::try_from(value).ok()?);
        let inner = self.get(call)?.inner.as_ref()?;
        inner.raw.is_none().then_some(call)
    }

    /// The request that has this progress token on the wire; nobody can report on what was not sent.
    pub(crate) fn by_progress(&self, token: &Id) -> Option<Call> {
        let call = Call(*self.progress.get(token)?);
        self.get(call)?.transmitted.then_some(call)
    }

    /// Whether progress under this token may still come for another request.
    pub(crate) fn taken(&self, token: &Id) -> bool {
        self.progress.contains_key(token) || self.lasting(token).is_some()
    }

    /// A progress token that is not taken.
    pub(crate) fn fresh_token(&self, call: Call) -> String {
        let name = |attempt| match attempt {
            0 => format!("countermand:{}", call.0),
            _ => format!("countermand:{}:{attempt}", call.0),
        };
        let free = |name: &String| !self.taken(&Id::Str(name.as_bytes().into()));
        // One more than there are can be taken at most.
        let few = self.progress.len() + self.lasting.len() + 1;
        (0..=few).map(name).find(free).unwrap_or_default()
    }

    /// The progress token of a request that became a task.
    pub(crate) fn lasting(&self, token: &Id) -> Option<&Progress> {
        self.lasting.iter().find(|progress| progress.wire == *token)
    }

    /// No progress comes under this token any more.
    pub(crate) fn forget_progress(&mut self, token: &Id) {
        self.progress.remove(token);
    }

    /// The request has become a task: its progress goes on.
    pub(crate) fn let_last(&mut self, progress: Progress) {
        self.lasting.push_back(progress);
        if self.lasting.len() > self.max_tasks {
            self.lasting.pop_front();
        }
    }

    /// There was progress: the request is not idle.
    pub(crate) fn moved(&mut self, call: Call, now: Time) {
        let Some(outgoing) = self.live.get_mut(&call.0) else { return };
        let Some(idle) = outgoing.idle else { return };
        if let Some(before) = outgoing.deadline() {
            self.deadlines.remove(&(before, call.0));
        }
        outgoing.idle_at = Some(now.after(idle));
        self.deadlines.extend(outgoing.deadline().map(|at| (at, call.0)));
    }

    /// What a response under this id meets.
    pub(crate) fn meets(&self, id: u64) -> Meets {
        if let Some(outgoing) = self.live.get(&id) {
            // Nobody can answer what was not sent.
            return if outgoing.transmitted { Meets::Pending } else { Meets::NeverUsed };
        }
        if self.tombstones.contains_key(&id) {
            Meets::Abandoned
        } else if self.answered.contains(&id) {
            Meets::Answered
        } else if self.used(id) {
            Meets::Forgotten
        } else {
            Meets::NeverUsed
        }
    }

    fn used(&self, id: u64) -> bool {
        self.was_minted(id)
            || self.highest.is_some_and(|highest| id <= highest && !self.gaps.contains(&id))
    }

    pub(crate) fn answered(&mut self, call: Call) {
        self.answered.push_back(call.0);
        if self.answered.len() > self.max_tombstones {
            self.answered.pop_front();
        }
    }

    pub(crate) fn bury(&mut self, call: Call, tombstone: Tombstone) {
        self.tombstones.insert(call.0, tombstone);
        self.buried.push_back(call.0);
    }

    pub(crate) fn tombstone(&mut self, call: Call) -> Option<&mut Tombstone> {
        self.tombstones.get_mut(&call.0)
    }

    /// Lets go of tombstones that are too old, or too many.
    pub(crate) fn evict(&mut self, now: Time) {
        while let Some(&oldest) = self.buried.front() {
            match self.tombstones.get(&oldest) {
                None => {}
                Some(tombstone)
                    if self.tombstones.len() > self.max_tombstones
                        || tombstone.at.after(self.tombstone_age) <= now =>
                {
                    if let Some(Tombstone { progress: Some(token), .. }) =
                        self.tombstones.remove(&oldest)
                    {
                        self.progress.remove(&token);
                    }
                }
                Some(_) => break,
            }
            self.buried.pop_front();
        }
    }

    /// The requests that are out of time.
    pub(crate) fn expired(&self, now: Time) -> Vec<Call> {
        let due = self.deadlines.iter().take_while(|(at, _)| *at <= now);
        due.map(|&(_, call)| Call(call)).collect()
    }

    /// When [`evict`](Self::evict) or [`expired`](Self::expired) next has something to do.
    pub(crate) fn next(&self) -> Option<Time> {
        let deadline = self.deadlines.first().map(|&(at, _)| at);
        let oldest = self.buried.iter().find_map(|call| self.tombstones.get(call));
        let eviction = oldest.map(|tombstone| tombstone.at.after(self.tombstone_age));
        deadline.into_iter().chain(eviction).min()
    }
}
