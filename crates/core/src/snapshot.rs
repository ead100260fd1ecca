//! What can be asked of a connection without changing it: counters, sizes, signals, orphans.

use std::time::Duration;

use crate::signals::{Orphan, Report, ToolSignals, Work};
use crate::{Connection, Generation, Stats, Time};

/// The signals of one connection at one time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// A row for each method and tool that was called.
    pub tools: Vec<ToolSignals>,
    /// What runs on although it was cancelled, the oldest first.
    pub orphans: Vec<Orphan>,
}

impl Connection {
    /// A snapshot of what was counted, and of the sizes of the tables.
    pub fn stats(&self) -> Stats {
        let state = self.shared.state.lock();
        Stats {
            in_flight: state.table.in_flight(),
            retired: state.table.retired(),
            tasks: state.tasks.len(),
            tokens: state.tree.len(),
            watches: state.tree.waiters(),
            held: state.held.len(),
            works: state.works.len(),
            outbound: state.outbound.len(),
            tombstones: state.outbound.tombstones(),
            ..state.stats.clone()
        }
    }

    /// The three signals, per method and tool, and the orphans there are now.
    pub fn signals(&self, now: Time) -> Snapshot {
        let state = self.shared.state.lock();
        let mut tools = state.signals.snapshot();
        let after = state.signals.orphan_after();
        let mut orphans: Vec<(Generation, u32, Orphan)> = Vec::new();
        let orphan = |id, row, cause, age, work| {
            let (method, tool) = state.signals.names(row);
            Orphan { id, method, tool, cause, age, work: vec![work] }
        };
        for entry in state.table.iter() {
            let cancelled = entry.cancelled.as_deref();
            if cancelled.is_none_or(|cancelled| cancelled.retired_at.is_none()) {
                tools[entry.row as usize].in_flight += 1;
            }
            if let Some(cancelled) = cancelled
                && entry.running()
                && overdue(now, cancelled.at, after)
            {
                let (id, age) = (entry.wire.clone(), now.since(cancelled.at));
                let orphan = orphan(id, entry.row, cancelled.cause, age, Work::Handler);
                orphans.push((entry.generation, entry.row, orphan));
            }
        }
        for running in state.works.iter() {
            let Some((at, cause)) = running.cancelled.filter(|(at, _)| overdue(now, *at, after))
            else {
                continue;
            };
            let same = |(of, ..): &&mut (Generation, _, _)| *of == running.generation;
            if let Some((.., orphan)) = orphans.iter_mut().find(same) {
                orphan.work.push(running.work);
            } else {
                let age = now.since(at);
                let orphan = orphan(running.id.clone(), running.row, cause, age, running.work);
                orphans.push((running.generation, running.row, orphan));
            }
        }
        for (_, row, _) in &orphans {
            tools[*row as usize].orphans += 1;
        }
        tools.retain(|tool| tool.requests > 0);
        let mut orphans: Vec<Orphan> = orphans.into_iter().map(|(.., orphan)| orphan).collect();
        orphans.sort_by_key(|orphan| std::cmp::Reverse(orphan.age));
        Snapshot { tools, orphans }
    }

    /// The cancelled requests that were over since this was last asked, in the order of their ends.
    pub fn take_reports(&self) -> Vec<Report> {
        self.shared.state.lock().signals.take_reports()
    }

    /// This request has committed an effect that cannot be taken back: a cancel no longer undoes it. False
    /// if it is not in the table.
    pub fn commit(&self, generation: Generation) -> bool {
        let mut state = self.shared.state.lock();
        let Some(entry) = state.table.get_mut(generation) else {
            return false;
        };
        if !std::mem::replace(&mut entry.effects, true) && !entry.live() {
            let row = entry.row;
            state.signals.abandoned_with_effects(row);
        }
        true
    }
}

fn overdue(now: Time, at: Time, after: Duration) -> bool {
    now.since(at) >= after
}
