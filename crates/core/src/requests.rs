//! Requests that an SDK behind us makes by itself, and its cancels for them: followed without its knowing.
//!
//! Its id stays where it is a number that was never used on the connection, and so does its progress token where no other
//! request has it. Else the wire gets another, and what comes back is translated.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Waker;

use crate::connection::State;
use crate::envelope::{Envelope, string};
use crate::id::IdRef;
use crate::outbound::{Inner, Outgoing, Progress};
use crate::outgoing::Message;
use crate::rewrite::{REQUEST_CANCELLED, error_reply, splice};
use crate::{Abandoned, Cause, Era, Id, Output, Sent, SwallowReason};

/// An SDK behind us makes a request of its own. It may still trip its parent's token before it is written.
pub(crate) fn request(
    state: &mut State,
    message: &Message<'_>,
    envelope: &Envelope<'_>,
    parent: u32,
    wake: &mut Vec<Waker>,
) -> Sent {
    let (Some(raw_id), Some(id)) = (envelope.raw_id, envelope.id()) else {
        return Sent::Write;
    };
    let id = id.to_id();
    if state.tree.cause(parent).is_some() {
        // Nothing more is sent for a cancelled request, and who asks for it must not wait.
        state.outputs.push(Inner { id, raw: Some(raw_id.into()) }.refused());
        wake.extend(state.output_waker.clone());
        return state.swallow(SwallowReason::NotSent);
    }
    let params = &message.params;
    let kept = if state.outbound.by_inner(&id).is_some() { None } else { state.outbound.keep(&id) };
    let call = kept.unwrap_or_else(|| state.outbound.mint());
    let spelled = call.0.to_string();
    let progress = params.meta_progress.and_then(|raw| Some((raw, IdRef::parse(raw)?.to_id())));
    let taken = progress.as_ref().is_some_and(|(_, token)| state.outbound.taken(token));
    let fresh = if taken { state.outbound.fresh_token(call) } else { String::new() };
    let quoted = format!("\"{fresh}\"");
    let mut parts = Vec::new();
    if kept.is_none() {
        parts.push((raw_id, spelled.as_str()));
    }
    let progress = progress.map(|(raw, token)| {
        if !taken {
            return Progress { wire: token, raw: None };
        }
        parts.push((raw, quoted.as_str()));
        let wire = Id::Str(fresh.as_bytes().into());
        Progress { wire, raw: Some(raw.into()) }
    });
    let rewritten = (!parts.is_empty()).then(|| splice(message.text, &mut parts));
    let (slot, _) = state.tree.add(parent);
    state.tree.bind(slot, call.0);
    let raw = kept.is_none().then(|| raw_id.into());
    let outgoing = Outgoing {
        transmitted: false,
        initialize: &*envelope.method == b"initialize",
        task: params.task.is_some_and(|task| task.starts_with('{')),
        inner: Some(Inner { id, raw }),
        token: slot,
        idle: None,
        idle_at: None,
        total_at: None,
        progress,
    };
    state.outbound.insert(call, outgoing);
    state.stats.calls += 1;
    Sent::Request { call, rewritten }
}

/// An SDK behind us cancels a request of its own.
pub(crate) fn cancel(state: &mut State, message: &Message<'_>, wake: &mut Vec<Waker>) -> Sent {
    let params = &message.params;
    let Some((raw, id)) = params.request_id.and_then(|raw| Some((raw, IdRef::parse(raw)?))) else {
        return Sent::Write;
    };
    let Some(call) = state.outbound.by_inner(&id.to_id()) else {
        return end_subscription(state, message.text, raw, &id);
    };
    let reason = params.reason.and_then(string);
    let reason = reason.map(|reason| Arc::from(&*String::from_utf8_lossy(&reason)));
    match state.abandon(call, Cause::Local, reason.as_ref(), false, wake) {
        Abandoned::Notified => {
            let spelled = call.0.to_string();
            let same = IdRef::parse(&spelled) == Some(id);
            let rewritten = (!same).then(|| splice(message.text, &mut [(raw, &spelled)]));
            Sent::Cancel { rewritten }
        }
        Abandoned::NotSent => state.swallow(SwallowReason::NotSent),
        Abandoned::CloseTransport => state.swallow(SwallowReason::InitializeCancel),
        Abandoned::CloseStream => state.swallow(SwallowReason::StreamCloses),
        Abandoned::Settled | Abandoned::Silent => state.swallow(SwallowReason::StaleCancel),
    }
}

/// In the 2026 era a server ends a subscription by naming the peer's own request. In the other the peer would take
/// that for a cancel of ours.
fn end_subscription(state: &mut State, text: &str, raw: &str, id: &IdRef<'_>) -> Sent {
    let subscribes = state.era == Some(Era::Y2026);
    match state.table.by_inner(id, state.table.hash(id)) {
        Some(entry) if subscribes && entry.live() => match entry.raw_id() {
            None => Sent::Write,
            Some(peers) => Sent::Rewrite(splice(text, &mut [(raw, peers)])),
        },
        _ => state.swallow(SwallowReason::StaleCancel),
    }
}

impl Inner {
    /// What an SDK is told about a request of its own that was abandoned without its doing.
    pub(crate) fn refused(&self) -> Output {
        let raw = self.raw.as_deref().map_or_else(|| self.id.to_json().into(), Cow::Borrowed);
        Output::Deliver { frame: error_reply(&raw, REQUEST_CANCELLED, "Request cancelled") }
    }
}
