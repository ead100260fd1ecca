//! What the core says, put into the words of the model.

use serde_json::Value;

use crate::audit::Breach;
use crate::model::Silence;
use crate::model::read::{key, object};

pub(super) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|bytes| format!("{bytes:?}"))
}

/// The id, the progress token and whether it is the handshake, each as it is spelt.
pub(super) fn names(frame: &str) -> Option<(String, Option<String>, bool)> {
    let fields = object(frame)?;
    let id = fields.get("id")?.get().to_owned();
    let params = fields.get("params").and_then(|raw| object(raw.get()));
    let meta = params.as_ref().and_then(|params| object(params.get("_meta")?.get()));
    let progress = meta.as_ref().and_then(|meta| meta.get("progressToken"));
    let progress = progress.filter(|raw| key(raw.get()).is_some());
    let initialize = fields.get("method").is_some_and(|raw| raw.get() == "\"initialize\"");
    Some((id, progress.map(|raw| raw.get().to_owned()), initialize))
}

pub(super) fn told(silence: countermand_core::Silence) -> Result<Silence, Breach> {
    Ok(match silence {
        countermand_core::Silence::Nothing => Silence::Nothing,
        countermand_core::Silence::CloseStream => Silence::CloseStream,
        countermand_core::Silence::Answer(answer) => Silence::Answer(error_id(&answer)?),
        other => return Err(Breach::new("model", format!("{other:?}"))),
    })
}

/// The id of an error response that the core made.
pub(super) fn error_id(reply: &[u8]) -> Result<String, Breach> {
    let wrong = || Breach::new("I4", format!("no reply: {}", String::from_utf8_lossy(reply)));
    let text = std::str::from_utf8(reply).map_err(|_| wrong())?;
    let fields = object(text).filter(|fields| fields.contains_key("error") && !text.contains('\n'));
    let id = fields.as_ref().and_then(|fields| fields.get("id"));
    id.map(|raw| raw.get().to_owned()).ok_or_else(wrong)
}

/// A frame with its keys in order.
pub(super) fn canonical(frame: &str) -> String {
    serde_json::from_str::<Value>(frame).unwrap_or_default().to_string()
}
