//! The stdio wire: opening it, draining its events, and handing back what the SDK answers.

use std::time::Duration;

use countermand_core::{Cause, Generation, Inbound, Time};
use countermand_runtime::{Event, Wire, WireError};
use napi::bindgen_prelude::{Function, Uint32Array};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi::{Error, Result, Status};
use napi_derive::napi;
use parking_lot::{Mutex, RwLock};

use crate::options::{WireOptions, milliseconds};
use crate::shared::{EVENT_WORDS, EventBox, HEAD_WORDS, SLOTS, view};
use crate::stats::Stats;
use crate::tokens::free_page;

/// What a wire's handle stands for. A process has one wire on its stdio, and few in its life
/// otherwise: entries stay, so that a late call finds a closed wire and not another one.
pub(crate) struct Entry {
    pub(crate) wire: Wire,
    events: EventBox,
    scratch: Mutex<Vec<Event>>,
}

static WIRES: RwLock<Vec<&'static Entry>> = RwLock::new(Vec::new());

/// Kinds of events in the mailbox.
const MESSAGE: u32 = 0;
const REQUEST: u32 = 1;
const CANCELLED: u32 = 2;
const WRITABLE: u32 = 3;
const CLOSED: u32 = 4;

/// What [`submit`] reports, as bits.
const CONGESTED: u32 = 1;
const GONE: u32 = 2;

/// An open wire.
#[napi(object)]
pub struct OpenWire {
    /// By which the other functions know it.
    pub handle: u32,
    /// Where `drain` leaves its events.
    pub events: Uint32Array,
}

pub(crate) fn entry(handle: u32) -> Result<&'static Entry> {
    let wires = WIRES.read();
    let entry = wires.get(handle as usize).copied();
    entry.ok_or_else(|| Error::new(Status::InvalidArg, format!("no wire has the handle {handle}")))
}

pub(crate) fn error(error: &WireError) -> Error<String> {
    Error::new(error.code().to_owned(), error.to_string())
}

fn invalid(error: &Error) -> Error<String> {
    Error::new("invalid_option".to_owned(), error.reason.clone())
}

/// Exact: generations stay below 2^53.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) const fn generation(number: f64) -> Generation {
    Generation(number as u64)
}

/// Takes over fd 0 and fd 1. `wake` is called on the main thread when events wait to be drained;
/// it keeps no process alive.
#[napi(catch_unwind)]
pub fn open_stdio(options: WireOptions, wake: Function<'_, (), ()>) -> Result<OpenWire, String> {
    let config = options.config().map_err(|error| invalid(&error))?;
    let wake = wake.build_threadsafe_function::<()>().weak::<true>().build();
    let wake = wake.map_err(|error| invalid(&error))?;
    let wire = Wire::stdio(config, move || {
        // Fails only while the environment shuts down, when nobody is left to be told.
        wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
    });
    let wire = wire.map_err(|failure| error(&failure))?;
    let entry: &'static Entry = Box::leak(Box::new(Entry {
        wire,
        events: EventBox::new(),
        scratch: Mutex::new(Vec::new()),
    }));
    let mut wires = WIRES.write();
    let handle = u32::try_from(wires.len()).unwrap_or(u32::MAX);
    wires.push(entry);
    Ok(OpenWire { handle, events: entry.events.view() })
}

/// Moves up to `max` events into the mailbox. Returns, a line each, the frames of the messages among
/// them and the ids of cancelled requests as the SDK knows them, or nothing if there was neither.
#[napi(catch_unwind)]
pub fn drain(handle: u32, max: u32) -> Result<Option<String>> {
    let entry = entry(handle)?;
    let mut events = entry.scratch.lock();
    let more = entry.wire.drain((max as usize).min(SLOTS), &mut events);
    let mut text = Vec::new();
    let mut count = 0;
    for event in events.drain(..) {
        let at = HEAD_WORDS + count * EVENT_WORDS;
        let put = |kind, Inbound { generation: Generation(generation), slot, serial }| {
            let high = u32::try_from(generation >> 32).unwrap_or(u32::MAX);
            let low = u32::try_from(generation & u64::from(u32::MAX)).unwrap_or(u32::MAX);
            for (offset, value) in [kind, low, high, slot, serial].into_iter().enumerate() {
                entry.events.put(at + offset, value);
            }
        };
        let nobody = |slot| Inbound { generation: Generation(0), slot, serial: 0 };
        match event {
            Event::Message { frame, request } => {
                if text.is_empty() {
                    text.reserve(frame.len() + 1);
                }
                text.extend_from_slice(&frame);
                text.push(b'\n');
                put(
                    if request.is_some() { REQUEST } else { MESSAGE },
                    request.unwrap_or(nobody(0)),
                );
            }
            Event::Cancelled { generation, inner_id } => {
                text.extend_from_slice(inner_id.as_bytes());
                text.push(b'\n');
                put(CANCELLED, Inbound { generation, ..nobody(0) });
            }
            Event::Writable => put(WRITABLE, nobody(0)),
            Event::Closed { cause } => put(CLOSED, nobody(cause.code())),
            _ => continue,
        }
        count += 1;
    }
    entry.events.put(0, u32::try_from(count).unwrap_or(u32::MAX));
    entry.events.put(1, u32::from(more));
    // Bytes that are no UTF-8 are read as U+FFFD, as the SDKs read them.
    let text = String::from_utf8(text)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok((!text.is_empty()).then_some(text))
}

