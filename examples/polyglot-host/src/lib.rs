//! One host in Rust with a server in Python and one in Node: a request of its user's is handed to both, and worked at here
//! beside them. Cancelling it stops all three.
//!
//! ```text
//!                      ┌─ a task here
//! user ── Peer ── host ┼─ Peer ── Python: the official SDK, guarded
//!                      └─ Peer ── Node: the official SDK, guarded
//! ```
//!
//! The user's request has a token. The calls to both servers are made under it, and the task here is part of its handler's
//! future: nothing else has to be written for the cancel to reach everything. The marks are for [`Host::round`], which
//! measures how long that takes: each handler says when it begins and ends, in the time that the processes share.

use std::error::Error;
use std::io::PipeWriter;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use countermand_runtime::core::Token;
use countermand_runtime::peer::{CallError, Peer, RpcError};
use countermand_runtime::process::{Command, Stdio};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How long anything here may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server has between the end of its stdin and SIGTERM.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

type Failure = Box<dyn Error + Send + Sync>;

/// What a handler in one of the processes says.
#[derive(Debug)]
struct Mark {
    began: bool,
    /// In nanoseconds of `CLOCK_MONOTONIC`.
    at: u64,
}

/// A user, and the host with its servers.
pub struct Host {
    /// The user's side of the connection to the host.
    user: Peer,
    /// The host's side of it.
    front: Peer,
    /// The host's connections to its servers.
    servers: Vec<Peer>,
    marks: UnboundedReceiver<Mark>,
}

impl Host {
    /// Starts the servers, and shakes hands with them.
    ///
    /// # Errors
    /// Where one cannot be started: both are built by `make build`.
    pub async fn start() -> Result<Self, Failure> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = here.join("../../python/.venvs/mcp2/bin/python");
        let (teller, marks) = unbounded_channel();
        let commands = [
            Command::new(python).args([here.join("server.py")]),
            Command::new("node").args([here.join("server.mjs")]),
        ];
        let mut servers = Vec::new();
        for command in commands {
            servers.push(serve(command, teller.clone()).await?);
        }
        let calls = servers.clone();
        let (user, host) = tokio::io::duplex(1 << 16);
        let front = Peer::builder()
            .on("tools/call", move |_, token| fan_out(calls.clone(), teller.clone(), token))
            .open_stream(host);
        Ok(Self { user: Peer::builder().open_stream(user), front, servers, marks })
    }

    /// The user asks, waits until all three handlers run, and cancels: returns how long after that the last of them ended.
    ///
    /// # Errors
    /// Where a handler does not begin or end.
    pub async fn round(&mut self) -> Result<Duration, Failure> {
        let request = self.user.request("tools/call", json!({ "name": "everything" })).start()?;
        self.hear(true).await?;
        let cancelled = now();
        // The user has lost interest, and that is all.
        drop(request);
        let ended = self.hear(false).await?;
        Ok(Duration::from_nanos(ended.saturating_sub(cancelled)))
    }

    /// Waits for all three; returns the time of the last.
    async fn hear(&mut self, began: bool) -> Result<u64, Failure> {
        let mut last = 0;
        for _ in 0..=self.servers.len() {
            let mark = tokio::time::timeout(PATIENCE, self.marks.recv()).await?;
            let mark = mark.ok_or("a server is gone")?;
            if mark.began != began {
                return Err(format!("not the mark that was to come: {mark:?}").into());
            }
            last = last.max(mark.at);
        }
        Ok(last)
    }

    /// Waits until no request is open: on the user's connection, on both sides, and toward the servers.
    ///
    /// # Errors
    /// Where one stays open.
    pub async fn quiet(&self) -> Result<(), Failure> {
        let here = [&self.user, &self.front];
        let peers: Vec<_> = here.into_iter().chain(&self.servers).collect();
        let open = |peer: &&Peer| {
            let stats = peer.connection().stats();
            stats.in_flight + stats.outbound > 0
        };
        let quiet = async {
            while peers.iter().any(open) {
                tokio::task::yield_now().await;
            }
        };
        Ok(tokio::time::timeout(PATIENCE, quiet).await?)
    }

    /// Ends the connections and the servers; returns how many of their processes are left.
    pub async fn stop(self) -> u32 {
        let mut left = 0;
        for server in self.servers {
            server.close(countermand_runtime::core::Cause::Local);
            left += server.closed().await.left;
        }
        left
    }
}

/// The host's handler: the same work in three places, under one token.
async fn fan_out(
    servers: Vec<Peer>,
    teller: UnboundedSender<Mark>,
    token: Token,
) -> Result<serde_json::Value, RpcError> {
    let [python, node] = &servers[..] else { return Err(RpcError::internal("two servers")) };
    let call = |server| work(server, &token);
    let (python, node, ()) = tokio::join!(call(python), call(node), work_here(teller));
    python.and(node).map_err(|error| RpcError::internal(error.to_string()))?;
    Ok(json!({ "content": [] }))
}

async fn work(server: &Peer, token: &Token) -> Result<(), CallError> {
    let params = json!({ "name": "work", "arguments": {} });
    server.request("tools/call", params).parent(token).await.map(drop)
}

/// Ends when its future is dropped, as Rust has it.
async fn work_here(teller: UnboundedSender<Mark>) {
    struct Ended(UnboundedSender<Mark>);
    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.send(Mark { began: false, at: now() });
        }
    }
    let _ = teller.send(Mark { began: true, at: now() });
    let _ended = Ended(teller);
    std::future::pending::<()>().await;
}

/// Starts a server whose marks come over its stderr.
async fn serve(mut command: Command, teller: UnboundedSender<Mark>) -> Result<Peer, Failure> {
    let (read, write): (_, PipeWriter) = std::io::pipe()?;
    command.stderr = Stdio::Fd(OwnedFd::from(write));
    let server = Peer::builder().spawn(command, CLOSE_WAIT)?;
    let lines = pipe::Receiver::from_owned_fd(OwnedFd::from(read))?;
    tokio::spawn(async move {
        let mut lines = BufReader::new(lines).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            match mark(&line) {
                Some(mark) => drop(teller.send(mark)),
                None => eprintln!("{line}"),
            }
        }
    });
    let client = json!({ "name": "polyglot-host", "version": env!("CARGO_PKG_VERSION") });
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    server.initialize(hello).await?;
    Ok(server)
}

fn mark(line: &str) -> Option<Mark> {
    let (what, at) = line.split_once(' ')?;
    let began = match what {
        "began" => true,
        "ended" => false,
        _ => return None,
    };
    Some(Mark { began, at: at.parse().ok()? })
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}

/// The one in the middle, and the worst.
pub fn median_and_worst(mut rounds: Vec<Duration>) -> (Duration, Duration) {
    rounds.sort_unstable();
    let worst = rounds.last().copied().unwrap_or_default();
    (rounds.get(rounds.len() / 2).copied().unwrap_or_default(), worst)
}
