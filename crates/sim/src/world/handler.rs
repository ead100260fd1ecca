//! What stands behind a binding: an SDK and its handlers, obedient and otherwise.

use countermand_core::{Cause, Finish};

use super::{Event, World};
use crate::audit::Breach;
use crate::step::{Body, Label, Step};
use crate::trial::Seen;

/// How a handler, or the SDK around it, behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Exits soon after its token trips.
    Obeys,
    /// Never looks.
    Ignores,
    /// Exits in the very instant in which its cancel arrives.
    AtOnce,
    /// Raises its language's cancellation, whether or not it was cancelled.
    Raises,
    /// Catches its cancellation and returns a result all the same.
    Swallows,
    /// Is answered for before it has exited.
    AnswersFirst,
    /// Is answered for twice.
    AnswersTwice,
    /// Is never started: the SDK answers in its place.
    Refused,
}

const KINDS: [Kind; 8] = [
    Kind::Obeys,
    Kind::Ignores,
    Kind::AtOnce,
    Kind::Raises,
    Kind::Swallows,
    Kind::AnswersFirst,
    Kind::AnswersTwice,
    Kind::Refused,
];

/// One request in our SDK's hands.
pub(super) struct Agent {
    pub(super) link: usize,
    kind: Kind,
    begun: bool,
    exited: bool,
    cancelled: bool,
    /// Answers still to be sent.
    answers: usize,
    tokens: Vec<Label>,
}

impl World {
    /// A request was handed to the SDK.
    pub(super) fn hire(&mut self, link: usize, label: Label) {
        let kind = self.rng.pick(&KINDS);
        let answers = if kind == Kind::AnswersTwice { 2 } else { 1 };
        let agent = Agent {
            link,
            kind,
            begun: false,
            exited: false,
            cancelled: false,
            answers,
            tokens: vec![label],
        };
        self.agents.insert(label, agent);
        let delay = self.rng.below(5);
        self.after(delay, Event::Begin(label));
    }

    /// Its token has tripped.
    pub(super) fn notice(&mut self, label: Label) {
        let Some(agent) = self.agents.get_mut(&label) else { return };
        agent.cancelled = true;
        if agent.begun && !agent.exited && matches!(agent.kind, Kind::Obeys | Kind::Raises) {
            let delay = self.rng.below(3);
            self.after(delay, Event::Exit(label));
        }
    }

    pub(super) fn begin(&mut self, label: Label) -> Result<(), Breach> {
        let withdraw = self.rng.percent(40);
        let agent = self.agents.get_mut(&label).expect("hired");
        if agent.kind == Kind::Refused {
            return self.reply(label);
        }
        agent.begun = true;
        if agent.cancelled && withdraw {
            agent.answers = 0;
            agent.exited = true;
            return self.step(Step::Discard(label)).map(drop);
        }
        if self.step(Step::Start(label))? == Seen::Started(false) {
            self.agents.get_mut(&label).expect("hired").exited = true;
            // Some SDKs answer what they were not let run, and some do not.
            if self.rng.percent(50) {
                let delay = self.rng.below(4);
                self.after(delay, Event::Reply(label));
            }
            return Ok(());
        }
        let mut exit = self.clock + self.rng.below(12) as u64;
        let agent = &self.agents[&label];
        if agent.kind == Kind::AtOnce
            && let Some(arrival) = self.cancel_arrives(agent.link, label)
        {
            exit = arrival;
        }
        self.at(exit, Event::Exit(label));
        for _ in 0..self.rng.below(7) {
            let delay = self.rng.below(14);
            self.after(delay, Event::Act(label));
        }
        Ok(())
    }

    /// When a cancel for this request, that is already on its way, arrives.
    fn cancel_arrives(&self, link: usize, label: Label) -> Option<u64> {
        let id = &self.trial.audit.get(label)?.raw_id;
        let coming = self.peers[link].coming.iter().filter(|(_, at)| *at >= self.clock);
        coming.filter(|(meant, _)| meant == id).map(|(_, at)| *at).min()
    }

    /// Something that a handler, or what it started, does; tokens may outlive it.
    pub(super) fn act(&mut self, label: Label) -> Result<(), Breach> {
        let choice = self.rng.below(100);
        let tokens = self.agents[&label].tokens.clone();
        let token = self.rng.pick(&tokens);
        let step = match choice {
            0..=39 => {
                // Mostly below the newest, so that trees grow deep.
                let deep = self.rng.percent(75);
                let newest = *tokens.last().expect("its own token at least");
                let mut parent = if deep { newest } else { token };
                let depth = if self.rng.percent(15) { 7 } else { 1 };
                for _ in 0..depth {
                    let child = self.label();
                    self.step(Step::Child { parent, label: child })?;
                    self.agents.get_mut(&label).expect("hired").tokens.push(child);
                    parent = child;
                }
                return Ok(());
            }
            40..=54 => Step::Watch(token),
            55..=57 => Step::Unwatch(token),
            58..=60 => Step::Drop(token),
            61..=68 => {
                let cause = self.rng.pick(&[Cause::Local, Cause::Timeout]);
                let reason = self.rng.percent(20).then(|| "no more of it".to_owned());
                Step::Trip { token, cause, reason }
            }
            69..=79 => {
                let link = self.agents[&label].link;
                return self.call(link, Some(token));
            }
            _ => return self.send(Step::Progress(label)).map(drop),
        };
        self.step(step).map(drop)
    }

