//! `countermand._native`: the engine as Python sees it.
//!
//! What lives here: translation of values, errors and wake-ups. What does not: any decision about a
//! race (that is the core's), and anything about an SDK (that is the Python package's).
//!
//! No class here needs the GIL for its state: they are frozen, over atomics and the core's own lock.
//! Nothing that holds the GIL waits for a thread that wants it: the wire threads never take it.

mod call;
mod callbacks;
mod calls;
mod connection;
mod convert;
mod fate;
mod main_section;
mod process;
mod reader;
mod signals;
mod thread_section;
mod token;
mod wire;

use pyo3::prelude::*;

/// The native half of the package `countermand`.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::callbacks::{Callbacks, Watch};
    #[pymodule_export]
    use crate::calls::Follow;
    #[pymodule_export]
    use crate::connection::Connection;
    #[pymodule_export]
    use crate::fate::die_with;
    #[pymodule_export]
    use crate::main_section::MainSection;
    #[pymodule_export]
    use crate::process::Tree;
    #[pymodule_export]
    use crate::signals::Working;
    #[pymodule_export]
    use crate::thread_section::ThreadSection;
    #[pymodule_export]
    use crate::token::Token;
    #[pymodule_export]
    use crate::wire::Wire;
}
