//! [`Connection`]: the one decision point, and what it says about messages of the peer.
//!
//! One lock holds the inbound table, the token tree and the id allocator. Every race between a
//! request, its answer and its cancel is decided while it is held, here for what is received and
//! in `outgoing` for what is sent. Wakers are called after it is released.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;

use crate::envelope::{self, Body, Envelope, Kind};
use crate::held::Held;
use crate::id::IdRef;
use crate::inbound::{Alias, Cancelled, Entry, Opening, Phase, Table};
use crate::rewrite::{self, bounded, error_reply, splice};
use crate::tasks::Tasks;
use crate::tree::{ROOT, Tree};
use crate::words::Page;
use crate::{
    AliasPolicy, BatchPart, Cause, Config, Era, Finish, Generation, Id, IdMatch, IgnoreReason,
    Inbound, Limits, Received, RejectReason, Silence, Stats, Time, Token, WireKind,
};

/// One ordered channel with one peer, and every decision about it. Clones share it.
#[derive(Clone)]
pub struct Connection {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    wire: WireKind,
    id_match: IdMatch,
    alias: AliasPolicy,
    limits: Limits,
    pub(crate) state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) table: Table,
    pub(crate) tasks: Tasks,
    held: Held,
    pub(crate) stats: Stats,
    pub(crate) closed: Option<Cause>,
    era: Option<Era>,
    /// Negotiated by a handshake that our side has answered.
    pub(crate) version: Option<Box<str>>,
    /// Messages that went to the language without a place in the table, each of which may be
    /// answered once.
    pub(crate) untracked: u64,
    next_id: u64,
}

impl Connection {
    /// A connection with nothing in flight.
    pub fn new(config: Config) -> Self {
        let Config { wire, id_match, early_cancel, alias, limits } = config;
        let state = State {
            tree: Tree::new(),
            table: Table::new(&limits),
            tasks: Tasks::new(limits.max_tasks),
            held: Held::new(early_cancel),
            stats: Stats::default(),
            closed: None,
            era: None,
            version: None,
            untracked: 0,
            next_id: 0,
        };
        let state = Mutex::new(state);
        Self { shared: Arc::new(Shared { wire, id_match, alias, limits, state }) }
    }

    /// Takes one message of the peer: a frame without its newline.
    ///
    /// What cannot be read as JSON is the language's to complain about: it is delivered untouched.
    /// Bytes that are no UTF-8 are read as U+FFFD, as both SDKs read them.
    pub fn receive(&self, frame: &[u8], now: Time) -> Received {
        let text = String::from_utf8_lossy(frame);
        let text = text.as_ref();
        if text.trim_ascii_start().starts_with('[')
            && let Some(elements) = envelope::elements(text)
        {
            return self.receive_batch(&elements, now);
        }
        self.receive_one(text, now)
    }

    /// 2025-03-26 has batches ("MUST support receiving"), later versions have none. Before the
    /// handshake is answered nobody knows, and what is not forbidden is taken.
    fn receive_batch(&self, elements: &[&str], now: Time) -> Received {
        let mut state = self.shared.state.lock();
        let forbidden = state.era == Some(Era::Y2026)
            || state.version.as_deref().is_some_and(|version| version > "2025-03-26");
        if forbidden || elements.is_empty() {
            let reason = RejectReason::Batch;
            state.stats.count_rejected(reason);
            let message = "Invalid Request: this protocol version has no batches, and no batch is empty";
            let reply = error_reply("null", rewrite::INVALID_REQUEST, message);
            return Received::Reject { reply, reason };
        }
        drop(state);
        let part = |element: &&str| BatchPart {
            frame: element.as_bytes().to_vec(),
            verdict: self.receive_one(element, now),
        };
        Received::Batch(elements.iter().map(part).collect())
    }

    fn receive_one(&self, text: &str, now: Time) -> Received {
        // All reading is done before the lock is taken: a huge frame must not hold up a cancel.
        let envelope = envelope::parse(text);
        let params = envelope.as_ref().map(Envelope::params).unwrap_or_default();
        let mut wake = Vec::new();
        let received = {
            let mut state = self.shared.state.lock();
            if state.closed.is_some() {
                return Received::Ignored(IgnoreReason::Closed);
            }
            match envelope {
                Some(envelope) if envelope.kind == Kind::Request => {
                    self.request(&mut state, text, &envelope, &params, now, &mut wake)
                }
                Some(envelope) if &*envelope.method == b"notifications/cancelled" => {
                    self.cancel(&mut state, &params, now, &mut wake)
                }
                Some(envelope) if envelope.kind != Kind::Other => as_it_is(),
                _ => {
                    state.untracked += 1;
                    as_it_is()
                }
            }
        };
        wake.into_iter().for_each(Waker::wake);
        received
    }

