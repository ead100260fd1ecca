//! Who makes requests to the peer: callers of ours, and an SDK that does not know of us; and the peer as the one who
//! answers them, in time or late, once or twice, rightly or wrongly.

use std::time::Duration;

use countermand_core::Cause;

use super::{Event, World, wire};
use crate::audit::Breach;
use crate::model::Out;
use crate::model::read::object;
use crate::step::{Ask, Label, Step};
use crate::trial::Seen;

/// A request of ours.
pub(super) struct Caller {
    link: usize,
    /// As it goes out.
    frame: String,
    /// Its id as the SDK that makes it spells it; `None` for a caller of ours.
    inner: Option<String>,
}

/// How an SDK names its requests.
#[derive(Default)]
pub(super) struct Sdk {
    counted: usize,
}

/// Ids that an SDK should not use, or that stand at the edges of what it may keep.
const ODD: &[&str] = &[
    "0",
    "1",
    "1",
    "2.0",
    "\"1\"",
    "\"x\"",
    "\"x\"",
    "7",
    "300",
    "-1",
    "1.5",
    "1000000000",
    "1000000001",
    "1700000000000",
    "4503599627370495",
    "9007199254740991",
    "123456789012345678901",
];
const TOKENS: &[&str] = &[
    "\"p\"",
    "\"p\"",
    "\"q\"",
    "1",
    "2",
    "1000000000",
    "\"countermand:1\"",
    "\"countermand:1000000000\"",
    "null",
];
const PARAMS: &[&str] = &[
    "{}",
    "{\"a\":[1]}",
    "{\n  \"a\": 1\n}",
    "{\"_meta\":{}}",
    "{\"_meta\":{\"k\":0}}",
    "{ \"_meta\" : null,\"a\":1}",
    "{\"_meta\":{\"progressToken\":null}}",
    "{\"_meta\":{\"progressToken\":\"p\"}}",
    "{\"_meta\":{\"k\":0,\"progressToken\":2}}",
    "[1]",
];

impl World {
    /// Somebody of our side makes a request, on behalf of this token.
    pub(super) fn call(&mut self, link: usize, parent: Option<Label>) -> Result<(), Breach> {
        let label = self.label();
        let stranger = self.trial.handles.keys().next().copied().filter(|_| self.rng.percent(4));
        let parent = stranger.or(parent);
        if self.rng.percent(45) {
            return self.ask_as_sdk(link, parent, label);
        }
        let ms = |ms: usize| Duration::from_millis(ms as u64);
        let ask = Ask {
            method: self.rng.pick(&[
                "tools/call",
                "tools/call",
                "tools/call",
                "ping",
                "initialize",
            ]),
            params: self.rng.percent(40).then(|| self.rng.pick(PARAMS).to_owned()),
            parent,
            idle: self.rng.percent(40).then(|| ms(self.rng.below(9))),
            total: self.rng.percent(30).then(|| ms(self.rng.below(20))),
            progress: self.rng.percent(50),
        };
        let Seen::Begun(Ok((_, frame))) = self.step(Step::Begin { link, ask, label })? else {
            return Ok(());
        };
        self.callers.insert(label, Caller { link, frame, inner: None });
        self.plan_call(label);
        if self.rng.percent(15) {
            let delay = self.rng.below(6);
            self.after(delay, Event::Call(link, Some(label)));
        }
        Ok(())
    }

    fn ask_as_sdk(
        &mut self,
        link: usize,
        parent: Option<Label>,
        label: Label,
    ) -> Result<(), Breach> {
        let id = if self.rng.percent(60) {
            self.sdks[link].counted += 1;
            (self.sdks[link].counted - 1).to_string()
        } else {
            self.rng.pick(ODD).to_owned()
        };
        let mut params = Vec::new();
        if self.rng.percent(60) {
            // Most use the id once more.
            let own = self.rng.percent(50);
            let token = if own { id.clone() } else { self.rng.pick(TOKENS).to_owned() };
            params.push(format!("\"_meta\":{{\"progressToken\":{token}}}"));
        }
        if self.rng.percent(20) {
            params.push("\"task\":{\"ttl\":9}".to_owned());
        }
        let method =
            self.rng.pick(&["sampling/createMessage", "elicitation/create", "ping", "initialize"]);
        let params = params.join(",");
        let frame =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#);
        let Seen::Sent(_, out) =
            self.step(Step::Send { link, frame: frame.clone(), parent, label })?
        else {
            return Ok(());
        };
        let Out::Request(_, rewritten) = out else {
            if let Some(written) = wire::written(&frame, &out) {
                self.write(link, written.to_owned());
            }
            return Ok(());
        };
        let frame = rewritten.unwrap_or(frame);
        self.callers.insert(label, Caller { link, frame, inner: Some(id) });
        self.plan_call(label);
        Ok(())
    }

