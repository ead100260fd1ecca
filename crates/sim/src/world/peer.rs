//! What a peer sends: requests and cancels as clients do, and much that they should not.

use std::collections::{HashSet, VecDeque};

use countermand_core::Config;

use super::{Event, World};
use crate::model::read::object;
use crate::rng::Rng;
use crate::step::Label;

/// How a peer chooses its ids.
#[derive(Clone, Copy, Debug)]
enum Ids {
    /// 0, 1, 2 and on, as every SDK does.
    Counting,
    /// `"r-1"` and on.
    Strings,
    /// A few, over and over: reuse, and duplicates.
    Few,
}

pub(super) struct Peer {
    pub(super) modern: bool,
    /// Which version the handshake will settle on.
    pub(super) version: &'static str,
    ids: Ids,
    overtakes: bool,
    counted: usize,
    /// Ids that it has sent.
    used: Vec<String>,
    /// Ids that it has cancelled.
    cancelled: HashSet<String>,
    /// Cancels on their way: the id, and the time of arrival.
    pub(super) coming: Vec<(String, u64)>,
    /// Requests that asked for a task.
    pub(super) asked: HashSet<Label>,
    /// Frames on their way, in order.
    pub(super) way: VecDeque<(String, Label)>,
    /// When the last of them arrives.
    arrival: u64,
}

