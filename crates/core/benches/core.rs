//! The core beside the designs that are usual: side by side, in turns, in one run.
//!
//! A request's token is what each design gives a handler: a clone of the token there, here the place of
//! its state word ([`countermand_core::Inbound`]), which is all that a binding needs to read it.
//!
//! Prints one line of JSON for each comparison and writes the same lines to
//! `target/bench/core.jsonl`. `cargo bench -p countermand-core`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use countermand_core::{Cause, Config, Connection, IdRef, Limits, Time, Token};
use tokio_util::sync::CancellationToken;

#[path = "usual/mod.rs"]
mod usual;

use usual::{Flat, Id, Nested, Table};

const ROUNDS: usize = 15;
const IN_FLIGHT: usize = 64;
const NODES: usize = 100_000;

fn main() {
    let mut report = Report::new();
    for kind in [IdKind::Number, IdKind::String] {
        for threads in [1, 2] {
            let ours = || {
                let connection = Connection::new(Config::default());
                move |ids: &Ids| turn_ours(&connection, ids)
            };
            let nested = || with_table(Nested::default());
            let flat = || with_table(Flat::default());
            let [ours_ns, nested_ns, flat_ns] = side_by_side(kind, threads, &ours, &nested, &flat);
            let what = format!("register + complete, {} id, {}", kind.name(), plural(threads));
            report.line(&what, ours_ns, nested_ns, "ns", "std HashMap, one child token", 4.0);
            report.line(&what, ours_ns, flat_ns, "ns", "FxHashMap, one flat token", 2.0);
        }
    }
    for waiters in [false, true] {
        let name = if waiters { "a waker on each" } else { "no wakers" };
        let (ours, theirs) = trip(waiters);
        let what = format!("cancel of {NODES} tokens, per node, {name}");
        report.line(&what, ours, theirs, "ns", "tokio_util", if waiters { 2.0 } else { 5.0 });
    }
    let (ours, theirs) = read();
    report.line("one read of `cancelled`", ours, theirs, "ns", "tokio_util", 8.0);
    for kind in [IdKind::Number, IdKind::String] {
        let (ours, theirs) = bytes_in_flight(kind);
        let what = format!("bytes per request in flight, {} id", kind.name());
        report.line(&what, ours, theirs, "B", "std HashMap, one child token", 1.0);
    }
    report.save();
}

fn plural(threads: usize) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads, a table each") }
}

#[derive(Clone, Copy)]
enum IdKind {
    Number,
    String,
}

impl IdKind {
    fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::String => "string",
        }
    }

    fn make(self, number: usize) -> Id {
        match self {
            Self::Number => Id::Number(i64::try_from(number).unwrap()),
            Self::String => Id::String(format!("request-{number:08}")),
        }
    }
}

/// Ids in the order of their requests: each is new, as a client's counter makes them.
struct Ids(Vec<Id>);

impl Ids {
    fn new(kind: IdKind) -> Self {
        Self((0..20_000).map(|number| kind.make(number)).collect())
    }
}

fn borrow(id: &Id) -> IdRef<'_> {
    match id {
        Id::Number(number) => IdRef::Int(*number),
        Id::String(text) => IdRef::Str(text.as_bytes().into()),
    }
}

/// Every request is taken in, and answered when `IN_FLIGHT` later ones have come.
fn turn_ours(connection: &Connection, ids: &Ids) {
    for (place, id) in ids.0.iter().enumerate() {
        black_box(connection.register(&borrow(id)).expect("a new id"));
        if let Some(done) = place.checked_sub(IN_FLIGHT) {
            assert!(connection.complete(&borrow(&ids.0[done]), Time(0)));
        }
    }
    for id in &ids.0[ids.0.len() - IN_FLIGHT..] {
        assert!(connection.complete(&borrow(id), Time(0)));
    }
}

fn with_table<T: Table>(table: T) -> impl Fn(&Ids) {
    move |ids| {
        for (place, id) in ids.0.iter().enumerate() {
            black_box(table.register(id));
            if let Some(done) = place.checked_sub(IN_FLIGHT) {
                assert!(table.complete(&ids.0[done]));
            }
        }
        for id in &ids.0[ids.0.len() - IN_FLIGHT..] {
            assert!(table.complete(id));
        }
    }
}

/// Nanoseconds per request of each, medians of rounds that take turns.
fn side_by_side<A: Fn(&Ids) + Send, B: Fn(&Ids) + Send, C: Fn(&Ids) + Send>(
    kind: IdKind,
    threads: usize,
    ours: &(impl Fn() -> A + Sync),
    nested: &(impl Fn() -> B + Sync),
    flat: &(impl Fn() -> C + Sync),
) -> [f64; 3] {
    let mut rounds = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        rounds[0].push(on_threads(kind, threads, ours));
        rounds[1].push(on_threads(kind, threads, nested));
        rounds[2].push(on_threads(kind, threads, flat));
    }
    rounds.map(median)
}

