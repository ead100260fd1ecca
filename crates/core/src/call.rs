//! What is said about our own requests: the vocabulary, nothing else.

use std::sync::Arc;

use crate::{Cause, Token};

/// Names a request of our own: the id that it has on the wire, which is never used again on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call(pub u64);

/// A request of ours that is in the table.
#[derive(Debug)]
pub struct Begun {
    /// Its name.
    pub call: Call,
    /// Trips when it is abandoned; tripping it abandons it. What is asked on its behalf is made under it.
    pub token: Token,
    /// What is to be written, once [`Connection::transmit`](crate::Connection::transmit) says so.
    pub frame: Vec<u8>,
}

/// Why a request of ours cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BeginError {
    /// The connection is closed.
    Closed,
    /// More requests than [`Limits::max_outbound`](crate::Limits) wait for their response.
    TooMany {
        /// The limit.
        max: usize,
    },
    /// The parameters are not the text of a JSON object.
    ParamsNoObject,
    /// The parent has tripped, for this cause.
    Cancelled(Cause),
    /// The parent is a token of another connection.
    ForeignParent,
}

impl BeginError {
    /// The stable code by which bindings know it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::TooMany { .. } => "too_many",
            Self::ParamsNoObject => "params_no_object",
            Self::Cancelled(_) => "cancelled",
            Self::ForeignParent => "foreign_parent",
        }
    }
}

impl std::fmt::Display for BeginError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the connection is closed"),
            Self::TooMany { max } => {
                write!(f, "{max} requests wait for their response already (max_outbound)")
            }
            Self::ParamsNoObject => f.write_str("the parameters of a request are a JSON object"),
            Self::Cancelled(cause) => write!(f, "its parent was cancelled ({})", cause.as_str()),
            Self::ForeignParent => f.write_str("its parent is a token of another connection"),
        }
    }
}

impl std::error::Error for BeginError {}

/// What it took to abandon a request of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Abandoned {
    /// It was settled, or abandoned, before: nothing was done.
    Settled,
    /// It had not been sent, and will not be.
    NotSent,
    /// The peer is told.
    Notified,
    /// It was `initialize`, which cannot be cancelled: the transport is to be closed.
    CloseTransport,
    /// Its response stream is to be closed: that tells the peer.
    CloseStream,
    /// The connection is closed: there is nobody to tell.
    Silent,
}

impl Abandoned {
    /// The stable code by which bindings know it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::NotSent => "not_sent",
            Self::Notified => "notified",
            Self::CloseTransport => "close_transport",
            Self::CloseStream => "close_stream",
            Self::Silent => "silent",
        }
    }
}

/// What is known of the effects of a request of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallOutcome {
    /// It was never sent: there are none.
    NotSent,
    /// The peer said that it was cancelled.
    Cancelled,
    /// Its response came, perhaps after we had abandoned it.
    Completed,
    /// It was sent, and the peer has not said what became of it.
    Unknown,
}

impl CallOutcome {
    /// The stable code by which bindings, logs and metrics know it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Cancelled => "cancelled",
            Self::Completed => "completed",
            Self::Unknown => "unknown",
        }
    }
}

/// What the core wants done about requests of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Its caller waits in vain: it settles now. At most once a request, and never after
    /// [`Received::Settled`](crate::Received).
    Abandoned {
        /// The request.
        call: Call,
        /// Why.
        cause: Cause,
        /// What was given as the reason.
        reason: Option<Arc<str>>,
        /// What is known of its effects so far.
        outcome: CallOutcome,
    },
    /// Hand this to the SDK, as if the peer had sent it: the request that it made is abandoned.
    Deliver {
        /// A whole JSON-RPC error response.
        frame: Vec<u8>,
    },
    /// Write this ahead of everything that waits.
    Cancel {
        /// The request that it cancels.
        call: Call,
        /// A whole frame.
        frame: Vec<u8>,
    },
    /// Close the response stream of this request.
    CloseStream {
        /// The request.
        call: Call,
    },
    /// Close the transport: `initialize` was abandoned.
    CloseTransport,
}
