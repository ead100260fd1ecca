//! Process trees: a command and everything that it starts, which die with a token or with their host.
//!
//! What lives here: starting a command in a group of its own, ending its whole tree, and telling who
//! asked when it has exited and when nothing of it is left. What does not: any decision about a
//! request (the token trips in `countermand-core`; here it is only obeyed), and anything about a language.
//!
//! ```text
//! host ──fork──▶ keeper ──fork, exec──▶ leader ─▶ … the tree
//!   └──control socket──┘ subreaper of all that descends from it
//! ```
//!
//! Each tree has a *keeper*: a tiny process between the host and the command. It is the subreaper of its
//! tree, so that whatever leaves its parent or its group (`setsid`, a double fork) becomes its child, and
//! the tree is empty exactly when the keeper has no child left. It sees its host die, however that dies,
//! and ends the tree then. And since the command is no child of the host, nothing here can take an
//! exit status from the host's own children, or meet its handler of `SIGCHLD`.
//!
//! One file holds one thing: `command` (what to start, and how that fails), `plan` (the same as `exec`
//! wants it), `tree` (the handle), `supervisor` (the host's one thread that listens to keepers), `capture`
//! (collecting output), `platform` (the border: which system has keepers), `linux` (the keeper).

#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "starting a tree is refused there")
)]

mod capture;
mod command;
#[cfg(target_os = "linux")]
mod linux;
mod plan;
mod platform;
mod supervisor;
mod tree;

pub use capture::Output;
pub use command::{Command, ProcessError, Stdio};
pub use tree::{Pipes, Stage, Tree};
