//! The reference model: the rules once more, slow and obvious. A list of requests, a list of
//! tokens, a list of tasks, and a loop wherever the core has an index.
//!
//! It knows nothing of generations, slots or locks; it names requests by label. Where it and the
//! core differ, one of them (or the design) is wrong. What is read from bytes is in `read`, the
//! tree in `tokens`, what our side sends in `sending`, what handlers do in `life`; the requests of our own
//! side are in `calls`, `asks` and `replies`, and the words for all of it in `said`.

mod asks;
mod calls;
mod life;
pub mod read;
mod replies;
mod said;
mod sending;
mod tokens;

use calls::Calls;
use countermand_core::{Cause, Config, IdMatch, IgnoreReason, RejectReason, Stats, Time, WireKind};
use read::{Fields, Key, key, object, string};
pub use said::{Begun, Out, Parent, Silence, Told, Verdict};
use tokens::Tokens;

use crate::step::Label;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    Exited,
}

/// A request in the table.
#[derive(Clone, Debug)]
struct Request {
    label: Label,
    id: Key,
    inner: Key,
    /// The peer's spelling of the id, if our side knows it by another.
    raw: Option<String>,
    progress: Option<Progress>,
    initialize: bool,
    task: bool,
    /// Whether the peer still means it by its id.
    current: bool,
    phase: Phase,
    cancelled_at: Option<Time>,
    swallowed: bool,
    retired_at: Option<Time>,
    token: Option<usize>,
}

#[derive(Clone, Debug)]
struct Progress {
    inner: Key,
    raw: Option<String>,
}

impl Request {
    fn live(&self) -> bool {
        self.cancelled_at.is_none()
    }
}

/// The whole state of one connection.
#[derive(Clone, Debug)]
pub struct Model {
    config: Config,
    requests: Vec<Request>,
    pub(crate) tokens: Tokens,
    tasks: Vec<(String, usize)>,
    held: Vec<(i64, Time)>,
    highest: Option<i64>,
    closed: bool,
    /// Whether the first request spoke the 2026 era.
    modern: Option<bool>,
    /// Of the last handshake.
    version: Option<String>,
    /// Answers that are owed to messages with no place in the table: those that named an id.
    spoken: Vec<Key>,
    /// And those that did not.
    nameless: u64,
    calls: Calls,
    /// What should be done about them, and was not asked for yet.
    told: Vec<Told>,
    /// The latest time that was handed in.
    now: Time,
    stats: Stats,
}

