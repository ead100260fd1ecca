//! Taking over fd 0 and fd 1, so that nothing else in the process can read or corrupt the wire.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::stdio::{dup2_stdin, dup2_stdout, stderr, stdin, stdout};

use crate::WireError;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Moves the process's stdin and stdout to fresh descriptors that no child inherits. From then on
/// fd 0 reads as empty and what is written to fd 1 goes to stderr.
pub(crate) fn take() -> Result<(OwnedFd, OwnedFd), WireError> {
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Err(WireError::AlreadyTaken);
    }
    divert().map_err(|error| {
        TAKEN.store(false, Ordering::Release);
        WireError::Io(error.into())
    })
}

fn divert() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    // Not below 3: were one of 0, 1, 2 closed, a duplicate could land there.
    let read = rustix::io::fcntl_dupfd_cloexec(stdin(), 3)?;
    let write = rustix::io::fcntl_dupfd_cloexec(stdout(), 3)?;
    // A pipe that nobody writes to: a language that polls its stdin, as libuv does, may not meet
    // what cannot be polled.
    let (empty, writer) =
        std::io::pipe().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    drop(writer);
    dup2_stdin(&empty)?;
    if dup2_stdout(stderr()).is_err() {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        dup2_stdout(&null)?;
    }
    Ok((read, write))
}
