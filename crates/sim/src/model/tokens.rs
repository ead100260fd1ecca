//! The model's token tree: a list in which every node knows its parent.

use countermand_core::Cause;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    parent: usize,
    pub(crate) cause: Option<Cause>,
    pub(crate) reason: Option<String>,
    /// A request or a task stands behind it.
    pub(crate) attached: bool,
    /// Handles that our side holds.
    pub(crate) handles: usize,
}

/// All nodes that ever were; the first is the root. A node's parent stands before it.
#[derive(Clone, Debug)]
pub(crate) struct Tokens(Vec<Node>);

impl Tokens {
    pub(crate) fn new() -> Self {
        let root = Node { parent: 0, cause: None, reason: None, attached: true, handles: 0 };
        Self(vec![root])
    }

    /// A child, born tripped if the parent has tripped.
    pub(crate) fn add(&mut self, parent: usize) -> usize {
        let Node { cause, ref reason, .. } = self.0[parent];
        let node = Node { parent, cause, reason: reason.clone(), attached: false, handles: 0 };
        self.0.push(node);
        self.0.len() - 1
    }

    pub(crate) fn node(&self, token: usize) -> &Node {
        &self.0[token]
    }

    pub(crate) fn node_mut(&mut self, token: usize) -> &mut Node {
        &mut self.0[token]
    }

    /// How far below the root it stands.
    pub(crate) fn depth(&self, token: usize) -> usize {
        if token == 0 { 0 } else { 1 + self.depth(self.0[token].parent) }
    }

    /// Trips a token and everything below it, but not what has tripped before.
    pub(crate) fn trip(&mut self, token: usize, cause: Cause, reason: Option<&str>) -> bool {
        if self.0[token].cause.is_some() {
            return false;
        }
        let mut below = vec![false; self.0.len()];
        for place in token..self.0.len() {
            below[place] = place == token || below[self.0[place].parent];
            if below[place] && self.0[place].cause.is_none() {
                self.0[place].cause = Some(cause);
                self.0[place].reason = reason.map(str::to_owned);
            }
        }
        true
    }

    /// Nodes that something still needs: a request, a task, a handle, or a child. Without the root.
    pub(crate) fn needed(&self) -> usize {
        let mut needed = vec![false; self.0.len()];
        for (place, node) in self.0.iter().enumerate().skip(1).rev() {
            needed[place] |= node.attached || node.handles > 0;
            needed[node.parent] |= needed[place];
        }
        needed.iter().skip(1).filter(|needed| **needed).count()
    }
}
