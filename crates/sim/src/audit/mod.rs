//! The auditor: checks the invariants from the history of each request alone.
//!
//! It does not know the rules of the model; it remembers what was seen of each request and
//! objects to what must never be. A breach of one of these is a fault whatever the model says.
//! The histories of our own requests are in `calls`.

pub mod calls;

use std::collections::BTreeMap;

use countermand_core::{Finish, Time};

use crate::model::read::{Key, key, object};
use crate::model::{Out, Silence, Verdict};
use crate::step::Label;

/// Something that must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The invariant, by the name that ARCHITECTURE.md gives it; `model` where the two differ.
    pub invariant: &'static str,
    /// What was seen.
    pub detail: String,
}

impl Breach {
    /// Of this invariant.
    pub fn new(invariant: &'static str, detail: impl Into<String>) -> Self {
        Self { invariant, detail: detail.into() }
    }
}

/// What was seen of one request.
#[derive(Clone, Debug)]
pub struct History {
    /// Its connection.
    pub link: usize,
    /// Its id by value.
    pub id: Key,
    /// Its id as the peer spelt it.
    pub raw_id: String,
    /// Its id as our side was given it.
    pub inner_id: String,
    /// Its progress token: as the peer spelt it, and as our side was given it.
    pub progress: Option<(String, String)>,
    /// Whether it is the handshake.
    pub initialize: bool,
    /// When its cancel was decided.
    pub cancelled_at: Option<Time>,
    /// When an answer to it was written.
    pub answered_at: Option<Time>,
    /// Whether an answer to it was tried.
    pub tried: bool,
    /// Whether that answer returned the handle of a task.
    pub became_task: bool,
    /// Whether progress of it was written.
    pub progressed: bool,
    /// Whether its handler was started.
    pub started: bool,
    /// Whether its handler has exited, or never will start.
    pub ended: bool,
    /// Whether it was withdrawn.
    pub withdrawn: bool,
}

impl History {
    /// Whether the peer still waits for its answer.
    pub fn open(&self) -> bool {
        self.cancelled_at.is_none() && self.answered_at.is_none() && !self.withdrawn
    }

    fn try_answer(&mut self, closed: bool) {
        self.tried = true;
        // Answered without a start, and cancelled: no handler will run.
        self.ended |= !closed && self.cancelled_at.is_some() && !self.started;
    }
}

/// The histories of all requests of a world.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    requests: BTreeMap<Label, History>,
    /// Those of our own requests.
    pub calls: calls::Calls,
    closed: Vec<usize>,
}

impl Audit {
    /// What is known of a request.
    pub fn get(&self, label: Label) -> Option<&History> {
        self.requests.get(&label)
    }

    /// The same, to note something.
    pub fn get_mut(&mut self, label: Label) -> Option<&mut History> {
        self.requests.get_mut(&label)
    }

