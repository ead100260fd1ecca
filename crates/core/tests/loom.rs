//! Every interleaving of the parts that do without the lock, and of those that meet at it.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p countermand-core --test loom --target-dir target/loom`. Beside each test stands the
//! ordering, or the line, without which it fails.
#![cfg(loom)]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32 as Count, Ordering as Plain};
use std::task::{Context, Poll, Wake, Waker};

use countermand_core::{
    Cause, Config, Connection, IgnoreReason, Received, Section, Sent, SwallowReason, Time,
};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#;
const CANCEL: &[u8] =
    br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
const ANSWER: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

/// What a writer does last and a reader first. loom only remembers the last access to an atomic, and the writer
/// looks at the token before it trips it: without this loom would not find out that the reader may come later.
#[derive(Clone)]
struct Later(Arc<AtomicU32>);

impl Later {
    fn new() -> Self {
        Self(Arc::new(AtomicU32::new(0)))
    }

    fn written(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    fn read(&self) {
        self.0.load(Ordering::Relaxed);
    }
}

/// `words::Page::set`: `Release` to `Relaxed`; `words::Page::tripped`: `Acquire` to `Relaxed`.
#[test]
fn i8_who_sees_the_trip_sees_what_came_before_it() {
    loom::model(|| {
        let connection = Connection::new(Config::default());
        let token = connection.root().child();
        let before = Arc::new(AtomicU32::new(0));
        let later = Later::new();
        let tripping = {
            let (token, before, later) = (token.clone(), before.clone(), later.clone());
            thread::spawn(move || {
                before.store(1, Ordering::Relaxed);
                token.trip(Cause::Peer, None);
                later.written();
            })
        };
        later.read();
        if token.cancelled() {
            assert_eq!(before.load(Ordering::Relaxed), 1);
        }
        tripping.join().unwrap();
    });
}

/// `words::Page::cause`: `Acquire` to `Relaxed`.
#[test]
fn i8_who_sees_the_cause_sees_what_came_before_it() {
    loom::model(|| {
        let connection = Connection::new(Config::default());
        let token = connection.root().child();
        let before = Arc::new(AtomicU32::new(0));
        let later = Later::new();
        let tripping = {
            let (token, before, later) = (token.clone(), before.clone(), later.clone());
            thread::spawn(move || {
                before.store(1, Ordering::Relaxed);
                token.trip(Cause::Peer, None);
                later.written();
            })
        };
        later.read();
        if token.cause() == Some(Cause::Peer) {
            assert_eq!(before.load(Ordering::Relaxed), 1);
        }
        tripping.join().unwrap();
    });
}

/// `tree::Tree::add`: a child of a tripped parent is born tripped.
#[test]
fn i8_a_child_made_during_the_trip_is_tripped_after_it() {
    loom::model(|| {
        let connection = Connection::new(Config::default());
        let parent = connection.root().child();
        let tripping = {
            let parent = parent.clone();
            thread::spawn(move || assert!(parent.trip(Cause::Peer, None)))
        };
        let child = parent.child();
        tripping.join().unwrap();
        assert!(child.cancelled());
    });
}

struct Woken(Count);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Plain::SeqCst);
    }
}

/// `token::Wait::poll`: the second look, after the waker was registered; `tree::Tree::watch`: the first.
#[test]
fn i11_a_wait_and_its_trip_lose_no_wake_up() {
    loom::model(|| {
        let connection = Connection::new(Config::default());
        let token = connection.root().child();
        let tripping = {
            let token = token.clone();
            thread::spawn(move || assert!(token.trip(Cause::Peer, None)))
        };
        let woken = std::sync::Arc::new(Woken(Count::new(0)));
        let waker = Waker::from(woken.clone());
        let mut wait = pin!(token.wait());
        let polled = wait.as_mut().poll(&mut Context::from_waker(&waker));
        tripping.join().unwrap();
        assert!(polled == Poll::Ready(Cause::Peer) || woken.0.load(Plain::SeqCst) == 1);
        assert_eq!(connection.stats().watches, 0);
    });
}

/// `inbound::Table::answer`: a cancelled entry is not answered.
#[test]
fn i2_an_answer_and_its_cancel_agree() {
    loom::model(|| {
        let connection = Connection::new(Config::default());
        let Received::Deliver { request: Some(request), .. } = connection.receive(CALL, Time(0))
        else {
            panic!("a request is delivered")
        };
        assert!(connection.start(request.generation, Time(0)));
        let cancelling = {
            let connection = connection.clone();
            thread::spawn(move || connection.receive(CANCEL, Time(1)))
        };
        let sent = connection.send(ANSWER, Time(1));
        match (sent, cancelling.join().unwrap()) {
            (Sent::Write, Received::Ignored(IgnoreReason::LateCancel))
            | (Sent::Swallow(SwallowReason::CancelledAnswer), Received::Cancelled { .. }) => {}
            other => panic!("{other:?}"),
        }
    });
}

/// `token::Token::drop`: without its `released`; `tree::Tree::collect`: without the look at `attached`.
#[test]
fn i11_handles_dropped_at_once_give_the_slot_back_once() {
    loom::model(|| {
        let connection = Connection::new(Config::default());
        let Received::Deliver { request: Some(request), .. } = connection.receive(CALL, Time(0))
        else {
            panic!("a request is delivered")
        };
        let token = connection.token(request.generation).unwrap();
        let dropping = {
            let clone = token.clone();
            thread::spawn(move || drop(clone))
        };
        connection.discard(request.generation);
        drop(token);
        dropping.join().unwrap();
        assert_eq!(connection.stats().tokens, 0);
        // Handed out again, the slot is nobody else's.
        let (a, b) = (connection.root().child(), connection.root().child());
        assert_ne!(a.slot(), b.slot());
    });
}

/// `section::Section::break_off` and `reach`: without `if state.inside`, or with the lock given back before the call.
#[test]
fn i7_right_target_nothing_is_raised_once_the_code_was_left() {
    loom::model(|| {
        let section = Arc::new(Section::new());
        let left = Arc::new(AtomicU32::new(0));
        let breaking = {
            let (section, left) = (section.clone(), left.clone());
            thread::spawn(move || {
                section.reach(|| assert_eq!(left.load(Ordering::Relaxed), 0));
                section.break_off(|| assert_eq!(left.load(Ordering::Relaxed), 0))
            })
        };
        if section.enter() {
            section.leave();
            left.store(1, Ordering::Relaxed);
        }
        assert!(breaking.join().unwrap());
    });
}
