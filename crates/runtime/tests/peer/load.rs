//! Many calls at once: abandoned at random moments, and what is left of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use countermand_core::{Config, Limits};
use countermand_runtime::peer::{CallError, Peer};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// What a call of the load came to.
#[derive(Default)]
struct Ends {
    answered: AtomicUsize,
    abandoned: AtomicUsize,
    timed_out: AtomicUsize,
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn resident_kilobytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn forgetful() -> Config {
    let limits = Limits {
        tombstone_age: Duration::from_millis(50),
        retired_age: Duration::from_millis(50),
        ..Limits::default()
    };
    Config { limits, ..Config::default() }
}

/// Makes this many calls from 64 tasks, each abandoned (or awaited) at a moment of its own.
async fn abandon(count: usize, seed: u64) {
    let server = Peer::builder().connection(forgetful()).on("tools/call", async |request, _| {
        let params: Value = request.params()?;
        for _ in 0..params["turns"].as_u64().unwrap_or(0) {
            tokio::task::yield_now().await;
        }
        Ok(params)
    });
    let (ours, theirs) = tokio::io::duplex(1 << 12);
    let host = Peer::builder().connection(forgetful()).open_stream(ours);
    let server = server.open_stream(theirs);
    let ends = Arc::new(Ends::default());
    let tasks: Vec<_> = (0..64_u64)
        .map(|task| {
            let (host, ends) = (host.clone(), ends.clone());
            let mut state = seed * 64 + task + 1;
            tokio::spawn(async move {
                for _ in 0..count / 64 {
                    let params = json!({ "turns": random(&mut state) % 8 });
                    let request = host.request("tools/call", params);
                    let request = match random(&mut state) % 4 {
                        0 => request.total(Duration::from_micros(random(&mut state) % 500)),
                        _ => request,
                    };
                    let mut call = request.start().unwrap();
                    let turns = random(&mut state) % 12;
                    let patience = async {
                        for _ in 0..turns {
                            tokio::task::yield_now().await;
                        }
                    };
                    let end = tokio::select! {
                        biased;
                        end = &mut call => Some(end),
                        () = patience => None,
                    };
                    match end {
                        Some(Ok(_)) => ends.answered.fetch_add(1, Ordering::Relaxed),
                        Some(Err(CallError::TimedOut)) => {
                            ends.timed_out.fetch_add(1, Ordering::Relaxed)
                        }
                        Some(Err(error)) => panic!("{error}"),
                        None if random(&mut state).is_multiple_of(2) => {
                            // From another thread, while the future lives.
                            let handle = call.handle().clone();
                            tokio::spawn(async move { handle.cancel("enough") });
                            let _ = call.await;
                            ends.abandoned.fetch_add(1, Ordering::Relaxed)
                        }
                        None => ends.abandoned.fetch_add(1, Ordering::Relaxed),
                    };
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let made = ends.answered.load(Ordering::Relaxed)
        + ends.abandoned.load(Ordering::Relaxed)
        + ends.timed_out.load(Ordering::Relaxed);
    assert_eq!(made, count / 64 * 64);
    assert!(
        ends.abandoned.load(Ordering::Relaxed) > 0 && ends.answered.load(Ordering::Relaxed) > 0
    );
    for peer in [&host, &server] {
        let empty = async {
            while left(peer) != [0; 6] || peer.connection().poll_timeout().is_some() {
                // What is kept for a time goes by itself: the reader's timer sees to it.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let emptied = tokio::time::timeout(super::PATIENCE, empty).await;
        assert!(emptied.is_ok(), "{:?} are left", left(peer));
    }
}

/// What is in the tables, beyond the watch on the end of the connection itself.
fn left(peer: &Peer) -> [usize; 6] {
    let stats = peer.connection().stats();
    let watches = stats.watches.saturating_sub(1);
    [stats.in_flight, stats.retired, stats.outbound, stats.tombstones, stats.tokens, watches]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn k14_calls_abandoned_at_random_moments_leave_nothing() {
    abandon(10_000, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "a long run: 100,000 calls, twice"]
async fn k14_100_000_calls_abandoned_at_random_moments_leave_nothing() {
    abandon(100_000, 2).await;
    let baseline = resident_kilobytes();
    abandon(100_000, 3).await;
    let grown = resident_kilobytes().saturating_sub(baseline);
    println!(
        "resident memory: {baseline} kB after the first run, {grown} kB more after the second"
    );
    assert!(grown < 8 << 10, "{grown} kB more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn k11_a_cancel_never_stands_before_its_request() {
    // A pipe that holds few frames: the writer waits again and again while cancels come in.
    let (ours, theirs) = tokio::io::duplex(512);
    let host = Peer::builder().open_stream(ours);
    let (read, mut write) = tokio::io::split(theirs);
    let reader = tokio::spawn(async move {
        let mut cancels = HashMap::new();
        let mut lines = BufReader::new(read).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            let frame: Value = serde_json::from_str(&line).expect("a whole frame");
            match frame["method"].as_str().unwrap() {
                "notifications/cancelled" => {
                    let id = frame["params"]["requestId"].as_u64().unwrap();
                    let count: &mut u32 =
                        cancels.get_mut(&id).expect("a cancel stands behind its request");
                    *count += 1;
                    assert_eq!(*count, 1, "{id} was cancelled twice");
                }
                "last" => {
                    let reply = json!({ "jsonrpc": "2.0", "id": frame["id"], "result": {} });
                    write.write_all(format!("{reply}\n").as_bytes()).await.unwrap();
                }
                _ => {
                    let id = frame["id"].as_u64().unwrap();
                    assert!(cancels.insert(id, 0).is_none(), "{id} was used twice");
                }
            }
        }
        cancels
    });
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let host = host.clone();
            tokio::spawn(async move {
                let mut state = task + 1;
                let mut ids = Vec::new();
                for _ in 0..1_000 {
                    let call = host.request("tools/call", json!({})).start().unwrap();
                    ids.push(call.handle().id());
                    if random(&mut state).is_multiple_of(2) {
                        tokio::task::yield_now().await;
                    }
                }
                ids
            })
        })
        .collect();
    let mut ids = Vec::new();
    for task in tasks {
        ids.extend(task.await.unwrap());
    }
    host.request("last", ()).await.unwrap();
    host.close(countermand_core::Cause::Local);
    host.closed().await;
    drop(host);
    let cancels = reader.await.unwrap();
    // What stands on the wire was cancelled; what was taken back does not stand there.
    assert!(cancels.values().all(|&count| count == 1), "each was cancelled once");
    assert!(cancels.keys().all(|id| ids.contains(id)));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 8_000, "ids are fresh");
}
