//! Runs `tests/scenarios/*.json` through the public API: see the README there for the format.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use countermand_core::{
    AliasPolicy, Begin, Call, CallOutcome, Cause, Config, Connection, EarlyCancel, Generation,
    IdMatch, Limits, Output, Received, Sent, Silence, Stats, Time, Token, WireKind,
};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios")
}

#[test]
fn every_scenario_holds() {
    let mut paths: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 30, "only {} scenarios were found", paths.len());
    let mut failed = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let held = std::panic::catch_unwind(|| play(&path, &name)).is_ok();
        // Read by `make scenarios`.
        println!("{} {name}", if held { "ok" } else { "FAILED" });
        failed.extend((!held).then_some(name));
    }
    assert!(failed.is_empty(), "{failed:?}");
}

fn play(path: &Path, name: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    let scenario: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut run = Run::new(&scenario["connection"]);
    for (number, step) in scenario["steps"].as_array().expect("steps").iter().enumerate() {
        run.step(step, &format!("{name}, step {}", number + 1));
    }
}

struct Run {
    connection: Connection,
    now: Time,
    requests: HashMap<String, Generation>,
    tokens: HashMap<String, Token>,
    calls: HashMap<String, Call>,
}

impl Run {
    fn new(settings: &Value) -> Self {
        let connection = Connection::new(config(settings));
        let (requests, tokens, calls) = Default::default();
        Self { connection, now: Time(0), requests, tokens, calls }
    }

    fn step(&mut self, step: &Value, at: &str) {
        let expect = &step["expect"];
        let name = |key: &str| step[key].as_str().map(str::to_owned);
        if let Some(frame) = frame(step, "receive") {
            let received = self.connection.receive(frame.as_bytes(), self.now);
            let seen = self.received(&frame, received, &step["as"], expect);
            let mut expect = expect.clone();
            // The reply is only compared where the scenario cares.
            if let (Some(seen), Some(expect)) = (seen.get("reply"), expect.as_object_mut())
                && expect.contains_key("reject")
            {
                expect.entry("reply").or_insert(seen.clone());
            }
            assert_eq!(seen, expect, "{at}");
        } else if let Some(frame) = frame(step, "send") {
            let within = name("within").map(|token| self.tokens[&token].clone());
            let sent = self.connection.send_within(frame.as_bytes(), within.as_ref(), self.now);
            let shown = |verb: &str, bytes: Option<Vec<u8>>| {
                bytes.map_or_else(|| json!(verb), |bytes| rewritten(verb, &bytes, expect))
            };
            let seen = match sent {
                Sent::Write => json!("write"),
                Sent::Rewrite(frame) => shown("write", Some(frame)),
                Sent::Request { call, rewritten } => {
                    self.calls.insert(name("as").expect("as"), call);
                    shown("request", rewritten)
                }
                Sent::Cancel { rewritten } => shown("cancel", rewritten),
                Sent::Swallow(reason) => json!({ "swallow": reason.as_str() }),
                other => panic!("{at}: {other:?}"),
            };
            assert_eq!(&seen, expect, "{at}");
        } else if let Some(method) = name("begin") {
            let seen = self.begin(&method, step);
            assert_eq!(&seen, expect, "{at}");
        } else if let Some(call) = name("transmit") {
            assert_eq!(json!(self.connection.transmit(self.calls[&call])), *expect, "{at}");
        } else if let Some(call) = name("abandon") {
            let cause = name("cause").map_or(Cause::Local, |cause| cause.parse().expect("a cause"));
            let reason = name("reason");
            let abandoned =
                self.connection.abandon(self.calls[&call], cause, reason.as_deref(), self.now);
            assert_eq!(json!(abandoned.as_str()), *expect, "{at}");
        } else if let Some(call) = name("outcome") {
            let outcome = self.connection.outcome(self.calls[&call]);
            assert_eq!(json!(outcome.map(CallOutcome::as_str)), *expect, "{at}");
        } else if let Some(expect) = step.get("outputs") {
            let outputs = self.connection.take_outputs();
            let seen: Vec<_> = outputs.into_iter().map(|output| self.output(output)).collect();
            assert_eq!(&Value::Array(seen), expect, "{at}");
        } else if let Some(request) = name("start") {
            assert_eq!(
                json!(self.connection.start(self.requests[&request], self.now)),
                *expect,
                "{at}"
            );
        } else if let Some(request) = name("finish") {
            let finish = self.connection.finish(self.requests[&request], self.now);
            assert_eq!(json!(finish.as_str()), *expect, "{at}");
        } else if let Some(request) = name("discard") {
            self.connection.discard(self.requests[&request]);
        } else if let Some(parent) = name("child") {
            let child = self.tokens[&parent].child();
            self.tokens.insert(name("as").expect("as"), child);
        } else if let Some(token) = name("token") {
            let token = &self.tokens[&token];
            for (key, expect) in expect.as_object().expect("expect") {
                let seen = match key.as_str() {
                    "cancelled" => json!(token.cancelled()),
                    "cause" => json!(token.cause().map(Cause::as_str)),
                    "reason" => json!(token.reason().as_deref()),
                    other => panic!("{at}: {other}"),
                };
                assert_eq!(&seen, expect, "{at}: {key}");
            }
        } else if let Some(token) = name("trip") {
            let cause = name("cause").map_or(Cause::Local, |cause| cause.parse().expect("a cause"));
            let tripped = self.tokens[&token].trip(cause, name("reason").as_deref());
            assert_eq!(json!(tripped), *expect, "{at}");
        } else if let Some(cause) = name("close") {
            let closed = self.connection.close(cause.parse().expect("a cause"), self.now);
            let names: Vec<_> =
                closed.into_iter().map(|generation| self.name(generation)).collect();
            assert_eq!(json!(names), *expect, "{at}");
        } else if let Some(by) = step["advance_ms"].as_u64() {
            self.now = self.now.after(Duration::from_millis(by));
            self.connection.handle_timeout(self.now);
        } else if let Some(by) = step["pass_ms"].as_u64() {
            self.now = self.now.after(Duration::from_millis(by));
        } else if let Some(expected) = step["stats"].as_object() {
            if expected.contains_key("tokens") {
                self.tokens.clear();
            }
            let stats = self.connection.stats();
            for (key, value) in expected {
                assert_eq!(&counter(&stats, key), value, "{at}: {key}");
            }
        } else {
            panic!("{at}: no such step: {step}");
        }
    }

