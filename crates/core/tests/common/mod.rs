//! Messages, as a peer and an SDK write them.

use countermand_core::{Connection, Inbound, Received, Time};
use serde_json::{Value, json};

/// A `tools/call`.
pub(crate) fn call(id: &Value) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "work" } })
        .to_string()
        .into_bytes()
}

/// A cancel.
pub(crate) fn cancel(id: &Value) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
        .to_string()
        .into_bytes()
}

/// A successful answer.
pub(crate) fn result(id: &Value) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } }).to_string().into_bytes()
}

/// Receives a call that must be delivered as it is, and starts its handler.
pub(crate) fn run(connection: &Connection, id: &Value) -> Inbound {
    let received = connection.receive(&call(id), Time(0));
    let Received::Deliver { request: Some(request), rewritten: None } = received else {
        panic!("{id}: {received:?}")
    };
    assert!(connection.start(request.generation, Time(0)));
    request
}
