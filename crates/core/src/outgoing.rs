//! What the connection says about messages that our side wants to send.

use std::sync::Arc;
use std::task::Waker;

use crate::connection::{Connection, State};
use crate::entry::{Gone, Met, Phase};
use crate::envelope::{self, Body, Envelope, Kind, string};
use crate::id::IdRef;
use crate::requests;
use crate::rewrite::splice;
use crate::tasks::terminal;
use crate::tree::ROOT;
use crate::{Generation, Sent, SwallowReason, Time, Token};

impl Connection {
    /// Takes one message that our side wants to send, and decides whether it is written.
    ///
    /// A response leaves the table here, under the lock: from now on a cancel for it is late. What
    /// is for a cancelled request is swallowed. What has nothing to do with requests of the peer
    /// is written as it is.
    pub fn send(&self, frame: &[u8], now: Time) -> Sent {
        self.send_within(frame, None, now)
    }

    /// As [`send`](Self::send); a request is made on behalf of this token, and abandoned when it trips. A token of
    /// another connection is none.
    pub fn send_within(&self, frame: &[u8], parent: Option<&Token>, now: Time) -> Sent {
        let parent = parent.filter(|parent| Arc::ptr_eq(&parent.shared, &self.shared));
        let parent = parent.map_or(ROOT, |parent| parent.slot);
        let text = String::from_utf8_lossy(frame);
        let text = text.as_ref();
        // All reading is done before the lock is taken: a huge frame must not hold up a cancel.
        if text.trim_ascii_start().starts_with('[')
            && let Some(elements) = envelope::elements(text)
        {
            let messages: Vec<_> = elements.into_iter().map(Message::parse).collect();
            return self.open_state(now, |state, _| send_batch(state, &messages, now));
        }
        let message = Message::parse(text);
        self.open_state(now, |state, wake| send_one(state, &message, parent, now, wake))
    }

    fn open_state(
        &self,
        now: Time,
        decide: impl FnOnce(&mut State, &mut Vec<Waker>) -> Sent,
    ) -> Sent {
        let mut wake = Vec::new();
        let sent = {
            let mut state = self.shared.state.lock();
            if state.closed.is_some() {
                return state.swallow(SwallowReason::Closed);
            }
            state.clock = state.clock.max(now);
            decide(&mut state, &mut wake)
        };
        wake.into_iter().for_each(Waker::wake);
        sent
    }
}

/// One outgoing message, read as far as the decision needs it.
pub(crate) struct Message<'a> {
    pub(crate) text: &'a str,
    envelope: Option<Envelope<'a>>,
    pub(crate) params: Body<'a>,
}

impl<'a> Message<'a> {
    fn parse(text: &'a str) -> Self {
        let envelope = envelope::parse(text);
        let with_params = envelope.as_ref().filter(|envelope| envelope.kind != Kind::Response);
        let params = with_params.map(Envelope::params).unwrap_or_default();
        Self { text, envelope, params }
    }
}

