//! What is looked at after every step, and at the end.

use std::sync::atomic::Ordering;

use countermand_core::{Cause, PAGE_WORDS};

use super::Trial;
use crate::audit::Breach;
use crate::coverage::Counter;
use crate::step::Step;

impl Trial {
    /// After the end, and after the time of all that is kept for a time, nothing may be left.
    pub(super) fn nothing_left(&self) -> Result<(), Breach> {
        for link in &self.links {
            let stats = link.connection.stats();
            let tables = [stats.in_flight, stats.retired, stats.tasks, stats.held];
            let ours = [stats.outbound, stats.tombstones];
            let tokens = [stats.tokens, stats.watches];
            if tables != [0; 4]
                || ours != [0; 2]
                || tokens != [0; 2]
                || link.connection.poll_timeout().is_some()
            {
                return Err(Breach::new("I11", format!("left over: {stats:?}")));
            }
        }
        Ok(())
    }

    /// Everything that can be looked at must be as the model has it.
    pub(super) fn check(&mut self, step: &Step) -> Result<(), Breach> {
        for (number, link) in self.links.iter_mut().enumerate() {
            let mut stats = link.connection.stats();
            let watches = self.handles.values().filter(|handle| {
                let watched = handle.link == number && handle.watch.is_some();
                watched && link.model.tokens.node(handle.node).cause.is_none()
            });
            let watches = watches.count();
            if stats.watches != watches {
                let detail = format!("{} watches, not {watches}", stats.watches);
                return Err(Breach::new("I11", detail));
            }
            stats.watches = 0;
            let expected = link.model.stats();
            if stats != expected {
                return Err(Breach::new("model", format!("{stats:?}, not {expected:?}")));
            }
            if link.connection.era() != link.model.era() {
                return Err(Breach::new("model", format!("era {:?}", link.connection.era())));
            }
            let (seen, expected) = (link.connection.poll_timeout(), link.model.poll_timeout());
            if seen != expected {
                return Err(Breach::new("model", format!("timeout {seen:?}, not {expected:?}")));
            }
        }
        self.check_outcomes()?;
        self.check_tokens(step)
    }

    fn check_tokens(&mut self, step: &Step) -> Result<(), Breach> {
        for (label, handle) in &mut self.handles {
            let tokens = &self.links[handle.link].model.tokens;
            let node = tokens.node(handle.node);
            let (seen, expected) = (handle.token.cause(), node.cause);
            if seen != expected || handle.token.cancelled() != expected.is_some() {
                let invariant = if expected.is_some() { "I8" } else { "I7" };
                let detail = format!("token {label} is {seen:?}, not {expected:?}");
                return Err(Breach::new(invariant, detail));
            }
            // What another language reads, without the lock and without a handle.
            let (slot, serial) = handle.token.slot();
            let page = self.links[handle.link].connection.state_page(slot as usize / PAGE_WORDS);
            let word =
                page.map(|page| page.words()[slot as usize % PAGE_WORDS].load(Ordering::Acquire));
            if word != Some(serial << 3 | expected.map_or(0, Cause::code)) {
                return Err(Breach::new("I8", format!("the word of token {label} is {word:?}")));
            }
            if expected.is_some() && !handle.tripped {
                handle.tripped = true;
                if handle.token.reason().as_deref() != node.reason.as_deref() {
                    return Err(Breach::new("model", format!("reason of token {label}")));
                }
                let depth = tokens.depth(handle.node);
                let by_itself = matches!(step, Step::Trip { token, .. } if token == label);
                self.coverage.cut(&self.audit.calls, *label);
                let task = self.audit.get(*label).is_some_and(|history| history.became_task);
                let by_peer = matches!(step, Step::Receive { .. });
                self.coverage.hit_if(task && by_peer, Counter::TaskTripped);
                self.coverage.hit_if(depth > 1 && !by_itself, Counter::ChildBeatTrip);
                self.coverage.hit_if(depth > 6 && !by_itself, Counter::DeepTrip);
            }
            if let Some((_, count)) = &handle.watch {
                let woken = count.0.load(Ordering::Relaxed);
                if woken != usize::from(expected.is_some()) {
                    return Err(Breach::new("I8", format!("token {label} woke {woken} times")));
                }
                let watched = matches!(step, Step::Watch(of) if of == label);
                self.coverage.hit_if(woken > handle.woken && !watched, Counter::WatchBeatTrip);
                handle.woken = woken;
            }
        }
        Ok(())
    }
}
