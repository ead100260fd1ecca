//! What a connection can be told when it is made, and the defaults.

use std::time::Duration;

/// The settings of one [`Connection`](crate::Connection).
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// What carries the messages: decides how silence looks on the wire.
    pub wire: WireKind,
    /// How a cancel's `requestId` is matched.
    pub id_match: IdMatch,
    /// Whether to remember cancels that overtook their request. Off by default.
    pub early_cancel: Option<EarlyCancel>,
    /// Which ids the SDK behind us is given under another name.
    pub alias: AliasPolicy,
    /// The bounds.
    pub limits: Limits,
}

/// The kind of channel a connection runs over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireKind {
    /// A pipe pair: a cancelled request is simply never answered.
    #[default]
    Stdio,
    /// Streamable HTTP, 2025 era: a response stream can only end with a response, so a cancelled
    /// request ends with one error -32800.
    Http2025,
    /// Streamable HTTP, 2026 era: the response stream of a cancelled request is closed.
    Http2026,
}

/// How a cancel's `requestId` finds its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdMatch {
    /// Type and value: `"7"` is not `7`.
    #[default]
    Strict,
    /// As strict, and where nothing fits, a string of digits may mean the number and the other way
    /// round. For peers that change the type of their ids.
    Lenient,
}

/// Remembers cancels for integer ids above the highest seen so far, and for no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyCancel {
    /// How long each is remembered.
    pub hold: Duration,
    /// How many are remembered; the oldest goes first.
    pub max: usize,
}

/// Ids that the SDK behind us would garble, and therefore gets under an alias. The peer never sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AliasPolicy {
    /// Integers beyond ±(2^53 − 1): JavaScript's numbers round them.
    pub beyond_f64: bool,
    /// `0` and `""`: some SDKs take them for "no id".
    pub falsy: bool,
}

/// The bounds of what a peer can make us keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Inbound requests in the table at once (at most 65,536); one more is rejected with -32000.
    pub max_in_flight: usize,
    /// Cancelled requests remembered after their handler exited (at most 65,536); the oldest goes first.
    pub max_retired: usize,
    /// How long a cancelled request is remembered after its handler exited.
    pub retired_age: Duration,
    /// Bytes of a cancel's reason that are kept; the rest is cut at a character.
    pub max_reason_bytes: usize,
    /// Bytes of an id as written; a request with a longer one is rejected with -32600.
    pub max_id_bytes: usize,
    /// Requests of our own callers that wait for their response at once; one more is an error.
    pub max_outbound: usize,
    /// Requests of ours remembered after they were abandoned; the oldest goes first.
    pub max_tombstones: usize,
    /// How long a request of ours is remembered after it was abandoned.
    pub tombstone_age: Duration,
    /// Tasks whose tokens are kept after their handle was returned; the oldest is let go first.
    pub max_tasks: usize,
    /// Methods and tools that the signals tell apart; what comes after these counts together.
    pub max_tools: usize,
    /// Reports of cancelled requests that wait to be taken; the oldest goes first.
    pub max_reports: usize,
    /// How long after its cancel a request that runs on is an orphan.
    pub orphan_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_in_flight: 16_384,
            max_retired: 1_024,
            retired_age: Duration::from_secs(30),
            max_outbound: 16_384,
            max_tombstones: 1_024,
            tombstone_age: Duration::from_mins(1),
            max_reason_bytes: 1_024,
            max_id_bytes: 4_096,
            max_tasks: 1_024,
            max_tools: 256,
            max_reports: 1_024,
            orphan_after: Duration::from_secs(2),
        }
    }
}
