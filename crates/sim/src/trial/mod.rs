//! Applies steps to real connections, to the model and to the auditor, and compares. What our side
//! sends is in `sending`, our own requests in `calling`, what is looked at after each step in `check`; all else is
//! here.

mod calling;
mod check;
mod sending;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use countermand_core::{
    BatchPart, Config, Connection, Finish, Generation, IdMatch, Received, Time, Token, Watch,
};

use crate::audit::{Audit, Breach, History};
use crate::coverage::{Counter, Coverage};
use crate::model::read::{array, key, object};
use crate::model::{Begun, Model, Out, Silence, Told, Verdict};
use crate::step::{Label, Step};
use calling::Names;

/// The connections of one world, and what is known about them.
pub struct Trial {
    pub(crate) links: Vec<Link>,
    pub(crate) now: Time,
    pub(crate) audit: Audit,
    pub(crate) handles: BTreeMap<Label, Handle>,
    /// What has happened so far.
    pub coverage: Coverage,
    /// What the model said about the last step.
    pub(crate) expected: Seen,
    /// What the core wanted done about our own requests after the last step, and on which connection.
    pub(crate) told: Vec<(usize, Told)>,
    /// What the model wanted.
    pub(crate) expected_told: Vec<(usize, Told)>,
}

pub(crate) struct Link {
    pub(crate) config: Config,
    pub(crate) connection: Connection,
    pub(crate) model: Model,
    labels: HashMap<Generation, Label>,
    generations: HashMap<Label, Generation>,
    names: Names,
    /// The place and the serial of every token that was given out.
    words: HashSet<(u32, u32)>,
}

/// A token that our side holds.
pub(crate) struct Handle {
    pub(crate) link: usize,
    pub(crate) token: Token,
    pub(crate) node: usize,
    watch: Option<(Watch, Arc<Count>)>,
    /// Seen tripped.
    pub(crate) tripped: bool,
    /// By a trip of its own.
    pub(crate) own: bool,
    /// Times that its waker was seen woken.
    woken: usize,
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a step led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It meant nothing.
    Skipped,
    /// Of a frame of the peer.
    Received(Verdict),
    /// May the handler start?
    Started(bool),
    /// What the handler owes.
    Finished(Finish),
    /// What our side sent, and what became of it.
    Sent(String, Out),
    /// Whether a trip was the first.
    Tripped(bool),
    /// Whom a close cancelled.
    Closed(Vec<Label>),
    /// A request of ours, or why there is none.
    Begun(Begun),
    /// May the writer write it?
    Transmitted(bool),
    /// What it took to abandon it.
    Abandoned(&'static str),
    /// Nothing to tell.
    Done,
}

impl Trial {
    /// One connection for each of these.
    pub fn new(configs: &[Config]) -> Self {
        let link = |config: &Config| {
            let connection = Connection::new(config.clone());
            Link {
                config: config.clone(),
                names: Names::of(&connection),
                connection,
                model: Model::new(config.clone()),
                labels: HashMap::new(),
                generations: HashMap::new(),
                words: HashSet::new(),
            }
        };
        Self {
            links: configs.iter().map(link).collect(),
            now: Time(0),
            audit: Audit::default(),
            handles: BTreeMap::new(),
            coverage: Coverage::default(),
            expected: Seen::Skipped,
            told: Vec::new(),
            expected_told: Vec::new(),
        }
    }

    /// Takes one step, then checks everything.
    ///
    /// # Errors
    ///
    /// An invariant was broken, or the core and the model differ.
    pub fn apply(&mut self, step: &Step) -> Result<Seen, Breach> {
        self.expected = Seen::Skipped;
        // The worlds of a panic are thrown away: nobody looks at what it left half done.
        let performed = catch_unwind(AssertUnwindSafe(|| self.perform(step)));
        let seen = performed.unwrap_or_else(|_| Err(Breach::new("I15", "the core panicked")))?;
        if seen != Seen::Skipped {
            self.check(step)?;
        }
        Ok(seen)
    }

