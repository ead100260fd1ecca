//! The wire: frames and trips as an event loop takes them, in batches.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use countermand_core::{BeginError, Call, CallOutcome, Generation};
use countermand_runtime::process::Command;
use countermand_runtime::{Event, Outcome, WireConfig, WireError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyList, PyString};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::calls::{self, Arguments, Follow, begin_error};
use crate::connection::Connection;
use crate::convert::{self, duration, wire_error};
use crate::process::stdio;
use crate::signals;
use crate::token::Token;

/// The kinds of events that [`Wire::drain`] returns, each the first item of its tuple.
const MESSAGE: u8 = 0;
const CANCELLED: u8 = 1;
const WRITABLE: u8 = 2;
const CLOSED: u8 = 3;
const SETTLED: u8 = 4;
const PROGRESS: u8 = 5;
const ABANDONED: u8 = 6;
const GONE: u8 = 7;

/// A connection on the process's stdin and stdout, or on two descriptors of the caller's.
#[pyclass(frozen, module = "countermand._native")]
pub(crate) struct Wire {
    inner: countermand_runtime::Wire,
    /// Readable while events wait that nobody has drained.
    ready: OwnedFd,
    connection: Py<Connection>,
}

#[pymethods]
impl Wire {
    /// `Wire()` takes the process's stdin and stdout; `Wire(fds=(read, write))` takes over two
    /// descriptors, which it closes.
    #[new]
    #[pyo3(signature = (*, fds=None, grace=None, exit_process=true, max_frame=None, max_queued=None, **options))]
    fn new(
        py: Python<'_>,
        fds: Option<(i32, i32)>,
        grace: Option<&Bound<'_, PyAny>>,
        exit_process: bool,
        max_frame: Option<usize>,
        max_queued: Option<usize>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut config = configured(WireConfig::default(), max_frame, max_queued, options)?;
        if let Some(grace) = grace {
            config.grace = duration("grace", grace)?;
        }
        config.exit_process = exit_process;
        let (ready, wake) = bell()?;
        let wire = match fds {
            None => countermand_runtime::Wire::stdio(config, wake),
            Some((read, write)) => {
                config.handle_signals = false;
                config.exit_process = false;
                // SAFETY: the caller hands over two open descriptors, as the signature says.
                let owned = unsafe { (OwnedFd::from_raw_fd(read), OwnedFd::from_raw_fd(write)) };
                countermand_runtime::Wire::from_fds(owned.0, owned.1, config, wake)
            }
        };
        Self::opened(py, wire.map_err(wire_error)?, ready)
    }

    /// A wire to a command that is started for it.
    #[staticmethod]
    #[pyo3(signature = (argv, env, *, cwd, stderr, grace, close_wait, max_frame=None, max_queued=None, **options))]
    #[expect(clippy::too_many_arguments, reason = "named in Python, each")]
    fn spawn(
        py: Python<'_>,
        argv: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        cwd: Option<PathBuf>,
        stderr: i32,
        grace: &Bound<'_, PyAny>,
        close_wait: &Bound<'_, PyAny>,
        max_frame: Option<usize>,
        max_queued: Option<usize>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut argv = argv.into_iter();
        let program = argv.next().ok_or_else(|| PyValueError::new_err("the command is empty"))?;
        let mut command = Command::new(program).args(argv);
        command.env = Some(env);
        command.cwd = cwd;
        command.stderr = stdio(stderr)?;
        command.grace = duration("grace", grace)?;
        let close_wait = duration("close_wait", close_wait)?;
        let config = configured(WireConfig::client(), max_frame, max_queued, options)?;
        let (ready, wake) = bell()?;
        let wire =
            py.detach(move || countermand_runtime::Wire::spawn(command, close_wait, config, wake));
        Self::opened(py, wire.map_err(wire_error)?, ready)
    }

    /// Readable while events wait: for the event loop to watch.
    fn fileno(&self) -> i32 {
        self.ready.as_raw_fd()
    }

