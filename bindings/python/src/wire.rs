//! The wire: frames and trips as an event loop takes them, in batches.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use countermand_core::Generation;
use countermand_runtime::{Event, Outcome, WireConfig, WireError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyList, PyString};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::connection::Connection;
use crate::convert::{self, duration, wire_error};
use crate::signals;

/// The kinds of events that [`Wire::drain`] returns, each the first item of its tuple.
const MESSAGE: u8 = 0;
const CANCELLED: u8 = 1;
const WRITABLE: u8 = 2;
const CLOSED: u8 = 3;

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
        let mut config =
            WireConfig { connection: convert::config(options)?, ..WireConfig::default() };
        if let Some(grace) = grace {
            config.grace = duration("grace", grace)?;
        }
        config.exit_process = exit_process;
        config.max_frame = max_frame.unwrap_or(config.max_frame);
        config.max_queued = max_queued.unwrap_or(config.max_queued);
        let (ready, tell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| wire_error(WireError::Io(error.into())))?;
        let wake = move || {
            // A pipe that is full of wake-ups wakes as well as one more would.
            let _ = rustix::io::write(&tell, &[1]);
        };
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
        let wire = wire.map_err(wire_error)?;
        let connection = Py::new(py, Connection { connection: wire.connection().clone() })?;
        Ok(Self { inner: wire, ready, connection })
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
                _ => {}
            }
        }
        Ok((list, more))
    }

    /// Sends frames in order, each decided for itself; true if the queue toward the peer is too
    /// long now, and a `WRITABLE` event will say when it is not. Never blocks.
    #[expect(clippy::needless_pass_by_value, reason = "extracted from a Python list")]
    fn send(&self, frames: Vec<PyBackedStr>) -> PyResult<bool> {
        let frames = frames.iter().map(|frame| frame.as_bytes());
        let _: Vec<Outcome> = self.inner.send_batch(frames).map_err(wire_error)?;
        Ok(self.inner.congested())
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
