//! A wire: opening it on stdio or to a command, draining its events, and handing back what the SDK answers.

use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::time::Duration;

use countermand_core::{Call, CallOutcome, Cause, Generation, Inbound, Time, Token};
use countermand_runtime::process::{ProcessError, Stdio};
use countermand_runtime::{Event, Wire, WireConfig, WireError};
use napi::bindgen_prelude::{Either, Function, Uint32Array};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi::{Error, Result, Status};
use napi_derive::napi;
use parking_lot::{Mutex, RwLock};

use crate::calls::Watches;
use crate::options::{WireOptions, milliseconds};
use crate::process::{PIPE, RefusedTree, TreeOptions, command, refused};
use crate::shared::{EVENT_WORDS, EventBox, HEAD_WORDS, SLOTS, view};
use crate::stats::Stats;
use crate::tokens::{free_page, held};

/// What a wire's handle stands for, until it is let go of.
pub(crate) struct Entry {
    pub(crate) wire: Wire,
    events: Arc<EventBox>,
    scratch: Mutex<Vec<Event>>,
    /// Requests made on behalf of tokens of other wires.
    pub(crate) watches: Watches,
}

/// By handle. A place is never used again, so that a late call finds nothing, and not another wire.
static WIRES: RwLock<Vec<Option<Arc<Entry>>>> = RwLock::new(Vec::new());

/// Kinds of events in the mailbox.
const MESSAGE: u32 = 0;
const REQUEST: u32 = 1;
const CANCELLED: u32 = 2;
const WRITABLE: u32 = 3;
const CLOSED: u32 = 4;
const SETTLED: u32 = 5;
const PROGRESS: u32 = 6;
const ABANDONED: u32 = 7;
const GONE_FOR_GOOD: u32 = 8;

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

/// A wire to a command.
#[napi(object)]
pub struct OpenCommand {
    /// By which the other functions know it.
    pub handle: u32,
    /// Where `drain` leaves its events.
    pub events: Uint32Array,
    /// The command's process.
    pub pid: u32,
    /// This process's end of the command's stderr, if that is a pipe, for the caller to close.
    pub stderr: Option<i32>,
}

pub(crate) fn entry(handle: u32) -> Result<Arc<Entry>> {
    let wires = WIRES.read();
    let entry = wires.get(handle as usize).cloned().flatten();
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
    let wire = Wire::stdio(config, waker(wake)?).map_err(|failure| error(&failure))?;
    let (handle, events) = keep(wire);
    Ok(OpenWire { handle, events })
}

/// Starts a command, an MCP server, with a wire to it. Its stdin and stdout are the wire. When the connection is over,
/// by whichever side, it has `close_wait_ms` to end by itself.
#[napi(catch_unwind)]
pub fn open_command(
    mut options: TreeOptions,
    close_wait_ms: f64,
    wire_options: WireOptions,
    wake: Function<'_, (), ()>,
) -> Result<Either<OpenCommand, RefusedTree>, String> {
    let config = wire_options.config().map_err(|error| invalid(&error))?;
    let config = WireConfig { handle_signals: false, exit_process: false, ..config };
    let piped = options.stdio.get(2) == Some(&PIPE);
    if piped {
        options.stdio[2] = 2;
    }
    let mut stderr = None;
    let command = command(&options).and_then(|mut command| {
        if piped {
            let (read, write) = std::io::pipe()?;
            command.stderr = Stdio::Fd(write.into());
            stderr = Some(read);
        }
        Ok(command)
    });
    let close_wait = milliseconds(close_wait_ms);
    let wire = match command {
        Ok(command) => Wire::spawn(command, close_wait, config, waker(wake)?),
        Err(error) => Err(error.into()),
    };
    let wire = match wire {
        Ok(wire) => wire,
        Err(WireError::Process(error)) => return Ok(Either::B(refused(&error))),
        Err(WireError::Io(error)) => return Ok(Either::B(refused(&ProcessError::Io(error)))),
        Err(failure) => return Err(error(&failure)),
    };
    let pid = wire.pid().unwrap_or(0);
    let (handle, events) = keep(wire);
    Ok(Either::A(OpenCommand { handle, events, pid, stderr: stderr.map(IntoRawFd::into_raw_fd) }))
}

