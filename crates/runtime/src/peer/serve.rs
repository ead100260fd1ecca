//! Requests and notifications of the peer: each request's handler in a task of its own, under its token.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use countermand_core::{Finish, Generation, Kind, Token};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{Inner, Peer, Progress, RpcError};

type Work = Pin<Box<dyn Future<Output = Result<Box<RawValue>, RpcError>> + Send>>;
pub(super) type Handler = Box<dyn Fn(Incoming, Token) -> Work + Send + Sync>;
pub(super) type Listener = Box<dyn Fn(Notification) + Send + Sync>;

#[derive(Default)]
pub(super) struct Handlers {
    pub(super) requests: HashMap<String, Handler>,
    /// For requests that no other handler is for.
    pub(super) fallback: Option<Handler>,
    pub(super) notifications: HashMap<String, Listener>,
    /// From a handler's trip to its end.
    pub(super) grace: Duration,
}

pub(super) fn boxed<F, W, T>(handler: F) -> Handler
where
    F: Fn(Incoming, Token) -> W + Send + Sync + 'static,
    W: Future<Output = Result<T, RpcError>> + Send + 'static,
    T: Serialize,
{
    Box::new(move |incoming, token| {
        let work = handler(incoming, token);
        Box::pin(async move {
            let result = work.await?;
            serde_json::value::to_raw_value(&result)
                .map_err(|error| RpcError::internal(error.to_string()))
        })
    })
}

/// A request of the peer, as its handler gets it.
#[derive(Debug)]
pub struct Incoming {
    peer: Peer,
    method: String,
    params: Option<Box<RawValue>>,
}

/// A notification of the peer.
#[derive(Debug)]
pub struct Notification {
    method: String,
    params: Option<Box<RawValue>>,
}

impl Incoming {
    /// Whom it came from: for requests of the handler's own, which are made under its token.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The parameters, as they were written.
    pub fn raw_params(&self) -> Option<&RawValue> {
        self.params.as_deref()
    }

    /// The parameters.
    ///
    /// # Errors
    /// -32602 where they are no `T`.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        read(self.raw_params())
    }

    /// Tells the peer how far it is, where the peer has asked for that. Nothing is sent once the request is cancelled.
    pub fn progress(&self, progress: &Progress) {
        let meta = self.raw_params().and_then(|params| member(params, "_meta"));
        if let Some(token) = meta.and_then(|meta| member(meta, "progressToken")) {
            // The token byte for byte, whatever its type.
            let params = serde_json::json!(progress).to_string();
            let params = params.replacen('{', &format!("{{\"progressToken\":{token},"), 1);
            self.peer.alive.inner.notify("notifications/progress", Some(&params));
        }
    }
}

impl Notification {
    /// The method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The parameters.
    ///
    /// # Errors
    /// -32602 where they are no `T`.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        read(self.params.as_deref())
    }
}

fn read<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, RpcError> {
    serde_json::from_str(params.map_or("null", RawValue::get))
        .map_err(|error| RpcError::invalid_params(format!("Invalid params: {error}")))
}

/// A member of an object; the last one where its key is repeated.
fn member<'a>(object: &'a RawValue, key: &str) -> Option<&'a RawValue> {
    members(object.get())?.remove(key)
}

fn members(text: &str) -> Option<HashMap<String, &RawValue>> {
    serde_json::from_str(text).ok()
}

fn method_and_params(text: &str) -> Option<(String, Option<Box<RawValue>>)> {
    let mut members = members(text)?;
    let method = serde_json::from_str(members.remove("method")?.get()).ok()?;
    Some((method, members.remove("params").map(ToOwned::to_owned)))
}

