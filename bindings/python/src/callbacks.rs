//! Trips as Python learns of them off the event loop: a queue of keys, read by one thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Wake, Waker};

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::token::Token;

/// Where keys arrive whose token has tripped.
#[pyclass(frozen, module = "countermand._native")]
pub(crate) struct Callbacks {
    sender: Sender<u64>,
    receiver: Mutex<Receiver<u64>>,
}

struct Key {
    key: u64,
    sender: Sender<u64>,
}

impl Wake for Key {
    fn wake(self: Arc<Self>) {
        // Nobody reads any more only when the process ends.
        let _ = self.sender.send(self.key);
    }
}

impl Callbacks {
    /// A waker that has `key` arrive.
    pub(crate) fn waker(&self, key: u64) -> Waker {
        Waker::from(Arc::new(Key { key, sender: self.sender.clone() }))
    }
}

#[pymethods]
impl Callbacks {
    #[new]
    fn new() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver: Mutex::new(receiver) }
    }

    /// Waits, without the GIL, for the next key.
    fn next(&self, py: Python<'_>) -> Option<u64> {
        py.detach(|| self.receiver.lock().recv().ok())
    }

    /// Has `key` arrive when the token trips, at once if it has.
    fn watch(&self, token: &Bound<'_, Token>, key: u64) -> Watch {
        let token = token.get().inner.clone();
        Watch { watch: Mutex::new(Some(token.watch(&self.waker(key)))), token }
    }
}

/// Keeps a watch up until it is closed or dropped.
#[pyclass(frozen, module = "countermand._native")]
pub(crate) struct Watch {
    token: countermand_core::Token,
    watch: Mutex<Option<countermand_core::Watch>>,
}

#[pymethods]
impl Watch {
    /// Whether the token has tripped: its key has been sent then, or is about to be.
    #[getter]
    fn tripped(&self) -> bool {
        self.token.cancelled()
    }

    fn close(&self) {
        // Taken out first: what a watch lets go of runs outside this lock.
        let watch = self.watch.lock().take();
        drop(watch);
    }
}
