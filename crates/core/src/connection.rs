//! [`Connection`]: the one decision point, and the life of a request in it.
//!
//! One lock holds the tables, the token tree and the id allocator. Every race between a
//! request, its answer and its cancel is decided while it is held: in `incoming` for what is
//! received, in `outgoing` for what is sent, in `caller` for our own requests, here for what handlers do and for the end. Wakers are
//! called after it is released.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::entry::{Cancelled, Opening, Phase};
use crate::held::Held;
use crate::id::IdRef;
use crate::inbound::Table;
use crate::outbound::Outbound;
use crate::rewrite::{self, error_reply};
use crate::signals::{OTHER, Signals};
use crate::sync::Mutex;
use crate::tasks::Tasks;
use crate::tree::{ROOT, Tree};
use crate::untracked::Untracked;
use crate::words::Page;
use crate::works::Works;
use crate::{
    Cause, Config, Era, Finish, Generation, Id, Inbound, Output, Stats, Time, Token, WireKind,
};

/// One ordered channel with one peer, and every decision about it. Clones share it.
#[derive(Clone)]
pub struct Connection {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) table: Table,
    pub(crate) tasks: Tasks,
    pub(crate) held: Held,
    pub(crate) stats: Stats,
    pub(crate) signals: Signals,
    pub(crate) works: Works,
    pub(crate) closed: Option<Cause>,
    pub(crate) era: Option<Era>,
    /// Negotiated by a handshake that our side has answered.
    pub(crate) version: Option<Box<str>>,
    pub(crate) untracked: Untracked,
    pub(crate) outbound: Outbound,
    pub(crate) outputs: Vec<Output>,
    pub(crate) output_waker: Option<Waker>,
    pub(crate) wire: WireKind,
    /// The latest time that was handed in.
    pub(crate) clock: Time,
}

impl Connection {
    /// A connection with nothing in flight.
    pub fn new(config: Config) -> Self {
        let state = State {
            tree: Tree::new(),
            table: Table::new(&config.limits),
            tasks: Tasks::new(config.limits.max_tasks),
            held: Held::new(config.early_cancel),
            stats: Stats::default(),
            signals: Signals::new(&config.limits),
            works: Works::default(),
            closed: None,
            era: None,
            version: None,
            untracked: Untracked::default(),
            outbound: Outbound::new(&config.limits),
            outputs: Vec::new(),
            output_waker: None,
            wire: config.wire,
            clock: Time(0),
        };
        let state = Mutex::new(state);
        Self { shared: Arc::new(Shared { config, state }) }
    }

    /// A frame was longer than the transport takes, and was skipped: the reply that says so.
    pub fn too_long(&self, max: usize) -> Vec<u8> {
        self.shared.state.lock().stats.rejected += 1;
        let message = format!("Invalid Request: frame longer than {max} bytes (max_frame)");
        error_reply("null", rewrite::INVALID_REQUEST, &message)
    }

    /// The handler of this request is about to start. False if it must not: the request was
    /// cancelled, or is not in the table.
    pub fn start(&self, generation: Generation, now: Time) -> bool {
        let mut state = self.shared.state.lock();
        state.clock = state.clock.max(now);
        let Some(entry) = state.table.get_mut(generation) else {
            return false;
        };
        if entry.live() {
            entry.phase = Phase::Running;
            return true;
        }
        state.exit(generation, false, now);
        false
    }

    /// The handler of this request has exited, however it did; says what it owes.
    pub fn finish(&self, generation: Generation, now: Time) -> Finish {
        let mut state = self.shared.state.lock();
        state.clock = state.clock.max(now);
        match state.table.get_mut(generation) {
            None => Finish::Unknown,
            Some(entry) if entry.live() => {
                entry.phase = Phase::Exited;
                Finish::Owed
            }
            Some(_) => {
                state.exit(generation, true, now);
                Finish::Silent
            }
        }
    }

    /// The language never saw this request, or could not read it: no handler will run, and nothing
    /// will be sent for it.
    pub fn discard(&self, generation: Generation) {
        let mut state = self.shared.state.lock();
        state.report(generation, None);
        if let Some(entry) = state.table.remove(generation) {
            state.let_go(entry.token);
        }
    }

    /// The connection is over: trips every token and returns the requests that this cancelled.
    /// Nothing is delivered or written any more. Doing it again does nothing.
    pub fn close(&self, cause: Cause, now: Time) -> Vec<Generation> {
        let mut wake = Vec::new();
        let cancelled = {
            let mut state = self.shared.state.lock();
            if state.closed.is_some() {
                return Vec::new();
            }
            state.closed = Some(cause);
            state.clock = state.clock.max(now);
            state.held.clear();
            let live = state.table.live();
            for &generation in &live {
                state.cancel(generation, cause, None, now, &mut wake);
            }
            state.trip(ROOT, cause, None, &mut wake);
            for call in state.outbound.calls() {
                state.abandon(call, cause, None, true, &mut wake);
            }
            let State { tasks, tree, .. } = &mut *state;
            tasks.drain().for_each(|token| tree.detach(token));
            live
        };
        wake.into_iter().for_each(Waker::wake);
        cancelled
    }

    /// When [`handle_timeout`](Self::handle_timeout) next has something to do, if ever.
    pub fn poll_timeout(&self) -> Option<Time> {
        let state = self.shared.state.lock();
        let next = [state.table.next_eviction(), state.held.next_expiry(), state.outbound.next()];
        next.into_iter().flatten().min()
    }