    fn request(
        &self,
        state: &mut State,
        text: &str,
        envelope: &Envelope<'_>,
        params: &Body<'_>,
        now: Time,
        wake: &mut Vec<Waker>,
    ) -> Received {
        let (Some(raw_id), Some(id)) = (envelope.raw_id, envelope.id()) else {
            state.untracked += 1;
            return as_it_is();
        };
        let initialize = &*envelope.method == b"initialize";
        let era = if params.meta_version.is_some() { Era::Y2026 } else { Era::Y2025 };
        state.era.get_or_insert(era);
        if raw_id.len() > self.shared.limits.max_id_bytes {
            let message = format!(
                "Invalid Request: id longer than {} bytes (max_id_bytes)",
                self.shared.limits.max_id_bytes
            );
            return state.reject("null", rewrite::INVALID_REQUEST, &message, RejectReason::IdTooLong);
        }
        if state.held.meet(&id, now) && !initialize {
            return match self.shared.wire {
                WireKind::Http2025 => state.reject(
                    raw_id,
                    rewrite::REQUEST_CANCELLED,
                    "Request cancelled",
                    RejectReason::CancelledEarly,
                ),
                WireKind::Stdio | WireKind::Http2026 => state.ignore(IgnoreReason::CancelledEarly),
            };
        }
        let alias = match state.table.by_wire(&id) {
            Some(first) if first.live() => {
                let message = "Invalid Request: a request with this id is in flight";
                let reason = RejectReason::DuplicateId;
                return state.reject(raw_id, rewrite::INVALID_REQUEST, message, reason);
            }
            Some(first) => first.cancelled.as_ref().is_some_and(|cancelled| cancelled.pending()),
            None => false,
        };
        if state.table.full() {
            let message = format!(
                "Too many requests in flight: at most {} (max_in_flight)",
                self.shared.limits.max_in_flight
            );
            return state.reject(raw_id, rewrite::OVERLOADED, &message, RejectReason::TooManyInFlight);
        }
        // The SDK behind us must not take one name for two requests, nor a name that it garbles.
        let alias = alias || self.garbled(&id) || state.table.by_inner(&id).is_some();
        let progress = params
            .meta_progress
            .and_then(|raw| Some((raw, IdRef::parse(raw)?)))
            .filter(|(raw, _)| raw.len() <= self.shared.limits.max_id_bytes);
        let taken = progress.as_ref().and_then(|(_, token)| state.table.by_progress(token));
        let progress_alias = taken.is_some_and(|holder| !holder.live());

        let name = (alias || progress_alias).then(|| state.table.fresh_name());
        let quoted = name.as_ref().map(|name| format!("\"{name}\"")).unwrap_or_default();
        let mut parts = Vec::new();
        let id_alias = name.as_ref().filter(|_| alias).map(|name| {
            parts.push((raw_id, quoted.as_str()));
            Alias { name: name.clone(), raw: raw_id }
        });
        let progress = progress.map(|(raw, token)| {
            let alias = name.as_ref().filter(|_| progress_alias).map(|name| {
                parts.push((raw, quoted.as_str()));
                Alias { name: name.clone(), raw }
            });
            (token, alias)
        });
        let rewritten = (!parts.is_empty()).then(|| splice(text, &mut parts));
        state.stats.aliased += u64::from(rewritten.is_some());

        let task = params.task.is_some_and(|task| task.starts_with('{'));
        let opening = Opening { id: &id, token: 0, initialize, task, alias: id_alias, progress };
        let request = state.open(opening);
        if &*envelope.method == b"tasks/cancel" {
            state.cancel_task(params, wake);
        }
        Received::Deliver { request: Some(request), rewritten }
    }

