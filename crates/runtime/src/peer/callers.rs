//! Those who wait for a response of the peer's: each is told once, by whoever decided it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use countermand_core::{Call, Cause, Output, Token, Watch};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::progress::{Progress, ProgressSender};
use super::{CallError, CallResult, Inner, RpcError};

pub(super) type Callers = Mutex<HashMap<Call, Caller>>;

pub(super) struct Caller {
    pub(super) result: oneshot::Sender<CallResult>,
    /// Ends with the request.
    pub(super) progress: Option<ProgressSender>,
    /// On a parent that is of another connection.
    pub(super) watch: Option<Watch>,
}

#[derive(Deserialize)]
struct Response {
    result: Option<Box<RawValue>>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct Notice {
    params: Progress,
}

impl Inner {
    /// The core has settled this request with the response in `frame`.
    pub(super) fn answered(&self, call: Call, frame: &[u8]) {
        // As the core has read it.
        let text = String::from_utf8_lossy(frame);
        self.settle(
            call,
            match serde_json::from_str(&text) {
                Ok(Response { error: Some(error), .. }) => Err(CallError::Rpc(error)),
                Ok(Response { result: Some(result), .. }) => Ok(result),
                Ok(_) => Err(CallError::Malformed("neither result nor error".into())),
                Err(error) => Err(CallError::Malformed(error.to_string().into())),
            },
        );
    }

    pub(super) fn progressed(&self, call: Call, frame: &[u8]) {
        let Ok(Notice { params }) = serde_json::from_slice(frame) else { return };
        let callers = self.callers.lock();
        let Some(Caller { progress: Some(progress), .. }) = callers.get(&call) else { return };
        let progress = progress.clone();
        drop(callers);
        progress.send(params);
    }

    /// Does what the core wants done, in the thread in which it came to want it.
    pub(super) fn put_out(&self) {
        for output in self.connection.take_outputs() {
            match output {
                Output::Abandoned { call, cause, reason, .. } => {
                    self.settle(call, Err(self.abandoned(cause, reason)));
                }
                Output::Cancel { frame, .. } => self.queue.push_urgent(frame),
                Output::CloseTransport => self.request_close(Cause::Local),
                _ => {}
            }
        }
        // What was abandoned is remembered for a time.
        self.look_up_in_time();
    }

    fn abandoned(&self, cause: Cause, reason: Option<Arc<str>>) -> CallError {
        match cause {
            Cause::Timeout => CallError::TimedOut,
            // A parent's connection may have ended, and this one goes on.
            Cause::Disconnect if self.ending() => CallError::Disconnected,
            cause => CallError::Cancelled { cause, reason },
        }
    }

    fn settle(&self, call: Call, result: CallResult) {
        let caller = self.callers.lock().remove(&call);
        // Told and dropped without the lock: its waker, and that of its watch, are not our code.
        if let Some(caller) = caller {
            let Caller { result: sender, progress, watch } = caller;
            drop(watch);
            if let Some(progress) = progress {
                progress.end();
            }
            let _ = sender.send(result);
        }
    }
}

/// Abandons a request when a token of another connection trips; at once if it has.
pub(super) fn follow(inner: &Arc<Inner>, call: Call, leader: &Token) {
    let follower = Follower { inner: Arc::downgrade(inner), call, leader: leader.clone() };
    let watch = leader.watch(&Waker::from(Arc::new(follower)));
    let mut callers = inner.callers.lock();
    if let Some(caller) = callers.get_mut(&call) {
        caller.watch = Some(watch);
    } else {
        // It is over already.
        drop(callers);
        drop(watch);
    }
}

struct Follower {
    inner: Weak<Inner>,
    call: Call,
    leader: Token,
}

impl Wake for Follower {
    fn wake(self: Arc<Self>) {
        if let Some(inner) = self.inner.upgrade() {
            let cause = self.leader.cause().unwrap_or(Cause::Local);
            let reason = self.leader.reason();
            inner.connection.abandon(self.call, cause, reason.as_deref(), inner.now());
        }
    }
}

/// Woken by the core, from any thread and without its lock.
pub(super) struct OnOutput(pub(super) Weak<Inner>);

impl Wake for OnOutput {
    fn wake(self: Arc<Self>) {
        if let Some(inner) = self.0.upgrade() {
            inner.put_out();
        }
    }
}
