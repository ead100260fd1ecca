//! Real rmcp clients and servers under the engine, beside those on rmcp's own transport.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use countermand_rmcp::{Guarded, Token, WireTransport, guard};
use countermand_runtime::core::Cause;
use countermand_runtime::{Wire, WireConfig};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CallToolResult, ClientRequest,
    ContentBlock, PingRequest, ServerCapabilities, ServerConfig, ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext, Service, ServiceRole, serve_directly};
use rmcp::{ErrorData, RoleClient, RoleServer, ServerHandler, ServiceError, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const PATIENCE: Duration = Duration::from_secs(30);
const CALLS: u64 = 2_000;

fn guarded<R: ServiceRole, S: Service<R>>(
    service: S,
    read: PipeReader,
    write: PipeWriter,
) -> (Guarded<S>, WireTransport<R>) {
    let (read, write) = (OwnedFd::from(read), OwnedFd::from(write));
    guard(service, |wake| Wire::from_fds(read, write, WireConfig::client(), wake)).unwrap()
}

/// The other end, by hand.
struct Raw {
    frames: Receiver<Value>,
    write: PipeWriter,
}

impl Raw {
    fn new(read: PipeReader, write: PipeWriter) -> Self {
        let (sender, frames) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(read).lines() {
                let frame = serde_json::from_str(&line.unwrap()).expect("a whole frame");
                if sender.send(frame).is_err() {
                    return;
                }
            }
        });
        Self { frames, write }
    }

    fn next(&self) -> Value {
        self.frames.recv_timeout(PATIENCE).expect("a frame")
    }

    fn say(&mut self, frame: &Value) {
        writeln!(self.write, "{frame}").unwrap();
    }

    fn call(&mut self, id: u64, tool: &str) {
        let params = json!({ "name": tool, "arguments": {} });
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
    }

    fn cancel(&mut self, id: u64) {
        let params = json!({ "requestId": id, "reason": "enough" });
        self.say(
            &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }),
        );
    }

    fn initialize(&mut self) {
        let client = json!({ "name": "raw", "version": "0" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        self.say(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
        assert_eq!(self.next()["id"], 0);
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }
}

/// What a handler of [`Tools`] tells its test.
#[derive(Debug, PartialEq)]
enum Told {
    Began,
    Ended(Option<Cause>),
}

/// Says how its handler ended, also if that was dropped.
struct Mark(UnboundedSender<Told>, Token);

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = self.0.send(Told::Ended(self.1.cause()));
    }
}

#[derive(Clone)]
struct Tools {
    tell: UnboundedSender<Told>,
    gate: Arc<Notify>,
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let token = context.extensions.get::<Token>().expect("the request's token").clone();
        let _mark = Mark(self.tell.clone(), token);
        self.tell.send(Told::Began).unwrap();
        match &*request.name {
            "wait" => context.ct.cancelled().await,
            "stubborn" => self.gate.notified().await,
            "ask" => {
                let ping = ServerRequest::PingRequest(PingRequest::default());
                let _ = context.peer.send_request(ping).await;
            }
            _ => {}
        }
        Ok(CallToolResult::success(vec![ContentBlock::text(request.name.to_string())]).into())
    }
}

fn tools() -> (Tools, UnboundedReceiver<Told>) {
    let (tell, told) = unbounded_channel();
    (Tools { tell, gate: Arc::default() }, told)
}

async fn hear(told: &mut UnboundedReceiver<Told>) -> Told {
    tokio::time::timeout(PATIENCE, told.recv()).await.expect("a handler's word").unwrap()
}

/// A guarded server and its raw client, after the handshake.
async fn served(tools: Tools) -> (Raw, Wire, tokio::task::JoinHandle<()>) {
    let (our_read, their_write) = std::io::pipe().unwrap();
    let (their_read, our_write) = std::io::pipe().unwrap();
    let (service, transport) = guarded(tools, our_read, our_write);
    let wire = service.wire().clone();
    let serving = tokio::spawn(async move {
        let running = service.serve(transport).await.unwrap();
        running.waiting().await.unwrap();
    });
    let raw = tokio::task::spawn_blocking(move || {
        let mut raw = Raw::new(their_read, their_write);
        raw.initialize();
        raw
    });
    (raw.await.unwrap(), wire, serving)
}

