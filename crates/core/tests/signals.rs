//! The three signals: what they count, and what bounds them.

use std::time::Duration;

use countermand_core::{
    CancelLatency, Cause, Config, Connection, Finish, Generation, Limits, Received, Snapshot, Time,
    ToolSignals, Work,
};

fn at(milliseconds: u64) -> Time {
    Time(milliseconds * 1_000_000)
}

fn call(connection: &Connection, id: u64, tool: &str, now: Time) -> Generation {
    let frame = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#
    );
    match connection.receive(frame.as_bytes(), now) {
        Received::Deliver { request: Some(request), .. } => request.generation,
        other => panic!("not delivered: {other:?}"),
    }
}

fn cancel(connection: &Connection, id: u64, now: Time) {
    let frame = format!(
        r#"{{"method":"notifications/cancelled","params":{{"requestId":{id},"reason":"r{id}"}}}}"#
    );
    assert!(matches!(connection.receive(frame.as_bytes(), now), Received::Cancelled { .. }));
}

fn row<'s>(snapshot: &'s Snapshot, tool: &str) -> &'s ToolSignals {
    let named = |row: &&ToolSignals| row.tool.as_deref() == Some(tool);
    snapshot.tools.iter().find(named).unwrap_or_else(|| panic!("no row for {tool}"))
}