impl Inner {
    /// A request of the peer that is in the table: starts its handler.
    pub(super) fn serve(self: &Arc<Self>, generation: Generation, frame: &[u8]) {
        let (Some(token), Some(id)) =
            (self.connection.token(generation), self.connection.inner_id(generation))
        else {
            return;
        };
        let Some(alive) = self.alive.get().and_then(std::sync::Weak::upgrade) else {
            // Nobody holds the peer any more: it is about to close.
            return self.connection.discard(generation);
        };
        let running = Running { inner: self.clone(), generation, id: id.to_json(), over: false };
        let text = String::from_utf8_lossy(frame);
        let Some((method, params)) = method_and_params(&text) else {
            return running.exit(Err(RpcError::new(-32600, "Invalid Request")));
        };
        let incoming = Incoming { peer: Peer { alive }, method, params };
        tokio::spawn(async move {
            let inner = running.inner.clone();
            if inner.connection.start(generation, inner.now()) {
                let result = inner.handle(incoming, token).await;
                running.exit(result);
            } else {
                // It was cancelled before it began.
                running.forget();
                inner.look_up_in_time();
            }
        });
    }

    /// Runs a handler to its end, or until it has been cancelled for the grace period and is dropped.
    async fn handle(&self, incoming: Incoming, token: Token) -> Result<Box<RawValue>, RpcError> {
        let handlers = &self.handlers;
        let handler = handlers.requests.get(incoming.method()).or(handlers.fallback.as_ref());
        let Some(handler) = handler else {
            return match incoming.method() {
                // Whoever is asked must answer (MCP 2025-11-25, Ping).
                "ping" => RawValue::from_string("{}".into())
                    .map_err(|error| RpcError::internal(error.to_string())),
                method => Err(RpcError::no_such_method(method)),
            };
        };
        let mut work = handler(incoming, token.clone());
        let cut = async {
            token.wait().await;
            if !handlers.grace.is_zero() {
                tokio::time::sleep(handlers.grace).await;
            }
        };
        tokio::select! {
            // The handler first: it sees the trip once more before it is dropped.
            biased;
            result = &mut work => result,
            () = cut => Err(RpcError::internal("cancelled")),
        }
    }

    /// A message of the peer that is no request in the table.
    pub(super) fn hear(&self, frame: &[u8]) {
        let text = String::from_utf8_lossy(frame);
        let fault = match countermand_core::parse(&text).map(|envelope| envelope.kind) {
            Some(Kind::Notification) => {
                if let Some((method, params)) = method_and_params(&text)
                    && self.handlers.notifications.contains_key(&method)
                {
                    self.notes.put(Notification { method, params }, frame.len());
                }
                return;
            }
            // About a message of ours that the peer could not read.
            Some(Kind::Response) => return,
            Some(Kind::Request | Kind::Other) => RpcError::new(-32600, "Invalid Request"),
            None if serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok() => {
                RpcError::new(-32600, "Invalid Request")
            }
            None => RpcError::new(-32700, "Parse error"),
        };
        self.answer("null", Err(fault));
    }

    fn answer(&self, id: &str, result: Result<Box<RawValue>, RpcError>) {
        let said = match result {
            Ok(result) => format!("\"result\":{result}"),
            Err(error) => format!("\"error\":{}", serde_json::json!(error)),
        };
        self.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{said}}}"));
    }

    pub(super) fn notify(&self, method: &str, params: Option<&str>) {
        let method = serde_json::Value::from(method);
        let params = params.map(|params| format!(",\"params\":{params}")).unwrap_or_default();
        self.send(format!("{{\"jsonrpc\":\"2.0\",\"method\":{method}{params}}}"));
    }
}

/// A request whose handler may run. However it ends, by a panic too, the core is told, and the peer gets what is owed.
struct Running {
    inner: Arc<Inner>,
    generation: Generation,
    /// As JSON.
    id: String,
    over: bool,
}

impl Running {
    fn exit(mut self, result: Result<Box<RawValue>, RpcError>) {
        self.end(result);
    }

    fn forget(mut self) {
        self.over = true;
    }

    fn end(&mut self, result: Result<Box<RawValue>, RpcError>) {
        self.over = true;
        let inner = &self.inner;
        match inner.connection.finish(self.generation, inner.now()) {
            Finish::Owed => inner.answer(&self.id, result),
            // It is remembered for a time.
            _ => inner.look_up_in_time(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            self.end(Err(RpcError::internal("Internal error: the handler panicked")));
        }
    }
}
