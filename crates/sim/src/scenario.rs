//! Writes a schedule down as a file for `tests/scenarios`: what the model says is what it expects, so
//! it fails where the core is wrong and passes once the core is right.

use countermand_core::{Config, IdMatch, Limits, WireKind};
use serde_json::{Map, Value, json};

use crate::audit::Breach;
use crate::model::{Out, Silence, Verdict};
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
        Step::Receive { link, .. } | Step::Send { link, .. } | Step::Close { link, .. } => {
            Some(*link)
        }
        _ => None,
    }
}

fn of_link(trial: &Trial, step: &Step, link: usize) -> bool {
    let labelled = |of: &Label| {
        let request = trial.audit.get(*of).map(|history| history.link);
        request.or_else(|| trial.handles.get(of).map(|handle| handle.link)) == Some(link)
    };
    match step {
        Step::Start(of)
        | Step::Finish(of)
        | Step::Discard(of)
        | Step::Progress(of)
        | Step::Answer { of, .. }
        | Step::Child { label: of, .. }
        | Step::Trip { token: of, .. } => labelled(of),
        Step::AnswerBatch(of) => of.iter().all(labelled),
        Step::Advance(_) => true,
        // Scenarios have no words for wakers, handles and minted ids.
        Step::Watch(_) | Step::Unwatch(_) | Step::Drop(_) | Step::Mint(_) => false,
        Step::Receive { .. } | Step::Send { .. } | Step::Close { .. } => {
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
        (_, Seen::Sent(frame, out)) => json!({ "send_raw": frame, "expect": match out {
            Out::Write => json!("write"),
            Out::Rewrite(rewritten) => json!({ "write_raw": rewritten }),
            Out::Swallow(reason) => json!({ "swallow": reason.as_str() }),
        } }),
        (Step::Child { parent, label }, _) => json!({ "child": name(*parent), "as": name(*label) }),
        (Step::Trip { token, cause }, Seen::Tripped(first)) => {
            json!({ "trip": name(*token), "cause": cause.as_str(), "expect": first })
        }
        (Step::Close { link: at, cause }, Seen::Closed(labels)) if *at == link => {
            let names: Vec<_> = labels.iter().map(|label| name(*label)).collect();
            json!({ "close": cause.as_str(), "expect": names })
        }
        (Step::Advance(by), _) => {
            json!({ "advance_ms": u64::try_from(by.as_millis()).unwrap_or(u64::MAX) })
        }
        _ => return None,
    })
}

/// What a runner can look at in the end: every token and the counters.
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
    let stats = model.stats();
    steps.push(json!({ "stats": {
        "in_flight": stats.in_flight, "retired": stats.retired, "held": stats.held,
        "answered": stats.answered, "swallowed_answers": stats.swallowed_answers } }));
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
            let id: Value = serde_json::from_str(id).unwrap_or_default();
            let error = json!({ "code": -32800, "message": "Request cancelled" });
            json!({ "cancelled": name(*label),
                "silence": { "jsonrpc": "2.0", "id": id, "error": error } })
        }
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
        let hold = u64::try_from(early.hold.as_millis()).unwrap_or(u64::MAX);
        set("early_cancel", json!({ "hold_ms": hold, "max": early.max }));
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
    if limits.retired_age != default.retired_age {
        let age = u64::try_from(limits.retired_age.as_millis()).unwrap_or(u64::MAX);
        bounds.insert("retired_age_ms".into(), json!(age));
    }
    if !bounds.is_empty() {
        set("limits", Value::Object(bounds));
    }
    Value::Object(settings)
}
