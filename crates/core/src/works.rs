//! What runs for requests beside their handlers, threads and processes, so that what outlives its request
//! is not forgotten. Who runs it says when it is done.

use std::sync::Arc;

use slab::Slab;

use crate::connection::Shared;
use crate::{Cause, Generation, Id, Time, Token, Work};

/// One thread or process that runs for a request.
pub(crate) struct Running {
    pub(crate) generation: Generation,
    pub(crate) work: Work,
    /// What its request is called, for when the request is no longer in the table.
    pub(crate) id: Id,
    pub(crate) row: u32,
    /// When and why its request was cancelled.
    pub(crate) cancelled: Option<(Time, Cause)>,
}

#[derive(Default)]
pub(crate) struct Works {
    running: Slab<Running>,
}

impl Works {
    pub(crate) fn add(&mut self, running: Running) -> usize {
        self.running.insert(running)
    }

    pub(crate) fn cancelled(&mut self, generation: Generation, cause: Cause, now: Time) {
        for (_, running) in &mut self.running {
            if running.generation == generation {
                running.cancelled.get_or_insert((now, cause));
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Running> {
        self.running.iter().map(|(_, running)| running)
    }

    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }
}

/// Something runs for a request until this is dropped.
#[must_use = "the work counts as done when this is dropped"]
pub struct Working {
    shared: Arc<Shared>,
    key: usize,
}

impl std::fmt::Debug for Working {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Working").finish_non_exhaustive()
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.shared.state.lock().works.running.try_remove(self.key);
    }
}

impl Token {
    /// A thread or a process begins to run for the request that this is a token of, or a token below it. `None`
    /// if it is of none, or if that is no longer in the table.
    pub fn work(&self, work: Work) -> Option<Working> {
        let mut state = self.shared.state.lock();
        let top = state.tree.top(self.slot);
        // Nothing here is as rare as this: the table keeps no index for it.
        let entry = state.table.iter().find(|entry| entry.token == Some(top))?;
        let cancelled = entry.cancelled.as_ref().map(|cancelled| (cancelled.at, cancelled.cause));
        let (generation, id, row) = (entry.generation, entry.wire.clone(), entry.row);
        let key = state.works.add(Running { generation, work, id, row, cancelled });
        Some(Working { shared: self.shared.clone(), key })
    }
}
