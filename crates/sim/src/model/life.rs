//! The model's requests after they were read: start, exit, and how they are let go of.

use countermand_core::{Cause, Era, Finish, Time};

use super::{Model, Phase};
use crate::step::Label;

impl Model {
    /// A handler is about to start.
    pub fn start(&mut self, label: Label, now: Time) -> bool {
        let Some(request) = self.find(label) else { return false };
        if request.live() {
            request.phase = Phase::Running;
            return true;
        }
        self.exit(label, now);
        false
    }

    /// A handler has exited.
    pub fn finish(&mut self, label: Label, now: Time) -> Finish {
        let Some(request) = self.find(label) else { return Finish::Unknown };
        if request.live() {
            request.phase = Phase::Exited;
            return Finish::Owed;
        }
        self.exit(label, now);
        Finish::Silent
    }

    /// A request is withdrawn.
    pub fn discard(&mut self, label: Label) {
        let token = self.find(label).and_then(|request| request.token);
        self.requests.retain(|request| request.label != label);
        self.let_go(token);
    }

    pub(super) fn exit(&mut self, label: Label, now: Time) {
        let request = self.find(label).expect("a request in the table");
        request.phase = Phase::Exited;
        let (token, cancelled_at) = (request.token.take(), request.cancelled_at);
        if let (Some(_), Some(at)) = (token, cancelled_at) {
            let latency = &mut self.stats.cancel_latency;
            latency.count += 1;
            latency.total += now.since(at);
            latency.max = latency.max.max(now.since(at));
        }
        self.let_go(token);
        self.retire(label, now);
    }

    /// A cancelled request whose handler has exited is kept for late answers and late progress, for a
    /// time; if nothing can be late any more it goes at once.
    pub(super) fn retire(&mut self, label: Label, now: Time) {
        let Some(request) = self.find(label) else { return };
        if request.live() || request.phase != Phase::Exited {
            return;
        }
        if request.swallowed && request.progress.is_none() {
            self.requests.retain(|request| request.label != label);
        } else if request.retired_at.is_none() {
            request.retired_at = Some(now);
            // To the end: the list is also the order in which they retired.
            let place = self.requests.iter().position(|request| request.label == label).unwrap();
            let request = self.requests.remove(place);
            self.requests.push(request);
            self.evict(now);
        }
    }

    fn evict(&mut self, now: Time) {
        let age = self.config.limits.retired_age;
        self.requests.retain(|request| request.retired_at.is_none_or(|at| at.after(age) > now));
        while self.retired() > self.config.limits.max_retired {
            let oldest = self.requests.iter().position(|request| request.retired_at.is_some());
            self.requests.remove(oldest.unwrap());
        }
    }

    pub(super) fn let_go(&mut self, token: Option<usize>) {
        if let Some(token) = token {
            self.tokens.node_mut(token).attached = false;
        }
    }

    /// The connection is over; the labels of those that this cancels, in the order of their arrival.
    pub fn close(&mut self, cause: Cause, now: Time) -> Vec<Label> {
        if self.closed {
            return Vec::new();
        }
        self.closed = true;
        self.now = self.now.max(now);
        self.held.clear();
        let live = self.requests.iter().filter(|request| request.live());
        let mut live: Vec<_> = live.map(|request| request.label).collect();
        live.sort_unstable();
        for &label in &live {
            self.trip_request(label, cause, None, now);
        }
        self.trip(0, cause, None);
        for (_, token) in std::mem::take(&mut self.tasks) {
            self.let_go(Some(token));
        }
        live
    }

    /// Which era the first request spoke.
    pub fn era(&self) -> Option<Era> {
        self.modern.map(|modern| if modern { Era::Y2026 } else { Era::Y2025 })
    }

    /// Time passes.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.evict(now);
        self.held.retain(|(_, expiry)| *expiry > now);
        self.time_out();
    }

    /// When something is next forgotten, or out of time.
    pub fn poll_timeout(&self) -> Option<Time> {
        let age = self.config.limits.retired_age;
        let retired = self.requests.iter().filter_map(|request| request.retired_at);
        let held = self.held.iter().map(|(_, expiry)| *expiry);
        let calls = self.calls.next(self.config.limits.tombstone_age);
        retired.map(|at| at.after(age)).chain(held).chain(calls).min()
    }
}