    fn begin(&mut self, method: &str, step: &Value) -> Value {
        let params = step.get("params").map(Value::to_string);
        let millis = |key: &str| step[key].as_u64().map(Duration::from_millis);
        let begin = Begin {
            method,
            params: params.as_deref(),
            parent: step["within"].as_str().map(|token| &self.tokens[token]),
            idle: millis("idle_ms"),
            total: millis("total_ms"),
            progress: step["progress"].as_bool().unwrap_or(false),
        };
        match self.connection.begin(&begin, self.now) {
            Ok(made) => {
                let name = step["as"].as_str().expect("as");
                self.calls.insert(name.into(), made.call);
                self.tokens.insert(name.into(), made.token);
                parse(&made.frame)
            }
            Err(error) => json!({ "error": error.as_str() }),
        }
    }

    fn output(&self, output: Output) -> Value {
        match output {
            Output::Abandoned { call, cause, reason, outcome } => {
                let mut seen = json!({
                    "abandoned": self.call(call),
                    "cause": cause.as_str(),
                    "outcome": outcome.as_str(),
                });
                if let Some(reason) = reason {
                    seen["reason"] = (*reason).into();
                }
                seen
            }
            Output::Deliver { frame } => json!({ "deliver": parse(&frame) }),
            Output::Cancel { frame, .. } => json!({ "cancel": parse(&frame) }),
            Output::CloseStream { call } => json!({ "close_stream": self.call(call) }),
            Output::CloseTransport => json!("close_transport"),
            other => panic!("{other:?}"),
        }
    }

    fn received(
        &mut self,
        frame: &str,
        received: Received,
        names: &Value,
        expect: &Value,
    ) -> Value {
        match received {
            Received::Deliver { request, rewritten: bytes } => {
                assert_eq!(request.is_some(), names.is_string(), "tracked if and only if named");
                if let (Some(request), Some(name)) = (request, names.as_str()) {
                    let token = self.connection.token(request.generation).expect("a token");
                    assert_eq!(token.slot(), (request.slot, request.serial));
                    self.tokens.insert(name.into(), token);
                    self.requests.insert(name.into(), request.generation);
                }
                match bytes {
                    None => json!("deliver"),
                    Some(bytes) => rewritten("deliver", &bytes, expect),
                }
            }
            Received::Cancelled { generation, silence } => match silence {
                Silence::Nothing => json!({ "cancelled": self.name(generation) }),
                Silence::CloseStream => {
                    json!({ "cancelled": self.name(generation), "silence": "close_stream" })
                }
                Silence::Answer(answer) => {
                    json!({ "cancelled": self.name(generation), "silence": parse(&answer) })
                }
                other => panic!("{other:?}"),
            },
            Received::Settled { call } => json!({ "settled": self.call(call) }),
            Received::Progress { call } => json!({ "progress": self.call(call) }),
            Received::Ignored(reason) => json!({ "ignored": reason.as_str() }),
            Received::Reject { reply, reason } => {
                json!({ "reject": reason.as_str(), "reply": parse(&reply) })
            }
            Received::Batch(parts) => {
                let verdicts = parts.into_iter().enumerate().map(|(number, part)| {
                    let frame = String::from_utf8(part.frame).unwrap();
                    let seen = self.received(&frame, part.verdict, &names[number], &expect[number]);
                    without_reply(seen)
                });
                Value::Array(verdicts.collect())
            }
            other => panic!("{frame}: {other:?}"),
        }
    }

