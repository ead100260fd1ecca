//! [`Connection`]'s other half: what becomes of our own requests.
//!
//! Whether a response beat the abandonment is decided here, under the lock, and so is whether a cancel goes out for
//! it: never for what was not sent, never for `initialize`, never after the end, and once.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::connection::{Connection, State};
use crate::envelope::{Body, Envelope};
use crate::id::IdRef;
use crate::outbound::{Inner, Meets, Outbound, Outgoing, Progress, Tombstone};
use crate::rewrite::{bounded, splice};
use crate::tree::ROOT;
use crate::{
    Abandoned, BeginError, Begun, Call, CallOutcome, Cause, Id, IdMatch, IgnoreReason, Output,
    Received, Time, Token, WireKind,
};

/// A request that a caller of ours wants to make.
#[derive(Clone, Copy, Debug, Default)]
pub struct Begin<'a> {
    /// The method.
    pub method: &'a str,
    /// Its parameters: the JSON text of an object.
    pub params: Option<&'a str>,
    /// It is abandoned when this token of the same connection trips; the root's child without one.
    pub parent: Option<&'a Token>,
    /// How long it may go without progress.
    pub idle: Option<Duration>,
    /// How long it may take, whatever progress there is.
    pub total: Option<Duration>,
    /// Whether to ask the peer for progress, with the request's id as the token.
    pub progress: bool,
}

