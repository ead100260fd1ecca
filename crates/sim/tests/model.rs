//! The core against the reference model, step by step, on schedules that proptest makes and shrinks.
//!
//! The simulator's worlds behave as peers and SDKs do; the steps here come in any order at all.

use std::time::Duration;

use countermand_core::{AliasPolicy, Cause, Config, EarlyCancel, IdMatch, Limits, WireKind};
use countermand_sim::step::{Ask, Body, Label, Step};
use countermand_sim::trial::Trial;
use proptest::prelude::*;
use proptest::sample::select;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

const IDS: &[&str] =
    &["0", "1", "1.0", "2", "\"1\"", "\"\"", "\"\\u0031\"", "1e30", "\"countermand:2:0\""];
const TOKENS: &[&str] = &["", "\"p\"", "1", "\"countermand:2:0\""];
const METHODS: &[&str] = &["tools/call", "tools/call", "tools/call", "initialize", "tasks/cancel"];

/// Which labels there may be. The model inside [`Trial`] is the reference that is compared with; here
/// stands only what a next step can speak of.
#[derive(Clone, Debug)]
struct Schedule {
    config: Config,
    labels: Label,
}

fn config() -> impl Strategy<Value = Config> {
    let ms = Duration::from_millis;
    let limits = (select(vec![1, 2, 16]), select(vec![0, 1, 16]), select(vec![0, 1, 16]));
    let rules =
        (select(vec![WireKind::Stdio, WireKind::Http2025, WireKind::Http2026]), any::<[bool; 4]>());
    (limits, rules).prop_map(move |((in_flight, retired, tasks), (wire, [a, b, c, d]))| Config {
        wire,
        id_match: if a { IdMatch::Lenient } else { IdMatch::Strict },
        early_cancel: b.then_some(EarlyCancel { hold: ms(3), max: 2 }),
        alias: AliasPolicy { beyond_f64: c, falsy: d },
        limits: Limits {
            max_in_flight: in_flight,
            max_retired: retired,
            retired_age: ms(4),
            max_reason_bytes: 5,
            max_id_bytes: 32,
            max_tasks: tasks,
            max_outbound: in_flight,
            max_tombstones: retired,
            tombstone_age: ms(4),
            ..Limits::default()
        },
    })
}

fn frame() -> impl Strategy<Value = String> {
    let call = (select(IDS), select(TOKENS), select(METHODS), any::<bool>()).prop_map(
        |(id, token, method, task)| {
            let token =
                if token.is_empty() { String::new() } else { format!("\"progressToken\":{token}") };
            let task = if task { "\"taskId\":\"t\",\"task\":{}," } else { "\"taskId\":\"t\"," };
            format!(r#"{{"id":{id},"method":"{method}","params":{{{task}"_meta":{{{token}}}}}}}"#)
        },
    );
    let cancel = (select(IDS), select(vec!["", ",\"reason\":\"weißes\"", ",\"reason\":[]"]))
        .prop_map(|(id, reason)| {
            format!(
                r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}{reason}}}}}"#
            )
        });
    let odd = select(vec![
        "[]",
        "{}",
        "null",
        r#"{"id":null,"method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"{"id":true,"method":"m"}"#,
        r#"{"id":"odd"}"#,
        r#"{"id":1,"result":{}}"#,
    ]);
    let single = prop_oneof![4 => call, 4 => cancel, 1 => odd.prop_map(str::to_owned)].boxed();
    let batch = proptest::collection::vec(single.clone(), 1..4);
    prop_oneof![12 => single, 1 => batch.prop_map(|frames| format!("[{}]", frames.join(",")))]
}

