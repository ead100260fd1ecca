//! What the model makes of the peer's responses to requests of ours, and of progress of them.

use countermand_core::{CallOutcome, IdMatch, IgnoreReason};

use super::read::{Fields, Key, key, object, replace, string};
use super::sending::task_id;
use super::{Model, Verdict};

impl Model {
    /// The peer sent a response.
    pub(super) fn response(&mut self, text: &str, raw: &str, fields: &Fields<'_>) -> Verdict {
        if self.stats.calls == 0 || raw == "null" {
            return Verdict::Deliver(None, None);
        }
        let Some(id) = key(raw) else { return self.ignore(IgnoreReason::UnknownResponse) };
        if let Some(verdict) = id.natural().and_then(|id| self.respond(id, text, raw, fields)) {
            return verdict;
        }
        let other = id.other_type().and_then(|id| id.natural());
        let lenient = self.config.id_match == IdMatch::Lenient;
        if let Some(other) = other.filter(|_| lenient)
            && let Some(verdict) = self.respond(other, text, raw, fields)
        {
            return verdict;
        }
        let wrong = self.calls.open.iter().any(|call| Some(call.id) == other && call.sent);
        let reason =
            if wrong { IgnoreReason::WrongTypeResponse } else { IgnoreReason::UnknownResponse };
        self.ignore(reason)
    }

    /// A response to the request with this id; `None` if there never was one.
    fn respond(&mut self, id: u64, text: &str, raw: &str, fields: &Fields<'_>) -> Option<Verdict> {
        if let Some(place) = self.calls.open.iter().position(|call| call.id == id) {
            // Nobody can answer what was not sent.
            return self.calls.open[place].sent.then(|| self.settle(place, text, raw, fields));
        }
        if let Some(tombstone) = self.calls.tombstones.iter_mut().find(|it| it.id == id) {
            // Of what was not sent there are no effects, and of two responses the first counts.
            if tombstone.outcome == CallOutcome::Unknown {
                let error =
                    fields.get("error").and_then(|raw| object(raw.get())).unwrap_or_default();
                let code = error.get("code").and_then(|raw| key(raw.get()));
                let cancelled = code == Some(Key::Integer("-32800".into()));
                tombstone.outcome =
                    if cancelled { CallOutcome::Cancelled } else { CallOutcome::Completed };
            }
            return Some(self.ignore(IgnoreReason::LateResponse));
        }
        if self.calls.answered.contains(&id) {
            return Some(self.ignore(IgnoreReason::DuplicateResponse));
        }
        self.calls.was_used(id).then(|| self.ignore(IgnoreReason::LateResponse))
    }

    fn settle(&mut self, place: usize, text: &str, raw: &str, fields: &Fields<'_>) -> Verdict {
        let call = self.calls.open.remove(place);
        self.let_go(Some(call.node));
        self.stats.settled += 1;
        self.calls.answered.push(call.id);
        if self.calls.answered.len() > self.config.limits.max_tombstones {
            self.calls.answered.remove(0);
        }
        let result = fields.get("result").and_then(|raw| object(raw.get())).unwrap_or_default();
        if call.initialize {
            self.version = result.get("protocolVersion").and_then(|raw| string(raw.get()));
        }
        if let Some(token) = call.progress.filter(|_| call.task && task_id(&result).is_some()) {
            self.calls.lasting.push(token);
            if self.calls.lasting.len() > self.config.limits.max_tasks {
                self.calls.lasting.remove(0);
            }
        }
        let Some((inner, spelled)) = call.inner else { return Verdict::Settled(call.label) };
        let own = match spelled {
            Some(own) => own,
            // It stays as the peer spelt it, if it is of the right type.
            None if key(raw).as_ref() == Some(&inner) => return Verdict::Deliver(None, None),
            None => inner.spelled(),
        };
        Verdict::Deliver(None, (own != raw).then(|| replace(text, &[(raw, own)])))
    }

    /// The peer sent progress.
    pub(super) fn peers_progress(&mut self, text: &str, params: &Fields<'_>) -> Verdict {
        if self.stats.calls == 0 {
            return Verdict::Deliver(None, None);
        }
        let raw = params.get("progressToken").map(|raw| raw.get());
        let Some((raw, token)) = raw.and_then(|raw| Some((raw, key(raw)?))) else {
            return self.ignore(IgnoreReason::LateProgress);
        };
        let own = |own: &Option<String>| {
            let rewritten = own.as_ref().map(|own| replace(text, &[(raw, own.clone())]));
            Verdict::Deliver(None, rewritten)
        };
        let now = self.now;
        let named = |named: &super::calls::Token| named.wire == token;
        let mut open = self.calls.open.iter_mut();
        if let Some(call) = open.find(|call| call.progress.as_ref().is_some_and(named)) {
            if !call.sent {
                return self.ignore(IgnoreReason::LateProgress);
            }
            call.idle_at = call.idle.map(|idle| now.after(idle));
            let spelled = call.progress.as_ref().and_then(|token| token.raw.clone());
            return if call.inner.is_some() {
                own(&spelled)
            } else {
                Verdict::Progress(call.label)
            };
        }
        match self.calls.lasting.iter().find(|token| named(token)) {
            Some(token) => own(&token.raw),
            None => self.ignore(IgnoreReason::LateProgress),
        }
    }
}
