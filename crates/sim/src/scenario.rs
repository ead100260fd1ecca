//! Writes a schedule down as a file for `tests/scenarios`: what the model says is what it expects, so
//! it fails where the core is wrong and passes once the core is right.

use std::time::Duration;

use countermand_core::{CallOutcome, Config, IdMatch, Limits, WireKind};
use serde_json::{Map, Value, json};

use crate::audit::Breach;
use crate::model::{Out, Silence, Told, Verdict};
use crate::step::{Label, Step};
use crate::trial::{Seen, Trial};
use crate::world::Failure;

/// The scenario of a failure, as JSON with one step in a line.
pub fn scenario(failure: &Failure) -> String {
    let link = failure.steps.iter().rev().find_map(link_of).unwrap_or(0);
    let mut trial = Trial::new(&failure.configs);
    let mut steps = Vec::new();
    let mut breach = None;
    for step in &failure.steps {
        let result = trial.apply(step);
        breach = result.as_ref().err().cloned();
        if result != Ok(Seen::Skipped) && of_link(&trial, step, link) {
            steps.extend(written(&trial, step, link));
        }
        let told = trial.expected_told.iter().filter(|(at, _)| *at == link);
        let told: Vec<_> = told.map(|(_, told)| output(told)).collect();
        if !told.is_empty() {
            steps.push(json!({ "outputs": told }));
        }
    }
    steps.extend(looked_at(&trial, link));
    let Breach { invariant, detail } = breach.unwrap_or_else(|| failure.breach.clone());
    let lines: Vec<_> = steps.iter().map(|step| format!("    {step}")).collect();
    format!(
        "{{\n  \"about\": {},\n  \"kind\": \"K05\",\n  \"invariants\": [\"{invariant}\"],\n  \"connection\": {},\n  \"steps\": [\n{}\n  ]\n}}\n",
        json!(format!("Shrunk from a simulated world: {detail}")),
        settings(&failure.configs[link]),
        lines.join(",\n"),
    )
}

fn link_of(step: &Step) -> Option<usize> {
    match step {
        Step::Receive { link, .. }
        | Step::Send { link, .. }
        | Step::Begin { link, .. }
        | Step::Close { link, .. } => Some(*link),
        _ => None,
    }
}

fn of_link(trial: &Trial, step: &Step, link: usize) -> bool {
    let labelled = |of: &Label| {
        let request = trial.audit.get(*of).map(|history| history.link);
        let request = request.or_else(|| trial.audit.calls.get(*of).map(|call| call.link));
        request.or_else(|| trial.handles.get(of).map(|handle| handle.link)) == Some(link)
    };
    match step {
        Step::Start(of)
        | Step::Finish(of)
        | Step::Discard(of)
        | Step::Progress(of)
        | Step::Transmit(of)
        | Step::Abandon { call: of, .. }
        | Step::Answer { of, .. }
        | Step::Child { label: of, .. }
        | Step::Trip { token: of, .. } => labelled(of),
        Step::AnswerBatch(of) => of.iter().all(labelled),
        Step::Advance(_) | Step::Pass(_) | Step::Quiet => true,
        // Scenarios have no words for wakers and handles.
        Step::Watch(_) | Step::Unwatch(_) | Step::Drop(_) => false,
        Step::Receive { .. } | Step::Send { .. } | Step::Begin { .. } | Step::Close { .. } => {
            link_of(step) == Some(link)
        }
    }
}

