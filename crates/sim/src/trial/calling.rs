//! The steps of our own requests: how they begin and are given up, what the peer says of them, and what the core
//! wants done about them, which is asked after every step.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use countermand_core::{
    Begin, Call, Cause, Connection, IdMatch, IgnoreReason, Output, SwallowReason,
};
use serde_json::Value;

use super::{Count, Seen, Trial, error_id, same, text};
use crate::audit::Breach;
use crate::audit::calls::{self, End, token_of};
use crate::coverage::Counter;
use crate::model::read::{Fields, key, object};
use crate::model::{Out, Parent, Told, Verdict};
use crate::step::{Ask, Label, Step};

/// The requests of ours on one connection, by both of their names.
#[derive(Default)]
pub(crate) struct Names {
    labels: HashMap<Call, Label>,
    calls: HashMap<Label, Call>,
    woken: Arc<Count>,
    seen: usize,
}

impl Names {
    pub(super) fn of(connection: &Connection) -> Self {
        let names = Self::default();
        connection.on_output(Waker::from(names.woken.clone()));
        names
    }

    pub(super) fn give(&mut self, call: Call, label: Label) {
        self.labels.insert(call, label);
        self.calls.insert(label, call);
    }

    pub(super) fn label(&self, call: Call) -> Result<Label, Breach> {
        let label = self.labels.get(&call).copied();
        label.ok_or_else(|| Breach::new("I6", format!("{call:?} was never given out")))
    }
}

impl Trial {
    /// On whose behalf: `None` if that token is not held any more.
    pub(super) fn parent(&self, at: usize, of: Option<Label>) -> Option<Parent> {
        let Some(of) = of else { return Some(Parent::Root) };
        let handle = self.handles.get(&of)?;
        Some(if handle.link == at { Parent::Node(handle.node) } else { Parent::Foreign })
    }

    pub(super) fn begin(&mut self, at: usize, ask: &Ask, label: Label) -> Result<Seen, Breach> {
        let Some(parent) = self.parent(at, ask.parent).filter(|_| self.fresh(label)) else {
            return Ok(Seen::Skipped);
        };
        let expected = self.links[at].model.begin(ask, parent, label, self.now);
        self.expected = Seen::Begun(expected.clone());
        let begin = Begin {
            method: ask.method,
            params: ask.params.as_deref(),
            parent: ask.parent.map(|of| &self.handles[&of].token),
            idle: ask.idle,
            total: ask.total,
            progress: ask.progress,
        };
        let begun = match self.links[at].connection.begin(&begin, self.now) {
            Err(error) => {
                self.coverage.refused_call(error);
                return same(&Seen::Begun(expected), Seen::Begun(Err(error.as_str())));
            }
            Ok(begun) => begun,
        };
        let frame = text(begun.frame);
        let call = self.history(at, begun.call, &frame, None, ask.parent);
        let call = calls::Call { idle: ask.idle, total: ask.total, ..call };
        self.audit.calls.begun(label, call, true, &frame)?;
        self.links[at].names.give(begun.call, label);
        let seen = Seen::Begun(Ok((begun.call.0, canonical(&frame))));
        let seen = same(&Seen::Begun(expected), seen)?;
        let link = &mut self.links[at];
        let node = link.model.node_of(label).expect("it was begun");
        link.model.tokens.node_mut(node).handles += 1;
        self.hold(at, label, begun.token, node)?;
        Ok(seen)
    }

    /// A label that names nothing yet.
    pub(super) fn fresh(&self, label: Label) -> bool {
        let taken = self.handles.contains_key(&label) || self.audit.get(label).is_some();
        !taken && self.audit.calls.get(label).is_none()
    }

