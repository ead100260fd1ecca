//! Calling Python from Rust in a thread that may outlive the interpreter.
//!
//! Python before 3.14 ends such a thread, when it wants the interpreter back, by unwinding its stack. That must not
//! pass through Rust, which would abort the process: the thread stops for good instead, as with 3.14.

use std::hint::black_box;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

type Call = unsafe extern "C-unwind" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// Calls `function(*args)`, in any thread.
pub(crate) fn call<'py>(
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    // PyO3 declares that it does not unwind: which function this is must not be known where it is called.
    let address = black_box(ffi::PyObject_Call as *const ());
    // SAFETY: the same function with an ABI that says more: that it may unwind.
    let call = unsafe { std::mem::transmute::<*const (), Call>(address) };
    let stop = StopUnwinding;
    // SAFETY: this thread is attached, and both are objects that the caller keeps; the result is a new reference or
    // null with an error set.
    let result = unsafe {
        let result = call(function.as_ptr(), args.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(function.py(), result)
    };
    std::mem::forget(stop);
    result
}

/// Stops the thread that unwinds it.
struct StopUnwinding;

impl Drop for StopUnwinding {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}