fn slow() -> ClientRequest {
    ClientRequest::CallToolRequest(CallToolRequest::new(CallToolRequestParams::new("slow")))
}

/// Reads to the end: how many cancels stood before their request, and that none came twice.
fn overtaken(read: impl std::io::Read + Send + 'static) -> JoinHandle<(u64, u64)> {
    std::thread::spawn(move || {
        let (mut requests, mut cancels) = (HashMap::new(), HashMap::new());
        let lines = BufReader::new(read).lines().map_while(Result::ok);
        for (place, line) in lines.enumerate() {
            let frame: Value = serde_json::from_str(&line).expect("a whole frame");
            let (ids, id) = if frame["method"] == "notifications/cancelled" {
                (&mut cancels, &frame["params"]["requestId"])
            } else {
                (&mut requests, &frame["id"])
            };
            assert!(ids.insert(id.as_u64().unwrap(), place).is_none(), "twice: {frame}");
        }
        let early = cancels.iter().filter(|(id, at)| requests.get(id).is_none_or(|it| it > at));
        (early.count() as u64, requests.len() as u64)
    })
}

/// Makes requests and cancels each at once.
async fn cancel_at_once(peer: &rmcp::Peer<RoleClient>) {
    for _ in 0..CALLS {
        let options = PeerRequestOptions::no_options();
        let call = peer.send_cancellable_request(slow(), options).await.unwrap();
        call.cancel(None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn k11_a_cancel_right_after_its_request_never_overtakes_it() {
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    let theirs = theirs.into_std().unwrap();
    theirs.set_nonblocking(false).unwrap();
    let reader = overtaken(theirs);
    let client = serve_directly::<RoleClient, _, _, _, _>((), ours, None);
    cancel_at_once(&client).await;
    client.cancel().await.unwrap();
    let (stock, _) = reader.join().unwrap();

    let (read, write) = std::io::pipe().unwrap();
    let (our_read, _silent) = std::io::pipe().unwrap();
    let reader = overtaken(read);
    let (service, transport) = guarded::<RoleClient, _>((), our_read, write);
    let wire = service.wire().clone();
    let client = serve_directly::<RoleClient, _, _, _, _>(service, transport, None);
    cancel_at_once(&client).await;
    let stats = wire.connection().stats();
    client.cancel().await.unwrap();
    drop(wire);
    let (ours, sent) = reader.join().unwrap();
    println!("cancels that overtook their request, of {CALLS}: stock {stock}, guarded {ours}");
    println!("requests that the guarded client wrote before their cancel came: {sent}");
    assert_eq!((ours, stats.outbound, stats.tokens), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_prompt_settle_a_timeout_toward_a_peer_that_does_not_read_waits_for_nobody() {
    let (_unread, write) = std::io::pipe().unwrap();
    let (read, _silent) = std::io::pipe().unwrap();
    let (service, transport) = guarded::<RoleClient, _>((), read, write);
    let client = serve_directly::<RoleClient, _, _, _, _>(service, transport, None);
    let padding = CallToolRequestParams::new("x".repeat(1 << 20));
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(padding));
    let options = PeerRequestOptions::with_timeout(Duration::from_millis(50));
    let call = client.send_cancellable_request(request, options).await.unwrap();
    let result = tokio::time::timeout(PATIENCE, call.await_response()).await.expect("it settles");
    assert!(matches!(result, Err(ServiceError::Timeout { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn i2_silence_between_a_guarded_client_and_a_guarded_server() {
    let (server_read, client_write) = std::io::pipe().unwrap();
    let (client_read, server_write) = std::io::pipe().unwrap();
    let (tools, mut told) = tools();
    let (service, transport) = guarded(tools, server_read, server_write);
    let server = service.wire().clone();
    tokio::spawn(async move { service.serve(transport).await.unwrap().waiting().await });
    let (service, transport) = guarded::<RoleClient, _>((), client_read, client_write);
    let client = service.serve(transport).await.unwrap();
    let wait =
        || ClientRequest::CallToolRequest(CallToolRequest::new(CallToolRequestParams::new("wait")));
    for _ in 0..100 {
        let options = PeerRequestOptions::no_options();
        let call = client.send_cancellable_request(wait(), options).await.unwrap();
        assert_eq!(hear(&mut told).await, Told::Began);
        call.cancel(Some("enough".into())).await.unwrap();
        assert_eq!(hear(&mut told).await, Told::Ended(Some(Cause::Peer)));
    }
    let result = client.call_tool(CallToolRequestParams::new("quick")).await.unwrap();
    assert_eq!(json!(result)["content"][0]["text"], "quick");
    let stats = server.connection().stats();
    assert_eq!((stats.in_flight, stats.tokens), (0, 0));
    client.cancel().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn i7_right_target_an_id_used_again_while_the_old_handler_runs_on() {
    let (tools, mut told) = tools();
    let gate = tools.gate.clone();
    let (mut raw, wire, serving) = served(tools).await;
    raw.call(5, "stubborn");
    assert_eq!(hear(&mut told).await, Told::Began);
    raw.cancel(5);
    raw.call(5, "quick");
    assert_eq!(hear(&mut told).await, Told::Began);
    assert_eq!(hear(&mut told).await, Told::Ended(None));
    let answer = raw.next();
    assert_eq!(
        (&answer["id"], &answer["result"]["content"][0]["text"]),
        (&json!(5), &json!("quick"))
    );
    gate.notify_one();
    assert_eq!(hear(&mut told).await, Told::Ended(Some(Cause::Peer)));
    raw.call(6, "quick");
    assert_eq!(raw.next()["id"], 6, "the old handler's answer is swallowed");
    let stats = wire.connection().stats();
    assert_eq!((stats.in_flight, stats.tokens), (0, 0));
    drop(raw);
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_one_answer_two_live_requests_with_one_id() {
    let (tools, mut told) = tools();
    let gate = tools.gate.clone();
    let (mut raw, _wire, serving) = served(tools).await;
    raw.call(5, "stubborn");
    assert_eq!(hear(&mut told).await, Told::Began);
    raw.call(5, "quick");
    assert_eq!(raw.next()["error"]["code"], -32600);
    gate.notify_one();
    assert_eq!(raw.next()["result"]["content"][0]["text"], "stubborn");
    drop(raw);
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn k18_a_request_made_by_a_handler_is_cancelled_with_it() {
    let (tools, mut told) = tools();
    let (mut raw, wire, serving) = served(tools).await;
    raw.call(5, "ask");
    let ping = raw.next();
    assert_eq!(ping["method"], "ping");
    raw.cancel(5);
    let cancel = raw.next();
    assert_eq!(cancel["method"], "notifications/cancelled");
    assert_eq!(cancel["params"]["requestId"], ping["id"]);
    assert_eq!(hear(&mut told).await, Told::Began);
    assert_eq!(hear(&mut told).await, Told::Ended(Some(Cause::Peer)));
    assert_eq!(wire.connection().stats().outbound, 0);
    drop(raw);
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn k03_the_end_of_the_input_cancels_at_once() {
    let (tools, mut told) = tools();
    let (mut raw, _wire, serving) = served(tools).await;
    raw.call(5, "wait");
    assert_eq!(hear(&mut told).await, Told::Began);
    let at = std::time::Instant::now();
    drop(raw);
    assert_eq!(hear(&mut told).await, Told::Ended(Some(Cause::Disconnect)));
    // rmcp by itself waits for handlers before it cancels them.
    assert!(at.elapsed() < Duration::from_secs(4), "{:?}", at.elapsed());
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn k24_what_rmcp_cannot_read_is_answered_under_its_own_id_and_leaves_nothing() {
    let (tools, _told) = tools();
    let (mut raw, wire, serving) = served(tools).await;
    raw.say(&json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": { "name": 7 } }));
    let answer = raw.next();
    assert_eq!(answer["id"], 5);
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    assert_eq!(wire.connection().stats().in_flight, 0);
    drop(raw);
    serving.await.unwrap();
}
