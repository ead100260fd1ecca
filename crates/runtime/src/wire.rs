//! [`Wire`]: a connection on a pair of descriptors, as a language sees it.

use std::io::{PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use countermand_core::{
    Abandoned, Begin, BeginError, Begun, Call, Cause, Connection, Generation, Output, Sent, Time,
    Token,
};
use parking_lot::{Mutex, RwLock};

use crate::child::Child;
use crate::exit::ExitWatch;
use crate::inbox::{Event, Inbox};
use crate::outbox::{Item, Outbox};
use crate::process::Command;
use crate::reader::Reader;
use crate::signals::Signals;
use crate::{WireConfig, WireError, stdio};

/// One connection over a pipe pair, with its reader and its writer thread. Clones share it.
#[derive(Clone)]
pub struct Wire {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) connection: Connection,
    pub(crate) config: WireConfig,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) exit: ExitWatch,
    /// The command at the other end, if this is the wire to one.
    pub(crate) child: Option<Child>,
    /// Held shared from a decision until its frame is queued, and exclusively to end the
    /// connection: what was decided before the end is in the queue by then.
    deciding: RwLock<()>,
    epoch: Instant,
    control: Mutex<Control>,
}

struct Control {
    nudge: PipeWriter,
    nudged: bool,
    /// The reader stopped reading for want of room.
    paused: bool,
    closing: Option<Cause>,
    /// When the reader looks up by itself.
    due: Option<Time>,
    exit_code: Option<i32>,
}

/// What became of a message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is queued and will be written whole.
    Written,
    /// The core decided that it must not be written.
    Swallowed,
}

