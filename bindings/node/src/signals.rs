//! The signals, orphans and reports as plain objects.

use countermand_core::{CancelLatency, Cause, Orphan, Report, Snapshot, ToolSignals, Work};
use napi::Result;
use napi_derive::napi;

use crate::stats::number;
use crate::wire::{entry, generation};

/// Requests by the cause of their cancellation.
#[napi(object)]
pub struct CauseCounts {
    /// Cancelled by the peer.
    pub peer: f64,
    /// A deadline passed.
    pub timeout: f64,
    /// The connection ended.
    pub disconnect: f64,
    /// The process went down.
    pub shutdown: f64,
    /// Cancelled by our own side.
    pub local: f64,
}

impl From<[u64; 5]> for CauseCounts {
    fn from(counts: [u64; 5]) -> Self {
        let of = |cause: Cause| number(counts[cause.code() as usize - 1]);
        Self {
            peer: of(Cause::Peer),
            timeout: of(Cause::Timeout),
            disconnect: of(Cause::Disconnect),
            shutdown: of(Cause::Shutdown),
            local: of(Cause::Local),
        }
    }
}

/// From the cancel's being read to the handler's exit, exact to one part in a hundred. Milliseconds.
#[napi(object)]
pub struct CancelLatencyMs {
    /// How many were measured.
    pub count: f64,
    /// Their sum.
    pub total: f64,
    /// The median.
    pub p50: f64,
    /// The 99th of a hundred.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl From<&CancelLatency> for CancelLatencyMs {
    fn from(latency: &CancelLatency) -> Self {
        let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1e3;
        Self {
            count: number(latency.count),
            total: ms(latency.total),
            p50: ms(latency.p50),
            p99: ms(latency.p99),
            max: ms(latency.max),
        }
    }
}

/// What was seen of the requests of one method, or of one tool.
#[napi(object)]
pub struct ToolStats {
    /// The method; empty for all that came after `maxTools` others.
    pub method: String,
    /// The tool, where the method is `tools/call`.
    pub tool: Option<String>,
    /// Requests so far.
    pub requests: f64,
    /// Requests in the table now.
    pub in_flight: f64,
    /// Requests cancelled so far.
    pub cancelled: CauseCounts,
    /// Cancelled requests that run on now, past `orphanAfterMs`.
    pub orphans: f64,
    /// Cancelled requests whose handler exited so late.
    pub orphaned: f64,
    /// Answers of cancelled requests that were dropped.
    pub dropped_answers: f64,
    /// Requests cancelled after they had committed an effect.
    pub abandoned_with_effects: f64,
    /// From the cancel's being read to the handler's exit.
    pub latency_ms: CancelLatencyMs,
}

impl From<&ToolSignals> for ToolStats {
    fn from(signals: &ToolSignals) -> Self {
        Self {
            method: signals.method.to_string(),
            tool: signals.tool.as_deref().map(str::to_owned),
            requests: number(signals.requests),
            in_flight: number(signals.in_flight as u64),
            cancelled: signals.cancelled.into(),
            orphans: number(signals.orphans as u64),
            orphaned: number(signals.orphaned),
            dropped_answers: number(signals.dropped_answers),
            abandoned_with_effects: number(signals.abandoned_with_effects),
            latency_ms: (&signals.latency).into(),
        }
    }
}

/// A cancelled request that runs on past `orphanAfterMs`.
#[napi(object)]
pub struct OrphanStats {
    /// The id, as the peer gave it, as JSON.
    pub id: String,
    /// The method.
    pub method: String,
    /// The tool, where the method is `tools/call`.
    pub tool: Option<String>,
    /// Why it was cancelled.
    pub cause: String,
    /// Since when, in milliseconds.
    pub age_ms: f64,
    /// What still runs: `handler`, `thread`, `process 4711`.
    pub work: Vec<String>,
}

impl From<&Orphan> for OrphanStats {
    fn from(orphan: &Orphan) -> Self {
        let work = orphan.work.iter().map(|work| match work {
            Work::Thread => "thread".to_owned(),
            Work::Process(pid) => format!("process {pid}"),
            _ => "handler".to_owned(),
        });
        Self {
            id: orphan.id.to_json(),
            method: orphan.method.to_string(),
            tool: orphan.tool.as_deref().map(str::to_owned),
            cause: orphan.cause.as_str().to_owned(),
            age_ms: orphan.age.as_secs_f64() * 1e3,
            work: work.collect(),
        }
    }
}

/// The signals of each tool, and the orphans there are now.
#[napi(object)]
pub struct Signals {
    /// A row for each method and tool that was called.
    pub tools: Vec<ToolStats>,
    /// What runs on although it was cancelled, the oldest first.
    pub orphans: Vec<OrphanStats>,
}

impl From<Snapshot> for Signals {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            tools: snapshot.tools.iter().map(Into::into).collect(),
            orphans: snapshot.orphans.iter().map(Into::into).collect(),
        }
    }
}

/// A cancelled request that is over.
#[napi(object)]
pub struct CancelReport {
    /// The id, as the peer gave it, as JSON.
    pub id: String,
    /// The method.
    pub method: String,
    /// The tool, where the method is `tools/call`.
    pub tool: Option<String>,
    /// Why it was cancelled.
    pub cause: String,
    /// What the canceller gave as its reason, bounded. From the peer: not to be trusted.
    pub reason: Option<String>,
    /// From the cancel's being read to the handler's exit, in milliseconds; nothing if no handler had started.
    pub latency_ms: Option<f64>,
}

impl From<&Report> for CancelReport {
    fn from(report: &Report) -> Self {
        Self {
            id: report.id.to_json(),
            method: report.method.to_string(),
            tool: report.tool.as_deref().map(str::to_owned),
            cause: report.cause.as_str().to_owned(),
            reason: report.reason.as_deref().map(str::to_owned),
            latency_ms: report.latency.map(|latency| latency.as_secs_f64() * 1e3),
        }
    }
}

/// The signals of each tool, and the orphans there are now.
#[napi(catch_unwind)]
pub fn signals(handle: u32) -> Result<Signals> {
    let wire = &entry(handle)?.wire;
    Ok(wire.connection().signals(wire.now()).into())
}

/// The counters and signals in the text format of Prometheus.
#[napi(catch_unwind)]
pub fn prometheus(handle: u32) -> Result<String> {
    let wire = &entry(handle)?.wire;
    Ok(wire.connection().prometheus(wire.now()))
}

/// The cancelled requests that were over since this was last asked.
#[napi(catch_unwind)]
pub fn reports(handle: u32) -> Result<Vec<CancelReport>> {
    Ok(entry(handle)?.wire.connection().take_reports().iter().map(Into::into).collect())
}

/// The handler of this request starts: what it does from here on counts as running.
#[napi(catch_unwind)]
pub fn start(handle: u32, request: f64) -> Result<bool> {
    let wire = &entry(handle)?.wire;
    Ok(wire.connection().start(generation(request), wire.now()))
}

/// The handler of this request has exited: its answer, if it has one, is on its way.
#[napi(catch_unwind)]
pub fn finish(handle: u32, request: f64) -> Result<()> {
    let wire = &entry(handle)?.wire;
    wire.connection().finish(generation(request), wire.now());
    Ok(())
}

/// This request has committed an effect that cannot be taken back; false if it is not in the table.
#[napi(catch_unwind)]
pub fn commit(handle: u32, request: f64) -> Result<bool> {
    Ok(entry(handle)?.wire.connection().commit(generation(request)))
}
