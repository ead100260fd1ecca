//! The peer's notifications, one after the other, away from the task that reads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::{Inner, Notification};

/// The queue to the task that calls the listeners.
pub(super) struct Notes {
    queue: mpsc::UnboundedSender<(Notification, usize)>,
    /// Of those that wait: with too many the peer is not read any more.
    bytes: AtomicUsize,
}

pub(super) type Receiver = mpsc::UnboundedReceiver<(Notification, usize)>;

impl Notes {
    pub(super) fn new() -> (Self, Receiver) {
        let (queue, receiver) = mpsc::unbounded_channel();
        (Self { queue, bytes: AtomicUsize::new(0) }, receiver)
    }

    pub(super) fn put(&self, note: Notification, size: usize) {
        self.bytes.fetch_add(size, Ordering::Relaxed);
        // Without a receiver the connection is over.
        let _ = self.queue.send((note, size));
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Calls the listeners, until the connection is over.
pub(super) async fn listen(inner: Arc<Inner>, mut notes: Receiver) {
    let root = inner.connection.root();
    loop {
        let next = tokio::select! {
            biased;
            next = notes.recv() => next,
            _ = root.wait() => None,
        };
        let Some((note, size)) = next else { return };
        if let Some(listener) = inner.handlers.notifications.get(note.method()) {
            // Its panic was reported; those after it are still to be heard.
            let _ = catch_unwind(AssertUnwindSafe(|| listener(note)));
        }
        inner.notes.bytes.fetch_sub(size, Ordering::Relaxed);
        inner.queue.room.notify_one();
    }
}