impl Wire {
    /// Opens a wire on the process's stdin and stdout. From then on fd 0 reads as empty and what
    /// is written to fd 1, by whatever means, goes to stderr.
    ///
    /// `wake` is called, from any thread, when events wait that the language has not been told
    /// of; not again before it has [drained](Self::drain) them.
    ///
    /// # Errors
    /// [`WireError::AlreadyTaken`] for a second wire in one process; [`WireError::Io`] where a
    /// descriptor is closed or a thread cannot be started.
    pub fn stdio(
        config: WireConfig,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, WireError> {
        let (read, write) = stdio::take()?;
        Self::open(read, write, None, config, wake)
    }

    /// Starts a command, an MCP server, and opens a wire to it; its streams, if they are not given, are pipes but
    /// for stderr, which is ours. When the wire is closed, by whichever side, the command is ended as the
    /// specification has it: its stdin is closed; what is left of its tree after `close_wait` gets SIGTERM, and after
    /// the command's grace period SIGKILL. It also ends with this process.
    ///
    /// # Errors
    /// As [`Tree::spawn`], and [`WireError::Io`] where a thread cannot be started.
    pub fn spawn(
        command: Command,
        close_wait: Duration,
        config: WireConfig,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, WireError> {
        let (child, read, write) = Child::spawn(command, close_wait)?;
        Self::open(read, write, Some(child), config, wake)
    }

    /// As [`stdio`](Self::stdio), on descriptors of the caller's.
    ///
    /// # Errors
    /// [`WireError::Io`] where a pipe or a thread cannot be made.
    pub fn from_fds(
        read: OwnedFd,
        write: OwnedFd,
        config: WireConfig,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, WireError> {
        Self::open(read, write, None, config, wake)
    }

    fn open(
        read: OwnedFd,
        write: OwnedFd,
        child: Option<Child>,
        config: WireConfig,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, WireError> {
        let signals = config.handle_signals.then(Signals::register).transpose()?;
        let (nudge_reader, nudge) = std::io::pipe()?;
        let connection = Connection::new(config.connection.clone());
        let inner = Arc::new(Inner {
            connection: connection.clone(),
            inbox: Inbox::new(wake),
            outbox: Outbox::new(write, config.max_queued, connection),
            exit: ExitWatch::default(),
            child,
            deciding: RwLock::new(()),
            epoch: Instant::now(),
            control: Mutex::new(Control {
                nudge,
                nudged: false,
                paused: false,
                closing: None,
                due: None,
                exit_code: None,
            }),
            config,
        });
        inner.connection.on_output(Waker::from(Arc::new(Pump(Arc::downgrade(&inner)))));
        let reader = Reader { inner: inner.clone(), fd: read, nudge: nudge_reader, signals };
        let writer = inner.clone();
        std::thread::Builder::new()
            .name("countermand-write".into())
            .spawn(move || writer.write())?;
        std::thread::Builder::new().name("countermand-read".into()).spawn(move || reader.run())?;
        Ok(Self { inner })
    }

    /// The decision point behind this wire.
    pub fn connection(&self) -> &Connection {
        &self.inner.connection
    }

    /// The time, as this wire tells it to its connection.
    pub fn now(&self) -> Time {
        self.inner.now()
    }

    /// Moves up to `max` waiting events to `out`, in order. True if more wait: the language will
    /// not be woken for those.
    pub fn drain(&self, max: usize, out: &mut Vec<Event>) -> bool {
        let more = self.inner.inbox.drain(max, out);
        self.inner.make_room();
        more
    }

    /// Sends one message, if the core lets it pass. Never blocks.
    ///
    /// # Errors
    /// [`WireError::Closed`] once the peer is gone.
    pub fn send(&self, frame: &[u8]) -> Result<Outcome, WireError> {
        self.send_batch([(frame, None)]).map(|outcomes| outcomes[0])
    }

    /// Sends messages in order, each decided for itself; the writer is woken once. A request is made on behalf
    /// of the token beside it, and abandoned when that trips.
    ///
    /// # Errors
    /// [`WireError::Closed`] once the peer is gone.
    pub fn send_batch<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a [u8], Option<&'a Token>)>,
    ) -> Result<Vec<Outcome>, WireError> {
        let now = self.inner.now();
        let _deciding = self.inner.deciding.read();
        let mut outcomes = Vec::new();
        let mut written = Vec::new();
        for (frame, parent) in frames {
            let item = match self.inner.connection.send_within(frame, parent, now) {
                Sent::Write => with_room(frame).into(),
                Sent::Rewrite(frame) => frame.into(),
                Sent::Request { call, rewritten } => {
                    let frame = rewritten.unwrap_or_else(|| with_room(frame));
                    Item { frame, call: Some(call) }
                }
                Sent::Cancel { rewritten } => {
                    let frame = rewritten.unwrap_or_else(|| with_room(frame));
                    self.inner.outbox.push_urgent(frame);
                    outcomes.push(Outcome::Written);
                    continue;
                }
                _ => {
                    outcomes.push(Outcome::Swallowed);
                    continue;
                }
            };
            outcomes.push(Outcome::Written);
            written.push(item);
        }
        if written.is_empty() || self.inner.outbox.push(written) {
            Ok(outcomes)
        } else {
            Err(WireError::Closed)
        }
    }

    /// Makes a request of our own. What becomes of it is told once: by [`Event::Settled`] or by
    /// [`Event::Abandoned`]. Never blocks.
    ///
    /// # Errors
    /// [`BeginError`] where it cannot be made.
    pub fn call(&self, begin: &Begin<'_>) -> Result<(Call, Token), BeginError> {
        let inner = &self.inner;
        let _deciding = inner.deciding.read();
        let Begun { call, token, frame } = inner.connection.begin(begin, inner.now())?;
        if begin.idle.is_some() || begin.total.is_some() {
            inner.look_up_in_time();
        }
        inner.outbox.push(vec![Item { frame, call: Some(call) }]);
        Ok((call, token))
    }

    /// Nobody waits for a request of ours any more. Never blocks, and settles it at once.
    pub fn abandon(&self, call: Call, cause: Cause, reason: Option<&str>) -> Abandoned {
        self.inner.connection.abandon(call, cause, reason, self.inner.now())
    }

    /// The process of the command at the other end, if this wire has started one.
    pub fn pid(&self) -> Option<u32> {
        self.inner.child.as_ref().map(Child::pid)
    }

    /// Whether the peer reads more slowly than we write: wait for [`Event::Writable`].
    pub fn congested(&self) -> bool {
        self.inner.outbox.congested()
    }

    /// Ends the connection from our side: everything trips with `cause`, what was decided before
    /// is still written.
    pub fn close(&self, cause: Cause) {
        self.inner.request_close(cause);
    }

    /// Waits until everything queued is written, at most `timeout`; false if that came first.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.inner.outbox.flush(timeout)
    }

    /// The process goes on after the connection: it will not be ended.
    pub fn detach_exit(&self) {
        self.inner.exit.call_off();
    }

    /// Once the connection is over: the code with which its process should exit, 0 or 128 and the
    /// number of the signal that ended it.
    pub fn exit_code(&self) -> Option<i32> {
        self.inner.control.lock().exit_code
    }

    pub(crate) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.inner)
    }

