//! Tokens of other connections, and of `tokio_util`.

use countermand_core::{Cause, Config, Connection, Time};
use countermand_runtime::peer::{Bound, CallError, CallState, Peer, Tripwire};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::raw;

const ROOM: usize = 1 << 16;

#[tokio::test]
async fn i7_right_target_one_users_token_ends_its_calls_on_every_connection_and_no_others() {
    let user = Connection::new(Config::default());
    let token = user.root().child();
    let mut hosts = Vec::new();
    for _ in 0..3 {
        let (host, mut peer) = raw(Peer::builder(), ROOM);
        let call = host.request("tools/call", json!({})).parent(&token).start().unwrap();
        let other = host.request("tools/call", json!({})).start().unwrap();
        peer.expect("tools/call").await;
        peer.expect("tools/call").await;
        hosts.push((host, peer, call, other));
    }
    assert_eq!(user.stats().watches, 3);
    assert!(token.trip(Cause::Peer, Some("never mind")));
    assert_eq!(user.stats().watches, 0);
    for (_host, mut peer, call, other) in hosts {
        let cancelled =
            CallError::Cancelled { cause: Cause::Peer, reason: Some("never mind".into()) };
        assert_eq!(call.await.unwrap_err(), cancelled);
        let cancel = peer.expect("notifications/cancelled").await;
        assert_eq!(cancel["params"], json!({ "requestId": 1, "reason": "never mind" }));
        assert_eq!(other.handle().state(), CallState::Sent);
    }
}

#[tokio::test]
async fn i11_nothing_left_the_watch_on_a_foreign_parent_ends_when_the_call_settles() {
    let user = Connection::new(Config::default());
    let token = user.root().child();
    let (host, mut peer) = raw(Peer::builder(), ROOM);
    let call = host.request("tools/call", json!({})).parent(&token).start().unwrap();
    let id = peer.expect("tools/call").await["id"].clone();
    assert_eq!(user.stats().watches, 1);
    peer.answer(&id).await;
    call.await.unwrap();
    assert_eq!(user.stats().watches, 0);
    // The end of the parent's connection is not that of the call's.
    let call = host.request("tools/call", json!({})).parent(&token).start().unwrap();
    peer.expect("tools/call").await;
    user.close(Cause::Disconnect, Time(0));
    let cancelled = CallError::Cancelled { cause: Cause::Disconnect, reason: None };
    assert_eq!(call.await.unwrap_err(), cancelled);
    peer.expect("notifications/cancelled").await;
    // Under a parent that has tripped nothing is sent.
    let token = Connection::new(Config::default()).root();
    token.trip(Cause::Timeout, None);
    let late = host.request("tools/call", json!({})).parent(&token).await;
    assert_eq!(late.unwrap_err(), CallError::TimedOut);
    host.notify("notifications/last", ()).unwrap();
    peer.expect("notifications/last").await;
}

#[tokio::test]
async fn k01_a_cancellation_token_ends_a_call() {
    let (host, mut peer) = raw(Peer::builder(), ROOM);
    let stop = CancellationToken::new();
    let call = host.request("tools/call", json!({})).until(stop.clone()).reason("stop");
    let (result, ()) = tokio::join!(call, async {
        peer.expect("tools/call").await;
        stop.cancel();
    });
    let cancelled = CallError::Cancelled { cause: Cause::Local, reason: Some("stop".into()) };
    assert_eq!(result.unwrap_err(), cancelled);
    assert_eq!(peer.expect("notifications/cancelled").await["params"]["reason"], "stop");
}

#[tokio::test]
async fn i8_whole_subtree_tokens_of_both_kinds_trip_one_another() {
    let connection = Connection::new(Config::default());
    let token = connection.root().child();
    let below = token.child();
    let stop = CancellationToken::new();
    let tripwire = Tripwire::new(stop.clone(), &token, Some("stop"));
    let bound = Bound::to(&below);
    stop.cancel();
    bound.cancelled().await;
    assert_eq!((below.cause(), token.reason().as_deref()), (Some(Cause::Local), Some("stop")));
    drop((tripwire, bound));
    // What is dropped binds nothing, and leaves nothing.
    let (token, stop) = (connection.root().child(), CancellationToken::new());
    drop(Tripwire::new(stop.clone(), &token, None));
    let unbound = Bound::to(&token).clone();
    stop.cancel();
    tokio::task::yield_now().await;
    assert!(!token.cancelled());
    token.trip(Cause::Local, None);
    assert!(!unbound.is_cancelled());
    assert!(Bound::to(&token).is_cancelled());
    assert_eq!(connection.stats().watches, 0);
}
