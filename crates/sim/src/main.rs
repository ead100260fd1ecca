//! Runs simulated worlds: `countermand-sim --seeds 1000000 [--seed FIRST] [--threads N]`.
//!
//! On a breach it prints the seed, the invariant, and the shortest schedule found as a scenario file.
//! In the end it prints how often each rare thing happened; over a million seeds each must have
//! happened ten thousand times.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use countermand_sim::coverage::{Counter, Coverage};
use countermand_sim::world::{Failure, run};
use countermand_sim::{scenario, shrink};

/// In so many of a hundred worlds each counter must have been hit.
const AT_LEAST_PERCENT: u64 = 1;
/// Below this, chance alone may leave a counter low.
const ENOUGH: u64 = 100_000;

fn main() -> ExitCode {
    let Some(options) = Options::parse() else {
        eprintln!("usage: countermand-sim [--seeds N] [--seed FIRST] [--threads N]");
        return ExitCode::from(2);
    };
    let started = Instant::now();
    let ran = run_all(&options);
    for (counter, count) in Counter::ALL.iter().map(|c| (c, ran.coverage.count(*c))) {
        println!("{count:>12}  {}", counter.name());
    }
    if let Some((seed, failure)) = ran.failure {
        let short = shrink::shrink(&failure);
        println!(
            "\nseed {seed}: {} is broken: {}",
            failure.breach.invariant, failure.breach.detail
        );
        println!("{} steps, shrunk to {}:", failure.steps.len(), short.steps.len());
        println!("{}", scenario::scenario(&short));
        return ExitCode::FAILURE;
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{} worlds, {} steps, {seconds:.1} s, no breach", options.seeds, ran.steps);
    let least = options.seeds * AT_LEAST_PERCENT / 100;
    let rare = Counter::ALL.iter().filter(|counter| ran.coverage.count(**counter) < least);
    let rare: Vec<_> = rare.map(|counter| counter.name()).collect();
    if options.seeds >= ENOUGH && !rare.is_empty() {
        println!("fewer than {least} times: {}", rare.join("; "));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

struct Options {
    seeds: u64,
    first: u64,
    threads: u64,
}

impl Options {
    fn parse() -> Option<Self> {
        let threads = thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
        let mut options = Self { seeds: 10_000, first: 0, threads };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next()?.parse().ok()?;
            match name.as_str() {
                "--seeds" => options.seeds = value,
                "--seed" => options.first = value,
                "--threads" => options.threads = value,
                _ => return None,
            }
        }
        (options.threads > 0).then_some(options)
    }
}

#[derive(Default)]
struct Ran {
    coverage: Coverage,
    steps: usize,
    failure: Option<(u64, Failure)>,
}

/// Runs the worlds on all threads; every thread stops at the first breach of any.
fn run_all(options: &Options) -> Ran {
    let stop = AtomicBool::new(false);
    let part = |thread: u64| {
        let mut ran = Ran::default();
        let stride = usize::try_from(options.threads).unwrap_or(1);
        for seed in (options.first + thread..options.first + options.seeds).step_by(stride) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let outcome = run(seed);
            ran.coverage.add(&outcome.coverage);
            ran.steps += outcome.steps;
            if let Some(failure) = outcome.failure {
                stop.store(true, Ordering::Relaxed);
                ran.failure = Some((seed, failure));
            }
        }
        ran
    };
    thread::scope(|scope| {
        let part = &part;
        let threads = (0..options.threads).map(|thread| scope.spawn(move || part(thread)));
        let threads: Vec<_> = threads.collect();
        let mut all = Ran::default();
        for thread in threads {
            let ran = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.coverage.add(&ran.coverage);
            all.steps += ran.steps;
            let first = all.failure.take();
            let lower = |a: &(u64, _), b: &(u64, _)| a.0.cmp(&b.0);
            all.failure = first.into_iter().chain(ran.failure).min_by(|a, b| lower(a, b));
        }
        all
    })
}
