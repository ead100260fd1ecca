//! The invariants that concern requests of the peer, one by one, without races.

mod common;

use common::{call, cancel, result, run};
use countermand_core::{
    Cause, Config, Connection, Finish, IdRef, IgnoreReason, Limits, Received, RejectReason, Sent,
    SwallowReason, Time,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const LATER: Time = Time(3_600_000_000_000);

#[test]
fn i2_silence_neither_answer_nor_progress_follows_a_cancel() {
    let connection = Connection::new(Config::default());
    let with_progress = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"p"}}}"#;
    let received = connection.receive(with_progress, Time(0));
    let Received::Deliver { request: Some(request), .. } = received else { panic!() };
    assert!(connection.start(request.generation, Time(0)));
    let progress = br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#;
    assert_eq!(connection.send(progress, Time(1)), Sent::Write);
    assert!(matches!(connection.receive(&cancel(&json!(1)), Time(2)), Received::Cancelled { .. }));
    for _ in 0..3 {
        assert!(matches!(connection.send(progress, Time(3)), Sent::Swallow(_)));
        assert!(matches!(connection.send(&result(&json!(1)), Time(3)), Sent::Swallow(_)));
    }
    assert_eq!(connection.finish(request.generation, Time(4)), Finish::Silent);
    assert!(matches!(connection.send(progress, Time(5)), Sent::Swallow(_)));
}

#[test]
fn i1_one_answer_by_the_id_alone() {
    let limits = Limits { max_in_flight: 2, ..Limits::default() };
    let connection = Connection::new(Config { limits, ..Config::default() });
    let [one, two, three] = [IdRef::Int(1), IdRef::Int(2), IdRef::Int(3)];
    let first = connection.register(&one).unwrap();
    assert!(connection.register(&one).is_none(), "it is live");
    let second = connection.register(&two).unwrap();
    assert!(connection.register(&three).is_none(), "the table is full");
    assert!(connection.complete(&one, Time(1)) && !connection.complete(&one, Time(1)));
    assert!(connection.token(first.generation).is_none());
    assert!(matches!(connection.receive(&cancel(&json!(2)), Time(1)), Received::Cancelled { .. }));
    assert!(!connection.complete(&two, Time(2)));
    assert_eq!(connection.finish(second.generation, Time(2)), Finish::Unknown);
    assert_eq!((connection.stats().in_flight, connection.stats().tokens), (0, 0));
    connection.close(Cause::Disconnect, Time(3));
    assert!(connection.register(&three).is_none(), "the connection is over");
}

#[test]
fn i3_no_loss_who_was_not_cancelled_is_answered() {
    let connection = Connection::new(Config::default());
    let ids: Vec<Value> = (0..100).map(|number| json!(number)).collect();
    let requests: Vec<_> = ids.iter().map(|id| run(&connection, id)).collect();
    for id in ids.iter().step_by(2) {
        assert!(matches!(connection.receive(&cancel(id), Time(1)), Received::Cancelled { .. }));
    }
    for (number, request) in requests.iter().enumerate() {
        let owes = if number % 2 == 0 { Finish::Silent } else { Finish::Owed };
        assert_eq!(connection.finish(request.generation, Time(2)), owes);
    }
    for (number, id) in ids.iter().enumerate() {
        let sent = connection.send(&result(id), Time(3));
        assert_eq!(sent == Sent::Write, number % 2 == 1, "{id}: {sent:?}");
    }
}

#[test]
fn i3_no_loss_what_could_not_be_tracked_may_be_answered() {
    let connection = Connection::new(Config::default());
    // Not a JSON-RPC id: the SDK behind us may answer as it likes, once.
    let odd = br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#;
    assert!(matches!(connection.receive(odd, Time(0)), Received::Deliver { request: None, .. }));
    let answer = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"no"}}"#;
    assert_eq!(connection.send(answer, Time(1)), Sent::Write);
    assert!(matches!(connection.send(answer, Time(1)), Sent::Swallow(_)));
}

