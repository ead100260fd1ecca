//! Requests of the peer.

use std::sync::Arc;
use std::time::Duration;

use countermand_core::Cause;
use countermand_runtime::peer::{CallError, Peer, Progress, RpcError};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, Semaphore};

use super::{pair, raw};

const ROOM: usize = 1 << 16;
const CANCEL: &str = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"reason":"enough"}}"#;

/// Says so when a handler's future is dropped, or has ended.
struct Mark(UnboundedSender<()>);

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn call(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{}}}}"#)
}

#[tokio::test]
async fn i2_silence_a_cancelled_handler_is_dropped_and_says_nothing() {
    let (marks, mut marked) = unbounded_channel();
    let begun = Arc::new(Notify::new());
    let started = begun.clone();
    let builder = Peer::builder().on("tools/call", move |_, _| {
        let mark = Mark(marks.clone());
        begun.notify_one();
        async move {
            let _mark = mark;
            std::future::pending::<Result<(), _>>().await
        }
    });
    let (server, mut peer) = raw(builder, ROOM);
    peer.say(&call(5)).await;
    started.notified().await;
    peer.say(CANCEL).await;
    marked.recv().await.unwrap();
    peer.say(r#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#).await;
    assert_eq!(peer.next().await.unwrap(), json!({ "jsonrpc": "2.0", "id": 6, "result": {} }));
    let stats = server.connection().stats();
    assert_eq!((stats.in_flight, stats.tokens), (0, 0));
}

#[tokio::test]
async fn i2_silence_a_handler_that_unwinds_in_its_grace_sees_why_and_its_answer_is_swallowed() {
    let (ends, mut ended) = unbounded_channel();
    let begun = Arc::new(Notify::new());
    let started = begun.clone();
    let builder =
        Peer::builder().grace(Duration::from_mins(1)).on("tools/call", move |_, token| {
            begun.notify_one();
            let ends = ends.clone();
            async move {
                let cause = token.wait().await;
                // The cleanup may await.
                tokio::task::yield_now().await;
                ends.send((cause, token.reason().unwrap_or_default().to_string())).unwrap();
                Ok(json!({ "answer": "too late" }))
            }
        });
    let (_server, mut peer) = raw(builder, ROOM);
    peer.say(&call(5)).await;
    started.notified().await;
    peer.say(CANCEL).await;
    assert_eq!(ended.recv().await.unwrap(), (Cause::Peer, "enough".into()));
    peer.say(r#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#).await;
    assert_eq!(peer.next().await.unwrap()["id"], 6);
}

#[tokio::test(start_paused = true)]
async fn k06_a_handler_that_swallows_the_cancel_is_dropped_after_its_grace() {
    let (marks, mut marked) = unbounded_channel();
    let begun = Arc::new(Notify::new());
    let started = begun.clone();
    let grace = Duration::from_secs(5);
    let builder = Peer::builder().grace(grace).on("tools/call", move |_, _| {
        let mark = Mark(marks.clone());
        begun.notify_one();
        async move {
            let _mark = mark;
            std::future::pending::<Result<(), _>>().await
        }
    });
    let (_server, mut peer) = raw(builder, ROOM);
    peer.say(&call(5)).await;
    started.notified().await;
    let at = tokio::time::Instant::now();
    peer.say(CANCEL).await;
    marked.recv().await.unwrap();
    assert!(at.elapsed() >= grace);
}

#[tokio::test]
async fn k11_a_request_and_its_cancel_in_one_read_start_no_handler() {
    let builder = Peer::builder()
        .on("tools/call", async |_, _| -> Result<(), _> { panic!("it must not start") });
    let (server, mut peer) = raw(builder, ROOM);
    peer.say(&format!("{}\n{CANCEL}\n{}", call(5), r#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#))
        .await;
    assert_eq!(peer.next().await.unwrap()["id"], 6);
    assert_eq!(server.connection().stats().in_flight, 0);
}

#[tokio::test]
async fn i1_one_answer_unknown_methods_panics_and_what_is_no_request() {
    let builder = Peer::builder()
        .on("tools/call", async |_, _| -> Result<(), RpcError> { panic!("on purpose") })
        .on("own", async |_, token| {
            token.trip(Cause::Local, None);
            std::future::pending::<Result<(), _>>().await
        });
    let (_server, mut peer) = raw(builder, ROOM);
    let cases = [
        (r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#, json!(1), -32601),
        (&call(2), json!(2), -32603),
        (r#"{"jsonrpc":"2.0","id":3,"method":"own"}"#, json!(3), -32603),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, Value::Null, -32600),
        ("nonsense", Value::Null, -32700),
        ("7", Value::Null, -32600),
    ];
    for (frame, id, code) in cases {
        peer.say(frame).await;
        let answer = peer.next().await.unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{frame}");
    }
}

#[tokio::test]
async fn i7_right_target_an_id_used_again_while_the_old_handler_runs_on() {
    let gate = Arc::new(Semaphore::new(0));
    let (begun, mut started) = unbounded_channel();
    let through = gate.clone();
    let builder =
        Peer::builder().grace(Duration::from_mins(1)).on("tools/call", move |request, _| {
            begun.send(()).unwrap();
            let gate = through.clone();
            async move {
                let params: Value = request.params()?;
                if params["old"] == true {
                    gate.acquire().await.unwrap().forget();
                }
                Ok(params)
            }
        });
    let (_server, mut peer) = raw(builder, ROOM);
    peer.say(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"old":true}}"#).await;
    started.recv().await.unwrap();
    peer.say(CANCEL).await;
    peer.say(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"old":false}}"#).await;
    assert_eq!(peer.next().await.unwrap()["result"], json!({ "old": false }));
    gate.add_permits(1);
    peer.say(r#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#).await;
    assert_eq!(peer.next().await.unwrap()["id"], 6);
}

#[tokio::test]
async fn k18_a_request_made_for_a_handler_is_cancelled_with_it() {
    let server = Peer::builder().on("tools/call", async |request, token| {
        let nested = request.peer().request("sampling/createMessage", json!({})).parent(&token);
        nested.await.map(drop).map_err(|error| RpcError::internal(error.to_string()))
    });
    let (server, mut peer) = raw(server.grace(Duration::from_mins(1)), ROOM);
    peer.say(&call(5)).await;
    let nested = peer.expect("sampling/createMessage").await["id"].clone();
    peer.say(CANCEL).await;
    let cancel = peer.expect("notifications/cancelled").await;
    assert_eq!(cancel["params"], json!({ "requestId": nested, "reason": "enough" }));
    assert_eq!(server.connection().stats().outbound, 0);
}

#[tokio::test]
async fn k22_progress_and_notifications_pass_in_order() {
    let (listener, mut hears) = unbounded_channel();
    let server = Peer::builder()
        .on("tools/call", async |request, _| {
            for step in 1..=3 {
                request.progress(&Progress { progress: f64::from(step), ..Progress::default() });
            }
            Ok(json!({}))
        })
        .on_notification("notifications/bad", |_| panic!("on purpose"))
        .on_notification("notifications/note", move |note| {
            listener.send(note.params::<Value>().unwrap()["number"].as_u64().unwrap()).unwrap();
        });
    let (host, _server) = pair(server);
    let mut call = host.request("tools/call", json!({ "_meta": {} })).progress().start().unwrap();
    let mut progress = call.progress();
    call.await.unwrap();
    let mut steps = Vec::new();
    while let Some(notice) = progress.recv().await {
        steps.push(notice.progress);
    }
    assert_eq!(steps, [1.0, 2.0, 3.0]);
    host.notify("notifications/bad", ()).unwrap();
    for number in 0..100 {
        host.notify("notifications/note", json!({ "number": number })).unwrap();
    }
    for number in 0..100 {
        assert_eq!(hears.recv().await, Some(number));
    }
}

#[tokio::test]
async fn k23_initialize_is_answered_though_it_was_cancelled() {
    let begun = Arc::new(Notify::new());
    let gate = Arc::new(Notify::new());
    let (started, through) = (begun.clone(), gate.clone());
    let server = Peer::builder().on("initialize", move |_, token| {
        started.notify_one();
        let through = through.clone();
        async move {
            through.notified().await;
            assert!(!token.cancelled());
            Ok(json!({ "protocolVersion": "2025-11-25" }))
        }
    });
    let (_server, mut peer) = raw(server, ROOM);
    peer.say(r#"{"jsonrpc":"2.0","id":5,"method":"initialize","params":{}}"#).await;
    begun.notified().await;
    peer.say(CANCEL).await;
    peer.say(r#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#).await;
    assert_eq!(peer.next().await.unwrap()["id"], 6);
    gate.notify_one();
    assert_eq!(peer.next().await.unwrap()["result"]["protocolVersion"], "2025-11-25");
}

#[tokio::test]
async fn k03_the_end_of_the_connection_cancels_every_handler_and_every_call() {
    let (marks, mut marked) = unbounded_channel();
    let server = Peer::builder().on("tools/call", move |_, _| {
        let mark = Mark(marks.clone());
        async move {
            let _mark = mark;
            std::future::pending::<Result<(), _>>().await
        }
    });
    let (host, server) = pair(server);
    let calls: Vec<_> =
        (0..10).map(|_| host.request("tools/call", json!({})).start().unwrap()).collect();
    let running = async {
        while server.connection().stats().in_flight < 10 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::PATIENCE, running).await.unwrap();
    server.close(Cause::Shutdown);
    for call in calls {
        assert_eq!(call.await.unwrap_err(), CallError::Disconnected);
    }
    for _ in 0..10 {
        marked.recv().await.unwrap();
    }
    assert_eq!(server.closed().await.cause, Cause::Shutdown);
    assert_eq!(host.closed().await.cause, Cause::Disconnect);
}
