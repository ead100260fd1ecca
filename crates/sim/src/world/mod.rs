//! A world: from one seed, peers, handlers and wires in virtual time, and every event in it applied to
//! the real connections through a [`Trial`].
//!
//! What peers send is chosen in `peer`, what handlers do in `handler`, what our side asks of peers and what
//! they make of it in `caller`, how bytes leave in `wire`.
//! Here is the queue of events, and the order in which they happen.

mod caller;
mod handler;
mod peer;
mod wire;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use countermand_core::{
    AliasPolicy, Cause, Config, EarlyCancel, IdMatch, IgnoreReason, Limits, WireKind,
};

use crate::audit::Breach;
use crate::coverage::{Counter, Coverage};
use crate::model::{Silence, Verdict};
use crate::rng::Rng;
use crate::step::{Label, Step};
use crate::trial::{Seen, Trial};
use caller::{Caller, Manner, Sdk};
use handler::Agent;
use peer::Peer;
use wire::Wire;

/// How a world went.
pub struct Outcome {
    /// What happened in it.
    pub coverage: Coverage,
    /// How many steps it took.
    pub steps: usize,
    /// What went wrong, if anything.
    pub failure: Option<Failure>,
}

/// A breach, and the schedule that led to it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was broken.
    pub breach: Breach,
    /// The settings of the connections.
    pub configs: Vec<Config>,
    /// Every step, the last being the one that broke it.
    pub steps: Vec<Step>,
}

/// Runs the world of this seed to its end, or to the first breach.
pub fn run(seed: u64) -> Outcome {
    let mut world = World::new(seed);
    let lived = world.live();
    let failure = lived.err().map(|breach| Failure {
        breach,
        configs: world.configs,
        steps: world.steps.clone(),
    });
    Outcome { coverage: world.trial.coverage, steps: world.steps.len(), failure }
}

/// What is going to happen. Handlers are named by the label of their request.
#[derive(Clone, Debug)]
enum Event {
    /// A peer sends its next request.
    Request(usize),
    /// A peer sends a cancel for this id.
    Cancel(usize, String),
    /// A peer sends something that it should not.
    Nuisance(usize),
    /// The next frame of a peer arrives.
    Arrive(usize),
    /// A handler is due to start.
    Begin(Label),
    /// A running handler does something.
    Act(Label),
    /// A handler exits.
    Exit(Label),
    /// The SDK sends its answer.
    Reply(Label),
    /// A peer cancels a task.
    CancelTask(usize, String),
    /// A task ends by itself.
    EndTask(usize, String),
    /// Our side sends something that has nothing to do with requests of the peer.
    Aside(usize),
    /// Our side makes a request of its own, on behalf of this token.
    Call(usize, Option<Label>),
    /// The writer's turn has come to a request of ours.
    Transmit(Label),
    /// Its caller gives it up.
    GiveUp(Label),
    /// The peer answers it.
    Respond(Label, Manner),
    /// The peer reports progress of it.
    ReportProgress(Label),
    /// The wire takes a few bytes.
    Flush(usize),
    /// A connection ends.
    Close(usize, Cause),
}

