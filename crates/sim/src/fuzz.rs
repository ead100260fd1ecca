//! Attacks the reader of a peer's bytes: mutated messages, and the core's reading of each held against
//! what `serde_json` makes of the same text.
//!
//! The core may understand less than `serde_json` only where there is nothing to understand, and must
//! never find another id, method or `requestId`.

use std::borrow::Cow;

use countermand_core::{Config, Connection, IdRef, Kind, Time, parse};
use serde_json::Value;

use crate::model::read::{Key, key, object};
use crate::rng::Rng;

/// Messages to begin with.
const SEEDS: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","_meta":{"progressToken":"p"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"enough"}}"#,
    r#"{"\u0069d":"a","m\u0065thod":"tools/call","par\u0061ms":{"r\u0065questId":1}}"#,
    r#"{"id":1,"id":2,"method":"a","method":"b","params":{"requestId":1,"requestId":"x"}}"#,
    r#"{"id":123456789012345678901234567890,"method":"m"}"#,
    r#"{"id":1e400,"method":"m","params":{"requestId":-0.0}}"#,
    r#"{"id":30e-1,"method":"m","params":{"requestId":9223372036854775808}}"#,
    r#"{"id":"\ud83d\ude00","method":"m","params":{"requestId":"\ud800"}}"#,
    r#"{"id":"7","result":{"task":{"taskId":"t","status":"working"}}}"#,
    r#"{"id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
    r#"[{"id":1,"method":"a"},{"method":"notifications/cancelled","params":{"requestId":1}},[],{}]"#,
    r#" { "jsonrpc" : "2.0" , "id" : 0 , "method" : "initialize" , "params" : { "protocolVersion" : "2025-11-25" } } "#,
    r#"{"id":5,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}},"method":"m"}"#,
    r#"{"x":[[[[[[{"id":1,"method":"no"}]]]]]],"id":2,"method":"yes"}"#,
    r#"{"method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}"#,
    r#""text""#,
    "null",
];

/// What mutations put in.
const WORDS: &[&[u8]] = &[
    b"\"id\":",
    b"\"\\u0069d\":",
    b"\"method\":",
    b"\"params\":",
    b"\"requestId\":",
    b"\"result\":",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\u",
    b"\\ud800",
    b"\\udc00",
    b"\\n",
    b"\n",
    b"\r",
    b"\t",
    b" ",
    b"null",
    b"true",
    b"0",
    b"-0",
    b"-",
    b"1.0",
    b"1e0",
    b"1e999999999999",
    b".5",
    b"00",
    b"9007199254740993",
    b"18446744073709551616",
    b"1E+2",
    b"\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\x00",
    b"/*",
    b"NaN",
    b"{\"id\":",
    b"[[[[[[[[",
    b"]]]]]]]]",
];

/// Makes a message, or something that was one.
pub fn input(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = rng.pick(SEEDS).as_bytes().to_vec();
    for _ in 0..rng.below(6) {
        mutate(rng, &mut bytes);
    }
    bytes
}

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let at = rng.below(bytes.len() + 1);
    let to = at + rng.below((bytes.len() - at).min(24) + 1);
    match rng.below(8) {
        0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
        1 => drop(bytes.drain(at..to)),
        2 => {
            let again = bytes[at..to].to_vec();
            bytes.splice(at..at, again);
        }
        3 => {
            let other = rng.pick(SEEDS).as_bytes();
            let from = rng.below(other.len());
            bytes.splice(at..to, other[from..].iter().copied());
        }
        4 => bytes.truncate(at),
        5 => {
            let moved = bytes[at..to].to_vec();
            bytes.drain(at..to);
            let there = rng.below(bytes.len() + 1);
            bytes.splice(there..there, moved);
        }
        _ => drop(bytes.splice(at..to, rng.pick(WORDS).iter().copied())),
    }
}

