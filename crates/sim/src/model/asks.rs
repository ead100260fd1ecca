//! The model's reading of requests that an SDK behind us makes by itself, and of its cancels for them.

use countermand_core::{Cause, SwallowReason};

use super::calls::{Call, Token};
use super::read::{Fields, Key, key, object, replace, string};
use super::{Model, Out, Told};
use crate::step::Label;

impl Model {
    /// An SDK makes a request, on behalf of this token.
    pub(super) fn ask(
        &mut self,
        text: &str,
        (method, raw): (&str, &str),
        params: &Fields<'_>,
        parent: usize,
        label: Label,
    ) -> Out {
        let Some(id) = key(raw) else { return Out::Write };
        if self.tokens.node(parent).cause.is_some() {
            self.told.push(Told::Refused(raw.to_owned()));
            return Out::Swallow(SwallowReason::NotSent);
        }
        let open = self.known_to_sdk(&id).is_some();
        let natural = id.natural().filter(|_| !open);
        let kept = natural.filter(|id| self.calls.keep(*id));
        let wire = kept.unwrap_or_else(|| self.calls.mint());
        let mut parts = Vec::new();
        if kept.is_none() {
            parts.push((raw, wire.to_string()));
        }
        let meta = params.get("_meta").and_then(|raw| object(raw.get())).unwrap_or_default();
        let progress = meta.get("progressToken").map(|raw| raw.get());
        let progress = progress.and_then(|raw| Some((raw, key(raw)?)));
        let progress = progress.map(|(raw, token)| {
            if !self.calls.token_is_taken(&token) {
                return Token { wire: token, raw: None };
            }
            let name = self.calls.fresh_token(wire);
            parts.push((raw, format!("\"{name}\"")));
            Token { wire: Key::Text(name), raw: Some(raw.to_owned()) }
        });
        let call = Call {
            label,
            id: wire,
            inner: Some((id, kept.is_none().then(|| raw.to_owned()))),
            sent: false,
            initialize: method == "initialize",
            task: params.get("task").is_some_and(|task| task.get().starts_with('{')),
            node: self.attach(parent),
            idle: None,
            idle_at: None,
            total_at: None,
            progress,
        };
        self.calls.open.push(call);
        self.stats.calls += 1;
        Out::Request(label, (!parts.is_empty()).then(|| replace(text, &parts)))
    }

    /// The request that an SDK means by this id: the last that it made under it.
    fn known_to_sdk(&self, id: &Key) -> Option<&Call> {
        let known = |call: &&Call| call.inner.as_ref().is_some_and(|(inner, _)| inner == id);
        self.calls.open.iter().rfind(known)
    }

    /// An SDK cancels a request of its own.
    pub(super) fn call_off(&mut self, text: &str, params: &Fields<'_>) -> Out {
        let raw = params.get("requestId").map(|raw| raw.get());
        let Some((raw, id)) = raw.and_then(|raw| Some((raw, key(raw)?))) else {
            return Out::Write;
        };
        let Some((label, wire)) = self.known_to_sdk(&id).map(|call| (call.label, call.id)) else {
            return self.end_subscription(text, raw, &id);
        };
        let reason = params.get("reason").and_then(|raw| string(raw.get()));
        match self.give_up(label, Cause::Local, reason.as_deref(), false) {
            "notified" => {
                let same = id.natural() == Some(wire);
                Out::Cancel((!same).then(|| replace(text, &[(raw, wire.to_string())])))
            }
            "not_sent" => Out::Swallow(SwallowReason::NotSent),
            "close_transport" => Out::Swallow(SwallowReason::InitializeCancel),
            "close_stream" => Out::Swallow(SwallowReason::StreamCloses),
            _ => Out::Swallow(SwallowReason::StaleCancel),
        }
    }

    /// In the 2026 era a server ends a subscription of the peer's by a cancel for the peer's own request. In the
    /// other a cancel means a request of ours, and nothing else.
    fn end_subscription(&self, text: &str, raw: &str, id: &Key) -> Out {
        let meant = |request: &&super::Request| request.inner == *id && request.live();
        match self.requests.iter().find(meant).filter(|_| self.modern == Some(true)) {
            None => Out::Swallow(SwallowReason::StaleCancel),
            Some(request) => match &request.raw {
                None => Out::Write,
                Some(peers) => Out::Rewrite(replace(text, &[(raw, peers.clone())])),
            },
        }
    }
}
