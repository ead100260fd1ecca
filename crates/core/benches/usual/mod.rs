//! The designs that MCP servers usually have: a map of cancellation tokens behind a mutex.

use std::collections::HashMap;
use std::sync::Mutex;

use rustc_hash::FxHashMap;
use tokio_util::sync::CancellationToken;

/// An id as these designs keep it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    /// An integer.
    Number(i64),
    /// A string.
    String(String),
}

/// What both do for a request.
pub(crate) trait Table {
    /// Takes the request in; its handler holds the token.
    fn register(&self, id: &Id) -> CancellationToken;
    /// The request is answered: true if it was there.
    fn complete(&self, id: &Id) -> bool;
}

/// std's `HashMap`, and for every request a child of the connection's token.
#[derive(Default)]
pub(crate) struct Nested {
    root: CancellationToken,
    requests: Mutex<HashMap<Id, CancellationToken>>,
}

impl Table for Nested {
    fn register(&self, id: &Id) -> CancellationToken {
        let token = self.root.child_token();
        self.requests.lock().unwrap().insert(id.clone(), token.clone());
        token
    }

    fn complete(&self, id: &Id) -> bool {
        self.requests.lock().unwrap().remove(id).is_some()
    }
}

/// The cheapest that still does the work: a fast hash and a token without a parent.
#[derive(Default)]
pub(crate) struct Flat {
    requests: Mutex<FxHashMap<Id, CancellationToken>>,
}

impl Table for Flat {
    fn register(&self, id: &Id) -> CancellationToken {
        let token = CancellationToken::new();
        self.requests.lock().unwrap().insert(id.clone(), token.clone());
        token
    }

    fn complete(&self, id: &Id) -> bool {
        self.requests.lock().unwrap().remove(id).is_some()
    }
}
