//! The token tree of one connection: an arena of linked nodes under the connection's lock.
//!
//! What must hold here: when [`Tree::trip`] returns, every node below is tripped; a child made
//! under a tripped parent is born tripped; the first cause wins. A slot is given back when
//! nothing needs it: no table entry (`attached`), no handle, no child.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;

use slab::Slab;

use crate::Cause;
use crate::sync::Ordering;
use crate::words::{PAGE_WORDS, Page};

/// "No node", and the end of every list.
const NIL: u32 = u32::MAX;
/// The root is made with the tree and lives as long.
pub(crate) const ROOT: u32 = 0;

#[derive(Debug, Default)]
struct Node {
    parent: u32,
    first_child: u32,
    next: u32,
    prev: u32,
    first_waiter: u32,
    /// A table entry (or the tree itself, for the root) needs this node.
    attached: bool,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    node: u32,
    next: u32,
    prev: u32,
    waker: Waker,
}

/// Names one registered waker. The id tells a reused place from the one that was meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaiterKey {
    place: u32,
    id: u64,
}

#[derive(Debug)]
pub(crate) struct Tree {
    pages: Vec<Arc<Page>>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    waiters: Slab<Waiter>,
    next_waiter: u64,
    /// Only tripped nodes with a reason: nearly always empty.
    reasons: HashMap<u32, Arc<str>>,
    /// Requests of ours that are abandoned when their node trips.
    bound: HashMap<u32, u64>,
    /// Those of them that a trip has met.
    cut: Vec<u64>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let mut tree = Self {
            pages: Vec::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            waiters: Slab::new(),
            next_waiter: 0,
            reasons: HashMap::new(),
            bound: HashMap::new(),
            cut: Vec::new(),
        };
        let root = tree.allocate(NIL, NIL);
        debug_assert_eq!(root, ROOT);
        tree
    }

    /// Nodes in use, the root not counted.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - self.free.len() - 1
    }

    pub(crate) fn waiters(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn page(&self, slot: u32) -> &Arc<Page> {
        &self.pages[slot as usize / PAGE_WORDS]
    }

    pub(crate) fn page_at(&self, number: usize) -> Option<&Arc<Page>> {
        self.pages.get(number)
    }

    pub(crate) fn serial(&self, slot: u32) -> u32 {
        self.page(slot).serial(slot)
    }

    pub(crate) fn cause(&self, slot: u32) -> Option<Cause> {
        self.page(slot).cause(slot)
    }

    pub(crate) fn reason(&self, slot: u32) -> Option<Arc<str>> {
        self.reasons.get(&slot).cloned()
    }

    /// The node below the root that this one is, or stands below.
    pub(crate) fn top(&self, mut slot: u32) -> u32 {
        while slot != ROOT && self.nodes[slot as usize].parent != ROOT {
            slot = self.nodes[slot as usize].parent;
        }
        slot
    }

    /// Makes a child of `parent`, attached, and says its slot and serial; it is born tripped if the
    /// parent is.
    #[inline(always)]
    pub(crate) fn add(&mut self, parent: u32) -> (u32, u32) {
        let next = self.nodes[parent as usize].first_child;
        let slot = self.allocate(parent, next);
        self.nodes[parent as usize].first_child = slot;
        if next != NIL {
            self.nodes[next as usize].prev = slot;
        }
        let serial = self.serial(slot);
        if let Some(cause) = self.cause(parent) {
            self.page(slot).set(slot, serial, Some(cause));
            if let Some(reason) = self.reason(parent) {
                self.reasons.insert(slot, reason);
            }
        }
        (slot, serial)
    }

    /// The node is that of this request of ours.
    pub(crate) fn bind(&mut self, slot: u32, call: u64) {
        self.bound.insert(slot, call);
    }

    pub(crate) fn unbind(&mut self, slot: u32) {
        self.bound.remove(&slot);
    }

    /// The requests of ours whose nodes have tripped, told once, in the order of their ids.
    pub(crate) fn take_cut(&mut self) -> Vec<u64> {
        let mut cut = std::mem::take(&mut self.cut);
        cut.sort_unstable();
        cut
    }

    /// The table entry behind this node is gone.
    pub(crate) fn detach(&mut self, slot: u32) {
        self.nodes[slot as usize].attached = false;
        self.collect(slot);
    }

    /// A handle was dropped, perhaps the last; `serial` says which use of the slot it meant.
    pub(crate) fn released(&mut self, slot: u32, serial: u32) {
        if self.serial(slot) == serial {
            self.collect(slot);
        }
    }

    /// Gives back the slot, and any ancestor that only it kept, if nothing needs them.
    fn collect(&mut self, mut slot: u32) {
        while slot != ROOT {
            let node = &self.nodes[slot as usize];
            // Handles are only made under the lock, which we hold: a zero stays a zero.
            let handles = self.page(slot).handles(slot).load(Ordering::Acquire);
            if node.attached || node.first_child != NIL || handles != 0 {
                return;
            }
            let parent = node.parent;
            self.unlink(slot);
            if !self.reasons.is_empty() {
                self.reasons.remove(&slot);
            }
            debug_assert_eq!(self.nodes[slot as usize].first_waiter, NIL, "a watch holds a handle");
            let serial = self.serial(slot);
            self.page(slot).set(slot, next_serial(serial), None);
            self.free.push(slot);
            slot = parent;
        }
    }

    /// Trips `start` and everything below it; the wakers to call, once the lock is released, are
    /// added to `wake`. False if it had tripped before, and nothing was done.
    pub(crate) fn trip(
        &mut self,
        start: u32,
        cause: Cause,
        reason: Option<&Arc<str>>,
        wake: &mut Vec<Waker>,
    ) -> bool {
        if self.page(start).tripped(start) {
            return false;
        }
        let mut slot = start;
        loop {
            let page = &self.pages[slot as usize / PAGE_WORDS];
            // A tripped node's subtree has tripped before: there is nothing to do below it.
            let descend = !page.tripped(slot);
            if descend {
                page.set(slot, page.serial(slot), Some(cause));
                if let Some(reason) = reason {
                    self.reasons.insert(slot, reason.clone());
                }
                self.take_waiters(slot, wake);
                if !self.bound.is_empty() {
                    self.cut.extend(self.bound.remove(&slot));
                }
            }
            let child = self.nodes[slot as usize].first_child;
            if descend && child != NIL {
                slot = child;
                continue;
            }
            while slot != start && self.nodes[slot as usize].next == NIL {
                slot = self.nodes[slot as usize].parent;
            }
            if slot == start {
                return true;
            }
            slot = self.nodes[slot as usize].next;
        }
    }

    /// Registers the waker to be woken by the trip of `slot`, or leaves it where it is and returns
    /// `None` if that has happened already.
    pub(crate) fn watch(&mut self, slot: u32, waker: &mut Option<Waker>) -> Option<WaiterKey> {
        if self.page(slot).tripped(slot) {
            return None;
        }
        let waker = waker.take()?;
        let id = self.next_waiter;
        self.next_waiter += 1;
        let next = self.nodes[slot as usize].first_waiter;
        let place = small(self.waiters.insert(Waiter { id, node: slot, next, prev: NIL, waker }));
        if next != NIL {
            self.waiters[next as usize].prev = place;
        }
        self.nodes[slot as usize].first_waiter = place;
        Some(WaiterKey { place, id })
    }

    /// Takes the waker back, for the caller to drop once the lock is released: dropping a waker
    /// runs code that is not ours.
    pub(crate) fn unwatch(&mut self, key: WaiterKey) -> Option<Waker> {
        let place = key.place as usize;
        if self.waiters.get(place).is_none_or(|waiter| waiter.id != key.id) {
            return None;
        }
        let waiter = self.waiters.remove(place);
        if waiter.prev == NIL {
            self.nodes[waiter.node as usize].first_waiter = waiter.next;
        } else {
            self.waiters[waiter.prev as usize].next = waiter.next;
        }
        if waiter.next != NIL {
            self.waiters[waiter.next as usize].prev = waiter.prev;
        }
        Some(waiter.waker)
    }

    fn take_waiters(&mut self, slot: u32, wake: &mut Vec<Waker>) {
        let mut place = std::mem::replace(&mut self.nodes[slot as usize].first_waiter, NIL);
        while place != NIL {
            let waiter = self.waiters.remove(place as usize);
            wake.push(waiter.waker);
            place = waiter.next;
        }
    }

    /// Takes a slot for a new node. It is written in place: built elsewhere and moved, it would be
    /// read back before the small writes have settled.
    #[inline(always)]
    fn allocate(&mut self, parent: u32, next: u32) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        let node = &mut self.nodes[slot as usize];
        node.parent = parent;
        node.first_child = NIL;
        node.next = next;
        node.prev = NIL;
        node.first_waiter = NIL;
        node.attached = true;
        slot
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let slot = small(self.nodes.len());
        if self.nodes.len() == self.nodes.capacity() {
            // A quarter more, not twice: what a busy moment took is kept for good.
            self.nodes.reserve_exact(self.nodes.len() / 4 + 16);
        }
        self.nodes.push(Node::default());
        if slot as usize / PAGE_WORDS == self.pages.len() {
            self.pages.push(Arc::new(Page::new()));
        }
        self.page(slot).set(slot, 1, None);
        slot
    }

    fn unlink(&mut self, slot: u32) {
        let Node { parent, next, prev, .. } = self.nodes[slot as usize];
        if prev == NIL {
            self.nodes[parent as usize].first_child = next;
        } else {
            self.nodes[prev as usize].next = next;
        }
        if next != NIL {
            self.nodes[next as usize].prev = prev;
        }
    }
}

/// Serials are 29 bits and never 0, so that 0 can mean "no token".
fn next_serial(serial: u32) -> u32 {
    let next = (serial + 1) & (u32::MAX >> 3);
    if next == 0 { 1 } else { next }
}

/// Arena places fit in 32 bits: memory would end long before.
pub(crate) fn small(place: usize) -> u32 {
    u32::try_from(place).expect("an arena has fewer than 2^32 places")
}
