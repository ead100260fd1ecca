//! Requests of our own on real pipes and to real commands: what callers hear, and what the peer sees.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use countermand_core::{Abandoned, Begin, Call, CallOutcome, Cause};
use countermand_runtime::process::Command;
use countermand_runtime::{Event, Wire, WireConfig};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

/// The caller's side: the events of each call, in order.
struct Caller {
    wire: Wire,
    woken: Receiver<()>,
}

impl Caller {
    fn events(&self) -> Vec<Event> {
        self.woken.recv_timeout(PATIENCE).expect("an event");
        let mut out = Vec::new();
        while self.wire.drain(usize::MAX, &mut out) {}
        out
    }

    /// Waits until this many calls have ended; says how each did, and that each did once.
    fn ends(&self, count: usize) -> HashMap<Call, Option<(Cause, CallOutcome)>> {
        let mut ends = HashMap::new();
        while ends.len() < count {
            for event in self.events() {
                let (call, end) = match event {
                    Event::Settled { call, .. } => (call, None),
                    Event::Abandoned { call, cause, outcome, .. } => (call, Some((cause, outcome))),
                    _ => continue,
                };
                assert!(ends.insert(call, end).is_none(), "{call:?} ended twice");
            }
        }
        ends
    }

    fn gone(&self) -> u32 {
        loop {
            for event in self.events() {
                if let Event::Gone { left } = event {
                    return left;
                }
            }
        }
    }
}

fn caller(open: impl FnOnce(Box<dyn Fn() + Send + Sync>) -> Wire) -> Caller {
    let (sender, woken) = channel();
    let wire = open(Box::new(move || {
        let _ = sender.send(());
    }));
    Caller { wire, woken }
}

fn pipes() -> (PipeReader, PipeWriter, Caller) {
    let (their_read, our_write) = std::io::pipe().unwrap();
    let (our_read, their_write) = std::io::pipe().unwrap();
    let caller = caller(|wake| {
        Wire::from_fds(
            OwnedFd::from(our_read),
            OwnedFd::from(our_write),
            WireConfig::client(),
            wake,
        )
        .unwrap()
    });
    (their_read, their_write, caller)
}

fn begin(params: &str) -> Begin<'_> {
    Begin { method: "tools/call", params: Some(params), ..Begin::default() }
}

/// What the peer has read, whole frames all: how often each id was cancelled, and that no cancel came before its
/// request or twice.
fn heard(read: PipeReader) -> BTreeMap<u64, u32> {
    let mut heard = BTreeMap::new();
    for line in BufReader::new(read).lines() {
        let frame: Value = serde_json::from_str(&line.unwrap()).expect("a whole frame");
        if frame["method"] == "notifications/cancelled" {
            let id = frame["params"]["requestId"].as_u64().unwrap();
            let cancels = heard.get_mut(&id).expect("a cancel stands behind its request");
            *cancels += 1;
            assert_eq!(*cancels, 1, "{id} was cancelled twice");
        } else {
            assert!(
                heard.insert(frame["id"].as_u64().unwrap(), 0).is_none(),
                "an id was used twice"
            );
        }
    }
    heard
}

#[test]
fn i5_prompt_settle_a_peer_that_reads_nothing_delays_no_caller() {
    let (read, _write, caller) = pipes();
    let params = format!("{{\"padding\":\"{}\"}}", "x".repeat(1000));
    let calls: Vec<Call> =
        (0..1000).map(|_| caller.wire.call(&begin(&params)).unwrap().0).collect();
    let timed: Vec<Call> = (0..100)
        .map(|_| {
            let total = Some(Duration::from_millis(20));
            caller.wire.call(&Begin { total, ..begin(&params) }).unwrap().0
        })
        .collect();
    for &call in &calls {
        assert_ne!(caller.wire.abandon(call, Cause::Local, Some("stop")), Abandoned::Settled);
    }
    let ends = caller.ends(calls.len() + timed.len());
    assert!(timed.iter().all(|call| ends[call].is_some_and(|(cause, _)| cause == Cause::Timeout)));
    // What fits in a pipe was sent; the rest never was, and never will be.
    let sent = |call: &&Call| ends[*call] == Some((Cause::Local, CallOutcome::Unknown));
    let sent: Vec<u64> = calls.iter().filter(sent).map(|call| call.0).collect();
    assert!(!sent.is_empty() && sent.len() < 300, "{} were sent", sent.len());
    caller.wire.close(Cause::Local);
    let heard = heard(read);
    assert_eq!(heard.keys().copied().collect::<Vec<_>>(), sent);
}

#[test]
fn i5_prompt_settle_what_was_sent_is_cancelled_once_when_the_peer_reads_again() {
    let (read, _write, caller) = pipes();
    let params = format!("{{\"padding\":\"{}\"}}", "x".repeat(1000));
    let calls: Vec<Call> = (0..200).map(|_| caller.wire.call(&begin(&params)).unwrap().0).collect();
    for &call in &calls {
        caller.wire.abandon(call, Cause::Local, None);
    }
    let ends = caller.ends(calls.len());
    let reader = thread::spawn(|| heard(read));
    // The cancels go ahead of this one.
    let (last, _) = caller.wire.call(&begin("{}")).unwrap();
    assert!(caller.wire.flush(PATIENCE));
    caller.wire.close(Cause::Local);
    let heard = reader.join().unwrap();
    for call in calls {
        let sent = ends[&call] == Some((Cause::Local, CallOutcome::Unknown));
        assert_eq!(heard.get(&call.0), sent.then_some(&1), "{call:?}");
    }
    assert_eq!(heard.get(&last.0), Some(&0));
}

