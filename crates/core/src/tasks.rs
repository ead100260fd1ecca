//! The tokens of tasks: a task outlives the request that asked for it, and so does its token.
//!
//! Once the handle was returned, the request is answered and `notifications/cancelled` has nothing
//! to hit; `tasks/cancel` trips the token that stands here (2025-11-25, "Tasks"). What is answered
//! to it is the SDK's business.

use std::collections::VecDeque;

#[derive(Debug)]
struct Task {
    id: Box<[u8]>,
    token: u32,
}

/// Few tasks live at once: a list in order of age serves.
#[derive(Debug)]
pub(crate) struct Tasks {
    tasks: VecDeque<Task>,
    max: usize,
}

impl Tasks {
    pub(crate) fn new(max: usize) -> Self {
        Self { tasks: VecDeque::new(), max }
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Keeps the token of a task; returns one that must be let go for it, if any.
    #[must_use]
    pub(crate) fn insert(&mut self, id: &[u8], token: u32) -> Option<u32> {
        if self.max == 0 {
            return Some(token);
        }
        let replaced = self.remove(id);
        let crowded_out = if self.tasks.len() == self.max { self.tasks.pop_front() } else { None };
        self.tasks.push_back(Task { id: id.into(), token });
        replaced.or(crowded_out.map(|task| task.token))
    }

    pub(crate) fn token(&self, id: &[u8]) -> Option<u32> {
        self.tasks.iter().find(|task| *task.id == *id).map(|task| task.token)
    }

    /// The task has ended: gives its token back.
    #[must_use]
    pub(crate) fn remove(&mut self, id: &[u8]) -> Option<u32> {
        let place = self.tasks.iter().position(|task| *task.id == *id)?;
        self.tasks.remove(place).map(|task| task.token)
    }

    /// Lets all go.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.tasks.drain(..).map(|task| task.token)
    }
}

/// Whether a task with this status has ended.
pub(crate) fn terminal(status: &[u8]) -> bool {
    matches!(status, b"completed" | b"failed" | b"cancelled")
}
