//! The token: a handle on a node of the cancellation tree.

use countermand_core::Id;
use pyo3::exceptions::{PyLookupError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::connection::Connection;
use crate::convert;

/// What `countermand.Token` is made of.
#[pyclass(subclass, frozen, module = "countermand._native")]
pub(crate) struct Token {
    pub(crate) token: countermand_core::Token,
    id: Option<Id>,
}

#[pymethods]
impl Token {
    /// `Token(parent)` is a child; `Token(connection, generation)` is the token of a request in the table.
    #[new]
    #[pyo3(signature = (source, generation=None))]
    fn new(source: &Bound<'_, PyAny>, generation: Option<u64>) -> PyResult<Self> {
        if let Ok(parent) = source.cast::<Self>() {
            let parent = parent.get();
            return Ok(Self { token: parent.token.child(), id: parent.id.clone() });
        }
        let (Ok(connection), Some(generation)) = (source.cast::<Connection>(), generation) else {
            return Err(PyTypeError::new_err(
                "a token is made of a token, or of a connection and a generation",
            ));
        };
        let connection = &connection.get().connection;
        let generation = convert::generation(generation);
        let gone = || PyLookupError::new_err("the request is not in the table");
        let token = connection.token(generation).ok_or_else(gone)?;
        Ok(Self { token, id: connection.wire_id(generation) })
    }

    #[getter]
    fn cancelled(&self) -> bool {
        self.token.cancelled()
    }

    #[getter]
    fn cause(&self) -> Option<&'static str> {
        self.token.cause().map(countermand_core::Cause::as_str)
    }

    #[getter]
    fn reason(&self) -> Option<String> {
        self.token.reason().map(|reason| reason.as_ref().to_owned())
    }

    #[getter]
    fn request_id(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.id.as_ref().map(|id| convert::id(py, id)).transpose()
    }

    pub(crate) fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        match self.token.cause() {
            None => Ok(()),
            Some(cause) => {
                static CANCELLED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
                let class = CANCELLED.import(py, "countermand._errors", "Cancelled")?;
                Err(PyErr::from_value(class.call1((cause.as_str(), self.reason()))?))
            }
        }
    }

    #[pyo3(signature = (reason=None))]
    fn cancel(&self, reason: Option<&str>) -> bool {
        self.token.trip(countermand_core::Cause::Local, reason)
    }

    /// Trips with any cause: for the scenarios.
    #[pyo3(signature = (cause, reason=None))]
    fn trip(&self, cause: &str, reason: Option<&str>) -> PyResult<bool> {
        Ok(self.token.trip(convert::cause(cause)?, reason))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let id = match self.request_id(py)? {
            Some(id) => id.bind(py).repr()?.to_string(),
            None => "None".to_owned(),
        };
        let state =
            self.cause().map_or_else(|| "live".to_owned(), |cause| format!("cancelled by {cause}"));
        Ok(format!("<Token of request {id}: {state}>"))
    }
}
