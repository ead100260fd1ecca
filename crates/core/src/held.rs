//! Cancels that overtook their request, where the connection was told to remember them.

use std::collections::VecDeque;

use crate::id::IdRef;
use crate::{EarlyCancel, Time};

/// Only integer ids above the highest seen are ever held, so that an id that is used again
/// cannot be hit by a cancel for its first use.
#[derive(Debug)]
pub(crate) struct Held {
    policy: Option<EarlyCancel>,
    highest: Option<i64>,
    cancels: VecDeque<(i64, Time)>,
}

impl Held {
    pub(crate) fn new(policy: Option<EarlyCancel>) -> Self {
        Self { policy, highest: None, cancels: VecDeque::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.cancels.len()
    }

    /// Whether a request with this id has been read, so far as an integer can tell.
    pub(crate) fn passed(&self, id: &IdRef<'_>) -> bool {
        matches!((id, self.highest), (IdRef::Int(id), Some(highest)) if *id <= highest)
    }

    /// Remembers a cancel that met no request. False if it is not to be remembered.
    pub(crate) fn hold(&mut self, id: &IdRef<'_>, now: Time) -> bool {
        let (Some(policy), &IdRef::Int(value)) = (self.policy, id) else {
            return false;
        };
        if policy.max == 0 || self.passed(id) || self.cancels.iter().any(|(held, _)| *held == value)
        {
            return false;
        }
        if self.cancels.len() == policy.max {
            self.cancels.pop_front();
        }
        self.cancels.push_back((value, now.after(policy.hold)));
        true
    }

    /// A request with this id was read: true if its cancel came first.
    pub(crate) fn meet(&mut self, id: &IdRef<'_>, now: Time) -> bool {
        let &IdRef::Int(value) = id else { return false };
        self.highest = Some(self.highest.map_or(value, |highest| highest.max(value)));
        if self.cancels.is_empty() {
            return false;
        }
        self.expire(now);
        let met = self.cancels.iter().any(|(held, _)| *held == value);
        // What is at or below the highest can no longer be held for anything.
        self.cancels.retain(|(held, _)| Some(*held) > self.highest);
        met
    }

    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.cancels.front().map(|(_, expiry)| *expiry)
    }

    pub(crate) fn expire(&mut self, now: Time) {
        while self.next_expiry().is_some_and(|expiry| expiry <= now) {
            self.cancels.pop_front();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.cancels.clear();
    }
}
