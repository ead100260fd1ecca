//! The sans-I/O connection: for transports of one's own, and for the scenarios.

use countermand_core::{Call, CallOutcome, Inbound, Received, Sent, Silence};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::calls::{self, Arguments, begin_error};
use crate::convert::{self, generation, time};
use crate::signals;
use crate::token::Token;

/// One ordered channel with one peer, and every decision about it.
#[pyclass(frozen, module = "countermand._native")]
pub(crate) struct Connection {
    pub(crate) connection: countermand_core::Connection,
}

#[pymethods]
impl Connection {
    #[new]
    #[pyo3(signature = (**options))]
    fn new(options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let config = convert::config(options)?;
        Ok(Self { connection: countermand_core::Connection::new(config) })
    }

    /// What to do with a frame of the peer's: a list of verdicts, of one but for a batch.
    fn receive<'py>(
        &self,
        py: Python<'py>,
        frame: &[u8],
        now: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let verdicts = PyList::empty(py);
        match self.connection.receive(frame, time(now)?) {
            Received::Batch(parts) => {
                for part in parts {
                    verdicts.append(verdict(py, &part.frame, part.verdict)?)?;
                }
            }
            one => verdicts.append(verdict(py, frame, one)?)?,
        }
        Ok(verdicts)
    }

    fn start(&self, request: u64, now: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.connection.start(generation(request), time(now)?))
    }

    fn finish(&self, request: u64, now: &Bound<'_, PyAny>) -> PyResult<&'static str> {
        Ok(self.connection.finish(generation(request), time(now)?).as_str())
    }

    fn discard(&self, request: u64) {
        self.connection.discard(generation(request));
    }

    /// What to do with a frame of ours; a request in it is made on behalf of the token.
    #[pyo3(signature = (frame, now, within=None))]
    fn send<'py>(
        &self,
        py: Python<'py>,
        frame: &[u8],
        now: &Bound<'py, PyAny>,
        within: Option<&Bound<'py, Token>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let verdict = PyDict::new(py);
        let within = within.map(|token| &token.get().inner);
        match self.connection.send_within(frame, within, time(now)?) {
            Sent::Write => verdict.set_item("verdict", "write")?,
            Sent::Request { call, rewritten } => {
                verdict.set_item("verdict", "request")?;
                verdict.set_item("call", call.0)?;
                verdict.set_item("rewritten", rewritten.is_some())?;
                verdict
                    .set_item("frame", PyBytes::new(py, rewritten.as_deref().unwrap_or(frame)))?;
            }
            Sent::Cancel { rewritten } => {
                verdict.set_item("verdict", "cancel")?;
                verdict.set_item("rewritten", rewritten.is_some())?;
                verdict
                    .set_item("frame", PyBytes::new(py, rewritten.as_deref().unwrap_or(frame)))?;
            }
            Sent::Rewrite(frame) => {
                verdict.set_item("verdict", "rewrite")?;
                verdict.set_item("frame", PyBytes::new(py, &frame))?;
            }
            Sent::Swallow(reason) => {
                verdict.set_item("verdict", "swallow")?;
                verdict.set_item("reason", reason.as_str())?;
            }
            _ => verdict.set_item("verdict", "unknown")?,
        }
        Ok(verdict)
    }

    /// Puts a request of ours in the table: its call, its frame and its token.
    #[pyo3(signature = (method, params, now, *, within=None, idle=None, total=None, progress=false))]
    #[expect(clippy::too_many_arguments, reason = "named in Python, each")]
    fn begin<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        params: Option<&str>,
        now: &Bound<'py, PyAny>,
        within: Option<&Bound<'py, Token>>,
        idle: Option<&Bound<'py, PyAny>>,
        total: Option<&Bound<'py, PyAny>>,
        progress: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let parent = within.map(|token| &token.get().inner);
        let arguments = Arguments { method, params, parent, idle, total, progress };
        let begun = self.connection.begin(&arguments.begin()?, time(now)?);
        let begun = begun.map_err(|error| begin_error(py, error, within))?;
        let row = PyDict::new(py);
        row.set_item("call", begun.call.0)?;
        row.set_item("frame", PyBytes::new(py, &begun.frame))?;
        let token = Token::of_call(&self.connection, begun.call, begun.token);
        row.set_item("token", Py::new(py, token)?)?;
        Ok(row)
    }

    /// The writer is about to write this request: false if it must not.
    fn transmit(&self, call: u64) -> bool {
        self.connection.transmit(Call(call))
    }

    /// Nobody waits for this request any more.
    #[pyo3(signature = (call, cause, reason, now))]
    fn abandon(
        &self,
        call: u64,
        cause: &str,
        reason: Option<&str>,
        now: &Bound<'_, PyAny>,
    ) -> PyResult<&'static str> {
        let cause = convert::cause(cause)?;
        Ok(self.connection.abandon(Call(call), cause, reason, time(now)?).as_str())
    }

    /// What is known of the effects of a request that was abandoned.
    fn outcome(&self, call: u64) -> Option<&'static str> {
        self.connection.outcome(Call(call)).map(CallOutcome::as_str)
    }

    /// What the engine wants done, in order.
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.connection.take_outputs().into_iter().map(|output| calls::output(py, output)).collect()
    }

    /// Ends the connection; returns the requests that this cancelled.
    fn close(&self, cause: &str, now: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
        let cancelled = self.connection.close(convert::cause(cause)?, time(now)?);
        Ok(cancelled.into_iter().map(|generation| generation.0).collect())
    }

    fn handle_timeout(&self, now: &Bound<'_, PyAny>) -> PyResult<()> {
        self.connection.handle_timeout(time(now)?);
        Ok(())
    }

    /// When `handle_timeout` next has something to do, in seconds of the caller's clock.
    fn poll_timeout(&self) -> Option<f64> {
        let at = self.connection.poll_timeout()?;
        Some(std::time::Duration::from_nanos(at.0).as_secs_f64())
    }

    /// What was counted; with a time also `tools` and `orphans`, as they are then.
    #[pyo3(signature = (now=None))]
    fn stats<'py>(
        &self,
        py: Python<'py>,
        now: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let counters = convert::stats(py, &self.connection.stats())?;
        if let Some(now) = now {
            signals::add(&counters, &self.connection.signals(time(now)?))?;
        }
        Ok(counters)
    }

    /// The cancelled requests that were over since this was last asked.
    fn reports<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let reports = self.connection.take_reports();
        reports.iter().map(|report| signals::report(py, report)).collect()
    }

    /// This request has committed an effect that cannot be taken back.
    fn commit(&self, request: u64) -> bool {
        self.connection.commit(generation(request))
    }
}