    /// Abandons the requests of ours that are out of time, and lets go of what is only kept for a time.
    pub fn handle_timeout(&self, now: Time) {
        let mut wake = Vec::new();
        {
            let mut state = self.shared.state.lock();
            state.clock = state.clock.max(now);
            state.table.evict(now);
            state.held.expire(now);
            let reason = Arc::from("timed out");
            for call in state.outbound.expired(now) {
                state.abandon(call, Cause::Timeout, Some(&reason), true, &mut wake);
            }
            state.outbound.evict(now);
        }
        wake.into_iter().for_each(Waker::wake);
    }

    /// The request's token, while its handler may run.
    pub fn token(&self, generation: Generation) -> Option<Token> {
        let state = self.shared.state.lock();
        let slot = state.table.get(generation)?.token?;
        Some(Token::new(&self.shared, &state.tree, slot))
    }

    /// The id by which the SDK behind us knows this request, while it is in the table.
    pub fn inner_id(&self, generation: Generation) -> Option<Id> {
        Some(self.shared.state.lock().table.get(generation)?.inner().clone())
    }

    /// The id of a request as the peer knows it, while the request is in the table.
    pub fn wire_id(&self, generation: Generation) -> Option<Id> {
        Some(self.shared.state.lock().table.get(generation)?.wire.clone())
    }

    /// The root of the tree: trips when the connection closes.
    pub fn root(&self) -> Token {
        Token::new(&self.shared, &self.shared.state.lock().tree, ROOT)
    }

    /// Which era the peer's first request spoke, once there was one.
    pub fn era(&self) -> Option<Era> {
        self.shared.state.lock().era
    }

    /// Page `number` of the state words, if there is one.
    pub fn state_page(&self, number: usize) -> Option<Arc<Page>> {
        self.shared.state.lock().tree.page_at(number).cloned()
    }

    /// Puts a request in the table by its id alone, for a transport that has read the envelope
    /// already; `None` where a request with this id is live, or the table is full.
    pub fn register(&self, id: &IdRef<'_>) -> Option<Inbound> {
        let mut state = self.shared.state.lock();
        let hash = state.table.hash(id);
        if state.closed.is_some() || state.table.full() || state.table.by_wire(id, hash).is_some() {
            return None;
        }
        Some(state.open(&Opening {
            id,
            hash,
            replaces: None,
            initialize: false,
            task: false,
            row: OTHER,
            alias: None,
            progress: None,
        }))
    }

    /// Answers a request by its id alone: true if its answer is to be written, exactly once.
    pub fn complete(&self, id: &IdRef<'_>, now: Time) -> bool {
        let mut state = self.shared.state.lock();
        state.clock = state.clock.max(now);
        let answered = state.answer(id, now);
        if let Ok(request) = &answered {
            state.let_go(request.token);
        }
        answered.is_ok()
    }
}

impl State {
    /// Puts a request in the table with a token of its own under the root.
    #[inline(always)]
    pub(crate) fn open(&mut self, opening: &Opening<'_>) -> Inbound {
        let (slot, serial) = self.tree.add(ROOT);
        let generation = self.table.insert(opening, slot);
        self.stats.requests += 1;
        self.signals.opened(opening.row);
        Inbound { generation, slot, serial }
    }

    pub(crate) fn cancel(
        &mut self,
        generation: Generation,
        cause: Cause,
        reason: Option<&Arc<str>>,
        now: Time,
        wake: &mut Vec<Waker>,
    ) {
        let Some(entry) = self.table.get_mut(generation) else {
            return;
        };
        let (at, reason_kept) = (now, reason.cloned());
        let cancelled =
            Cancelled { at, cause, reason: reason_kept, swallowed: false, retired_at: None };
        entry.cancelled = Some(Box::new(cancelled));
        self.stats.count_cancelled(cause);
        self.signals.cancelled(entry.row, cause);
        if entry.effects {
            self.signals.abandoned_with_effects(entry.row);
        }
        let (token, exited) = (entry.token, entry.phase == Phase::Exited);
        self.works.cancelled(generation, cause, now);
        if let Some(token) = token {
            self.trip(token, cause, reason, wake);
        }
        if exited {
            self.exit(generation, true, now);
        }
    }

    /// The handler of a cancelled request has exited, or, if it has not started, never will.
    pub(crate) fn exit(&mut self, generation: Generation, started: bool, now: Time) {
        let Some(entry) = self.table.get_mut(generation) else {
            return;
        };
        entry.phase = Phase::Exited;
        let token = entry.token.take();
        if let (Some(cancelled), true) = (&entry.cancelled, token.is_some()) {
            let latency = now.since(cancelled.at);
            self.stats.cancel_latency.record(latency);
            if started {
                self.signals.exited(entry.row, latency);
            }
            self.report(generation, started.then_some(latency));
        }
        self.let_go(token);
        self.table.retire(generation, now);
    }

    /// A request is over for good: if it was cancelled, that is reported.
    fn report(&mut self, generation: Generation, latency: Option<Duration>) {
        if let Some(entry) = self.table.get(generation)
            && let Some(Cancelled { cause, reason, .. }) = entry.cancelled.as_deref()
        {
            let (id, reason) = (entry.wire.clone(), reason.clone());
            self.signals.report(entry.row, id, *cause, reason, latency);
        }
    }

    pub(crate) fn let_go(&mut self, token: Option<u32>) {
        if let Some(token) = token {
            self.tree.detach(token);
        }
    }
}
