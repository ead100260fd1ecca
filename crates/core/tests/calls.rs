//! What the scenarios have no words for: raw text of requests of ours, and time that nobody was told.

use std::time::Duration;

use countermand_core::{Begin, CallOutcome, Cause, Config, Connection, Time};

#[test]
fn i4_whole_frames_parameters_in_lines_go_out_in_one() {
    let connection = Connection::new(Config::default());
    let params = "{\r\n  \"text\": \"a\\nb\"\n}";
    for progress in [false, true] {
        let asked = Begin { method: "x\n", params: Some(params), progress, ..Begin::default() };
        let begun = connection.begin(&asked, Time(0)).unwrap();
        assert!(!begun.frame.contains(&b'\n') && !begun.frame.contains(&b'\r'));
        let frame: serde_json::Value = serde_json::from_slice(&begun.frame).unwrap();
        assert_eq!(frame["method"], "x\n");
        assert_eq!(frame["params"]["text"], "a\nb");
    }
}

#[test]
fn i6_a_tombstone_is_as_old_as_the_last_time_that_was_told() {
    let connection = Connection::new(Config::default());
    let later = Time(0).after(Duration::from_hours(1));
    let asked = Begin { method: "ping", ..Begin::default() };
    let begun = connection.begin(&asked, later).unwrap();
    assert!(connection.transmit(begun.call));
    assert!(begun.token.trip(Cause::Local, None));
    connection.handle_timeout(later.after(Duration::from_secs(1)));
    assert_eq!(connection.outcome(begun.call), Some(CallOutcome::Unknown));
}
