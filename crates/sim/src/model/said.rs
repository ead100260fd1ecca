//! The words of the model: what it says about messages, handlers and requests of ours. Nothing else.

use countermand_core::{CallOutcome, Cause, IgnoreReason, RejectReason, SwallowReason};

use crate::step::Label;

/// What should be said about a message of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Handed on: as the request of this label, and rewritten to this.
    Deliver(Option<Label>, Option<String>),
    /// It cancels this request, and the wire keeps silent by this.
    Cancelled(Label, Silence),
    /// It is the response that this request of ours waits for.
    Settled(Label),
    /// It is progress of this request of ours.
    Progress(Label),
    /// Consumed.
    Ignored(IgnoreReason),
    /// Answered in place of the language, under this id.
    Reject(RejectReason, String),
    /// A batch.
    Batch(Vec<Self>),
}

/// How a wire keeps silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// By silence.
    Nothing,
    /// By closing the stream.
    CloseStream,
    /// By one error -32800 under this id.
    Answer(String),
}

/// What should become of a message that our side sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// Written as it is.
    Write,
    /// Written like this.
    Rewrite(String),
    /// Queued as the request of this label, rewritten to this.
    Request(Label, Option<String>),
    /// Written ahead of what waits, rewritten to this.
    Cancel(Option<String>),
    /// Not written.
    Swallow(SwallowReason),
}

/// What should be done about a request of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Its caller is told that it was abandoned.
    Abandoned {
        /// The request.
        call: Label,
        /// Why.
        cause: Cause,
        /// What was given as the reason.
        reason: Option<String>,
        /// What is known of its effects.
        outcome: CallOutcome,
    },
    /// The SDK is told by an error -32800 under this id.
    Refused(String),
    /// The peer is told, under this id and with this reason.
    Cancel {
        /// The request.
        call: Label,
        /// Its id on the wire.
        id: String,
        /// What was given as the reason.
        reason: Option<String>,
    },
    /// Its response stream is closed.
    CloseStream(Label),
    /// The transport is closed.
    CloseTransport,
}

/// On whose behalf a request of ours is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// Nobody's.
    Root,
    /// That of this token.
    Node(usize),
    /// That of a token of another connection.
    Foreign,
}

/// A request of ours as it was begun: its id, and its frame with the keys in order; or why it was not.
pub type Begun = Result<(u64, String), &'static str>;