    pub(super) fn exit(&mut self, label: Label) -> Result<(), Breach> {
        let agent = self.agents.get_mut(&label).expect("hired");
        if agent.exited {
            return Ok(());
        }
        agent.exited = true;
        let (kind, link) = (agent.kind, agent.link);
        if kind == Kind::AnswersFirst {
            self.reply(label)?;
            return self.step(Step::Finish(label)).map(drop);
        }
        let owed = self.step(Step::Finish(label))? == Seen::Finished(Finish::Owed);
        let stubborn = matches!(kind, Kind::Ignores | Kind::Swallows | Kind::AnswersTwice);
        if owed && self.rng.percent(8) && self.answer_together(link)? {
            return Ok(());
        }
        if owed || stubborn || self.rng.percent(50) {
            let slow = self.rng.percent(12);
            let delay = if slow { 4 + self.rng.below(30) } else { self.rng.below(3) };
            self.after(delay, Event::Reply(label));
        }
        Ok(())
    }

    /// Some SDKs collect answers into a batch.
    fn answer_together(&mut self, link: usize) -> Result<bool, Breach> {
        let ready = |(_, agent): &(&Label, &Agent)| {
            agent.link == link && agent.exited && agent.begun && agent.answers == 1
        };
        let of: Vec<_> = self.agents.iter().filter(ready).map(|(label, _)| *label).collect();
        if of.is_empty() {
            return Ok(false);
        }
        for label in &of {
            self.agents.get_mut(label).expect("hired").answers = 0;
        }
        self.send(Step::AnswerBatch(of))?;
        Ok(true)
    }

    pub(super) fn reply(&mut self, of: Label) -> Result<(), Breach> {
        let agent = self.agents.get_mut(&of).expect("hired");
        if agent.answers == 0 {
            return Ok(());
        }
        agent.answers -= 1;
        let (link, again, kind) = (agent.link, agent.answers > 0, agent.kind);
        let body = self.body(link, of, kind);
        if let Body::Task(task) = &body {
            let (delay, task) = (self.rng.below(20), task.clone());
            if self.rng.percent(60) {
                let delay = self.rng.below(16);
                self.after(delay, Event::CancelTask(link, task.clone()));
            }
            self.after(delay, Event::EndTask(link, task));
        }
        self.send(Step::Answer { of, body })?;
        if again {
            let delay = self.rng.below(10);
            self.after(delay, Event::Reply(of));
        }
        Ok(())
    }

    fn body(&mut self, link: usize, of: Label, kind: Kind) -> Body {
        if self.trial.audit.get(of).is_some_and(|history| history.initialize) {
            return Body::Version(self.peers[link].version);
        }
        let task = ["t0", "t1", "t2"][self.rng.below(3)].to_owned();
        match self.rng.below(100) {
            _ if kind == Kind::Raises => Body::Error,
            // An SDK returns a handle where one was asked for; one that does so unasked is no better.
            0..=39 if self.peers[link].asked.contains(&of) => Body::Task(task),
            0..=3 => Body::Task(task),
            4..=9 => Body::TaskStatus(task, self.rng.pick(&["working", "completed", "cancelled"])),
            10..=24 => Body::Error,
            _ => Body::Result,
        }
    }

    /// A frame of our side that answers nothing of the peer's.
    pub(super) fn aside(&mut self, link: usize) -> Result<(), Breach> {
        let frame = match self.rng.below(7) {
            0 => r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}"#,
            1 => r#"{"jsonrpc":"2.0","id":null,"method":"sampling/createMessage"}"#,
            2 => r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            3 => r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
            4 => r#"{"jsonrpc":"2.0","id":77777,"result":{}}"#,
            5 => r#"{"jsonrpc":"2.0","id":"spoken","error":{"code":-32600,"message":"no method"}}"#,
            _ => {
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}"#
            }
        };
        let label = self.label();
        self.send(Step::Send { link, frame: frame.into(), parent: None, label })?;
        // A second answer to the last that was answered, from a layer that did not know.
        let answered = |history: &crate::audit::History| {
            history.link == link && history.answered_at.is_some() && !history.withdrawn
        };
        let last = self.trial.audit.all().rfind(|(_, history)| answered(history));
        if let Some((of, _)) = last.filter(|(of, _)| self.agents.contains_key(of)) {
            self.send(Step::Answer { of, body: Body::Error })?;
        }
        Ok(())
    }
}
