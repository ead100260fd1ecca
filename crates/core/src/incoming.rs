//! What the connection says about messages of the peer.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Waker;

use crate::connection::{Connection, State};
use crate::entry::{Alias, Entry, Opening};
use crate::envelope::{self, Body, Envelope, Kind, string};
use crate::id::IdRef;
use crate::rewrite::{self, bounded, error_reply, splice};
use crate::{
    AliasPolicy, BatchPart, Cause, Era, Generation, IdMatch, IgnoreReason, Received, RejectReason,
    Silence, Time, WireKind,
};

impl Connection {
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
        if state.closed.is_some() {
            return Received::Ignored(IgnoreReason::Closed);
        }
        let forbidden = state.era == Some(Era::Y2026)
            || state.version.as_deref().is_some_and(|version| version > "2025-03-26");
        if forbidden || elements.is_empty() {
            let reason = RejectReason::Batch;
            state.stats.count_rejected(reason);
            let message =
                "Invalid Request: this protocol version has no batches, and no batch is empty";
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
            state.clock = state.clock.max(now);
            match envelope {
                Some(envelope) if envelope.kind == Kind::Request => {
                    self.request(&mut state, text, &envelope, &params, now, &mut wake)
                }
                Some(envelope) if &*envelope.method == b"notifications/cancelled" => {
                    self.cancel(&mut state, &params, now, &mut wake)
                }
                Some(envelope) if envelope.kind == Kind::Response => {
                    state.response(text, &envelope, self.shared.config.id_match)
                }
                Some(envelope) if &*envelope.method == b"notifications/progress" => {
                    state.progressed(text, params.progress, now)
                }
                Some(envelope) if envelope.kind != Kind::Other => as_it_is(),
                other => {
                    let id = other.as_ref().and_then(Envelope::id);
                    state.untracked.note(id.as_ref());
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
            // Some SDKs take an id of null for none, and would act on the cancel by themselves.
            if &*envelope.method == b"notifications/cancelled" {
                return state.ignore(IgnoreReason::MalformedCancel);
            }
            state.untracked.note(None);
            return as_it_is();
        };
        let era = if params.meta_version.is_some() { Era::Y2026 } else { Era::Y2025 };
        state.era.get_or_insert(era);
        let initialize = &*envelope.method == b"initialize";
        if state.held.meet(&id, now) && !initialize {
            return self.refuse_early(state, raw_id);
        }
        let (hash, replaces, alias) = match self.admit(state, raw_id, &id) {
            Ok(admitted) => admitted,
            Err(rejected) => return rejected,
        };
        let progress = params
            .meta_progress
            .and_then(|raw| Some((raw, IdRef::parse(raw)?)))
            .filter(|(raw, _)| raw.len() <= self.shared.config.limits.max_id_bytes);
        let taken = progress.as_ref().and_then(|(_, token)| state.table.by_progress(token));
        // Nor may it take for this request's the name of a token that is the alias of another's.
        let progress_alias =
            taken.is_some_and(|holder| !holder.live() || holder.raw_progress().is_some());

        let name = (alias || progress_alias).then(|| state.table.fresh_name());
        let quoted = name.as_ref().map(|name| format!("\"{name}\"")).unwrap_or_default();
        let mut parts = Vec::new();
        let id_alias = name.as_ref().filter(|_| alias).map(|name| {
            parts.push((raw_id, quoted.as_str()));
            Alias { name, raw: raw_id }
        });
        let progress = progress.map(|(raw, token)| {
            let alias = name.as_ref().filter(|_| progress_alias).map(|name| {
                parts.push((raw, quoted.as_str()));
                Alias { name, raw }
            });
            (token, alias)
        });
        let rewritten = (!parts.is_empty()).then(|| splice(text, &mut parts));
        state.stats.aliased += u64::from(rewritten.is_some());

        let task = params.task.is_some_and(|task| task.starts_with('{'));
        let tool = params.name.filter(|_| &*envelope.method == b"tools/call").and_then(string);
        let row = state.signals.row(&envelope.method, tool.as_deref());
        let alias = id_alias;
        let opening = Opening { id: &id, hash, replaces, initialize, task, row, alias, progress };
        let request = state.open(&opening);
        if &*envelope.method == b"tasks/cancel" {
            state.cancel_task(params, wake);
        }
        Received::Deliver { request: Some(request), rewritten }
    }

    /// Whether a request with this id may be taken in: the hash of its id, the cancelled request that
    /// had the id until now, and whether the SDK behind us must know this one by another.
    fn admit(
        &self,
        state: &mut State,
        raw_id: &str,
        id: &IdRef<'_>,
    ) -> Result<(u64, Option<Generation>, bool), Received> {
        let limits = &self.shared.config.limits;
        if raw_id.len() > limits.max_id_bytes {
            let max = limits.max_id_bytes;
            let message = format!("Invalid Request: id longer than {max} bytes (max_id_bytes)");
            let reason = RejectReason::IdTooLong;
            return Err(state.reject("null", rewrite::INVALID_REQUEST, &message, reason));
        }
        let hash = state.table.hash(id);
        let first = state.table.by_wire(id, hash);
        if first.is_some_and(Entry::live) {
            let message = "Invalid Request: a request with this id is in flight";
            let reason = RejectReason::DuplicateId;
            return Err(state.reject(raw_id, rewrite::INVALID_REQUEST, message, reason));
        }
        if state.table.full() {
            let max = limits.max_in_flight;
            let message = format!("Too many requests in flight: at most {max} (max_in_flight)");
            let reason = RejectReason::TooManyInFlight;
            return Err(state.reject(raw_id, rewrite::OVERLOADED, &message, reason));
        }
        // The SDK behind us must not take one name for two requests, nor a name that it garbles.
        let alias = state.table.by_inner(id, hash).is_some() || self.garbled(id);
        Ok((hash, first.map(|first| first.generation), alias))
    }

    /// The cancel of this request had come before it.
    fn refuse_early(&self, state: &mut State, raw_id: &str) -> Received {
        match self.shared.config.wire {
            WireKind::Http2025 => {
                let reason = RejectReason::CancelledEarly;
                state.reject(raw_id, rewrite::REQUEST_CANCELLED, "Request cancelled", reason)
            }
            WireKind::Stdio | WireKind::Http2026 => state.ignore(IgnoreReason::CancelledEarly),
        }
    }

    fn garbled(&self, id: &IdRef<'_>) -> bool {
        const MAX_SAFE: u64 = (1 << 53) - 1;
        let AliasPolicy { beyond_f64, falsy } = self.shared.config.alias;
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
        let reason = params.reason.and_then(string);
        let reason = reason.map(|reason| match reason {
            Cow::Borrowed(reason) => String::from_utf8_lossy(reason).into_owned(),
            Cow::Owned(reason) => String::from_utf8_lossy(&reason).into_owned(),
        });
        let max = self.shared.config.limits.max_reason_bytes;
        let reason = reason.map(|reason| Arc::from(bounded(&reason, max)));
        state.cancel(generation, Cause::Peer, reason.as_ref(), now, wake);
        Received::Cancelled { generation, silence }
    }

    /// The request that a cancel's id means: by type and value, and where we are lenient by the
    /// other type if just that fits.
    fn meant<'s>(&self, state: &'s State, id: &IdRef<'_>) -> Option<&'s Entry> {
        let by_wire = |id: &_| state.table.by_wire(id, state.table.hash(id));
        let strict = by_wire(id);
        if strict.is_some() || self.shared.config.id_match == IdMatch::Strict {
            return strict;
        }
        id.other_type().and_then(|other| by_wire(&other))
    }

    fn silence(&self, entry: &Entry, raw_id: &str) -> Silence {
        match self.shared.config.wire {
            WireKind::Stdio => Silence::Nothing,
            WireKind::Http2026 => Silence::CloseStream,
            WireKind::Http2025 => {
                // A cancel may have found it by the other type: the answer is to the request's own id.
                let same = IdRef::parse(raw_id).is_some_and(|id| id.matches(&entry.wire));
                let own = if same { Cow::Borrowed(raw_id) } else { entry.wire.to_json().into() };
                let raw_id = entry.raw_id().unwrap_or(&own);
                let message = "Request cancelled";
                Silence::Answer(error_reply(raw_id, rewrite::REQUEST_CANCELLED, message))
            }
        }
    }
}

impl State {
    fn cancel_task(&mut self, params: &Body<'_>, wake: &mut Vec<Waker>) {
        let id = params.task_id.and_then(string);
        if let Some(token) = id.and_then(|id| self.tasks.token(&id)) {
            self.trip(token, Cause::Peer, None, wake);
        }
    }

    pub(crate) fn ignore(&mut self, reason: IgnoreReason) -> Received {
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