    fn garbled(&self, id: &IdRef<'_>) -> bool {
        const MAX_SAFE: u64 = (1 << 53) - 1;
        let AliasPolicy { beyond_f64, falsy } = self.shared.alias;
        match id {
            IdRef::Int(0) => falsy,
            IdRef::Int(value) => beyond_f64 && value.unsigned_abs() > MAX_SAFE,
            IdRef::Big(_) => beyond_f64,
            IdRef::Str(text) => falsy && text.is_empty(),
        }
    }

    fn cancel(
        &self,
        state: &mut State,
        params: &Body<'_>,
        now: Time,
        wake: &mut Vec<Waker>,
    ) -> Received {
        let Some(id) = params.request_id.and_then(IdRef::parse) else {
            return state.ignore(IgnoreReason::MalformedCancel);
        };
        let Some(entry) = self.meant(state, &id) else {
            return if state.held.hold(&id, now) {
                state.ignore(IgnoreReason::HeldCancel)
            } else if state.held.passed(&id) {
                state.ignore(IgnoreReason::LateCancel)
            } else {
                state.ignore(IgnoreReason::UnknownCancel)
            };
        };
        if entry.initialize {
            return state.ignore(IgnoreReason::InitializeCancel);
        }
        if !entry.live() {
            return state.ignore(IgnoreReason::RepeatedCancel);
        }
        let generation = entry.generation;
        let silence = self.silence(entry, params.request_id.unwrap_or_default());
        let reason = params.reason.and_then(envelope::string);
        let reason = reason.map(|reason| match reason {
            Cow::Borrowed(reason) => String::from_utf8_lossy(reason).into_owned(),
            Cow::Owned(reason) => String::from_utf8_lossy(&reason).into_owned(),
        });
        let max = self.shared.limits.max_reason_bytes;
        let reason = reason.map(|reason| Arc::from(bounded(&reason, max)));
        state.cancel(generation, Cause::Peer, reason.as_ref(), now, wake);
        Received::Cancelled { generation, silence }
    }

    /// The request that a cancel's id means: by type and value, and where we are lenient by the
    /// other type if just that fits.
    fn meant<'s>(&self, state: &'s State, id: &IdRef<'_>) -> Option<&'s Entry> {
        let strict = state.table.by_wire(id);
        if strict.is_some() || self.shared.id_match == IdMatch::Strict {
            return strict;
        }
        id.other_type().and_then(|other| state.table.by_wire(&other))
    }

    fn silence(&self, entry: &Entry, raw_id: &str) -> Silence {
        match self.shared.wire {
            WireKind::Stdio => Silence::Nothing,
            WireKind::Http2026 => Silence::CloseStream,
            WireKind::Http2025 => {
                let raw_id = entry.raw_id().unwrap_or(raw_id);
                let message = "Request cancelled";
                Silence::Answer(error_reply(raw_id, rewrite::REQUEST_CANCELLED, message))
            }
        }
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
        let Some(entry) = state.table.get_mut(generation) else { return false };
        if entry.live() {
            entry.phase = Phase::Running;
            return true;
        }
        state.exit(generation, now);
        false
    }

    /// The handler of this request has exited, however it did; says what it owes.
    pub fn finish(&self, generation: Generation, now: Time) -> Finish {
        let mut state = self.shared.state.lock();
        match state.table.get_mut(generation) {
            None => Finish::Unknown,
            Some(entry) if entry.live() => {
                entry.phase = Phase::Exited;
                Finish::Owed
            }
            Some(_) => {
                state.exit(generation, now);
                Finish::Silent
            }
        }
    }

    /// The language never saw this request, or could not read it: no handler will run, and nothing
    /// will be sent for it.
    pub fn discard(&self, generation: Generation) {
        let mut state = self.shared.state.lock();
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
            state.held.clear();
            let live = state.table.live();
            for &generation in &live {
                state.cancel(generation, cause, None, now, &mut wake);
            }
            state.tree.trip(ROOT, cause, None, &mut wake);
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
        state.table.next_eviction().into_iter().chain(state.held.next_expiry()).min()
    }

    /// Lets go of what is only kept for a time.
    pub fn handle_timeout(&self, now: Time) {
        let mut state = self.shared.state.lock();
        state.table.evict(now);
        state.held.expire(now);
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
        Some(self.shared.state.lock().table.get(generation)?.wire().clone())
    }

    /// The root of the tree: trips when the connection closes.
    pub fn root(&self) -> Token {
        Token::new(&self.shared, &self.shared.state.lock().tree, ROOT)
    }

