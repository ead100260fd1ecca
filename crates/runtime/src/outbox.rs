//! The queue toward the peer and the thread that writes it: whole frames, in order.
//!
//! A frame that was put here is written to its end whatever is cancelled meanwhile. Putting one
//! never blocks; a peer that does not read makes the queue congested.
//!
//! Small frames for a pipe with room are written by whoever puts them: waking a thread costs more
//! than the write. At most one thread writes at a time, and nobody overtakes the queue.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::PIPE_BUF;

#[derive(Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    /// Of the queue and of what is being written.
    bytes: usize,
    /// Somebody is writing: the thread, or one that put frames here.
    writing: bool,
    /// Somebody was told that the queue is congested, and waits to hear that it is not.
    waiting: bool,
    end: End,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// No more frames are taken; what is queued is still written.
    Closed,
    /// The peer is gone, or the thread has ended.
    Gone,
}

pub(crate) struct Outbox {
    fd: OwnedFd,
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
    pub(crate) fn new(fd: OwnedFd, max: usize) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self { fd, state, filled: Condvar::new(), emptied: Condvar::new(), max })
    }

    /// Takes frames, each to be ended with a newline. False if the peer is gone.
    pub(crate) fn push(&self, mut frames: Vec<Vec<u8>>) -> bool {
        frames.iter_mut().for_each(one_line);
        let size: usize = frames.iter().map(Vec::len).sum();
        let mut state = self.state.lock();
        if state.end != End::Open {
            return false;
        }
        state.bytes += size;
        if size > PIPE_BUF || state.writing || !state.queue.is_empty() {
            state.queue.extend(frames);
            drop(state);
            self.filled.notify_one();
            return true;
        }
        state.writing = true;
        drop(state);
        let mut buffer = frames.concat();
        let written = write_if_room(&self.fd, &buffer);
        let mut state = self.state.lock();
        state.writing = false;
        state.bytes -= written;
        if written < buffer.len() {
            state.queue.push_front(buffer.split_off(written));
        }
        self.go_on(state);
        true
    }

    /// After a write: whoever waits for what is there now is told.
    fn go_on(&self, state: MutexGuard<'_, State>) {
        let (empty, rest) = (state.bytes == 0, state.end != End::Open || !state.queue.is_empty());
        drop(state);
        if empty {
            self.emptied.notify_all();
        }
        if rest {
            self.filled.notify_one();
        }
    }

    /// Whether more waits than should. Who hears `true` is told when there is room again.
    pub(crate) fn congested(&self) -> bool {
        let mut state = self.state.lock();
        state.waiting |= state.bytes > self.max && state.end != End::Gone;
        state.waiting
    }

    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Takes no more frames, and ends the writer once all are written.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        if state.end == End::Open {
            state.end = End::Closed;
        }
        drop(state);
        self.filled.notify_one();
    }

    /// Waits until all is written or the peer is gone; false if `timeout` came first.
    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        while state.bytes > 0 && state.end != End::Gone {
            if self.emptied.wait_until(&mut state, deadline).timed_out() {
                return state.bytes == 0 || state.end == End::Gone;
            }
        }
        true
    }

    /// The writer thread's work. `relieved` is called when a congested queue has room again.
    /// Returns whether all that was queued could be written.
    pub(crate) fn write_all(&self, relieved: impl Fn()) -> bool {
        let mut buffer = Vec::new();
        loop {
            let mut state = self.state.lock();
            while state.writing || state.queue.is_empty() {
                if state.end != End::Open && !state.writing {
                    state.end = End::Gone;
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
            state.writing = true;
            drop(state);
            let written = write_whole(&self.fd, &buffer);
            let mut state = self.state.lock();
            state.writing = false;
            if written.is_err() {
                state.queue.clear();
                state.bytes = 0;
                state.end = End::Gone;
            } else {
                state.bytes -= buffer.len();
            }
            let relief = state.bytes <= self.max / 2 && std::mem::take(&mut state.waiting);
            self.go_on(state);
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

/// Writes what can be written without waiting, which is all or nothing where `fd` is a pipe; an error
/// is left for the thread to meet.
fn write_if_room(fd: &OwnedFd, bytes: &[u8]) -> usize {
    let mut room = [PollFd::new(fd, PollFlags::OUT)];
    match poll(&mut room, Some(&Timespec::default())) {
        Ok(1) if room[0].revents() == PollFlags::OUT => rustix::io::write(fd, bytes).unwrap_or(0),
        _ => 0,
    }
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
