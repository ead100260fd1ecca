//! SIGTERM and SIGINT, turned into something that the wire thread can poll.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{SigId, flag, low_level};

/// Registered handlers; dropping this gives the signals their default effect back.
#[derive(Debug)]
pub(crate) struct Signals {
    /// Readable when a signal has come.
    pub(crate) pipe: UnixStream,
    came: [(i32, Arc<AtomicBool>); 2],
    ids: Vec<SigId>,
    dropped: Arc<AtomicBool>,
}

impl Signals {
    /// Handlers that were there before are called as well.
    pub(crate) fn register() -> std::io::Result<Self> {
        let (pipe, sender) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let dropped = Arc::new(AtomicBool::new(false));
        let came = [SIGTERM, SIGINT].map(|signal| (signal, Arc::new(AtomicBool::new(false))));
        let mut ids = Vec::new();
        for (signal, flag) in &came {
            // Stays for good: a process without a wire must die of these signals as before.
            flag::register_conditional_default(*signal, dropped.clone())?;
            ids.push(flag::register(*signal, flag.clone())?);
            ids.push(low_level::pipe::register(*signal, sender.try_clone()?)?);
        }
        Ok(Self { pipe, came, ids, dropped })
    }

    /// The signal that came since the last look, if one did.
    pub(crate) fn take(&self) -> Option<i32> {
        let mut bytes = [0; 16];
        while rustix::io::read(&self.pipe, &mut bytes).is_ok_and(|count| count == bytes.len()) {}
        let came = self.came.iter().find(|(_, flag)| flag.swap(false, Ordering::AcqRel));
        came.map(|(signal, _)| *signal)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
        for id in self.ids.drain(..) {
            low_level::unregister(id);
        }
    }
}
