//! The sans-I/O core of Countermand: it decides, once and for every language, how a request, its
//! response and its cancellation settle.
//!
//! Bytes of one message and a timestamp go in, a verdict comes out. What lives here: request ids
//! and generations, the token tree, the tables of requests, and the verdicts. What does not: clocks,
//! sockets, threads, framing, processes (those are `countermand-runtime`) and anything about a
//! language (those are the bindings).
//!
//! ```
//! use countermand_core::{Config, Connection, Received, Sent, Time};
//!
//! let connection = Connection::new(Config::default());
//! let call = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow"}}"#;
//! let Received::Deliver { request: Some(request), .. } = connection.receive(call, Time(0)) else { panic!() };
//! let token = connection.token(request.generation).unwrap();
//! assert!(connection.start(request.generation, Time(0)));
//!
//! let cancel = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
//! assert!(matches!(connection.receive(cancel, Time(1)), Received::Cancelled { .. }));
//! assert!(token.cancelled());
//!
//! let answer = br#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
//! assert!(matches!(connection.send(answer, Time(2)), Sent::Swallow(_)));
//! ```
#![forbid(unsafe_code)]
// What runs for every request is inlined by force: measured, a fifth of register + complete.
#![allow(clippy::inline_always)]

mod call;
mod caller;
mod cause;
mod config;
mod connection;
mod entry;
mod envelope;
mod held;
mod id;
mod inbound;
mod incoming;
mod outbound;
mod outgoing;
mod prometheus;
mod requests;
mod rewrite;
mod section;
mod signals;
mod snapshot;
mod stats;
mod sync;
mod tasks;
mod time;
mod token;
mod tree;
mod untracked;
mod verdict;
mod words;
mod works;

pub use call::{Abandoned, BeginError, Begun, Call, CallOutcome, Output};
pub use caller::Begin;
pub use cause::Cause;
pub use config::{AliasPolicy, Config, EarlyCancel, IdMatch, Limits, WireKind};
pub use connection::Connection;
pub use envelope::{Envelope, Kind, parse};
pub use id::{Id, IdRef};
pub use section::Section;
pub use signals::{CancelLatency, Orphan, Report, ToolSignals, Work};
pub use snapshot::Snapshot;
pub use stats::{Latency, Stats};
pub use time::Time;
pub use token::{Token, Wait, Watch};
pub use verdict::{
    BatchPart, Era, Finish, Generation, IgnoreReason, Inbound, Received, RejectReason, Sent,
    Silence, SwallowReason,
};
pub use words::{PAGE_WORDS, Page};
pub use works::Working;