#[test]
fn i3_no_loss_an_untracked_message_is_answered_under_the_id_that_it_named() {
    let connection = Connection::new(Config::default());
    let odd = |id: usize| format!("{{\"id\":\"odd {id}\"}}").into_bytes();
    let answer = |id: usize| result(&json!(format!("odd {id}")));
    // One more than are remembered: the oldest is let go.
    for id in 0..65 {
        let received = connection.receive(&odd(id), Time(0));
        assert!(matches!(received, Received::Deliver { request: None, .. }));
    }
    for id in 1..65 {
        assert_eq!(connection.send(&answer(id), Time(1)), Sent::Write);
    }
    for id in [0, 1, 64, 65] {
        let sent = connection.send(&answer(id), Time(2));
        assert_eq!(sent, Sent::Swallow(SwallowReason::NoSuchRequest));
    }
}

#[test]
fn i7_right_target_connections_share_nothing() {
    let [mine, yours] = [(); 2].map(|()| Connection::new(Config::default()));
    let request = run(&yours, &json!(5));
    let token = yours.token(request.generation).unwrap();
    let received = mine.receive(&cancel(&json!(5)), Time(1));
    assert_eq!(received, Received::Ignored(IgnoreReason::UnknownCancel));
    mine.close(Cause::Disconnect, Time(1));
    assert!(!token.cancelled());
}

#[test]
fn i7_right_target_a_string_is_no_number() {
    let connection = Connection::new(Config::default());
    let (number, string) = (run(&connection, &json!(7)), run(&connection, &json!("7")));
    let received = connection.receive(&cancel(&json!("7")), Time(1));
    assert!(
        matches!(received, Received::Cancelled { generation, .. } if generation == string.generation)
    );
    assert!(!connection.token(number.generation).unwrap().cancelled());
    let alone = run(&connection, &json!(8));
    let received = connection.receive(&cancel(&json!("8")), Time(1));
    assert_eq!(received, Received::Ignored(IgnoreReason::UnknownCancel));
    assert!(!connection.token(alone.generation).unwrap().cancelled());
}

#[test]
fn i7_right_target_a_generation_of_the_past_means_nobody() {
    let connection = Connection::new(Config::default());
    let first = run(&connection, &json!(5));
    assert_eq!(connection.send(&result(&json!(5)), Time(1)), Sent::Write);
    let second = run(&connection, &json!(5));
    assert_ne!(first.generation, second.generation);
    assert_eq!(connection.finish(first.generation, Time(2)), Finish::Unknown);
    assert!(!connection.start(first.generation, Time(2)));
    connection.discard(first.generation);
    assert_eq!(connection.finish(second.generation, Time(3)), Finish::Owed);
}

#[test]
fn i8_whole_subtree_every_descendant_trips_and_nobody_else() {
    let connection = Connection::new(Config::default());
    let mine = connection.token(run(&connection, &json!(1)).generation).unwrap();
    let other = connection.token(run(&connection, &json!(2)).generation).unwrap();
    let mut level = vec![mine.clone()];
    let mut all = Vec::new();
    for _ in 0..8 {
        level = level.iter().flat_map(|token| [token.child(), token.child()]).collect();
        all.extend(level.iter().cloned());
    }
    let apart = other.child();
    assert!(matches!(connection.receive(&cancel(&json!(1)), Time(1)), Received::Cancelled { .. }));
    assert!(mine.cancelled() && all.iter().all(|token| token.cause() == Some(Cause::Peer)));
    assert!(all[200].child().cancelled(), "a later child is born tripped");
    assert!(!other.cancelled() && !apart.cancelled() && !apart.child().cancelled());
}

#[test]
fn i8_whole_subtree_a_child_trips_alone_and_outlives_its_parent() {
    let connection = Connection::new(Config::default());
    let parent = connection.root().child();
    let (child, sibling) = (parent.child(), parent.child());
    assert!(child.trip(Cause::Local, Some("enough")));
    assert!(!parent.cancelled() && !sibling.cancelled());
    let grandchild = sibling.child();
    drop((parent, sibling));
    connection.close(Cause::Shutdown, Time(1));
    assert_eq!(grandchild.cause(), Some(Cause::Shutdown));
    assert_eq!((child.cause(), child.reason().as_deref()), (Some(Cause::Local), Some("enough")));
}

