//! A request of ours: how it is made, awaited, watched and cancelled.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use countermand_core::{Abandoned, Begin, BeginError, Begun, Call, CallOutcome, Cause, Token};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::callers::{Caller, follow};
use super::progress::{self, ProgressStream};
use super::{CallError, Inner, Peer};

/// A request that is about to be made: awaiting it makes it, and so does [`start`](Self::start).
#[must_use = "a request is made when it is awaited or started"]
pub struct Request<'a> {
    peer: &'a Peer,
    method: &'a str,
    params: Result<Option<String>, CallError>,
    idle: Option<Duration>,
    total: Option<Duration>,
    parent: Option<&'a Token>,
    until: Option<CancellationToken>,
    reason: Option<String>,
    progress: bool,
}

impl<'a> Request<'a> {
    pub(super) fn new(peer: &'a Peer, method: &'a str, params: &impl Serialize) -> Self {
        let params = match serde_json::to_string(params) {
            Ok(params) => Ok((params != "null").then_some(params)),
            Err(error) => Err(CallError::Params(error.to_string().into())),
        };
        Self {
            peer,
            method,
            params,
            idle: None,
            total: None,
            parent: None,
            until: None,
            reason: None,
            progress: false,
        }
    }

    /// How long it may go without progress.
    pub fn idle(mut self, limit: Duration) -> Self {
        self.idle = Some(limit);
        self
    }

    /// How long it may take, whatever progress there is.
    pub fn total(mut self, limit: Duration) -> Self {
        self.total = Some(limit);
        self
    }

    /// It is abandoned when this token trips, with the same cause and reason: that of a handler on this connection, or
    /// of a user's request on another.
    pub fn parent(mut self, token: &'a Token) -> Self {
        self.parent = Some(token);
        self
    }

    /// It is abandoned when this is cancelled, as soon as whoever awaits it is woken.
    pub fn until(mut self, token: CancellationToken) -> Self {
        self.until = Some(token);
        self
    }

    /// What the peer is told when the future is dropped, or [`until`](Self::until) ends it.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Asks the peer for progress: see [`Pending::progress`].
    pub fn progress(mut self) -> Self {
        self.progress = true;
        self
    }

    /// Makes the request. Never waits: a peer that reads nothing delays nobody.
    ///
    /// # Errors
    /// [`CallError`] where no request was made.
    pub fn start(self) -> Result<Pending, CallError> {
        let params = self.params?;
        let inner = &self.peer.alive.inner;
        let (sender, result) = oneshot::channel();
        let (progress_sender, progress) = self.progress.then(progress::channel).unzip();
        let caller = Caller { result: sender, progress: progress_sender, watch: None };
        let mut begin = Begin {
            method: self.method,
            params: params.as_deref(),
            parent: self.parent,
            idle: self.idle,
            total: self.total,
            progress: self.progress,
        };
        let mut foreign = None;
        let (call, token) = {
            // Held over both: what ends the request must find its caller, and ids are written in their order.
            let mut callers = inner.callers.lock();
            let mut made = inner.connection.begin(&begin, inner.now());
            if let Err(BeginError::ForeignParent) = made {
                foreign = begin.parent.take();
                if let Some(cause) = foreign.and_then(Token::cause) {
                    return Err(BeginError::Cancelled(cause).into());
                }
                made = inner.connection.begin(&begin, inner.now());
            }
            let Begun { call, token, frame } = made?;
            callers.insert(call, caller);
            inner.queue.push(frame, Some(call));
            (call, token)
        };
        if let Some(parent) = foreign {
            follow(inner, call, parent);
        }
        if self.idle.is_some() || self.total.is_some() {
            inner.look_up_in_time();
        }
        Ok(Pending {
            handle: Handle { inner: inner.clone(), call, token },
            result,
            progress,
            until: self.until.map(|token| Box::pin(token.cancelled_owned())),
            reason: self.reason,
            over: false,
            _peer: self.peer.clone(),
        })
    }
}

