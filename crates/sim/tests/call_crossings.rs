//! Every crossing of our own requests with all that can end them: transmit, response, a second response, progress,
//! abandonment, the idle timeout, the trip of what they were asked for, and disconnect, exhaustively, over the real
//! connection. As in `crossings`, a state is all that decides what may still come, and the way to it is replayed.

#![allow(clippy::struct_excessive_bools)] // What happened to a request is a list of facts.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use countermand_core::{Cause, Config, IgnoreReason};
use countermand_sim::model::Verdict;
use countermand_sim::step::{Ask, Label, Step};
use countermand_sim::trial::{Seen, Trial};
use stateright::{Checker, Model, Property};

/// The request of the peer on whose behalf calls are made.
const PARENT: Label = 0;
/// Two of these are too long for a call that makes no progress.
const TICK: Duration = Duration::from_millis(6);
const IDLE: Duration = Duration::from_millis(10);
const TICKS: u8 = 3;

struct Crossings {
    calls: usize,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Call {
    nested: bool,
    /// It could not be made.
    refused: bool,
    asked_writer: bool,
    sent: bool,
    responses: u8,
    settled: bool,
    late: bool,
    given_up: bool,
    progressed: bool,
    /// Ticks since it was begun or made progress.
    age: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    calls: Vec<Call>,
    ticks: u8,
    tripped: bool,
    closed: bool,
    breach: Option<String>,
    way: Way,
}

/// How the state was reached: the same state, whatever the way.
#[derive(Clone, Debug)]
struct Way(Vec<Step>);

impl PartialEq for Way {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Way {}

impl Hash for Way {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// A call on behalf of the peer's request, or of the call before, or of nobody.
    Begin {
        nested: bool,
    },
    Transmit(usize),
    Response(usize),
    Progress(usize),
    GiveUp(usize),
    Tick,
    Trip,
    Disconnect,
}

fn label(number: usize) -> Label {
    Label::try_from(number + 1).expect("few")
}

impl State {
    /// Takes a step on a real connection that has come the same way.
    fn step(&mut self, step: Step) -> Seen {
        let mut trial = Trial::new(&[Config::default()]);
        for step in &self.way.0 {
            trial.retrace(step).expect("it went well the first time");
        }
        let seen = trial.apply(&step);
        self.way.0.push(step);
        seen.unwrap_or_else(|breach| {
            self.breach = Some(format!("{breach:?}"));
            Seen::Skipped
        })
    }

    fn read(&mut self, frame: String) -> Seen {
        let label = Label::try_from(100 + self.way.0.len()).expect("few");
        self.step(Step::Receive { link: 0, frame, label })
    }

