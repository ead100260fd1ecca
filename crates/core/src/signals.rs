//! The three signals, per method and tool: how soon cancelled work stopped, what of it runs on, and what
//! was abandoned after an effect. And a report of each cancelled request, for logs and for exporters.
//!
//! Nothing is decided here: `connection` and `outgoing` say what happened. What a peer chooses (names,
//! reasons) is bounded in length and in number. Orphans need no timer: they are looked up when asked for.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hdrhistogram::Histogram;

use crate::rewrite::bounded;
use crate::tree::small;
use crate::{Cause, Id, Limits};

/// Bytes of a method's or a tool's name that are kept.
const MAX_NAME: usize = 128;
/// The row for everything that has none of its own.
pub(crate) const OTHER: u32 = 0;

/// What was seen of the requests of one method, or of one tool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolSignals {
    /// The method; empty for all that came after [`Limits::max_tools`](crate::Limits::max_tools) others.
    pub method: Box<str>,
    /// The tool, where the method is `tools/call`.
    pub tool: Option<Box<str>>,
    /// Requests so far.
    pub requests: u64,
    /// Requests in the table now.
    pub in_flight: usize,
    /// Requests cancelled so far, by cause, in the order of [`Cause::ALL`].
    pub cancelled: [u64; 5],
    /// Cancelled requests that run on now, past [`Limits::orphan_after`](crate::Limits::orphan_after).
    pub orphans: usize,
    /// Cancelled requests whose handler exited so late.
    pub orphaned: u64,
    /// Answers of cancelled requests that were dropped.
    pub dropped_answers: u64,
    /// Requests cancelled after they had committed an effect.
    pub abandoned_with_effects: u64,
    /// From the cancel's being read to the handler's exit.
    pub latency: CancelLatency,
}

/// How long cancelled handlers took to exit. Exact to one part in a hundred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CancelLatency {
    /// How many were measured.
    pub count: u64,
    /// Their sum.
    pub total: Duration,
    /// The median, nearest above.
    pub p50: Duration,
    /// The 99th of a hundred.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
    /// How many took no longer than each of [`BUCKETS`](Self::BUCKETS).
    pub buckets: [u64; Self::BUCKETS.len()],
}

impl CancelLatency {
    /// The upper bounds that exporters use.
    pub const BUCKETS: [Duration; 12] = [
        Duration::from_millis(1),
        Duration::from_millis(5),
        Duration::from_millis(10),
        Duration::from_millis(25),
        Duration::from_millis(50),
        Duration::from_millis(100),
        Duration::from_millis(250),
        Duration::from_millis(500),
        Duration::from_secs(1),
        Duration::from_millis(2_500),
        Duration::from_secs(10),
        Duration::from_mins(1),
    ];
}

/// What may still run for a request when its handler should have exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Work {
    /// The handler itself.
    Handler,
    /// A thread that it waits for or has left behind.
    Thread,
    /// A process, or a tree of them, by its first pid.
    Process(u32),
}

/// A cancelled request that runs on past [`Limits::orphan_after`](crate::Limits::orphan_after).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Orphan {
    /// The id, as the peer gave it.
    pub id: Id,
    /// The method.
    pub method: Box<str>,
    /// The tool, where the method is `tools/call`.
    pub tool: Option<Box<str>>,
    /// Why it was cancelled.
    pub cause: Cause,
    /// Since when.
    pub age: Duration,
    /// What still runs.
    pub work: Vec<Work>,
}

/// A cancelled request that is over.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The id, as the peer gave it.
    pub id: Id,
    /// The method.
    pub method: Box<str>,
    /// The tool, where the method is `tools/call`.
    pub tool: Option<Box<str>>,
    /// Why it was cancelled.
    pub cause: Cause,
    /// What the canceller gave as its reason, bounded. Escape it before it reaches a log.
    pub reason: Option<Arc<str>>,
    /// From the cancel's being read to the handler's exit; `None` if no handler had started.
    pub latency: Option<Duration>,
}

struct Row {
    method: Box<str>,
    tool: Option<Box<str>>,
    requests: u64,
    cancelled: [u64; 5],
    orphaned: u64,
    dropped_answers: u64,
    abandoned_with_effects: u64,
    total: Duration,
    /// Of microseconds; made when first needed.
    latency: Option<Box<Histogram<u64>>>,
}

impl Row {
    fn new((method, tool): (&str, Option<&str>)) -> Self {
        Self {
            method: method.into(),
            tool: tool.map(Into::into),
            requests: 0,
            cancelled: [0; 5],
            orphaned: 0,
            dropped_answers: 0,
            abandoned_with_effects: 0,
            total: Duration::ZERO,
            latency: None,
        }
    }

    fn name(&self) -> (&str, Option<&str>) {
        (&self.method, self.tool.as_deref())
    }

