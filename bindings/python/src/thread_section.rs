//! Code in a thread other than the main one, broken off by an exception that Python raises between two of its steps.
//!
//! When it may be raised is decided by [`countermand_core::Section`]. No Python runs between the end of the code and
//! the end of the section: an exception that is still on its way then is taken back before anything can meet it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use countermand_core::Section;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::call::call;

thread_local! {
    /// Whether this thread is in a section: one within another is broken off with it.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Says so while it lives.
pub(crate) struct Within;

impl Within {
    /// `None` if the thread is in a section already.
    pub(crate) fn enter() -> Option<Self> {
        (!WITHIN.replace(true)).then(|| Self)
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        WITHIN.set(false);
    }
}

/// One call of a function that may be broken off.
#[pyclass(frozen, module = "countermand._native")]
pub(crate) struct ThreadSection {
    section: Section,
    /// The thread that is in it, by the number that Python knows it under.
    thread: AtomicU64,
    /// The exception's class, which is made without arguments.
    exception: Py<PyType>,
}

#[pymethods]
impl ThreadSection {
    #[new]
    fn new(exception: Py<PyType>) -> Self {
        Self { section: Section::new(), thread: AtomicU64::new(0), exception }
    }

    /// Calls `function(*args)` in this thread; raises the exception instead if it was broken off before.
    #[pyo3(signature = (function, *args))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(_within) = Within::enter() else { return call(function, args) };
        // SAFETY: has no preconditions.
        self.thread.store(unsafe { libc::pthread_self() } as u64, Ordering::Relaxed);
        if !self.section.enter() {
            return Err(PyErr::from_type(self.exception.bind(py).clone(), ()));
        }
        let result = call(function, args);
        if self.section.leave() {
            self.raise(std::ptr::null_mut());
        }
        result
    }

    /// Breaks the call off; false if it was before. It may have ended: then nothing happens.
    fn break_off(&self) -> bool {
        self.section.break_off(|| self.raise(self.exception.as_ptr()))
    }
}

impl ThreadSection {
    /// Has the thread raise this, or nothing that it has not raised yet.
    fn raise(&self, exception: *mut ffi::PyObject) {
        #[expect(clippy::cast_possible_wrap, reason = "Python's own type for it is unsigned")]
        let thread = self.thread.load(Ordering::Relaxed) as std::ffi::c_long;
        // SAFETY: this thread is attached to the interpreter, as every method of a Python class is; a thread that
        // is unknown is left alone; the exception is a class that `self` keeps, or null.
        unsafe { ffi::PyThreadState_SetAsyncExc(thread, exception) };
    }
}