    fn any(&self, what: impl Fn(&Call) -> bool) -> bool {
        self.calls.iter().any(what)
    }
}

impl Model for Crossings {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let frame = r#"{"jsonrpc":"2.0","id":"p","method":"tools/call"}"#.to_owned();
        let way = vec![Step::Receive { link: 0, frame, label: PARENT }, Step::Start(PARENT)];
        vec![State {
            calls: Vec::new(),
            ticks: 0,
            tripped: false,
            closed: false,
            breach: None,
            way: Way(way),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.calls.len() < self.calls {
            actions.extend([Action::Begin { nested: false }, Action::Begin { nested: true }]);
        }
        let made = state.calls.iter().enumerate().filter(|(_, call)| !call.refused);
        for (number, call) in made {
            if !call.asked_writer {
                actions.push(Action::Transmit(number));
            }
            // A peer may answer what it cannot have read, and twice.
            if call.responses < 2 {
                actions.push(Action::Response(number));
            }
            if !call.progressed {
                actions.push(Action::Progress(number));
            }
            if !call.given_up {
                actions.push(Action::GiveUp(number));
            }
        }
        if state.ticks < TICKS && !state.calls.is_empty() {
            actions.push(Action::Tick);
        }
        if !state.tripped {
            actions.push(Action::Trip);
        }
        if !state.closed {
            actions.push(Action::Disconnect);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Begin { nested } => {
                let number = state.calls.len();
                // The first below the peer's request, the next below the call before it.
                let above = if number == 0 { PARENT } else { label(number - 1) };
                let ask = Ask {
                    method: "ping",
                    parent: nested.then_some(above),
                    idle: Some(IDLE),
                    progress: true,
                    ..Ask::default()
                };
                let begun = state.step(Step::Begin { link: 0, ask, label: label(number) });
                let refused = !matches!(begun, Seen::Begun(Ok(_)));
                state.calls.push(Call { nested, refused, ..Call::default() });
            }
            Action::Transmit(number) => {
                let may = state.step(Step::Transmit(label(number)));
                state.calls[number].asked_writer = true;
                state.calls[number].sent = may == Seen::Transmitted(true);
            }
            Action::Response(number) => {
                let id = number_on_the_wire(&state, number);
                let seen = state.read(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
                let call = &mut state.calls[number];
                call.responses += 1;
                call.settled |= matches!(seen, Seen::Received(Verdict::Settled(_)));
                call.late |= seen == Seen::Received(Verdict::Ignored(IgnoreReason::LateResponse));
            }
            Action::Progress(number) => {
                let id = number_on_the_wire(&state, number);
                let seen = state.read(format!(
                    r#"{{"method":"notifications/progress","params":{{"progressToken":{id}}}}}"#
                ));
                let call = &mut state.calls[number];
                call.progressed = true;
                if matches!(seen, Seen::Received(Verdict::Progress(_))) {
                    call.age = 0;
                }
            }
            Action::GiveUp(number) => {
                let call = label(number);
                state.step(Step::Abandon { call, cause: Cause::Local, reason: None });
                state.calls[number].given_up = true;
            }
            Action::Tick => {
                state.step(Step::Advance(TICK));
                state.ticks += 1;
                for call in &mut state.calls {
                    call.age += 1;
                }
            }
            Action::Trip => {
                state.step(Step::Trip { token: PARENT, cause: Cause::Peer, reason: None });
                state.tripped = true;
            }
            Action::Disconnect => {
                state.step(Step::Close { link: 0, cause: Cause::Disconnect });
                state.closed = true;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("I5 to I11", |_, state: &State| state.breach.is_none()),
            Property::sometimes("the response wins", |_, state: &State| {
                state.any(|it| it.settled && it.given_up)
            }),
            Property::sometimes("the abandonment wins", |_, state: &State| {
                state.any(|it| it.late && it.given_up)
            }),
            Property::sometimes("the timeout wins", |_, state: &State| {
                state.any(|it| it.late && !it.given_up && it.age > 1)
            }),
            Property::sometimes("the parent's trip wins", |_, state: &State| {
                state.tripped && state.any(|it| it.late && it.nested && !it.given_up && it.age < 2)
            }),
            Property::sometimes("the abandonment comes before the writer", |_, state: &State| {
                state.any(|it| it.asked_writer && !it.sent)
            }),
            Property::sometimes("progress puts off the timeout", |_, state: &State| {
                state.ticks == TICKS && state.any(|it| it.settled && it.progressed && it.age == 2)
            }),
            Property::sometimes("a call for what is over is refused", |_, state: &State| {
                state.any(|it| it.refused)
            }),
        ]
    }
}

/// The id of a call: those that were refused have none.
fn number_on_the_wire(state: &State, number: usize) -> usize {
    1 + state.calls[..number].iter().filter(|call| !call.refused).count()
}

fn explore(calls: usize) -> usize {
    let checker = Crossings { calls }.checker().spawn_dfs().join();
    checker.assert_properties();
    checker.unique_state_count()
}

#[test]
fn every_crossing_of_one_call() {
    let states = explore(1);
    assert!(states > 100, "only {states} states");
}

#[test]
#[ignore = "takes minutes: `make crossings`"]
fn every_crossing_of_two_calls() {
    println!("{} states", explore(2));
}
