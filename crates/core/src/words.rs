//! The state words: one 32-bit atomic for each token, in pages that never move.
//!
//! A word is `serial << 3 | cause`. `cause` is 0 while the token is live and a [`Cause`] code once
//! it tripped; `serial` counts how often the slot was handed out, so that a reader that kept a
//! slot number too long can tell. Whether a token has tripped is one load of its word, without
//! the lock, from any language that can read the page's memory.

use crate::Cause;
use crate::sync::{AtomicU32, Ordering};

/// Words in one page.
pub const PAGE_WORDS: usize = if cfg!(loom) { 4 } else { 1024 };

const CAUSE_BITS: u32 = 3;
const CAUSE_MASK: u32 = (1 << CAUSE_BITS) - 1;

/// A page of state words, and of the counts of handles beside them.
#[derive(Debug)]
#[repr(C)]
pub struct Page {
    words: [AtomicU32; PAGE_WORDS],
    handles: [AtomicU32; PAGE_WORDS],
}

impl Page {
    pub(crate) fn new() -> Self {
        Self {
            words: std::array::from_fn(|_| AtomicU32::new(0)),
            handles: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// The state words, at an address that is stable for as long as the page lives.
    pub fn words(&self) -> &[AtomicU32; PAGE_WORDS] {
        &self.words
    }

    /// The cause in word `slot` (modulo the page), or `None` while it is live.
    pub(crate) fn cause(&self, slot: u32) -> Option<Cause> {
        // Acquire pairs with the release in `set`: who sees the trip sees what was written before it.
        Cause::from_code(self.words[within(slot)].load(Ordering::Acquire) & CAUSE_MASK)
    }

    pub(crate) fn tripped(&self, slot: u32) -> bool {
        self.words[within(slot)].load(Ordering::Acquire) & CAUSE_MASK != 0
    }

    pub(crate) fn serial(&self, slot: u32) -> u32 {
        self.words[within(slot)].load(Ordering::Relaxed) >> CAUSE_BITS
    }

    /// Only ever called under the connection's lock, so that a load and a store make no race.
    pub(crate) fn set(&self, slot: u32, serial: u32, cause: Option<Cause>) {
        let word = serial << CAUSE_BITS | cause.map_or(0, Cause::code);
        self.words[within(slot)].store(word, Ordering::Release);
    }

    pub(crate) fn handles(&self, slot: u32) -> &AtomicU32 {
        &self.handles[within(slot)]
    }
}

fn within(slot: u32) -> usize {
    slot as usize % PAGE_WORDS
}