    /// The connection behind this wire.
    #[getter]
    fn connection(&self, py: Python<'_>) -> Py<Connection> {
        self.connection.clone_ref(py)
    }

    /// Up to `limit` events, each `(kind, generation, payload)`, and whether more wait. The
    /// descriptor is no longer readable then: who leaves events must come back by itself.
    fn drain<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<(Bound<'py, PyList>, bool)> {
        // Emptied first: what comes in between wakes once more than is needed, never once less.
        let mut bytes = [0; 64];
        let _ = rustix::io::read(&self.ready, &mut bytes);
        let mut events = Vec::new();
        let more = self.inner.drain(limit, &mut events);
        let list = PyList::empty(py);
        for event in events {
            match event {
                Event::Message { frame, request } => {
                    let generation = request.map_or(0, |request| request.generation.0);
                    let text = PyString::new(py, &String::from_utf8_lossy(&frame));
                    list.append((MESSAGE, generation, text))?;
                }
                Event::Cancelled { generation, .. } => {
                    list.append((CANCELLED, generation.0, py.None()))?;
                }
                Event::Writable => list.append((WRITABLE, 0, py.None()))?,
                Event::Closed { cause } => list.append((CLOSED, 0, cause.as_str()))?,
                Event::Settled { call, frame } => {
                    let text = PyString::new(py, &String::from_utf8_lossy(&frame));
                    list.append((SETTLED, call.0, text))?;
                }
                Event::Progress { call, frame } => {
                    let text = PyString::new(py, &String::from_utf8_lossy(&frame));
                    list.append((PROGRESS, call.0, text))?;
                }
                Event::Abandoned { call, cause, reason, outcome } => {
                    let why = (cause.as_str(), reason.as_deref(), outcome.as_str());
                    list.append((ABANDONED, call.0, why))?;
                }
                Event::Gone { left } => list.append((GONE, left, py.None()))?,
                _ => {}
            }
        }
        Ok((list, more))
    }

    /// Sends frames in order, each decided for itself and with the token on whose behalf a request is made; true if the queue toward the peer is too
    /// long now, and a `WRITABLE` event will say when it is not. Never blocks.
    #[expect(clippy::needless_pass_by_value, reason = "extracted from a Python list")]
    fn send(&self, frames: Vec<(PyBackedStr, Option<Py<Token>>)>) -> PyResult<bool> {
        let token = |token: &'_ Py<Token>| token.get().inner.clone();
        let parents: Vec<_> = frames.iter().map(|(_, parent)| parent.as_ref().map(token)).collect();
        let frames = frames.iter().map(|(frame, _)| frame.as_bytes());
        let frames = frames.zip(parents.iter().map(Option::as_ref));
        let _: Vec<Outcome> = self.inner.send_batch(frames).map_err(wire_error)?;
        Ok(self.inner.congested())
    }

    /// Makes a request of our own: its number. What becomes of it is told once, by an event.
    #[pyo3(signature = (method, params, *, within=None, idle=None, total=None, progress=false))]
    #[expect(clippy::too_many_arguments, reason = "named in Python, each")]
    fn call(
        &self,
        py: Python<'_>,
        method: &str,
        params: Option<&str>,
        within: Option<&Bound<'_, Token>>,
        idle: Option<&Bound<'_, PyAny>>,
        total: Option<&Bound<'_, PyAny>>,
        progress: bool,
    ) -> PyResult<(u64, Option<Follow>)> {
        let parent = within.map(|token| &token.get().inner);
        if let (Some(token), Some(_)) = (within, parent.and_then(countermand_core::Token::cause)) {
            token.get().checkpoint(py)?;
        }
        let mut begin = Arguments { method, params, parent, idle, total, progress }.begin()?;
        let mut follows = None;
        let mut made = self.inner.call(&begin);
        if let (Err(BeginError::ForeignParent), Some(leader)) = (&made, begin.parent.take()) {
            made = self.inner.call(&begin);
            follows = Some(leader);
        }
        let (call, _) = made.map_err(|error| begin_error(py, error, within))?;
        Ok((call.0, follows.map(|leader| calls::follow(&self.inner, call, leader))))
    }