#[test]
fn k11_a_cancel_never_stands_before_its_request() {
    abandoned_at_once(5_000);
}

#[test]
#[ignore = "a long run: 100,000 calls"]
fn k11_a_cancel_never_stands_before_its_request_100_000_times() {
    abandoned_at_once(100_000);
}

/// Calls, each cancelled at once, half of them from another thread.
fn abandoned_at_once(count: usize) {
    let (read, _write, caller) = pipes();
    let reader = thread::spawn(|| heard(read));
    let (sender, begun) = channel::<Call>();
    let wire = caller.wire.clone();
    let canceller = thread::spawn(move || {
        for call in begun {
            assert_ne!(wire.abandon(call, Cause::Local, None), Abandoned::Settled);
        }
    });
    let wire = caller.wire.clone();
    let maker = thread::spawn(move || {
        for number in 0..count {
            let (call, _) = wire.call(&begin("{}")).unwrap();
            if number % 2 == 0 {
                sender.send(call).unwrap();
            } else {
                assert_ne!(wire.abandon(call, Cause::Local, None), Abandoned::Settled);
            }
        }
    });
    let ends = caller.ends(count);
    maker.join().unwrap();
    canceller.join().unwrap();
    assert!(caller.wire.flush(PATIENCE));
    caller.wire.close(Cause::Local);
    let heard = reader.join().unwrap();
    for (call, end) in ends {
        let sent = end == Some((Cause::Local, CallOutcome::Unknown));
        assert_eq!(heard.get(&call.0), sent.then_some(&1), "{call:?}");
    }
    let stats = caller.wire.connection().stats();
    assert_eq!((stats.outbound, stats.tokens, stats.watches), (0, 0, 0));
}

#[test]
fn i6_late_is_quiet_responses_late_twice_unknown_and_of_another_type_reach_nobody() {
    let (_read, mut write, caller) = pipes();
    let (a, _) = caller.wire.call(&begin("{}")).unwrap();
    let (b, _) = caller.wire.call(&begin("{}")).unwrap();
    assert!(caller.wire.flush(PATIENCE));
    caller.wire.abandon(a, Cause::Local, None);
    for id in ["1", "1", "99", "\"2\"", "2.5", "2", "2"] {
        writeln!(
            write,
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"of":"{}"}}}}"#,
            id.trim_matches('"')
        )
        .unwrap();
    }
    let ends = caller.ends(2);
    assert_eq!(ends[&a], Some((Cause::Local, CallOutcome::Unknown)));
    assert_eq!(ends[&b], None);
    drop(write);
    while !caller.events().iter().any(|event| matches!(event, Event::Closed { .. })) {}
    let stats = caller.wire.connection().stats();
    let counted = [
        stats.late_responses,
        stats.unknown_responses,
        stats.wrong_type_responses,
        stats.duplicate_responses,
    ];
    assert_eq!(counted, [2, 2, 1, 1]);
    assert_eq!(caller.wire.connection().outcome(a), Some(CallOutcome::Completed));
}

#[test]
fn k21_deadlines_that_come_while_the_wire_is_silent_are_met_in_order() {
    let (_read, _write, caller) = pipes();
    let ms = Duration::from_millis;
    let make =
        |total| caller.wire.call(&Begin { total: Some(ms(total)), ..begin("{}") }).unwrap().0;
    // The later one first: the thread that waits must look up for the earlier one all the same.
    let (late, soon) = (make(300), make(30));
    let mut order = Vec::new();
    while order.len() < 2 {
        for event in caller.events() {
            if let Event::Abandoned { call, cause: Cause::Timeout, .. } = event {
                order.push(call);
            }
        }
    }
    assert_eq!(order, [soon, late]);
}

fn spawn(script: &str) -> Caller {
    let command = Command::new("sh").args(["-c", script]);
    caller(|wake| {
        Wire::spawn(command, Duration::from_millis(200), WireConfig::client(), wake).unwrap()
    })
}

#[test]
fn k04_closing_ends_a_server_that_ignores_everything_and_its_children() {
    let caller = spawn("trap '' TERM HUP; (trap '' TERM; sleep 1000) & sleep 1000");
    caller.wire.close(Cause::Local);
    assert_eq!(caller.gone(), 0);
}

#[test]
fn k04_a_server_that_ends_with_its_stdin_is_not_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let caller = spawn(&format!("cat > /dev/null; echo ended > {}", mark.display()));
    caller.wire.close(Cause::Local);
    assert_eq!(caller.gone(), 0);
    assert_eq!(std::fs::read_to_string(mark).unwrap(), "ended\n");
}

#[test]
fn i9_handshake_abandoning_initialize_closes_the_transport_and_leaves_no_process() {
    let caller = spawn("cat > /dev/null");
    let (call, _) = caller.wire.call(&Begin { method: "initialize", ..Begin::default() }).unwrap();
    assert!(caller.wire.flush(PATIENCE));
    assert_eq!(caller.wire.abandon(call, Cause::Timeout, None), Abandoned::CloseTransport);
    assert_eq!(caller.gone(), 0);
}

#[test]
fn i3_no_loss_a_response_that_was_written_before_the_server_ended_is_delivered() {
    let caller = spawn(r#"read line; echo '{"jsonrpc":"2.0","id":1,"result":{}}'"#);
    let (call, _) = caller.wire.call(&begin("{}")).unwrap();
    assert_eq!(caller.ends(1)[&call], None);
    assert_eq!(caller.gone(), 0);
}
