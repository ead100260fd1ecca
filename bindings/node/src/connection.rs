//! The sans-I/O connection as a class: for transports of one's own, and for the scenarios.

use countermand_core::{Call, Cause, Config, Inbound, Received, Sent, Silence};
use napi::bindgen_prelude::{Buffer, Either};
use napi::{Error, Result, Status};
use napi_derive::napi;

use crate::options::ConnectionOptions;
use crate::stats::{Stats, number};
use crate::tokens::cause;
use crate::wire::{generation, time};

/// What to do with a message that the peer sent, or with one element of a batch.
#[napi(object)]
#[derive(Default)]
pub struct ReceiveVerdict {
    /// Which of the others mean something.
    #[napi(ts_type = "'deliver' | 'cancelled' | 'settled' | 'progress' | 'ignored' | 'reject'")]
    pub verdict: String,
    /// `deliver`: the request that it opened, if it opened one. `cancelled`: the request.
    pub generation: Option<f64>,
    /// `settled`, `progress`: the request of ours. The frame that came is for its caller.
    pub call: Option<f64>,
    /// `deliver`: what to hand on.
    pub frame: Option<Buffer>,
    /// `deliver`: whether `frame` differs from what came, because an id or a progress token got an alias.
    pub rewritten: Option<bool>,
    /// `cancelled`: what the wire needs for silence; `answer` means that `reply` ends the stream.
    #[napi(ts_type = "'nothing' | 'close_stream' | 'answer'")]
    pub silence: Option<String>,
    /// `reject`, and `cancelled` with silence `answer`: write this.
    pub reply: Option<Buffer>,
    /// `ignored`, `reject`: why, as a stable code.
    pub reason: Option<String>,
}

/// What to do with a message that our side wants to send.
#[napi(object)]
#[derive(Default)]
pub struct SendVerdict {
    /// Write it as it is, write `frame` in its place, or write nothing. A `request` is queued, and written when
    /// `transmit` says so; a `cancel` is written ahead of what waits.
    #[napi(ts_type = "'write' | 'rewrite' | 'request' | 'cancel' | 'swallow'")]
    pub verdict: String,
    /// `request`: its name from here on.
    pub call: Option<f64>,
    /// `rewrite`: what to write. `request`, `cancel`: the same, if it differs from what was sent.
    pub frame: Option<Buffer>,
    /// `swallow`: why, as a stable code.
    pub reason: Option<String>,
}

fn bytes(frame: &Either<Buffer, String>) -> &[u8] {
    match frame {
        Either::A(buffer) => buffer,
        Either::B(text) => text.as_bytes(),
    }
}

/// Appends the verdict on `frame`, or those on its elements if it is a batch.
fn verdicts(frame: &[u8], received: Received, out: &mut Vec<ReceiveVerdict>) {
    let of = |name: &str| ReceiveVerdict { verdict: name.to_owned(), ..ReceiveVerdict::default() };
    out.push(match received {
        Received::Deliver { request, rewritten } => ReceiveVerdict {
            generation: request.map(|Inbound { generation, .. }| number(generation.0)),
            rewritten: Some(rewritten.is_some()),
            frame: Some(Buffer::from(rewritten.unwrap_or_else(|| frame.to_vec()))),
            ..of("deliver")
        },
        Received::Cancelled { generation, silence } => {
            let (silence, reply) = match silence {
                Silence::CloseStream => ("close_stream", None),
                Silence::Answer(reply) => ("answer", Some(Buffer::from(reply))),
                _ => ("nothing", None),
            };
            ReceiveVerdict {
                generation: Some(number(generation.0)),
                silence: Some(silence.to_owned()),
                reply,
                ..of("cancelled")
            }
        }
        Received::Settled { call: Call(call) } => {
            ReceiveVerdict { call: Some(number(call)), ..of("settled") }
        }
        Received::Progress { call: Call(call) } => {
            ReceiveVerdict { call: Some(number(call)), ..of("progress") }
        }
        Received::Ignored(reason) => {
            ReceiveVerdict { reason: Some(reason.as_str().to_owned()), ..of("ignored") }
        }
        Received::Reject { reply, reason } => ReceiveVerdict {
            reply: Some(Buffer::from(reply)),
            reason: Some(reason.as_str().to_owned()),
            ..of("reject")
        },
        Received::Batch(parts) => {
            for part in parts {
                verdicts(&part.frame, part.verdict, out);
            }
            return;
        }
        _ => return,
    });
}

/// The decision point of one connection, without I/O and without a clock: messages and the time
/// (in milliseconds since whenever, but never backwards) go in, verdicts come out.
#[napi]
pub struct Connection {
    pub(crate) inner: countermand_core::Connection,
}

#[napi]
impl Connection {
    /// A connection with nothing in flight.
    #[napi(constructor, catch_unwind)]
    pub fn new(options: Option<ConnectionOptions>) -> Result<Self> {
        let config = options.map_or_else(|| Ok(Config::default()), |options| options.config())?;
        Ok(Self { inner: countermand_core::Connection::new(config) })
    }

    /// Takes one message of the peer; one verdict comes back, or one for each element of a batch.
    #[napi(catch_unwind)]
    pub fn receive(
        &self,
        #[napi(ts_arg_type = "Uint8Array | string")] frame: Either<Buffer, String>,
        now_ms: f64,
    ) -> Vec<ReceiveVerdict> {
        let frame = bytes(&frame);
        let mut out = Vec::new();
        verdicts(frame, self.inner.receive(frame, time(now_ms)), &mut out);
        out
    }