fn verdict<'py>(py: Python<'py>, frame: &[u8], received: Received) -> PyResult<Bound<'py, PyDict>> {
    let verdict = PyDict::new(py);
    match received {
        Received::Deliver { request, rewritten } => {
            verdict.set_item("verdict", "deliver")?;
            let Inbound { generation, slot, serial } = match request {
                Some(request) => request,
                None => Inbound { generation: generation(0), slot: 0, serial: 0 },
            };
            verdict.set_item("generation", request.map(|_| generation.0))?;
            verdict.set_item("slot", request.map(|_| slot))?;
            verdict.set_item("serial", request.map(|_| serial))?;
            verdict.set_item("rewritten", rewritten.is_some())?;
            verdict.set_item("frame", PyBytes::new(py, rewritten.as_deref().unwrap_or(frame)))?;
        }
        Received::Cancelled { generation, silence } => {
            verdict.set_item("verdict", "cancelled")?;
            verdict.set_item("generation", generation.0)?;
            match silence {
                Silence::Answer(reply) => verdict.set_item("silence", PyBytes::new(py, &reply))?,
                Silence::CloseStream => verdict.set_item("silence", "close_stream")?,
                _ => verdict.set_item("silence", "nothing")?,
            }
        }
        Received::Settled { call } => {
            verdict.set_item("verdict", "settled")?;
            verdict.set_item("call", call.0)?;
        }
        Received::Progress { call } => {
            verdict.set_item("verdict", "progress")?;
            verdict.set_item("call", call.0)?;
        }
        Received::Ignored(reason) => {
            verdict.set_item("verdict", "ignored")?;
            verdict.set_item("reason", reason.as_str())?;
        }
        Received::Reject { reply, reason } => {
            verdict.set_item("verdict", "reject")?;
            verdict.set_item("reply", PyBytes::new(py, &reply))?;
            verdict.set_item("reason", reason.as_str())?;
        }
        _ => verdict.set_item("verdict", "unknown")?,
    }
    Ok(verdict)
}
