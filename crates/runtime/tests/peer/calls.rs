//! Requests of ours.

use std::time::Duration;

use countermand_core::{Abandoned, CallOutcome, Cause, Config, Limits};
use countermand_runtime::peer::{CallError, CallState, Peer, RpcError};
use countermand_runtime::process::Command;
use serde_json::json;

use super::raw;

const ROOM: usize = 1 << 16;

#[tokio::test]
async fn k01_dropping_the_future_is_the_cancel() {
    let (host, mut peer) = raw(Peer::builder(), ROOM);
    let call =
        host.request("tools/call", json!({ "name": "slow" })).reason("enough").start().unwrap();
    let id = peer.expect("tools/call").await["id"].clone();
    let handle = call.handle().clone();
    assert_eq!((json!(handle.id()), handle.state()), (id.clone(), CallState::Sent));
    drop(call);
    assert_eq!(handle.state(), CallState::Over);
    let cancel = peer.expect("notifications/cancelled").await;
    assert_eq!(cancel["params"], json!({ "requestId": id, "reason": "enough" }));
    // Once: a second cancel, and a late response, lead to nothing more.
    let again = handle.clone();
    let again = std::thread::spawn(move || again.cancel("again")).join().unwrap();
    assert_eq!(again, Abandoned::Settled);
    peer.answer(&id).await;
    let next = host.request("ping", ());
    let (answer, ()) = tokio::join!(next, async {
        let id = peer.expect("ping").await["id"].clone();
        peer.answer(&id).await;
    });
    answer.unwrap();
    assert_eq!(handle.outcome(), Some(CallOutcome::Completed));
}