/// The step in the words of the scenario files, and what the model expects of it.
fn written(trial: &Trial, step: &Step, link: usize) -> Option<Value> {
    let expected = &trial.expected;
    Some(match (step, expected) {
        (Step::Receive { frame, .. }, Seen::Received(verdict)) => {
            let mut step = json!({ "receive_raw": frame, "expect": expect(verdict) });
            match verdict {
                Verdict::Deliver(Some(label), _) => step["as"] = name(*label),
                Verdict::Batch(verdicts) => {
                    let names = verdicts.iter().map(|verdict| match verdict {
                        Verdict::Deliver(Some(label), _) => name(*label),
                        _ => Value::Null,
                    });
                    step["as"] = names.collect();
                }
                _ => {}
            }
            step
        }
        (Step::Start(of), Seen::Started(may)) => json!({ "start": name(*of), "expect": may }),
        (Step::Finish(of), Seen::Finished(finish)) => {
            json!({ "finish": name(*of), "expect": finish.as_str() })
        }
        (Step::Discard(of), _) => json!({ "discard": name(*of) }),
        (_, Seen::Sent(frame, out)) => {
            let mut sent = json!({ "send_raw": frame, "expect": decided(out) });
            if let Step::Send { parent: Some(parent), .. } = step {
                sent["within"] = name(*parent);
            }
            if let Out::Request(label, _) = out {
                sent["as"] = name(*label);
            }
            sent
        }
        (Step::Begin { ask, label, .. }, Seen::Begun(begun)) => {
            let mut step = json!({ "begin": ask.method, "as": name(*label) });
            let millis = |by: Option<Duration>| by.map(|by| json!(ms(by)));
            let parts = [
                ("params", ask.params.as_deref().and_then(|text| serde_json::from_str(text).ok())),
                ("within", ask.parent.map(name)),
                ("idle_ms", millis(ask.idle)),
                ("total_ms", millis(ask.total)),
                ("progress", ask.progress.then_some(json!(true))),
            ];
            for (key, part) in parts {
                if let Some(part) = part {
                    step[key] = part;
                }
            }
            step["expect"] = match begun {
                Ok((_, frame)) => serde_json::from_str(frame).unwrap_or_default(),
                Err(error) => json!({ "error": error }),
            };
            step
        }
        (Step::Transmit(of), Seen::Transmitted(may)) => {
            json!({ "transmit": name(*of), "expect": may })
        }
        (Step::Abandon { call, cause, reason }, Seen::Abandoned(abandoned)) => because(
            json!({ "abandon": name(*call), "cause": cause.as_str(), "expect": abandoned }),
            reason,
        ),
        (Step::Child { parent, label }, _) => json!({ "child": name(*parent), "as": name(*label) }),
        (Step::Trip { token, cause, reason }, Seen::Tripped(first)) => because(
            json!({ "trip": name(*token), "cause": cause.as_str(), "expect": first }),
            reason,
        ),
        (Step::Close { link: at, cause }, Seen::Closed(labels)) if *at == link => {
            let names: Vec<_> = labels.iter().map(|label| name(*label)).collect();
            json!({ "close": cause.as_str(), "expect": names })
        }
        (Step::Advance(by), _) => json!({ "advance_ms": ms(*by) }),
        (Step::Pass(by), _) => json!({ "pass_ms": ms(*by) }),
        (Step::Quiet, _) => json!({ "advance_ms": 3_600_000 }),
        _ => return None,
    })
}

fn because(mut step: Value, reason: &Option<String>) -> Value {
    if let Some(reason) = reason {
        step["reason"] = json!(reason);
    }
    step
}

fn ms(by: Duration) -> u64 {
    u64::try_from(by.as_millis()).unwrap_or(u64::MAX)
}

fn decided(out: &Out) -> Value {
    match out {
        Out::Write => json!("write"),
        Out::Rewrite(rewritten) => json!({ "write_raw": rewritten }),
        Out::Request(_, None) => json!("request"),
        Out::Request(_, Some(rewritten)) => json!({ "request_raw": rewritten }),
        Out::Cancel(None) => json!("cancel"),
        Out::Cancel(Some(rewritten)) => json!({ "cancel_raw": rewritten }),
        Out::Swallow(reason) => json!({ "swallow": reason.as_str() }),
    }
}

