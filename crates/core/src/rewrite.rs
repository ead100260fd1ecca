//! Writing bytes: splicing an id or a progress token into a frame, and the replies that we make.

use serde_json::json;

/// Replaces slices of `text` by other text; the slices must be parts of `text` and not overlap.
/// Everything else stays byte for byte.
pub(crate) fn splice(text: &str, parts: &mut [(&str, &str)]) -> Vec<u8> {
    let base = text.as_ptr() as usize;
    parts.sort_by_key(|(old, _)| old.as_ptr() as usize);
    let mut spliced = Vec::with_capacity(text.len() + 32);
    let mut done = 0;
    for (old, new) in parts {
        let start = old.as_ptr() as usize - base;
        spliced.extend_from_slice(&text.as_bytes()[done..start]);
        spliced.extend_from_slice(new.as_bytes());
        done = start + old.len();
    }
    spliced.extend_from_slice(&text.as_bytes()[done..]);
    spliced
}

/// JSON-RPC: the request is not valid.
pub(crate) const INVALID_REQUEST: i32 = -32600;
/// JSON-RPC's range for servers: the server is at a limit.
pub(crate) const OVERLOADED: i32 = -32000;
/// The request was cancelled. Only for wires on which a request must be answered.
pub(crate) const REQUEST_CANCELLED: i32 = -32800;

/// One JSON-RPC error response. `raw_id` is JSON already.
pub(crate) fn error_reply(raw_id: &str, code: i32, message: &str) -> Vec<u8> {
    let error = json!({ "code": code, "message": message });
    format!(r#"{{"jsonrpc":"2.0","id":{raw_id},"error":{error}}}"#).into_bytes()
}

/// `text` cut to at most `max` bytes, at a character.
pub(crate) fn bounded(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}
