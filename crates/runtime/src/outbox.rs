//! The queue toward the peer and the thread that writes it: whole frames, in order.
//!
//! A frame that was put here is written to its end whatever is cancelled meanwhile. Putting one
//! never blocks; a peer that does not read makes the queue congested.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

#[derive(Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    /// Of the queue and of what is being written.
    bytes: usize,
    /// Somebody was told that the queue is congested, and waits to hear that it is not.
    waiting: bool,
    /// No more frames are taken; what is queued is still written.
    closed: bool,
    /// The peer is gone, or the thread has ended.
    gone: bool,
}

pub(crate) struct Outbox {
    state: Mutex<State>,
    /// The writer waits here for frames.
    filled: Condvar,
    /// Those who flush wait here.
    emptied: Condvar,
    max: usize,
}

/// Many small frames go out in one write up to about this many bytes.
const WRITE: usize = 1 << 17;

impl Outbox {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self { state, filled: Condvar::new(), emptied: Condvar::new(), max })
    }

    /// Queues frames, each to be ended with a newline. False if the peer is gone.
    pub(crate) fn push(&self, frames: impl IntoIterator<Item = Vec<u8>>) -> bool {
        let mut state = self.state.lock();
        if state.closed || state.gone {
            return false;
        }
        for mut frame in frames {
            one_line(&mut frame);
            state.bytes += frame.len();
            state.queue.push_back(frame);
        }
        drop(state);
        self.filled.notify_one();
        true
    }

    /// Whether more waits than should. Who hears `true` is told when there is room again.
    pub(crate) fn congested(&self) -> bool {
        let mut state = self.state.lock();
        state.waiting |= state.bytes > self.max && !state.gone;
        state.waiting
    }

    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Takes no more frames, and ends the writer once all are written.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
    }

    /// Waits until all is written or the peer is gone; false if `timeout` came first.
    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        while state.bytes > 0 && !state.gone {
            if self.emptied.wait_until(&mut state, deadline).timed_out() {
                return state.bytes == 0 || state.gone;
            }
        }
        true
    }

    /// The writer thread's work. `relieved` is called when a congested queue has room again.
    /// Returns whether all that was queued could be written.
    pub(crate) fn write_all(&self, fd: &OwnedFd, relieved: impl Fn()) -> bool {
        let mut buffer = Vec::new();
        loop {
            let mut state = self.state.lock();
            while state.queue.is_empty() {
                if state.closed {
                    state.gone = true;
                    drop(state);
                    self.emptied.notify_all();
                    return true;
                }
                self.filled.wait(&mut state);
            }
            while let Some(frame) = state.queue.pop_front() {
                if buffer.is_empty() {
                    buffer = frame;
                } else {
                    buffer.extend_from_slice(&frame);
                }
                if buffer.len() >= WRITE {
                    break;
                }
            }
            drop(state);
            let written = write_whole(fd, &buffer);
            let mut state = self.state.lock();
            if written.is_err() {
                state.queue.clear();
                state.bytes = 0;
                state.gone = true;
            } else {
                state.bytes -= buffer.len();
            }
            let relief = state.bytes <= self.max / 2 && std::mem::take(&mut state.waiting);
            let empty = state.bytes == 0;
            drop(state);
            if empty {
                self.emptied.notify_all();
            }
            if relief {
                relieved();
            }
            if written.is_err() {
                return false;
            }
            buffer.clear();
            buffer.shrink_to(WRITE);
        }
    }
}

/// JSON has no raw line breaks but between its tokens, where a space does as well.
fn one_line(frame: &mut Vec<u8>) {
    if memchr::memchr2(b'\n', b'\r', frame).is_some() {
        frame.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    }
    frame.push(b'\n');
}

fn write_whole(fd: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Somebody who shares the pipe made it non-blocking: wait as a blocking write would.
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(fd, PollFlags::OUT)], None).or_else(interrupted)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(crate) fn interrupted(error: Errno) -> Result<usize, Errno> {
    if error == Errno::INTR { Ok(0) } else { Err(error) }
}
