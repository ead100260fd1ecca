//! Whether another thread looks at a request's tokens, and has seen their trip.
//!
//! The flag flips at once, but a thread that polls it needs the interpreter's lock to see that, and under
//! load it may wait seconds for it: an event loop gives the lock up for moments, at each poll, in which nobody
//! else gets it, and each of them starts the waiting thread's 5 ms anew. So the loop, when it learns of a trip,
//! stands back until the thread has looked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;

/// How long the loop stands back at most: a thread that polls is there well before.
const PATIENCE: Duration = Duration::from_millis(2);

/// What is known of the threads that read the tokens of one request.
pub(crate) struct Reader {
    /// The event loop's thread.
    home: usize,
    /// Another one has read.
    foreign: AtomicBool,
    /// Another one has read since the trip.
    seen: Mutex<bool>,
    saw: Condvar,
}

impl Reader {
    /// For tokens whose handler is started by this thread.
    pub(crate) fn new() -> Self {
        let (foreign, seen) = (AtomicBool::new(false), Mutex::new(false));
        Self { home: here(), foreign, seen, saw: Condvar::new() }
    }

    /// This thread has just read a token of the request.
    #[inline]
    pub(crate) fn read(&self, cancelled: bool) {
        if here() != self.home {
            self.read_elsewhere(cancelled);
        }
    }

    fn read_elsewhere(&self, cancelled: bool) {
        if cancelled {
            *self.seen.lock() = true;
            self.saw.notify_all();
        } else if !self.foreign.load(Ordering::Relaxed) {
            self.foreign.store(true, Ordering::Relaxed);
        }
    }

    /// After the trip: leaves the interpreter to the thread that polls, until it has seen.
    pub(crate) fn give_way(&self, py: Python<'_>) {
        if self.foreign.load(Ordering::Relaxed) {
            py.detach(|| {
                let mut seen = self.seen.lock();
                self.saw.wait_while_for(&mut seen, |seen| !*seen, PATIENCE);
            });
        }
    }
}

/// Tells threads apart, for less than their ids cost.
fn here() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
