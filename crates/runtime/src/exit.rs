//! Ending the process when its connection is over and its handlers had their grace.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Called off by the language when it goes on without a wire.
#[derive(Debug, Default)]
pub(crate) struct ExitWatch {
    called_off: Mutex<bool>,
    changed: Condvar,
}

impl ExitWatch {
    pub(crate) fn call_off(&self) {
        *self.called_off.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for `grace`; true if it was called off.
    pub(crate) fn wait(&self, grace: Duration) -> bool {
        let deadline = Instant::now() + grace;
        let mut called_off = self.called_off.lock();
        while !*called_off {
            if self.changed.wait_until(&mut called_off, deadline).timed_out() {
                return *called_off;
            }
        }
        true
    }
}

/// Ends the process at once: no destructor or exit handler of a stuck handler can hold it up.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions and does not return.
    #[allow(unsafe_code)]
    unsafe {
        libc::_exit(code)
    }
}
