//! A worker process that ends with the process that it works for.

use std::os::fd::{FromRawFd, OwnedFd};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, kill_current_process_group};

/// Kills this process's group once `fd`, which it takes over, can be read or is hung up: from a thread of its own, which
/// no Python code and no extension can hold up.
#[pyfunction]
pub(crate) fn die_with(fd: i32) -> PyResult<()> {
    // SAFETY: the caller hands over an open descriptor.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    std::thread::Builder::new()
        .name("countermand-fate".into())
        .spawn(move || {
            while poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).is_err() {}
            // Fails only for a process that may not signal itself.
            let _ = kill_current_process_group(Signal::KILL);
        })
        .map_err(|error| PyOSError::new_err(format!("cannot start a thread: {error}")))?;
    Ok(())
}
