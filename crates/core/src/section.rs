//! [`Section`]: a stretch of a handler's code that may be broken off from outside, and the one place where it is
//! decided whether it may be broken off *now*.
//!
//! What lives here: the state, under a lock. What does not: how a thread is reached (a signal, an exception that is
//! raised in it), which the binding hands in.

use crate::sync::Mutex;

/// A stretch of code of one handler, on one thread at a time. It is broken off at most once, and only between
/// [`enter`](Self::enter) and [`leave`](Self::leave): what breaks it off never meets the code that follows.
pub struct Section {
    state: Mutex<State>,
}

struct State {
    inside: bool,
    broken: bool,
}

impl Section {
    /// Nothing runs in it yet.
    pub fn new() -> Self {
        Self { state: Mutex::new(State { inside: false, broken: false }) }
    }

    /// The code is about to run. False if the section was broken off before: it will not be again.
    pub fn enter(&self) -> bool {
        let mut state = self.state.lock();
        state.inside = !state.broken;
        state.inside
    }

    /// The code has ended. True if the section has been broken off: what was sent to do so may still be on its way,
    /// and nothing more will be.
    pub fn leave(&self) -> bool {
        let mut state = self.state.lock();
        state.inside = false;
        state.broken
    }

    /// Breaks the section off by calling `raise`, which reaches the thread for certain; at once if the code runs, and
    /// otherwise by letting it never begin. True if this call did it.
    ///
    /// [`leave`](Self::leave) waits until `raise` has returned.
    pub fn break_off(&self, raise: impl FnOnce()) -> bool {
        let mut state = self.state.lock();
        if state.broken {
            return false;
        }
        state.broken = true;
        if state.inside {
            raise();
        }
        true
    }

    /// Calls `knock`, which asks the thread to call [`claim`](Self::claim), if the code runs and was not broken off.
    /// True if it does: the knock may have come in vain, and is to be repeated.
    pub fn reach(&self, knock: impl FnOnce()) -> bool {
        let state = self.state.lock();
        let reachable = state.inside && !state.broken;
        if reachable {
            knock();
        }
        reachable
    }

    /// Asked by the thread itself: true, once, if the code runs, and whoever asks must break it off.
    pub fn claim(&self) -> bool {
        let mut state = self.state.lock();
        let claimed = state.inside && !state.broken;
        state.broken |= claimed;
        claimed
    }
}

impl Default for Section {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Section {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Section").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn i7_right_target_only_running_code_is_broken_off_and_once() {
        let section = Section::new();
        assert!(!section.reach(|| panic!("nothing runs")));
        assert!(!section.claim());
        assert!(section.enter());
        let mut knocked = 0;
        assert!(section.reach(|| knocked += 1));
        assert!(section.reach(|| knocked += 1));
        assert_eq!(knocked, 2);
        assert!(!section.leave());
        assert!(!section.reach(|| panic!("it has ended")));
        assert!(!section.claim());
        assert!(section.enter());
        assert!(section.claim());
        assert!(!section.claim());
        assert!(!section.reach(|| panic!("it was broken off")));
        assert!(!section.break_off(|| panic!("it was broken off")));
        assert!(section.leave());
        assert!(!section.enter(), "its cleanup is left alone");
    }

    #[test]
    fn i7_right_target_what_was_broken_off_before_it_began_never_begins() {
        let section = Section::new();
        assert!(section.break_off(|| panic!("there is nothing to raise in")));
        assert!(!section.enter());
    }
}
