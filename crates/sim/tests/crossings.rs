//! Every crossing of request, start, exit, answer, cancel, reuse of an id and disconnect between two
//! peers, exhaustively, over the real connection.
//!
//! Both channels keep their order, and what a peer sends here waits for nothing that it is told. So all
//! that can cross on the wire is covered by every order in which its messages are read and the
//! server's decisions are made: those orders are what is explored. A state is all that decides what
//! may still come of each request; the way to it is replayed on a real connection for each of its
//! successors, and compared with the model and the invariants step by step.

#![allow(clippy::struct_excessive_bools)] // What happened to a request is a list of facts.

use std::hash::{Hash, Hasher};

use countermand_core::{Cause, Config};
use countermand_sim::model::{Out, Verdict};
use countermand_sim::step::{Body, Label, Step};
use countermand_sim::trial::{Seen, Trial};
use stateright::{Checker, Model, Property};

struct Crossings {
    requests: usize,
}

/// How far a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Request {
    id: usize,
    cancel_read: bool,
    cancelled: bool,
    delivered: bool,
    aliased: bool,
    started: bool,
    exited: bool,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Answer {
    #[default]
    None,
    Written,
    Swallowed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    requests: Vec<Request>,
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
    /// The next request is read: under a new id, or under that of the first.
    Request {
        reuse: bool,
    },
    /// A cancel for the id of this request is read.
    Cancel(usize),
    Start(usize),
    Exit(usize),
    Answer(usize),
    Disconnect,
}

fn label(number: usize) -> Label {
    Label::try_from(number).expect("few")
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

    fn read(&mut self, number: usize, frame: String) {
        match self.step(Step::Receive { link: 0, frame, label: label(number) }) {
            Seen::Received(Verdict::Deliver(Some(_), rewritten)) => {
                self.requests[number].delivered = true;
                self.requests[number].aliased = rewritten.is_some();
            }
            Seen::Received(Verdict::Cancelled(hit, _)) => {
                self.requests[hit as usize].cancelled = true;
            }
            _ => {}
        }
    }

    fn any(&self, what: impl Fn(&Request) -> bool) -> bool {
        self.requests.iter().any(what)
    }
}

impl Model for Crossings {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { requests: Vec::new(), closed: false, breach: None, way: Way(Vec::new()) }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.requests.len() < self.requests {
            actions.push(Action::Request { reuse: false });
            if !state.requests.is_empty() {
                actions.push(Action::Request { reuse: true });
            }
        }
        for (number, request) in state.requests.iter().enumerate() {
            if !request.cancel_read {
                actions.push(Action::Cancel(number));
            }
            if request.delivered && !request.started && !request.exited {
                actions.push(Action::Start(number));
            }
            if request.started && !request.exited {
                actions.push(Action::Exit(number));
            }
            // Some SDKs answer before the handler has gone, or without ever starting it.
            if request.delivered && request.answer == Answer::None {
                actions.push(Action::Answer(number));
            }
        }
        if !state.closed && !state.requests.is_empty() {
            actions.push(Action::Disconnect);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Request { reuse } => {
                let number = state.requests.len();
                let id = if reuse { 0 } else { number };
                state.requests.push(Request { id, ..Request::default() });
                let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call"}}"#);
                state.read(number, frame);
            }
            Action::Cancel(number) => {
                state.requests[number].cancel_read = true;
                let id = state.requests[number].id;
                let frame = format!(
                    r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
                );
                state.read(self.requests + number, frame);
            }
            Action::Start(number) => {
                let started = state.step(Step::Start(label(number))) == Seen::Started(true);
                state.requests[number].started = started;
                state.requests[number].exited = !started;
            }
            Action::Exit(number) => {
                state.step(Step::Finish(label(number)));
                state.requests[number].exited = true;
            }
            Action::Answer(number) => {
                let answer = Step::Answer { of: label(number), body: Body::Result };
                state.requests[number].answer = match state.step(answer) {
                    Seen::Sent(_, Out::Write | Out::Rewrite(_)) => Answer::Written,
                    _ => Answer::Swallowed,
                };
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
            Property::always("I1 to I15", |_, state: &State| state.breach.is_none()),
            Property::sometimes("the answer wins", |_, state: &State| {
                state.any(|it| it.cancel_read && !it.cancelled && it.answer == Answer::Written)
            }),
            Property::sometimes("the cancel wins", |_, state: &State| {
                state.any(|it| it.cancelled && it.started && it.answer == Answer::Swallowed)
            }),
            Property::sometimes("the cancel wins before the start", |_, state: &State| {
                state.any(|it| it.cancelled && it.exited && !it.started)
            }),
            Property::sometimes("a duplicate id is rejected", |_, state: &State| {
                !state.closed && state.any(|it| !it.delivered)
            }),
            Property::sometimes("an alias answers before the old handler", |_, state: &State| {
                let waits = |it: &Request| it.cancelled && it.started && it.answer == Answer::None;
                state.any(waits) && state.any(|it| it.aliased && it.answer == Answer::Written)
            }),
            Property::sometimes("a disconnect cuts a request off", |_, state: &State| {
                state.closed && state.any(|it| !it.cancelled && it.answer == Answer::Swallowed)
            }),
        ]
    }
}

/// Requests whose ids nobody else uses are alike: which of them is in which state makes no difference.
fn alike(state: &State) -> State {
    let (mut requests, mut others): (Vec<_>, Vec<_>) =
        state.requests.iter().copied().partition(|request| request.id == 0);
    for other in &mut others {
        other.id = 1;
    }
    others.sort_unstable();
    requests.extend(others);
    State { requests, closed: state.closed, breach: state.breach.clone(), way: Way(Vec::new()) }
}

fn explore(requests: usize) -> usize {
    let checker = Crossings { requests }.checker().symmetry_fn(alike).spawn_dfs().join();
    checker.assert_properties();
    checker.unique_state_count()
}

#[test]
fn every_crossing_of_up_to_two_requests() {
    let states = explore(2);
    assert!(states > 300, "only {states} states");
}

#[test]
#[ignore = "takes minutes: `make crossings`"]
fn every_crossing_of_up_to_three_requests() {
    println!("{} states", explore(3));
}

#[test]
#[ignore = "takes minutes: `make crossings`"]
fn every_crossing_of_up_to_four_requests() {
    println!("{} states", explore(4));
}