/// Calls `wake` on the main thread. It keeps no process alive.
fn waker(wake: Function<'_, (), ()>) -> Result<impl Fn() + Send + Sync + 'static, String> {
    let wake = wake.build_threadsafe_function::<()>().weak::<true>().build();
    let wake = wake.map_err(|error| invalid(&error))?;
    Ok(move || {
        // Fails only while the environment shuts down, when nobody is left to be told.
        wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
    })
}

fn keep(wire: Wire) -> (u32, Uint32Array) {
    let events = Arc::new(EventBox::new());
    let view = events.view();
    let entry =
        Entry { wire, events, scratch: Mutex::new(Vec::new()), watches: Watches::default() };
    let mut wires = WIRES.write();
    let handle = u32::try_from(wires.len()).unwrap_or(u32::MAX);
    wires.push(Some(Arc::new(entry)));
    (handle, view)
}

/// Lets go of a wire that is over: its handle means nothing any more.
#[napi(catch_unwind)]
pub fn release(handle: u32) {
    let entry = WIRES.write().get_mut(handle as usize).and_then(Option::take);
    drop(entry);
}

/// Moves up to `max` events into the mailbox. Returns, a line each, the frames of the messages among
/// them, the ids of cancelled requests as the SDK knows them, and as JSON the reasons for which requests of our own
/// were abandoned; or nothing if there was none of these.
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
        let mut line = |bytes: &[u8]| {
            text.extend_from_slice(bytes);
            text.push(b'\n');
        };
        let ours = |Call(call)| Inbound { generation: Generation(call), ..nobody(0) };
        match event {
            Event::Message { frame, request } => {
                line(&frame);
                put(
                    if request.is_some() { REQUEST } else { MESSAGE },
                    request.unwrap_or(nobody(0)),
                );
            }
            Event::Cancelled { generation, inner_id } => {
                line(inner_id.as_bytes());
                put(CANCELLED, Inbound { generation, ..nobody(0) });
            }
            Event::Writable => put(WRITABLE, nobody(0)),
            Event::Closed { cause } => put(CLOSED, nobody(cause.code())),
            Event::Settled { call, frame } => {
                line(&frame);
                entry.watches.end(call);
                put(SETTLED, ours(call));
            }
            Event::Progress { call, frame } => {
                line(&frame);
                put(PROGRESS, ours(call));
            }
            Event::Abandoned { call, cause, reason, outcome } => {
                line(serde_json::Value::from(reason.as_deref()).to_string().as_bytes());
                entry.watches.end(call);
                let (slot, serial) = (cause.code(), outcome_code(outcome));
                put(ABANDONED, Inbound { slot, serial, ..ours(call) });
            }
            Event::Gone { left } => put(GONE_FOR_GOOD, nobody(left)),
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
    let entry = entry(handle)?;
    let wire = &entry.wire;
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
        Some((line, None))
    });
    Ok(sent(&entry.wire, lines))
}

/// Sends one message, a line without its end, on behalf of a token: if it is a request, it is abandoned when that
/// trips. Returns what `submit` returns.
#[napi(catch_unwind)]
pub fn submit_within(handle: u32, line: String, token: u32) -> Result<u32> {
    let (entry, token) = (entry(handle)?, held(token)?);
    Ok(sent(&entry.wire, [(line.as_bytes(), Some(&token))]))
}

fn sent<'a>(wire: &Wire, lines: impl IntoIterator<Item = (&'a [u8], Option<&'a Token>)>) -> u32 {
    match wire.send_batch(lines) {
        Ok(_) if wire.congested() => CONGESTED,
        Ok(_) => 0,
        Err(_) => GONE,
    }
}

/// Ends the connection from our side, for good: the process goes on without it.
#[napi(catch_unwind)]
pub fn close(handle: u32) -> Result<()> {
    let entry = entry(handle)?;
    let wire = &entry.wire;
    wire.detach_exit();
    // Whoever waits for a server hears that it is gone; handlers of our own are told that it was us.
    wire.close(if wire.pid().is_some() { Cause::Disconnect } else { Cause::Local });
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

/// As the package's list of outcomes has them.
fn outcome_code(outcome: CallOutcome) -> u32 {
    match outcome {
        CallOutcome::NotSent => 1,
        CallOutcome::Cancelled => 2,
        CallOutcome::Completed => 3,
        _ => 4,
    }
}
