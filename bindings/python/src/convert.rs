//! Values that cross the border: settings, ids, times, causes, counters.

use std::time::Duration;

use countermand_core::{
    AliasPolicy, Cause, Config, EarlyCancel, Generation, Id, IdMatch, Limits, Stats, Time, WireKind,
};
use countermand_runtime::WireError;
use pyo3::exceptions::{PyConnectionError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyString};

use crate::process::process_error;
use crate::signals::causes;

/// What the SDKs do to ids: they keep every integer and take `0` and `""` for ids.
const ALIAS: AliasPolicy = AliasPolicy { beyond_f64: false, falsy: false };

/// The settings of a connection, by the names that Python's users know them under.
pub(crate) fn config(options: Option<&Bound<'_, PyDict>>) -> PyResult<Config> {
    let mut config = Config { alias: ALIAS, ..Config::default() };
    let Some(options) = options else { return Ok(config) };
    for (key, value) in options {
        let key: String = key.extract()?;
        let limits = &mut config.limits;
        match key.as_str() {
            "wire" => config.wire = wire_kind(&value)?,
            "id_match" => config.id_match = id_match(&value)?,
            "early_cancel" => config.early_cancel = early_cancel(&value)?,
            "alias_beyond_f64" => config.alias.beyond_f64 = value.extract()?,
            "alias_falsy" => config.alias.falsy = value.extract()?,
            "max_in_flight" => limits.max_in_flight = value.extract()?,
            "max_retired" => limits.max_retired = value.extract()?,
            "retired_age" => limits.retired_age = duration("retired_age", &value)?,
            "max_reason_bytes" => limits.max_reason_bytes = value.extract()?,
            "max_id_bytes" => limits.max_id_bytes = value.extract()?,
            "max_tasks" => limits.max_tasks = value.extract()?,
            "max_outbound" => limits.max_outbound = value.extract()?,
            "max_tombstones" => limits.max_tombstones = value.extract()?,
            "tombstone_age" => limits.tombstone_age = duration("tombstone_age", &value)?,
            "max_tools" => limits.max_tools = value.extract()?,
            "orphan_after" => limits.orphan_after = duration("orphan_after", &value)?,
            _ => {
                let known = Limits::default();
                let message = format!(
                    "no such option: {key} (wire, id_match, early_cancel, alias_beyond_f64, alias_falsy, \
                     max_in_flight={}, max_retired={}, retired_age={}, max_reason_bytes={}, \
                     max_id_bytes={}, max_tasks={}, max_outbound={}, max_tombstones={}, tombstone_age={}, \
                     max_tools={}, orphan_after={})",
                    known.max_in_flight,
                    known.max_retired,
                    known.retired_age.as_secs(),
                    known.max_reason_bytes,
                    known.max_id_bytes,
                    known.max_tasks,
                    known.max_outbound,
                    known.max_tombstones,
                    known.tombstone_age.as_secs(),
                    known.max_tools,
                    known.orphan_after.as_secs(),
                );
                return Err(PyValueError::new_err(message));
            }
        }
    }
    Ok(config)
}

fn wire_kind(value: &Bound<'_, PyAny>) -> PyResult<WireKind> {
    match value.extract::<String>()?.as_str() {
        "stdio" => Ok(WireKind::Stdio),
        "http2025" => Ok(WireKind::Http2025),
        "http2026" => Ok(WireKind::Http2026),
        other => Err(PyValueError::new_err(format!(
            "wire is \"stdio\", \"http2025\" or \"http2026\", not {other:?}"
        ))),
    }
}

fn id_match(value: &Bound<'_, PyAny>) -> PyResult<IdMatch> {
    match value.extract::<String>()?.as_str() {
        "strict" => Ok(IdMatch::Strict),
        "lenient" => Ok(IdMatch::Lenient),
        other => Err(PyValueError::new_err(format!(
            "id_match is \"strict\" or \"lenient\", not {other:?}"
        ))),
    }
}