    fn call(&self, call: Call) -> String {
        let found = self.calls.iter().find(|(_, known)| **known == call);
        found.map_or_else(|| format!("{call:?}"), |(name, _)| name.clone())
    }

    fn name(&self, generation: Generation) -> String {
        let found = self.requests.iter().find(|(_, known)| **known == generation);
        found.map_or_else(|| format!("{generation:?}"), |(name, _)| name.clone())
    }
}

/// Inside a batch, replies are not compared.
fn without_reply(mut seen: Value) -> Value {
    if let Some(seen) = seen.as_object_mut() {
        seen.remove("reply");
    }
    seen
}

fn rewritten(verb: &str, bytes: &[u8], expect: &Value) -> Value {
    let raw = format!("{verb}_raw");
    if expect.get(&raw).is_some() {
        json!({ raw: String::from_utf8_lossy(bytes) })
    } else {
        json!({ verb: parse(bytes) })
    }
}

fn frame(step: &Value, verb: &str) -> Option<String> {
    match (step.get(verb), step.get(format!("{verb}_raw"))) {
        (Some(message), _) => Some(message.to_string()),
        (None, Some(raw)) => Some(raw.as_str().expect("text").to_owned()),
        (None, None) => None,
    }
}

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("what the core writes is JSON")
}

fn config(settings: &Value) -> Config {
    let number = |of: &Value, key: &str, default: usize| {
        of[key].as_u64().map_or(default, |value| usize::try_from(value).unwrap())
    };
    let default = Limits::default();
    let limits = &settings["limits"];
    let early = &settings["early_cancel"];
    Config {
        wire: match settings["wire"].as_str() {
            None | Some("stdio") => WireKind::Stdio,
            Some("http2025") => WireKind::Http2025,
            Some("http2026") => WireKind::Http2026,
            Some(other) => panic!("{other}"),
        },
        id_match: match settings["id_match"].as_str() {
            None | Some("strict") => IdMatch::Strict,
            Some("lenient") => IdMatch::Lenient,
            Some(other) => panic!("{other}"),
        },
        early_cancel: early.is_object().then(|| EarlyCancel {
            hold: Duration::from_millis(early["hold_ms"].as_u64().expect("hold_ms")),
            max: number(early, "max", 64),
        }),
        alias: AliasPolicy {
            beyond_f64: settings["alias"]["beyond_f64"].as_bool().unwrap_or(false),
            falsy: settings["alias"]["falsy"].as_bool().unwrap_or(false),
        },
        limits: Limits {
            max_in_flight: number(limits, "max_in_flight", default.max_in_flight),
            max_retired: number(limits, "max_retired", default.max_retired),
            retired_age: limits["retired_age_ms"]
                .as_u64()
                .map_or(default.retired_age, Duration::from_millis),
            max_reason_bytes: number(limits, "max_reason_bytes", default.max_reason_bytes),
            max_id_bytes: number(limits, "max_id_bytes", default.max_id_bytes),
            max_tasks: number(limits, "max_tasks", default.max_tasks),
            max_outbound: number(limits, "max_outbound", default.max_outbound),
            max_tombstones: number(limits, "max_tombstones", default.max_tombstones),
            tombstone_age: limits["tombstone_age_ms"]
                .as_u64()
                .map_or(default.tombstone_age, Duration::from_millis),
            ..default
        },
    }
}

fn counter(stats: &Stats, name: &str) -> Value {
    match name {
        "in_flight" => json!(stats.in_flight),
        "retired" => json!(stats.retired),
        "tasks" => json!(stats.tasks),
        "tokens" => json!(stats.tokens),
        "held" => json!(stats.held),
        "requests" => json!(stats.requests),
        "answered" => json!(stats.answered),
        "late_cancels" => json!(stats.late_cancels),
        "unknown_cancels" => json!(stats.unknown_cancels),
        "malformed_cancels" => json!(stats.malformed_cancels),
        "repeated_cancels" => json!(stats.repeated_cancels),
        "duplicate_ids" => json!(stats.duplicate_ids),
        "swallowed_answers" => json!(stats.swallowed_answers),
        "swallowed_progress" => json!(stats.swallowed_progress),
        "swallowed_unknown" => json!(stats.swallowed_unknown),
        "aliased" => json!(stats.aliased),
        "outbound" => json!(stats.outbound),
        "tombstones" => json!(stats.tombstones),
        "calls" => json!(stats.calls),
        "settled" => json!(stats.settled),
        "late_responses" => json!(stats.late_responses),
        "duplicate_responses" => json!(stats.duplicate_responses),
        "wrong_type_responses" => json!(stats.wrong_type_responses),
        "unknown_responses" => json!(stats.unknown_responses),
        "late_progress" => json!(stats.late_progress),
        other => panic!("no such counter: {other}"),
    }
}
