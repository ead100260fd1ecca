//! The host's side of a keeper: forking it, and the messages on its socket.
//!
//! The keeper is forked from a process with many threads, so that after the fork only what is
//! async-signal-safe may be called: `keeper`, `exec`, `descendants` and `memory` allocate nothing, take no
//! lock and cannot panic. It is forked with no exit signal: the host gets no `SIGCHLD` for it, and no
//! `waitpid(-1)` of the host's can take it for a child of its own.

mod descendants;
mod exec;
mod keeper;
mod memory;

use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::ptr;

use super::ProcessError;
use super::plan::Plan;
use super::platform::{Keeping, Launched, Said};

/// What a packet of the keeper's holds: a kind and a value.
type Packet = [i32; 2];
const PACKET: usize = size_of::<Packet>();

const STARTED: i32 = 1;
const NO_EXEC: i32 = 2;
const NO_CWD: i32 = 3;
const NO_FORK: i32 = 4;
const EXITED: i32 = 5;
const EMPTY: i32 = 6;
const LEFT: i32 = 7;

/// Forks a keeper, and returns when its leader has been executed.
pub(in super::super) fn launch(plan: &Plan, keeping: Keeping) -> Result<Launched, ProcessError> {
    let (control, other) = socket_pair()?;
    // SAFETY: `getpid` has no preconditions.
    let host = unsafe { libc::getpid() };
    let work = keeper::Work { plan, keeping, control: other.as_raw_fd(), host };
    let keeper = fork(keeper::keep, &work)?;
    drop(other);
    match receive(&control, 0) {
        Some([STARTED, leader]) => Ok(Launched { control, keeper, leader }),
        failed => {
            drop(control);
            reap(keeper, 0);
            Err(failure(plan, failed))
        }
    }
}

fn failure(plan: &Plan, packet: Option<Packet>) -> ProcessError {
    match packet {
        Some([NO_EXEC, errno]) => ProcessError::Exec {
            program: OsString::from_vec(plan.program().to_bytes().to_vec()),
            error: Error::from_raw_os_error(errno),
        },
        Some([NO_CWD, errno]) => ProcessError::Cwd {
            cwd: OsString::from_vec(plan.cwd.as_deref().unwrap_or_default().to_bytes().to_vec())
                .into(),
            error: Error::from_raw_os_error(errno),
        },
        Some([_, errno]) => ProcessError::Io(Error::from_raw_os_error(errno)),
        None => ProcessError::Io(Error::new(ErrorKind::BrokenPipe, "the keeper died at its start")),
    }
}

/// Asks the keeper to end its tree. Never blocks; a keeper that is gone needs no asking.
pub(in super::super) fn end(control: &OwnedFd) {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the buffer is a byte long, as said.
    unsafe { libc::send(control.as_raw_fd(), b"T".as_ptr().cast(), 1, flags) };
}

/// What the keeper has said since. Never blocks.
pub(in super::super) fn listen(control: &OwnedFd) -> Said {
    match receive(control, libc::MSG_DONTWAIT) {
        Some([EXITED, status]) => Said::Exited(status),
        Some([EMPTY, _]) => Said::Empty,
        Some([LEFT, count]) => Said::Left(count),
        Some(_) => Said::Nothing,
        None if Error::last_os_error().kind() == ErrorKind::WouldBlock => Said::Nothing,
        None => Said::Gone,
    }
}

/// Reaps a keeper that has ended, or is just ending. Where it was killed before its tree was empty,
/// the group of its leader is killed in its place.
pub(in super::super) fn reap(keeper: i32, leader: i32) {
    let mut status = 0;
    // SAFETY: `status` is valid for writing; `keeper` was forked by us and is reaped nowhere else.
    while unsafe { libc::waitpid(keeper, &raw mut status, libc::__WALL) } < 0
        && Error::last_os_error().kind() == ErrorKind::Interrupted
    {}
    if leader > 0 && libc::WIFSIGNALED(status) {
        // SAFETY: a group that is gone is an error, which is what is wanted.
        unsafe { libc::killpg(leader, libc::SIGKILL) };
    }
}

/// One packet; `None` at the end, and where there is none (see `errno`).
fn receive(control: &OwnedFd, flags: i32) -> Option<Packet> {
    let mut packet: Packet = [0; 2];
    loop {
        // SAFETY: the buffer is as long as is said.
        let count =
            unsafe { libc::recv(control.as_raw_fd(), (&raw mut packet).cast(), PACKET, flags) };
        match usize::try_from(count) {
            Ok(PACKET) => return Some(packet),
            Ok(_) => {
                // The end is no error of its own: make it look like one that is not "try again".
                // SAFETY: `errno` of this thread may be written.
                unsafe { *libc::__errno_location() = libc::EPIPE };
                return None;
            }
            Err(_) if Error::last_os_error().kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

fn socket_pair() -> Result<(OwnedFd, OwnedFd), ProcessError> {
    let mut fds = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) } < 0 {
        return Err(Error::last_os_error().into());
    }
    // SAFETY: both were just opened, and nobody else knows them.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// Forks with every signal blocked, so that no handler of the host's ever runs in the child.
fn fork(child: fn(&keeper::Work<'_>) -> !, work: &keeper::Work<'_>) -> Result<i32, ProcessError> {
    // SAFETY: the sets are filled before they are read. The system call itself and not `fork`: what other
    // libraries have registered to run at a fork has no business in a keeper. The child has this
    // thread alone, with a copy of its stack, and runs `child`, which calls only what is
    // async-signal-safe and never returns.
    unsafe {
        let mut every: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut every);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const every, &raw mut before);
        let null = ptr::null::<u8>();
        let pid = libc::syscall(libc::SYS_clone, 0, null, null, null, null);
        if pid == 0 {
            child(work);
        }
        let error = Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        i32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(ProcessError::Io(error))
    }
}