    /// The handler of this request is about to start; false if it must not.
    #[napi(catch_unwind)]
    pub fn start(&self, request: f64, now_ms: f64) -> bool {
        self.inner.start(generation(request), time(now_ms))
    }

    /// The handler of this request has exited, however it did; says what it owes.
    #[napi(catch_unwind, ts_return_type = "'owed' | 'silent' | 'unknown'")]
    pub fn finish(&self, request: f64, now_ms: f64) -> &'static str {
        self.inner.finish(generation(request), time(now_ms)).as_str()
    }

    /// No handler ever saw this request, and none will.
    #[napi(catch_unwind)]
    pub fn discard(&self, request: f64) {
        self.inner.discard(generation(request));
    }

    /// Takes one message that our side wants to send. A request is made on behalf of the token `within`, and
    /// abandoned when that trips.
    #[napi(catch_unwind)]
    pub fn send(
        &self,
        #[napi(ts_arg_type = "Uint8Array | string")] frame: Either<Buffer, String>,
        now_ms: f64,
        within: Option<&ConnectionToken>,
    ) -> Result<SendVerdict> {
        let of = |name: &str| SendVerdict { verdict: name.to_owned(), ..SendVerdict::default() };
        let parent = within.map(ConnectionToken::held).transpose()?;
        Ok(match self.inner.send_within(bytes(&frame), parent, time(now_ms)) {
            Sent::Rewrite(rewritten) => {
                SendVerdict { frame: Some(Buffer::from(rewritten)), ..of("rewrite") }
            }
            Sent::Request { call, rewritten } => SendVerdict {
                call: Some(number(call.0)),
                frame: rewritten.map(Buffer::from),
                ..of("request")
            },
            Sent::Cancel { rewritten } => {
                SendVerdict { frame: rewritten.map(Buffer::from), ..of("cancel") }
            }
            Sent::Swallow(reason) => {
                SendVerdict { reason: Some(reason.as_str().to_owned()), ..of("swallow") }
            }
            _ => of("write"),
        })
    }

    /// The connection is over; returns the requests that this cancelled.
    #[napi(catch_unwind)]
    pub fn close(&self, cause_name: String, now_ms: f64) -> Result<Vec<f64>> {
        let cancelled = self.inner.close(cause(&cause_name)?, time(now_ms));
        Ok(cancelled.into_iter().map(|generation| number(generation.0)).collect())
    }

    /// When `handleTimeout` next has something to do, in the same milliseconds, if ever.
    #[napi(catch_unwind)]
    pub fn poll_timeout(&self) -> Option<f64> {
        self.inner.poll_timeout().map(|at| number(at.0) / 1e6)
    }

    /// Lets go of what is only kept for a time.
    #[napi(catch_unwind)]
    pub fn handle_timeout(&self, now_ms: f64) {
        self.inner.handle_timeout(time(now_ms));
    }

    /// The request's token, while its handler may run.
    #[napi(catch_unwind)]
    pub fn token(&self, request: f64) -> Option<ConnectionToken> {
        self.inner.token(generation(request)).map(|inner| ConnectionToken { inner: Some(inner) })
    }

    /// What was counted, and the sizes of the tables.
    #[napi(catch_unwind)]
    pub fn stats(&self) -> Stats {
        self.inner.stats().into()
    }
}

/// A token of a `Connection`. Keeps its node in the tree until it is released or collected.
#[napi]
pub struct ConnectionToken {
    inner: Option<countermand_core::Token>,
}

impl ConnectionToken {
    pub(crate) fn of(token: countermand_core::Token) -> Self {
        Self { inner: Some(token) }
    }

    pub(crate) fn held(&self) -> Result<&countermand_core::Token> {
        let released = || Error::new(Status::InvalidArg, "the token was released");
        self.inner.as_ref().ok_or_else(released)
    }
}

#[napi]
impl ConnectionToken {
    /// Whether it has tripped. This and all else throws once the token was released.
    #[napi(getter, catch_unwind)]
    pub fn cancelled(&self) -> Result<bool> {
        Ok(self.held()?.cancelled())
    }

    /// Why, once it has.
    #[napi(
        getter,
        catch_unwind,
        ts_return_type = "'peer' | 'timeout' | 'disconnect' | 'shutdown' | 'local' | null"
    )]
    pub fn cause(&self) -> Result<Option<&'static str>> {
        Ok(self.held()?.cause().map(Cause::as_str))
    }

    /// Why in the canceller's words, if it gave any.
    #[napi(getter, catch_unwind)]
    pub fn reason(&self) -> Result<Option<String>> {
        Ok(self.held()?.reason().map(|reason| reason.to_string()))
    }

    /// A child: trips with this token, and can trip alone.
    #[napi(catch_unwind)]
    pub fn child(&self) -> Result<Self> {
        Ok(Self { inner: Some(self.held()?.child()) })
    }

    /// Trips this token and everything below it; false if it had tripped before.
    #[napi(catch_unwind)]
    pub fn trip(&self, cause_name: String, reason: Option<String>) -> Result<bool> {
        Ok(self.held()?.trip(cause(&cause_name)?, reason.as_deref()))
    }

    /// Lets go of the token, without waiting for the garbage collector.
    #[napi(catch_unwind)]
    pub fn release(&mut self) {
        self.inner = None;
    }
}