struct World {
    rng: Rng,
    configs: Vec<Config>,
    trial: Trial,
    steps: Vec<Step>,
    peers: Vec<Peer>,
    wires: Vec<Wire>,
    agents: BTreeMap<Label, Agent>,
    callers: BTreeMap<Label, Caller>,
    sdks: Vec<Sdk>,
    labels: Label,
    clock: u64,
    told: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Event>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let links = rng.pick(&[1, 1, 1, 2, 3]);
        let configs: Vec<_> = (0..links).map(|_| config(&mut rng)).collect();
        let mut world = Self {
            trial: Trial::new(&configs),
            peers: configs.iter().map(|config| Peer::new(&mut rng, config)).collect(),
            wires: (0..links).map(|_| Wire::default()).collect(),
            configs,
            rng,
            steps: Vec::new(),
            agents: BTreeMap::new(),
            callers: BTreeMap::new(),
            sdks: (0..links).map(|_| Sdk::default()).collect(),
            labels: 0,
            clock: 0,
            told: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
        };
        for link in 0..links {
            world.plan(link);
        }
        world
    }

    /// What a connection's peer, and our own side, mean to do.
    fn plan(&mut self, link: usize) {
        let busy = self.rng.percent(4);
        let requests = if busy { 16 } else { 1 + self.rng.below(6) };
        for _ in 0..requests {
            let at = self.rng.below(25);
            self.after(at, Event::Request(link));
        }
        for _ in 0..self.rng.below(4) {
            let at = self.rng.below(40);
            self.after(at, Event::Nuisance(link));
        }
        for _ in 0..self.rng.below(5) {
            let at = self.rng.below(30);
            self.after(at, Event::Call(link, None));
        }
        if self.rng.percent(30) {
            let at = self.rng.below(40);
            self.after(at, Event::Aside(link));
        }
        if self.rng.percent(60) {
            let at = 3 + self.rng.below(50);
            let cause = self.rng.pick(&[
                Cause::Disconnect,
                Cause::Disconnect,
                Cause::Shutdown,
                Cause::Timeout,
            ]);
            self.after(at, Event::Close(link, cause));
        }
        self.trial.coverage.hit_if(self.peers[link].modern, Counter::Modern);
    }

    /// Puts an event so many milliseconds ahead; those of one instant happen in any order.
    fn after(&mut self, delay: usize, event: Event) {
        self.at(self.clock + delay as u64, event);
    }

    fn at(&mut self, time: u64, event: Event) {
        let lot = self.rng.draw();
        self.queue.push(Reverse((time, lot, self.events.len())));
        self.events.push(event);
    }

    fn label(&mut self) -> Label {
        self.labels += 1;
        self.labels
    }

    fn live(&mut self) -> Result<(), Breach> {
        while let Some(Reverse((time, _, event))) = self.queue.pop() {
            self.clock = time;
            let event = self.events[event].clone();
            self.happen(event)?;
        }
        self.end()
    }

    /// Takes a step, and tells the connections the time first if it has moved.
    fn step(&mut self, step: Step) -> Result<Seen, Breach> {
        if self.told < self.clock {
            let by = Duration::from_millis(self.clock - self.told);
            let late = self.rng.percent(6);
            let advance = if late { Step::Pass(by) } else { Step::Advance(by) };
            self.told = self.clock;
            self.steps.push(advance);
            self.trial.apply(self.steps.last().expect("just pushed"))?;
        }
        self.steps.push(step);
        self.trial.apply(self.steps.last().expect("just pushed"))
    }

    fn happen(&mut self, event: Event) -> Result<(), Breach> {
        match event {
            Event::Request(link) => self.send_request(link),
            Event::Cancel(link, id) => self.send_cancel(link, &id),
            Event::Nuisance(link) => self.send_nuisance(link),
            Event::Arrive(link) => {
                let (frame, label) = self.peers[link].way.pop_front().expect("it was sent");
                let seen = self.step(Step::Receive { link, frame, label })?;
                if let Seen::Received(verdict) = seen {
                    self.heard(link, verdict);
                }
            }
            Event::Begin(of) => self.begin(of)?,
            Event::Act(of) => self.act(of)?,
            Event::Exit(of) => self.exit(of)?,
            Event::Reply(of) => self.reply(of)?,
            Event::CancelTask(link, task) => self.send_task_cancel(link, &task),
            Event::EndTask(link, task) => {
                let frame = format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{{"taskId":"{task}","status":"completed"}}}}"#
                );
                let label = self.label();
                self.send(Step::Send { link, frame, parent: None, label })?;
            }
            Event::Aside(link) => self.aside(link)?,
            Event::Call(link, parent) => self.call(link, parent)?,
            Event::Transmit(of) => self.transmit(of)?,
            Event::GiveUp(of) => self.give_up(of)?,
            Event::Respond(of, manner) => self.respond(of, manner),
            Event::ReportProgress(of) => self.report_progress(of),
            Event::Flush(link) => {
                let (late, more) = self.wires[link].flush(&mut self.rng, &self.peers[link])?;
                self.trial.coverage.hit_if(late, Counter::LateResponse);
                if more {
                    self.after(1, Event::Flush(link));
                }
            }
            Event::Close(link, cause) => {
                self.step(Step::Close { link, cause })?;
                let cut = self.wires[link].cut();
                self.trial.coverage.hit_if(cut, Counter::DisconnectMidWrite);
            }
        }
        Ok(())
    }

    /// Sends something of our side, and puts on the wire what may be written.
    fn send(&mut self, step: Step) -> Result<Seen, Breach> {
        let link = match &step {
            Step::Send { link, .. } => *link,
            Step::Answer { of, .. } | Step::Progress(of) => self.agents[of].link,
            Step::AnswerBatch(of) => self.agents[&of[0]].link,
            _ => unreachable!("not of our side: {step:?}"),
        };
        let seen = self.step(step)?;
        if let Seen::Sent(frame, out) = &seen
            && let Some(written) = wire::written(frame, out)
        {
            self.write(link, written.to_owned());
        }
        Ok(seen)
    }

    fn write(&mut self, link: usize, frame: String) {
        let delay = self.rng.below(3);
        if self.wires[link].write(frame) {
            self.after(delay, Event::Flush(link));
        }
    }

    /// Does what a binding does with a verdict.
    fn heard(&mut self, link: usize, verdict: Verdict) {
        match verdict {
            Verdict::Deliver(Some(label), _) => self.hire(link, label),
            Verdict::Cancelled(label, silence) => {
                if let Silence::Answer(id) = silence {
                    self.write(link, format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{}}}}"#));
                }
                self.notice(label);
            }
            Verdict::Reject(_, id) => {
                self.write(link, format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{}}}}"#));
            }
            Verdict::Batch(verdicts) => {
                for verdict in verdicts {
                    self.heard(link, verdict);
                }
            }
            Verdict::Deliver(None, _)
            | Verdict::Settled(_)
            | Verdict::Progress(_)
            | Verdict::Ignored(_) => {}
        }
    }

    /// All is over: what still runs exits, what is still held is let go, and when all that is kept for
    /// a time has gone, nothing may be left.
    fn end(&mut self) -> Result<(), Breach> {
        let open: Vec<_> = self.trial.audit.all().map(|(label, _)| label).collect();
        for link in 0..self.configs.len() {
            self.probe(link)?;
        }
        for label in open {
            self.step(Step::Finish(label))?;
        }
        self.trial.audit.settled()?;
        for link in 0..self.configs.len() {
            self.step(Step::Close { link, cause: Cause::Shutdown })?;
        }
        let held: Vec<_> = self.trial.handles.keys().copied().collect();
        for label in held {
            self.step(Step::Drop(label))?;
        }
        self.step(Step::Quiet).map(drop)
    }

    /// Whatever was sent before, an ordinary request is served.
    fn probe(&mut self, link: usize) -> Result<(), Breach> {
        if self.trial.audit.is_closed(link) || self.trial.full(link) {
            return Ok(());
        }
        let label = self.label();
        let frame = format!(r#"{{"jsonrpc":"2.0","id":"probe-{link}","method":"ping"}}"#);
        match self.step(Step::Receive { link, frame, label })? {
            Seen::Received(Verdict::Deliver(Some(_), None)) => {}
            Seen::Received(Verdict::Ignored(IgnoreReason::Closed)) => return Ok(()),
            other => return Err(Breach::new("I15", format!("a ping led to {other:?}"))),
        }
        self.step(Step::Start(label))?;
        self.step(Step::Finish(label))?;
        self.step(Step::Answer { of: label, body: crate::step::Body::Result })?;
        Ok(())
    }
}

