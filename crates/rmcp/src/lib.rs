//! Countermand under [`rmcp`], the official Rust SDK for MCP, as it is.
//!
//! What lives here: a transport for rmcp on a [`Wire`], and what stands around a service so that the engine hears when its
//! handlers begin and end. What does not: any decision about a request and its cancel (that is `countermand-core`),
//! and the threads that read and write (that is `countermand-runtime`).
//!
//! ```no_run
//! use rmcp::{ServerHandler, ServiceExt};
//!
//! # async fn serve(server: impl ServerHandler) -> Result<(), Box<dyn std::error::Error>> {
//! let (server, transport) = countermand_rmcp::stdio(server)?;
//! server.serve(transport).await?.waiting().await?; // instead of server.serve(rmcp::transport::stdio())
//! # Ok(())
//! # }
//! ```
//!
//! - On the wire a cancel never stands before its request, and is sent once; what was not sent is taken back without a word.
//! - A late response reaches nobody, and no id is used twice, whatever rmcp does with its own.
//! - A cancel of the peer's trips its request's token on the thread that reads, and then rmcp's `context.ct`. Where the peer
//!   uses an id again, rmcp knows the second request by another name, so that neither can be taken for the other.
//! - The end of the input cancels everything at once.
//! - A request that a handler makes is cancelled with the handler's own; so is one that carries a [`Token`] of its
//!   connection among its `extensions`.
//!
//! A handler finds its [`Token`] in `context.extensions`.

mod guarded;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use countermand_runtime::process::Command;
use countermand_runtime::{Wire, WireConfig, WireError};
use rmcp::service::{Service, ServiceRole};

pub use countermand_runtime as runtime;
pub use countermand_runtime::core::Token;
pub use guarded::Guarded;
pub use transport::WireTransport;

use transport::Shared;

/// What a wire calls when events wait.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// A server on this process's stdin and stdout. The process ends a grace period after its input, whatever a handler is
/// stuck in; for other settings see [`guard`].
///
/// # Errors
/// As [`Wire::stdio`].
pub fn stdio<R: ServiceRole, S: Service<R>>(
    service: S,
) -> Result<(Guarded<S>, WireTransport<R>), WireError> {
    guard(service, |wake| Wire::stdio(WireConfig::default(), wake))
}

/// A client of a command, which is ended with the connection: see [`Wire::spawn`].
///
/// # Errors
/// As [`Wire::spawn`].
pub fn spawn<R: ServiceRole, S: Service<R>>(
    service: S,
    command: Command,
    close_wait: Duration,
) -> Result<(Guarded<S>, WireTransport<R>), WireError> {
    guard(service, |wake| Wire::spawn(command, close_wait, WireConfig::client(), wake))
}

/// A service and its transport, on a wire that `open` opens. They belong together: serve the one on the other.
///
/// # Errors
/// Those of `open`.
pub fn guard<R: ServiceRole, S: Service<R>>(
    service: S,
    open: impl FnOnce(Wake) -> Result<Wire, WireError>,
) -> Result<(Guarded<S>, WireTransport<R>), WireError> {
    let shared = Arc::new(Shared::default());
    let waking = shared.clone();
    let wire = open(Box::new(move || waking.woken.notify_one()))?;
    let service = Guarded { service, wire: wire.clone(), shared: shared.clone() };
    Ok((service, WireTransport::new(wire, shared)))
}
