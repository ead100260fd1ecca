//! What to start, and how starting it can fail.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use countermand_core::Cause;

/// How long a tree has between SIGTERM and SIGKILL unless told otherwise.
const GRACE: Duration = Duration::from_secs(2);

/// Where a standard stream of the command leads.
#[derive(Debug, Default)]
pub enum Stdio {
    /// To a pipe, whose other end the host gets.
    #[default]
    Pipe,
    /// Nowhere.
    Null,
    /// To a descriptor of the host's.
    Fd(OwnedFd),
    /// For stderr: where stdout leads.
    Stdout,
}

/// A command, and how its tree is kept.
#[derive(Debug)]
#[non_exhaustive]
pub struct Command {
    /// Looked up in the `PATH` of [`env`](Self::env) unless it has a slash.
    pub program: OsString,
    /// Without the program's own name.
    pub args: Vec<OsString>,
    /// The whole environment; the host's as it is now unless this is given.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// The working directory; the host's unless this is given.
    pub cwd: Option<PathBuf>,
    /// Standard input.
    pub stdin: Stdio,
    /// Standard output.
    pub stdout: Stdio,
    /// Standard error.
    pub stderr: Stdio,
    /// Whether it gets a session of its own, and not only a process group.
    pub session: bool,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
}

impl Command {
    /// A command with pipes for its streams.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: None,
            cwd: None,
            stdin: Stdio::Pipe,
            stdout: Stdio::Pipe,
            stderr: Stdio::Pipe,
            session: false,
            grace: GRACE,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }
}

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// Its token had tripped: nothing was started.
    #[error("nothing was started: the token has tripped ({})", .0.as_str())]
    Tripped(Cause),
    /// An argument, a variable or a path has a NUL in it, or the program's name is empty.
    #[error("a command's {0} cannot be empty or hold a NUL byte")]
    Invalid(&'static str),
    /// The program could not be executed.
    #[error("cannot run {}: {error}", .program.display())]
    Exec {
        /// As it was given.
        program: OsString,
        /// Why.
        error: std::io::Error,
    },
    /// The working directory could not be entered.
    #[error("cannot enter {}: {error}", .cwd.display())]
    Cwd {
        /// As it was given.
        cwd: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The operating system refused a pipe, a process or a thread.
    #[error("cannot start a process tree: {0}")]
    Io(#[from] std::io::Error),
    /// No keeper was written for this system.
    #[error("process trees are not supported on this system: they need Linux")]
    Unsupported,
}

impl From<rustix::io::Errno> for ProcessError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}
