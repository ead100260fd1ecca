//! The queue from the wire to a language: events in order, bounded in bytes, with a wake-up that
//! is given once until the language has looked.
//!
//! A request that is cancelled while it still waits here is taken out: no handler ever starts.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use countermand_core::{Call, CallOutcome, Cause, Generation, Inbound};
use parking_lot::Mutex;

/// What a language is told, in order. A `Cancelled` never stands before the `Message` of its own
/// generation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A frame to hand to the SDK.
    Message {
        /// Its bytes, without a newline.
        frame: Vec<u8>,
        /// The request that it opened, if it opened one.
        request: Option<Inbound>,
    },
    /// A request that the language has been given was cancelled; its token has tripped before.
    Cancelled {
        /// The request.
        generation: Generation,
        /// The id by which the SDK knows it, as JSON.
        inner_id: Box<str>,
    },
    /// A request of ours has its response.
    Settled {
        /// The request.
        call: Call,
        /// The response, without a newline.
        frame: Vec<u8>,
    },
    /// A request of ours has made progress. Never after its end.
    Progress {
        /// The request.
        call: Call,
        /// The notification, without a newline.
        frame: Vec<u8>,
    },
    /// A request of ours was abandoned: nothing more comes for it.
    Abandoned {
        /// The request.
        call: Call,
        /// Why.
        cause: Cause,
        /// What was given as the reason.
        reason: Option<Arc<str>>,
        /// What is known of its effects so far.
        outcome: CallOutcome,
    },
    /// A waker made with this key was woken.
    Woken(u64),
    /// The queue toward the peer has room again.
    Writable,
    /// The connection is over. The last event, but for a wire to a command.
    Closed {
        /// Why.
        cause: Cause,
    },
    /// Nothing is left of the command's tree, but for what outlives SIGKILL. The last event.
    Gone {
        /// How many processes that are.
        left: u32,
    },
}

/// Beside a frame's own bytes, what its place in the queue costs: many small ones are bounded too.
const OVERHEAD: usize = 96;

#[derive(Debug)]
struct Item {
    /// `None` once it was taken out of the middle.
    event: Option<Event>,
    /// The newest generation at the time: increases along the queue, so that it can be searched.
    order: u64,
}

struct State {
    queue: VecDeque<Item>,
    bytes: usize,
    order: u64,
    /// The language was woken and has not looked since.
    told: bool,
    closed: bool,
}

pub(crate) struct Inbox {
    state: Mutex<State>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Inbox {
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let state =
            State { queue: VecDeque::new(), bytes: 0, order: 0, told: false, closed: false };
        Arc::new(Self { state: Mutex::new(state), wake: Box::new(wake) })
    }

    /// Appends an event. The language is not told yet: see [`tell`](Self::tell).
    pub(crate) fn push(&self, event: Event) {
        let mut state = self.state.lock();
        if state.closed && !matches!(event, Event::Gone { .. }) {
            return;
        }
        if let Event::Message { request: Some(request), .. } = &event {
            state.order = request.generation.0;
        }
        state.closed |= matches!(event, Event::Closed { .. });
        state.bytes += cost(&event);
        let order = state.order;
        state.queue.push_back(Item { event: Some(event), order });
    }

    /// Wakes the language if something waits that it does not know of.
    pub(crate) fn tell(&self) {
        let mut state = self.state.lock();
        let tell = !state.told && !state.queue.is_empty();
        state.told |= tell;
        drop(state);
        if tell {
            (self.wake)();
        }
    }

    /// Takes a request out, if it still waits: true if it did, and the language will never see it.
    pub(crate) fn withdraw(&self, generation: Generation) -> bool {
        let mut state = self.state.lock();
        let place = state.queue.partition_point(|item| item.order < generation.0);
        let Some(item) = state.queue.get_mut(place) else {
            return false;
        };
        match &item.event {
            Some(Event::Message { request: Some(request), .. })
                if request.generation == generation => {}
            _ => return false,
        }
        let frame = item.event.take();
        state.bytes -= frame.as_ref().map_or(0, cost) - OVERHEAD;
        while state.queue.back().is_some_and(|item| item.event.is_none()) {
            state.queue.pop_back();
            state.bytes -= OVERHEAD;
        }
        true
    }

