//! The core's reader against `serde_json`, and against the clock.

use std::fmt::Write as _;
use std::time::Duration;

use countermand_core::{Config, Connection, Time, parse};
use countermand_sim::fuzz::{compare, input};
use countermand_sim::rng::Rng;
use proptest::prelude::*;

/// A small run of `parser-fuzz`.
#[test]
fn mutated_messages_are_read_as_serde_json_reads_them() {
    let mut rng = Rng::new(12);
    for _ in 0..30_000 {
        let bytes = input(&mut rng);
        if let Err(difference) = compare(&bytes) {
            panic!("{difference}: {}", String::from_utf8_lossy(&bytes));
        }
    }
}

fn number() -> impl Strategy<Value = String> {
    (any::<bool>(), "(0|[1-9][0-9]{0,30})", "(\\.[0-9]{1,20})?", "([eE][+-]?[0-9]{1,3})?").prop_map(
        |(minus, whole, fraction, exponent)| {
            format!("{}{whole}{fraction}{exponent}", if minus { "-" } else { "" })
        },
    )
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        number(),
        "\"([a-z0-9]|\\\\u00[2-7][0-9]|\\\\ud83d\\\\ude00|\\\\n){0,8}\"",
        Just("null".to_owned()),
        Just("true".to_owned()),
    ];
    leaf.prop_recursive(6, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|values| format!("[{}]", values.join(" ,"))),
            proptest::collection::vec((key(), inner), 0..4).prop_map(|fields| object(&fields)),
        ]
    })
}

/// The keys that matter, plain and escaped, and others.
fn key() -> impl Strategy<Value = String> {
    proptest::sample::select(vec![
        "id",
        "\\u0069d",
        "i\\u0064",
        "method",
        "m\\u0065thod",
        "params",
        "p\\u0061rams",
        "requestId",
        "request\\u0049d",
        "result",
        "error",
        "_meta",
        "x",
        "",
    ])
    .prop_map(str::to_owned)
}

fn object(fields: &[(String, String)]) -> String {
    let mut text = String::from("{");
    for (number, (key, value)) in fields.iter().enumerate() {
        let comma = if number > 0 { ", " } else { "" };
        write!(text, "{comma}\"{key}\" : {value}").unwrap();
    }
    text + "}"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_are_read_as_serde_json_reads_them(
        fields in proptest::collection::vec((key(), value()), 0..8),
    ) {
        compare(object(&fields).as_bytes()).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn numbers_are_the_same_id_only_if_they_are_the_same_number(a in number(), b in number()) {
        for (a, b) in [(&a, &b), (&a, &a)] {
            let text = format!("{{\"id\":{a},\"method\":\"m\",\"params\":{{\"requestId\":{b}}}}}");
            compare(text.as_bytes()).map_err(TestCaseError::fail)?;
        }
    }
}

#[test]
fn no_shape_of_input_costs_more_than_its_length() {
    type Shape = (&'static str, fn(usize) -> String);
    let shapes: [Shape; 9] = [
        ("nesting", |n| {
            format!("{{\"id\":1,\"method\":\"m\",\"params\":{}{}}}", "[".repeat(n), "]".repeat(n))
        }),
        ("unclosed nesting", |n| "{\"a\":".repeat(n / 4)),
        ("repeated keys", |n| {
            format!("{{{}\"id\":1,\"method\":\"m\"}}", "\"id\":2,".repeat(n / 4))
        }),
        ("escapes", |n| format!("{{\"id\":\"{}\",\"method\":\"m\"}}", "\\u0061".repeat(n / 4))),
        ("digits", |n| format!("{{\"id\":{},\"method\":\"m\"}}", "1".repeat(n))),
        ("zeros", |n| format!("{{\"id\":1{}e-{n},\"method\":\"m\"}}", "0".repeat(n))),
        ("a reason", |n| {
            format!(
                "{{\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":1,\"reason\":\"{}\"}}}}",
                "é".repeat(n)
            )
        }),
        ("a batch", |n| format!("[{}{{}}]", "{\"id\":1,\"result\":0},".repeat(n / 8))),
        ("no UTF-8", |n| "\u{80}".repeat(n)),
    ];
    for (name, shape) in shapes {
        let [short, long] = [20_000, 320_000].map(|size| time(&shape(size)));
        // Sixteen times the input. A quadratic reader would take 256 times as long.
        assert!(long < short * 80, "{name}: {short:?}, then {long:?} for 16 times the length");
    }
}

/// What this thread has worked: what else runs on the machine does not count.
fn busy() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.try_into().expect("a time since the thread began")
}

/// The best of a few.
fn time(text: &str) -> Duration {
    let once = || {
        let connection = Connection::new(Config::default());
        let begun = busy();
        std::hint::black_box(parse(text));
        connection.receive(text.as_bytes(), Time(0));
        connection.send(text.as_bytes(), Time(0));
        busy().saturating_sub(begun)
    };
    (0..5).map(|_| once()).min().unwrap_or_default()
}
