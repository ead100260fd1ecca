//! One direction of a connection, from our writer to the peer: bytes in pieces of any size.
//!
//! The writer here is the simplest that is right: what was decided is appended whole, in order. What is
//! checked is that what the core decided to write can be framed and arrives as it was decided.

use super::peer::Peer;
use crate::audit::Breach;
use crate::model::Out;
use crate::rng::Rng;

#[derive(Default)]
pub(super) struct Wire {
    /// Every frame that was decided, in order.
    decided: Vec<String>,
    bytes: Vec<u8>,
    /// How many of the bytes are with the peer.
    sent: usize,
    /// How many whole frames are, and where the next begins.
    read: usize,
    begun: usize,
    closed: bool,
}

/// What an outcome puts on the wire.
pub(super) fn written<'a>(frame: &'a str, out: &'a Out) -> Option<&'a str> {
    match out {
        Out::Write | Out::Cancel(None) => Some(frame),
        Out::Rewrite(rewritten) | Out::Cancel(Some(rewritten)) => Some(rewritten),
        // A request waits for its turn.
        Out::Request(..) | Out::Swallow(_) => None,
    }
}

impl Wire {
    /// Takes a frame; true if nothing was waiting before.
    pub(super) fn write(&mut self, frame: String) -> bool {
        if self.closed {
            return false;
        }
        let idle = self.sent == self.bytes.len();
        self.bytes.extend_from_slice(frame.as_bytes());
        self.bytes.push(b'\n');
        self.decided.push(frame);
        idle
    }

    /// Moves some bytes to the peer, who reads the frames that are whole. Says whether one of them was
    /// a response to a request that the peer has abandoned, and whether more bytes wait.
    pub(super) fn flush(&mut self, rng: &mut Rng, peer: &Peer) -> Result<(bool, bool), Breach> {
        let waiting = self.bytes.len() - self.sent;
        if self.closed || waiting == 0 {
            return Ok((false, false));
        }
        self.sent += 1 + rng.below(waiting.max(40)).min(waiting - 1);
        let mut late = false;
        while let Some(end) = self.bytes[self.begun..self.sent].iter().position(|&b| b == b'\n') {
            let line = &self.bytes[self.begun..self.begun + end];
            let decided = &self.decided[self.read];
            if line != decided.as_bytes() {
                let line = String::from_utf8_lossy(line);
                return Err(Breach::new("I4", format!("{line} arrived, not {decided}")));
            }
            late |= peer.abandoned(decided);
            self.begun += end + 1;
            self.read += 1;
        }
        Ok((late, self.sent < self.bytes.len()))
    }

    /// The connection is gone; whether that cut a frame in two.
    pub(super) fn cut(&mut self) -> bool {
        let first = !std::mem::replace(&mut self.closed, true);
        first && self.sent > self.begun
    }
}
