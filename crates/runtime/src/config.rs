//! What a wire can be told when it is opened, and how opening and sending can fail.

use std::time::Duration;

use countermand_core::Config;

use crate::process::ProcessError;

/// The settings of one [`Wire`](crate::Wire).
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// The settings of its connection.
    pub connection: Config,
    /// Bytes of the longest frame that is read; a longer one is skipped and answered with -32600.
    pub max_frame: usize,
    /// Bytes queued toward the language before reading pauses, and toward the peer before
    /// [`Wire::congested`](crate::Wire::congested) says so.
    pub max_queued: usize,
    /// How long handlers may unwind after end of input or a signal.
    pub grace: Duration,
    /// Whether SIGTERM and SIGINT close the connection with cause `shutdown`.
    pub handle_signals: bool,
    /// Whether the process is ended when the grace period has passed.
    pub exit_process: bool,
}

impl Default for WireConfig {
    fn default() -> Self {
        Self {
            connection: Config::default(),
            max_frame: 64 << 20,
            max_queued: 64 << 20,
            grace: Duration::from_secs(2),
            handle_signals: true,
            exit_process: true,
        }
    }
}

impl WireConfig {
    /// For a wire to a server: signals and the end of this process are not its business.
    pub fn client() -> Self {
        Self { handle_signals: false, exit_process: false, ..Self::default() }
    }
}

/// Why a wire could not be opened or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The process's stdin and stdout were taken by a wire before.
    #[error("stdin and stdout are already taken by another wire of this process")]
    AlreadyTaken,
    /// The operating system refused.
    #[error("cannot open the wire: {0}")]
    Io(#[from] std::io::Error),
    /// The command could not be started.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The connection is closed: nothing can be sent.
    #[error("the connection is closed")]
    Closed,
}

impl WireError {
    /// A stable code for bindings.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::AlreadyTaken => "already_taken",
            Self::Io(_) => "io",
            Self::Process(_) => "process",
            Self::Closed => "closed",
        }
    }
}
