//! The model's other direction: what becomes of what our side sends.

use countermand_core::{SwallowReason, Time};

use super::read::{self, Fields, key, object, string};
use super::{Model, Out, Parent, Phase};
use crate::step::Label;

impl Model {
    /// Our side wants to send this; a request is made on behalf of `parent`, and called `label`.
    pub fn send(&mut self, text: &str, parent: Parent, label: Label, now: Time) -> Out {
        if self.closed {
            return Out::Swallow(SwallowReason::Closed);
        }
        self.now = self.now.max(now);
        let Some(elements) = read::array(text) else {
            let Some(fields) = object(text) else { return Out::Write };
            let method = fields.get("method").and_then(|raw| string(raw.get()));
            let params = fields.get("params").and_then(|raw| object(raw.get())).unwrap_or_default();
            return match (method.as_deref(), fields.get("id")) {
                (Some(method), Some(raw)) => {
                    let parent = if let Parent::Node(node) = parent { node } else { 0 };
                    self.ask(text, (method, raw.get()), &params, parent, label)
                }
                (Some("notifications/cancelled"), None) => self.call_off(text, &params),
                _ => self.send_one(text, now),
            };
        };
        let mut written = Vec::new();
        let mut swallowed = None;
        for element in elements {
            match self.send_one(element.get(), now) {
                Out::Write => written.push(element.get().to_owned()),
                Out::Rewrite(rewritten) => written.push(rewritten),
                Out::Swallow(reason) => swallowed = Some(reason),
                Out::Request(..) | Out::Cancel(_) => {}
            }
        }
        match swallowed {
            Some(reason) if written.is_empty() => Out::Swallow(reason),
            _ => Out::Rewrite(format!("[{}]", written.join(","))),
        }
    }

    /// What has nothing to do with requests of our own.
    fn send_one(&mut self, text: &str, now: Time) -> Out {
        let Some(fields) = object(text) else { return Out::Write };
        let method = fields.get("method").and_then(|raw| string(raw.get()));
        let params = fields.get("params").and_then(|raw| object(raw.get())).unwrap_or_default();
        let answer = fields.contains_key("result") || fields.contains_key("error");
        match (method.as_deref(), fields.get("id")) {
            (None, Some(raw)) if answer => self.answer(text, raw.get(), &fields, now),
            (Some("notifications/progress"), None) => self.progress(text, &params),
            (Some("notifications/tasks/status"), None) => {
                self.end_task(&params);
                Out::Write
            }
            _ => Out::Write,
        }
    }

    /// The decision: the first answer to a request that nobody cancelled is written, and no other.
    fn answer(&mut self, text: &str, raw: &str, fields: &Fields<'_>, now: Time) -> Out {
        let Some(id) = key(raw) else { return Out::Write };
        let known =
            self.requests.iter().position(|request| request.inner == id && !request.swallowed);
        let Some(place) = known else {
            return self.answer_unknown(&id);
        };
        if !self.requests[place].live() {
            let (label, waiting) =
                (self.requests[place].label, self.requests[place].phase == Phase::Waiting);
            self.requests[place].swallowed = true;
            self.stats.swallowed_answers += 1;
            if waiting {
                self.exit(label, now);
            } else {
                self.retire(label, now);
            }
            return Out::Swallow(SwallowReason::CancelledAnswer);
        }
        let request = self.requests.remove(place);
        self.stats.answered += 1;
        let result = fields.get("result").and_then(|raw| object(raw.get())).unwrap_or_default();
        if request.initialize {
            self.version = result.get("protocolVersion").and_then(|raw| string(raw.get()));
        }
        let handle = task_id(&result).filter(|_| request.task && result.contains_key("task"));
        match (handle, request.token) {
            (Some(task), Some(token)) => self.keep_task(task, token),
            (_, token) => {
                self.end_task(&result);
                self.let_go(token);
            }
        }
        match request.raw {
            None => Out::Write,
            Some(peers) => Out::Rewrite(read::replace(text, &[(raw, peers)])),
        }
    }

    /// No request is open under this id: it may answer a message that had no place in the table. An
    /// integer that the peer has counted past names one that had.
    fn answer_unknown(&mut self, id: &read::Key) -> Out {
        if let Some(place) = self.spoken.iter().position(|spoken| spoken == id) {
            self.spoken.remove(place);
            return Out::Write;
        }
        let countable = id.small().is_some_and(|id| Some(id) > self.highest);
        if countable && self.nameless > 0 {
            self.nameless -= 1;
            return Out::Write;
        }
        self.stats.swallowed_unknown += 1;
        Out::Swallow(SwallowReason::NoSuchRequest)
    }

    fn progress(&mut self, text: &str, params: &Fields<'_>) -> Out {
        let raw = params.get("progressToken").map(|raw| raw.get());
        let Some((raw, token)) = raw.and_then(|raw| Some((raw, key(raw)?))) else {
            return Out::Write;
        };
        match self.progress_of(&token) {
            Some(request) if !request.live() => {
                self.stats.swallowed_progress += 1;
                Out::Swallow(SwallowReason::CancelledProgress)
            }
            Some(request) => match request.progress.as_ref().and_then(|name| name.raw.clone()) {
                Some(peers) => Out::Rewrite(read::replace(text, &[(raw, peers)])),
                None => Out::Write,
            },
            None => Out::Write,
        }
    }

    fn keep_task(&mut self, id: String, token: usize) {
        let replaced = self.tasks.iter().position(|(task, _)| *task == id);
        let max = self.config.limits.max_tasks;
        let gone = match replaced {
            Some(place) => Some(self.tasks.remove(place).1),
            None if max == 0 => return self.let_go(Some(token)),
            None => (self.tasks.len() == max).then(|| self.tasks.remove(0).1),
        };
        self.let_go(gone);
        self.tasks.push((id, token));
    }

    fn end_task(&mut self, fields: &Fields<'_>) {
        let status = fields.get("status").and_then(|raw| string(raw.get()));
        let ended = matches!(status.as_deref(), Some("completed" | "failed" | "cancelled"));
        let place = task_id(fields)
            .filter(|_| ended)
            .and_then(|id| self.tasks.iter().position(|(task, _)| *task == id));
        if let Some(place) = place {
            let (_, token) = self.tasks.remove(place);
            self.let_go(Some(token));
        }
    }
}

pub(super) fn task_id(fields: &Fields<'_>) -> Option<String> {
    let within = fields.get("task").and_then(|raw| object(raw.get()));
    let within = within.as_ref().and_then(|task| task.get("taskId"));
    within.or_else(|| fields.get("taskId")).and_then(|raw| string(raw.get()))
}