    /// An id for a request of ours: larger than all before it on this connection, and never used
    /// again. Starts at 1.
    pub fn mint_id(&self) -> u64 {
        let mut state = self.shared.state.lock();
        state.next_id += 1;
        state.next_id
    }

    /// Which era the peer's first request spoke, once there was one.
    pub fn era(&self) -> Option<Era> {
        self.shared.state.lock().era
    }

    /// A snapshot of what was counted, and of the sizes of the tables.
    pub fn stats(&self) -> Stats {
        let state = self.shared.state.lock();
        Stats {
            in_flight: state.table.in_flight(),
            retired: state.table.retired(),
            tasks: state.tasks.len(),
            tokens: state.tree.len(),
            watches: state.tree.waiters(),
            held: state.held.len(),
            ..state.stats.clone()
        }
    }

    /// How many pages of state words there are; they only ever become more.
    pub fn state_pages(&self) -> usize {
        self.shared.state.lock().tree.page_count()
    }

    /// Page `number` of the state words, if there is one.
    pub fn state_page(&self, number: usize) -> Option<Arc<Page>> {
        self.shared.state.lock().tree.page_at(number).cloned()
    }

    /// Puts a request in the table by its id alone, for a transport that has read the envelope
    /// already; `None` where a request with this id is live, or the table is full.
    pub fn register(&self, id: &IdRef<'_>) -> Option<Inbound> {
        let mut state = self.shared.state.lock();
        if state.closed.is_some() || state.table.full() || state.table.by_wire(id).is_some() {
            return None;
        }
        let opening =
            Opening { id, token: 0, initialize: false, task: false, alias: None, progress: None };
        Some(state.open(opening))
    }

    /// Answers a request by its id alone: true if its answer is to be written, exactly once.
    pub fn complete(&self, id: &IdRef<'_>, now: Time) -> bool {
        self.shared.state.lock().answer(id, None, now).is_ok()
    }
}

impl State {
    /// Puts a request in the table with a token of its own under the root.
    fn open(&mut self, mut opening: Opening<'_>) -> Inbound {
        let slot = self.tree.add(ROOT);
        opening.token = slot;
        let generation = self.table.insert(opening);
        self.stats.requests += 1;
        Inbound { generation, slot, serial: self.tree.serial(slot) }
    }

    fn cancel(
        &mut self,
        generation: Generation,
        cause: Cause,
        reason: Option<&Arc<str>>,
        now: Time,
        wake: &mut Vec<Waker>,
    ) {
        let Some(entry) = self.table.get_mut(generation) else { return };
        entry.cancelled = Some(Cancelled::new(now));
        self.stats.count_cancelled(cause);
        if let Some(token) = entry.token {
            self.tree.trip(token, cause, reason, wake);
        }
        if entry.phase == Phase::Exited {
            self.exit(generation, now);
        }
    }

    fn cancel_task(&mut self, params: &Body<'_>, wake: &mut Vec<Waker>) {
        let id = params.task_id.and_then(envelope::string);
        if let Some(token) = id.and_then(|id| self.tasks.token(&id)) {
            self.tree.trip(token, Cause::Peer, None, wake);
        }
    }

    /// The handler of a cancelled request has exited, or will never start.
    pub(crate) fn exit(&mut self, generation: Generation, now: Time) {
        let Some(entry) = self.table.get_mut(generation) else { return };
        entry.phase = Phase::Exited;
        let token = entry.token.take();
        if let (Some(cancelled), true) = (&entry.cancelled, token.is_some()) {
            self.stats.cancel_latency.record(now.since(cancelled.at));
        }
        self.let_go(token);
        self.table.retire(generation, now);
    }

    pub(crate) fn let_go(&mut self, token: Option<u32>) {
        if let Some(token) = token {
            self.tree.detach(token);
        }
    }

    fn ignore(&mut self, reason: IgnoreReason) -> Received {
        self.stats.count_ignored(reason);
        Received::Ignored(reason)
    }

    fn reject(&mut self, raw_id: &str, code: i32, message: &str, reason: RejectReason) -> Received {
        self.stats.count_rejected(reason);
        Received::Reject { reply: error_reply(raw_id, code, message), reason }
    }
}

fn as_it_is() -> Received {
    Received::Deliver { request: None, rewritten: None }
}