fn on_threads<F: Fn(&Ids) + Send>(
    kind: IdKind,
    threads: usize,
    make: &(impl Fn() -> F + Sync),
) -> f64 {
    let start = Barrier::new(threads);
    let spent: Vec<f64> = std::thread::scope(|scope| {
        let run = || {
            let ids = Ids::new(kind);
            let turn = make();
            turn(&ids);
            start.wait();
            let begin = Instant::now();
            turn(&ids);
            per(begin.elapsed(), ids.0.len())
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    spent.iter().sum::<f64>() / as_f64(threads)
}

struct Silent;

impl Wake for Silent {
    fn wake(self: Arc<Self>) {}
}

fn trip(waiters: bool) -> (f64, f64) {
    let waker = Waker::from(Arc::new(Silent));
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..ROUNDS {
        let connection = Connection::new(Config::default());
        let root = connection.root().child();
        let nodes: Vec<Token> = (1..NODES).map(|_| root.child()).collect();
        let watches: Vec<_> =
            nodes.iter().filter(|_| waiters).map(|node| node.watch(&waker)).collect();
        let begin = Instant::now();
        root.trip(Cause::Peer, None);
        ours.push(per(begin.elapsed(), NODES));
        assert!(nodes.iter().all(Token::cancelled));
        drop((watches, nodes));

        let root = CancellationToken::new();
        let nodes: Vec<_> = (1..NODES).map(|_| root.child_token()).collect();
        let mut waits: Vec<_> =
            nodes.iter().filter(|_| waiters).map(|node| Box::pin(node.cancelled())).collect();
        let mut context = std::task::Context::from_waker(&waker);
        for wait in &mut waits {
            assert!(wait.as_mut().poll(&mut context).is_pending());
        }
        let begin = Instant::now();
        root.cancel();
        theirs.push(per(begin.elapsed(), NODES));
        assert!(nodes.iter().all(CancellationToken::is_cancelled));
    }
    (median(ours), median(theirs))
}

fn read() -> (f64, f64) {
    const READS: usize = 2_000_000;
    let connection = Connection::new(Config::default());
    let ours_token = connection.root().child();
    let theirs_token = CancellationToken::new().child_token();
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for _ in 0..READS {
            black_box(black_box(&ours_token).cancelled());
        }
        ours.push(per(begin.elapsed(), READS));
        let begin = Instant::now();
        for _ in 0..READS {
            black_box(black_box(&theirs_token).is_cancelled());
        }
        theirs.push(per(begin.elapsed(), READS));
    }
    (median(ours), median(theirs))
}

/// What 10,000 requests in flight have allocated, each with its token: the tables' own growth included.
fn bytes_in_flight(kind: IdKind) -> (f64, f64) {
    const REQUESTS: usize = 10_000;
    let ids: Vec<Id> = (0..REQUESTS).map(|number| kind.make(number)).collect();
    let limits = Limits { max_in_flight: REQUESTS, ..Limits::default() };
    let connection = Connection::new(Config { limits, ..Config::default() });
    let before = allocated();
    for id in &ids {
        black_box(connection.register(&borrow(id)).expect("a new id"));
    }
    let ours = allocated() - before;
    let table = Nested::default();
    let before = allocated();
    for id in &ids {
        black_box(table.register(id));
    }
    let theirs = allocated() - before;
    let each = |bytes: isize| as_f64(usize::try_from(bytes).unwrap()) / as_f64(REQUESTS);
    (each(ours), each(theirs))
}

/// Counts the bytes that are allocated now, while it is asked to.
struct Counting;

static COUNT: AtomicBool = AtomicBool::new(false);
static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocated() -> isize {
    COUNT.store(true, Ordering::Relaxed);
    ALLOCATED.load(Ordering::Relaxed)
}

// SAFETY: hands every call to the system's allocator as it came, and counts beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNT.load(Ordering::Relaxed) {
            ALLOCATED.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if COUNT.load(Ordering::Relaxed) {
            ALLOCATED.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are the system's.
        unsafe { System.dealloc(place, layout) }
    }
}

fn per(spent: Duration, count: usize) -> f64 {
    spent.as_secs_f64() * 1e9 / as_f64(count)
}

#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^52")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Report {
    lines: Vec<String>,
}

impl Report {
    fn new() -> Self {
        Self { lines: Vec::new() }
    }

    fn line(&mut self, what: &str, ours: f64, theirs: f64, unit: &str, against: &str, goal: f64) {
        let line = serde_json::json!({
            "name": what, "ours": round(ours), "theirs": round(theirs), "unit": unit,
            "ratio": round(theirs / ours), "note": against, "goal": goal,
        });
        println!("{line}");
        self.lines.push(line.to_string());
    }

    fn save(&self) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bench");
        std::fs::create_dir_all(folder).expect("target/bench can be made");
        let mut file = std::fs::File::create(format!("{folder}/core.jsonl")).expect("a file");
        for line in &self.lines {
            writeln!(file, "{line}").expect("the file can be written");
        }
    }
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