    /// What becomes of a request that waits for the writer.
    fn plan_call(&mut self, label: Label) {
        let delay = self.rng.below(6);
        self.after(delay, Event::Transmit(label));
        if self.rng.percent(4) {
            let delay = self.rng.below(3);
            self.after(delay, Event::Respond(label, Manner::Rightly));
        }
        if self.rng.percent(50) {
            let delay = self.rng.below(14);
            self.after(delay, Event::GiveUp(label));
            if self.rng.percent(20) {
                let delay = delay + self.rng.below(4);
                self.after(delay, Event::GiveUp(label));
            }
        }
    }

    /// The writer's turn has come to a request.
    pub(super) fn transmit(&mut self, label: Label) -> Result<(), Breach> {
        if self.step(Step::Transmit(label))? != Seen::Transmitted(true) {
            return Ok(());
        }
        let caller = &self.callers[&label];
        let (link, frame) = (caller.link, caller.frame.clone());
        let token = progress_token(&frame);
        self.write(link, frame);
        let delay = 1 + self.rng.below(13);
        match self.rng.below(100) {
            0..=7 => {}
            8..=19 => {
                self.after(delay, Event::Respond(label, Manner::Rightly));
                let delay = delay + self.rng.below(8);
                self.after(delay, Event::Respond(label, Manner::Rightly));
            }
            20..=29 => self.after(delay, Event::Respond(label, Manner::Cancelled)),
            30..=37 => self.after(delay, Event::Respond(label, Manner::OtherType)),
            38..=43 => self.after(delay, Event::Respond(label, Manner::WrongId)),
            44..=53 => self.after(delay + 20, Event::Respond(label, Manner::Rightly)),
            _ => self.after(delay, Event::Respond(label, Manner::Rightly)),
        }
        if token.is_some() {
            for _ in 0..self.rng.below(4) {
                let delay = self.rng.below(18);
                self.after(delay, Event::ReportProgress(label));
            }
        }
        Ok(())
    }

    /// A caller gives its request up, by itself or by its token; an SDK does so with a cancel.
    pub(super) fn give_up(&mut self, label: Label) -> Result<(), Breach> {
        let caller = &self.callers[&label];
        let link = caller.link;
        let reason = self.rng.pick(&[None, Some("enough"), Some("za\u{df}\u{df}")]);
        let reason = reason.map(str::to_owned);
        let Some(inner) = caller.inner.clone() else {
            let step = if self.rng.percent(25) {
                Step::Trip { token: label, cause: Cause::Local, reason }
            } else {
                let cause = self.rng.pick(&[Cause::Local, Cause::Local, Cause::Shutdown]);
                Step::Abandon { call: label, cause, reason }
            };
            return self.step(step).map(drop);
        };
        let frame = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{inner},"reason":"stop"}}}}"#
        );
        let label = self.label();
        self.send(Step::Send { link, frame, parent: None, label }).map(drop)
    }

    /// The peer answers a request of ours.
    pub(super) fn respond(&mut self, label: Label, manner: Manner) {
        let caller = &self.callers[&label];
        let link = caller.link;
        let fields = object(&caller.frame).unwrap_or_default();
        let Some(id) = fields.get("id").map(|raw| raw.get().to_owned()) else { return };
        let task = caller.frame.contains("\"task\":{") && self.rng.percent(60);
        let handshake = caller.frame.contains("\"initialize\"");
        let id = match manner {
            Manner::OtherType => format!("\"{id}\""),
            Manner::WrongId => self
                .rng
                .pick(&["4711", "\"nobody\"", "0", "1", "2", "-3", "999999999", "null"])
                .into(),
            _ if self.rng.percent(5) => format!("{id}.0"),
            _ => id,
        };
        let body = match manner {
            Manner::Cancelled => r#""error":{"code":-32800,"message":"Request cancelled"}"#,
            _ if self.rng.percent(15) => r#""error":{"code":-32603,"message":"failed"}"#,
            _ if task => r#""result":{"task":{"taskId":"o","status":"working"}}"#,
            _ if handshake => r#""result":{"protocolVersion":"2025-03-26"}"#,
            _ => r#""result":{}"#,
        };
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},{body}}}"#);
        self.answer_us(link, frame);
    }

    /// The peer reports progress of a request of ours.
    pub(super) fn report_progress(&mut self, label: Label) {
        let caller = &self.callers[&label];
        let link = caller.link;
        let Some(token) = progress_token(&caller.frame) else { return };
        let frame = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        );
        self.answer_us(link, frame);
    }

    fn answer_us(&mut self, link: usize, frame: String) {
        let label = self.label();
        self.labels += 2;
        let frame = if self.rng.percent(3) { format!("[{frame}]") } else { frame };
        self.put_on_way(link, frame, label);
    }
}

/// How a peer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Rightly,
    /// By saying that it was cancelled.
    Cancelled,
    /// Under the same id, as text.
    OtherType,
    /// Under another id.
    WrongId,
}

fn progress_token(frame: &str) -> Option<String> {
    let fields = object(frame)?;
    let params = object(fields.get("params")?.get())?;
    let meta = object(params.get("_meta")?.get())?;
    Some(meta.get("progressToken")?.get().to_owned())
}
