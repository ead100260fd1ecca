//! [`WireTransport`]: rmcp's messages on a wire.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use countermand_runtime::core::{Cause, Generation, Kind, Token, parse};
use countermand_runtime::{Event, Wire, WireError};
use parking_lot::Mutex;
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, GetExtensions, JsonRpcMessage, RequestId,
};
use rmcp::service::{OriginatingRequestId, RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::Notify;

/// How many events are taken off the wire at once.
const TAKE: usize = 64;
/// How long what was decided before the end may take to be written.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What the transport and the service know of one another.
#[derive(Default)]
pub(crate) struct Shared {
    /// Events wait on the wire.
    pub(crate) woken: Notify,
    /// The peer reads again.
    writable: Notify,
    /// Requests of the peer that are not over, by the id under which rmcp knows them.
    requests: Mutex<HashMap<RequestId, Generation>>,
}

impl Shared {
    pub(crate) fn generation(&self, id: &RequestId) -> Option<Generation> {
        self.requests.lock().get(id).copied()
    }

    /// The id may be another's by now.
    pub(crate) fn forget(&self, id: &RequestId, generation: Generation) {
        let mut requests = self.requests.lock();
        if requests.get(id) == Some(&generation) {
            requests.remove(id);
        }
    }
}

/// A transport of rmcp's, on a wire.
pub struct WireTransport<R> {
    wire: Wire,
    shared: Arc<Shared>,
    taken: VecDeque<Event>,
    /// More events wait on the wire, of which it has told before.
    more: bool,
    over: bool,
    role: PhantomData<fn() -> R>,
}

impl<R: ServiceRole> WireTransport<R> {
    pub(crate) fn new(wire: Wire, shared: Arc<Shared>) -> Self {
        let taken = VecDeque::new();
        Self { wire, shared, taken, more: false, over: false, role: PhantomData }
    }

    /// The wire under it: what is counted, and what runs.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    fn message(&mut self, event: Event) -> Option<RxJsonRpcMessage<R>> {
        match event {
            Event::Message { frame, request } => {
                let generation = request.map(|request| request.generation);
                let Ok(message) = serde_json::from_slice::<RxJsonRpcMessage<R>>(&frame) else {
                    self.unreadable(&frame, generation);
                    return None;
                };
                if let (JsonRpcMessage::Request(request), Some(generation)) = (&message, generation)
                {
                    self.shared.requests.lock().insert(request.id.clone(), generation);
                }
                Some(message)
            }
            // The token has tripped; rmcp has one of its own, by the name that it knows.
            Event::Cancelled { generation, inner_id } => {
                let id = serde_json::from_str::<RequestId>(&inner_id).ok()?;
                let reason = self.wire.connection().token(generation).and_then(|it| it.reason());
                let reason = reason.map(|reason| reason.to_string());
                let params = CancelledNotificationParam::new(Some(id), reason);
                let cancel = CancelledNotification::new(params);
                Some(JsonRpcMessage::notification(cancel.into()))
            }
            Event::Writable => {
                self.shared.writable.notify_waiters();
                None
            }
            Event::Closed { .. } => {
                self.over = true;
                self.shared.writable.notify_waiters();
                None
            }
            _ => None,
        }
    }

    /// What rmcp cannot read: as its own transport does, but that a request is answered under its own id.
    fn unreadable(&self, frame: &[u8], generation: Option<Generation>) {
        let text = String::from_utf8_lossy(frame);
        let Some(envelope) = parse(&text) else { return };
        if envelope.kind == Kind::Notification || envelope.kind == Kind::Response {
            return;
        }
        let id = generation.and(envelope.raw_id).unwrap_or("null");
        let error = r#"{"code":-32600,"message":"Invalid request"}"#;
        let _ =
            self.wire.send(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).as_bytes());
    }

    /// On whose behalf a request is made.
    fn parent(&self, request: &R::Req) -> Option<Token> {
        let extensions = request.extensions();
        if let Some(token) = extensions.get::<Token>() {
            return Some(token.clone());
        }
        let OriginatingRequestId(id) = extensions.get::<OriginatingRequestId>()?;
        self.wire.connection().token(self.shared.generation(id)?)
    }

    /// rmcp answers some requests by itself: no handler's exit is told of.
    fn answered(&self, id: &RequestId) -> Option<Token> {
        self.shared.requests.lock().remove(id);
        None
    }

    fn decide(&self, message: &TxJsonRpcMessage<R>) -> Result<(), WireError> {
        let parent = match message {
            JsonRpcMessage::Request(request) => self.parent(&request.request),
            JsonRpcMessage::Response(response) => self.answered(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref().and_then(|id| self.answered(id)),
            JsonRpcMessage::Notification(_) => None,
        };
        let frame = serde_json::to_vec(message).map_err(std::io::Error::from)?;
        self.wire.send_batch([(frame.as_slice(), parent.as_ref())]).map(drop)
    }
}

impl<R: ServiceRole> Transport<R> for WireTransport<R> {
    type Error = WireError;

    /// What becomes of it is decided here and now, in the order of the calls; the future only waits while the peer reads too
    /// slowly, and nobody has to wait for it.
    fn send(
        &mut self,
        message: TxJsonRpcMessage<R>,
    ) -> impl Future<Output = Result<(), WireError>> + Send + 'static {
        let decided = self.decide(&message);
        // A caller waits for its response, not for room.
        let notification = match message {
            JsonRpcMessage::Notification(it) => {
                TryInto::<CancelledNotification>::try_into(it.notification).is_err()
            }
            _ => false,
        };
        let (wire, shared) = (self.wire.clone(), self.shared.clone());
        async move {
            decided?;
            while notification && !wire.connection().root().cancelled() {
                let writable = shared.writable.notified();
                if !wire.congested() {
                    break;
                }
                writable.await;
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<R>> {
        loop {
            while let Some(event) = self.taken.pop_front() {
                if let Some(message) = self.message(event) {
                    return Some(message);
                }
            }
            if self.over {
                return None;
            }
            if !std::mem::take(&mut self.more) {
                self.shared.woken.notified().await;
            }
            let mut events = Vec::new();
            self.more = self.wire.drain(TAKE, &mut events);
            self.taken.extend(events);
        }
    }

    async fn close(&mut self) -> Result<(), WireError> {
        self.wire.close(Cause::Local);
        let wire = self.wire.clone();
        // What was decided is written; a peer that does not read is not waited for.
        let _ = tokio::task::spawn_blocking(move || wire.flush(LAST_WORDS)).await;
        Ok(())
    }
}
