//! Requests of our own: what is asked of the core, and what it says, as plain data.

use countermand_core::{Begin, BeginError, Call, Output};
use countermand_runtime::Wire;
use parking_lot::Mutex;
use pyo3::exceptions::{PyConnectionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::convert::duration;
use crate::token::Token;

/// The arguments of a call, borrowed from Python.
pub(crate) struct Arguments<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a str>,
    pub(crate) parent: Option<&'a countermand_core::Token>,
    pub(crate) idle: Option<&'a Bound<'a, PyAny>>,
    pub(crate) total: Option<&'a Bound<'a, PyAny>>,
    pub(crate) progress: bool,
}

impl<'a> Arguments<'a> {
    pub(crate) fn begin(&self) -> PyResult<Begin<'a>> {
        Ok(Begin {
            method: self.method,
            params: self.params,
            parent: self.parent,
            idle: self.idle.map(|idle| duration("idle", idle)).transpose()?,
            total: self.total.map(|total| duration("total", total)).transpose()?,
            progress: self.progress,
        })
    }
}

/// As the exception that Python's users expect.
pub(crate) fn begin_error(
    py: Python<'_>,
    error: BeginError,
    parent: Option<&Bound<'_, Token>>,
) -> PyErr {
    match error {
        BeginError::Cancelled(_) => {
            let raised = parent.and_then(|parent| parent.get().checkpoint(py).err());
            raised.unwrap_or_else(|| PyRuntimeError::new_err(error.to_string()))
        }
        BeginError::Closed => PyConnectionError::new_err(error.to_string()),
        BeginError::TooMany { .. } => PyRuntimeError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Abandons a call when a token of another connection trips, until it is closed or dropped.
#[pyclass(frozen, module = "countermand._native")]
pub(crate) struct Follow(Mutex<Option<countermand_core::Watch>>);

#[pymethods]
impl Follow {
    /// The call is over.
    fn close(&self) {
        // Taken out first: what a watch lets go of runs outside this lock.
        let watch = self.0.lock().take();
        drop(watch);
    }
}

pub(crate) fn follow(wire: &Wire, call: Call, leader: &countermand_core::Token) -> Follow {
    Follow(Mutex::new(Some(wire.follow(call, leader))))
}

pub(crate) fn output(py: Python<'_>, output: Output) -> PyResult<Bound<'_, PyDict>> {
    let row = PyDict::new(py);
    match output {
        Output::Abandoned { call, cause, reason, outcome } => {
            row.set_item("output", "abandoned")?;
            row.set_item("call", call.0)?;
            row.set_item("cause", cause.as_str())?;
            row.set_item("reason", reason.as_deref())?;
            row.set_item("outcome", outcome.as_str())?;
        }
        Output::Deliver { frame } => {
            row.set_item("output", "deliver")?;
            row.set_item("frame", PyBytes::new(py, &frame))?;
        }
        Output::Cancel { call, frame } => {
            row.set_item("output", "cancel")?;
            row.set_item("call", call.0)?;
            row.set_item("frame", PyBytes::new(py, &frame))?;
        }
        Output::CloseStream { call } => {
            row.set_item("output", "close_stream")?;
            row.set_item("call", call.0)?;
        }
        Output::CloseTransport => row.set_item("output", "close_transport")?,
        _ => row.set_item("output", "unknown")?,
    }
    Ok(row)
}