    /// All that happened, in the order of their labels.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = (Label, &History)> {
        self.requests.iter().map(|(label, history)| (*label, history))
    }

    /// The last request with this id on this connection, before `label`.
    pub fn last_with(&self, link: usize, id: &Key, before: Label) -> Option<(Label, &History)> {
        let mut earlier = self.requests.range(..before).rev();
        let found = earlier.find(|(_, history)| history.link == link && history.id == *id);
        found.map(|(label, history)| (*label, history))
    }

    /// A request was handed on.
    pub fn opened(&mut self, label: Label, history: History) -> Result<(), Breach> {
        if self.is_closed(history.link) {
            return Err(Breach::new("I3", format!("{label} delivered after the end")));
        }
        let inner = key(&history.inner_id);
        let clash = self.requests.iter().find(|(_, other)| {
            other.link == history.link && other.open() && key(&other.inner_id) == inner
        });
        if let Some((other, _)) = clash {
            let detail = format!("{label} and {other} both known inside as {}", history.inner_id);
            return Err(Breach::new("I1", detail));
        }
        self.requests.insert(label, history);
        Ok(())
    }

    /// A cancel was said to hit a request.
    pub fn cancelled(
        &mut self,
        link: usize,
        label: Label,
        meant: &Key,
        lenient: bool,
        now: Time,
    ) -> Result<(), Breach> {
        let newest = self.last_with(link, &self.requests[&label].id.clone(), Label::MAX);
        let newest = newest.map(|(newest, _)| newest);
        let history = self.requests.get_mut(&label).expect("a label that was given");
        if history.initialize {
            return Err(Breach::new("I9", "the handshake was cancelled"));
        }
        let fits =
            history.id == *meant || (lenient && meant.other_type() == Some(history.id.clone()));
        if history.link != link || !fits || newest != Some(label) {
            return Err(Breach::new("I7", format!("{meant:?} cancelled {label}, {history:?}")));
        }
        if !history.open() {
            return Err(Breach::new("I7", format!("{label} was cancelled, but it was settled")));
        }
        history.cancelled_at = Some(now);
        Ok(())
    }

    /// Where a wire must end with an answer, it is one to the request that was cancelled.
    pub fn silenced(&self, label: Label, silence: &Silence) -> Result<(), Breach> {
        match silence {
            Silence::Answer(raw) if key(raw).as_ref() != Some(&self.requests[&label].id) => {
                Err(Breach::new("I1", format!("the end of {label} is an answer to {raw}")))
            }
            _ => Ok(()),
        }
    }

    /// An answer to a request was tried, and this is what became of it.
    pub fn answered(
        &mut self,
        label: Label,
        out: &Out,
        frame: &str,
        now: Time,
    ) -> Result<(), Breach> {
        let closed = self.is_closed(self.requests[&label].link);
        let history = self.requests.get_mut(&label).expect("a label that was given");
        history.try_answer(closed);
        let written = match out {
            Out::Write => frame,
            Out::Rewrite(rewritten) => rewritten,
            Out::Swallow(_) if history.open() && !closed => {
                return Err(Breach::new("I3", format!("the answer to {label} was lost")));
            }
            Out::Swallow(_) => return Ok(()),
            Out::Request(..) | Out::Cancel(_) => {
                return Err(Breach::new("I14", format!("{frame} was taken for {out:?}")));
            }
        };
        if closed {
            return Err(Breach::new("I2", format!("{label} was answered after the end")));
        }
        if history.answered_at.is_some() {
            return Err(Breach::new("I1", format!("{label} was answered twice")));
        }
        if history.cancelled_at.is_some() {
            return Err(Breach::new("I2", format!("{label} was answered after its cancel")));
        }
        let id =
            object(written).and_then(|fields| fields.get("id").map(|raw| raw.get().to_owned()));
        if id.as_ref() != Some(&history.raw_id) || written.contains('\n') {
            return Err(Breach::new("I1", format!("{label} was answered by {written}")));
        }
        if history.raw_id == history.inner_id && *out != Out::Write {
            return Err(Breach::new(
                "I14",
                format!("the answer to {label} was changed: {written}"),
            ));
        }
        history.answered_at = Some(now);
        Ok(())
    }

    /// An answer was tried among others, and written if the request was open.
    pub fn answered_in_batch(&mut self, label: Label, open: bool, now: Time) {
        let history = self.requests.get_mut(&label).expect("a label that was given");
        history.try_answer(false);
        if open {
            history.answered_at = Some(now);
        }
    }

    /// Progress of a request was tried, and this is what became of it.
    pub fn progressed(&mut self, label: Label, out: &Out, frame: &str) -> Result<(), Breach> {
        let history = &self.requests[&label];
        let Some((raw, inner)) = history.progress.clone() else { return Ok(()) };
        let link = history.link;
        let shared = self.requests.iter().any(|(other, history)| {
            let same = history.progress.as_ref().is_some_and(|(_, token)| *token == inner);
            *other != label && history.link == link && same
        });
        let closed = self.is_closed(link);
        let history = self.requests.get_mut(&label).expect("a label that was given");
        let written = match out {
            Out::Write => frame,
            Out::Rewrite(rewritten) => rewritten,
            Out::Swallow(_) if history.open() && !shared && !closed => {
                return Err(Breach::new("I3", format!("progress of {label} was lost")));
            }
            Out::Swallow(_) => return Ok(()),
            Out::Request(..) | Out::Cancel(_) => {
                return Err(Breach::new("I14", format!("{frame} was taken for {out:?}")));
            }
        };
        // A withdrawn request's progress is nobody's: no handler ran.
        if !shared && history.cancelled_at.is_some() && !history.ended {
            return Err(Breach::new("I2", format!("progress of {label} after its cancel")));
        }
        if !shared && history.open() && !written.contains(&format!("\"progressToken\":{raw},")) {
            return Err(Breach::new("I14", format!("progress of {label} came out as {written}")));
        }
        history.progressed = true;
        Ok(())
    }

    /// A handler asked whether it may start.
    pub fn started(&mut self, label: Label, may: bool) -> Result<(), Breach> {
        let history = self.requests.get_mut(&label).expect("a label that was given");
        if may != history.open() {
            return Err(Breach::new("I2", format!("start of {label}: {may}, {history:?}")));
        }
        history.started |= may;
        history.ended |= !may;
        Ok(())
    }

    /// A handler has exited.
    pub fn finished(&mut self, label: Label, finish: Finish) -> Result<(), Breach> {
        let history = self.requests.get_mut(&label).expect("a label that was given");
        history.ended = true;
        let right = match finish {
            Finish::Owed => history.open(),
            Finish::Silent => history.cancelled_at.is_some(),
            _ => !history.open(),
        };
        if right {
            return Ok(());
        }
        Err(Breach::new("I3", format!("finish of {label}: {finish:?}, {history:?}")))
    }

    /// The connection is over, and this cancelled these.
    pub fn closed(&mut self, link: usize, cancelled: &[Label], now: Time) -> Result<(), Breach> {
        if self.is_closed(link) {
            let again = Breach::new("I7", format!("{link} was closed twice"));
            return if cancelled.is_empty() { Ok(()) } else { Err(again) };
        }
        self.closed.push(link);
        let open = |(_, history): &(&Label, &mut History)| history.link == link && history.open();
        let open: Vec<_> = self.requests.iter_mut().filter(open).collect();
        if !open.iter().map(|(label, _)| **label).eq(cancelled.iter().copied()) {
            return Err(Breach::new("I7", format!("the end of {link} cancelled {cancelled:?}")));
        }
        for (_, history) in open {
            history.cancelled_at = Some(now);
        }
        Ok(())
    }

    /// Whether the connection is over.
    pub fn is_closed(&self, link: usize) -> bool {
        self.closed.contains(&link)
    }

    /// A frame that is no cancel and opened nothing must pass as it came.
    pub fn passed(frame: &str, verdict: &Verdict) -> Result<(), Breach> {
        match verdict {
            Verdict::Deliver(None, Some(rewritten)) => {
                Err(Breach::new("I14", format!("{frame} came out as {rewritten}")))
            }
            _ => Ok(()),
        }
    }

    /// At the end of a world: whoever was neither cancelled nor withdrawn nor cut off was answered.
    pub fn settled(&self) -> Result<(), Breach> {
        let forgotten = self
            .requests
            .iter()
            .find(|(_, history)| history.tried && history.open() && !self.is_closed(history.link));
        match forgotten {
            None => Ok(()),
            Some((label, _)) => Err(Breach::new("I3", format!("{label} was never answered"))),
        }
    }
}
