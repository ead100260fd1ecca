//! Measures MCP servers over stdio, stock beside guarded, in turns.
//!
//! Reads one job (JSON) from stdin: a command line for each side. Starts both servers, then plays the same
//! phases on the one and on the other, round after round, so that whatever disturbs the machine disturbs
//! both. Prints one JSON object.

mod phases;
mod server;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read as _;

use serde::Deserialize;
use serde_json::{Value, json};

use phases::{POLL, Samples, WAIT};
use server::Server;

#[derive(Deserialize)]
struct Job {
    sides: BTreeMap<String, Side>,
    rounds: usize,
    in_flight: usize,
    /// How long a phase under load takes.
    seconds: f64,
}

#[derive(Deserialize)]
struct Side {
    command: Vec<String>,
    /// Whether its tools have a token to look at: the names of the phases that need one.
    #[serde(default)]
    token: Vec<Phase>,
}

#[derive(Deserialize, PartialEq, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Phase {
    FlagIdle,
    FlagLoaded,
    Cost,
}

/// What a side has shown so far.
#[derive(Default)]
struct Seen {
    per_second: Vec<f64>,
    cost: Vec<f64>,
    echo: Samples,
    cancel_idle: Samples,
    cancel_loaded: Samples,
    flag_idle: Samples,
    flag_loaded: Samples,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let job: Job = serde_json::from_str(&text)?;
    let mut sides = Vec::new();
    for (name, side) in &job.sides {
        let mut server = Server::start(&side.command)?;
        if phases::text_of(&mut server, "echo", r#"{"text":"hello"}"#)? != "hello" {
            return Err("the echo tool does not echo".into());
        }
        phases::load(&mut server, job.in_flight, 1.0)?; // Warm: caches, inline caches, compilers.
        sides.push((name, side, server, Seen::default()));
    }
    for _ in 0..job.rounds {
        for (_, side, server, seen) in &mut sides {
            round(&job, side, server, seen)?;
        }
        // Who begins is not who began before: the first of a round is slower than the second.
        sides.reverse();
    }
    let report: serde_json::Map<String, Value> =
        sides.into_iter().map(|(name, _, _, seen)| (name.clone(), seen.report())).collect();
    println!("{}", Value::Object(report));
    Ok(())
}

fn round(
    job: &Job,
    side: &Side,
    server: &mut Server,
    seen: &mut Seen,
) -> Result<(), Box<dyn Error>> {
    let echo = phases::load(server, job.in_flight, job.seconds)?;
    seen.per_second.push(echo.per_second(job.seconds));
    seen.echo.append(echo);
    seen.cancel_idle.append(phases::cancels_idle(server, &WAIT, 40)?);
    seen.cancel_loaded.append(phases::cancels_loaded(server, &WAIT, job.in_flight, job.seconds)?);
    if side.token.contains(&Phase::FlagIdle) {
        seen.flag_idle.append(phases::cancels_idle(server, &POLL, 20)?);
    }
    if side.token.contains(&Phase::FlagLoaded) {
        let seconds = job.seconds * 2.0;
        seen.flag_loaded.append(phases::cancels_loaded(server, &POLL, job.in_flight, seconds)?);
    }
    if side.token.contains(&Phase::Cost) {
        seen.cost.push(phases::text_of(server, "cost", "{}")?.parse()?);
    }
    Ok(())
}

impl Seen {
    fn report(mut self) -> Value {
        json!({
            "per_second": phases::median(&mut self.per_second),
            "read_ns": phases::median(&mut self.cost),
            "echo_ms": self.echo.report(),
            "cancel_idle_ms": self.cancel_idle.report(),
            "cancel_loaded_ms": self.cancel_loaded.report(),
            "flag_idle_ms": self.flag_idle.report(),
            "flag_loaded_ms": self.flag_loaded.report(),
        })
    }
}
