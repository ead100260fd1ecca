//! What the core says about one message: the vocabulary of verdicts, nothing else.

use crate::Call;

/// Identifies one request of one connection, and is never used again on it. A wire id only finds
/// a request; this names it. Increases in the order in which requests were read, and stays
/// below 2^53 for the first 68 thousand million requests of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// Which half of the protocol's history a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Era {
    /// 2024-11-05 to 2025-11-25: handshake, sessions, both sides cancel.
    Y2025,
    /// 2026-07-28: stateless, only clients cancel.
    Y2026,
}

/// A request of the peer that went into the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// Its name from here on.
    pub generation: Generation,
    /// Its token's state word: page `slot / PAGE_WORDS`, word `slot % PAGE_WORDS`.
    pub slot: u32,
    /// Which use of that slot this is: the word's upper 29 bits while it is this token's.
    pub serial: u32,
}

/// What to do with a message that the peer sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Received {
    /// Hand it to the language: `rewritten` where there is one, else the frame as it came.
    Deliver {
        /// The request that it opened, if it is one and has an id that can be tracked.
        request: Option<Inbound>,
        /// The frame with its id or progress token replaced.
        rewritten: Option<Vec<u8>>,
    },
    /// It cancelled this request. The token has tripped and its wakers were called.
    Cancelled {
        /// The request.
        generation: Generation,
        /// What the wire needs so that nothing more is said about it.
        silence: Silence,
    },
    /// It is the response to a request of our own, which is settled: hand the frame to its caller.
    Settled {
        /// The request.
        call: Call,
    },
    /// It is progress of a request of our own: hand the frame to its caller.
    Progress {
        /// The request.
        call: Call,
    },
    /// Nothing is to be done and nobody is told.
    Ignored(IgnoreReason),
    /// Write `reply` to the peer; the language never sees the message.
    Reject {
        /// A whole JSON-RPC error response.
        reply: Vec<u8>,
        /// Why.
        reason: RejectReason,
    },
    /// A JSON-RPC batch: each element with its own verdict, in order.
    Batch(Vec<BatchPart>),
}

/// One element of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPart {
    /// The element's bytes.
    pub frame: Vec<u8>,
    /// What to do with it; never a batch.
    pub verdict: Received,
}

/// How a wire keeps silent about a cancelled request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Silence {
    /// Nothing is written.
    Nothing,
    /// The response stream is closed.
    CloseStream,
    /// The response stream ends with this one error, and is closed.
    Answer(Vec<u8>),
}

/// Why a message was consumed without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IgnoreReason {
    /// A cancel for a request that was answered before (so far as can be told).
    LateCancel,
    /// A cancel for an id that never was.
    UnknownCancel,
    /// A cancel without a usable `requestId`.
    MalformedCancel,
    /// A cancel for a request that is cancelled already.
    RepeatedCancel,
    /// A cancel for `initialize`, which cannot be cancelled.
    InitializeCancel,
    /// A cancel that overtook its request and is remembered for it.
    HeldCancel,
    /// A request whose cancel had overtaken it.
    CancelledEarly,
    /// A response to a request that was abandoned before, or so long ago that nobody remembers.
    LateResponse,
    /// A second response to a request.
    DuplicateResponse,
    /// A response whose id is that of a request, but of the other type.
    WrongTypeResponse,
    /// A response to an id that was never used.
    UnknownResponse,
    /// Progress of a request that is over, or of none.
    LateProgress,
    /// The connection is closed.
    Closed,
}

/// Why a message was answered with an error in place of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectReason {
    /// A second live request with the id of a first.
    DuplicateId,
    /// More requests in flight than [`Limits::max_in_flight`](crate::Limits).
    TooManyInFlight,
    /// An id longer than [`Limits::max_id_bytes`](crate::Limits).
    IdTooLong,
    /// A batch where the negotiated protocol has none.
    Batch,
    /// A request whose cancel had overtaken it, on a wire that must answer.
    CancelledEarly,
}

/// Whether a request whose handler has exited is owed an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Finish {
    /// Nobody cancelled it: the peer waits for its answer, also if the handler raised its
    /// language's cancellation.
    Owed,
    /// It was cancelled: whatever is sent for it is swallowed.
    Silent,
    /// No such request in the table: it was answered before.
    Unknown,
}

/// What to do with a message that our side wants to send.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sent {
    /// Write it as it is.
    Write,
    /// Write this in its place: an alias was translated back, or a batch lost elements.
    Rewrite(Vec<u8>),
    /// It is a request: queue it (`rewritten`, where there is one), and ask
    /// [`Connection::transmit`](crate::Connection::transmit) when its turn has come.
    Request {
        /// Its name from here on.
        call: Call,
        /// The frame with its id or progress token replaced.
        rewritten: Option<Vec<u8>>,
    },
    /// It cancels a request that was sent: write it (`rewritten`, where there is one) ahead of what waits.
    Cancel {
        /// The frame with its `requestId` replaced.
        rewritten: Option<Vec<u8>>,
    },
    /// Write nothing.
    Swallow(SwallowReason),
}

/// Why a message of our side is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SwallowReason {
    /// A result or an error for a cancelled request.
    CancelledAnswer,
    /// Progress for a cancelled request.
    CancelledProgress,
    /// A response to no request that is open: a second answer, or one that nobody asked for.
    NoSuchRequest,
    /// A cancel for a request of ours that is settled, abandoned, or never was.
    StaleCancel,
    /// A cancel for a request of ours that had not been sent: neither of them is.
    NotSent,
    /// A cancel for our `initialize`, which cannot be cancelled: close the transport instead.
    InitializeCancel,
    /// A cancel where the wire says it by closing the response stream.
    StreamCloses,
    /// The connection is closed.
    Closed,
}

impl IgnoreReason {
    /// The stable code by which bindings, logs and metrics know it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LateCancel => "late_cancel",
            Self::UnknownCancel => "unknown_cancel",
            Self::MalformedCancel => "malformed_cancel",
            Self::RepeatedCancel => "repeated_cancel",
            Self::InitializeCancel => "initialize_cancel",
            Self::HeldCancel => "held_cancel",
            Self::CancelledEarly => "cancelled_early",
            Self::LateResponse => "late_response",
            Self::DuplicateResponse => "duplicate_response",
            Self::WrongTypeResponse => "wrong_type_response",
            Self::UnknownResponse => "unknown_response",
            Self::LateProgress => "late_progress",
            Self::Closed => "closed",
        }
    }
}

impl RejectReason {
    /// The stable code by which bindings, logs and metrics know it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DuplicateId => "duplicate_id",
            Self::TooManyInFlight => "too_many_in_flight",
            Self::IdTooLong => "id_too_long",
            Self::Batch => "batch",
            Self::CancelledEarly => "cancelled_early",
        }
    }
}

impl SwallowReason {
    /// The stable code by which bindings, logs and metrics know it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CancelledAnswer => "cancelled_answer",
            Self::CancelledProgress => "cancelled_progress",
            Self::NoSuchRequest => "no_such_request",
            Self::StaleCancel => "stale_cancel",
            Self::NotSent => "not_sent",
            Self::InitializeCancel => "initialize_cancel",
            Self::StreamCloses => "stream_closes",
            Self::Closed => "closed",
        }
    }
}

impl Finish {
    /// The stable code by which bindings, logs and metrics know it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owed => "owed",
            Self::Silent => "silent",
            Self::Unknown => "unknown",
        }
    }
}