fn output(told: &Told) -> Value {
    match told {
        Told::Abandoned { call, cause, reason, outcome } => because(
            json!({ "abandoned": name(*call), "cause": cause.as_str(), "outcome": outcome.as_str() }),
            reason,
        ),
        Told::Refused(id) => json!({ "deliver": refusal(id) }),
        Told::Cancel { id, reason, .. } => {
            let id: Value = serde_json::from_str(id).unwrap_or_default();
            let params = because(json!({ "requestId": id }), reason);
            json!({ "cancel": {
                "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params } })
        }
        Told::CloseStream(call) => json!({ "close_stream": name(*call) }),
        Told::CloseTransport => json!("close_transport"),
    }
}

/// The error that says that a request was cancelled.
fn refusal(id: &str) -> Value {
    let id: Value = serde_json::from_str(id).unwrap_or_default();
    let error = json!({ "code": -32800, "message": "Request cancelled" });
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

/// What a runner can look at in the end: every token, what is known of calls, and the counters.
fn looked_at(trial: &Trial, link: usize) -> Vec<Value> {
    let model = &trial.links[link].model;
    let mine = trial.handles.iter().filter(|(_, handle)| handle.link == link);
    let mut steps: Vec<_> = mine
        .map(|(label, handle)| {
            let cause = model.tokens.node(handle.node).cause;
            json!({ "token": name(*label), "expect": {
                "cancelled": cause.is_some(), "cause": cause.map(countermand_core::Cause::as_str) } })
        })
        .collect();
    let outcome = |(label, outcome): (Label, CallOutcome)| json!({ "outcome": name(label), "expect": outcome.as_str() });
    steps.extend(model.outcomes().map(outcome));
    let stats = model.stats();
    steps.push(json!({ "stats": {
        "in_flight": stats.in_flight, "retired": stats.retired, "held": stats.held,
        "answered": stats.answered, "swallowed_answers": stats.swallowed_answers,
        "outbound": stats.outbound, "tombstones": stats.tombstones, "settled": stats.settled } }));
    steps
}

fn expect(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Deliver(_, None) => json!("deliver"),
        Verdict::Deliver(_, Some(rewritten)) => json!({ "deliver_raw": rewritten }),
        Verdict::Cancelled(label, Silence::Nothing) => json!({ "cancelled": name(*label) }),
        Verdict::Cancelled(label, Silence::CloseStream) => {
            json!({ "cancelled": name(*label), "silence": "close_stream" })
        }
        Verdict::Cancelled(label, Silence::Answer(id)) => {
            json!({ "cancelled": name(*label), "silence": refusal(id) })
        }
        Verdict::Settled(label) => json!({ "settled": name(*label) }),
        Verdict::Progress(label) => json!({ "progress": name(*label) }),
        Verdict::Ignored(reason) => json!({ "ignored": reason.as_str() }),
        Verdict::Reject(reason, _) => json!({ "reject": reason.as_str() }),
        Verdict::Batch(verdicts) => verdicts.iter().map(expect).collect(),
    }
}

fn name(label: Label) -> Value {
    json!(format!("r{label}"))
}

/// Only what is not as it is by default.
fn settings(config: &Config) -> Value {
    let mut settings = Map::new();
    let mut set = |key: &str, value: Value| settings.insert(key.into(), value);
    match config.wire {
        WireKind::Http2025 => set("wire", json!("http2025")),
        WireKind::Http2026 => set("wire", json!("http2026")),
        _ => None,
    };
    if config.id_match == IdMatch::Lenient {
        set("id_match", json!("lenient"));
    }
    if let Some(early) = config.early_cancel {
        set("early_cancel", json!({ "hold_ms": ms(early.hold), "max": early.max }));
    }
    let alias = config.alias;
    if alias.beyond_f64 || alias.falsy {
        set("alias", json!({ "beyond_f64": alias.beyond_f64, "falsy": alias.falsy }));
    }
    let (limits, default) = (config.limits, Limits::default());
    let mut bounds = Map::new();
    let mut bound = |key: &str, value: usize, default: usize| {
        if value != default {
            bounds.insert(key.into(), json!(value));
        }
    };
    bound("max_in_flight", limits.max_in_flight, default.max_in_flight);
    bound("max_retired", limits.max_retired, default.max_retired);
    bound("max_reason_bytes", limits.max_reason_bytes, default.max_reason_bytes);
    bound("max_id_bytes", limits.max_id_bytes, default.max_id_bytes);
    bound("max_tasks", limits.max_tasks, default.max_tasks);
    bound("max_outbound", limits.max_outbound, default.max_outbound);
    bound("max_tombstones", limits.max_tombstones, default.max_tombstones);
    if limits.retired_age != default.retired_age {
        bounds.insert("retired_age_ms".into(), json!(ms(limits.retired_age)));
    }
    if limits.tombstone_age != default.tombstone_age {
        bounds.insert("tombstone_age_ms".into(), json!(ms(limits.tombstone_age)));
    }
    if !bounds.is_empty() {
        set("limits", Value::Object(bounds));
    }
    Value::Object(settings)
}
