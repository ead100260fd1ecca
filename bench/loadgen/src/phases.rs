//! What is measured: throughput and latency of a trivial tool, and how soon a cancelled handler has ended.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Report, Result, Server, id_of, now};

const PATIENCE: Duration = Duration::from_secs(10);

/// A tool that is there to be cancelled.
pub(crate) struct Target {
    tool: &'static str,
    /// How long its handler is given after its start to reach what it waits in. Nanoseconds.
    reach: u64,
    /// How many of it run at once where there is a load.
    at_once: usize,
}

/// Awaits.
pub(crate) const WAIT: Target = Target { tool: "wait", reach: 2_000_000, at_once: 4 };

/// Polls its token. In Python a thread does, and to report its start has cost it the interpreter's lock: it
/// has to get that back before it polls anything. It also leaves the others little, so there is one at once.
pub(crate) const POLL: Target = Target { tool: "poll", reach: 20_000_000, at_once: 1 };

/// Latencies in nanoseconds.
#[derive(Default)]
pub(crate) struct Samples(Vec<u64>);

impl Samples {
    pub(crate) fn append(&mut self, mut other: Samples) {
        self.0.append(&mut other.0);
    }

    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn per_second(&self, seconds: f64) -> f64 {
        self.0.len() as f64 / seconds
    }

    /// Milliseconds.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn report(mut self) -> Value {
        if self.0.is_empty() {
            return Value::Null;
        }
        self.0.sort_unstable();
        let at = |percent: usize| self.0[(self.0.len() - 1) * percent / 100] as f64 / 1e6;
        json!({ "p50": at(50), "p99": at(99), "count": self.0.len() })
    }
}

pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn echo(id: u64) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"echo\",\"arguments\":{{\"text\":\"hello\"}}}}}}\n"
    )
}

fn call(id: u64, tool: &str, tag: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":{{\"tag\":\"{tag}\"}}}}}}\n"
    )
}

fn cancel(id: u64) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id}}}}}\n"
    )
}

/// Requests that are kept in flight: each answer is followed by the next request.
struct Flight {
    sent: HashMap<u64, u64>,
    samples: Samples,
}

impl Flight {
    fn start(server: &mut Server, in_flight: usize) -> Result<Self> {
        let mut flight = Flight { sent: HashMap::new(), samples: Samples::default() };
        flight.send(server, in_flight)?;
        Ok(flight)
    }

    fn send(&mut self, server: &mut Server, count: usize) -> Result<()> {
        let mut bytes = String::new();
        let at = now();
        for _ in 0..count {
            let id = server.fresh_id();
            bytes.push_str(&echo(id));
            self.sent.insert(id, at);
        }
        server.write(bytes.as_bytes())?;
        Ok(())
    }

    /// Takes what has come; `again` keeps the number in flight.
    fn turn(
        &mut self,
        server: &mut Server,
        again: bool,
        mut report: impl FnMut(Report),
    ) -> Result<()> {
        let mut answered = 0;
        server.read(
            Duration::from_millis(5),
            |line| {
                if let Some(at) = id_of(line).and_then(|id| self.sent.remove(&id)) {
                    self.samples.0.push(now() - at);
                    answered += 1;
                }
            },
            &mut report,
        )?;
        if again && answered > 0 {
            self.send(server, answered)?;
        }
        Ok(())
    }

    fn land(mut self, server: &mut Server) -> Result<Samples> {
        let counted = self.samples.0.len();
        let end = now() + nanoseconds(PATIENCE.as_secs_f64());
        while !self.sent.is_empty() {
            if now() > end {
                return Err(format!("{} requests were never answered", self.sent.len()).into());
            }
            self.turn(server, false, |_| {})?;
        }
        // What was answered after the time does not count as throughput.
        self.samples.0.truncate(counted);
        Ok(self.samples)
    }
}

/// Keeps `in_flight` calls of the echo tool in flight.
pub(crate) fn load(server: &mut Server, in_flight: usize, seconds: f64) -> Result<Samples> {
    let end = now() + nanoseconds(seconds);
    let mut flight = Flight::start(server, in_flight)?;
    while now() < end {
        flight.turn(server, true, |_| {})?;
    }
    flight.land(server)
}

