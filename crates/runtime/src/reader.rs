//! The wire thread: reads every byte, applies cancels at once, and at the end of the connection
//! trips everything and sees the process out.

use std::io::{PipeReader, Read};
use std::os::fd::OwnedFd;
use std::time::Duration;

use countermand_core::{BatchPart, Cause, Generation, Received, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::exit::exit_now;
use crate::framer::{Framed, Framer};
use crate::inbox::Event;
use crate::outbox::interrupted;
use crate::signals::Signals;
use crate::wire::Inner;

/// How much is read at once: what a pipe holds.
const READ: usize = 1 << 16;
/// How long what was decided before the end may take to be written.
const LAST_WORDS: Duration = Duration::from_millis(500);

pub(crate) struct Reader {
    pub(crate) inner: std::sync::Arc<Inner>,
    pub(crate) fd: OwnedFd,
    /// Readable when something other than the peer wants attention.
    pub(crate) nudge: PipeReader,
    pub(crate) signals: Option<Signals>,
}

/// How a connection came to its end.
#[derive(Clone, Copy, Debug)]
struct End {
    cause: Cause,
    code: i32,
}

impl Reader {
    pub(crate) fn run(mut self) {
        let end = self.read();
        self.inner.ended(end.code);
        self.inner.end(end.cause);
        if let Some(child) = &self.inner.child {
            self.inner.inbox.push(Event::Gone { left: child.wait_out() });
            self.inner.inbox.tell();
        }
        if !self.inner.config.exit_process {
            return;
        }
        let code = self.wait_out(end.code);
        if let Some(code) = code {
            self.inner.outbox.flush(LAST_WORDS);
            exit_now(code);
        }
    }

    fn read(&mut self) -> End {
        let mut framer = Framer::new(self.inner.config.max_frame);
        let mut buffer = vec![0; READ];
        loop {
            if let Some(cause) = self.inner.closing() {
                return End { cause, code: 0 };
            }
            let Ok(readable) = self.wait() else {
                return End { cause: Cause::Disconnect, code: 0 };
            };
            if let Some(signal) = self.signals.as_ref().and_then(Signals::take) {
                return End { cause: Cause::Shutdown, code: 128 + signal };
            }
            self.inner.connection.handle_timeout(self.inner.now());
            if !readable {
                continue;
            }
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) => {
                    return End { cause: Cause::Disconnect, code: 0 };
                }
                Ok(count) => self.take(&mut framer, &buffer[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => {
                    return End { cause: Cause::Disconnect, code: 0 };
                }
            }
        }
    }

    /// Waits until the peer has written something that there is room for, or anything else is to
    /// be done; true if there is something to read.
    fn wait(&mut self) -> Result<bool, Errno> {
        let willing = self.inner.willing();
        let mut fds = vec![PollFd::new(&self.nudge, PollFlags::IN)];
        if let Some(signals) = &self.signals {
            fds.push(PollFd::new(&signals.pipe, PollFlags::IN));
        }
        if willing {
            fds.push(PollFd::new(&self.fd, PollFlags::IN));
        }
        let timeout = self.inner.due().map(|at| until(at, self.inner.now()));
        poll(&mut fds, timeout.as_ref()).or_else(interrupted)?;
        let readable = willing && fds.last().is_some_and(|fd| !fd.revents().is_empty());
        if !fds[0].revents().is_empty() {
            let mut bytes = [0; 64];
            // One nudge or many: the state says what they were about.
            let _ = self.nudge.read(&mut bytes);
            self.inner.nudged();
        }
        Ok(readable)
    }

    fn take(&self, framer: &mut Framer, bytes: &[u8]) {
        let inner = &self.inner;
        let now = inner.now();
        framer.feed(bytes, |framed| match framed {
            Framed::Frame(frame) => self.apply(frame, inner.connection.receive(frame, now)),
            Framed::TooLong => {
                let reply = inner.connection.too_long(inner.config.max_frame);
                inner.outbox.push(vec![reply.into()]);
            }
        });
        inner.inbox.tell();
    }

    fn apply(&self, frame: &[u8], received: Received) {
        let inner = &self.inner;
        match received {
            Received::Deliver { request, rewritten } => {
                let frame = rewritten.unwrap_or_else(|| frame.to_vec());
                inner.inbox.push(Event::Message { frame, request });
            }
            Received::Cancelled { generation, .. } => inner.cancelled(generation),
            Received::Reject { reply, .. } => {
                inner.outbox.push(vec![reply.into()]);
            }
            Received::Settled { call } => {
                inner.inbox.push(Event::Settled { call, frame: frame.to_vec() });
            }
            Received::Progress { call } => {
                inner.inbox.push(Event::Progress { call, frame: frame.to_vec() });
            }
            Received::Batch(parts) => {
                for BatchPart { frame, verdict } in parts {
                    self.apply(&frame, verdict);
                }
            }
            _ => {}
        }
    }

    /// Gives handlers their grace. The exit code if the process is still to be ended.
    fn wait_out(&self, code: i32) -> Option<i32> {
        let deadline = std::time::Instant::now() + self.inner.config.grace;
        loop {
            // Looks up from time to time: a second signal means "now".
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if self.inner.exit.wait(left.min(Duration::from_millis(50))) {
                return None;
            }
            if let Some(signal) = self.signals.as_ref().and_then(Signals::take) {
                return Some(128 + signal);
            }
            if left.is_zero() {
                return Some(code);
            }
        }
    }
}

fn until(at: Time, now: Time) -> Timespec {
    // A millisecond more, so that what is due is past when the poll returns.
    let left = at.since(now) + Duration::from_millis(1);
    Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    }
}

impl Inner {
    /// The core has cancelled this request: the language hears of it if it knows the request.
    pub(crate) fn cancelled(&self, generation: Generation) {
        if self.inbox.withdraw(generation) {
            self.connection.discard(generation);
        } else {
            let inner_id = self.connection.inner_id(generation);
            let inner_id = inner_id.map_or_else(|| "null".into(), |id| id.to_json().into());
            self.inbox.push(Event::Cancelled { generation, inner_id });
        }
    }

    /// The connection is over, for this reason unless it was over before.
    pub(crate) fn end(&self, cause: Cause) {
        let cancelled = self.close_connection(cause);
        for generation in self.inbox.withdraw_all() {
            self.connection.discard(generation);
        }
        for generation in cancelled {
            if let Some(id) = self.connection.inner_id(generation) {
                self.inbox.push(Event::Cancelled { generation, inner_id: id.to_json().into() });
            }
        }
        self.inbox.push(Event::Closed { cause });
        self.inbox.tell();
    }
}
