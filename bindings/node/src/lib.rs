//! The N-API binding of Countermand. It translates; no race is decided here.
//!
//! The hot path is free functions over `u32` handles, memory that Rust and JavaScript share, and
//! batches in both directions; a call across the border costs more than what it asks for. Tokens
//! are read by JavaScript straight from the state words ([`shared`]).
//!
//! - [`wire`]: a wire, on stdio or to a command: opening, draining events, handing back what the SDK answers
//! - [`calls`]: requests of our own over a wire
//! - [`tokens`]: child tokens, local trips and reasons
//! - [`signals`]: what was counted per tool, for logs and exporters
//! - [`process`]: process trees: starting, stopping and hearing of them
//! - [`connection`], [`outbound`]: the sans-I/O connection as a class, for transports of one's own
//!
//! Panics are caught at the border and become JavaScript errors.

// What JavaScript passes arrives owned.
#![allow(clippy::needless_pass_by_value)]
// napi's macros export nothing in a test build, which clippy checks though there are no tests.
#![cfg_attr(test, allow(dead_code))]
#![allow(unreachable_pub)] // napi exports the public items of private modules; no crate depends on this one.

mod calls;
mod connection;
mod options;
mod outbound;
mod process;
mod shared;
mod signals;
mod stats;
mod tokens;
mod wire;
