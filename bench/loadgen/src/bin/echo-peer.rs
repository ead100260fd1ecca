//! The server that clients are measured with: answers `initialize`, `tools/list` and the tool `echo` at once, and the
//! tool `never` not at all.

use std::io::{BufRead, BufReader, BufWriter, Write, stdin, stdout};

use serde_json::{Value, json};

fn main() -> std::io::Result<()> {
    let mut input = BufReader::new(stdin().lock());
    let mut output = BufWriter::new(stdout().lock());
    let mut line = String::new();
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let message: Value = serde_json::from_str(&line)?;
        if let Some(result) = answer(&message) {
            let response = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            writeln!(output, "{response}")?;
        }
        // What has come together is answered together.
        if input.buffer().is_empty() {
            output.flush()?;
        }
    }
}

fn answer(message: &Value) -> Option<Value> {
    message.get("id")?;
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    match message["method"].as_str()? {
        "initialize" => Some(json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "echo", "version": "1" },
        })),
        "tools/list" => Some(json!({ "tools": [tool("echo"), tool("never")] })),
        "tools/call" if message["params"]["name"] == "never" => None,
        "tools/call" => Some(json!({ "content": [{ "type": "text", "text": "hello" }] })),
        _ => Some(json!({})),
    }
}