/// A batch is written with the elements that may be written; with none it is swallowed. Requests in one are not
/// followed: no SDK sends such.
fn send_batch(state: &mut State, messages: &[Message<'_>], now: Time) -> Sent {
    let mut written = Vec::new();
    let mut swallowed = None;
    for message in messages {
        let request = message.envelope.as_ref().is_some_and(|it| it.kind == Kind::Request);
        let sent = if request { Sent::Write } else { send_part(state, message, now) };
        match sent {
            Sent::Write => written.push(message.text.as_bytes().to_vec()),
            Sent::Rewrite(rewritten) => written.push(rewritten),
            Sent::Swallow(reason) => swallowed = Some(reason),
            Sent::Request { .. } | Sent::Cancel { .. } => {}
        }
    }
    match swallowed {
        Some(reason) if written.is_empty() => Sent::Swallow(reason),
        _ => Sent::Rewrite([b"[".as_slice(), &written.join(&b','), b"]"].concat()),
    }
}

fn send_one(
    state: &mut State,
    message: &Message<'_>,
    parent: u32,
    now: Time,
    wake: &mut Vec<Waker>,
) -> Sent {
    let Some(envelope) = &message.envelope else {
        return Sent::Write;
    };
    match (envelope.kind, &*envelope.method) {
        (Kind::Request, _) => requests::request(state, message, envelope, parent, wake),
        (Kind::Notification, b"notifications/cancelled") => requests::cancel(state, message, wake),
        _ => send_part(state, message, now),
    }
}

/// What has nothing to do with requests of our own.
fn send_part(state: &mut State, message: &Message<'_>, now: Time) -> Sent {
    let Some(envelope) = &message.envelope else {
        return Sent::Write;
    };
    match (envelope.kind, &*envelope.method) {
        (Kind::Response, _) => respond(state, message.text, envelope, now),
        (Kind::Notification, b"notifications/progress") => {
            progress(state, message.text, &message.params)
        }
        (Kind::Notification, b"notifications/tasks/status") => {
            end_task(state, &message.params);
            Sent::Write
        }
        _ => Sent::Write,
    }
}

fn respond(state: &mut State, text: &str, envelope: &Envelope<'_>, now: Time) -> Sent {
    // An error with the id null, or one that could not be tracked, answers nothing in the table.
    let (Some(raw_id), Some(id)) = (envelope.raw_id, envelope.id()) else {
        return Sent::Write;
    };
    match state.answer(&id, now) {
        Ok(request) => {
            state.read_answer(&request, envelope);
            match request.raw_id {
                None => Sent::Write,
                Some(peers_id) => Sent::Rewrite(splice(text, &mut [(raw_id, &peers_id)])),
            }
        }
        Err(SwallowReason::NoSuchRequest)
            if state.untracked.answer(&id, state.held.passed(&id)) =>
        {
            Sent::Write
        }
        Err(reason) => state.swallow(reason),
    }
}

fn progress(state: &mut State, text: &str, params: &Body<'_>) -> Sent {
    let Some((raw, token)) = params.progress.and_then(|raw| Some((raw, IdRef::parse(raw)?))) else {
        return Sent::Write;
    };
    match state.table.by_progress(&token) {
        Some(entry) if !entry.live() => state.swallow(SwallowReason::CancelledProgress),
        Some(entry) => match entry.raw_progress() {
            Some(peers) => Sent::Rewrite(splice(text, &mut [(raw, peers)])),
            None => Sent::Write,
        },
        // Not of a request in the table: of a task, perhaps, whose progress outlives its request.
        None => Sent::Write,
    }
}

/// A task that has ended needs no token.
fn end_task(state: &mut State, body: &Body<'_>) {
    let status = body.status.and_then(string);
    let id = body.task_id.and_then(string);
    if let (Some(status), Some(id)) = (status, id)
        && terminal(&status)
    {
        let token = state.tasks.remove(&id);
        state.let_go(token);
    }
}

impl State {
    /// The decision: an answer for this id, as the SDK behind us knows it, is written, or it is
    /// swallowed. The token of what was answered is still to be let go.
    #[inline(always)]
    pub(crate) fn answer(&mut self, id: &IdRef<'_>, now: Time) -> Result<Gone, SwallowReason> {
        match self.table.answer(id) {
            Met::Live(request) => {
                self.stats.answered += 1;
                Ok(request)
            }
            Met::Cancelled(generation) => {
                self.swallow_answer(generation, now);
                Err(SwallowReason::CancelledAnswer)
            }
            Met::Nothing => Err(SwallowReason::NoSuchRequest),
        }
    }

    /// What an answer that is written says about the connection and about tasks; where it returns
    /// the handle of a task, the request's token lives on as the task's.
    fn read_answer(&mut self, request: &Gone, envelope: &Envelope<'_>) {
        let mut token = request.token;
        if request.initialize || request.task || self.tasks.len() > 0 {
            let result = envelope.result();
            if request.initialize {
                self.handshake(&result);
            }
            let handle = result.task.and(result.task_id).filter(|_| request.task).and_then(string);
            match (handle, token) {
                (Some(task), Some(slot)) => token = self.tasks.insert(&task, slot),
                _ => end_task(self, &result),
            }
        }
        self.let_go(token);
    }

    /// What `initialize` was answered.
    pub(crate) fn handshake(&mut self, result: &Body<'_>) {
        let version = result.version.and_then(string);
        self.version = version.map(|version| String::from_utf8_lossy(&version).into());
    }

    fn swallow_answer(&mut self, generation: Generation, now: Time) {
        let Some(entry) = self.table.get_mut(generation) else {
            return;
        };
        if let Some(cancelled) = &mut entry.cancelled {
            cancelled.swallowed = true;
        }
        self.signals.dropped_answer(entry.row);
        // Answered without a start: the SDK refused it before any handler, and none will run.
        if entry.phase == Phase::Waiting {
            self.exit(generation, true, now);
        } else {
            self.table.retire(generation, now);
        }
    }

    pub(crate) fn swallow(&mut self, reason: SwallowReason) -> Sent {
        self.stats.count_swallowed(reason);
        Sent::Swallow(reason)
    }
}
