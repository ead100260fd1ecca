//! Progress of a request of ours, as its caller sees it.
//!
//! What the caller does not take in time is dropped from the front: the latest says more than what came before it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// How many wait for a caller that does not look.
const KEPT: usize = 256;

/// One progress notification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// How far it is.
    pub progress: f64,
    /// Where it will end, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// What it does now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Progress>,
    ended: bool,
    waker: Option<Waker>,
}

/// The progress of one request: a stream that ends when the request is settled or abandoned.
#[derive(Debug)]
pub struct ProgressStream {
    state: Arc<Mutex<State>>,
}

/// The end into which progress is put.
#[derive(Clone)]
pub(super) struct ProgressSender {
    state: Arc<Mutex<State>>,
}

pub(super) fn channel() -> (ProgressSender, ProgressStream) {
    let state = Arc::<Mutex<State>>::default();
    (ProgressSender { state: state.clone() }, ProgressStream { state })
}

impl ProgressStream {
    /// The next, or `None` once the request is over and all was taken.
    pub async fn recv(&mut self) -> Option<Progress> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Progress>> {
        let mut state = self.state.lock();
        if let Some(progress) = state.waiting.pop_front() {
            return Poll::Ready(Some(progress));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        let before = state.waker.replace(context.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl Stream for ProgressStream {
    type Item = Progress;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Progress>> {
        self.get_mut().poll(context)
    }
}

impl ProgressSender {
    pub(super) fn send(&self, progress: Progress) {
        self.change(|state| {
            if state.ended {
                return;
            }
            if state.waiting.len() == KEPT {
                state.waiting.pop_front();
            }
            state.waiting.push_back(progress);
        });
    }

    /// Nothing comes after this.
    pub(super) fn end(&self) {
        self.change(|state| state.ended = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