    /// Takes out every request that still waits. A response that was read before the end is still delivered.
    pub(crate) fn withdraw_all(&self) -> Vec<Generation> {
        let mut state = self.state.lock();
        let mut withdrawn = Vec::new();
        state.queue.retain(|item| match &item.event {
            Some(Event::Message { request: Some(request), .. }) => {
                withdrawn.push(request.generation);
                false
            }
            Some(_) => true,
            None => false,
        });
        state.bytes = state.queue.iter().filter_map(|item| item.event.as_ref()).map(cost).sum();
        withdrawn
    }

    /// Moves up to `max` events to `out`, in order; true if more wait. Once it says false, the next
    /// event wakes the language again.
    pub(crate) fn drain(&self, max: usize, out: &mut Vec<Event>) -> bool {
        let mut state = self.state.lock();
        let goal = out.len().saturating_add(max);
        while out.len() < goal {
            let Some(item) = state.queue.pop_front() else {
                break;
            };
            state.bytes -= item.event.as_ref().map_or(OVERHEAD, cost);
            out.extend(item.event);
        }
        let more = !state.queue.is_empty();
        state.told = more;
        more
    }

    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// A waker that appends [`Event::Woken`] and wakes the language.
    pub(crate) fn waker(self: &Arc<Self>, key: u64) -> Waker {
        Waker::from(Arc::new(KeyWaker { inbox: Arc::downgrade(self), key }))
    }
}

fn cost(event: &Event) -> usize {
    match event {
        Event::Message { frame, .. }
        | Event::Settled { frame, .. }
        | Event::Progress { frame, .. } => frame.len() + OVERHEAD,
        _ => OVERHEAD,
    }
}

struct KeyWaker {
    inbox: Weak<Inbox>,
    key: u64,
}

impl Wake for KeyWaker {
    fn wake(self: Arc<Self>) {
        if let Some(inbox) = self.inbox.upgrade() {
            inbox.push(Event::Woken(self.key));
            inbox.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn request(generation: u64) -> Event {
        let request = Inbound { generation: Generation(generation), slot: 0, serial: 1 };
        Event::Message { frame: vec![b'x'; 10], request: Some(request) }
    }

    fn note() -> Event {
        Event::Message { frame: b"note".to_vec(), request: None }
    }

    #[test]
    fn k11_a_cancel_withdraws_just_its_request() {
        let inbox = Inbox::new(|| {});
        for event in [request(1), note(), request(2), note(), request(5)] {
            inbox.push(event);
        }
        assert!(!inbox.withdraw(Generation(3)));
        assert!(inbox.withdraw(Generation(2)));
        assert!(!inbox.withdraw(Generation(2)));
        assert!(inbox.withdraw(Generation(5)));
        let mut out = Vec::new();
        assert!(!inbox.drain(usize::MAX, &mut out));
        let seen: Vec<_> = out
            .iter()
            .map(|event| match event {
                Event::Message { request, .. } => request.map(|request| request.generation.0),
                _ => panic!("only messages were pushed"),
            })
            .collect();
        assert_eq!(seen, [Some(1), None, None]);
        assert_eq!(inbox.bytes(), 0);
        assert!(!inbox.withdraw(Generation(1)));
    }

    #[test]
    fn the_language_is_woken_once_until_it_looks() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let inbox = Inbox::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        inbox.push(note());
        inbox.tell();
        inbox.push(note());
        inbox.tell();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        let mut out = Vec::new();
        assert!(inbox.drain(1, &mut out), "one more waits, without a second wake-up");
        assert!(!inbox.drain(1, &mut out));
        inbox.tell();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        inbox.waker(7).wake();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}