/// What comes back for requests of ours, and much that does not.
fn reply() -> impl Strategy<Value = String> {
    let ids =
        ["0", "1", "1.0", "2", "3", "\"1\"", "\"2\"", "1000000000", "1000000001", "-1", "null"];
    let bodies = [
        r#""result":{}"#,
        r#""result":{"task":{"taskId":"o"}}"#,
        r#""error":{"code":-32800}"#,
        r#""result":{"protocolVersion":"2025-06-18"}"#,
    ];
    let response = (select(ids.to_vec()), select(bodies.to_vec()))
        .prop_map(|(id, body)| format!(r#"{{"id":{id},{body}}}"#));
    let progress = select(OUR_TOKENS.to_vec()).prop_map(|token| {
        format!(r#"{{"method":"notifications/progress","params":{{"progressToken":{token}}}}}"#)
    });
    prop_oneof![3 => response, 1 => progress]
}

const OUR_TOKENS: &[&str] =
    &["1", "2", "\"p\"", "1000000000", "\"countermand:1000000000\"", "\"countermand:2\"", "true"];

/// What an SDK behind us sends of its own accord.
fn asked() -> impl Strategy<Value = String> {
    let ids =
        ["0", "1", "2", "7", "\"1\"", "300", "1000000000", "1700000000000", "9007199254740991"];
    let request = (
        select(ids.to_vec()),
        select(OUR_TOKENS.to_vec()),
        select(vec!["ping", "ping", "initialize"]),
        any::<[bool; 2]>(),
    )
        .prop_map(|(id, token, method, [progress, task])| {
            let meta = if progress {
                format!("\"_meta\":{{\"progressToken\":{token}}}")
            } else {
                String::new()
            };
            let task = if task { "\"task\":{}" } else { "" };
            let comma = if progress && !task.is_empty() { "," } else { "" };
            format!(r#"{{"id":{id},"method":"{method}","params":{{{meta}{comma}{task}}}}}"#)
        });
    let cancel = select(ids.to_vec()).prop_map(|id| {
        format!(r#"{{"method":"notifications/cancelled","params":{{"requestId":{id},"reason":"stop it"}}}}"#)
    });
    prop_oneof![3 => request, 2 => cancel]
}

fn ask(labels: Label) -> impl Strategy<Value = Ask> {
    let params = [
        "{}",
        "{\"_meta\":null}",
        "{\n\"_meta\":{}}",
        "{\"_meta\":{\"progressToken\":\"p\"}}",
        "7",
    ];
    let ms = || proptest::option::of((0_u64..5).prop_map(Duration::from_millis));
    (
        select(vec!["ping", "ping", "initialize"]),
        proptest::option::of(select(params.to_vec())),
        proptest::option::of(0..labels),
        (ms(), ms()),
        any::<bool>(),
    )
        .prop_map(|(method, params, parent, (idle, total), progress)| Ask {
            method,
            params: params.map(str::to_owned),
            parent,
            idle,
            total,
            progress,
        })
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        4 => Just(Body::Result),
        1 => Just(Body::Error),
        1 => Just(Body::Task("t".into())),
        1 => Just(Body::TaskStatus("t".into(), "completed")),
        1 => select(vec!["2025-03-26", "2025-06-18"]).prop_map(Body::Version),
    ]
}

impl ReferenceStateMachine for Schedule {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        config().prop_map(|config| Self { config, labels: 1 }).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Step> {
        let fresh = state.labels;
        let label = || 0..fresh.max(1);
        let cause = select(Cause::ALL.to_vec());
        prop_oneof![
            30 => frame().prop_map(move |frame| Step::Receive { link: 0, frame, label: fresh }),
            8 => label().prop_map(Step::Start),
            8 => label().prop_map(Step::Finish),
            2 => label().prop_map(Step::Discard),
            14 => (label(), body()).prop_map(|(of, body)| Step::Answer { of, body }),
            2 => proptest::collection::btree_set(label(), 1..4)
                .prop_map(|of| Step::AnswerBatch(of.into_iter().collect())),
            6 => label().prop_map(Step::Progress),
            1 => select(vec![
                r#"{"id":"odd","error":{}}"#,
                r#"{"id":7,"result":{}}"#,
                r#"{"method":"notifications/tasks/status","params":{"taskId":"t","status":"failed"}}"#,
            ])
            .prop_map(move |frame| {
                Step::Send { link: 0, frame: frame.into(), parent: None, label: fresh }
            }),
            8 => (asked(), proptest::option::of(label())).prop_map(move |(frame, parent)| {
                Step::Send { link: 0, frame, parent, label: fresh }
            }),
            8 => ask(fresh).prop_map(move |ask| Step::Begin { link: 0, ask, label: fresh }),
            8 => label().prop_map(Step::Transmit),
            4 => (label(), cause.clone(), proptest::option::of(Just("nö, nö".to_owned())))
                .prop_map(|(call, cause, reason)| Step::Abandon { call, cause, reason }),
            10 => reply().prop_map(move |frame| Step::Receive { link: 0, frame, label: fresh }),
            6 => label().prop_map(move |parent| Step::Child { parent, label: fresh }),
            3 => (label(), cause.clone()).prop_map(|(token, cause)| Step::Trip { token, cause, reason: Some("längst".into()) }),
            4 => label().prop_map(Step::Watch),
            2 => label().prop_map(Step::Unwatch),
            3 => label().prop_map(Step::Drop),
            4 => (0_u64..4).prop_map(|ms| Step::Advance(Duration::from_millis(ms))),
            1 => (0_u64..4).prop_map(|ms| Step::Pass(Duration::from_millis(ms))),
            1 => cause.prop_map(|cause| Step::Close { link: 0, cause }),
        ]
        .boxed()
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        state.labels += match step {
            // A batch takes one for each of its elements.
            Step::Receive { frame, .. } if frame.starts_with('[') => 4,
            Step::Receive { .. } | Step::Child { .. } | Step::Send { .. } | Step::Begin { .. } => 1,
            _ => 0,
        };
        state
    }
}

struct Compared;

impl StateMachineTest for Compared {
    type SystemUnderTest = Trial;
    type Reference = Schedule;

    fn init_test(schedule: &Schedule) -> Trial {
        Trial::new(std::slice::from_ref(&schedule.config))
    }

    fn apply(mut trial: Trial, _: &Schedule, step: Step) -> Trial {
        if let Err(breach) = trial.apply(&step) {
            panic!("{step:?}: {breach:?}");
        }
        trial
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn i1_to_i15_the_core_does_what_the_model_does(sequential 1..120 => Compared);
}
