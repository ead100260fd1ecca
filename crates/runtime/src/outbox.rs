//! The queue toward the peer and the thread that writes it: whole frames, in order, but for cancels, which go ahead
//! of what waits.
//!
//! A request of ours that waits here can still be taken back: whether it is written is asked when its turn has come.
//! So a cancel, which is only made for what was written, never stands before its request.
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

use countermand_core::{Call, Connection};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::PIPE_BUF;

/// A frame that waits.
pub(crate) struct Item {
    pub(crate) frame: Vec<u8>,
    /// The request of ours that it is.
    pub(crate) call: Option<Call>,
}

impl From<Vec<u8>> for Item {
    fn from(frame: Vec<u8>) -> Self {
        Self { frame, call: None }
    }
}

struct State {
    /// Until the peer is gone.
    fd: Option<Arc<OwnedFd>>,
    queue: VecDeque<Item>,
    /// Cancels.
    urgent: VecDeque<Item>,
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
    connection: Connection,
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
    pub(crate) fn new(fd: OwnedFd, max: usize, connection: Connection) -> Arc<Self> {
        let state = Mutex::new(State {
            fd: Some(Arc::new(fd)),
            queue: VecDeque::new(),
            urgent: VecDeque::new(),
            bytes: 0,
            writing: false,
            waiting: false,
            end: End::Open,
        });
        let (filled, emptied) = (Condvar::new(), Condvar::new());
        Arc::new(Self { connection, state, filled, emptied, max })
    }

    /// Takes frames, each to be ended with a newline. False if the peer is gone.
    pub(crate) fn push(&self, mut items: Vec<Item>) -> bool {
        for item in &mut items {
            one_line(&mut item.frame);
        }
        let size: usize = items.iter().map(|item| item.frame.len()).sum();
        let mut state = self.state.lock();
        if state.end != End::Open {
            return false;
        }
        state.bytes += size;
        let Some(fd) = state.fd.clone().filter(|_| size <= PIPE_BUF && state.idle()) else {
            state.queue.extend(items);
            drop(state);
            self.filled.notify_one();
            return true;
        };
        state.writing = true;
        drop(state);
        if !has_room(&fd) {
            // Not asked for yet: what waits for room can still be taken back.
            let mut state = self.state.lock();
            state.writing = false;
            for item in items.into_iter().rev() {
                state.queue.push_front(item);
            }
            self.go_on(state);
            return true;
        }
        let mut buffer = Vec::with_capacity(size);
        for item in items {
            self.append(item, &mut buffer);
        }
        let written = rustix::io::write(&fd, &buffer).unwrap_or(0);
        let mut state = self.state.lock();
        state.writing = false;
        // With those that were taken back.
        state.bytes -= size - (buffer.len() - written);
        if written < buffer.len() {
            state.urgent.push_front(buffer.split_off(written).into());
        }
        self.go_on(state);
        true
    }

    /// Takes a cancel. It is dropped if the peer is gone.
    pub(crate) fn push_urgent(&self, mut frame: Vec<u8>) {
        one_line(&mut frame);
        let mut state = self.state.lock();
        if state.end != End::Open {
            return;
        }
        state.bytes += frame.len();
        state.urgent.push_back(frame.into());
        drop(state);
        self.filled.notify_one();
    }

    /// Appends a frame whose turn has come, unless it is a request that nobody waits for any more.
    fn append(&self, item: Item, buffer: &mut Vec<u8>) {
        if item.call.is_some_and(|call| !self.connection.transmit(call)) {
            return;
        }
        if buffer.is_empty() && buffer.capacity() < item.frame.len() {
            *buffer = item.frame;
        } else {
            buffer.extend_from_slice(&item.frame);
        }
    }

    /// After a write: whoever waits for what is there now is told.
    fn go_on(&self, state: MutexGuard<'_, State>) {
        let empty = state.bytes == 0;
        let rest = state.end != End::Open || state.waits();
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
            while state.writing || !state.waits() {
                if state.end != End::Open && !state.writing {
                    state.end = End::Gone;
                    state.fd = None;
                    drop(state);
                    self.emptied.notify_all();
                    return true;
                }
                self.filled.wait(&mut state);
            }
            let Some(fd) = state.fd.clone() else { return false };
            state.writing = true;
            drop(state);
            // Only now: while the pipe is full, what waits can be taken back, and cancels go ahead.
            let room = wait_for_room(&fd);
            let mut size = 0;
            while size < WRITE {
                let next = self.state.lock().next();
                let Some(item) = next else { break };
                size += item.frame.len();
                self.append(item, &mut buffer);
            }
            let written = room.and_then(|()| write_whole(&fd, &buffer));
            drop(fd);
            let mut state = self.state.lock();
            state.writing = false;
            if written.is_err() {
                state.queue.clear();
                state.urgent.clear();
                state.bytes = 0;
                state.end = End::Gone;
                state.fd = None;
            } else {
                state.bytes -= size;
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

impl State {
    /// Nobody writes, and nothing waits.
    fn idle(&self) -> bool {
        !self.writing && !self.waits()
    }

    fn waits(&self) -> bool {
        !self.queue.is_empty() || !self.urgent.is_empty()
    }

    /// What is written next.
    fn next(&mut self) -> Option<Item> {
        self.urgent.pop_front().or_else(|| self.queue.pop_front())
    }
}

/// JSON has no raw line breaks but between its tokens, where a space does as well.
pub(crate) fn one_line(frame: &mut Vec<u8>) {
    if memchr::memchr2(b'\n', b'\r', frame).is_some() {
        frame.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    }
    frame.push(b'\n');
}

/// Whether a small write would not wait; a peer that is gone is left for the thread to meet.
fn has_room(fd: &OwnedFd) -> bool {
    let mut room = [PollFd::new(fd, PollFlags::OUT)];
    poll(&mut room, Some(&Timespec::default())) == Ok(1) && room[0].revents() == PollFlags::OUT
}

fn wait_for_room(fd: &OwnedFd) -> Result<(), Errno> {
    poll(&mut [PollFd::new(fd, PollFlags::OUT)], None).or_else(interrupted).map(drop)
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