/// Cancels a tool that waits for its cancel, again and again, with nothing else to do.
pub(crate) fn cancels_idle(server: &mut Server, target: &Target, count: usize) -> Result<Samples> {
    let tool = target.tool;
    let mut samples = Samples::default();
    for _ in 0..count {
        let id = server.fresh_id();
        let tag = format!("{tool}-{id}");
        server.write(call(id, tool, &tag).as_bytes())?;
        server
            .until(PATIENCE, |_, report| report.is_some_and(|report| report.is("start", &tag)))?;
        std::thread::sleep(Duration::from_nanos(target.reach));
        let cancelled = server.write(cancel(id).as_bytes())?;
        server.until(PATIENCE, |_, report| {
            let Some(report) = report.filter(|report| report.is("exit", &tag)) else {
                return false;
            };
            samples.0.push(report.at.saturating_sub(cancelled));
            true
        })?;
    }
    Ok(samples)
}

/// A call that is made, cancelled when its handler has started, and made again when that has ended.
struct Victim {
    id: u64,
    tag: String,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Pause { until: u64 },
    Starting,
    Running { since: u64 },
    Cancelled { at: u64 },
}

impl Victim {
    /// Does what is due. `last`: no new call is made.
    fn act(&mut self, server: &mut Server, target: &Target, last: bool) -> Result<()> {
        match self.state {
            State::Pause { until } if until < now() && !last => {
                self.id = server.fresh_id();
                self.tag = format!("{}-{}", target.tool, self.id);
                server.write(call(self.id, target.tool, &self.tag).as_bytes())?;
                self.state = State::Starting;
            }
            State::Running { since } if since + target.reach < now() => {
                self.state = State::Cancelled { at: server.write(cancel(self.id).as_bytes())? };
            }
            _ => {}
        }
        Ok(())
    }

    fn hear(&mut self, report: &Report, samples: &mut Samples) {
        match self.state {
            State::Starting if report.is("start", &self.tag) => {
                self.state = State::Running { since: report.at };
            }
            State::Cancelled { at } if report.is("exit", &self.tag) => {
                samples.0.push(report.at.saturating_sub(at));
                self.state = State::Pause { until: now() + 2_000_000 };
            }
            _ => {}
        }
    }
}

/// The same while calls of the echo tool are kept in flight.
pub(crate) fn cancels_loaded(
    server: &mut Server,
    target: &Target,
    in_flight: usize,
    seconds: f64,
) -> Result<Samples> {
    let end = now() + nanoseconds(seconds);
    let mut flight = Flight::start(server, in_flight)?;
    let mut samples = Samples::default();
    let mut victims: Vec<Victim> = (0..target.at_once)
        .map(|_| Victim { id: 0, tag: String::new(), state: State::Pause { until: 0 } })
        .collect();
    while now() < end || victims.iter().any(|v| !matches!(v.state, State::Pause { .. })) {
        if now() > end + nanoseconds(PATIENCE.as_secs_f64()) {
            return Err(format!("a {} did not end after its cancel", target.tool).into());
        }
        let last = now() >= end;
        for victim in &mut victims {
            victim.act(server, target, last)?;
        }
        flight.turn(server, true, |report| {
            for victim in &mut victims {
                victim.hear(&report, &mut samples);
            }
        })?;
    }
    flight.land(server)?;
    Ok(samples)
}

/// The text that a tool answers with.
pub(crate) fn text_of(server: &mut Server, tool: &str, arguments: &str) -> Result<String> {
    let id = server.fresh_id();
    server.write(
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":{arguments}}}}}\n")
            .as_bytes(),
    )?;
    let mut answer = None;
    let end = now() + nanoseconds(PATIENCE.as_secs_f64());
    while answer.is_none() && now() < end {
        server.read(
            Duration::from_millis(50),
            |line| {
                if id_of(line) == Some(id) {
                    answer = serde_json::from_slice::<Value>(line).ok();
                }
            },
            |_| {},
        )?;
    }
    let answer = answer.ok_or("no answer")?;
    let text = answer["result"]["content"][0]["text"].as_str();
    Ok(text.ok_or_else(|| format!("no text in {answer}"))?.to_owned())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
