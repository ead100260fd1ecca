//! What a connection has counted, as a plain JavaScript object.

use napi_derive::napi;

use crate::signals::CauseCounts;

/// Counters and table sizes of one connection.
#[napi(object)]
pub struct Stats {
    /// Requests in the table.
    pub in_flight: f64,
    /// Cancelled requests still remembered after their handler exited.
    pub retired: f64,
    /// Tasks whose token is kept.
    pub tasks: f64,
    /// Tokens in the tree, without its root.
    pub tokens: f64,
    /// Wakers registered with tokens.
    pub watches: f64,
    /// Cancels held for a request that has not come yet.
    pub held: f64,
    /// Threads and processes that run for requests.
    pub works: f64,
    /// Requests of ours that wait for their response.
    pub outbound: f64,
    /// Requests of ours remembered after they were abandoned.
    pub tombstones: f64,
    /// Requests taken into the table so far.
    pub requests: f64,
    /// Requests answered so far.
    pub answered: f64,
    /// Requests cancelled so far, by cause.
    pub cancelled: CauseCounts,
    /// The cancels that the peer sent, by what they hit.
    pub cancels: CancelHits,
    /// Cancels ignored because their request was answered before.
    pub late_cancels: f64,
    /// Cancels ignored because their id never was.
    pub unknown_cancels: f64,
    /// Cancels ignored because they had no usable `requestId`.
    pub malformed_cancels: f64,
    /// Cancels ignored because their request was cancelled already.
    pub repeated_cancels: f64,
    /// Cancels ignored because they meant `initialize`.
    pub initialize_cancels: f64,
    /// Requests that never ran because their cancel had overtaken them.
    pub cancelled_early: f64,
    /// Requests rejected for the id of one that is live.
    pub duplicate_ids: f64,
    /// Messages rejected for another reason.
    pub rejected: f64,
    /// Results and errors of cancelled requests that were swallowed.
    pub swallowed_answers: f64,
    /// Progress of cancelled requests that was swallowed.
    pub swallowed_progress: f64,
    /// Responses swallowed because no request was open for them.
    pub swallowed_unknown: f64,
    /// Requests that were given to the SDK under an alias.
    pub aliased: f64,
    /// Requests of ours so far.
    pub calls: f64,
    /// Requests of ours that got their response in time.
    pub settled: f64,
    /// Requests of ours that were abandoned, by cause.
    pub abandoned: CauseCounts,
    /// Responses ignored because nobody waited for them any more.
    pub late_responses: f64,
    /// Responses ignored because they were the second to their request.
    pub duplicate_responses: f64,
    /// Responses ignored because their id was of the wrong type.
    pub wrong_type_responses: f64,
    /// Responses ignored because their id was never used.
    pub unknown_responses: f64,
    /// Progress ignored because its request was over, or never was.
    pub late_progress: f64,
    /// How many times between a cancel and its handler's exit were measured.
    pub cancel_latency_count: f64,
    /// Their sum, in milliseconds.
    pub cancel_latency_total_ms: f64,
    /// The longest, in milliseconds.
    pub cancel_latency_max_ms: f64,
}

/// Cancels that the peer sent.
#[napi(object)]
pub struct CancelHits {
    /// Their request was live.
    pub live: f64,
    /// Their request had been answered.
    pub late: f64,
    /// Their id never was.
    pub unknown: f64,
    /// They had no usable `requestId`.
    pub malformed: f64,
    /// Their request was cancelled already.
    pub repeated: f64,
    /// They meant `initialize`.
    pub initialize: f64,
    /// They had overtaken their request.
    pub early: f64,
}

impl CancelHits {
    fn of(stats: &countermand_core::Stats) -> Self {
        let [live, late, unknown, malformed, repeated, initialize, early] =
            stats.cancels_by_hit().map(|(_, count)| number(count));
        Self { live, late, unknown, malformed, repeated, initialize, early }
    }
}

/// Exact up to 2^53, which no counter reaches.
#[allow(clippy::cast_precision_loss)]
pub(crate) const fn number(value: u64) -> f64 {
    value as f64
}

impl From<countermand_core::Stats> for Stats {
    fn from(stats: countermand_core::Stats) -> Self {
        let size = |value: usize| number(value as u64);
        Self {
            in_flight: size(stats.in_flight),
            retired: size(stats.retired),
            tasks: size(stats.tasks),
            tokens: size(stats.tokens),
            watches: size(stats.watches),
            held: size(stats.held),
            works: size(stats.works),
            outbound: size(stats.outbound),
            tombstones: size(stats.tombstones),
            requests: number(stats.requests),
            answered: number(stats.answered),
            cancelled: stats.cancelled.into(),
            cancels: CancelHits::of(&stats),
            late_cancels: number(stats.late_cancels),
            unknown_cancels: number(stats.unknown_cancels),
            malformed_cancels: number(stats.malformed_cancels),
            repeated_cancels: number(stats.repeated_cancels),
            initialize_cancels: number(stats.initialize_cancels),
            cancelled_early: number(stats.cancelled_early),
            duplicate_ids: number(stats.duplicate_ids),
            rejected: number(stats.rejected),
            swallowed_answers: number(stats.swallowed_answers),
            swallowed_progress: number(stats.swallowed_progress),
            swallowed_unknown: number(stats.swallowed_unknown),
            aliased: number(stats.aliased),
            calls: number(stats.calls),
            settled: number(stats.settled),
            abandoned: stats.abandoned.into(),
            late_responses: number(stats.late_responses),
            duplicate_responses: number(stats.duplicate_responses),
            wrong_type_responses: number(stats.wrong_type_responses),
            unknown_responses: number(stats.unknown_responses),
            late_progress: number(stats.late_progress),
            cancel_latency_count: number(stats.cancel_latency.count),
            cancel_latency_total_ms: stats.cancel_latency.total.as_secs_f64() * 1e3,
            cancel_latency_max_ms: stats.cancel_latency.max.as_secs_f64() * 1e3,
        }
    }
}
