//! What a connection has seen, in plain numbers.

use std::time::Duration;

use crate::{Cause, IgnoreReason, RejectReason, SwallowReason};

/// Counters and table sizes of one connection. A snapshot; reading it changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests in the table: not answered, or cancelled with the handler still running.
    pub in_flight: usize,
    /// Cancelled requests still remembered after their handler exited.
    pub retired: usize,
    /// Tasks whose token is kept.
    pub tasks: usize,
    /// Tokens in the tree, without its root.
    pub tokens: usize,
    /// Wakers registered with tokens.
    pub watches: usize,
    /// Cancels held for a request that has not come yet.
    pub held: usize,
    /// Threads and processes that run for requests.
    pub works: usize,
    /// Requests of ours that wait for their response.
    pub outbound: usize,
    /// Requests of ours remembered after they were abandoned.
    pub tombstones: usize,
    /// Requests taken into the table so far.
    pub requests: u64,
    /// Requests answered so far.
    pub answered: u64,
    /// Requests cancelled so far, by cause, in the order of [`Cause::ALL`].
    pub cancelled: [u64; 5],
    /// Cancels ignored because their request was answered before.
    pub late_cancels: u64,
    /// Cancels ignored because their id never was.
    pub unknown_cancels: u64,
    /// Cancels ignored because they had no usable `requestId`.
    pub malformed_cancels: u64,
    /// Cancels ignored because their request was cancelled already.
    pub repeated_cancels: u64,
    /// Cancels ignored because they meant `initialize`.
    pub initialize_cancels: u64,
    /// Requests that never ran because their cancel had overtaken them.
    pub cancelled_early: u64,
    /// Requests rejected for the id of one that is live.
    pub duplicate_ids: u64,
    /// Messages rejected for another reason: too many in flight, id too long, batch.
    pub rejected: u64,
    /// Results and errors of cancelled requests that were swallowed.
    pub swallowed_answers: u64,
    /// Progress of cancelled requests that was swallowed.
    pub swallowed_progress: u64,
    /// Responses swallowed because no request was open for them.
    pub swallowed_unknown: u64,
    /// Requests that were given to the language under an alias.
    pub aliased: u64,
    /// Requests of ours so far.
    pub calls: u64,
    /// Requests of ours that got their response in time.
    pub settled: u64,
    /// Requests of ours that were abandoned, by cause, in the order of [`Cause::ALL`].
    pub abandoned: [u64; 5],
    /// Responses ignored because nobody waited for them any more.
    pub late_responses: u64,
    /// Responses ignored because they were the second to their request.
    pub duplicate_responses: u64,
    /// Responses ignored because their id was of the wrong type.
    pub wrong_type_responses: u64,
    /// Responses ignored because their id was never used.
    pub unknown_responses: u64,
    /// Progress ignored because its request was over, or never was.
    pub late_progress: u64,
    /// From the cancel's being read to the handler's exit.
    pub cancel_latency: Latency,
}

/// A running summary of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many were recorded.
    pub count: u64,
    /// Their sum.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
}

impl Latency {
    pub(crate) fn record(&mut self, latency: Duration) {
        self.count += 1;
        self.total += latency;
        self.max = self.max.max(latency);
    }
}

impl Stats {
    /// The cancels that the peer sent, by what they hit.
    pub fn cancels_by_hit(&self) -> [(&'static str, u64); 7] {
        [
            ("live", self.cancelled[Cause::Peer.code() as usize - 1]),
            ("late", self.late_cancels),
            ("unknown", self.unknown_cancels),
            ("malformed", self.malformed_cancels),
            ("repeated", self.repeated_cancels),
            ("initialize", self.initialize_cancels),
            ("early", self.cancelled_early),
        ]
    }

    pub(crate) fn count_cancelled(&mut self, cause: Cause) {
        self.cancelled[cause.code() as usize - 1] += 1;
    }

    pub(crate) fn count_abandoned(&mut self, cause: Cause) {
        self.abandoned[cause.code() as usize - 1] += 1;
    }

    pub(crate) fn count_ignored(&mut self, reason: IgnoreReason) {
        match reason {
            IgnoreReason::LateCancel => self.late_cancels += 1,
            IgnoreReason::UnknownCancel => self.unknown_cancels += 1,
            IgnoreReason::MalformedCancel => self.malformed_cancels += 1,
            IgnoreReason::RepeatedCancel => self.repeated_cancels += 1,
            IgnoreReason::InitializeCancel => self.initialize_cancels += 1,
            IgnoreReason::CancelledEarly => self.cancelled_early += 1,
            IgnoreReason::LateResponse => self.late_responses += 1,
            IgnoreReason::DuplicateResponse => self.duplicate_responses += 1,
            IgnoreReason::WrongTypeResponse => self.wrong_type_responses += 1,
            IgnoreReason::UnknownResponse => self.unknown_responses += 1,
            IgnoreReason::LateProgress => self.late_progress += 1,
            IgnoreReason::HeldCancel | IgnoreReason::Closed => {}
        }
    }

    pub(crate) fn count_rejected(&mut self, reason: RejectReason) {
        match reason {
            RejectReason::DuplicateId => self.duplicate_ids += 1,
            RejectReason::CancelledEarly => self.cancelled_early += 1,
            RejectReason::TooManyInFlight | RejectReason::IdTooLong | RejectReason::Batch => {
                self.rejected += 1;
            }
        }
    }

    pub(crate) fn count_swallowed(&mut self, reason: SwallowReason) {
        match reason {
            SwallowReason::CancelledAnswer => self.swallowed_answers += 1,
            SwallowReason::CancelledProgress => self.swallowed_progress += 1,
            SwallowReason::NoSuchRequest => self.swallowed_unknown += 1,
            SwallowReason::StaleCancel
            | SwallowReason::NotSent
            | SwallowReason::InitializeCancel
            | SwallowReason::StreamCloses
            | SwallowReason::Closed => {}
        }
    }
}
