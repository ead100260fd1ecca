//! The token: a handle on a node of the cancellation tree.

use std::sync::Arc;

use countermand_core::{Call, Generation, Id};
use parking_lot::Mutex;
use pyo3::exceptions::{PyLookupError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::call::call;
use crate::connection::Connection;
use crate::convert;
use crate::reader::Reader;
use crate::signals::{self, Working};

/// What `countermand.Token` is made of.
#[pyclass(subclass, frozen, module = "countermand._native")]
pub(crate) struct Token {
    pub(crate) inner: countermand_core::Token,
    connection: countermand_core::Connection,
    generation: Generation,
    id: Option<Id>,
    /// Shared by the tokens of one request.
    reader: Arc<Reader>,
}

impl Token {
    /// Of a request of ours.
    pub(crate) fn of_call(
        connection: &countermand_core::Connection,
        call: Call,
        inner: countermand_core::Token,
    ) -> Self {
        let id = i64::try_from(call.0).ok().map(Id::Int);
        // No request of the peer's has generation 0.
        let (connection, generation) = (connection.clone(), Generation(0));
        Self { inner, connection, generation, id, reader: Arc::new(Reader::new()) }
    }
}

#[pymethods]
impl Token {
    /// `Token(parent)` is a child; `Token(connection, generation)` is the token of a request in the table.
    #[new]
    #[pyo3(signature = (source, generation=None))]
    fn new(source: &Bound<'_, PyAny>, generation: Option<u64>) -> PyResult<Self> {
        if let Ok(parent) = source.cast::<Self>() {
            let parent = parent.get();
            return Ok(Self {
                inner: parent.inner.child(),
                connection: parent.connection.clone(),
                generation: parent.generation,
                id: parent.id.clone(),
                reader: parent.reader.clone(),
            });
        }
        let (Ok(connection), Some(generation)) = (source.cast::<Connection>(), generation) else {
            return Err(PyTypeError::new_err(
                "a token is made of a token, or of a connection and a generation",
            ));
        };
        let connection = &connection.get().connection;
        let generation = convert::generation(generation);
        let gone = || PyLookupError::new_err("the request is not in the table");
        let inner = connection.token(generation).ok_or_else(gone)?;
        let (connection, id) = (connection.clone(), connection.wire_id(generation));
        Ok(Self { inner, connection, generation, id, reader: Arc::new(Reader::new()) })
    }

    #[getter]
    fn cancelled(&self) -> bool {
        let cancelled = self.inner.cancelled();
        self.reader.read(cancelled);
        cancelled
    }

    #[getter]
    fn cause(&self) -> Option<&'static str> {
        self.inner.cause().map(countermand_core::Cause::as_str)
    }

    #[getter]
    fn reason(&self) -> Option<String> {
        self.inner.reason().map(|reason| reason.as_ref().to_owned())
    }

    #[getter]
    fn request_id(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.id.as_ref().map(|id| convert::id(py, id)).transpose()
    }

    pub(crate) fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        let cause = self.inner.cause();
        self.reader.read(cause.is_some());
        match cause {
            None => Ok(()),
            Some(cause) => {
                static CANCELLED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
                let class = CANCELLED.import(py, "countermand._errors", "Cancelled")?;
                let args = (cause.as_str(), self.reason()).into_pyobject(py)?;
                Err(PyErr::from_value(call(class.as_any(), &args)?))
            }
        }
    }

    /// The request has committed an effect that cannot be taken back.
    fn commit(&self) -> bool {
        self.connection.commit(self.generation)
    }

    /// A thread, or a process by its pid, begins to run for the request; `None` if that is over.
    #[pyo3(signature = (kind, pid=None))]
    fn work(&self, kind: &str, pid: Option<u32>) -> PyResult<Option<Working>> {
        let working = self.inner.work(signals::work(kind, pid)?);
        Ok(working.map(|working| Working(Mutex::new(Some(working)))))
    }

    /// The loop has learned of the trip: a thread that polls this request's tokens sees it first.
    fn give_way(&self, py: Python<'_>) {
        self.reader.give_way(py);
    }

    #[pyo3(signature = (reason=None))]
    fn cancel(&self, reason: Option<&str>) -> bool {
        self.inner.trip(countermand_core::Cause::Local, reason)
    }

    /// Trips with any cause: for the scenarios.
    #[pyo3(signature = (cause, reason=None))]
    fn trip(&self, cause: &str, reason: Option<&str>) -> PyResult<bool> {
        Ok(self.inner.trip(convert::cause(cause)?, reason))
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
