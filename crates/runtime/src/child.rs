//! The command at the other end of a wire, and the ladder by which it is ended: stdin closed, SIGTERM, SIGKILL.
//! (MCP 2025-11-25, Lifecycle, Shutdown, stdio; 2026-07-28 the same.)

use std::os::fd::OwnedFd;
use std::time::Duration;

use countermand_core::{Config, Connection};
use rustix::io::ioctl_fionbio;
use rustix::stdio::stderr;

use crate::WireError;
use crate::process::{Command, Pipes, ProcessError, Stage, Stdio, Tree};

/// How long after SIGKILL was due a tree may take to be gone.
const LAST: Duration = Duration::from_secs(2);

pub(crate) struct Child {
    tree: Tree,
    close_wait: Duration,
    grace: Duration,
}

impl Child {
    /// Starts it: its end of the wire is the pipes that come back, to read and to write.
    pub(crate) fn spawn(
        mut command: Command,
        close_wait: Duration,
    ) -> Result<(Self, OwnedFd, OwnedFd), WireError> {
        if matches!(command.stderr, Stdio::Pipe) {
            command.stderr = Stdio::Fd(
                rustix::io::fcntl_dupfd_cloexec(stderr(), 3).map_err(ProcessError::from)?,
            );
        }
        let grace = command.grace;
        // A token of nobody else's: the connection's own would not leave it the time to go by itself.
        let token = Connection::new(Config::default()).root();
        let (tree, pipes) = Tree::spawn(&token, command)?;
        let Pipes { stdin: Some(write), stdout: Some(read), .. } = pipes else {
            return Err(ProcessError::Invalid("stdin or stdout").into());
        };
        // The wire's threads wait where they read and write.
        ioctl_fionbio(&read, false).map_err(ProcessError::from)?;
        Ok((Self { tree, close_wait, grace }, read, write))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.tree.pid()
    }

    /// Its stdin is closed, or about to be: waits until nothing of its tree is left, and sees to it. Returns how many
    /// processes outlive that.
    pub(crate) fn wait_out(&self) -> u32 {
        if !self.tree.wait(Stage::Ended, self.close_wait) {
            self.tree.stop();
            self.tree.wait(Stage::Ended, self.grace + LAST);
        }
        self.tree.left()
    }
}
