//! Code on the main thread, broken off by a signal: also out of a blocking system call.
//!
//! A thread of its own, without the GIL, sends the signal when the token trips, and again until it has been heard: one that
//! comes just before a system call does not wake it. Python then calls the handler of the package `countermand`, which
//! asks here whether to raise. [`countermand_core::Section`] decides.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::{Wake, Waker};
use std::time::Duration;

use countermand_core::Section;
use parking_lot::Mutex;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::thread_section::Within;
use crate::token::Token;

/// Nobody else uses it, and where nobody handles it, it does nothing.
const SIGNAL: i32 = libc::SIGURG;
/// After which the signal is sent again.
const AGAIN: Duration = Duration::from_millis(5);

/// What runs on the main thread now.
static NOW: Mutex<Option<Arc<Main>>> = Mutex::new(None);

struct Main {
    section: Section,
    token: countermand_core::Token,
    thread: libc::pthread_t,
    sender: Sender<Arc<Main>>,
}

impl Wake for Main {
    fn wake(self: Arc<Self>) {
        let sender = self.sender.clone();
        // Its receiver lives as long as the process.
        let _ = sender.send(self);
    }
}

impl Main {
    /// False once there is nothing left to break off.
    fn knock(&self) -> bool {
        self.section.reach(|| {
            // SAFETY: the main thread is in the section, and so alive, until `reach` returns.
            let _ = unsafe { libc::pthread_kill(self.thread, SIGNAL) };
        })
    }
}

/// The stretches of one handler's code on the main thread: broken off once, when its token trips.
#[pyclass(frozen, module = "countermand._native")]
pub(crate) struct MainSection {
    main: Arc<Main>,
    watch: Mutex<Option<countermand_core::Watch>>,
}

#[pymethods]
impl MainSection {
    /// To be made on the main thread.
    #[new]
    fn new(token: &Bound<'_, Token>) -> PyResult<Self> {
        let sender = knocker()?.clone();
        let token = token.get().inner.clone();
        // SAFETY: has no preconditions.
        let thread = unsafe { libc::pthread_self() };
        let main = Arc::new(Main { section: Section::new(), token, thread, sender });
        let watch = main.token.watch(&Waker::from(main.clone()));
        Ok(Self { main, watch: Mutex::new(Some(watch)) })
    }

    /// Calls `function(*args)`, which the signal's handler may break off meanwhile.
    #[pyo3(signature = (function, *args))]
    fn run<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(_within) = Within::enter() else { return function.call1(args) };
        NOW.lock().replace(self.main.clone());
        if self.main.section.enter() && self.main.token.cancelled() {
            // It tripped before there was anything to break off.
            self.main.clone().wake();
        }
        let result = function.call1(args);
        self.main.section.leave();
        let now = NOW.lock().take();
        drop(now);
        result
    }

    /// Takes back that it is broken off when the token trips.
    fn close(&self) {
        let watch = self.watch.lock().take();
        drop(watch);
    }

    /// Whether the code that runs on the main thread now is to be broken off.
    #[staticmethod]
    fn wanted() -> bool {
        let now = NOW.lock().clone();
        now.is_some_and(|main| main.token.cancelled() && main.section.reach(|| {}))
    }

    /// As [`wanted`](Self::wanted); who is told so must raise at once, and is told once: the cause and the reason.
    #[staticmethod]
    fn claim() -> Option<(&'static str, Option<String>)> {
        let now = NOW.lock().clone()?;
        let cause = now.token.cause()?;
        let reason = now.token.reason().map(|reason| reason.as_ref().to_owned());
        now.section.claim().then_some((cause.as_str(), reason))
    }
}

/// Where to send what is to be broken off.
fn knocker() -> PyResult<&'static Sender<Arc<Main>>> {
    static KNOCKER: OnceLock<Sender<Arc<Main>>> = OnceLock::new();
    if let Some(sender) = KNOCKER.get() {
        return Ok(sender);
    }
    let (sender, receiver) = channel();
    // Only the main thread comes here: nobody sets it in between.
    std::thread::Builder::new()
        .name("countermand-interrupt".into())
        .spawn(move || knock(&receiver))
        .map_err(|error| PyOSError::new_err(format!("cannot start a thread: {error}")))?;
    Ok(KNOCKER.get_or_init(|| sender))
}

fn knock(receiver: &Receiver<Arc<Main>>) {
    let mut pending: Vec<Arc<Main>> = Vec::new();
    loop {
        let next = if pending.is_empty() {
            receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            receiver.recv_timeout(AGAIN)
        };
        match next {
            Ok(main) => pending.push(main),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        pending.retain(|main| main.knock());
    }
}
