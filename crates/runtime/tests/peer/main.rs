//! Hosts and servers in Rust: what callers and handlers see, and what stands on the wire.

mod calls;
mod handlers;
mod load;
mod tokens;

use std::time::Duration;

use countermand_runtime::peer::{Builder, Peer};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The other end, by hand: frames as they stand on the wire.
pub(crate) struct Raw {
    read: BufReader<ReadHalf<DuplexStream>>,
    write: WriteHalf<DuplexStream>,
}

impl Raw {
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.read.read_line(&mut line);
        let count = tokio::time::timeout(PATIENCE, read).await.expect("a frame").unwrap();
        (count > 0).then(|| serde_json::from_str(&line).expect("a whole frame"))
    }

    /// The next frame, of this method.
    pub(crate) async fn expect(&mut self, method: &str) -> Value {
        let frame = self.next().await.expect("a frame");
        assert_eq!(frame["method"], method, "{frame}");
        frame
    }

    pub(crate) async fn say(&mut self, frame: &str) {
        self.write.write_all(format!("{frame}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn answer(&mut self, id: &Value) {
        self.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"of":{id}}}}}"#)).await;
    }
}

/// A peer, and the other end of a pipe of this size.
pub(crate) fn raw(builder: Builder, size: usize) -> (Peer, Raw) {
    let (ours, theirs) = tokio::io::duplex(size);
    let (read, write) = tokio::io::split(theirs);
    (builder.open_stream(ours), Raw { read: BufReader::new(read), write })
}

/// A host and a server.
pub(crate) fn pair(server: Builder) -> (Peer, Peer) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    (Peer::builder().open_stream(ours), server.open_stream(theirs))
}