#[test]
fn k25_each_tool_has_counts_of_its_own() {
    let connection = Connection::new(Config::default());
    for id in 0..3 {
        call(&connection, id, "fast", at(0));
    }
    let slow = call(&connection, 3, "slow", at(0));
    assert!(connection.start(slow, at(0)));
    connection.receive(br#"{"jsonrpc":"2.0","id":9,"method":"tools/list"}"#, at(0));
    cancel(&connection, 3, at(10));
    assert_eq!(connection.finish(slow, at(35)), Finish::Silent);
    connection.send(br#"{"jsonrpc":"2.0","id":3,"result":{}}"#, at(36));
    connection.send(br#"{"jsonrpc":"2.0","id":0,"result":{}}"#, at(36));

    let snapshot = connection.signals(at(40));
    let fast = row(&snapshot, "fast");
    assert_eq!((fast.requests, fast.in_flight, fast.cancelled), (3, 2, [0; 5]));
    let slow = row(&snapshot, "slow");
    assert_eq!((slow.requests, slow.in_flight, slow.cancelled), (1, 0, [1, 0, 0, 0, 0]));
    assert_eq!((slow.dropped_answers, slow.orphans, slow.orphaned), (1, 0, 0));
    assert_eq!((slow.latency.count, slow.latency.total), (1, Duration::from_millis(25)));
    let list = snapshot.tools.iter().find(|row| &*row.method == "tools/list").unwrap();
    assert_eq!((list.requests, list.tool.as_deref()), (1, None));

    let reports = connection.take_reports();
    let [report] = reports.as_slice() else { panic!("{reports:?}") };
    assert_eq!(report.id.to_json(), "3");
    assert_eq!((report.cause, report.reason.as_deref()), (Cause::Peer, Some("r3")));
    assert_eq!(report.latency, Some(Duration::from_millis(25)));
    assert!(connection.take_reports().is_empty(), "each is taken once");
}

#[test]
fn k25_latencies_are_exact_to_one_part_in_a_hundred() {
    let connection = Connection::new(Config::default());
    for id in 1..=1_000 {
        let generation = call(&connection, id, "tool", at(0));
        assert!(connection.start(generation, at(0)));
        cancel(&connection, id, at(0));
        connection.finish(generation, at(id));
    }
    let latency = row(&connection.signals(at(2_000)), "tool").latency.clone();
    let near = |measured: Duration, milliseconds: f64| {
        (measured.as_secs_f64() * 1e3 / milliseconds - 1.0).abs() <= 0.01
    };
    assert_eq!(latency.count, 1_000);
    assert_eq!(latency.total, Duration::from_millis(500_500));
    assert!(near(latency.p50, 500.0), "{latency:?}");
    assert!(near(latency.p99, 990.0), "{latency:?}");
    assert!(near(latency.max, 1_000.0), "{latency:?}");
    for (bound, count) in CancelLatency::BUCKETS.into_iter().zip(latency.buckets) {
        let exact = u64::try_from(bound.as_millis()).unwrap().min(1_000);
        assert!(count.abs_diff(exact) <= exact / 50 + 1, "{count} within {bound:?}, not {exact}");
    }
}

#[test]
fn k08_what_runs_on_is_an_orphan_until_it_ends() {
    let connection = Connection::new(Config::default());
    let stuck = call(&connection, 1, "stuck", at(0));
    assert!(connection.start(stuck, at(0)));
    let thread = connection.token(stuck).unwrap().work(Work::Thread).unwrap();
    let _waits = call(&connection, 2, "stuck", at(0));
    cancel(&connection, 1, at(100));
    cancel(&connection, 2, at(100));
    assert!(connection.signals(at(2_099)).orphans.is_empty(), "it has its grace");

    let snapshot = connection.signals(at(3_100));
    let [orphan] = snapshot.orphans.as_slice() else { panic!("{:?}", snapshot.orphans) };
    assert_eq!((orphan.id.to_json().as_ref(), orphan.tool.as_deref()), ("1", Some("stuck")));
    assert_eq!((orphan.cause, orphan.age), (Cause::Peer, Duration::from_secs(3)));
    assert_eq!(orphan.work, [Work::Handler, Work::Thread]);
    assert_eq!((row(&snapshot, "stuck").orphans, row(&snapshot, "stuck").orphaned), (1, 0));

    // The handler gives up, and leaves its thread behind.
    connection.finish(stuck, at(4_100));
    let snapshot = connection.signals(at(4_200));
    let [orphan] = snapshot.orphans.as_slice() else { panic!("{:?}", snapshot.orphans) };
    assert_eq!(orphan.work, [Work::Thread]);
    assert_eq!((row(&snapshot, "stuck").orphans, row(&snapshot, "stuck").orphaned), (1, 1));
    drop(thread);
    let snapshot = connection.signals(at(4_300));
    assert!(snapshot.orphans.is_empty());
    assert_eq!(connection.stats().works, 0);
}

#[test]
fn k08_work_that_begins_after_the_cancel_is_an_orphan_too() {
    let connection = Connection::new(Config::default());
    let request = call(&connection, 1, "tool", at(0));
    assert!(connection.start(request, at(0)));
    cancel(&connection, 1, at(0));
    let token = connection.token(request).unwrap();
    let process = token.child().child().work(Work::Process(4711)).unwrap();
    connection.finish(request, at(1));
    let snapshot = connection.signals(at(2_000));
    assert_eq!(snapshot.orphans[0].work, [Work::Process(4711)]);
    drop(process);
    connection.send(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#, at(2_000));
    assert!(token.work(Work::Thread).is_none(), "the request is gone");
    assert!(connection.root().work(Work::Thread).is_none(), "the root is no request's");
}

#[test]
fn k20_an_effect_before_the_cancel_or_after_it_is_counted_once() {
    let connection = Connection::new(Config::default());
    let early = call(&connection, 1, "mail", at(0));
    let late = call(&connection, 2, "mail", at(0));
    let kept = call(&connection, 3, "mail", at(0));
    for generation in [early, kept] {
        assert!(connection.commit(generation));
        assert!(connection.commit(generation));
    }
    cancel(&connection, 1, at(1));
    cancel(&connection, 2, at(1));
    assert!(connection.commit(late));
    assert!(connection.commit(late));
    assert_eq!(row(&connection.signals(at(2)), "mail").abandoned_with_effects, 2);
    assert!(!connection.commit(Generation(12)));
}

#[test]
fn k11_a_request_that_never_started_is_reported_without_a_latency() {
    let connection = Connection::new(Config::default());
    let refused = call(&connection, 1, "tool", at(0));
    let withdrawn = call(&connection, 2, "tool", at(0));
    call(&connection, 3, "tool", at(0));
    cancel(&connection, 1, at(1));
    cancel(&connection, 2, at(1));
    assert!(!connection.start(refused, at(5)));
    connection.discard(withdrawn);
    let reports: Vec<_> = connection.take_reports();
    let seen: Vec<_> = reports.iter().map(|it| (it.id.to_json(), it.latency)).collect();
    assert_eq!(seen, [("1".to_owned(), None), ("2".to_owned(), None)]);
    assert_eq!(row(&connection.signals(at(9)), "tool").latency.count, 0);
}

#[test]
fn i11_nothing_left_a_peer_cannot_make_us_keep_names_or_reports() {
    let limits = Limits { max_tools: 4, max_reports: 3, ..Limits::default() };
    let connection = Connection::new(Config { limits, ..Config::default() });
    for id in 0..50 {
        let generation = call(&connection, id, &format!("{id}{}", "x".repeat(5_000)), at(0));
        cancel(&connection, id, at(1));
        connection.discard(generation);
    }
    let snapshot = connection.signals(at(2));
    assert_eq!(snapshot.tools.len(), 5, "four, and one for the rest");
    assert_eq!(snapshot.tools.iter().map(|row| row.requests).sum::<u64>(), 50);
    let other = snapshot.tools.iter().find(|row| row.method.is_empty()).unwrap();
    assert_eq!((other.requests, other.cancelled[0], other.tool.as_deref()), (46, 46, None));
    let long = |row: &ToolSignals| row.tool.as_deref().is_some_and(|tool| tool.len() > 128);
    assert!(!snapshot.tools.iter().any(long));
    let ids: Vec<_> = connection.take_reports().iter().map(|it| it.id.to_json()).collect();
    assert_eq!(ids, ["47", "48", "49"]);
}

#[test]
fn k24_names_that_are_no_text_share_a_row() {
    let connection = Connection::new(Config::default());
    for id in 0..3 {
        call(&connection, id, r"\ud800", at(0));
        call(&connection, 10 + id, r"\u0061", at(0));
    }
    let snapshot = connection.signals(at(1));
    assert_eq!(row(&snapshot, "a").requests, 3);
    assert_eq!(snapshot.tools.len(), 2);
}

#[test]
fn k25_a_page_for_prometheus_says_the_same() {
    let connection = Connection::new(Config::default());
    let request = call(&connection, 1, r#"a\"b\\c\nd"#, at(0));
    assert!(connection.start(request, at(0)));
    assert!(connection.commit(request));
    cancel(&connection, 1, at(0));
    connection.finish(request, at(2_500));
    connection.send(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#, at(2_500));
    let stuck = call(&connection, 2, "stuck", at(0));
    assert!(connection.start(stuck, at(0)));
    cancel(&connection, 2, at(0));
    connection.receive(br#"{"method":"notifications/cancelled"}"#, at(0));
    let page = connection.prometheus(at(3_000));
    let odd = r#"method="tools/call",tool="a\"b\\c\nd""#;
    let stuck = r#"method="tools/call",tool="stuck""#;
    for line in [
        format!("countermand_requests_total{{{odd}}} 1"),
        format!("countermand_in_flight{{{stuck}}} 1"),
        format!("countermand_in_flight{{{odd}}} 0"),
        format!(r#"countermand_cancelled_total{{{odd},cause="peer"}} 1"#),
        format!(r#"countermand_cancelled_total{{{odd},cause="timeout"}} 0"#),
        r#"countermand_cancels_total{hit="live"} 2"#.to_owned(),
        r#"countermand_cancels_total{hit="malformed"} 1"#.to_owned(),
        r#"countermand_cancels_total{hit="late"} 0"#.to_owned(),
        format!(r#"countermand_cancel_latency_seconds_bucket{{{odd},le="1"}} 0"#),
        format!(r#"countermand_cancel_latency_seconds_bucket{{{odd},le="2.5"}} 1"#),
        format!(r#"countermand_cancel_latency_seconds_bucket{{{odd},le="+Inf"}} 1"#),
        format!("countermand_cancel_latency_seconds_sum{{{odd}}} 2.5"),
        format!("countermand_cancel_latency_seconds_count{{{odd}}} 1"),
        format!("countermand_orphans{{{stuck}}} 1"),
        format!("countermand_orphaned_total{{{odd}}} 1"),
        format!("countermand_dropped_answers_total{{{odd}}} 1"),
        format!("countermand_abandoned_with_effects_total{{{odd}}} 1"),
        "# TYPE countermand_cancel_latency_seconds histogram".to_owned(),
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\nin\n{page}");
    }
    assert!(!page.contains(&format!("latency_seconds_count{{{stuck}}}")), "nothing was measured");
}
