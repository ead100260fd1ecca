//! The answers that are owed to messages with no place in the table: each may be answered once.
//!
//! What is written without having been asked for must not be a second answer to a request, nor an
//! answer to a cancelled one. So where such a message named an id, just that id is owed an answer.
//! Where it did not, the SDK behind us may make one up: an integer that the peer has not used.

use std::collections::VecDeque;

use crate::Id;
use crate::id::IdRef;

/// Ids that are remembered; the oldest goes first.
const MAX_NAMED: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Untracked {
    named: VecDeque<Id>,
    nameless: u64,
}

impl Untracked {
    /// A message went to the language, and this is its id if it has one.
    pub(crate) fn note(&mut self, id: Option<&IdRef<'_>>) {
        let Some(id) = id else {
            self.nameless += 1;
            return;
        };
        if self.named.len() == MAX_NAMED {
            self.named.pop_front();
        }
        self.named.push_back(id.to_id());
    }

    /// Whether an answer under this id, of no request in the table, is one of those. `used` says that
    /// the peer is known to have used the id for a request.
    pub(crate) fn answer(&mut self, id: &IdRef<'_>, used: bool) -> bool {
        if let Some(place) = self.named.iter().position(|named| id.matches(named)) {
            self.named.remove(place);
            return true;
        }
        let made_up = matches!(id, IdRef::Int(_)) && !used && self.nameless > 0;
        self.nameless -= u64::from(made_up);
        made_up
    }
}
