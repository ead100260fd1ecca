//! Why a token tripped.

/// Why a token tripped. The first cause wins and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The peer cancelled the request (`notifications/cancelled`, or `tasks/cancel`).
    Peer,
    /// A deadline passed.
    Timeout,
    /// The connection ended.
    Disconnect,
    /// This process is going down.
    Shutdown,
    /// Our own side cancelled it.
    Local,
}

impl Cause {
    /// Every cause, in the order of [`code`](Self::code).
    pub const ALL: [Self; 5] =
        [Self::Peer, Self::Timeout, Self::Disconnect, Self::Shutdown, Self::Local];

    /// The stable number of this cause, 1 to 5; what a state word carries.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Peer => 1,
            Self::Timeout => 2,
            Self::Disconnect => 3,
            Self::Shutdown => 4,
            Self::Local => 5,
        }
    }

    /// The cause with this code, if there is one.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Peer),
            2 => Some(Self::Timeout),
            3 => Some(Self::Disconnect),
            4 => Some(Self::Shutdown),
            5 => Some(Self::Local),
            _ => None,
        }
    }

    /// The stable name: `peer`, `timeout`, `disconnect`, `shutdown` or `local`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Timeout => "timeout",
            Self::Disconnect => "disconnect",
            Self::Shutdown => "shutdown",
            Self::Local => "local",
        }
    }
}

impl std::str::FromStr for Cause {
    type Err = UnknownCause;

    fn from_str(name: &str) -> Result<Self, UnknownCause> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == name).ok_or(UnknownCause)
    }
}

/// The name is not that of a [`Cause`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCause;

impl std::fmt::Display for UnknownCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not a cause: expected peer, timeout, disconnect, shutdown or local")
    }
}

impl std::error::Error for UnknownCause {}