#[tokio::test]
async fn k01_a_settled_call_is_not_cancelled_when_it_is_dropped_unread() {
    let (host, mut peer) = raw(Peer::builder(), ROOM);
    let call = host.request("tools/call", json!({})).start().unwrap();
    let id = peer.expect("tools/call").await["id"].clone();
    peer.answer(&id).await;
    let settled = async {
        while call.handle().state() != CallState::Over {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::PATIENCE, settled).await.unwrap();
    drop(call);
    host.notify("notifications/last", ()).unwrap();
    peer.expect("notifications/last").await;
}

#[tokio::test]
async fn k01_what_was_never_sent_is_never_cancelled() {
    // The pipe is full after the first: what waits behind it is taken back without a word.
    let (host, mut peer) = raw(Peer::builder(), 64);
    let padding = "x".repeat(1 << 15);
    let first = host.request("tools/call", json!({ "padding": padding })).start().unwrap();
    while first.handle().state() != CallState::Sent {
        tokio::task::yield_now().await;
    }
    let second = host.request("tools/call", json!({ "name": "second" })).start().unwrap();
    assert_eq!(second.handle().state(), CallState::Queued);
    let handle = second.handle().clone();
    drop(second);
    assert_eq!(handle.outcome(), Some(CallOutcome::NotSent));
    drop(first);
    host.notify("notifications/last", ()).unwrap();
    peer.expect("tools/call").await;
    assert_eq!(peer.expect("notifications/cancelled").await["params"]["requestId"], 1);
    peer.expect("notifications/last").await;
}

#[tokio::test]
async fn i5_prompt_settle_a_peer_that_reads_nothing_delays_no_caller() {
    let (host, _peer) = raw(Peer::builder(), 64);
    let calls: Vec<_> = (0..1000)
        .map(|number| {
            let request = host.request("tools/call", json!({ "number": number }));
            let request =
                if number % 2 == 0 { request.total(Duration::from_millis(20)) } else { request };
            request.start().unwrap()
        })
        .collect();
    let handles: Vec<_> = calls.iter().map(|call| call.handle().clone()).collect();
    for handle in handles.iter().skip(1).step_by(2) {
        assert_ne!(handle.cancel("stop"), Abandoned::Settled);
    }
    for (number, call) in calls.into_iter().enumerate() {
        let error = call.await.unwrap_err();
        let cancelled = CallError::Cancelled { cause: Cause::Local, reason: Some("stop".into()) };
        assert_eq!(error, if number % 2 == 0 { CallError::TimedOut } else { cancelled });
    }
}

#[tokio::test]
async fn i9_handshake_dropping_initialize_closes_the_connection_and_sends_no_cancel() {
    let (host, mut peer) = raw(Peer::builder(), ROOM);
    let call = host.request("initialize", json!({})).start().unwrap();
    peer.expect("initialize").await;
    drop(call);
    assert_eq!(host.closed().await.cause, Cause::Local);
    assert_eq!(peer.next().await, None);
    let refused = host.request("ping", ()).await;
    assert_eq!(refused.unwrap_err(), CallError::Disconnected);
}

#[tokio::test]
async fn i6_late_is_quiet_progress_and_responses_after_the_end_reach_nobody() {
    let (host, mut peer) = raw(Peer::builder(), ROOM);
    let mut call = host.request("tools/call", json!({})).progress().start().unwrap();
    let mut progress = call.progress();
    let request = peer.expect("tools/call").await;
    let (id, token) = (&request["id"], &request["params"]["_meta"]["progressToken"]);
    let notice = |step: u32| {
        let params = json!({ "progressToken": token, "progress": step, "message": "on it" });
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
            .to_string()
    };
    peer.say(&notice(1)).await;
    let first = progress.recv().await.unwrap();
    assert_eq!((first.progress, first.message.as_deref()), (1.0, Some("on it")));
    call.handle().cancel("enough");
    peer.say(&notice(2)).await;
    peer.answer(id).await;
    assert_eq!(progress.recv().await, None);
    assert!(matches!(call.await, Err(CallError::Cancelled { .. })));
    peer.expect("notifications/cancelled").await;
}

#[tokio::test(start_paused = true)]
async fn k21_progress_holds_off_the_idle_deadline_and_not_the_total() {
    let (host, mut peer) = raw(Peer::builder(), ROOM);
    let second = Duration::from_secs(1);
    let mut call = host
        .request("tools/call", json!({}))
        .idle(second)
        .total(second * 4)
        .progress()
        .start()
        .unwrap();
    let mut progress = call.progress();
    let token = peer.expect("tools/call").await["params"]["_meta"]["progressToken"].clone();
    let begun = tokio::time::Instant::now();
    let feed = async {
        loop {
            tokio::time::sleep(second * 9 / 10).await;
            let params = json!({ "progressToken": token, "progress": 1 });
            let notice =
                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
            peer.say(&notice.to_string()).await;
            progress.recv().await;
        }
    };
    let result = tokio::select! { result = &mut call => result, () = feed => unreachable!() };
    assert_eq!(result.unwrap_err(), CallError::TimedOut);
    let passed = begun.elapsed();
    assert!(passed >= second * 4 && passed < second * 5, "{passed:?}");
    assert_eq!(peer.expect("notifications/cancelled").await["params"]["reason"], "timed out");
}

#[tokio::test(start_paused = true)]
async fn i11_nothing_left_of_an_abandoned_call_though_the_peer_is_silent() {
    let (host, mut peer) = raw(Peer::builder(), ROOM);
    let call = host.request("tools/call", json!({})).start().unwrap();
    peer.expect("tools/call").await;
    drop(call);
    peer.expect("notifications/cancelled").await;
    assert_eq!(host.connection().stats().tombstones, 1);
    // Virtual time: nothing else happens on the connection.
    tokio::time::sleep(Limits::default().tombstone_age * 2).await;
    assert_eq!(host.connection().stats().tombstones, 0);
}

#[tokio::test]
async fn k20_errors_of_the_peer_are_told_apart() {
    let (host, mut peer) = raw(Peer::builder(), ROOM);
    let call = host.request("tools/call", json!({})).start().unwrap();
    peer.expect("tools/call").await;
    peer.say(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":[1]}}"#).await;
    let error = RpcError { code: -32602, message: "no".into(), data: Some(json!([1])) };
    assert_eq!(call.await.unwrap_err(), CallError::Rpc(error));
    let call = host.request("tools/call", json!({})).start().unwrap();
    drop(peer);
    assert_eq!(call.await.unwrap_err(), CallError::Disconnected);
    assert_eq!(host.closed().await.cause, Cause::Disconnect);
}

#[tokio::test]
async fn k14_calls_are_bounded() {
    let limits = Limits { max_outbound: 2, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let (host, _peer) = raw(Peer::builder().connection(config), ROOM);
    let _calls = [(); 2].map(|()| host.request("ping", ()).start().unwrap());
    assert!(matches!(host.request("ping", ()).await, Err(CallError::NotMade(_))));
    assert!(matches!(host.request("ping", 7).await, Err(CallError::NotMade(_))));
}

#[tokio::test]
async fn k03_the_last_holder_closes_the_connection() {
    let (host, mut peer) = raw(Peer::builder(), ROOM);
    let call = host.request("tools/call", json!({})).start().unwrap();
    drop(host);
    // Who waits holds it.
    let id = peer.expect("tools/call").await["id"].clone();
    peer.answer(&id).await;
    assert_eq!(call.await.unwrap().get(), r#"{"of":1}"#);
    assert_eq!(peer.next().await, None);
}

#[tokio::test]
async fn k04_a_command_that_ignores_everything_ends_with_its_children() {
    let script = "trap '' TERM HUP; (trap '' TERM; sleep 1000) & sleep 1000";
    let mut command = Command::new("sh").args(["-c", script]);
    command.grace = Duration::from_millis(200);
    let host = Peer::builder().spawn(command, Duration::from_millis(200)).unwrap();
    assert!(host.pid().is_some());
    let call = host.request("tools/call", json!({})).start().unwrap();
    host.close(Cause::Shutdown);
    let cancelled = CallError::Cancelled { cause: Cause::Shutdown, reason: None };
    assert_eq!(call.await.unwrap_err(), cancelled);
    assert_eq!(host.closed().await.left, 0);
}

#[tokio::test]
async fn i3_no_loss_a_response_that_was_written_before_the_server_ended_is_delivered() {
    let script = r#"read line; echo '{"jsonrpc":"2.0","id":1,"result":{}}'"#;
    let command = Command::new("sh").args(["-c", script]);
    let host = Peer::builder().spawn(command, Duration::from_secs(2)).unwrap();
    assert_eq!(host.request("tools/call", json!({})).await.unwrap().get(), "{}");
    assert_eq!(host.closed().await.left, 0);
}