    /// What is known of a request of ours from its frame. `inner` is that frame as its SDK sent it.
    fn history(
        &self,
        at: usize,
        call: Call,
        frame: &str,
        inner: Option<&str>,
        parent: Option<Label>,
    ) -> calls::Call {
        let (_, wire, initialize) = super::names(frame).unwrap_or_default();
        let (id, own, _) = super::names(inner.unwrap_or(frame)).unwrap_or_default();
        let wire = wire.as_deref().and_then(key);
        calls::Call {
            link: at,
            wire: call.0,
            inner: inner.map(|_| id),
            progress: wire.zip(own),
            initialize,
            parent: parent.filter(|of| self.handles.get(of).is_some_and(|it| it.link == at)),
            begun_at: self.now,
            idle: None,
            total: None,
            moved_at: None,
            sent: false,
            end: None,
            cancelled: false,
            asks_task: frame.contains(r#""task":{"#),
            task: false,
        }
    }

    /// An SDK's message was decided: notes the request that it made, or the cancel.
    pub(super) fn sent_audited(
        &mut self,
        (at, frame): (usize, &str),
        (parent, label): (Option<Label>, Label),
        (out, call): (&Out, Option<Call>),
    ) -> Result<(), Breach> {
        let fields = object(frame).unwrap_or_default();
        let meant = fields.get("params").and_then(|raw| object(raw.get()));
        let meant = meant.and_then(|params| key(params.get("requestId")?.get()));
        match (out, call) {
            (Out::Request(..), Some(call)) => {
                let Out::Request(_, rewritten) = out else { return Ok(()) };
                let wire = rewritten.as_deref().unwrap_or(frame);
                let history = self.history(at, call, wire, Some(frame), parent);
                let aliased = history.inner.as_deref().and_then(key).and_then(|id| id.natural());
                let aliased = aliased != Some(call.0);
                let token = history
                    .progress
                    .as_ref()
                    .is_some_and(|(wire, own)| key(own).as_ref() != Some(wire));
                self.coverage.hit_if(aliased, Counter::CallAlias);
                self.coverage.hit_if(token, Counter::CallTokenAlias);
                self.audit.calls.begun(label, history, aliased, wire)?;
                self.links[at].names.give(call, label);
            }
            (Out::Cancel(rewritten), _) => {
                let written = rewritten.as_deref().unwrap_or(frame);
                let fields = object(written).unwrap_or_default();
                let params = fields.get("params").and_then(|raw| object(raw.get()));
                let id = params.and_then(|params| key(params.get("requestId")?.get()));
                let id = id.ok_or_else(|| Breach::new("I7", format!("a cancel of {written}")))?;
                let label = self.audit.calls.called_off(at, &id, self.now)?;
                self.coverage.hit(Counter::SdkCancel);
                let inner =
                    self.audit.calls.get(label).and_then(|call| key(call.inner.as_ref()?));
                if inner != meant {
                    return Err(Breach::new("I7", format!("{frame} came out as {written}")));
                }
            }
            (Out::Swallow(reason), _) => {
                self.coverage.swallowed(*reason);
                let cancel = !matches!(reason, SwallowReason::StaleCancel | SwallowReason::Closed);
                if let Some(meant) = meant.filter(|_| cancel && !fields.contains_key("id")) {
                    self.audit.calls.let_be(at, &meant, self.now);
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn transmit(&mut self, of: Label) -> Result<Seen, Breach> {
        let Some((at, call)) = self.ours(of) else { return Ok(Seen::Skipped) };
        let expected = Seen::Transmitted(self.links[at].model.transmit(of));
        self.expected = expected.clone();
        let may = self.links[at].connection.transmit(call);
        self.audit.calls.transmitted(of, may)?;
        self.coverage.transmitted(&self.audit.calls.get(of).cloned().expect("known"), may);
        same(&expected, Seen::Transmitted(may))
    }

    pub(super) fn abandon(
        &mut self,
        of: Label,
        cause: Cause,
        reason: Option<&str>,
    ) -> Result<Seen, Breach> {
        let Some((at, call)) = self.ours(of) else { return Ok(Seen::Skipped) };
        let expected = self.links[at].model.abandon(of, cause, reason, self.now);
        let expected = Seen::Abandoned(expected);
        self.expected = expected.clone();
        let abandoned = self.links[at].connection.abandon(call, cause, reason, self.now);
        let history = self.audit.calls.get(of).expect("known");
        self.coverage.abandoned(history, abandoned, self.now);
        same(&expected, Seen::Abandoned(abandoned.as_str()))
    }

    fn ours(&self, of: Label) -> Option<(usize, Call)> {
        let at = self.audit.calls.get(of)?.link;
        Some((at, *self.links[at].names.calls.get(&of)?))
    }

    /// A response of the peer's, or progress, was read, and this was said of it. False if it is neither.
    pub(super) fn reply_audited(
        &mut self,
        at: usize,
        frame: &str,
        fields: &Fields<'_>,
        verdict: &Verdict,
    ) -> Result<bool, Breach> {
        let named = fields.get("method").is_some_and(|raw| raw.get().starts_with('"'));
        let id = fields.get("id").map(|raw| raw.get());
        let rewritten = match verdict {
            Verdict::Deliver(None, rewritten) => Some(rewritten.as_deref().unwrap_or(frame)),
            _ => None,
        };
        let answers = fields.contains_key("result") || fields.contains_key("error");
        if let Some(id) = id.and_then(key).filter(|_| !named && answers) {
            let meant = self.audit.calls.with_id(at, &id);
            let meant = meant.map(|(_, call)| call.clone());
            self.coverage.responded(meant.as_ref(), verdict, self.now);
            let late = *verdict == Verdict::Ignored(IgnoreReason::LateResponse);
            self.coverage.hit_if(late && frame.contains("-32800"), Counter::LateSaysCancelled);
            if *verdict == Verdict::Ignored(IgnoreReason::Closed) {
                return Ok(true);
            }
            let lenient = self.links[at].config.id_match == IdMatch::Lenient;
            let task = frame.contains("taskId");
            let said = (verdict, lenient);
            let hit = self.audit.calls.responded(at, &id, said, (task, self.now))?;
            if let (Some(hit), Some(delivered)) = (hit, rewritten) {
                self.audit.calls.delivered(hit, delivered)?;
                let call = self.audit.calls.get(hit).expect("hit");
                if call.inner.as_deref().and_then(key) == Some(id) && delivered != frame {
                    let detail = format!("{frame} came out as {delivered}");
                    return Err(Breach::new("I14", detail));
                }
            }
            return Ok(true);
        }
        let progress =
            fields.get("method").is_some_and(|raw| raw.get() == "\"notifications/progress\"");
        let Some(token) = token_of(frame).filter(|_| progress && id.is_none()) else {
            return Ok(false);
        };
        let meant = self.audit.calls.all().filter(|(_, call)| {
            call.link == at && call.progress.as_ref().is_some_and(|(wire, _)| *wire == token)
        });
        let meant = meant.last().map(|(_, call)| call.clone());
        self.coverage.peers_progress(meant.as_ref(), verdict, self.now);
        if *verdict != Verdict::Ignored(IgnoreReason::Closed) {
            self.audit.calls.progressed(at, &token, (verdict, rewritten), self.now)?;
        }
        Ok(true)
    }

    /// Asks every connection what it wants done, and compares that with what the model wants.
    pub(super) fn outputs(&mut self, step: &Step, seen: &Seen) -> Result<(), Breach> {
        self.told.clear();
        self.expected_told.clear();
        // An SDK that asks on behalf of somebody cancelled is refused at once: that is no end of a call.
        let refused = matches!(seen, Seen::Sent(frame, Out::Swallow(SwallowReason::NotSent))
            if object(frame).is_some_and(|fields| fields.contains_key("id")));
        let meant = match step {
            Step::Abandon { call, .. } => Some(*call),
            _ => None,
        };
        for at in 0..self.links.len() {
            let outputs = self.links[at].connection.take_outputs();
            let names = &mut self.links[at].names;
            let woken = names.woken.0.load(Ordering::Relaxed);
            let called = woken > std::mem::replace(&mut names.seen, woken);
            if called == outputs.is_empty() {
                let detail = format!("woken: {called}, for {outputs:?}");
                return Err(Breach::new("I5", detail));
            }
            for output in outputs {
                let told = self.translated(at, output)?;
                let end = self.end_by(step, &told);
                if !(refused && matches!(told, Told::Refused(_))) {
                    let closed = self.audit.is_closed(at);
                    let tripped =
                        |of| self.handles.get(&of).is_some_and(|handle| handle.token.cancelled());
                    let ended = (end, self.now);
                    self.audit.calls.told((at, &told), ended, (closed, meant), tripped)?;
                }
                self.coverage.told(&self.audit.calls, &told, refused);
                self.told.push((at, told));
            }
            let expected = self.links[at].model.take_told();
            self.expected_told.extend(expected.into_iter().map(|told| (at, told)));
        }
        if let Step::Close { link, .. } = step {
            self.audit.calls.closed(*link, self.now);
        }
        let told_time = matches!(step, Step::Advance(_)).then_some(self.now);
        let tripped = |of| self.handles.get(&of).is_some_and(|handle| handle.token.cancelled());
        self.audit.calls.prompt(told_time, |at| self.audit.is_closed(at), tripped)?;
        if self.told == self.expected_told {
            return Ok(());
        }
        Err(Breach::new("model", format!("{:?}, not {:?}", self.told, self.expected_told)))
    }

    /// What the core wants, in the words of the model.
    fn translated(&self, at: usize, output: Output) -> Result<Told, Breach> {
        let names = &self.links[at].names;
        Ok(match output {
            Output::Abandoned { call, cause, reason, outcome } => {
                let reason = reason.map(|reason| reason.to_string());
                Told::Abandoned { call: names.label(call)?, cause, reason, outcome }
            }
            Output::Deliver { frame } => Told::Refused(error_id(&frame)?),
            Output::Cancel { call, frame } => {
                let frame = text(frame);
                let wrong = || Breach::new("I4", format!("no cancel: {frame}"));
                let fields = object(&frame).filter(|_| !frame.contains('\n')).ok_or_else(wrong)?;
                let cancels = fields.get("method").is_some_and(|raw| {
                    raw.get() == "\"notifications/cancelled\"" && !fields.contains_key("id")
                });
                let params = fields.get("params").filter(|_| cancels).ok_or_else(wrong)?;
                let params = object(params.get()).ok_or_else(wrong)?;
                let id = params.get("requestId").ok_or_else(wrong)?.get().to_owned();
                let reason = params.get("reason");
                let reason = reason.map(|raw| serde_json::from_str(raw.get()).map_err(|_| wrong()));
                Told::Cancel { call: names.label(call)?, id, reason: reason.transpose()? }
            }
            Output::CloseStream { call } => Told::CloseStream(names.label(call)?),
            Output::CloseTransport => Told::CloseTransport,
            other => return Err(Breach::new("model", format!("{other:?}"))),
        })
    }

    /// How a request ended about which this is told after this step.
    fn end_by(&self, step: &Step, told: &Told) -> End {
        let of = match told {
            Told::Abandoned { call, .. } => Some(*call),
            _ => None,
        };
        let due = |of| self.audit.calls.get(of).and_then(calls::Call::due);
        match step {
            Step::Close { .. } => End::CutOff,
            Step::Abandon { call, .. } if of == Some(*call) => End::GivenUp,
            Step::Trip { token, .. } if of == Some(*token) => End::GivenUp,
            Step::Advance(_) if of.and_then(due).is_some_and(|due| due <= self.now) => {
                End::TimedOut
            }
            _ => End::WithParent,
        }
    }

    /// What is known of the effects of every request that the model remembers.
    pub(super) fn check_outcomes(&self) -> Result<(), Breach> {
        for link in &self.links {
            for (label, expected) in link.model.outcomes() {
                let seen = link.connection.outcome(link.names.calls[&label]);
                if seen != Some(expected) {
                    let detail = format!("outcome of {label}: {seen:?}, not {expected:?}");
                    return Err(Breach::new("model", detail));
                }
            }
        }
        Ok(())
    }
}

/// A frame with its keys in order.
fn canonical(frame: &str) -> String {
    serde_json::from_str::<Value>(frame).unwrap_or_default().to_string()
}
