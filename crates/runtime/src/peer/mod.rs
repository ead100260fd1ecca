//! [`Peer`]: a connection for hosts and servers that are written in Rust, on tokio.
//!
//! What lives here: awaiting requests of our own, dropping them, their deadlines and their progress; running handlers for
//! the peer's requests under their tokens; and the tasks that read and write. What does not: any decision about a
//! request and its cancel (that is `countermand-core`), and what the methods mean (that is yours).
//!
//! - **Dropping the future is the cancel.** The peer hears of it once, if the request was sent and is not settled, and never
//!   before the request. `initialize` is never cancelled: dropping it closes the connection.
//! - **Nobody waits for the peer.** A request that is cancelled, out of time or cut off settles at once, in the thread that
//!   ends it, whether the peer reads or not.
//! - **Tokens cross connections.** The token of one user's request can be the parent of requests on many connections.
//! - The tasks run on your runtime: a handler that blocks belongs in `spawn_blocking`, where it can ask its token.
//!
//! ```
//! use std::time::Duration;
//! use countermand_runtime::peer::{CallError, Peer, RpcError};
//! use serde_json::{Value, json};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (ours, theirs) = tokio::io::duplex(4096);
//! let _server = Peer::builder()
//!     .on("tools/call", async |request, token| {
//!         let params: Value = request.params()?;
//!         if params["name"] == "slow" {
//!             token.wait().await; // or any other await: the handler is dropped here
//!         }
//!         Ok(json!({ "content": [] }))
//!     })
//!     .open_stream(theirs);
//!
//! let host = Peer::builder().open_stream(ours);
//! let result = host.request("tools/call", json!({ "name": "quick" })).await?;
//! assert_eq!(result.get(), r#"{"content":[]}"#);
//!
//! let slow = host.request("tools/call", json!({ "name": "slow" })).total(Duration::from_millis(20));
//! assert_eq!(slow.await.unwrap_err(), CallError::TimedOut);
//!
//! let slow = host.request("tools/call", json!({ "name": "slow" })).start()?;
//! drop(slow); // one `notifications/cancelled`, if it was sent
//! # Ok(())
//! # }
//! ```
//!
//! One file holds one thing: `builder` (handlers, settings, what carries it), `call` (a request of ours, its future and
//! its handle), `callers` (who is told what became of it), `progress`, `serve` (handlers), `notes` (notifications), `queue`
//! (the writer), `pump` (the reader, time, the end), `bridge` (`tokio_util`'s tokens), `error`.

mod bridge;
mod builder;
mod call;
mod callers;
mod error;
mod notes;
mod progress;
mod pump;
mod queue;
mod serve;

use std::sync::{Arc, OnceLock, Weak};

use countermand_core::{Cause, Connection, Sent, Time, Token};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub use bridge::{Bound, Tripwire};
pub use builder::Builder;
pub use call::{Answer, CallResult, CallState, Handle, Pending, Request};
pub use error::{CallError, RpcError};
pub use progress::{Progress, ProgressStream};
pub use serve::{Incoming, Notification};

use crate::WireConfig;
use callers::Callers;
use notes::Notes;
use queue::Queue;
use serve::Handlers;

/// One connection with one peer, from either side. Clones share it; it closes when the last of them is gone, those that
/// handlers and pending requests hold among them.
#[derive(Clone)]
pub struct Peer {
    alive: Arc<Alive>,
}

/// What the holders of a [`Peer`] share, and its tasks do not.
struct Alive {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Connection,
    config: WireConfig,
    handlers: Handlers,
    queue: Queue,
    callers: Callers,
    notes: Notes,
    /// Held shared from a decision until its frame is queued: what was decided before the end is in the queue when it closes.
    deciding: RwLock<()>,
    closing: Mutex<Option<Cause>>,
    /// Wakes the reader for something other than the peer.
    nudge: Notify,
    /// When the reader looks up by itself.
    due: Mutex<Option<Time>>,
    epoch: Instant,
    pid: Option<u32>,
    ended: watch::Sender<Option<Ended>>,
    alive: OnceLock<Weak<Alive>>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Why.
    pub cause: Cause,
    /// How many processes of the command at the other end outlive SIGKILL.
    pub left: u32,
}

impl Peer {
    /// Handlers and settings first, then what carries it.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A request, to be awaited or started. Parameters are an object, or `()` for none.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "so that `json!({ … })` can stand in the call"
    )]
    pub fn request<'a>(&'a self, method: &'a str, params: impl Serialize) -> Request<'a> {
        Request::new(self, method, &params)
    }

    /// Sends a notification. Never waits.
    ///
    /// # Errors
    /// [`CallError::Params`] where the parameters are nothing that JSON can say.
    #[allow(clippy::needless_pass_by_value, reason = "as for requests")]
    pub fn notify(&self, method: &str, params: impl Serialize) -> Result<(), CallError> {
        let params = serde_json::to_string(&params)
            .map_err(|error| CallError::Params(error.to_string().into()))?;
        self.alive.inner.notify(method, (params != "null").then_some(&params));
        Ok(())
    }

    /// The client's side of the handshake: `initialize`, and once it is answered `notifications/initialized`.
    ///
    /// # Errors
    /// As any request.
    pub async fn initialize(&self, params: impl Serialize) -> Result<Box<RawValue>, CallError> {
        let result = self.request("initialize", params).await?;
        self.notify("notifications/initialized", ())?;
        Ok(result)
    }

    /// Trips when the connection ends.
    pub fn token(&self) -> Token {
        self.alive.inner.connection.root()
    }

    /// The decision point behind this peer: what is counted, and what runs.
    pub fn connection(&self) -> &Connection {
        &self.alive.inner.connection
    }

    /// The process of the command at the other end, if there is one.
    pub fn pid(&self) -> Option<u32> {
        self.alive.inner.pid
    }

    /// Ends the connection: everything trips with this cause, and what was decided before is still written.
    pub fn close(&self, cause: Cause) {
        self.alive.inner.request_close(cause);
    }

    /// Waits until the connection is over, and nothing of the command at its other end is left.
    pub async fn closed(&self) -> Ended {
        let mut ended = self.alive.inner.ended.subscribe();
        // The sender lives as long as this peer.
        let ended = ended.wait_for(Option::is_some).await.ok().and_then(|ended| *ended);
        ended.unwrap_or(Ended { cause: Cause::Local, left: 0 })
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("pid", &self.pid()).finish_non_exhaustive()
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.inner.request_close(Cause::Local);
    }
}

impl Inner {
    /// Sends a message that is no request, if the core lets it pass.
    fn send(&self, frame: String) {
        // No such decision wakes anybody: none of our requests goes this way.
        let _deciding = self.deciding.read();
        match self.connection.send(frame.as_bytes(), self.now()) {
            Sent::Write => self.queue.push(frame.into_bytes(), None),
            Sent::Rewrite(frame) => self.queue.push(frame, None),
            _ => {}
        }
    }

    fn closing(&self) -> Option<Cause> {
        *self.closing.lock()
    }

    fn ending(&self) -> bool {
        self.closing().is_some()
    }

    fn request_close(&self, cause: Cause) {
        self.closing.lock().get_or_insert(cause);
        self.nudge.notify_one();
    }
}