impl Connection {
    /// Puts a request of ours in the table, and makes its frame. The frame is to be queued for the writer, which
    /// asks [`transmit`](Self::transmit) when its turn has come.
    ///
    /// # Errors
    /// [`BeginError`] where it cannot be made: nothing was done.
    pub fn begin(&self, begin: &Begin<'_>, now: Time) -> Result<Begun, BeginError> {
        // Between the parts of a JSON text a new line is a blank; on a wire it would end the frame.
        let params = begin.params.unwrap_or("{}").replace(['\n', '\r'], " ");
        let params = params.as_str();
        let body = Body::of(params).ok_or(BeginError::ParamsNoObject)?;
        let method = serde_json::Value::from(begin.method).to_string();
        let mut state = self.shared.state.lock();
        state.clock = state.clock.max(now);
        if state.closed.is_some() {
            return Err(BeginError::Closed);
        }
        if state.outbound.len() >= self.shared.config.limits.max_outbound {
            return Err(BeginError::TooMany { max: self.shared.config.limits.max_outbound });
        }
        let parent = match begin.parent {
            None => ROOT,
            Some(parent) if Arc::ptr_eq(&parent.shared, &self.shared) => parent.slot,
            Some(_) => return Err(BeginError::ForeignParent),
        };
        if let Some(cause) = state.tree.cause(parent) {
            return Err(BeginError::Cancelled(cause));
        }
        let call = state.outbound.mint();
        let (params, progress) =
            with_progress(params, &body, begin.progress, &state.outbound, call);
        let frame = match (begin.params, begin.progress) {
            (None, false) => format!(r#"{{"jsonrpc":"2.0","id":{},"method":{method}}}"#, call.0),
            _ => format!(
                r#"{{"jsonrpc":"2.0","id":{},"method":{method},"params":{params}}}"#,
                call.0
            ),
        };
        let (slot, _) = state.tree.add(parent);
        state.tree.bind(slot, call.0);
        let outgoing = Outgoing {
            transmitted: false,
            initialize: begin.method == "initialize",
            task: false,
            inner: None,
            token: slot,
            idle: begin.idle,
            idle_at: begin.idle.map(|idle| now.after(idle)),
            total_at: begin.total.map(|total| now.after(total)),
            progress,
        };
        state.outbound.insert(call, outgoing);
        state.stats.calls += 1;
        let token = Token::new(&self.shared, &state.tree, slot);
        Ok(Begun { call, token, frame: frame.into_bytes() })
    }

    /// The writer is about to write this request. False if it must not, because nobody waits for it any more; once
    /// it was true, the frame must be written whole.
    pub fn transmit(&self, call: Call) -> bool {
        match self.shared.state.lock().outbound.get_mut(call) {
            Some(outgoing) => {
                outgoing.transmitted = true;
                true
            }
            None => false,
        }
    }

    /// Nobody waits for this request any more. Its caller is told at once; what goes to the peer is among the
    /// [`take_outputs`](Self::take_outputs).
    pub fn abandon(&self, call: Call, cause: Cause, reason: Option<&str>, now: Time) -> Abandoned {
        let max = self.shared.config.limits.max_reason_bytes;
        let reason = reason.map(|reason| Arc::from(bounded(reason, max)));
        let mut wake = Vec::new();
        let abandoned = {
            let mut state = self.shared.state.lock();
            state.clock = state.clock.max(now);
            state.abandon(call, cause, reason.as_ref(), true, &mut wake)
        };
        wake.into_iter().for_each(Waker::wake);
        abandoned
    }

    /// What is known of the effects of a request that was abandoned; `None` if it was not, or that was forgotten.
    pub fn outcome(&self, call: Call) -> Option<CallOutcome> {
        Some(self.shared.state.lock().outbound.tombstone(call)?.outcome)
    }

    /// Whether a request of ours was sent; `None` once it is over.
    pub fn sent(&self, call: Call) -> Option<bool> {
        Some(self.shared.state.lock().outbound.get(call)?.transmitted)
    }

    /// What the core wants done, in order. Ask after every call that may have led to some, or when the waker
    /// of [`on_output`](Self::on_output) is woken.
    pub fn take_outputs(&self) -> Vec<Output> {
        self.shared.state.lock().outputs.drain(..).collect()
    }

    /// Wakes this, from any thread and without the lock, when there are outputs to take.
    pub fn on_output(&self, waker: Waker) {
        let before = self.shared.state.lock().output_waker.replace(waker);
        drop(before);
    }
}

/// The parameters with a progress token: the caller's own, or, where it wants progress and has given none or one that
/// is taken, the request's id.
fn with_progress<'a>(
    params: &'a str,
    body: &Body<'_>,
    wanted: bool,
    outbound: &Outbound,
    call: Call,
) -> (Cow<'a, str>, Option<Progress>) {
    let given = body.meta_progress.and_then(IdRef::parse).map(|token| token.to_id());
    if given.is_none() && !wanted {
        return (params.into(), None);
    }
    if let Some(wire) = given
        && !outbound.taken(&wire)
    {
        return (params.into(), Some(Progress { wire, raw: None }));
    }
    let own = i64::try_from(call.0).map_or(Id::Int(i64::MAX), Id::Int);
    let wire = if outbound.taken(&own) {
        Id::Str(outbound.fresh_token(call).as_bytes().into())
    } else {
        own
    };
    let token = wire.to_json();
    // What comes first in an object is followed by a comma, unless it is all.
    let put = |text: &str, what: &str| {
        let (open, rest) = text.split_at(text.find('{').map_or(0, |brace| brace + 1));
        let comma = if rest.trim_ascii_start().starts_with('}') { "" } else { "," };
        format!("{open}{what}{comma}{rest}")
    };
    let instead = |old: &str, new: &str| {
        String::from_utf8_lossy(&splice(params, &mut [(old, new)])).into_owned()
    };
    let with = match (body.meta_progress, body.meta) {
        (Some(old), _) => instead(old, &token),
        (None, Some(meta)) if meta.starts_with('{') => {
            instead(meta, &put(meta, &format!(r#""progressToken":{token}"#)))
        }
        (None, Some(nothing)) => instead(nothing, &format!(r#"{{"progressToken":{token}}}"#)),
        (None, None) => put(params, &format!(r#""_meta":{{"progressToken":{token}}}"#)),
    };
    (with.into(), Some(Progress { wire, raw: None }))
}

impl State {
    /// Trips a token and all below it, and abandons the requests of ours among them.
    pub(crate) fn trip(
        &mut self,
        slot: u32,
        cause: Cause,
        reason: Option<&Arc<str>>,
        wake: &mut Vec<Waker>,
    ) -> bool {
        let tripped = self.tree.trip(slot, cause, reason, wake);
        self.abandon_cut(cause, reason, wake);
        tripped
    }

    fn abandon_cut(&mut self, cause: Cause, reason: Option<&Arc<str>>, wake: &mut Vec<Waker>) {
        for call in self.tree.take_cut() {
            self.abandon_one(Call(call), cause, reason, true, wake);
        }
    }

    /// A request that is not settled is abandoned, and then all that was asked on its behalf. `notify` says whether the
    /// cancel is ours to make.
    pub(crate) fn abandon(
        &mut self,
        call: Call,
        cause: Cause,
        reason: Option<&Arc<str>>,
        notify: bool,
        wake: &mut Vec<Waker>,
    ) -> Abandoned {
        let abandoned = self.abandon_one(call, cause, reason, notify, wake);
        self.abandon_cut(cause, reason, wake);
        abandoned
    }

    /// The decision.
    fn abandon_one(
        &mut self,
        call: Call,
        cause: Cause,
        reason: Option<&Arc<str>>,
        notify: bool,
        wake: &mut Vec<Waker>,
    ) -> Abandoned {
        let Some(mut outgoing) = self.outbound.remove(call) else {
            return Abandoned::Settled;
        };
        self.tree.unbind(outgoing.token);
        self.tree.trip(outgoing.token, cause, reason, wake);
        self.tree.detach(outgoing.token);
        self.stats.count_abandoned(cause);
        let abandoned = match self.wire {
            _ if !outgoing.transmitted => Abandoned::NotSent,
            _ if self.closed.is_some() => Abandoned::Silent,
            _ if outgoing.initialize => Abandoned::CloseTransport,
            WireKind::Http2026 => Abandoned::CloseStream,
            WireKind::Stdio | WireKind::Http2025 => Abandoned::Notified,
        };
        let outcome =
            if outgoing.transmitted { CallOutcome::Unknown } else { CallOutcome::NotSent };
        let now = self.clock;
        let progress = outgoing.progress.take().map(|progress| progress.wire);
        self.outbound.bury(call, Tombstone { at: now, outcome, progress });
        self.outbound.evict(now);
        let output = match abandoned {
            Abandoned::Notified if notify => {
                Some(Output::Cancel { call, frame: cancel_frame(call, reason) })
            }
            Abandoned::CloseStream => Some(Output::CloseStream { call }),
            Abandoned::CloseTransport => Some(Output::CloseTransport),
            _ => None,
        };
        let settled = match &outgoing.inner {
            None => Some(Output::Abandoned { call, cause, reason: reason.cloned(), outcome }),
            Some(inner) if notify && self.closed.is_none() => Some(inner.refused()),
            Some(_) => None,
        };
        let quiet = output.is_none() && settled.is_none();
        // The caller hears first: a peer that reads nothing delays nobody.
        self.outputs.extend(settled.into_iter().chain(output));
        if !quiet {
            wake.extend(self.output_waker.clone());
        }
        abandoned
    }

    /// What a response of the peer's means.
    pub(crate) fn response(
        &mut self,
        text: &str,
        envelope: &Envelope<'_>,
        id_match: IdMatch,
    ) -> Received {
        if self.never_asked() {
            return Received::Deliver { request: None, rewritten: None };
        }
        let (Some(raw), Some(id)) = (envelope.raw_id, envelope.id()) else {
            if envelope.raw_id.is_some_and(|raw| raw != "null") {
                // What can be nobody's id.
                return self.ignore(IgnoreReason::UnknownResponse);
            }
            // An error with the id null: about a message that the peer could not read.
            return Received::Deliver { request: None, rewritten: None };
        };
        let number = |id: &IdRef<'_>| match id {
            IdRef::Int(id) => u64::try_from(*id).ok(),
            _ => None,
        };
        let meets = |id: Option<u64>| {
            let id = id?;
            let meets = self.outbound.meets(id);
            (meets != Meets::NeverUsed).then_some((Call(id), meets))
        };
        let other = || meets(id.other_type().as_ref().and_then(number));
        let lenient = id_match == IdMatch::Lenient;
        match meets(number(&id)).or_else(|| other().filter(|_| lenient)) {
            Some((call, Meets::Pending)) => self.settle(call, text, (raw, &id), envelope),
            Some((call, Meets::Abandoned)) => self.late(call, envelope),
            Some((_, Meets::Answered)) => self.ignore(IgnoreReason::DuplicateResponse),
            Some(_) => self.ignore(IgnoreReason::LateResponse),
            None if other().is_some_and(|(_, meets)| meets == Meets::Pending) => {
                self.ignore(IgnoreReason::WrongTypeResponse)
            }
            None => self.ignore(IgnoreReason::UnknownResponse),
        }
    }

    /// Nobody here has ever asked the peer anything: what it answers all the same is none of our business.
    fn never_asked(&self) -> bool {
        self.stats.calls == 0
    }

    fn settle(
        &mut self,
        call: Call,
        text: &str,
        (raw_id, id): (&str, &IdRef<'_>),
        envelope: &Envelope<'_>,
    ) -> Received {
        let Some(outgoing) = self.outbound.remove(call) else {
            return self.ignore(IgnoreReason::UnknownResponse);
        };
        self.tree.unbind(outgoing.token);
        self.tree.detach(outgoing.token);
        self.outbound.answered(call);
        self.stats.settled += 1;
        if let Some(progress) = &outgoing.progress {
            self.outbound.forget_progress(&progress.wire);
        }
        if outgoing.initialize || outgoing.task {
            let result = envelope.result();
            if outgoing.initialize {
                self.handshake(&result);
            }
            if let (true, Some(_), Some(progress)) =
                (outgoing.task, result.task_id, outgoing.progress)
            {
                self.outbound.let_last(progress);
            }
        }
        let Some(Inner { id: inner, raw }) = outgoing.inner else {
            return Received::Settled { call };
        };
        let own = match raw {
            Some(own) => String::from(own),
            None if id.matches(&inner) => {
                return Received::Deliver { request: None, rewritten: None };
            }
            // Where we were lenient, the SDK still gets its own type of id.
            None => inner.to_json(),
        };
        let rewritten = (own != raw_id).then(|| splice(text, &mut [(raw_id, own.as_str())]));
        Received::Deliver { request: None, rewritten }
    }

    fn late(&mut self, call: Call, envelope: &Envelope<'_>) -> Received {
        // What was not sent has no effects, whatever the peer says; and of two responses the first counts.
        if let Some(tombstone) = self.outbound.tombstone(call)
            && tombstone.outcome == CallOutcome::Unknown
        {
            let cancelled = envelope.cancelled();
            tombstone.outcome =
                if cancelled { CallOutcome::Cancelled } else { CallOutcome::Completed };
        }
        self.ignore(IgnoreReason::LateResponse)
    }

    /// What progress of the peer's means.
    pub(crate) fn progressed(&mut self, text: &str, raw: Option<&str>, now: Time) -> Received {
        let as_it_is = Received::Deliver { request: None, rewritten: None };
        if self.never_asked() {
            return as_it_is;
        }
        let Some((raw, token)) = raw.and_then(|raw| Some((raw, IdRef::parse(raw)?))) else {
            // With no token that anybody could have given.
            return self.ignore(IgnoreReason::LateProgress);
        };
        let token = token.to_id();
        let call = self.outbound.by_progress(&token);
        if let Some(call) = call {
            self.outbound.moved(call, now);
        }
        let progress = match call.and_then(|call| Some((call, self.outbound.get(call)?))) {
            Some((call, Outgoing { inner: None, .. })) => return Received::Progress { call },
            Some((_, outgoing)) => outgoing.progress.as_ref(),
            None => self.outbound.lasting(&token),
        };
        let Some(progress) = progress else { return self.ignore(IgnoreReason::LateProgress) };
        let own = progress.raw.as_deref();
        let rewritten = own.map(|own| splice(text, &mut [(raw, own)]));
        Received::Deliver { request: None, rewritten }
    }
}

fn cancel_frame(call: Call, reason: Option<&Arc<str>>) -> Vec<u8> {
    let mut params = serde_json::json!({ "requestId": call.0 });
    if let Some(reason) = reason {
        params["reason"] = (**reason).into();
    }
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#)
        .into_bytes()
}