impl Model {
    /// Nothing in flight.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            requests: Vec::new(),
            tokens: Tokens::new(),
            tasks: Vec::new(),
            held: Vec::new(),
            highest: None,
            closed: false,
            modern: None,
            version: None,
            spoken: Vec::new(),
            nameless: 0,
            calls: Calls::default(),
            told: Vec::new(),
            now: Time(0),
            stats: Stats::default(),
        }
    }

    /// The peer sent this. What it opens is called `label`.
    pub fn receive(&mut self, text: &str, label: Label, now: Time) -> Verdict {
        if self.closed {
            return Verdict::Ignored(IgnoreReason::Closed);
        }
        self.now = self.now.max(now);
        let Some(elements) = read::array(text) else {
            return self.receive_one(text, label, now);
        };
        let later = self.version.as_deref().is_some_and(|version| version > "2025-03-26");
        if self.modern == Some(true) || later || elements.is_empty() {
            return self.reject(RejectReason::Batch, "null");
        }
        let labelled = elements.into_iter().zip(label..);
        let verdicts = labelled.map(|(text, label)| self.receive_one(text.get(), label, now));
        Verdict::Batch(verdicts.collect())
    }

    fn receive_one(&mut self, text: &str, label: Label, now: Time) -> Verdict {
        let Some(fields) = object(text) else {
            self.nameless += 1;
            return Verdict::Deliver(None, None);
        };
        let id = fields.get("id").map(|raw| raw.get());
        let method = fields.get("method").and_then(|raw| string(raw.get()));
        let params = fields.get("params").and_then(|raw| object(raw.get())).unwrap_or_default();
        let answer = fields.contains_key("result") || fields.contains_key("error");
        let trackable = id.and_then(key);
        match (method.as_deref(), id, trackable) {
            (Some("notifications/cancelled"), None, _) => self.cancel(&params, now),
            (Some("notifications/cancelled"), Some(_), None) => {
                self.ignore(IgnoreReason::MalformedCancel)
            }
            (Some(method), Some(raw), Some(id)) => {
                self.request(text, (method, raw, id), &params, label, now)
            }
            (Some("notifications/progress"), None, _) => self.peers_progress(text, &params),
            (Some(_), None, _) => Verdict::Deliver(None, None),
            (None, Some(raw), _) if answer => self.response(text, raw, &fields),
            (None, _, Some(id)) => {
                self.spoken.push(id);
                if self.spoken.len() > 64 {
                    self.spoken.remove(0);
                }
                Verdict::Deliver(None, None)
            }
            _ => {
                self.nameless += 1;
                Verdict::Deliver(None, None)
            }
        }
    }

    fn request(
        &mut self,
        text: &str,
        (method, raw, id): (&str, &str, Key),
        params: &Fields<'_>,
        label: Label,
        now: Time,
    ) -> Verdict {
        let meta = params.get("_meta").and_then(|raw| object(raw.get())).unwrap_or_default();
        let mark = "io.modelcontextprotocol/protocolVersion";
        self.modern.get_or_insert_with(|| meta.contains_key(mark));
        let limits = self.config.limits;
        let initialize = method == "initialize";
        if self.cancelled_early(&id, now) && !initialize {
            return match self.config.wire {
                WireKind::Http2025 => self.reject(RejectReason::CancelledEarly, raw),
                _ => self.ignore(IgnoreReason::CancelledEarly),
            };
        }
        let same = |request: &Request| request.current && request.id == id;
        if raw.len() > limits.max_id_bytes {
            return self.reject(RejectReason::IdTooLong, "null");
        }
        if self.requests.iter().any(|request| same(request) && request.live()) {
            return self.reject(RejectReason::DuplicateId, raw);
        }
        if self.in_flight() >= limits.max_in_flight {
            return self.reject(RejectReason::TooManyInFlight, raw);
        }

        let alias_id = self.known_inside(&id) || self.garbled(&id);
        let progress = meta.get("progressToken").map(|raw| raw.get());
        let progress = progress.filter(|raw| raw.len() <= limits.max_id_bytes);
        let progress = progress.and_then(|raw| Some((raw, key(raw)?)));
        let alias_progress =
            progress.as_ref().is_some_and(|(_, token)| self.progress_is_taken(token));
        let name = self.fresh_name();
        let quoted = format!("\"{name}\"");
        let mut parts = Vec::new();
        if alias_id {
            parts.push((raw, quoted.clone()));
        }
        if let Some((raw, _)) = progress.as_ref().filter(|_| alias_progress) {
            parts.push((*raw, quoted));
        }
        let rewritten = (!parts.is_empty()).then(|| read::replace(text, &parts));
        self.stats.aliased += u64::from(rewritten.is_some());
        self.stats.requests += 1;

        for request in &mut self.requests {
            request.current &= request.id != id;
        }
        let named = |aliased: bool, own: &Key| {
            if aliased { Key::Text(name.clone()) } else { own.clone() }
        };
        let token = self.attach(0);
        self.requests.push(Request {
            label,
            inner: named(alias_id, &id),
            id,
            raw: alias_id.then(|| raw.to_owned()),
            progress: progress.map(|(raw, token)| Progress {
                inner: named(alias_progress, &token),
                raw: alias_progress.then(|| raw.to_owned()),
            }),
            initialize,
            task: params.get("task").is_some_and(|task| task.get().starts_with('{')),
            current: true,
            phase: Phase::Waiting,
            cancelled_at: None,
            swallowed: false,
            retired_at: None,
            token: Some(token),
        });
        if method == "tasks/cancel" {
            let task = params.get("taskId").and_then(|raw| string(raw.get()));
            let meant = self.tasks.iter().find(|(id, _)| Some(id) == task.as_ref());
            if let Some(token) = meant.map(|(_, token)| *token) {
                self.trip(token, Cause::Peer, None);
            }
        }
        Verdict::Deliver(Some(label), rewritten)
    }

    /// The cancel of a request; whom it means is the last word of the strict rule, then of the lenient.
    fn cancel(&mut self, params: &Fields<'_>, now: Time) -> Verdict {
        let raw = params.get("requestId").map_or("null", |raw| raw.get());
        let Some(id) = key(raw) else {
            return self.ignore(IgnoreReason::MalformedCancel);
        };
        let meant = |id: &Key| {
            self.requests.iter().position(|request| request.current && request.id == *id)
        };
        let mut place = meant(&id);
        if self.config.id_match == IdMatch::Lenient && place.is_none() {
            place = id.other_type().as_ref().and_then(meant);
        }
        let Some(place) = place else {
            return self.ignore_absent(&id, now);
        };
        let request = &self.requests[place];
        if request.initialize {
            return self.ignore(IgnoreReason::InitializeCancel);
        }
        if !request.live() {
            return self.ignore(IgnoreReason::RepeatedCancel);
        }
        // The last word of an HTTP stream is under the request's own id, whatever type the cancel's has.
        let own = match &request.raw {
            Some(raw) => raw.clone(),
            None if request.id == id => raw.to_owned(),
            None => request.id.spelled(),
        };
        let silence = match self.config.wire {
            WireKind::Http2025 => Silence::Answer(own),
            WireKind::Http2026 => Silence::CloseStream,
            _ => Silence::Nothing,
        };
        let label = request.label;
        let reason = params.get("reason").and_then(|raw| string(raw.get()));
        let reason = reason.map(|reason| self.bounded(&reason));
        self.trip_request(label, Cause::Peer, reason.as_deref(), now);
        Verdict::Cancelled(label, silence)
    }

    fn ignore_absent(&mut self, id: &Key, now: Time) -> Verdict {
        let passed = id.small().is_some_and(|id| Some(id) <= self.highest);
        if let (Some(policy), Some(id), false) = (self.config.early_cancel, id.small(), passed)
            && policy.max > 0
            && !self.held.iter().any(|(held, _)| *held == id)
        {
            if self.held.len() == policy.max {
                self.held.remove(0);
            }
            self.held.push((id, now.after(policy.hold)));
            return self.ignore(IgnoreReason::HeldCancel);
        }
        let late = IgnoreReason::LateCancel;
        self.ignore(if passed { late } else { IgnoreReason::UnknownCancel })
    }

    fn cancelled_early(&mut self, id: &Key, now: Time) -> bool {
        let Some(id) = id.small() else { return false };
        self.highest = self.highest.max(Some(id));
        self.held.retain(|(_, expiry)| *expiry > now);
        let early = self.held.iter().any(|(held, _)| *held == id);
        self.held.retain(|(held, _)| Some(*held) > self.highest);
        early
    }

    fn garbled(&self, id: &Key) -> bool {
        let policy = self.config.alias;
        match id {
            Key::Text(text) => policy.falsy && text.is_empty(),
            Key::Integer(digits) if digits == "0" => policy.falsy,
            Key::Integer(_) => {
                let limit = (1_i64 << 53) - 1;
                policy.beyond_f64 && id.small().is_none_or(|id| !(-limit..=limit).contains(&id))
            }
        }
    }

    fn known_inside(&self, id: &Key) -> bool {
        self.requests.iter().any(|request| request.inner == *id && !request.swallowed)
    }

    fn progress_of(&self, token: &Key) -> Option<&Request> {
        let holds = |request: &&Request| {
            request.progress.as_ref().is_some_and(|progress| progress.inner == *token)
        };
        let live = self.requests.iter().find(|request| holds(request) && request.live());
        live.or_else(|| self.requests.iter().find(holds))
    }

    /// Whether our side must know a new request's progress token by another name: it already knows
    /// a cancelled request by it, or knows one by it that the peer calls otherwise.
    fn progress_is_taken(&self, token: &Key) -> bool {
        let renamed = |request: &Request| {
            request.progress.as_ref().is_some_and(|progress| progress.raw.is_some())
        };
        self.progress_of(token).is_some_and(|request| !request.live() || renamed(request))
    }

    fn fresh_name(&self) -> String {
        let mut attempt = 0;
        loop {
            let name = format!("countermand:{}:{attempt}", self.stats.requests + 1);
            let key = Key::Text(name.clone());
            let meant = |request: &Request| request.current && request.id == key;
            if !self.known_inside(&key)
                && !self.requests.iter().any(meant)
                && self.progress_of(&key).is_none()
            {
                return name;
            }
            attempt += 1;
        }
    }

    fn find(&mut self, label: Label) -> Option<&mut Request> {
        self.requests.iter_mut().find(|request| request.label == label)
    }

    fn trip_request(&mut self, label: Label, cause: Cause, reason: Option<&str>, now: Time) {
        let request = self.find(label).expect("a live request");
        request.cancelled_at = Some(now);
        let (token, exited) = (request.token, request.phase == Phase::Exited);
        self.stats.cancelled[cause.code() as usize - 1] += 1;
        if let Some(token) = token {
            self.trip(token, cause, reason);
        }
        if exited {
            self.exit(label, now);
        }
    }

    /// Whether the request is still in the table, and its answer still to come.
    pub(crate) fn remembers(&self, label: Label) -> bool {
        self.requests.iter().any(|request| request.label == label && !request.swallowed)
    }

    /// The token of a request whose handler may still run.
    pub(crate) fn token_of(&self, label: Label) -> Option<usize> {
        self.requests.iter().find(|request| request.label == label)?.token
    }

    /// Early cancels that wait for their request.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    fn retired(&self) -> usize {
        self.requests.iter().filter(|request| request.retired_at.is_some()).count()
    }

    /// Requests of the peer whose handlers may run, or whose answers are to come.
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.len() - self.retired()
    }

    /// All counters, and the sizes of all tables but for wakers.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        stats.in_flight = self.in_flight();
        stats.retired = self.retired();
        stats.tasks = self.tasks.len();
        stats.tokens = self.tokens.needed();
        stats.held = self.held.len();
        stats.outbound = self.calls.open.len();
        stats.tombstones = self.calls.tombstones.len();
        stats
    }

    fn ignore(&mut self, reason: IgnoreReason) -> Verdict {
        let counter = match reason {
            IgnoreReason::LateCancel => Some(&mut self.stats.late_cancels),
            IgnoreReason::UnknownCancel => Some(&mut self.stats.unknown_cancels),
            IgnoreReason::MalformedCancel => Some(&mut self.stats.malformed_cancels),
            IgnoreReason::RepeatedCancel => Some(&mut self.stats.repeated_cancels),
            IgnoreReason::InitializeCancel => Some(&mut self.stats.initialize_cancels),
            IgnoreReason::CancelledEarly => Some(&mut self.stats.cancelled_early),
            IgnoreReason::LateResponse => Some(&mut self.stats.late_responses),
            IgnoreReason::DuplicateResponse => Some(&mut self.stats.duplicate_responses),
            IgnoreReason::WrongTypeResponse => Some(&mut self.stats.wrong_type_responses),
            IgnoreReason::UnknownResponse => Some(&mut self.stats.unknown_responses),
            IgnoreReason::LateProgress => Some(&mut self.stats.late_progress),
            _ => None,
        };
        if let Some(counter) = counter {
            *counter += 1;
        }
        Verdict::Ignored(reason)
    }

    fn reject(&mut self, reason: RejectReason, raw_id: &str) -> Verdict {
        match reason {
            RejectReason::DuplicateId => self.stats.duplicate_ids += 1,
            RejectReason::CancelledEarly => self.stats.cancelled_early += 1,
            _ => self.stats.rejected += 1,
        }
        Verdict::Reject(reason, raw_id.into())
    }
}
