//! Between our tokens and `tokio_util`'s: either can trip the other.

use std::ops::Deref;
use std::sync::Arc;
use std::task::{Wake, Waker};

use countermand_core::{Cause, Token, Watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// A [`CancellationToken`] that is cancelled when a [`Token`] trips, at once if it has. Dropping this ends the bond;
/// clones of the inner token stay what they are.
#[derive(Debug)]
pub struct Bound {
    token: CancellationToken,
    _watch: Watch,
}

impl Bound {
    /// Binds a fresh one to `token`.
    pub fn to(token: &Token) -> Self {
        let bound = CancellationToken::new();
        let watch = token.watch(&Waker::from(Arc::new(Canceller(bound.clone()))));
        Self { token: bound, _watch: watch }
    }
}

impl Deref for Bound {
    type Target = CancellationToken;

    fn deref(&self) -> &CancellationToken {
        &self.token
    }
}

struct Canceller(CancellationToken);

impl Wake for Canceller {
    fn wake(self: Arc<Self>) {
        self.0.cancel();
    }
}

/// Trips a [`Token`] with cause `local` when a [`CancellationToken`] is cancelled, from a task that ends with either.
/// Dropping this ends the bond.
#[derive(Debug)]
#[must_use = "the bond ends when this is dropped"]
pub struct Tripwire(AbortHandle);

impl Tripwire {
    /// Stretches it. Runs within a runtime.
    pub fn new(when: CancellationToken, token: &Token, reason: Option<&str>) -> Self {
        let (token, reason) = (token.clone(), reason.map(str::to_owned));
        let task = tokio::spawn(async move {
            tokio::select! {
                () = when.cancelled() => { token.trip(Cause::Local, reason.as_deref()); }
                _ = token.wait() => {}
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for Tripwire {
    fn drop(&mut self) {
        self.0.abort();
    }
}
