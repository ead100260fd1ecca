//! The wire of Countermand: threads that no handler can block read and write a stdio connection.
//!
//! What lives here: taking over fd 0 and fd 1, framing, the queues between the wire and a
//! language with their bounds, end of input, signals, and ending the process. What does not:
//! any decision about a request and its cancel (that is `countermand-core`), and anything about
//! a language.
//!
//! Two threads run: one reads and decides, one writes. A cancel has tripped its token by the time
//! the language hears of it, and a language that is stuck can still read the token.
//!
//! With the feature `tokio` there is also `peer`: hosts and servers that are written in Rust.

#[cfg(not(unix))]
compile_error!("the wire needs POSIX pipes and signals: Countermand runs on Unix");

mod child;
mod config;
mod exit;
mod follow;
mod framer;
mod inbox;
mod outbox;
#[cfg(feature = "tokio")]
pub mod peer;
pub mod process;
mod reader;
mod signals;
mod stdio;
mod wire;

pub use config::{WireConfig, WireError};
pub use countermand_core as core;
pub use inbox::Event;
pub use wire::{Outcome, Wire};
