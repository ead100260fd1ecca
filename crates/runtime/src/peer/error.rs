//! How a request can fail, on either side.

use std::sync::Arc;

use countermand_core::{BeginError, Cause};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a request of ours has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// It was abandoned: by its handle, or because its parent tripped. No failure of the peer's.
    #[error("cancelled ({}{})", .cause.as_str(), .reason.as_ref().map(|reason| format!(": {reason:?}")).unwrap_or_default())]
    Cancelled {
        /// Why.
        cause: Cause,
        /// What was given as the reason. It may be a peer's text.
        reason: Option<Arc<str>>,
    },
    /// A deadline passed, its own or its parent's.
    #[error("timed out")]
    TimedOut,
    /// The connection ended before the response came, or had ended before the request was made.
    #[error("the connection is closed")]
    Disconnected,
    /// The peer answered with an error.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The request could not be made: nothing was sent.
    #[error("no request was made: {0}")]
    NotMade(BeginError),
    /// The parameters are nothing that JSON can say: nothing was sent.
    #[error("the parameters cannot be written as JSON: {0}")]
    Params(Arc<str>),
    /// The peer's response is none that JSON-RPC knows.
    #[error("the response cannot be read: {0}")]
    Malformed(Arc<str>),
}

impl From<BeginError> for CallError {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::Closed => Self::Disconnected,
            BeginError::Cancelled(Cause::Timeout) => Self::TimedOut,
            BeginError::Cancelled(cause) => Self::Cancelled { cause, reason: None },
            error => Self::NotMade(error),
        }
    }
}

/// A JSON-RPC error: what a handler answers with in place of a result, and what a peer has answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// Its number.
    pub code: i64,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// For programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// An error with this number.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// -32602: the parameters are not what the method takes.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    /// -32603: the fault is ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(-32603, message)
    }

    pub(super) fn no_such_method(method: &str) -> Self {
        Self::new(-32601, format!("Method not found: {method}"))
    }
}
