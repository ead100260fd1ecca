//! The steps in which our side sends something.

use countermand_core::{Call, Sent};

use super::{Seen, Trial, same, text};
use crate::audit::{Breach, History};
use crate::coverage::Counter;
use crate::model::read::{array, key, object};
use crate::model::{Out, Parent};
use crate::step::{Body, Label};

impl Trial {
    /// Whether an answer to this request, of which nothing is remembered any more, would carry the id of
    /// another that is open. No engine can tell the two apart by what is on the wire.
    fn ambiguous(&self, of: Label) -> bool {
        let Some(history) = self.audit.get(of) else { return false };
        let inner = key(&history.inner_id);
        let same = |other: &History| other.link == history.link && key(&other.inner_id) == inner;
        !self.links[history.link].model.remembers(of)
            && self.audit.all().any(|(label, other)| label != of && other.open() && same(other))
    }

    pub(super) fn answer(&mut self, of: Label, body: &Body) -> Result<Seen, Breach> {
        let Some(history) = self.audit.get(of) else { return Ok(Seen::Skipped) };
        if history.withdrawn || self.ambiguous(of) {
            return Ok(Seen::Skipped);
        }
        let (at, before) = (history.link, history.clone());
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{},{}}}"#, history.inner_id, body.json());
        let expected = self.send_modelled(at, &frame, Parent::Root, 0);
        let (out, _) = self.send_real(at, &frame, None, 0);
        self.audit.answered(of, &out, &frame, self.now)?;
        let task = matches!(body, Body::Task(_));
        if let Some(history) = self.audit.get_mut(of) {
            history.became_task |= task && !matches!(out, Out::Swallow(_));
        }
        let mut uses = self.audit.all().filter(|(label, history)| {
            *label != of && history.link == at && history.id == before.id
        });
        let other = uses.next_back().map(|(label, history)| (label > of, history.clone()));
        self.coverage.answered(&before, other, &out, task, self.audit.is_closed(at));
        same(&Seen::Sent(frame.clone(), expected), Seen::Sent(frame, out))
    }

    pub(super) fn answer_batch(&mut self, of: &[Label]) -> Result<Seen, Breach> {
        let known = |label: &&Label| {
            let known = self.audit.get(**label).is_some_and(|history| !history.withdrawn);
            known && !self.ambiguous(**label)
        };
        let of: Vec<Label> = of.iter().filter(known).copied().collect();
        let Some(at) = of.first().and_then(|first| self.audit.get(*first)).map(|it| it.link) else {
            return Ok(Seen::Skipped);
        };
        if of.iter().any(|label| self.audit.get(*label).is_none_or(|it| it.link != at)) {
            return Ok(Seen::Skipped);
        }
        let open: Vec<_> =
            of.iter().map(|label| self.audit.get(*label).is_some_and(History::open)).collect();
        let element = |label: &Label| {
            let id = &self.audit.get(*label).expect("known").inner_id;
            format!(r#"{{"jsonrpc":"2.0","id":{id},{}}}"#, Body::Result.json())
        };
        let elements: Vec<_> = of.iter().map(element).collect();
        let frame = format!("[{}]", elements.join(","));
        let expected = self.send_modelled(at, &frame, Parent::Root, 0);
        let (out, _) = self.send_real(at, &frame, None, 0);
        let written = match &out {
            Out::Rewrite(written) => array(written).map_or(0, |written| written.len()),
            _ => 0,
        };
        self.coverage.hit_if(written > 0 && written < of.len(), Counter::BatchCut);
        if !self.audit.is_closed(at) {
            let due = open.iter().filter(|open| **open).count();
            if written != due {
                return Err(Breach::new("I1", format!("{written} of {due} answers in {out:?}")));
            }
            for (label, open) in of.iter().zip(open) {
                self.audit.answered_in_batch(*label, open, self.now);
            }
        }
        same(&Seen::Sent(frame.clone(), expected), Seen::Sent(frame, out))
    }

    pub(super) fn progress(&mut self, of: Label) -> Result<Seen, Breach> {
        let Some(history) = self.audit.get(of) else { return Ok(Seen::Skipped) };
        let Some((raw, inner)) = &history.progress else { return Ok(Seen::Skipped) };
        let (at, aliased) = (history.link, raw != inner);
        let frame = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{inner},"progress":1}}}}"#
        );
        let expected = self.send_modelled(at, &frame, Parent::Root, 0);
        let (out, _) = self.send_real(at, &frame, None, 0);
        self.audit.progressed(of, &out, &frame)?;
        self.coverage.hit_if(aliased && matches!(out, Out::Rewrite(_)), Counter::ProgressAlias);
        if let Out::Swallow(reason) = &out {
            self.coverage.swallowed(*reason);
        }
        same(&Seen::Sent(frame.clone(), expected), Seen::Sent(frame, out))
    }

    /// Bytes of no handler of ours: they must not be an answer to what is open.
    pub(super) fn send_raw(
        &mut self,
        at: usize,
        frame: &str,
        parent: Option<Label>,
        label: Label,
    ) -> Result<Seen, Breach> {
        let Some(behalf) = self.parent(at, parent).filter(|_| self.fresh(label)) else {
            return Ok(Seen::Skipped);
        };
        let fields = object(frame).unwrap_or_default();
        let id = fields.get("id").map(|raw| raw.get());
        let answers = fields.contains_key("result") || fields.contains_key("error");
        let open = |(_, history): (Label, &History)| {
            let meant = history.link == at && history.open();
            meant && key(&history.inner_id) == id.and_then(key)
        };
        if answers && self.audit.all().any(open) {
            return Ok(Seen::Skipped);
        }
        let expected = self.send_modelled(at, frame, behalf, label);
        let (out, call) = self.send_real(at, frame, parent, label);
        let settled = |(_, history): (Label, &History)| {
            let meant = history.link == at && !history.open();
            meant && key(&history.inner_id) == id.and_then(key)
        };
        let integer = id.and_then(key).is_some_and(|id| id.small().is_some());
        let before = self.audit.all().any(settled);
        if answers && integer && before && out == Out::Write && expected != Out::Write {
            return Err(Breach::new("I1", format!("a second answer was written: {frame}")));
        }
        self.sent_audited((at, frame), (parent, label), (&out, call))?;
        same(&Seen::Sent(frame.into(), expected), Seen::Sent(frame.into(), out))
    }

    fn send_modelled(&mut self, at: usize, frame: &str, parent: Parent, label: Label) -> Out {
        let out = self.links[at].model.send(frame, parent, label, self.now);
        self.expected = Seen::Sent(frame.into(), out.clone());
        out
    }

    fn send_real(
        &self,
        at: usize,
        frame: &str,
        parent: Option<Label>,
        label: Label,
    ) -> (Out, Option<Call>) {
        let parent = parent.map(|of| &self.handles[&of].token);
        match self.links[at].connection.send_within(frame.as_bytes(), parent, self.now) {
            Sent::Write => (Out::Write, None),
            Sent::Rewrite(rewritten) => (Out::Rewrite(text(rewritten)), None),
            Sent::Request { call, rewritten } => {
                (Out::Request(label, rewritten.map(text)), Some(call))
            }
            Sent::Cancel { rewritten } => (Out::Cancel(rewritten.map(text)), None),
            Sent::Swallow(reason) => (Out::Swallow(reason), None),
            other => (Out::Rewrite(format!("{other:?}")), None),
        }
    }
}
