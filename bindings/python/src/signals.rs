//! The signals, orphans and reports as plain data, and work that counts as running until it is closed.

use std::time::Duration;

use countermand_core::{CancelLatency, Cause, Orphan, Report, Snapshot, ToolSignals, Work};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::convert;

/// A thread or process that runs for a request, until it is closed or dropped.
#[pyclass(frozen, module = "countermand._native")]
pub(crate) struct Working(pub(crate) Mutex<Option<countermand_core::Working>>);

#[pymethods]
impl Working {
    /// It is done.
    fn close(&self) {
        self.0.lock().take();
    }
}

/// `thread`, or `process` with its pid.
pub(crate) fn work(kind: &str, pid: Option<u32>) -> PyResult<Work> {
    match (kind, pid) {
        ("thread", None) => Ok(Work::Thread),
        ("process", Some(pid)) => Ok(Work::Process(pid)),
        _ => Err(PyValueError::new_err("work is \"thread\", or \"process\" with a pid")),
    }
}

/// Adds `tools` and `orphans` to the counters.
pub(crate) fn add(counters: &Bound<'_, PyDict>, snapshot: &Snapshot) -> PyResult<()> {
    let py = counters.py();
    let tools = PyList::empty(py);
    for signals in &snapshot.tools {
        tools.append(tool(py, signals)?)?;
    }
    let orphans = PyList::empty(py);
    for each in &snapshot.orphans {
        orphans.append(orphan(py, each)?)?;
    }
    counters.set_item("tools", tools)?;
    counters.set_item("orphans", orphans)
}

/// A count for each cause.
pub(crate) fn causes(py: Python<'_>, counts: [u64; 5]) -> PyResult<Bound<'_, PyDict>> {
    let causes = PyDict::new(py);
    for (cause, count) in Cause::ALL.iter().zip(counts) {
        causes.set_item(cause.as_str(), count)?;
    }
    Ok(causes)
}

fn tool<'py>(py: Python<'py>, signals: &ToolSignals) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("method", &*signals.method)?;
    row.set_item("tool", signals.tool.as_deref())?;
    row.set_item("requests", signals.requests)?;
    row.set_item("in_flight", signals.in_flight)?;
    row.set_item("cancelled", causes(py, signals.cancelled)?)?;
    row.set_item("orphans", signals.orphans)?;
    row.set_item("orphaned", signals.orphaned)?;
    row.set_item("dropped_answers", signals.dropped_answers)?;
    row.set_item("abandoned_with_effects", signals.abandoned_with_effects)?;
    row.set_item("latency", latency(py, &signals.latency)?)?;
    Ok(row)
}

fn latency<'py>(py: Python<'py>, latency: &CancelLatency) -> PyResult<Bound<'py, PyDict>> {
    let summary = PyDict::new(py);
    summary.set_item("count", latency.count)?;
    for (name, value) in
        [("total", latency.total), ("p50", latency.p50), ("p99", latency.p99), ("max", latency.max)]
    {
        summary.set_item(name, value.as_secs_f64())?;
    }
    Ok(summary)
}

fn orphan<'py>(py: Python<'py>, orphan: &Orphan) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("id", convert::id(py, &orphan.id)?)?;
    row.set_item("method", &*orphan.method)?;
    row.set_item("tool", orphan.tool.as_deref())?;
    row.set_item("cause", orphan.cause.as_str())?;
    row.set_item("age", orphan.age.as_secs_f64())?;
    let work: Vec<String> = orphan.work.iter().copied().map(name).collect();
    row.set_item("work", work)?;
    Ok(row)
}

fn name(work: Work) -> String {
    match work {
        Work::Thread => "thread".to_owned(),
        Work::Process(pid) => format!("process {pid}"),
        _ => "handler".to_owned(),
    }
}

/// One cancelled request that is over.
pub(crate) fn report<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("id", convert::id(py, &report.id)?)?;
    row.set_item("method", &*report.method)?;
    row.set_item("tool", report.tool.as_deref())?;
    row.set_item("cause", report.cause.as_str())?;
    row.set_item("reason", report.reason.as_deref())?;
    row.set_item("latency", report.latency.as_ref().map(Duration::as_secs_f64))?;
    Ok(row)
}