#[test]
fn i9_handshake_no_cancel_reaches_initialize() {
    let connection = Connection::new(Config::default());
    let initialize = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
    let received = connection.receive(initialize, Time(0));
    let Received::Deliver { request: Some(request), .. } = received else { panic!() };
    let received = connection.receive(&cancel(&json!(0)), Time(0));
    assert_eq!(received, Received::Ignored(IgnoreReason::InitializeCancel));
    assert!(connection.start(request.generation, Time(0)));
    assert_eq!(connection.send(&result(&json!(0)), Time(1)), Sent::Write);
}

#[test]
fn i11_nothing_left_after_ten_thousand_requests_of_every_end() {
    let connection = Connection::new(Config::default());
    for number in 0..10_000 {
        let id = if number % 3 == 0 { json!(format!("r-{number}")) } else { json!(number) };
        let request = run(&connection, &id);
        let token = connection.token(request.generation).unwrap();
        let child = token.child();
        match number % 5 {
            0 => assert_eq!(connection.send(&result(&id), Time(number)), Sent::Write),
            1 => connection.discard(request.generation),
            // Cancelled, and answered all the same.
            2 => {
                connection.receive(&cancel(&id), Time(number));
                connection.finish(request.generation, Time(number));
                connection.send(&result(&id), Time(number));
            }
            // Cancelled, and never answered.
            3 => {
                connection.receive(&cancel(&id), Time(number));
                connection.finish(request.generation, Time(number));
            }
            // Answered in spite of its cancel, by a handler that goes on.
            _ => {
                connection.receive(&cancel(&id), Time(number));
                connection.send(&result(&id), Time(number));
                connection.finish(request.generation, Time(number));
            }
        }
        drop((token, child));
    }
    assert!(connection.poll_timeout().is_some());
    connection.handle_timeout(LATER);
    assert_eq!(connection.poll_timeout(), None);
    let stats = connection.stats();
    assert_eq!((stats.in_flight, stats.retired, stats.tokens, stats.watches), (0, 0, 0, 0));
}

#[test]
fn k14_what_a_flood_leaves_is_bounded() {
    let limits = Limits { max_in_flight: 50, max_retired: 20, ..Limits::default() };
    let connection = Connection::new(Config { limits, ..Config::default() });
    for number in 0..5_000 {
        let id = json!(number % 7);
        if let Received::Deliver { request: Some(request), .. } =
            connection.receive(&call(&id), Time(number))
        {
            connection.receive(&cancel(&id), Time(number));
            if number % 2 == 0 {
                connection.finish(request.generation, Time(number));
            }
        }
        let stats = connection.stats();
        assert!(stats.in_flight <= 50 && stats.retired <= 20, "{stats:?}");
    }
    let received = connection.receive(&call(&json!("one more")), Time(5_000));
    let Received::Reject { reason: RejectReason::TooManyInFlight, reply } = received else {
        panic!("{received:?}")
    };
    assert!(String::from_utf8(reply).unwrap().contains("max_in_flight"));
}

#[test]
fn k16_after_the_end_nothing_is_delivered_and_nothing_written() {
    let connection = Connection::new(Config::default());
    let requests: Vec<_> = (0..3).map(|id| run(&connection, &json!(id)).generation).collect();
    assert_eq!(connection.close(Cause::Disconnect, Time(1)), requests);
    assert_eq!(connection.close(Cause::Shutdown, Time(2)), []);
    let received = connection.receive(&call(&json!(9)), Time(3));
    assert_eq!(received, Received::Ignored(IgnoreReason::Closed));
    for (id, request) in requests.into_iter().enumerate() {
        assert_eq!(connection.finish(request, Time(4)), Finish::Silent);
        assert!(matches!(connection.send(&result(&json!(id)), Time(4)), Sent::Swallow(_)));
    }
    let note = br#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
    assert_eq!(connection.send(note, Time(4)), Sent::Swallow(SwallowReason::Closed));
    connection.handle_timeout(LATER);
    assert_eq!(connection.stats().in_flight + connection.stats().retired, 0);
    assert_eq!(connection.root().cause(), Some(Cause::Disconnect));
}

