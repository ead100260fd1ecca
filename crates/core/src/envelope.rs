//! Reads the envelope of one JSON-RPC message, and of its body only what cancellation needs.
//!
//! Everything else is skipped without being built: deep nesting costs no stack and a huge value no
//! memory. Where a key is repeated the last one counts, as in Python and JavaScript. Every part
//! that may be replaced is a slice of the frame.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::id::{IdRef, decode};
use crate::rewrite::REQUEST_CANCELLED;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Has a `method` and an `id`.
    Request,
    /// Has a `method` and no `id`.
    Notification,
    /// Has an `id` and a `result` or an `error`.
    Response,
    /// JSON, but none of these.
    Other,
}

/// The parts of one message that the core looks at, as slices of the frame's text.
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    /// What it is.
    pub kind: Kind,
    /// The raw `id`, whatever its type.
    pub raw_id: Option<&'a str>,
    /// The decoded `method`; empty where there is none.
    pub method: Cow<'a, [u8]>,
    params: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
}

impl<'a> Envelope<'a> {
    /// The `id`, if it is a string or an integer.
    pub fn id(&self) -> Option<IdRef<'a>> {
        self.raw_id.and_then(IdRef::parse)
    }

    /// What `params` says that matters here; empty where it is no object.
    pub fn params(&self) -> Body<'a> {
        self.params.map(Body::parse).unwrap_or_default()
    }

    /// What `result` says that matters here; empty where it is no object.
    pub(crate) fn result(&self) -> Body<'a> {
        self.result.map(Body::parse).unwrap_or_default()
    }

    /// Whether it is the error that says that the request was cancelled.
    pub(crate) fn cancelled(&self) -> bool {
        let mut code = None;
        self.error.and_then(|error| object(error, &mut [("code", &mut code)]));
        code.and_then(IdRef::parse) == Some(IdRef::Int(REQUEST_CANCELLED.into()))
    }
}

/// Reads one message. `None` if `text` is not one JSON object.
pub fn parse(text: &str) -> Option<Envelope<'_>> {
    let mut raw_id = None;
    let mut method = None;
    let mut params = None;
    let mut result = None;
    let mut error = None;
    object(
        text,
        &mut [
            ("id", &mut raw_id),
            ("method", &mut method),
            ("params", &mut params),
            ("result", &mut result),
            ("error", &mut error),
        ],
    )?;
    let method = method.and_then(string);
    let kind = match (&method, raw_id) {
        (Some(_), Some(_)) => Kind::Request,
        (Some(_), None) => Kind::Notification,
        (None, Some(_)) if result.is_some() || error.is_some() => Kind::Response,
        (None, _) => Kind::Other,
    };
    Some(Envelope { kind, raw_id, method: method.unwrap_or_default(), params, result, error })
}

/// The elements of a JSON array, or `None` if `text` is none.
pub(crate) fn elements(text: &str) -> Option<Vec<&str>> {
    let values: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    Some(values.into_iter().map(RawValue::get).collect())
}

/// The fields of `params` or of `result` that cancellation needs, each as raw JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct Body<'a> {
    /// `requestId` of a cancel.
    pub request_id: Option<&'a str>,
    /// `reason` of a cancel.
    pub reason: Option<&'a str>,
    /// `progressToken` of a progress notification.
    pub progress: Option<&'a str>,
    /// `name` of a tool.
    pub name: Option<&'a str>,
    /// `_meta` itself.
    pub meta: Option<&'a str>,
    /// `_meta.progressToken` of a request.
    pub meta_progress: Option<&'a str>,
    /// `_meta["io.modelcontextprotocol/protocolVersion"]`: the mark of the 2026 era.
    pub meta_version: Option<&'a str>,
    /// `protocolVersion` of the handshake.
    pub version: Option<&'a str>,
    /// `task`: present on a request that asks for one and in the answer that returns its handle.
    pub task: Option<&'a str>,
    /// `taskId`, at the top or within `task`.
    pub task_id: Option<&'a str>,
    /// `status` of a task.
    pub status: Option<&'a str>,
}

impl<'a> Body<'a> {
    fn parse(text: &'a str) -> Self {
        Self::of(text).unwrap_or_default()
    }

    /// Reads it; `None` if `text` is not one JSON object.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        let mut body = Self::default();
        object(
            text,
            &mut [
                ("requestId", &mut body.request_id),
                ("reason", &mut body.reason),
                ("progressToken", &mut body.progress),
                ("name", &mut body.name),
                ("_meta", &mut body.meta),
                ("protocolVersion", &mut body.version),
                ("task", &mut body.task),
                ("taskId", &mut body.task_id),
                ("status", &mut body.status),
            ],
        )?;
        if let Some(meta) = body.meta {
            object(
                meta,
                &mut [
                    ("progressToken", &mut body.meta_progress),
                    ("io.modelcontextprotocol/protocolVersion", &mut body.meta_version),
                ],
            );
        }
        if let Some(task) = body.task {
            object(task, &mut [("taskId", &mut body.task_id)]);
        }
        Some(body)
    }
}

/// The decoded text of a raw JSON value, if it is a string.
pub(crate) fn string(json: &str) -> Option<Cow<'_, [u8]>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        decode(json).map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner.as_bytes()))
    }
}

/// Walks one JSON object and puts the raw values of the named keys in their places. `None` if
/// `text` is not one whole JSON object.
fn object<'a, 'p>(
    text: &'a str,
    fields: &'p mut [(&'p str, &'p mut Option<&'a str>)],
) -> Option<()> {
    if !text.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{') {
        return None;
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_map(Fields(fields)).ok()?;
    deserializer.end().ok()
}

struct Fields<'a, 'p>(&'p mut [(&'p str, &'p mut Option<&'a str>)]);

impl<'a> Visitor<'a> for Fields<'a, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            match self.0.iter_mut().find(|(name, _)| name.as_bytes() == key.as_ref()) {
                Some((_, place)) => **place = Some(map.next_value::<&RawValue>()?.get()),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// An object's key, decoded, as bytes: a lone surrogate in a key must not make the message unreadable.
struct Key<'a>(Cow<'a, [u8]>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_bytes<E>(self, bytes: &'de [u8]) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(bytes)))
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text.as_bytes())))
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(bytes.to_vec())))
            }

            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.as_bytes().to_vec())))
            }
        }
        deserializer.deserialize_bytes(KeyVisitor)
    }
}