    fn latency(&self) -> CancelLatency {
        let Some(histogram) = &self.latency else {
            return CancelLatency::default();
        };
        let at = |quantile| Duration::from_micros(histogram.value_at_quantile(quantile));
        CancelLatency {
            count: histogram.len(),
            total: self.total,
            p50: at(0.5),
            p99: at(0.99),
            max: Duration::from_micros(histogram.max()),
            buckets: CancelLatency::BUCKETS
                .map(|bound| histogram.count_between(0, microseconds(bound))),
        }
    }
}

pub(crate) struct Signals {
    rows: Vec<Row>,
    /// Rows by the hash of their names.
    index: HashTable<u32>,
    hasher: RandomState,
    reports: VecDeque<Report>,
    max_tools: usize,
    max_reports: usize,
    orphan_after: Duration,
}

impl Signals {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            rows: vec![Row::new(("", None))],
            index: HashTable::new(),
            hasher: RandomState::default(),
            reports: VecDeque::new(),
            max_tools: limits.max_tools,
            max_reports: limits.max_reports,
            orphan_after: limits.orphan_after,
        }
    }

    /// The row of a method, or of a tool; a new one while there is room.
    pub(crate) fn row(&mut self, method: &[u8], tool: Option<&[u8]>) -> u32 {
        let (method, tool) = (String::from_utf8_lossy(method), tool.map(String::from_utf8_lossy));
        let (method, tool) = (bounded(&method, MAX_NAME), tool.as_deref());
        let name = (method, tool.map(|tool| bounded(tool, MAX_NAME)));
        let hash = self.hasher.hash_one(name);
        let Self { rows, index, hasher, .. } = self;
        let found = index.find(hash, |&row| rows[row as usize].name() == name);
        if let Some(&row) = found {
            return row;
        }
        if rows.len() > self.max_tools {
            return OTHER;
        }
        let row = small(rows.len());
        rows.push(Row::new(name));
        index.insert_unique(hash, row, |&row| hasher.hash_one(rows[row as usize].name()));
        row
    }

    #[inline]
    pub(crate) fn opened(&mut self, row: u32) {
        self.rows[row as usize].requests += 1;
    }

    pub(crate) fn cancelled(&mut self, row: u32, cause: Cause) {
        self.rows[row as usize].cancelled[cause.code() as usize - 1] += 1;
    }

    pub(crate) fn dropped_answer(&mut self, row: u32) {
        self.rows[row as usize].dropped_answers += 1;
    }

    pub(crate) fn abandoned_with_effects(&mut self, row: u32) {
        self.rows[row as usize].abandoned_with_effects += 1;
    }

    /// The handler of a cancelled request has exited, so long after its cancel.
    pub(crate) fn exited(&mut self, row: u32, latency: Duration) {
        let row = &mut self.rows[row as usize];
        row.orphaned += u64::from(latency >= self.orphan_after);
        row.total += latency;
        let histogram = row.latency.get_or_insert_with(|| {
            // Two digits, and as long as it takes. Both are constants that it accepts.
            Box::new(Histogram::new(2).expect("2 digits are allowed"))
        });
        // It grows as far as it must, so that nothing is out of its range.
        let _ = histogram.record(microseconds(latency));
    }

    /// A cancelled request is over.
    pub(crate) fn report(
        &mut self,
        row: u32,
        id: Id,
        cause: Cause,
        reason: Option<Arc<str>>,
        latency: Option<Duration>,
    ) {
        let Row { method, tool, .. } = &self.rows[row as usize];
        let report =
            Report { id, method: method.clone(), tool: tool.clone(), cause, reason, latency };
        self.reports.push_back(report);
        if self.reports.len() > self.max_reports {
            self.reports.pop_front();
        }
    }

    pub(crate) fn take_reports(&mut self) -> Vec<Report> {
        self.reports.drain(..).collect()
    }

    pub(crate) fn orphan_after(&self) -> Duration {
        self.orphan_after
    }

    pub(crate) fn names(&self, row: u32) -> (Box<str>, Option<Box<str>>) {
        let Row { method, tool, .. } = &self.rows[row as usize];
        (method.clone(), tool.clone())
    }

    /// Every row that has seen a request; how many are in flight and orphaned is the caller's to add.
    pub(crate) fn snapshot(&self) -> Vec<ToolSignals> {
        let signals = self.rows.iter().map(|row| ToolSignals {
            method: row.method.clone(),
            tool: row.tool.clone(),
            requests: row.requests,
            in_flight: 0,
            cancelled: row.cancelled,
            orphans: 0,
            orphaned: row.orphaned,
            dropped_answers: row.dropped_answers,
            abandoned_with_effects: row.abandoned_with_effects,
            latency: row.latency(),
        });
        signals.collect()
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
