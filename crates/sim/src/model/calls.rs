//! The model's requests of our own side: how they begin, and all the ways in which they end.
//!
//! A list of those that are open, a list of tombstones, and a set of every id that was ever used. What an SDK
//! behind us sends is read in `asks`, what the peer says about them in `replies`.

use std::collections::BTreeSet;
use std::time::Duration;

use countermand_core::{CallOutcome, Cause, Time, WireKind};
use serde_json::{Value, json};

use super::read::Key;
use super::{Begun, Model, Parent, Told};
use crate::step::{Ask, Label};

/// Where our ids go on once an SDK counts beside us.
const ABOVE_AN_SDK: u64 = 1_000_000_000;
/// An SDK's larger ids do not stay, so that ours, which are larger still, can be read by every language.
const LARGEST_KEPT: u64 = (1 << 52) - 1;
/// How many ids that an SDK has skipped it may still use.
const SKIPPED: u64 = 256;

/// A request of ours that is open.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) label: Label,
    /// On the wire.
    pub(super) id: u64,
    /// How the SDK that made it knows it, and how it spells that where the wire has another.
    pub(super) inner: Option<(Key, Option<String>)>,
    pub(super) sent: bool,
    pub(super) initialize: bool,
    pub(super) task: bool,
    pub(super) node: usize,
    pub(super) idle: Option<Duration>,
    pub(super) idle_at: Option<Time>,
    pub(super) total_at: Option<Time>,
    pub(super) progress: Option<Token>,
}

/// A progress token: as the wire has it, and how the SDK spells it where the wire has another.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) wire: Key,
    pub(super) raw: Option<String>,
}

/// What is remembered of an abandoned request.
#[derive(Clone, Debug)]
pub(super) struct Tombstone {
    pub(super) label: Label,
    pub(super) id: u64,
    pub(super) at: Time,
    pub(super) outcome: CallOutcome,
    token: Option<Key>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    pub(super) open: Vec<Call>,
    pub(super) tombstones: Vec<Tombstone>,
    /// The last that were answered in time.
    pub(super) answered: Vec<u64>,
    /// Progress tokens of requests that have become tasks.
    pub(super) lasting: Vec<Token>,
    used: BTreeSet<u64>,
    minted: Vec<u64>,
    /// The highest id of an SDK that stayed as it was, and what it may still use below.
    highest: Option<u64>,
    skipped: Vec<u64>,
}

impl Call {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.idle_at.into_iter().chain(self.total_at).min()
    }
}

impl Calls {
    /// Whether an id is taken for one that was on the wire.
    pub(super) fn was_used(&self, id: u64) -> bool {
        let skipped_for_good = self.highest.is_some_and(|highest| id < highest);
        let below_ours = id >= ABOVE_AN_SDK && self.minted.last().is_some_and(|last| id <= *last);
        self.used.contains(&id) || below_ours || skipped_for_good && !self.skipped.contains(&id)
    }

    /// A new id of ours.
    pub(super) fn mint(&mut self) -> u64 {
        let after_sdk = self.highest.map_or(1, |highest| ABOVE_AN_SDK.max(highest + 1));
        let after_ours = self.minted.last().map_or(1, |last| last + 1);
        let id = after_sdk.max(after_ours);
        self.minted.push(id);
        self.used.insert(id);
        self.skipped.retain(|skipped| !(ABOVE_AN_SDK..=id).contains(skipped));
        id
    }

    /// Whether an SDK's id stays as it is; if so it is used from now on.
    pub(super) fn keep(&mut self, id: u64) -> bool {
        if id > LARGEST_KEPT || self.was_used(id) {
            return false;
        }
        if self.highest.is_none_or(|highest| id > highest) {
            let first = self.highest.map_or(0, |highest| highest + 1);
            let new = first.max(id.saturating_sub(SKIPPED))..id;
            let new: Vec<_> = new.filter(|skipped| !self.was_used(*skipped)).collect();
            self.skipped.extend(new);
            let surplus = self.skipped.len().saturating_sub(usize::try_from(SKIPPED).unwrap());
            self.skipped.drain(..surplus);
            self.highest = Some(id);
        }
        self.skipped.retain(|skipped| *skipped != id);
        self.used.insert(id);
        true
    }

    /// Whether another request has this progress token, or had it and may still get progress.
    pub(super) fn token_is_taken(&self, token: &Key) -> bool {
        let open = self.open.iter().filter_map(|call| call.progress.as_ref());
        let dead = self.tombstones.iter().filter_map(|tombstone| tombstone.token.as_ref());
        let mut taken = open.chain(&self.lasting).map(|token| &token.wire).chain(dead);
        taken.any(|taken| taken == token)
    }