fn early_cancel(value: &Bound<'_, PyAny>) -> PyResult<Option<EarlyCancel>> {
    if value.is_none() {
        return Ok(None);
    }
    let (hold, max) = value.extract::<(Bound<'_, PyAny>, usize)>()?;
    Ok(Some(EarlyCancel { hold: duration("early_cancel", &hold)?, max }))
}

/// Seconds, as Python writes durations.
pub(crate) fn duration(what: &str, seconds: &Bound<'_, PyAny>) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds.extract()?)
        .map_err(|error| PyValueError::new_err(format!("{what} in seconds: {error}")))
}

/// Seconds since an epoch of the caller's.
pub(crate) fn time(seconds: &Bound<'_, PyAny>) -> PyResult<Time> {
    let since = duration("now", seconds)?;
    Ok(Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
}

pub(crate) fn cause(name: &str) -> PyResult<Cause> {
    name.parse().map_err(|_| {
        let known: Vec<_> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
        PyValueError::new_err(format!("a cause is one of {}, not {name:?}", known.join(", ")))
    })
}

/// An id as Python's `json` would have read it: an `int` or a `str`.
pub(crate) fn id(py: Python<'_>, id: &Id) -> PyResult<Py<PyAny>> {
    match id {
        Id::Int(value) => Ok(value.into_pyobject(py)?.into_any().unbind()),
        Id::Big(text) => {
            let (digits, zeros) = text.split_once('e').unwrap_or((text, "0"));
            let power =
                py.get_type::<PyInt>().call1((10,))?.pow(zeros.parse::<u64>()?, py.None())?;
            let digits = py.get_type::<PyInt>().call1((digits,))?;
            Ok(digits.mul(power)?.unbind())
        }
        Id::Str(bytes) => {
            if let Ok(text) = std::str::from_utf8(bytes) {
                return Ok(PyString::new(py, text).into_any().unbind());
            }
            let bytes = PyBytes::new(py, bytes);
            Ok(bytes.call_method1("decode", ("utf-8", "surrogatepass"))?.unbind())
        }
    }
}

/// Counters as plain data.
pub(crate) fn stats<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let counters = PyDict::new(py);
    let cancelled = causes(py, stats.cancelled)?;
    counters.set_item("in_flight", stats.in_flight)?;
    counters.set_item("retired", stats.retired)?;
    counters.set_item("tasks", stats.tasks)?;
    counters.set_item("tokens", stats.tokens)?;
    counters.set_item("watches", stats.watches)?;
    counters.set_item("held", stats.held)?;
    counters.set_item("works", stats.works)?;
    counters.set_item("requests", stats.requests)?;
    counters.set_item("answered", stats.answered)?;
    counters.set_item("cancelled", cancelled)?;
    let cancels = PyDict::new(py);
    for (hit, count) in stats.cancels_by_hit() {
        cancels.set_item(hit, count)?;
    }
    counters.set_item("cancels", cancels)?;
    counters.set_item("late_cancels", stats.late_cancels)?;
    counters.set_item("unknown_cancels", stats.unknown_cancels)?;
    counters.set_item("malformed_cancels", stats.malformed_cancels)?;
    counters.set_item("repeated_cancels", stats.repeated_cancels)?;
    counters.set_item("initialize_cancels", stats.initialize_cancels)?;
    counters.set_item("cancelled_early", stats.cancelled_early)?;
    counters.set_item("duplicate_ids", stats.duplicate_ids)?;
    counters.set_item("rejected", stats.rejected)?;
    counters.set_item("swallowed_answers", stats.swallowed_answers)?;
    counters.set_item("swallowed_progress", stats.swallowed_progress)?;
    counters.set_item("swallowed_unknown", stats.swallowed_unknown)?;
    counters.set_item("aliased", stats.aliased)?;
    counters.set_item("outbound", stats.outbound)?;
    counters.set_item("tombstones", stats.tombstones)?;
    counters.set_item("calls", stats.calls)?;
    counters.set_item("settled", stats.settled)?;
    counters.set_item("abandoned", causes(py, stats.abandoned)?)?;
    counters.set_item("late_responses", stats.late_responses)?;
    counters.set_item("duplicate_responses", stats.duplicate_responses)?;
    counters.set_item("wrong_type_responses", stats.wrong_type_responses)?;
    counters.set_item("unknown_responses", stats.unknown_responses)?;
    counters.set_item("late_progress", stats.late_progress)?;
    let latency = stats.cancel_latency;
    counters.set_item("cancel_latency_count", latency.count)?;
    counters.set_item("cancel_latency_total", latency.total.as_secs_f64())?;
    counters.set_item("cancel_latency_max", latency.max.as_secs_f64())?;
    Ok(counters)
}

/// As the exception that Python's users expect; the message says what to do.
pub(crate) fn wire_error(error: WireError) -> PyErr {
    match error {
        WireError::Closed => PyConnectionError::new_err(error.to_string()),
        WireError::Process(error) => process_error(error),
        WireError::Io(error) => PyOSError::new_err(format!("cannot open the wire: {error}")),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

pub(crate) fn generation(value: u64) -> Generation {
    Generation(value)
}
