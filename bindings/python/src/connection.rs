//! The sans-I/O connection: for transports of one's own, and for the scenarios.

use countermand_core::{Inbound, Received, Sent, Silence};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::convert::{self, generation, time};
use crate::signals;

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

    /// What to do with a frame of ours.
    fn send<'py>(
        &self,
        py: Python<'py>,
        frame: &[u8],
        now: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let verdict = PyDict::new(py);
        match self.connection.send(frame, time(now)?) {
            Sent::Write => verdict.set_item("verdict", "write")?,
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