impl IntoFuture for Request<'_> {
    type Output = CallResult;
    type IntoFuture = Answer;

    fn into_future(self) -> Answer {
        Answer(self.start().map_err(Some))
    }
}

/// The future of a [`Request`] that was awaited without a look at it. Dropping it is the cancel.
#[derive(Debug)]
pub struct Answer(Result<Pending, Option<CallError>>);

impl Future for Answer {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CallResult> {
        match &mut self.0 {
            Ok(pending) => Pin::new(pending).poll(context),
            Err(error) => Poll::Ready(Err(error.take().unwrap_or(CallError::Disconnected))),
        }
    }
}

/// A request that was made: a future of its result. Dropping it before it is ready is the cancel, which the peer hears of
/// if the request was sent and is not settled, once, and never for `initialize`.
#[must_use = "dropping it cancels the request"]
pub struct Pending {
    handle: Handle,
    result: oneshot::Receiver<CallResult>,
    progress: Option<ProgressStream>,
    until: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    reason: Option<String>,
    over: bool,
    /// Who waits for a response keeps the connection open.
    _peer: Peer,
}

impl Pending {
    /// What can be known of it and done to it from elsewhere.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Its progress, where [`Request::progress`] asked for some and nobody has taken the stream yet; else a stream that
    /// has ended.
    pub fn progress(&mut self) -> ProgressStream {
        self.progress.take().unwrap_or_else(|| {
            let (sender, stream) = progress::channel();
            sender.end();
            stream
        })
    }

    fn result(&mut self, context: &mut Context<'_>) -> Poll<CallResult> {
        let result = std::task::ready!(Pin::new(&mut self.result).poll(context));
        self.over = true;
        Poll::Ready(result.unwrap_or(Err(CallError::Disconnected)))
    }
}

impl Future for Pending {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CallResult> {
        // A response that is there wins.
        if let Poll::Ready(result) = self.result(context) {
            return Poll::Ready(result);
        }
        if self.until.as_mut().is_some_and(|until| until.as_mut().poll(context).is_ready()) {
            self.until = None;
            self.handle.abandon(self.reason.as_deref());
            return self.result(context);
        }
        Poll::Pending
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.over {
            self.handle.abandon(self.reason.as_deref());
        }
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("handle", &self.handle).finish_non_exhaustive()
    }
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallState {
    /// It waits for its turn to be written, and can still be taken back without a word.
    Queued,
    /// It was sent, and its response has not come.
    Sent,
    /// It is over: settled or abandoned.
    Over,
}

/// A request of ours, seen from any task or thread. Dropping a handle does nothing.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
    call: Call,
    token: Token,
}

impl Handle {
    /// Its id on the wire.
    pub fn id(&self) -> u64 {
        self.call.0
    }

    /// Trips when it is abandoned; what is asked on its behalf is made under it.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Where it stands.
    pub fn state(&self) -> CallState {
        match self.inner.connection.sent(self.call) {
            Some(false) => CallState::Queued,
            Some(true) => CallState::Sent,
            None => CallState::Over,
        }
    }

    /// Once it was abandoned: what is known of its effects, for as long as that is remembered.
    pub fn outcome(&self) -> Option<CallOutcome> {
        self.inner.connection.outcome(self.call)
    }

    /// Nobody wants it any more: whoever awaits it hears so at once, whatever the peer does. Says what that took.
    pub fn cancel(&self, reason: impl AsRef<str>) -> Abandoned {
        self.abandon(Some(reason.as_ref()))
    }

    fn abandon(&self, reason: Option<&str>) -> Abandoned {
        self.inner.connection.abandon(self.call, Cause::Local, reason, self.inner.now())
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("id", &self.id()).field("state", &self.state()).finish()
    }
}

/// The result of a request, as the peer has written it.
pub type CallResult = Result<Box<RawValue>, CallError>;
