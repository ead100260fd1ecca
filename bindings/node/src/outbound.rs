//! The other half of the sans-I/O connection's class: requests of our own.

use countermand_core::{Abandoned, Begin, Call, CallOutcome, Cause, Output};
use napi::Result;
use napi::bindgen_prelude::{Buffer, Either};
use napi_derive::napi;

use crate::calls::{RefusedRequest, call};
use crate::connection::{Connection, ConnectionToken};
use crate::options::milliseconds;
use crate::stats::number;
use crate::tokens::cause;
use crate::wire::time;

/// A request that a caller of ours wants to make.
#[napi(object)]
pub struct BeginRequest {
    /// The method.
    pub method: String,
    /// Its parameters: the JSON text of an object.
    pub params: Option<String>,
    /// How long it may go without progress, in milliseconds.
    pub idle_ms: Option<f64>,
    /// How long it may take, in milliseconds.
    pub total_ms: Option<f64>,
    /// Whether to ask the peer for progress.
    pub progress: Option<bool>,
}

/// A request of ours that is in the table.
#[napi(object, object_from_js = false)]
pub struct BegunRequest {
    /// Its name, which is its id on the wire.
    pub call: f64,
    /// Trips when it is abandoned; tripping it abandons it.
    pub token: ConnectionToken,
    /// What is to be written, once `transmit` says so.
    pub frame: Buffer,
}

/// What the connection wants done about requests of ours.
#[napi(object)]
#[derive(Default)]
pub struct OutputVerdict {
    /// Which of the others mean something. `deliver`: hand `frame` to the SDK; `cancel`: write `frame` ahead of what
    /// waits.
    #[napi(ts_type = "'abandoned' | 'deliver' | 'cancel' | 'close_stream' | 'close_transport'")]
    pub output: String,
    /// `abandoned`, `cancel`, `close_stream`: the request.
    pub call: Option<f64>,
    /// `abandoned`: why.
    #[napi(ts_type = "'peer' | 'timeout' | 'disconnect' | 'shutdown' | 'local'")]
    pub cause: Option<String>,
    /// `abandoned`: what was given as the reason.
    pub reason: Option<String>,
    /// `abandoned`: what is known of its effects so far.
    #[napi(ts_type = "'not_sent' | 'cancelled' | 'completed' | 'unknown'")]
    pub outcome: Option<String>,
    /// `deliver`, `cancel`: the message.
    pub frame: Option<Buffer>,
}

impl From<Output> for OutputVerdict {
    fn from(output: Output) -> Self {
        let of = |name: &str| Self { output: name.to_owned(), ..Self::default() };
        match output {
            Output::Abandoned { call: Call(call), cause, reason, outcome } => Self {
                call: Some(number(call)),
                cause: Some(cause.as_str().to_owned()),
                reason: reason.map(|reason| reason.to_string()),
                outcome: Some(outcome.as_str().to_owned()),
                ..of("abandoned")
            },
            Output::Deliver { frame } => Self { frame: Some(frame.into()), ..of("deliver") },
            Output::Cancel { call: Call(call), frame } => {
                Self { call: Some(number(call)), frame: Some(frame.into()), ..of("cancel") }
            }
            Output::CloseStream { call: Call(call) } => {
                Self { call: Some(number(call)), ..of("close_stream") }
            }
            _ => of("close_transport"),
        }
    }
}

#[napi]
impl Connection {
    /// Puts a request of ours in the table, and makes its frame, to be queued and written when `transmit` says so.
    /// It is abandoned when the token `within`, of the same connection, trips.
    #[napi(catch_unwind)]
    pub fn begin(
        &self,
        request: BeginRequest,
        now_ms: f64,
        within: Option<&ConnectionToken>,
    ) -> Result<Either<BegunRequest, RefusedRequest>> {
        let begin = Begin {
            method: &request.method,
            params: request.params.as_deref(),
            parent: within.map(ConnectionToken::held).transpose()?,
            idle: request.idle_ms.map(milliseconds),
            total: request.total_ms.map(milliseconds),
            progress: request.progress.unwrap_or(false),
        };
        Ok(match self.inner.begin(&begin, time(now_ms)) {
            Ok(made) => Either::A(BegunRequest {
                call: number(made.call.0),
                token: ConnectionToken::of(made.token),
                frame: made.frame.into(),
            }),
            Err(error) => Either::B((&error).into()),
        })
    }

    /// This request is about to be written; false if it must not be.
    #[napi(catch_unwind)]
    pub fn transmit(&self, request: f64) -> bool {
        self.inner.transmit(call(request))
    }

    /// Nobody waits for this request any more. What is to be done about it is among the outputs.
    #[napi(
        catch_unwind,
        ts_return_type = "'settled' | 'not_sent' | 'notified' | 'close_transport' | 'close_stream' | 'silent'"
    )]
    pub fn abandon(
        &self,
        request: f64,
        cause_name: String,
        now_ms: f64,
        reason: Option<String>,
    ) -> Result<&'static str> {
        let cause: Cause = cause(&cause_name)?;
        let abandoned = self.inner.abandon(call(request), cause, reason.as_deref(), time(now_ms));
        Ok(Abandoned::as_str(abandoned))
    }

    /// What is known of the effects of a request that was abandoned; null if it was not, or that was forgotten.
    #[napi(
        catch_unwind,
        ts_return_type = "'not_sent' | 'cancelled' | 'completed' | 'unknown' | null"
    )]
    pub fn outcome(&self, request: f64) -> Option<&'static str> {
        self.inner.outcome(call(request)).map(CallOutcome::as_str)
    }

    /// What the connection wants done, in order. Ask after every call that may have led to some.
    #[napi(catch_unwind)]
    pub fn take_outputs(&self) -> Vec<OutputVerdict> {
        self.inner.take_outputs().into_iter().map(Into::into).collect()
    }
}
