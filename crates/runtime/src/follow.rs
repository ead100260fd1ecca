//! A request of ours that is made on behalf of a token of another connection: abandoned when that trips.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use countermand_core::{Call, Cause, Token, Watch};

use crate::wire::{Inner, Wire};

struct Follower {
    wire: Weak<Inner>,
    call: Call,
    leader: Token,
}

impl Wake for Follower {
    fn wake(self: Arc<Self>) {
        if let Some(inner) = self.wire.upgrade() {
            let cause = self.leader.cause().unwrap_or(Cause::Local);
            let reason = self.leader.reason();
            inner.connection.abandon(self.call, cause, reason.as_deref(), inner.now());
        }
    }
}

impl Wire {
    /// Abandons a request of ours when this token trips, whatever connection it is of; at once if it has. Ends when the
    /// watch is dropped, which is to be done once the request is over.
    pub fn follow(&self, call: Call, leader: &Token) -> Watch {
        let follower = Follower { wire: self.downgrade(), call, leader: leader.clone() };
        leader.watch(&Waker::from(Arc::new(follower)))
    }
}
