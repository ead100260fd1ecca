//! Owned handles on nodes of the token tree: [`Token`], and the two ways to wait for its trip.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::Cause;
use crate::connection::Shared;
use crate::rewrite::bounded;
use crate::sync::Ordering;
use crate::tree::{Tree, WaiterKey};
use crate::words::Page;

/// A node of a connection's cancellation tree. Trips once, with a cause; its children trip with it.
///
/// Clones are handles on the same node. While a handle lives, its node stays what it was, also
/// after the request has ended.
pub struct Token {
    pub(crate) shared: Arc<Shared>,
    page: Arc<Page>,
    pub(crate) slot: u32,
    serial: u32,
}

impl Token {
    /// A new handle; the caller holds the lock.
    pub(crate) fn new(shared: &Arc<Shared>, tree: &Tree, slot: u32) -> Self {
        let page = tree.page(slot).clone();
        page.handles(slot).fetch_add(1, Ordering::Relaxed);
        Self { shared: shared.clone(), serial: page.serial(slot), page, slot }
    }

    /// Whether the token has tripped: one atomic load, no lock.
    #[inline]
    pub fn cancelled(&self) -> bool {
        self.page.tripped(self.slot)
    }

    /// Why it tripped, or `None` while it has not. No lock.
    pub fn cause(&self) -> Option<Cause> {
        self.page.cause(self.slot)
    }

    /// What the canceller gave as its reason, bounded by [`Limits::max_reason_bytes`](crate::Limits).
    /// It is the peer's text: escape it before it reaches a log.
    pub fn reason(&self) -> Option<Arc<str>> {
        self.shared.state.lock().tree.reason(self.slot)
    }

    /// A child: trips with this token, and can trip alone. Born tripped if this one has tripped.
    #[must_use]
    pub fn child(&self) -> Self {
        let mut state = self.shared.state.lock();
        let (slot, _) = state.tree.add(self.slot);
        let child = Self::new(&self.shared, &state.tree, slot);
        // The handle alone keeps it from here on.
        state.tree.detach(slot);
        child
    }

    /// Trips this token and everything below it. True if this call did it, false if it had tripped.
    pub fn trip(&self, cause: Cause, reason: Option<&str>) -> bool {
        let max = self.shared.config.limits.max_reason_bytes;
        let reason = reason.map(|reason| Arc::from(bounded(reason, max)));
        let mut wake = Vec::new();
        let tripped = self.shared.state.lock().trip(self.slot, cause, reason.as_ref(), &mut wake);
        wake.into_iter().for_each(Waker::wake);
        tripped
    }

    /// Wakes `waker` when the token trips, at once if it has. Dropping the guard ends the watch.
    #[must_use = "the watch ends when this is dropped"]
    pub fn watch(&self, waker: &Waker) -> Watch {
        // Cloned and woken outside the lock: a waker runs code that is not ours.
        let mut spare = Some(waker.clone());
        let key = self.shared.state.lock().tree.watch(self.slot, &mut spare);
        if let Some(waker) = spare {
            waker.wake();
        }
        Watch { token: self.clone(), key }
    }

    /// A future of the trip. It may be dropped at any time.
    pub fn wait(&self) -> Wait {
        Wait { token: self.clone(), watch: None }
    }

    /// The number of the state word, and which use of it this token is (see [`Page`]).
    pub fn slot(&self) -> (u32, u32) {
        (self.slot, self.serial)
    }
}

impl Clone for Token {
    fn clone(&self) -> Self {
        self.page.handles(self.slot).fetch_add(1, Ordering::Relaxed);
        Self {
            shared: self.shared.clone(),
            page: self.page.clone(),
            slot: self.slot,
            serial: self.serial,
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // AcqRel as in `Arc`: who brings it to zero has seen all that the other handles did.
        if self.page.handles(self.slot).fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.state.lock().tree.released(self.slot, self.serial);
        }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("slot", &self.slot)
            .field("cause", &self.cause())
            .finish_non_exhaustive()
    }
}

/// Keeps a waker registered with a [`Token`]; dropping it takes the waker back.
#[derive(Debug)]
pub struct Watch {
    token: Token,
    key: Option<WaiterKey>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = self.token.shared.state.lock().tree.unwatch(key);
            drop(waker);
        }
    }
}

/// The future made by [`Token::wait`]; its output is the cause.
#[derive(Debug)]
pub struct Wait {
    token: Token,
    watch: Option<Watch>,
}

impl Future for Wait {
    type Output = Cause;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Cause> {
        if let Some(cause) = self.token.cause() {
            return Poll::Ready(cause);
        }
        // Registered before the second look, so that a trip in between is not lost.
        let watch = self.token.watch(context.waker());
        self.watch = Some(watch);
        self.token.cause().map_or(Poll::Pending, Poll::Ready)
    }
}
