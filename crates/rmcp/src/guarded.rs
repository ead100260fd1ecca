//! [`Guarded`]: a service whose handlers the engine sees begin and end.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;

use countermand_runtime::Wire;
use countermand_runtime::core::{Generation, Time};
use rmcp::ErrorData;
use rmcp::model::{ProtocolVersion, RequestId};
use rmcp::service::{NotificationContext, RequestContext, Service, ServiceRole};

use crate::transport::Shared;

/// A service as it was, but that the engine is told of each handler: when it begins, and when it has exited, however it did.
pub struct Guarded<S> {
    pub(crate) service: S,
    pub(crate) wire: Wire,
    pub(crate) shared: Arc<Shared>,
}

impl<S> Guarded<S> {
    /// The service itself.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// The wire under it: what is counted, and what runs.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }
}

impl<R: ServiceRole, S: Service<R>> Service<R> for Guarded<S> {
    async fn handle_request(
        &self,
        request: R::PeerReq,
        mut context: RequestContext<R>,
    ) -> Result<R::Resp, ErrorData> {
        let Some(generation) = self.shared.generation(&context.id) else {
            return self.service.handle_request(request, context).await;
        };
        let connection = self.wire.connection();
        let exit = Exit { of: self, id: context.id.clone(), generation };
        if let Some(token) = connection.token(generation) {
            context.extensions.insert(token);
        }
        if !connection.start(generation, self.wire.now()) {
            // Nobody gets this answer.
            return Err(ErrorData::internal_error("cancelled", None));
        }
        let result = self.service.handle_request(request, context).await;
        drop(exit);
        result
    }

    fn handle_notification(
        &self,
        notification: R::PeerNot,
        context: NotificationContext<R>,
    ) -> impl Future<Output = Result<(), ErrorData>> + Send + '_ {
        self.service.handle_notification(notification, context)
    }

    fn get_info(&self) -> R::Info {
        self.service.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.service.supported_protocol_versions()
    }
}

/// Tells the engine that a handler has exited, if only by a panic.
struct Exit<'a, S> {
    of: &'a Guarded<S>,
    id: RequestId,
    generation: Generation,
}

impl<S> Drop for Exit<'_, S> {
    fn drop(&mut self) {
        self.of.shared.forget(&self.id, self.generation);
        let now: Time = self.of.wire.now();
        self.of.wire.connection().finish(self.generation, now);
    }
}
