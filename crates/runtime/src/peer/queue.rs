//! The queue toward the peer, and the one task that writes it: whole frames, in order, but for cancels, which go ahead.
//!
//! Whether a request is written is asked when its turn has come; until then it can be taken back. A cancel is only made
//! for what was written, or is being written, and so never stands before its request.

use std::collections::VecDeque;

use countermand_core::{Call, Connection};
use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use crate::outbox::{Item, one_line};

/// Small frames go out together up to about this many bytes; what is in such a write cannot be taken back.
const WRITE: usize = 1 << 14;

#[derive(Default)]
struct State {
    waiting: VecDeque<Item>,
    urgent: VecDeque<Item>,
    bytes: usize,
    closed: bool,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// The writer waits here.
    filled: Notify,
    /// The reader waits here, while too much is queued.
    pub(super) room: Notify,
}

impl Queue {
    /// Takes a frame, and for a request its call. Never blocks.
    pub(super) fn push(&self, frame: Vec<u8>, call: Option<Call>) {
        self.put(Item { frame, call }, |state| &mut state.waiting);
    }

    /// Takes a cancel.
    pub(super) fn push_urgent(&self, frame: Vec<u8>) {
        self.put(frame.into(), |state| &mut state.urgent);
    }

    fn put(&self, mut item: Item, place: impl FnOnce(&mut State) -> &mut VecDeque<Item>) {
        one_line(&mut item.frame);
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.bytes += item.frame.len();
        place(&mut state).push_back(item);
        drop(state);
        self.filled.notify_one();
    }

    pub(super) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Takes no more; the writer ends once all is written.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
    }

    /// The writer's work. An error is the peer's end.
    pub(super) async fn write<W>(&self, connection: &Connection, mut to: W) -> std::io::Result<()>
    where
        W: AsyncWrite + Unpin,
    {
        let mut buffer = Vec::new();
        loop {
            let taken = self.take(connection, &mut buffer);
            if taken == 0 {
                if self.ended() {
                    return to.shutdown().await;
                }
                self.filled.notified().await;
                continue;
            }
            to.write_all(&buffer).await?;
            to.flush().await?;
            self.state.lock().bytes -= taken;
            self.room.notify_one();
            buffer.clear();
            buffer.shrink_to(WRITE);
        }
    }

    fn ended(&self) -> bool {
        let state = self.state.lock();
        state.closed && state.waiting.is_empty() && state.urgent.is_empty()
    }

    /// Moves what is written next to `buffer`; returns how many bytes left the queue, those that were taken back included.
    fn take(&self, connection: &Connection, buffer: &mut Vec<u8>) -> usize {
        let mut taken = 0;
        while taken < WRITE {
            let mut state = self.state.lock();
            let next = state.urgent.pop_front().or_else(|| state.waiting.pop_front());
            drop(state);
            let Some(Item { frame, call }) = next else { break };
            taken += frame.len();
            if call.is_none_or(|call| connection.transmit(call)) {
                buffer.extend_from_slice(&frame);
            }
        }
        taken
    }
}