    /// A progress token that nobody has.
    pub(super) fn fresh_token(&self, id: u64) -> String {
        let mut name = format!("countermand:{id}");
        let mut attempt = 0;
        while self.token_is_taken(&Key::Text(name.clone())) {
            attempt += 1;
            name = format!("countermand:{id}:{attempt}");
        }
        name
    }

    /// The next time at which something is due.
    pub(super) fn next(&self, age: Duration) -> Option<Time> {
        let deadlines = self.open.iter().filter_map(Call::deadline);
        let evictions = self.tombstones.iter().map(|tombstone| tombstone.at.after(age));
        deadlines.chain(evictions).min()
    }
}

impl Model {
    /// A caller of ours makes a request.
    pub fn begin(&mut self, ask: &Ask, parent: Parent, label: Label, now: Time) -> Begun {
        self.now = self.now.max(now);
        let params: Option<Value> =
            ask.params.as_ref().map(|text| serde_json::from_str(text).unwrap_or_default());
        if params.as_ref().is_some_and(|params| !params.is_object()) {
            return Err("params_no_object");
        }
        if self.closed {
            return Err("closed");
        }
        if self.calls.open.len() >= self.config.limits.max_outbound {
            return Err("too_many");
        }
        let parent = match parent {
            Parent::Root => 0,
            Parent::Node(node) => node,
            Parent::Foreign => return Err("foreign_parent"),
        };
        if self.tokens.node(parent).cause.is_some() {
            return Err("cancelled");
        }
        let id = self.calls.mint();
        let mut frame = json!({ "jsonrpc": "2.0", "id": id, "method": ask.method });
        if params.is_some() || ask.progress {
            frame["params"] = params.unwrap_or_else(|| json!({}));
        }
        let progress = self.name_progress(&mut frame, ask.progress, id);
        let due = |after: Option<Duration>| after.map(|after| now.after(after));
        let call = Call {
            label,
            id,
            inner: None,
            sent: false,
            initialize: ask.method == "initialize",
            task: false,
            node: self.attach(parent),
            idle: ask.idle,
            idle_at: due(ask.idle),
            total_at: due(ask.total),
            progress,
        };
        self.calls.open.push(call);
        self.stats.calls += 1;
        Ok((id, frame.to_string()))
    }

    /// Gives the request a progress token, if its caller has given none or one that is taken.
    fn name_progress(&self, frame: &mut Value, wanted: bool, id: u64) -> Option<Token> {
        let given = match &frame["params"]["_meta"]["progressToken"] {
            Value::String(text) => Some(Key::Text(text.clone())),
            Value::Number(number) => super::read::key(&number.to_string()),
            _ => None,
        };
        if given.is_none() && !wanted {
            return None;
        }
        let wire = match given {
            Some(given) if !self.calls.token_is_taken(&given) => given,
            _ => {
                let own = Key::Integer(id.to_string());
                let taken = self.calls.token_is_taken(&own);
                if taken { Key::Text(self.calls.fresh_token(id)) } else { own }
            }
        };
        let value = match &wire {
            Key::Text(text) => json!(text),
            Key::Integer(digits) => digits.parse::<u64>().map_or(json!(digits), |it| json!(it)),
        };
        let params = &mut frame["params"];
        if !params["_meta"].is_object() {
            params["_meta"] = json!({});
        }
        params["_meta"]["progressToken"] = value;
        Some(Token { wire, raw: None })
    }

    /// A token for a request or a call.
    pub(super) fn attach(&mut self, parent: usize) -> usize {
        let node = self.tokens.add(parent);
        self.tokens.node_mut(node).attached = true;
        node
    }

    /// The writer's turn has come.
    pub fn transmit(&mut self, label: Label) -> bool {
        let call = self.calls.open.iter_mut().find(|call| call.label == label);
        call.is_some_and(|call| {
            call.sent = true;
            true
        })
    }

