//! Memory that Rust and JavaScript both see: pages of state words, and the mailbox of a wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use countermand_core::{PAGE_WORDS, Page};
use napi::bindgen_prelude::Uint32Array;

/// How many events one [`drain`](crate::wire::drain) can report.
pub(crate) const SLOTS: usize = 256;
/// Words of one event: kind, generation or call (low, high), slot or cause, serial or outcome.
pub(crate) const EVENT_WORDS: usize = 5;
/// Words before the first event: their number, and whether more wait.
pub(crate) const HEAD_WORDS: usize = 2;

/// The page as a `Uint32Array` over the same memory, to be read with `Atomics.load`.
pub(crate) fn view(page: Arc<Page>) -> Uint32Array {
    let words = page.words().as_ptr().cast::<u32>().cast_mut();
    // SAFETY: a page never moves, and the `Arc` that the finalizer owns keeps it alive for as long
    // as JavaScript can reach the memory. The words are atomics, so that memory changing under a
    // reader is no data race on our side; JavaScript reads them with `Atomics.load`, and the
    // package never writes them.
    unsafe { Uint32Array::with_external_data(words, PAGE_WORDS, move |_, _| drop(page)) }
}

/// What [`drain`](crate::wire::drain) found, written by Rust and read by JavaScript.
#[derive(Debug)]
pub(crate) struct EventBox {
    words: Box<[AtomicU32]>,
}

impl EventBox {
    pub(crate) fn new() -> Self {
        let words = (0..HEAD_WORDS + SLOTS * EVENT_WORDS).map(|_| AtomicU32::new(0)).collect();
        Self { words }
    }

    pub(crate) fn put(&self, at: usize, value: u32) {
        self.words[at].store(value, Ordering::Relaxed);
    }

    pub(crate) fn view(self: &Arc<Self>) -> Uint32Array {
        let words = self.words.as_ptr().cast::<u32>().cast_mut();
        let kept = self.clone();
        // SAFETY: the words never move, and the `Arc` that the finalizer owns keeps them alive for as
        // long as JavaScript can reach them. They are atomics, and both sides use them on the one
        // thread that drains.
        unsafe { Uint32Array::with_external_data(words, self.words.len(), move |_, _| drop(kept)) }
    }
}