/// Any JSON.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((".{0,6}", inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn i14_transparency_what_is_no_cancel_passes_as_it_is(
        method in "[a-z/]{1,20}", id in any::<Option<i64>>(), params in any_json(), indent in any::<bool>(),
    ) {
        prop_assume!(method != "notifications/cancelled");
        let connection = Connection::new(Config::default());
        let mut message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        if let Some(id) = id {
            message["id"] = json!(id);
        }
        let frame = if indent { format!("{message:#}").replace('\n', " ") } else { message.to_string() };
        let received = connection.receive(frame.as_bytes(), Time(0));
        let as_it_is = matches!(&received, Received::Deliver { rewritten: None, request }
            if request.is_some() == id.is_some());
        prop_assert!(as_it_is, "{frame}: {received:?}");
        if let Some(id) = id {
            let answer = json!({ "result": params, "id": id, "jsonrpc": "2.0" }).to_string();
            prop_assert_eq!(connection.send(answer.as_bytes(), Time(1)), Sent::Write);
        }
    }

    #[test]
    fn i15_session_lives_whatever_a_cancel_holds(params in any_json(), own in any_json()) {
        let connection = Connection::new(Config::default());
        let request = run(&connection, &json!("a request"));
        let token = connection.token(request.generation).unwrap();
        let frames = [
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }),
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": own } }),
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled" }),
        ];
        for frame in frames {
            let received = connection.receive(frame.to_string().as_bytes(), Time(1));
            prop_assert!(matches!(received, Received::Ignored(_)), "{received:?}");
        }
        prop_assert!(!token.cancelled());
        let named = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": { "requestId": "a request", "reason": own } });
        let received = connection.receive(named.to_string().as_bytes(), Time(2));
        let cancelled = matches!(received, Received::Cancelled { .. });
        prop_assert!(cancelled, "a reason of any type voids no cancel");
        prop_assert!(token.cancelled());
    }

    #[test]
    fn i15_session_lives_whatever_the_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let connection = Connection::new(Config::default());
        let request = run(&connection, &json!(1));
        connection.receive(&bytes, Time(1));
        connection.send(&bytes, Time(1));
        prop_assert_eq!(connection.finish(request.generation, Time(2)), Finish::Owed);
        prop_assert_eq!(connection.send(&result(&json!(1)), Time(3)), Sent::Write);
    }
}

#[test]
fn i15_session_lives_a_frame_that_was_too_long_is_answered_without_an_id() {
    let connection = Connection::new(Config::default());
    for count in 1..=2 {
        let reply: Value = serde_json::from_slice(&connection.too_long(10)).unwrap();
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&Value::Null, &json!(-32600)));
        assert!(reply["error"]["message"].as_str().unwrap().contains("10 bytes (max_frame)"));
        assert_eq!(connection.stats().rejected, count);
    }
    run(&connection, &json!(1));
}

#[test]
fn i8_whole_subtree_more_tokens_than_a_page_holds() {
    let connection = Connection::new(Config::default());
    let request = run(&connection, &json!(1));
    let token = connection.token(request.generation).unwrap();
    let children: Vec<_> = (0..3_000).map(|_| token.child()).collect();
    assert!(children.iter().all(|child| !child.cancelled()));
    assert!(matches!(connection.receive(&cancel(&json!(1)), Time(1)), Received::Cancelled { .. }));
    assert!(children.iter().all(|child| child.cause() == Some(Cause::Peer)));
    drop(children);
    assert_eq!(connection.stats().tokens, 1);
}