/// Holds what the core reads against what `serde_json` reads, and lets a connection have the bytes both
/// ways. What differs is said.
pub fn compare(bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let mine = parse(&text);
    let theirs = serde_json::from_str::<Value>(&text);
    match (&mine, &theirs) {
        (None, Ok(Value::Object(_))) => return Err("not read".into()),
        (Some(_), Ok(value)) if !value.is_object() => return Err(format!("read from {value}")),
        _ => {}
    }
    if let Some(mine) = mine {
        let params = mine.params();
        match theirs {
            Ok(value) => {
                same_method(&mine.method, &value["method"])?;
                same_id(mine.id().as_ref(), mine.raw_id, value.get("id"))?;
                same_kind(mine.kind, &value)?;
                let request_id = params.request_id.and_then(IdRef::parse);
                let theirs = value["params"].get("requestId");
                same_id(request_id.as_ref(), params.request_id, theirs)?;
            }
            // Too deep, too big a number or a lone surrogate for a `Value`: its raw parts must do.
            Err(_) => same_raw(&text, mine.raw_id, params.request_id)?,
        }
    }
    let connection = Connection::new(Config::default());
    connection.receive(bytes, Time(0));
    connection.send(bytes, Time(1));
    Ok(())
}

fn same_method(mine: &[u8], theirs: &Value) -> Result<(), String> {
    let theirs = theirs.as_str().unwrap_or_default();
    if mine == theirs.as_bytes() {
        return Ok(());
    }
    Err(format!("method {:?}, not {theirs:?}", String::from_utf8_lossy(mine)))
}

fn same_kind(mine: Kind, value: &Value) -> Result<(), String> {
    let has = |key: &str| value.get(key).is_some();
    let theirs = match (value["method"].is_string(), has("id")) {
        (true, true) => Kind::Request,
        (true, false) => Kind::Notification,
        (false, true) if has("result") || has("error") => Kind::Response,
        _ => Kind::Other,
    };
    if mine == theirs { Ok(()) } else { Err(format!("{mine:?}, not {theirs:?}")) }
}

fn same_id(
    mine: Option<&IdRef<'_>>,
    raw: Option<&str>,
    theirs: Option<&Value>,
) -> Result<(), String> {
    let same = match (mine, theirs) {
        (Some(IdRef::Str(mine)), Some(Value::String(theirs))) => mine.as_ref() == theirs.as_bytes(),
        (mine, Some(Value::Number(number))) => match (mine, number.as_i64()) {
            (Some(IdRef::Int(mine)), Some(theirs)) => *mine == theirs,
            (_, Some(_)) => false,
            // A fraction, an exponent or beyond 64 bits: the plain reader counts it out.
            (mine, None) => same_number(mine, raw.unwrap_or_default()),
        },
        (None, Some(theirs)) => !theirs.is_string(),
        (None, None) => true,
        (Some(_), _) => false,
    };
    if same { Ok(()) } else { Err(format!("id {mine:?}, not {theirs:?}")) }
}

fn same_number(mine: Option<&IdRef<'_>>, raw: &str) -> bool {
    let exponent = raw.split(['e', 'E']).nth(1).unwrap_or_default();
    match (mine, key(raw)) {
        (Some(IdRef::Int(mine)), Some(theirs)) => theirs.small() == Some(*mine),
        (Some(IdRef::Big(mine)), Some(theirs)) => key(mine) == Some(theirs),
        // The plain reader does not count that far.
        (_, None) if exponent.trim_start_matches(['-', '+', '0']).len() > 3 => true,
        (None, None) => true,
        _ => false,
    }
}

/// Compares the raw id and `requestId` alone.
fn same_raw(text: &str, id: Option<&str>, request_id: Option<&str>) -> Result<(), String> {
    // A key with a lone surrogate is more than a `String` can hold: then there is nothing to compare.
    let Some(fields) = object(text) else { return Ok(()) };
    let raw = |key: &str| fields.get(key).map(|raw| raw.get());
    let params = raw("params").and_then(object);
    let theirs = params.as_ref().and_then(|params| params.get("requestId")).map(|raw| raw.get());
    if raw("id") != id {
        return Err(format!("raw id {id:?}, not {:?}", raw("id")));
    }
    if params.is_some() && theirs != request_id {
        return Err(format!("raw requestId {request_id:?}, not {theirs:?}"));
    }
    let strings = [id, request_id].into_iter().flatten().filter_map(|raw| Some((raw, key(raw)?)));
    for (raw, theirs) in strings {
        let same = match (IdRef::parse(raw), theirs) {
            (Some(IdRef::Str(mine)), Key::Text(theirs)) => mine == Cow::Borrowed(theirs.as_bytes()),
            (mine, Key::Integer(_)) => same_number(mine.as_ref(), raw),
            _ => false,
        };
        if !same {
            return Err(format!("{raw} was misread"));
        }
    }
    Ok(())
}
