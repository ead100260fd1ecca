//! Turning a child of the keeper into the command.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::keeper::Work;
use super::{NO_CWD, NO_EXEC, NO_FORK, Packet, STARTED};

/// Enough for a few system calls: nothing here is deep.
const STACK: usize = 1 << 14;

#[repr(C, align(16))]
struct Stack([u8; STACK]);

/// What the child finds, and where it leaves why it failed: they share their memory.
struct Child<'a> {
    work: &'a Work<'a>,
    failed: Packet,
}

/// Starts the leader; the packet says its number, or why there is none. Returns when it has been
/// executed, or has failed.
pub(super) fn start(work: &Work<'_>) -> Packet {
    let mut child = Child { work, failed: [0; 2] };
    let mut stack = Stack([0; STACK]);
    // The memory is shared and not copied: a host may have gigabytes of it.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs on a stack of its own, which lives until it has executed or exited, because
    // this thread, the only one, is stopped until then. It grows down from its aligned end.
    let pid = unsafe {
        let top = (&raw mut stack).cast::<u8>().add(STACK).cast::<c_void>();
        libc::clone(execute, top, flags, (&raw mut child).cast())
    };
    // SAFETY: the child wrote to it behind the compiler's back, and does no more.
    let failed = unsafe { ptr::read_volatile(&raw const child.failed) };
    if pid < 0 {
        [NO_FORK, errno()]
    } else if failed == [0; 2] {
        [STARTED, pid]
    } else {
        failed
    }
}

extern "C" fn execute(child: *mut c_void) -> c_int {
    // SAFETY: `start` passes a `Child`, and waits. Pointers in the plan lead to strings with a NUL at their
    // end, and arrays of them to a null. Every call is async-signal-safe.
    unsafe {
        let child = child.cast::<Child<'_>>();
        let failed = run((*child).work);
        ptr::write_volatile(&raw mut (*child).failed, failed);
        libc::_exit(127)
    }
}

/// Returns only if it fails.
unsafe fn run(work: &Work<'_>) -> Packet {
    // SAFETY: see `execute`.
    unsafe {
        if work.keeping.session {
            libc::setsid();
        } else {
            libc::setpgid(0, 0);
        }
        // The keeper cannot be killed by accident, but by purpose.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        for (target, source) in (0..).zip(work.keeping.stdio) {
            if libc::dup2(source, target) < 0 {
                return [NO_FORK, errno()];
            }
        }
        if let Some(cwd) = &work.plan.cwd
            && libc::chdir(cwd.as_ptr()) < 0
        {
            return [NO_CWD, errno()];
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        let mut failed = libc::ENOENT;
        let mut path = work.plan.paths.as_ptr();
        while !(*path).is_null() {
            libc::execve(*path, work.plan.argv.as_ptr(), work.plan.env.as_ptr());
            // What is not there says less than what is there and cannot be run.
            match errno() {
                libc::ENOENT | libc::ENOTDIR => {}
                other => failed = other,
            }
            path = path.add(1);
        }
        [NO_EXEC, failed]
    }
}

pub(super) fn errno() -> i32 {
    // SAFETY: the address is this thread's own.
    unsafe { *libc::__errno_location() }
}