    /// A waker that turns a token's trip into [`Event::Woken`] with this key.
    pub fn notify(&self, key: u64) -> Waker {
        self.inner.inbox.waker(key)
    }
}

/// Does what the core wants done, in the thread in which it came to want it.
struct Pump(Weak<Inner>);

impl Wake for Pump {
    fn wake(self: Arc<Self>) {
        if let Some(inner) = self.0.upgrade() {
            inner.put_out();
        }
    }
}

fn with_room(frame: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(frame.len() + 1);
    copy.extend_from_slice(frame);
    copy
}

impl Inner {
    pub(crate) fn now(&self) -> Time {
        Time(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn closing(&self) -> Option<Cause> {
        self.control.lock().closing
    }

    pub(crate) fn ended(&self, exit_code: i32) {
        self.control.lock().exit_code = Some(exit_code);
    }

    /// When the reader has to look up by itself, if ever.
    pub(crate) fn due(&self) -> Option<Time> {
        // Under the lock, so that a deadline which comes to be meanwhile is seen here or nudges.
        let mut control = self.control.lock();
        control.due = self.connection.poll_timeout();
        control.due
    }

    fn look_up_in_time(&self) {
        let mut control = self.control.lock();
        let next = self.connection.poll_timeout();
        if next.is_some_and(|next| control.due.is_none_or(|due| next < due)) {
            control.nudge();
        }
    }

    pub(crate) fn nudged(&self) {
        self.control.lock().nudged = false;
    }

    /// Whether the reader may read on: neither queue is too full. The queue toward the peer only
    /// counts at twice its bound, which the language respects and our own replies do not.
    pub(crate) fn willing(&self) -> bool {
        let willing = || {
            self.inbox.bytes() < self.config.max_queued
                && self.outbox.bytes() / 2 <= self.config.max_queued
        };
        if willing() {
            return true;
        }
        // Said before the second look: who makes room in between sees it and nudges.
        self.control.lock().paused = true;
        willing()
    }

    /// Closes the connection once every frame that was decided is queued; returns what it cancelled.
    pub(crate) fn close_connection(&self, cause: Cause) -> Vec<Generation> {
        let _ended = self.deciding.write();
        let cancelled = self.connection.close(cause, self.now());
        self.outbox.close();
        cancelled
    }

    fn put_out(&self) {
        for output in self.connection.take_outputs() {
            match output {
                Output::Abandoned { call, cause, reason, outcome } => {
                    self.inbox.push(Event::Abandoned { call, cause, reason, outcome });
                }
                Output::Deliver { frame } => {
                    self.inbox.push(Event::Message { frame, request: None });
                }
                Output::Cancel { frame, .. } => self.outbox.push_urgent(frame),
                Output::CloseTransport => self.request_close(Cause::Disconnect),
                _ => {}
            }
        }
        self.inbox.tell();
    }

    fn make_room(&self) {
        let mut control = self.control.lock();
        if std::mem::take(&mut control.paused) {
            control.nudge();
        }
    }

    fn request_close(&self, cause: Cause) {
        let mut control = self.control.lock();
        control.closing.get_or_insert(cause);
        control.nudge();
    }

    fn write(&self) {
        let whole = self.outbox.write_all(|| {
            self.make_room();
            self.inbox.push(Event::Writable);
            self.inbox.tell();
        });
        if !whole {
            // The peer does not read any more: as far as its requests go, it is gone.
            self.request_close(Cause::Disconnect);
        }
    }
}

impl Control {
    fn nudge(&mut self) {
        if !std::mem::replace(&mut self.nudged, true) {
            // A reader that is gone needs no nudge.
            let _ = self.nudge.write_all(b"!");
        }
    }
}
