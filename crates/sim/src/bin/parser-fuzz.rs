//! Fuzzes the reader of a peer's bytes: `parser-fuzz --executions 100000000 [--seed N] [--threads N]`.
//!
//! Prints the first input on which the core and `serde_json` differ, or how many inputs it tried and how
//! long the slowest took.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use countermand_sim::fuzz::{compare, input};
use countermand_sim::rng::Rng;

fn main() -> ExitCode {
    let option = |name: &str, default: u64| {
        let mut arguments = std::env::args().skip_while(|argument| argument != name);
        arguments.nth(1).map_or(Some(default), |value| value.parse().ok())
    };
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let (Some(executions), Some(seed), Some(threads)) =
        (option("--executions", 1_000_000), option("--seed", 0), option("--threads", cores))
    else {
        eprintln!("usage: parser-fuzz [--executions N] [--seed N] [--threads N]");
        return ExitCode::from(2);
    };
    let started = Instant::now();
    let share = executions.div_ceil(threads.max(1));
    let found = thread::scope(|scope| {
        let work = |thread| scope.spawn(move || fuzz(seed + thread, share));
        let threads: Vec<_> = (0..threads.max(1)).map(work).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    for (bytes, difference) in found.iter().filter_map(|found| found.difference.as_ref()) {
        println!("{difference}: {:?}", String::from_utf8_lossy(bytes));
    }
    let differ = found.iter().any(|found| found.difference.is_some());
    let slowest = found.iter().map(|found| found.slowest).max().unwrap_or_default();
    let seconds = started.elapsed().as_secs_f64();
    let executions = share * threads.max(1);
    println!("{executions} executions, {seconds:.1} s, slowest thousand {slowest:?}");
    if differ { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

struct Found {
    difference: Option<(Vec<u8>, String)>,
    /// Of a thousand inputs in a row: a single one is as long as the scheduler likes.
    slowest: Duration,
}

fn fuzz(seed: u64, executions: u64) -> Found {
    let mut rng = Rng::new(seed);
    let mut slowest = Duration::ZERO;
    let mut begun = Instant::now();
    for number in 0..executions {
        let bytes = input(&mut rng);
        if let Err(difference) = compare(&bytes) {
            return Found { difference: Some((bytes, difference)), slowest };
        }
        if number % 1_000 == 999 {
            slowest = slowest.max(begun.elapsed());
            begun = Instant::now();
        }
    }
    Found { difference: None, slowest }
}
