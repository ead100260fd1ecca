//! How a [`Peer`] is made: its handlers, its settings, and what carries it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use countermand_core::{Cause, Config, Connection, Token, WireKind};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::callers::OnOutput;
use super::notes::{Notes, listen};
use super::pump::run;
use super::queue::Queue;
use super::serve::{Handlers, boxed};
use super::{Alive, Incoming, Inner, Notification, Peer, RpcError};
use crate::child::Child;
use crate::process::Command;
use crate::{WireConfig, WireError};

/// A [`Peer`] in the making.
#[must_use]
pub struct Builder {
    config: WireConfig,
    handlers: Handlers,
}

impl Default for Builder {
    fn default() -> Self {
        Self { config: WireConfig::client(), handlers: Handlers::default() }
    }
}

impl Builder {
    /// Answers the peer's requests of this method, each in a task of its own.
    ///
    /// When the request is cancelled its token trips, in the task that reads, and its answer is swallowed from then on. The
    /// handler's future is polled once more, so that it can see the trip, and dropped; with a [`grace`](Self::grace) it may
    /// go on for that long before it is dropped. `initialize` has a token too, which trips with the connection alone.
    pub fn on<F, W, T>(mut self, method: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Incoming, Token) -> W + Send + Sync + 'static,
        W: Future<Output = Result<T, RpcError>> + Send + 'static,
        T: Serialize,
    {
        self.handlers.requests.insert(method.into(), boxed(handler));
        self
    }

    /// Answers what has no handler of its own: without this with -32601, and `ping` as the specification has it.
    pub fn fallback<F, W, T>(mut self, handler: F) -> Self
    where
        F: Fn(Incoming, Token) -> W + Send + Sync + 'static,
        W: Future<Output = Result<T, RpcError>> + Send + 'static,
        T: Serialize,
    {
        self.handlers.fallback = Some(boxed(handler));
        self
    }

    /// Hears the peer's notifications of this method, in their order. The listener may not block: those after it wait.
    pub fn on_notification<F>(mut self, method: impl Into<String>, listener: F) -> Self
    where
        F: Fn(Notification) + Send + Sync + 'static,
    {
        self.handlers.notifications.insert(method.into(), Box::new(listener));
        self
    }

    /// How long a cancelled handler may go on, to unwind with awaits, before it is dropped. Zero unless told otherwise:
    /// dropping is how Rust cancels.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.handlers.grace = grace;
        self
    }

    /// The settings of the connection, its limits among them. What carries it is a pair of streams, whatever they say.
    pub fn connection(mut self, mut config: Config) -> Self {
        config.wire = WireKind::Stdio;
        self.config.connection = config;
        self
    }

    /// Bytes of the longest frame that is read.
    pub fn max_frame(mut self, bytes: usize) -> Self {
        self.config.max_frame = bytes;
        self
    }

    /// Bytes queued toward the peer, or in notifications from it, before it is not read any more.
    pub fn max_queued(mut self, bytes: usize) -> Self {
        self.config.max_queued = bytes;
        self
    }

    /// Opens a connection on a pair of streams.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn open<R, W>(self, read: R, write: W) -> Peer
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        self.carry(read, write, None)
    }

    /// As [`open`](Self::open), on one stream that goes both ways.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn open_stream<S>(self, stream: S) -> Peer
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read, write) = tokio::io::split(stream);
        self.carry(read, write, None)
    }

    /// Starts a command, an MCP server, and opens a connection to it. When that ends, by whichever side, the command is
    /// ended as the specification has it: its stdin is closed; what is left of its tree after `close_wait` gets SIGTERM,
    /// and after the command's grace period SIGKILL. It also ends with this process.
    ///
    /// # Errors
    /// [`WireError`] where the command cannot be started.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn spawn(self, command: Command, close_wait: Duration) -> Result<Peer, WireError> {
        let (child, read, write) = Child::spawn(command, close_wait)?;
        let read = pipe::Receiver::from_owned_fd(read)?;
        let write = pipe::Sender::from_owned_fd(write)?;
        Ok(self.carry(read, write, Some(child)))
    }

    fn carry<R, W>(self, read: R, write: W, child: Option<Child>) -> Peer
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (notes, heard) = Notes::new();
        let inner = Arc::new(Inner {
            connection: Connection::new(self.config.connection.clone()),
            config: self.config,
            handlers: self.handlers,
            queue: Queue::default(),
            callers: Mutex::new(HashMap::new()),
            notes,
            deciding: RwLock::new(()),
            closing: Mutex::new(None),
            nudge: Notify::new(),
            due: Mutex::new(None),
            epoch: Instant::now(),
            pid: child.as_ref().map(Child::pid),
            ended: watch::Sender::new(None),
            alive: OnceLock::new(),
        });
        let alive = Arc::new(Alive { inner: inner.clone() });
        let _ = inner.alive.set(Arc::downgrade(&alive));
        inner.connection.on_output(Waker::from(Arc::new(OnOutput(Arc::downgrade(&inner)))));
        let writing = inner.clone();
        let writer = tokio::spawn(async move {
            if writing.queue.write(&writing.connection, write).await.is_err() {
                // The peer does not read any more: as far as its requests go, it is gone.
                writing.request_close(Cause::Disconnect);
            }
        });
        tokio::spawn(listen(inner.clone(), heard));
        tokio::spawn(run(inner, read, writer, child));
        Peer { alive }
    }
}