/// Ids that are easily confused, and some that are the names of aliases.
const FEW: &[&str] = &[
    "0",
    "1",
    "1",
    "2",
    "2.0",
    "20e-1",
    "-1",
    "\"\"",
    "\"1\"",
    "\"2\"",
    "\"a\"",
    "\"\\u0061\"",
    "9007199254740993",
    "123456789012345678901",
    "\"countermand:2:0\"",
    "\"countermand:3:0\"",
];
const TOKENS: &[&str] = &["\"p\"", "\"p\"", "\"q\"", "1", "\"1\"", "\"countermand:2:0\""];
const VERSIONS: &[&str] = &["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// Each is consumed without a word.
const MALFORMED: &[&str] = &[
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":true}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1.5}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"id":1}}}"#,
    r#"{"jsonrpc":"2.0","id":null,"method":"notifications/cancelled","params":{"requestId":1}}"#,
];
/// Each is handed on as it is.
const FOREIGN: &[&str] = &[
    "not json",
    "{}",
    "\"text\"",
    r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#,
    r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
    r#"{"jsonrpc":"2.0","id":"spoken"}"#,
    r#"{"jsonrpc":"2.0","id":"spoken","method":7}"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":900,"error":{"code":1,"message":"of nothing"}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p"}}"#,
];

impl Peer {
    pub(super) fn new(rng: &mut Rng, config: &Config) -> Self {
        Self {
            modern: rng.percent(30),
            version: rng.pick(VERSIONS),
            ids: rng.pick(&[Ids::Counting, Ids::Strings, Ids::Few, Ids::Few]),
            overtakes: config.early_cancel.is_some() || rng.percent(5),
            counted: 0,
            used: Vec::new(),
            cancelled: HashSet::new(),
            coming: Vec::new(),
            asked: HashSet::new(),
            way: VecDeque::new(),
            arrival: 0,
        }
    }

    fn next_id(&mut self, rng: &mut Rng) -> String {
        self.counted += 1;
        let number = self.counted - 1;
        match self.ids {
            _ if rng.percent(1) => format!("\"{}\"", "long".repeat(10)),
            Ids::Counting if rng.percent(6) => format!("{number}.0"),
            Ids::Counting => number.to_string(),
            Ids::Strings => format!("\"r-{number}\""),
            Ids::Few => rng.pick(FEW).to_owned(),
        }
    }

    /// Whether a frame is the response to a request that it has cancelled.
    pub(super) fn abandoned(&self, frame: &str) -> bool {
        let fields = object(frame).filter(|fields| !fields.contains_key("method"));
        let id = fields.and_then(|fields| fields.get("id").map(|id| id.get().to_owned()));
        id.is_some_and(|id| self.cancelled.contains(&id))
    }
}

impl World {
    /// Puts a frame on its way to us.
    pub(super) fn put_on_way(&mut self, link: usize, frame: String, label: Label) -> u64 {
        let delay = self.rng.below(6) as u64;
        let arrival = self.peers[link].arrival.max(self.clock + delay);
        self.peers[link].arrival = arrival;
        self.peers[link].way.push_back((frame, label));
        self.at(arrival, Event::Arrive(link));
        arrival
    }

    pub(super) fn send_request(&mut self, link: usize) {
        let first = self.peers[link].counted == 0 && !self.peers[link].modern;
        let handshake = first && self.rng.percent(80);
        let id = self.peers[link].next_id(&mut self.rng);
        let mut frame = self.request(link, &id, handshake);
        let label = self.label();
        if frame.contains("\"task\":") {
            self.peers[link].asked.insert(label);
        }
        let overtakes = self.peers[link].overtakes && self.rng.percent(20);
        if overtakes {
            self.send_cancel(link, &id);
        }
        if self.rng.percent(5) {
            let second = self.peers[link].next_id(&mut self.rng);
            let cancel = cancel(self.rng.pick(&[id.as_str(), second.as_str()]), "");
            let other = self.request(link, &second, false);
            frame = format!("[{frame}, {other},{cancel}]");
            self.labels += 2;
            self.peers[link].used.push(second);
        }
        self.put_on_way(link, frame, label);
        self.peers[link].used.push(id.clone());
        if self.rng.percent(65) && !overtakes {
            let delay = self.rng.below(16);
            self.after(delay, Event::Cancel(link, id.clone()));
            if self.rng.percent(20) {
                let delay = delay + self.rng.below(8);
                self.after(delay, Event::Cancel(link, id));
            }
        }
    }

    fn request(&mut self, link: usize, id: &str, handshake: bool) -> String {
        let mut meta = Vec::new();
        if self.peers[link].modern {
            meta.push(r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#.to_owned());
        }
        if self.rng.percent(60) {
            meta.push(format!("\"progressToken\":{}", self.rng.pick(TOKENS)));
        }
        let meta = format!("\"_meta\":{{{}}}", meta.join(","));
        if handshake {
            return format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{{meta}}}}}"#
            );
        }
        let task = self.rng.pick(&["t0", "t1", "t2"]);
        let (method, params) = match self.rng.below(100) {
            0..=7 => ("tasks/cancel", format!("\"taskId\":\"{task}\",")),
            8..=27 => ("tools/call", "\"name\":\"work\",\"task\":{\"ttl\":1000},".into()),
            28..=29 => ("initialize", String::new()),
            _ => ("tools/call", "\"name\":\"work\",".into()),
        };
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}{meta}}}}}"#)
    }

    pub(super) fn send_task_cancel(&mut self, link: usize, task: &str) {
        let id = self.peers[link].next_id(&mut self.rng);
        let frame = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tasks/cancel","params":{{"taskId":"{task}"}}}}"#
        );
        let label = self.label();
        self.put_on_way(link, frame, label);
    }

    pub(super) fn send_cancel(&mut self, link: usize, id: &str) {
        let reason = self.rng.pick(&["", ",\"reason\":\"enough\"", ",\"reason\":7"]);
        // Some cancel by another spelling, or by the other type.
        let spelt = match self.rng.below(20) {
            0 if id.bytes().all(|b| b.is_ascii_digit()) => format!("{id}.0"),
            1..=3 if id.bytes().all(|b| b.is_ascii_digit()) => format!("\"{id}\""),
            1..=3 => id.trim_matches('"').parse::<u32>().map_or(id.into(), |id| id.to_string()),
            _ => id.to_owned(),
        };
        let label = self.label();
        let arrival = self.put_on_way(link, cancel(&spelt, reason), label);
        let peer = &mut self.peers[link];
        peer.coming.push((id.to_owned(), arrival));
        peer.cancelled.insert(id.to_owned());
    }

    /// Something malformed, for somebody else, or for nobody.
    pub(super) fn send_nuisance(&mut self, link: usize) {
        let stranger = self.rng.below(self.peers.len());
        let of = &self.peers[stranger].used;
        let theirs = if of.is_empty() { "5" } else { &of[self.rng.below(of.len())] };
        let frame = match self.rng.below(10) {
            0..=2 => cancel(theirs, ""),
            3 => cancel("\"nobody\"", ",\"reason\":\"a guess\""),
            4 => cancel("4711", ""),
            5..=6 => self.rng.pick(MALFORMED).to_owned(),
            7 => self.rng.pick(&["[]", "[ ]", "[{}]", "[[1],2]"]).to_owned(),
            _ => self.rng.pick(FOREIGN).to_owned(),
        };
        let label = self.label();
        self.labels += 2;
        self.put_on_way(link, frame, label);
    }
}

fn cancel(id: &str, reason: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}{reason}}}}}"#
    )
}
