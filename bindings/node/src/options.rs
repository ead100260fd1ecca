//! Settings as JavaScript objects, and what they become in the core and the runtime.

use std::time::Duration;

use countermand_core::{AliasPolicy, Config, EarlyCancel, IdMatch, Limits, WireKind};
use countermand_runtime::WireConfig;
use napi::{Error, Result, Status};
use napi_derive::napi;

/// Remembers cancels that overtook their request. Off unless given.
#[napi(object)]
#[derive(Clone, Debug)]
pub struct EarlyCancelOptions {
    /// How long each is remembered, in milliseconds.
    pub hold_ms: f64,
    /// How many are remembered.
    pub max: u32,
}

/// Ids that the SDK behind is given under another name.
#[napi(object)]
#[derive(Clone, Debug)]
pub struct AliasOptions {
    /// Integers beyond ±(2^53 − 1).
    pub beyond_f64: Option<bool>,
    /// `0` and `""`.
    pub falsy: Option<bool>,
}

/// The bounds of what a peer can make us keep. What is not given has the core's default.
#[napi(object)]
#[derive(Clone, Debug)]
pub struct LimitOptions {
    /// Requests in the table at once; one more is rejected.
    pub max_in_flight: Option<u32>,
    /// Cancelled requests remembered after their handler exited.
    pub max_retired: Option<u32>,
    /// How long, in milliseconds.
    pub retired_age_ms: Option<f64>,
    /// Bytes of a cancel's reason that are kept.
    pub max_reason_bytes: Option<u32>,
    /// Bytes of an id as written.
    pub max_id_bytes: Option<u32>,
    /// Requests of our own that wait for their response at once. 16,384.
    pub max_outbound: Option<u32>,
    /// Requests of our own remembered after they were abandoned. 1,024.
    pub max_tombstones: Option<u32>,
    /// How long, in milliseconds. 60,000.
    pub tombstone_age_ms: Option<f64>,
    /// Tasks whose tokens are kept after their handle was returned.
    pub max_tasks: Option<u32>,
    /// Methods and tools that the signals tell apart; what comes after these counts together. 256.
    pub max_tools: Option<u32>,
    /// How long after its cancel a request that runs on is an orphan, in milliseconds. 2,000.
    pub orphan_after_ms: Option<f64>,
}

/// The settings of one connection.
#[napi(object)]
#[derive(Clone, Debug, Default)]
pub struct ConnectionOptions {
    /// What carries the messages: `stdio` (default), `http2025` or `http2026`.
    pub wire: Option<String>,
    /// How a cancel's id is matched: `strict` (default) or `lenient`.
    pub id_match: Option<String>,
    /// Whether cancels that overtook their request are remembered.
    pub early_cancel: Option<EarlyCancelOptions>,
    /// Which ids get an alias.
    pub alias: Option<AliasOptions>,
    /// The bounds.
    pub limits: Option<LimitOptions>,
}

/// The settings of a wire.
#[napi(object)]
#[derive(Clone, Debug)]
pub struct WireOptions {
    /// The settings of its connection.
    pub connection: Option<ConnectionOptions>,
    /// Bytes of the longest frame that is read.
    pub max_frame: Option<u32>,
    /// Bytes queued in each direction.
    pub max_queued: Option<u32>,
    /// How long handlers may unwind after end of input or a signal, in milliseconds.
    pub grace_ms: Option<f64>,
    /// Whether SIGTERM and SIGINT close the connection.
    pub handle_signals: Option<bool>,
    /// Whether the process is ended when the grace period has passed.
    pub exit_process: Option<bool>,
}

fn unknown(what: &str, name: &str) -> Error {
    Error::new(Status::InvalidArg, format!("unknown {what}: {name:?}"))
}

/// A duration of JavaScript milliseconds; what is negative or no number is zero.
pub(crate) fn milliseconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value / 1e3).unwrap_or(if value > 0.0 {
        Duration::MAX
    } else {
        Duration::ZERO
    })
}

impl ConnectionOptions {
    pub(crate) fn config(&self) -> Result<Config> {
        let wire = match self.wire.as_deref() {
            None | Some("stdio") => WireKind::Stdio,
            Some("http2025") => WireKind::Http2025,
            Some("http2026") => WireKind::Http2026,
            Some(other) => return Err(unknown("wire", other)),
        };
        let id_match = match self.id_match.as_deref() {
            None | Some("strict") => IdMatch::Strict,
            Some("lenient") => IdMatch::Lenient,
            Some(other) => return Err(unknown("idMatch", other)),
        };
        let early_cancel = self.early_cancel.as_ref().map(|early| EarlyCancel {
            hold: milliseconds(early.hold_ms),
            max: early.max as usize,
        });
        let alias = self.alias.as_ref();
        let alias = AliasPolicy {
            beyond_f64: alias.and_then(|alias| alias.beyond_f64).unwrap_or(false),
            falsy: alias.and_then(|alias| alias.falsy).unwrap_or(false),
        };
        let limits = self.limits.as_ref().map(LimitOptions::limits).unwrap_or_default();
        Ok(Config { wire, id_match, early_cancel, alias, limits })
    }
}

impl LimitOptions {
    fn limits(&self) -> Limits {
        let default = Limits::default();
        let or = |given: Option<u32>, default: usize| given.map_or(default, |given| given as usize);
        Limits {
            max_in_flight: or(self.max_in_flight, default.max_in_flight),
            max_retired: or(self.max_retired, default.max_retired),
            retired_age: self.retired_age_ms.map_or(default.retired_age, milliseconds),
            max_reason_bytes: or(self.max_reason_bytes, default.max_reason_bytes),
            max_id_bytes: or(self.max_id_bytes, default.max_id_bytes),
            max_outbound: or(self.max_outbound, default.max_outbound),
            max_tombstones: or(self.max_tombstones, default.max_tombstones),
            tombstone_age: self.tombstone_age_ms.map_or(default.tombstone_age, milliseconds),
            max_tasks: or(self.max_tasks, default.max_tasks),
            max_tools: or(self.max_tools, default.max_tools),
            orphan_after: self.orphan_after_ms.map_or(default.orphan_after, milliseconds),
            ..default
        }
    }
}

impl WireOptions {
    pub(crate) fn config(&self) -> Result<WireConfig> {
        let default = WireConfig::default();
        let connection = self.connection.clone().unwrap_or_default().config()?;
        let or = |given: Option<u32>, default: usize| given.map_or(default, |given| given as usize);
        Ok(WireConfig {
            connection,
            max_frame: or(self.max_frame, default.max_frame),
            max_queued: or(self.max_queued, default.max_queued),
            grace: self.grace_ms.map_or(default.grace, milliseconds),
            handle_signals: self.handle_signals.unwrap_or(default.handle_signals),
            exit_process: self.exit_process.unwrap_or(default.exit_process),
        })
    }
}