/// This request was cancelled before the SDK saw it, and the SDK never will.
#[napi(catch_unwind)]
pub fn discard(handle: u32, request: f64) -> Result<()> {
    entry(handle)?.wire.connection().discard(generation(request));
    Ok(())
}

/// The handler of this cancelled request has exited, and the SDK will not answer it: answers in its
/// place, so that the core need not wait for an answer to swallow.
#[napi(catch_unwind)]
pub fn abandon(handle: u32, request: f64) -> Result<()> {
    let wire = &entry(handle)?.wire;
    wire.connection().finish(generation(request), wire.now());
    if let Some(id) = wire.connection().inner_id(generation(request)) {
        let answer = format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32603,"message":"Request cancelled"}}}}"#,
            id.to_json()
        );
        // After the end there is nothing left to be said, or to be remembered.
        let _ = wire.send(answer.as_bytes());
    }
    Ok(())
}

/// Sends messages, a line each. Returns bits: 1 where the peer reads more slowly than we write, 2
/// where it is gone.
#[napi(catch_unwind)]
pub fn submit(handle: u32, text: String) -> Result<u32> {
    let entry = entry(handle)?;
    let mut rest = text.as_bytes();
    let lines = std::iter::from_fn(|| {
        let end = memchr::memchr(b'\n', rest)?;
        let (line, next) = (&rest[..end], &rest[end + 1..]);
        rest = next;
        Some(line)
    });
    match entry.wire.send_batch(lines) {
        Ok(_) if entry.wire.congested() => Ok(CONGESTED),
        Ok(_) => Ok(0),
        Err(_) => Ok(GONE),
    }
}

/// Ends the connection from our side, for good: the process goes on without it.
#[napi(catch_unwind)]
pub fn close(handle: u32) -> Result<()> {
    let wire = &entry(handle)?.wire;
    wire.detach_exit();
    wire.close(Cause::Local);
    Ok(())
}

/// The code with which the process should exit, once the connection is over.
#[napi(catch_unwind)]
pub fn exit_code(handle: u32) -> Result<Option<i32>> {
    Ok(entry(handle)?.wire.exit_code())
}

/// Waits until everything is written, at most `timeout_ms`; false if that came first.
#[napi(catch_unwind)]
pub fn flush(handle: u32, timeout_ms: f64) -> Result<bool> {
    let timeout = milliseconds(timeout_ms).min(Duration::from_mins(1));
    Ok(entry(handle)?.wire.flush(timeout))
}

/// Stands in `page` for the tree of the tokens that belong to no wire.
#[napi]
pub const FREE_TREE: u32 = u32::MAX;

/// Page `number` of the state words, to be read with `Atomics.load`, by any thread.
#[napi(catch_unwind)]
pub fn page(handle: u32, number: u32) -> Result<Uint32Array> {
    let page = if handle == FREE_TREE {
        free_page(number as usize)
    } else {
        entry(handle)?.wire.connection().state_page(number as usize)
    };
    page.map(view)
        .ok_or_else(|| Error::new(Status::InvalidArg, format!("there is no page {number}")))
}

/// The id that the peer gave this request, as JSON, while the request is in the table. It differs
/// from what the SDK sees where the engine gave the SDK an alias.
#[napi(catch_unwind)]
pub fn wire_id(handle: u32, request: f64) -> Result<Option<String>> {
    let id = entry(handle)?.wire.connection().wire_id(generation(request));
    Ok(id.map(|id| id.to_json()))
}

/// What the connection has counted, and the sizes of its tables.
#[napi(catch_unwind)]
pub fn stats(handle: u32) -> Result<Stats> {
    Ok(Stats::from(entry(handle)?.wire.connection().stats()))
}

/// Which form time has in the core: for the class in [`crate::connection`].
pub(crate) fn time(now_ms: f64) -> Time {
    Time(u64::try_from(milliseconds(now_ms).as_nanos()).unwrap_or(u64::MAX))
}
