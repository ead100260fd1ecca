//! The host's one thread for all its trees: hears the keepers, collects output, reaps keepers that are done.
//!
//! It ends nothing by itself: a trip and a stop go straight to the keeper, from whatever thread they
//! come, so that a host that is short of time ends its trees all the same.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use countermand_core::{Watch, Working};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionbio;

use super::capture::Capture;
use super::command::ProcessError;
use super::platform::{self, Said};
use super::tree::Inner;

static RUNNING: Mutex<Option<Arc<Supervisor>>> = Mutex::new(None);

/// One tree, from its start until its keeper is reaped.
pub(super) struct Record {
    inner: Arc<Inner>,
    control: Option<Arc<OwnedFd>>,
    keeper: i32,
    /// Until the tree has ended.
    watch: Option<Watch>,
    /// Until nothing of it is left: what outlives SIGKILL is listed among the orphans.
    work: Option<Working>,
    capture: Option<Capture>,
}

pub(super) struct Supervisor {
    /// Threads are not copied by a fork: a process that is one needs a thread of its own.
    process: u32,
    added: Mutex<Vec<Record>>,
    nudge: PipeWriter,
}

/// The supervisor of this process, started when first asked for.
pub(super) fn supervisor() -> Result<Arc<Supervisor>, ProcessError> {
    let mut running = RUNNING.lock();
    let process = std::process::id();
    if let Some(supervisor) = running.as_ref().filter(|running| running.process == process) {
        return Ok(supervisor.clone());
    }
    let (nudged, nudge) = std::io::pipe()?;
    ioctl_fionbio(&nudged, true)?;
    ioctl_fionbio(&nudge, true)?;
    let supervisor = Arc::new(Supervisor { process, added: Mutex::default(), nudge });
    let inbox = supervisor.clone();
    std::thread::Builder::new()
        .name("countermand-trees".into())
        .spawn(move || inbox.run(&nudged))?;
    *running = Some(supervisor.clone());
    Ok(supervisor)
}

impl Supervisor {
    pub(super) fn add(&self, record: Record) {
        self.added.lock().push(record);
        // A pipe that is full of nudges nudges as well as one more would.
        let _ = (&self.nudge).write(b"!");
    }

    fn run(&self, mut nudged: &PipeReader) {
        let mut records: Vec<Record> = Vec::new();
        loop {
            let mut fds = vec![PollFd::new(&nudged, PollFlags::IN)];
            for record in &records {
                record.poll(&mut fds);
            }
            // Interrupted or not: all that follows only does what can be done.
            let _ = poll(&mut fds, None);
            drop(fds);
            let _ = nudged.read(&mut [0; 64]);
            records.append(&mut self.added.lock());
            records.retain_mut(Record::live);
        }
    }
}

impl Record {
    pub(super) fn new(
        inner: Arc<Inner>,
        keeper: i32,
        watch: Watch,
        work: Option<Working>,
        capture: Option<Capture>,
    ) -> Self {
        let control = inner.control.lock().clone();
        Self { inner, control, keeper, watch: Some(watch), work, capture }
    }

    fn poll<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        fds.extend(self.control.iter().map(|control| PollFd::new(control, PollFlags::IN)));
        if let Some(capture) = &self.capture {
            capture.poll(fds);
        }
    }

    /// Hears the keeper and serves the pipes; false when both are done with.
    fn live(&mut self) -> bool {
        if let Some(capture) = &mut self.capture {
            capture.work();
        }
        while let Some(control) = &self.control {
            match platform::listen(control) {
                Said::Nothing => return true,
                Said::Exited(status) => self.inner.exited(status),
                Said::Left(count) => self.ended(count.unsigned_abs()),
                Said::Empty => self.reap(0),
                Said::Gone => self.reap(self.inner.leader),
            }
        }
        false
    }

    /// The keeper has ended, or ends just now. A leader is named where it did not say that all is well.
    fn reap(&mut self, leader: i32) {
        platform::reap(self.keeper, leader);
        self.inner.control.lock().take();
        self.control = None;
        self.work = None;
        self.ended(0);
    }

    fn ended(&mut self, left: u32) {
        // Let go of first: who is woken may look whether anything is left.
        self.watch = None;
        let output = self.capture.take().map(Capture::finish);
        self.inner.ended(left, output);
    }
}
