//! What can happen to the connections of a world, as data: a schedule is a list of these.
//!
//! Steps name requests and tokens by label, not by generation or slot, so that a schedule stays
//! meaningful when steps are taken out of it: what means nothing any more is skipped.

use std::time::Duration;

use countermand_core::Cause;

/// Names a request of either side and its token, or a child token, in a schedule.
pub type Label = u32;

/// One step of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The peer's frame is read. The request that it opens, if any, gets this label; those of a batch
    /// get this one and the next.
    Receive {
        /// Which connection.
        link: usize,
        /// The bytes.
        frame: String,
        /// The first label.
        label: Label,
    },
    /// The handler is about to start.
    Start(Label),
    /// The handler has exited.
    Finish(Label),
    /// The request is withdrawn from a queue.
    Discard(Label),
    /// Our side answers, under the id that it knows the request by.
    Answer {
        /// The request.
        of: Label,
        /// What the answer says.
        body: Body,
    },
    /// Our side answers all of these with results, in one batch.
    AnswerBatch(Vec<Label>),
    /// Our side sends progress, with the token that it was given.
    Progress(Label),
    /// Our side sends these bytes. If they are a request, it gets this label.
    Send {
        /// Which connection.
        link: usize,
        /// The bytes.
        frame: String,
        /// On behalf of this token.
        parent: Option<Label>,
        /// The label.
        label: Label,
    },
    /// A caller of ours makes a request, which gets this label.
    Begin {
        /// Which connection.
        link: usize,
        /// What it asks.
        ask: Ask,
        /// The label.
        label: Label,
    },
    /// The writer's turn has come to a request of ours.
    Transmit(Label),
    /// A caller of ours gives its request up.
    Abandon {
        /// Which.
        call: Label,
        /// Why.
        cause: Cause,
        /// What it says to that.
        reason: Option<String>,
    },
    /// A child token is made.
    Child {
        /// Of this token.
        parent: Label,
        /// Under this label.
        label: Label,
    },
    /// Our side trips a token.
    Trip {
        /// Which.
        token: Label,
        /// Why.
        cause: Cause,
        /// What it says to that.
        reason: Option<String>,
    },
    /// A waker is registered with a token.
    Watch(Label),
    /// The waker of a token is taken back.
    Unwatch(Label),
    /// Our handle on a token is dropped.
    Drop(Label),
    /// The connection is over.
    Close {
        /// Which.
        link: usize,
        /// Why.
        cause: Cause,
    },
    /// Time passes, and every connection is told.
    Advance(Duration),
    /// Time passes, and nobody is told: timers are late.
    Pass(Duration),
    /// All connections are closed and no handle is held: an hour passes, and nothing may be left.
    Quiet,
}

/// A request that a caller of ours makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// The method.
    pub method: &'static str,
    /// Its parameters, as text.
    pub params: Option<String>,
    /// On behalf of this token.
    pub parent: Option<Label>,
    /// How long it may go without progress.
    pub idle: Option<Duration>,
    /// How long it may take.
    pub total: Option<Duration>,
    /// Whether it wants progress.
    pub progress: bool,
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A result.
    Result,
    /// An error.
    Error,
    /// The handle of a task with this id.
    Task(String),
    /// A task of this id has come to this status.
    TaskStatus(String, &'static str),
    /// The end of the handshake, with this protocol version.
    Version(&'static str),
}

impl Body {
    /// The member of the response that carries it.
    pub fn json(&self) -> String {
        match self {
            Self::Result => r#""result":{"content":[]}"#.into(),
            Self::Error => r#""error":{"code":-32603,"message":"failed"}"#.into(),
            Self::Task(id) => {
                format!(r#""result":{{"task":{{"taskId":"{id}","status":"working"}}}}"#)
            }
            Self::TaskStatus(id, status) => {
                format!(r#""result":{{"taskId":"{id}","status":"{status}"}}"#)
            }
            Self::Version(version) => {
                format!(r#""result":{{"protocolVersion":"{version}","capabilities":{{}}}}"#)
            }
        }
    }
}
