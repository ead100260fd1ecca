//! Handles on tokens, for what JavaScript cannot do with the state word alone: making children,
//! tripping from our side, and asking for the reason.

use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use countermand_core::{Cause, Config, Connection, Page, Token, Work, Working};
use napi::{Error, Result, Status};
use napi_derive::napi;
use parking_lot::Mutex;
use slab::Slab;

use crate::wire::{entry, generation};

static TOKENS: Mutex<Slab<Held>> = Mutex::new(Slab::new());

struct Held {
    token: Token,
    /// What a thread that was lent the token does for its request.
    _working: Option<Working>,
}

/// The tree of tokens that belong to no wire: nothing trips them but their holders.
static FREE: LazyLock<Connection> = LazyLock::new(|| Connection::new(Config::default()));

/// A token that JavaScript holds until it calls `tokenClose`.
#[napi(object)]
pub struct HeldToken {
    /// By which the other functions know it.
    pub handle: u32,
    /// Its state word: page `slot >> 10`, word `slot & 1023`.
    pub slot: u32,
    /// The word's upper 29 bits while it is this token's.
    pub serial: u32,
}

pub(crate) fn cause(name: &str) -> Result<Cause> {
    Cause::from_str(name).map_err(|error| Error::new(Status::InvalidArg, error.to_string()))
}

fn hold(token: Token) -> HeldToken {
    hold_with(token, None)
}

fn hold_with(token: Token, working: Option<Working>) -> HeldToken {
    let (slot, serial) = token.slot();
    let held = Held { token, _working: working };
    let handle = u32::try_from(TOKENS.lock().insert(held)).unwrap_or(u32::MAX);
    HeldToken { handle, slot, serial }
}

pub(crate) fn held(handle: u32) -> Result<Token> {
    let tokens = TOKENS.lock();
    let token = tokens.get(handle as usize).map(|held| held.token.clone());
    token.ok_or_else(|| Error::new(Status::InvalidArg, format!("no token has the handle {handle}")))
}

/// The token of a request, while its handler may run.
#[napi(catch_unwind)]
pub fn token_open(handle: u32, request: f64) -> Result<Option<HeldToken>> {
    Ok(entry(handle)?.wire.connection().token(generation(request)).map(hold))
}

/// A token that trips only when it is told to. Its words are in the pages of the handle `FREE_TREE`.
#[napi(catch_unwind)]
pub fn token_free() -> HeldToken {
    hold(FREE.root().child())
}

pub(crate) fn free_page(number: usize) -> Option<Arc<Page>> {
    FREE.state_page(number)
}

/// A child: trips with its parent, and can trip alone.
#[napi(catch_unwind)]
pub fn token_child(token: u32) -> Result<HeldToken> {
    Ok(hold(held(token)?.child()))
}

/// A child for a thread, which counts as work of the request until the child is closed.
#[napi(catch_unwind)]
pub fn token_lend(token: u32) -> Result<HeldToken> {
    let child = held(token)?.child();
    let working = child.work(Work::Thread);
    Ok(hold_with(child, working))
}

/// A token of this wire's that has tripped for this cause: for what is sent on behalf of a cancelled request
/// whose own token has gone.
#[napi(catch_unwind)]
pub fn token_tripped(handle: u32, name: String) -> Result<HeldToken> {
    let token = entry(handle)?.wire.connection().root().child();
    token.trip(cause(&name)?, None);
    Ok(hold(token))
}

/// Trips a token and everything below it; false if it had tripped before.
#[napi(catch_unwind)]
pub fn token_trip(token: u32, name: String, reason: Option<String>) -> Result<bool> {
    Ok(held(token)?.trip(cause(&name)?, reason.as_deref()))
}

/// Why it tripped, in the canceller's words, if it gave any.
#[napi(catch_unwind)]
pub fn token_reason(token: u32) -> Result<Option<String>> {
    Ok(held(token)?.reason().map(|reason| reason.to_string()))
}

/// Lets go of a token.
#[napi(catch_unwind)]
pub fn token_close(token: u32) {
    let token = TOKENS.lock().try_remove(token as usize);
    // Outside the lock: a token's end takes its connection's lock.
    drop(token);
}