    /// Takes a step that went well before, without looking at everything again.
    pub fn retrace(&mut self, step: &Step) -> Result<Seen, Breach> {
        self.perform(step)
    }

    fn perform(&mut self, step: &Step) -> Result<Seen, Breach> {
        let seen = self.take(step)?;
        self.outputs(step, &seen)?;
        Ok(seen)
    }

    fn take(&mut self, step: &Step) -> Result<Seen, Breach> {
        match step {
            Step::Receive { link, frame, label } => self.receive(*link, frame, *label),
            Step::Start(of) => self.start(*of),
            Step::Finish(of) => self.finish(*of),
            Step::Discard(of) => Ok(self.discard(*of)),
            Step::Answer { of, body } => self.answer(*of, body),
            Step::AnswerBatch(of) => self.answer_batch(of),
            Step::Progress(of) => self.progress(*of),
            Step::Send { link, frame, parent, label } => {
                self.send_raw(*link, frame, *parent, *label)
            }
            Step::Begin { link, ask, label } => self.begin(*link, ask, *label),
            Step::Transmit(of) => self.transmit(*of),
            Step::Abandon { call, cause, reason } => self.abandon(*call, *cause, reason.as_deref()),
            Step::Child { parent, label } => self.child(*parent, *label),
            Step::Trip { token, cause, reason } => {
                let Some(handle) = self.handles.get_mut(token) else { return Ok(Seen::Skipped) };
                let model = &mut self.links[handle.link].model;
                let expected = model.trip(handle.node, *cause, reason.as_deref());
                self.expected = Seen::Tripped(expected);
                let first = handle.token.trip(*cause, reason.as_deref());
                handle.own |= first;
                self.coverage.tripped(*cause, first);
                same(&Seen::Tripped(expected), Seen::Tripped(first))
            }
            Step::Watch(of) => {
                let Some(handle) = self.handles.get_mut(of) else { return Ok(Seen::Skipped) };
                let count = Arc::new(Count::default());
                let watch = handle.token.watch(&Waker::from(count.clone()));
                handle.woken = 0;
                handle.watch = Some((watch, count));
                self.coverage.hit_if(handle.tripped, Counter::TripBeatWatch);
                Ok(Seen::Done)
            }
            Step::Unwatch(of) => {
                let taken = self.handles.get_mut(of).and_then(|handle| handle.watch.take());
                Ok(if taken.is_some() { Seen::Done } else { Seen::Skipped })
            }
            Step::Drop(of) => {
                let Some(handle) = self.handles.remove(of) else { return Ok(Seen::Skipped) };
                self.links[handle.link].model.tokens.node_mut(handle.node).handles -= 1;
                Ok(Seen::Done)
            }
            Step::Close { link, cause } => self.close(*link, *cause),
            Step::Advance(by) => {
                self.advance(*by);
                Ok(Seen::Done)
            }
            Step::Pass(by) => {
                self.now = self.now.after(*by);
                Ok(Seen::Done)
            }
            Step::Quiet => {
                let closed = (0..self.links.len()).all(|at| self.audit.is_closed(at));
                if !closed || !self.handles.is_empty() {
                    return Ok(Seen::Skipped);
                }
                self.advance(Duration::from_secs(3600));
                self.nothing_left()?;
                Ok(Seen::Done)
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now = self.now.after(by);
        for (number, link) in self.links.iter_mut().enumerate() {
            let held = link.model.held();
            link.model.handle_timeout(self.now);
            link.connection.handle_timeout(self.now);
            let expired = link.model.held() < held && !self.audit.is_closed(number);
            self.coverage.hit_if(expired, Counter::EarlyCancelExpired);
        }
    }

    fn receive(&mut self, at: usize, frame: &str, label: Label) -> Result<Seen, Breach> {
        let link = &mut self.links[at];
        let expected = Seen::Received(link.model.receive(frame, label, self.now));
        self.expected = expected.clone();
        let received = link.connection.receive(frame.as_bytes(), self.now);
        let verdict = self.verdict(at, received, label)?;
        // What breaks an invariant is told by its name before it is told as a difference.
        match (&verdict, array(frame)) {
            (Verdict::Batch(verdicts), Some(elements)) => {
                self.coverage.hit(Counter::BatchSplit);
                for ((element, verdict), label) in elements.into_iter().zip(verdicts).zip(label..) {
                    self.receive_audited(at, element.get(), verdict, label)?;
                }
            }
            _ => self.receive_audited(at, frame, &verdict, label)?,
        }
        same(&expected, Seen::Received(verdict))
    }

    /// What the core said, in the words of the model.
    fn verdict(&mut self, at: usize, received: Received, label: Label) -> Result<Verdict, Breach> {
        let link = &mut self.links[at];
        Ok(match received {
            Received::Deliver { request, rewritten } => {
                let label = request.map(|request| {
                    link.labels.insert(request.generation, label);
                    link.generations.insert(label, request.generation);
                    label
                });
                Verdict::Deliver(label, rewritten.map(text))
            }
            Received::Cancelled { generation, silence } => {
                let Some(&label) = link.labels.get(&generation) else {
                    return Err(Breach::new("I7", format!("{generation:?} was never given out")));
                };
                Verdict::Cancelled(label, told(silence)?)
            }
            Received::Settled { call } => Verdict::Settled(link.names.label(call)?),
            Received::Progress { call } => Verdict::Progress(link.names.label(call)?),
            Received::Ignored(reason) => Verdict::Ignored(reason),
            Received::Reject { reply, reason } => Verdict::Reject(reason, error_id(&reply)?),
            Received::Batch(parts) => {
                let parts = parts.into_iter().zip(label..);
                let verdicts = parts
                    .map(|(BatchPart { verdict, .. }, label)| self.verdict(at, verdict, label));
                Verdict::Batch(verdicts.collect::<Result<_, _>>()?)
            }
            other => return Err(Breach::new("model", format!("{other:?}"))),
        })
    }

    fn receive_audited(
        &mut self,
        at: usize,
        frame: &str,
        verdict: &Verdict,
        label: Label,
    ) -> Result<(), Breach> {
        let fields = object(frame).unwrap_or_default();
        if self.reply_audited(at, frame, &fields, verdict)? {
            return Ok(());
        }
        Audit::passed(frame, verdict)?;
        let params = fields.get("params").and_then(|raw| object(raw.get())).unwrap_or_default();
        match verdict {
            Verdict::Deliver(Some(label), rewritten) => {
                self.open(at, *label, frame, rewritten.as_deref())?;
            }
            Verdict::Cancelled(hit, silence) => {
                let lenient = self.links[at].config.id_match == IdMatch::Lenient;
                let meant = params.get("requestId").and_then(|raw| key(raw.get()));
                let meant = meant.ok_or_else(|| Breach::new("I15", "a malformed cancel hit"))?;
                self.audit.cancelled(at, *hit, &meant, lenient, self.now)?;
                self.audit.silenced(*hit, silence)?;
                self.coverage.cancelled(&self.audit.get(*hit).cloned().unwrap(), &meant);
                let own = self.handles.values().any(|handle| handle.own && handle.link == at);
                self.coverage.hit_if(own, Counter::ChildTripFirst);
            }
            _ => {
                let meant = params.get("requestId").and_then(|raw| key(raw.get()));
                let hit = meant.and_then(|meant| self.audit.last_with(at, &meant, label));
                let id = fields.get("id").and_then(|raw| key(raw.get()));
                self.coverage.refused(verdict, hit.map(|(_, history)| history), id.is_some());
            }
        }
        Ok(())
    }

    /// A request was delivered: notes what our side knows it by, and takes its token.
    fn open(
        &mut self,
        at: usize,
        label: Label,
        frame: &str,
        rewritten: Option<&str>,
    ) -> Result<(), Breach> {
        let (raw_id, raw_progress, initialize) = names(frame)
            .ok_or_else(|| Breach::new("model", format!("{frame} opened a request")))?;
        let (inner_id, inner_progress, _) = names(rewritten.unwrap_or(frame))
            .ok_or_else(|| Breach::new("I14", format!("{frame} came out as {rewritten:?}")))?;
        let id = key(&raw_id).ok_or_else(|| Breach::new("I7", format!("{raw_id} is no id")))?;
        let history = History {
            link: at,
            raw_id: raw_id.clone(),
            inner_id: inner_id.clone(),
            progress: raw_progress.zip(inner_progress),
            initialize,
            cancelled_at: None,
            answered_at: None,
            tried: false,
            became_task: false,
            progressed: false,
            started: false,
            ended: false,
            withdrawn: false,
            id,
        };
        let before = self.audit.last_with(at, &history.id, label);
        self.coverage.reused(before.map(|(_, before)| before), &history);
        self.audit.opened(label, history)?;
        let link = &mut self.links[at];
        let generation = link.generations[&label];
        let Some(node) = link.model.token_of(label) else {
            return Err(Breach::new("model", format!("{frame} was to open no request")));
        };
        let Some(token) = link.connection.token(generation) else {
            return Err(Breach::new("I8", format!("{label} has no token")));
        };
        link.model.tokens.node_mut(node).handles += 1;
        for (seen, told) in [
            (link.connection.wire_id(generation), &raw_id),
            (link.connection.inner_id(generation), &inner_id),
        ] {
            if seen.as_ref().and_then(|id| key(&id.to_json())) != key(told) {
                return Err(Breach::new("I7", format!("{told} is known as {seen:?}")));
            }
        }
        self.hold(at, label, token, node)
    }

    fn hold(&mut self, link: usize, label: Label, token: Token, node: usize) -> Result<(), Breach> {
        if !self.links[link].words.insert(token.slot()) {
            return Err(Breach::new("I7", format!("{:?} was another token's word", token.slot())));
        }
        let handle =
            Handle { link, token, node, watch: None, tripped: false, own: false, woken: 0 };
        self.handles.insert(label, handle);
        Ok(())
    }

    /// The connection and the generation of a request that was delivered.
    fn known(&self, of: Label) -> Option<(usize, Generation)> {
        let link = self.audit.get(of)?.link;
        Some((link, *self.links[link].generations.get(&of)?))
    }

    fn start(&mut self, of: Label) -> Result<Seen, Breach> {
        let Some((at, generation)) = self.known(of) else { return Ok(Seen::Skipped) };
        let ended = self.audit.get(of).is_some_and(|history| history.ended || history.started);
        if ended {
            return Ok(Seen::Skipped);
        }
        let expected = Seen::Started(self.links[at].model.start(of, self.now));
        self.expected = expected.clone();
        let may = self.links[at].connection.start(generation, self.now);
        self.audit.started(of, may)?;
        let cancelled = self.audit.get(of).is_some_and(|history| history.cancelled_at.is_some());
        self.coverage.hit_if(!may && cancelled, Counter::CancelBeatStart);
        same(&expected, Seen::Started(may))
    }

    fn finish(&mut self, of: Label) -> Result<Seen, Breach> {
        let Some((at, generation)) = self.known(of) else { return Ok(Seen::Skipped) };
        if self.audit.get(of).is_some_and(|history| history.ended) {
            return Ok(Seen::Skipped);
        }
        let expected = Seen::Finished(self.links[at].model.finish(of, self.now));
        self.expected = expected.clone();
        let finish = self.links[at].connection.finish(generation, self.now);
        self.audit.finished(of, finish)?;
        self.coverage.hit_if(finish == Finish::Silent, Counter::CancelBeatExit);
        same(&expected, Seen::Finished(finish))
    }

    fn discard(&mut self, of: Label) -> Seen {
        let Some((at, generation)) = self.known(of) else { return Seen::Skipped };
        let Some(history) = self.audit.get_mut(of).filter(|history| !history.started) else {
            return Seen::Skipped;
        };
        self.coverage.hit_if(history.cancelled_at.is_some(), Counter::Discarded);
        history.withdrawn = true;
        history.ended = true;
        self.links[at].model.discard(of);
        self.links[at].connection.discard(generation);
        Seen::Done
    }

    fn child(&mut self, parent: Label, label: Label) -> Result<Seen, Breach> {
        if !self.fresh(label) {
            return Ok(Seen::Skipped);
        }
        let Some(handle) = self.handles.get(&parent) else { return Ok(Seen::Skipped) };
        let (at, child) = (handle.link, handle.token.child());
        let tokens = &mut self.links[at].model.tokens;
        let node = tokens.add(handle.node);
        tokens.node_mut(node).handles = 1;
        let born_tripped = tokens.node(node).cause.is_some();
        self.coverage.hit_if(born_tripped, Counter::TripBeatChild);
        self.hold(at, label, child, node)?;
        self.handles.get_mut(&label).expect("just held").tripped = born_tripped;
        Ok(Seen::Done)
    }

    fn close(&mut self, at: usize, cause: countermand_core::Cause) -> Result<Seen, Breach> {
        let link = &mut self.links[at];
        let expected = Seen::Closed(link.model.close(cause, self.now));
        self.expected = expected.clone();
        let closed = link.connection.close(cause, self.now);
        let label = |generation| link.labels.get(generation).copied();
        let Some(closed) = closed.iter().map(label).collect::<Option<Vec<_>>>() else {
            return Err(Breach::new("I7", format!("{closed:?} were never given out")));
        };
        if !self.audit.is_closed(at) {
            self.coverage.closed(&self.audit, at, cause, self.now);
        }
        self.audit.closed(at, &closed, self.now)?;
        same(&expected, Seen::Closed(closed))
    }

    /// Whether a connection takes no more requests.
    pub(crate) fn full(&self, at: usize) -> bool {
        let link = &self.links[at];
        link.model.in_flight() >= link.config.limits.max_in_flight
    }
}

fn same(expected: &Seen, seen: Seen) -> Result<Seen, Breach> {
    if *expected == seen {
        return Ok(seen);
    }
    Err(Breach::new("model", format!("{seen:?}, not {expected:?}")))
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|bytes| format!("{bytes:?}"))
}

/// The id, the progress token and whether it is the handshake, each as it is spelt.
fn names(frame: &str) -> Option<(String, Option<String>, bool)> {
    let fields = object(frame)?;
    let id = fields.get("id")?.get().to_owned();
    let params = fields.get("params").and_then(|raw| object(raw.get()));
    let meta = params.as_ref().and_then(|params| object(params.get("_meta")?.get()));
    let progress = meta.as_ref().and_then(|meta| meta.get("progressToken"));
    let progress = progress.filter(|raw| key(raw.get()).is_some());
    let initialize = fields.get("method").is_some_and(|raw| raw.get() == "\"initialize\"");
    Some((id, progress.map(|raw| raw.get().to_owned()), initialize))
}

fn told(silence: countermand_core::Silence) -> Result<Silence, Breach> {
    Ok(match silence {
        countermand_core::Silence::Nothing => Silence::Nothing,
        countermand_core::Silence::CloseStream => Silence::CloseStream,
        countermand_core::Silence::Answer(answer) => Silence::Answer(error_id(&answer)?),
        other => return Err(Breach::new("model", format!("{other:?}"))),
    })
}

/// The id of an error response that the core made.
fn error_id(reply: &[u8]) -> Result<String, Breach> {
    let wrong = || Breach::new("I4", format!("no reply: {}", String::from_utf8_lossy(reply)));
    let text = std::str::from_utf8(reply).map_err(|_| wrong())?;
    let fields = object(text).filter(|fields| fields.contains_key("error") && !text.contains('\n'));
    let id = fields.as_ref().and_then(|fields| fields.get("id"));
    id.map(|raw| raw.get().to_owned()).ok_or_else(wrong)
}
