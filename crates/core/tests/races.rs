//! Races between real threads: whoever wins, both sides agree on it.

mod common;

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

use common::{call, cancel, result, run};
use countermand_core::{
    Begin, Cause, Config, Connection, Finish, IgnoreReason, Received, Sent, SwallowReason, Time,
    Token,
};
use serde_json::json;

const TRIALS: u64 = 2_000;

/// Runs both at the same moment and returns what they returned.
fn at_once<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let a = scope.spawn(|| {
            start.wait();
            a()
        });
        start.wait();
        let b = b();
        (a.join().unwrap(), b)
    })
}

#[test]
fn i1_one_answer_of_two_at_once_one_is_written() {
    let connection = Connection::new(Config::default());
    for number in 0..TRIALS {
        let id = json!(number);
        run(&connection, &id);
        let answer = result(&id);
        let send = || connection.send(&answer, Time(1));
        let (a, b) = at_once(send, send);
        let written = [&a, &b].iter().filter(|sent| ***sent == Sent::Write).count();
        assert_eq!(written, 1, "{a:?} and {b:?}");
    }
    assert_eq!(connection.stats().answered, TRIALS);
    assert_eq!(connection.stats().swallowed_unknown, TRIALS);
}

#[test]
fn i2_silence_a_cancel_and_an_answer_agree_on_who_was_first() {
    let connection = Connection::new(Config::default());
    for number in 0..TRIALS {
        let id = json!(number);
        let request = run(&connection, &id);
        let token = connection.token(request.generation).unwrap();
        let (answer, cancel) = (result(&id), cancel(&id));
        let (sent, received) = at_once(
            || {
                connection.finish(request.generation, Time(1));
                connection.send(&answer, Time(1))
            },
            || connection.receive(&cancel, Time(1)),
        );
        match (&sent, &received) {
            (Sent::Write, Received::Ignored(IgnoreReason::LateCancel)) => {
                assert!(!token.cancelled());
            }
            (Sent::Swallow(SwallowReason::CancelledAnswer), Received::Cancelled { .. }) => {
                assert!(token.cancelled());
            }
            other => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!(connection.stats().in_flight, 0);
}

#[test]
fn i2_silence_the_end_of_the_connection_and_an_answer_agree() {
    for _ in 0..TRIALS / 10 {
        let connection = Connection::new(Config::default());
        let request = run(&connection, &json!(1));
        let answer = result(&json!(1));
        let (sent, cancelled) = at_once(
            || connection.send(&answer, Time(1)),
            || connection.close(Cause::Disconnect, Time(1)),
        );
        match sent {
            Sent::Write => assert_eq!(cancelled, []),
            Sent::Swallow(SwallowReason::Closed) => assert_eq!(cancelled, [request.generation]),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn k11_a_cancel_and_the_start_of_its_handler_agree() {
    let connection = Connection::new(Config::default());
    for number in 0..TRIALS {
        let id = json!(number);
        let received = connection.receive(&call(&id), Time(0));
        let Received::Deliver { request: Some(request), .. } = received else { panic!() };
        let token = connection.token(request.generation).unwrap();
        let cancel = cancel(&id);
        let (started, received) = at_once(
            || connection.start(request.generation, Time(1)),
            || connection.receive(&cancel, Time(1)),
        );
        assert!(matches!(received, Received::Cancelled { .. }), "{received:?}");
        assert!(token.cancelled());
        let finish = connection.finish(request.generation, Time(2));
        assert!(matches!(finish, Finish::Silent), "{finish:?}, started: {started}");
        assert!(matches!(connection.send(&result(&id), Time(2)), Sent::Swallow(_)));
    }
    let stats = connection.stats();
    assert_eq!((stats.in_flight, stats.tokens), (0, 0));
}

#[test]
fn i8_whole_subtree_a_child_made_during_the_trip_is_tripped_after_it() {
    for _ in 0..TRIALS {
        let connection = Connection::new(Config::default());
        let parent = connection.root().child();
        let ((), child) = at_once(
            || assert!(parent.trip(Cause::Peer, None)),
            || {
                let child = parent.child();
                let grandchild = child.child();
                (child, grandchild)
            },
        );
        assert!(child.0.cancelled() && child.1.cancelled());
    }
}

#[test]
fn i8_whole_subtree_two_trips_at_once_have_one_cause() {
    for _ in 0..TRIALS {
        let connection = Connection::new(Config::default());
        let parent = connection.root().child();
        let child = parent.child();
        let (a, b) =
            at_once(|| parent.trip(Cause::Timeout, None), || parent.trip(Cause::Local, None));
        assert!(a ^ b, "one trip did it");
        let cause = Some(if a { Cause::Timeout } else { Cause::Local });
        assert_eq!((parent.cause(), child.cause()), (cause, cause));
    }
}

#[test]
fn i10_fresh_ids_are_never_given_twice() {
    let connection = Connection::new(Config::default());
    let mint = || {
        (0..TRIALS)
            .map(|_| {
                connection
                    .begin(&Begin { method: "ping", ..Begin::default() }, Time(0))
                    .unwrap()
                    .call
                    .0
            })
            .collect::<Vec<_>>()
    };
    let (a, b) = at_once(mint, mint);
    assert!(a.is_sorted() && b.is_sorted());
    let all: BTreeSet<_> = a.into_iter().chain(b).collect();
    assert_eq!(all.len() as u64, 2 * TRIALS);
}

#[test]
fn i11_nothing_left_handles_dropped_at_once_give_their_slots_back() {
    let connection = Connection::new(Config::default());
    for _ in 0..TRIALS {
        let parent = connection.root().child();
        let (child, clone) = (parent.child(), parent.clone());
        at_once(
            || drop((parent, child.clone())),
            || {
                drop(clone);
                drop(child.child());
                drop(child.clone());
            },
        );
    }
    assert_eq!(connection.stats().tokens, 0);
}

#[test]
fn i11_nothing_left_a_wait_and_its_trip_lose_nothing() {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    struct Count(AtomicU32);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    for _ in 0..TRIALS {
        let connection = Connection::new(Config::default());
        let token: Token = connection.root().child();
        let count = Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(count.clone());
        let mut wait = pin!(token.wait());
        let (polled, _) = at_once(
            || wait.as_mut().poll(&mut Context::from_waker(&waker)),
            || token.trip(Cause::Peer, None),
        );
        match polled {
            Poll::Ready(cause) => assert_eq!(cause, Cause::Peer),
            Poll::Pending => assert_eq!(count.0.load(Ordering::SeqCst), 1, "woken once"),
        }
        assert_eq!(connection.stats().watches, 0);
    }
}