    /// A caller of ours gives up.
    pub fn abandon(
        &mut self,
        label: Label,
        cause: Cause,
        reason: Option<&str>,
        now: Time,
    ) -> &'static str {
        self.now = self.now.max(now);
        let reason = reason.map(|reason| self.bounded(reason));
        self.give_up(label, cause, reason.as_deref(), true)
    }

    pub(super) fn bounded(&self, reason: &str) -> String {
        let mut reason = reason.to_owned();
        while reason.len() > self.config.limits.max_reason_bytes {
            reason.pop();
        }
        reason
    }

    /// A token trips, and what was asked on its behalf is abandoned.
    pub fn trip(&mut self, node: usize, cause: Cause, reason: Option<&str>) -> bool {
        let reason = reason.map(|reason| self.bounded(reason));
        let first = self.tokens.trip(node, cause, reason.as_deref());
        self.cut(cause, reason.as_deref());
        first
    }

    /// Whoever is open under a token that has tripped is abandoned, in the order of their ids.
    fn cut(&mut self, cause: Cause, reason: Option<&str>) {
        let tripped = |call: &&Call| self.tokens.node(call.node).cause.is_some();
        let mut cut: Vec<_> = self.calls.open.iter().filter(tripped).cloned().collect();
        cut.sort_by_key(|call| call.id);
        for call in cut {
            self.bury(call.label, cause, reason, true);
        }
    }

    /// A request of ours is abandoned, and what was asked on its behalf. `notify`: it is not its SDK that says so.
    pub(super) fn give_up(
        &mut self,
        label: Label,
        cause: Cause,
        reason: Option<&str>,
        notify: bool,
    ) -> &'static str {
        let abandoned = self.bury(label, cause, reason, notify);
        self.cut(cause, reason);
        abandoned
    }

    fn bury(
        &mut self,
        label: Label,
        cause: Cause,
        reason: Option<&str>,
        notify: bool,
    ) -> &'static str {
        let Some(place) = self.calls.open.iter().position(|call| call.label == label) else {
            return "settled";
        };
        let call = self.calls.open.remove(place);
        self.tokens.trip(call.node, cause, reason);
        self.let_go(Some(call.node));
        self.stats.abandoned[cause.code() as usize - 1] += 1;
        let outcome = if call.sent { CallOutcome::Unknown } else { CallOutcome::NotSent };
        let reason = reason.map(str::to_owned);
        match &call.inner {
            None => self.told.push(Told::Abandoned {
                call: label,
                cause,
                reason: reason.clone(),
                outcome,
            }),
            Some((id, raw)) if notify && !self.closed => {
                let own = raw.clone().unwrap_or_else(|| id.spelled());
                self.told.push(Told::Refused(own));
            }
            Some(_) => {}
        }
        let token = call.progress.map(|token| token.wire);
        self.calls.tombstones.push(Tombstone { label, id: call.id, at: self.now, outcome, token });
        self.evict_tombstones();
        if !call.sent {
            return "not_sent";
        }
        if self.closed {
            return "silent";
        }
        if call.initialize {
            self.told.push(Told::CloseTransport);
            return "close_transport";
        }
        if self.config.wire == WireKind::Http2026 {
            self.told.push(Told::CloseStream(label));
            return "close_stream";
        }
        if notify {
            self.told.push(Told::Cancel { call: label, id: call.id.to_string(), reason });
        }
        "notified"
    }

    pub(super) fn evict_tombstones(&mut self) {
        let limits = self.config.limits;
        let old = |tombstone: &Tombstone| tombstone.at.after(limits.tombstone_age) <= self.now;
        self.calls.tombstones.retain(|tombstone| !old(tombstone));
        let surplus = self.calls.tombstones.len().saturating_sub(limits.max_tombstones);
        self.calls.tombstones.drain(..surplus);
    }

    /// The requests that are out of time are abandoned, the most overdue first.
    pub(super) fn time_out(&mut self) {
        let due = |call: &Call| call.deadline().filter(|at| *at <= self.now);
        let overdue =
            self.calls.open.iter().filter_map(|call| Some((due(call)?, call.id, call.label)));
        let mut overdue: Vec<_> = overdue.collect();
        overdue.sort_unstable();
        for (_, _, label) in overdue {
            self.give_up(label, Cause::Timeout, Some("timed out"), true);
        }
        self.evict_tombstones();
    }

    /// The token of a request of ours that is open.
    pub(crate) fn node_of(&self, label: Label) -> Option<usize> {
        Some(self.calls.open.iter().find(|call| call.label == label)?.node)
    }

    /// What should be done about requests of ours since this was last asked.
    pub fn take_told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// What is known of the effects of the requests that are remembered.
    pub fn outcomes(&self) -> impl Iterator<Item = (Label, CallOutcome)> + '_ {
        self.calls.tombstones.iter().map(|tombstone| (tombstone.label, tombstone.outcome))
    }
}