/// Settings that make the bounds and the rare rules felt.
fn config(rng: &mut Rng) -> Config {
    let ms = Duration::from_millis;
    Config {
        wire: rng.pick(&[WireKind::Stdio, WireKind::Stdio, WireKind::Http2025, WireKind::Http2026]),
        id_match: rng.pick(&[IdMatch::Strict, IdMatch::Strict, IdMatch::Lenient]),
        early_cancel: rng
            .percent(30)
            .then(|| EarlyCancel { hold: ms(1 + rng.below(8) as u64), max: rng.pick(&[1, 2, 64]) }),
        alias: AliasPolicy { beyond_f64: rng.percent(20), falsy: rng.percent(20) },
        limits: Limits {
            max_in_flight: rng.pick(&[2, 4, 64, 16_384]),
            max_retired: rng.pick(&[0, 1, 3, 1_024]),
            retired_age: rng.pick(&[ms(2), ms(10), ms(30_000)]),
            max_reason_bytes: rng.pick(&[3, 1_024]),
            max_id_bytes: rng.pick(&[24, 4_096]),
            max_tasks: rng.pick(&[0, 1, 1_024]),
            max_outbound: rng.pick(&[2, 4, 16_384]),
            max_tombstones: rng.pick(&[0, 1, 3, 1_024]),
            tombstone_age: rng.pick(&[ms(3), ms(10), ms(60_000)]),
            ..Limits::default()
        },
    }
}
