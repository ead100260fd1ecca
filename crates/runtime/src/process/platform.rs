//! The border to the operating system: which of them has keepers, and what a keeper says.
//!
//! On a system that is not listed here starting a tree fails and says so: a tree that cannot be ended is not
//! pretended to be one.

use std::os::fd::OwnedFd;

/// What was started.
pub(super) struct Launched {
    /// To the keeper, one message a packet.
    pub(super) control: OwnedFd,
    /// To be reaped once the control socket has ended.
    pub(super) keeper: i32,
    /// The command itself; its group bears the same number.
    pub(super) leader: i32,
}

/// How a tree is kept, beside the plan.
#[derive(Clone, Copy)]
pub(super) struct Keeping {
    /// Descriptors for stdin, stdout and stderr; none is below 3.
    pub(super) stdio: [i32; 3],
    pub(super) session: bool,
    pub(super) grace_ms: i32,
}

/// What a keeper has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The leader has exited, with this raw wait status.
    Exited(i32),
    /// Nothing of the tree is left.
    Empty,
    /// So many processes outlive SIGKILL.
    Left(i32),
    /// Nothing for now.
    Nothing,
    /// The keeper is gone.
    Gone,
}

#[cfg(target_os = "linux")]
pub(super) use super::linux::{end, launch, listen, reap};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::super::ProcessError;
    use super::super::plan::Plan;
    use super::{Keeping, Launched, OwnedFd, Said};

    pub(in super::super) fn launch(_: &Plan, _: Keeping) -> Result<Launched, ProcessError> {
        Err(ProcessError::Unsupported)
    }

    pub(in super::super) fn end(_: &OwnedFd) {}

    pub(in super::super) fn listen(_: &OwnedFd) -> Said {
        Said::Gone
    }

    pub(in super::super) fn reap(_: i32, _: i32) {}
}
#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{end, launch, listen, reap};
