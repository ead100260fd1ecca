//! The tasks of a connection: one reads and keeps the time, one writes.

use std::sync::Arc;
use std::time::Duration;

use countermand_core::{BatchPart, Cause, Received, Time};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Ended, Inner};
use crate::child::Child;
use crate::framer::{Framed, Framer};

/// How much is read at once: what a pipe holds.
const READ: usize = 1 << 16;
/// How long what was decided before the end may take to be written.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Carries a connection to its end, and the command at its other end to its.
pub(super) async fn run<R: AsyncRead + Unpin>(
    inner: Arc<Inner>,
    mut read: R,
    mut writer: JoinHandle<()>,
    child: Option<Child>,
) {
    let cause = inner.read(&mut read).await;
    inner.end(cause);
    if timeout(LAST_WORDS, &mut writer).await.is_err() {
        writer.abort();
        let _ = writer.await;
    }
    let left = match child {
        None => 0,
        Some(child) => tokio::task::spawn_blocking(move || child.wait_out()).await.unwrap_or(0),
    };
    inner.ended.send_replace(Some(Ended { cause, left }));
}

impl Inner {
    async fn read(self: &Arc<Self>, read: &mut (impl AsyncRead + Unpin)) -> Cause {
        let mut framer = Framer::new(self.config.max_frame);
        let mut buffer = vec![0; READ];
        loop {
            if let Some(cause) = self.closing() {
                return cause;
            }
            let due = self.due();
            let at = self.epoch + Duration::from_nanos(due.map_or(0, |due| due.0));
            let willing = self.willing();
            tokio::select! {
                count = read.read(&mut buffer), if willing => match count {
                    Ok(0) | Err(_) => return self.closing().unwrap_or(Cause::Disconnect),
                    Ok(count) => self.take(&mut framer, &buffer[..count]),
                },
                () = self.nudge.notified() => {}
                () = self.queue.room.notified(), if !willing => {}
                () = sleep_until(at), if due.is_some() => {}
            }
            self.connection.handle_timeout(self.now());
        }
    }

    /// Whether more may be read: neither queue is too full.
    fn willing(&self) -> bool {
        let max = self.config.max_queued;
        self.notes.bytes() < max && self.queue.bytes() / 2 <= max
    }

    fn take(self: &Arc<Self>, framer: &mut Framer, bytes: &[u8]) {
        let now = self.now();
        framer.feed(bytes, |framed| match framed {
            Framed::Frame(frame) => self.apply(frame, self.connection.receive(frame, now)),
            Framed::TooLong => {
                self.queue.push(self.connection.too_long(self.config.max_frame), None);
            }
        });
    }

    fn apply(self: &Arc<Self>, frame: &[u8], received: Received) {
        match received {
            Received::Deliver { request, rewritten } => {
                let frame = rewritten.as_deref().unwrap_or(frame);
                match request {
                    Some(request) => self.serve(request.generation, frame),
                    None => self.hear(frame),
                }
            }
            Received::Reject { reply, .. } => self.queue.push(reply, None),
            Received::Settled { call } => self.answered(call, frame),
            Received::Progress { call } => self.progressed(call, frame),
            Received::Batch(parts) => {
                for BatchPart { frame, verdict } in parts {
                    self.apply(&frame, verdict);
                }
            }
            // A cancel has tripped its token, which is all that its handler needs.
            _ => {}
        }
    }

    /// Ends the connection. What was decided before is still queued, and then nothing more.
    fn end(&self, cause: Cause) {
        self.request_close(cause);
        self.connection.close(cause, self.now());
        drop(self.deciding.write());
        self.queue.close();
    }

    pub(super) fn now(&self) -> Time {
        let passed = Instant::now().saturating_duration_since(self.epoch);
        Time(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// When the reader has to look up by itself, if ever.
    fn due(&self) -> Option<Time> {
        // Under the lock, so that a deadline which comes to be meanwhile is seen here or nudges.
        let mut due = self.due.lock();
        *due = self.connection.poll_timeout();
        *due
    }

    pub(super) fn look_up_in_time(&self) {
        let due = self.due.lock();
        let next = self.connection.poll_timeout();
        if next.is_some_and(|next| due.is_none_or(|due| next < due)) {
            self.nudge.notify_one();
        }
    }
}
