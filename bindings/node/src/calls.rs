//! Requests of our own over a wire: making them, and giving them up.
//!
//! What becomes of one is told once, among the events that `drain` leaves in the mailbox.

use std::collections::HashMap;

use countermand_core::{Abandoned, Begin, BeginError, Call, CallOutcome, Watch};
use napi::Result;
use napi::bindgen_prelude::Either;
use napi_derive::napi;
use parking_lot::Mutex;

use crate::options::milliseconds;
use crate::stats::number;
use crate::tokens::{cause, held};
use crate::wire::entry;

/// A request, and who wants it.
#[napi(object)]
pub struct CallOptions {
    /// The method.
    pub method: String,
    /// Its parameters: the JSON text of an object.
    pub params: Option<String>,
    /// The handle of the token on whose behalf it is made: it is abandoned when that trips.
    pub parent: Option<u32>,
    /// How long it may go without progress, in milliseconds.
    pub idle_ms: Option<f64>,
    /// How long it may take, in milliseconds.
    pub total_ms: Option<f64>,
    /// Whether to ask the peer for progress.
    pub progress: bool,
}

/// Why a request of ours was not made.
#[napi(object)]
pub struct RefusedRequest {
    /// `closed`, `too_many`, `params_no_object`, `cancelled` or `foreign_parent`.
    #[napi(
        ts_type = "'closed' | 'too_many' | 'params_no_object' | 'cancelled' | 'foreign_parent'"
    )]
    pub refused: String,
    /// For people.
    pub message: String,
    /// `cancelled`: why its parent was.
    #[napi(ts_type = "'peer' | 'timeout' | 'disconnect' | 'shutdown' | 'local'")]
    pub cause: Option<String>,
}

impl From<&BeginError> for RefusedRequest {
    fn from(error: &BeginError) -> Self {
        let cause = match error {
            BeginError::Cancelled(cause) => Some(cause.as_str().to_owned()),
            _ => None,
        };
        Self { refused: error.as_str().to_owned(), message: error.to_string(), cause }
    }
}

/// Requests that were made on behalf of another connection's token, and the watch on it.
#[derive(Default)]
pub(crate) struct Watches(Mutex<HashMap<u64, Watch>>);

impl Watches {
    pub(crate) fn end(&self, call: Call) {
        let watch = self.0.lock().remove(&call.0);
        // Outside the lock: its end takes the lock of the other connection.
        drop(watch);
    }
}

/// Exact: ids of ours stay below 2^53.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) const fn call(number: f64) -> Call {
    Call(number as u64)
}

/// Makes a request; its id comes back, or why it was not made.
#[napi(catch_unwind)]
pub fn call_begin(handle: u32, options: CallOptions) -> Result<Either<f64, RefusedRequest>> {
    let entry = entry(handle)?;
    let parent = options.parent.map(held).transpose()?;
    let begin = Begin {
        method: &options.method,
        params: options.params.as_deref(),
        parent: parent.as_ref(),
        idle: options.idle_ms.map(milliseconds),
        total: options.total_ms.map(milliseconds),
        progress: options.progress,
    };
    let (made, elsewhere) = match (entry.wire.call(&begin), &parent) {
        (Err(BeginError::ForeignParent), Some(parent)) => match parent.cause() {
            Some(cause) => (Err(BeginError::Cancelled(cause)), None),
            None => (entry.wire.call(&Begin { parent: None, ..begin }), Some(parent)),
        },
        (made, _) => (made, None),
    };
    let call = match made {
        Ok((call, _)) => call,
        Err(error) => return Ok(Either::B((&error).into())),
    };
    if let Some(parent) = elsewhere {
        let watch = entry.wire.follow(call, parent);
        entry.watches.0.lock().insert(call.0, watch);
    }
    Ok(Either::A(number(call.0)))
}

/// Nobody waits for this request any more. What becomes of it is told among the events, unless it was `settled`
/// before.
#[napi(
    catch_unwind,
    ts_return_type = "'settled' | 'not_sent' | 'notified' | 'close_transport' | 'close_stream' | 'silent'"
)]
pub fn call_abandon(
    handle: u32,
    request: f64,
    cause_name: String,
    reason: Option<String>,
) -> Result<&'static str> {
    let cause = cause(&cause_name)?;
    let Ok(entry) = entry(handle) else { return Ok(Abandoned::Settled.as_str()) };
    Ok(entry.wire.abandon(call(request), cause, reason.as_deref()).as_str())
}

/// What is known of the effects of a request that was abandoned; null if it was not, or that was forgotten.
#[napi(catch_unwind, ts_return_type = "'not_sent' | 'cancelled' | 'completed' | 'unknown' | null")]
pub fn call_outcome(handle: u32, request: f64) -> Option<&'static str> {
    entry(handle).ok()?.wire.connection().outcome(call(request)).map(CallOutcome::as_str)
}

/// Whether a request has been written; null once it is over.
#[napi(catch_unwind)]
pub fn call_sent(handle: u32, request: f64) -> Option<bool> {
    entry(handle).ok()?.wire.connection().sent(call(request))
}