    /// Nobody waits for a request of ours any more. Never blocks; from any thread.
    #[pyo3(signature = (call, cause, reason=None))]
    fn abandon(&self, call: u64, cause: &str, reason: Option<&str>) -> PyResult<&'static str> {
        Ok(self.inner.abandon(Call(call), convert::cause(cause)?, reason).as_str())
    }

    /// What is known of the effects of a request of ours that was abandoned.
    fn outcome(&self, call: u64) -> Option<&'static str> {
        self.inner.connection().outcome(Call(call)).map(CallOutcome::as_str)
    }

    /// Whether a request of ours was sent; None once it is over.
    fn sent(&self, call: u64) -> Option<bool> {
        self.inner.connection().sent(Call(call))
    }

    /// The process at the other end, if this wire has started one.
    #[getter]
    fn pid(&self) -> Option<u32> {
        self.inner.pid()
    }

    /// A handler is about to start: false if it must not.
    fn start(&self, generation: u64) -> bool {
        self.inner.connection().start(Generation(generation), self.inner.now())
    }

    /// A handler has exited: `"owed"`, `"silent"` or `"unknown"`.
    fn finish(&self, generation: u64) -> &'static str {
        self.inner.connection().finish(Generation(generation), self.inner.now()).as_str()
    }

    /// The SDK could not read this request: it will never answer it.
    fn discard(&self, generation: u64) {
        self.inner.connection().discard(Generation(generation));
    }

    /// Ends the connection from our side; what was decided is still written.
    fn close(&self, cause: &str) -> PyResult<()> {
        self.inner.close(convert::cause(cause)?);
        Ok(())
    }

    /// Counters, sizes, the signals of each tool, and the orphans there are now.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let connection = self.inner.connection();
        let counters = convert::stats(py, &connection.stats())?;
        signals::add(&counters, &connection.signals(self.inner.now()))?;
        Ok(counters)
    }

    /// The same for Prometheus to scrape.
    fn prometheus(&self) -> String {
        self.inner.connection().prometheus(self.inner.now())
    }

    /// Once the connection is over: 0, or 128 and the number of the signal that ended it.
    fn exit_code(&self) -> Option<i32> {
        self.inner.exit_code()
    }

    /// Waits, without the GIL, until everything queued is written; false after `timeout` seconds.
    fn flush(&self, py: Python<'_>, timeout: &Bound<'_, PyAny>) -> PyResult<bool> {
        let timeout: Duration = duration("timeout", timeout)?;
        Ok(py.detach(|| self.inner.flush(timeout)))
    }
}

impl Wire {
    fn opened(py: Python<'_>, wire: countermand_runtime::Wire, ready: OwnedFd) -> PyResult<Self> {
        let connection = Py::new(py, Connection { connection: wire.connection().clone() })?;
        Ok(Self { inner: wire, ready, connection })
    }
}

fn configured(
    mut config: WireConfig,
    max_frame: Option<usize>,
    max_queued: Option<usize>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<WireConfig> {
    config.connection = convert::config(options)?;
    config.max_frame = max_frame.unwrap_or(config.max_frame);
    config.max_queued = max_queued.unwrap_or(config.max_queued);
    Ok(config)
}

/// A descriptor that is readable while events wait that nobody has drained, and what makes it so.
fn bell() -> PyResult<(OwnedFd, impl Fn() + Send + Sync + 'static)> {
    let (ready, tell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .map_err(|error| wire_error(WireError::Io(error.into())))?;
    let wake = move || {
        // A pipe that is full of wake-ups wakes as well as one more would.
        let _ = rustix::io::write(&tell, &[1]);
    };
    Ok((ready, wake))
}
