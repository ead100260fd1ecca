//! [`Tree`]: a handle on a command and everything that it has started.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use countermand_core::{Token, Work};
use parking_lot::{Condvar, Mutex};
use rustix::io::{fcntl_dupfd_cloexec, ioctl_fionbio};

use super::capture::{Capture, Output};
use super::command::{Command, ProcessError, Stdio};
use super::plan::Plan;
use super::platform::{self, Keeping, Launched};
use super::supervisor::{Record, supervisor};

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The command itself has exited.
    Exited,
    /// Nothing of its tree is left, or what is left outlives SIGKILL.
    Ended,
}

/// The host's ends of the pipes that were asked for; they do not block.
#[derive(Debug, Default)]
pub struct Pipes {
    /// To be written.
    pub stdin: Option<OwnedFd>,
    /// To be read.
    pub stdout: Option<OwnedFd>,
    /// To be read.
    pub stderr: Option<OwnedFd>,
}

/// A command that was started, and whatever it started. Ends with its token, with its host, and when this is
/// dropped.
#[derive(Debug)]
pub struct Tree {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    /// The process whose tree it is: what a fork of it has is a copy, and ends nothing.
    host: u32,
    pub(super) leader: i32,
    /// To the keeper, until the keeper is gone.
    pub(super) control: Mutex<Option<Arc<OwnedFd>>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    exit: Option<ExitStatus>,
    ended: bool,
    left: u32,
    wakers: Vec<(Stage, Waker)>,
    output: Option<Output>,
}

impl Tree {
    /// Starts a command under a token. What the token does from here on, the tree hears, also if it trips
    /// meanwhile.
    ///
    /// # Errors
    /// [`ProcessError::Tripped`] if the token has tripped: then nothing was started. Otherwise as the system
    /// says.
    pub fn spawn(token: &Token, command: Command) -> Result<(Self, Pipes), ProcessError> {
        start(token, command, |pipes| (None, pipes))
    }

    /// As [`spawn`](Self::spawn), with its output collected and `input` given to it, until the
    /// tree ends: then [`take_output`](Self::take_output) has what was written by then. A process outside
    /// the tree that holds a pipe open holds nobody up.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub fn capture(
        token: &Token,
        command: Command,
        input: Option<Vec<u8>>,
    ) -> Result<Self, ProcessError> {
        let collect =
            |pipes| (Some(Capture::new(pipes, input.unwrap_or_default())), Pipes::default());
        start(token, command, collect).map(|(tree, _)| tree)
    }

    /// The number of the command's process, and of its group.
    pub fn pid(&self) -> u32 {
        self.inner.leader.unsigned_abs()
    }

    /// Has the tree end: SIGTERM, the grace period, SIGKILL. Returns at once; does nothing where it is
    /// ending.
    pub fn stop(&self) {
        self.inner.end();
    }

    /// How the command exited, once it has.
    pub fn exit(&self) -> Option<ExitStatus> {
        self.inner.state.lock().exit
    }

    /// Whether the tree has ended.
    pub fn ended(&self) -> bool {
        self.inner.state.lock().ended
    }

    /// How many processes of the tree outlive SIGKILL: 0 but for those that hang in the kernel or that this
    /// user may not kill.
    pub fn left(&self) -> u32 {
        self.inner.state.lock().left
    }

    /// Wakes `waker` once when the stage is reached, at once if it has been.
    pub fn on(&self, stage: Stage, waker: Waker) {
        let mut locked = self.inner.state.lock();
        if locked.reached(stage) {
            drop(locked);
            waker.wake();
        } else {
            locked.wakers.push((stage, waker));
        }
    }

    /// Waits for a stage, at most `timeout`; false if that came first.
    pub fn wait(&self, stage: Stage, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut locked = self.inner.state.lock();
        while !locked.reached(stage) {
            if self.inner.changed.wait_until(&mut locked, deadline).timed_out() {
                return locked.reached(stage);
            }
        }
        true
    }

    /// What was collected, once the tree has ended; nothing the second time.
    pub fn take_output(&self) -> Option<Output> {
        self.inner.state.lock().output.take()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.inner.end();
    }
}

impl State {
    fn reached(&self, stage: Stage) -> bool {
        match stage {
            Stage::Exited => self.exit.is_some(),
            Stage::Ended => self.ended,
        }
    }
}

impl Inner {
    fn end(&self) {
        if self.host == std::process::id()
            && let Some(control) = &*self.control.lock()
        {
            platform::end(control);
        }
    }

    pub(super) fn exited(&self, status: i32) {
        self.change(|state| state.exit = Some(ExitStatus::from_raw(status)));
    }

    pub(super) fn ended(&self, left: u32, output: Option<Output>) {
        self.change(|state| {
            if !state.ended {
                // Told by a keeper that lived; one that was killed has killed the command.
                let exit = state.exit.unwrap_or_else(|| ExitStatus::from_raw(libc::SIGKILL));
                let wakers = std::mem::take(&mut state.wakers);
                *state = State { exit: Some(exit), ended: true, left, wakers, output };
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        let (reached, waiting) = wakers.into_iter().partition(|(stage, _)| state.reached(*stage));
        state.wakers = waiting;
        drop(state);
        self.changed.notify_all();
        // A waker is not our code: it runs outside the lock.
        let reached: Vec<(Stage, Waker)> = reached;
        for (_, waker) in reached {
            waker.wake();
        }
    }
}

/// The token's trip.
impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.end();
    }
}

fn start(
    token: &Token,
    command: Command,
    split: impl FnOnce(Pipes) -> (Option<Capture>, Pipes),
) -> Result<(Tree, Pipes), ProcessError> {
    if let Some(cause) = token.cause() {
        return Err(ProcessError::Tripped(cause));
    }
    let plan = Plan::new(&command)?;
    let (theirs, pipes) = streams(command.stdin, command.stdout, command.stderr)?;
    let supervisor = supervisor()?;
    let keeping = Keeping {
        stdio: std::array::from_fn(|at| std::os::fd::AsRawFd::as_raw_fd(&theirs[at])),
        session: command.session,
        grace_ms: i32::try_from(command.grace.as_millis()).unwrap_or(i32::MAX),
    };
    let Launched { control, keeper, leader } = platform::launch(&plan, keeping)?;
    drop(theirs);
    let inner = Arc::new(Inner {
        host: std::process::id(),
        leader,
        control: Mutex::new(Some(Arc::new(control))),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    // A token that trips between the fork and here wakes it at once.
    let watch = token.watch(&Waker::from(inner.clone()));
    let (capture, pipes) = split(pipes);
    let work = token.work(Work::Process(leader.unsigned_abs()));
    supervisor.add(Record::new(inner.clone(), keeper, watch, work, capture));
    Ok((Tree { inner }, pipes))
}

/// The command's ends of its streams, none of them below 3, and the host's.
fn streams(
    stdin: Stdio,
    stdout: Stdio,
    stderr: Stdio,
) -> Result<([OwnedFd; 3], Pipes), ProcessError> {
    let mut pipes = Pipes::default();
    let stdin = match stdin {
        Stdio::Pipe => {
            let (read, write) = pipe()?;
            pipes.stdin = Some(ours(write)?);
            read
        }
        other => given(other, None)?,
    };
    let stdout = output(stdout, None, &mut pipes.stdout)?;
    let stderr = output(stderr, Some(&stdout), &mut pipes.stderr)?;
    Ok(([stdin, stdout, stderr], pipes))
}

fn output(
    wanted: Stdio,
    stdout: Option<&OwnedFd>,
    end: &mut Option<OwnedFd>,
) -> Result<OwnedFd, ProcessError> {
    let Stdio::Pipe = wanted else { return given(wanted, stdout) };
    let (read, write) = pipe()?;
    *end = Some(ours(read)?);
    Ok(write)
}

fn given(wanted: Stdio, stdout: Option<&OwnedFd>) -> Result<OwnedFd, ProcessError> {
    match (wanted, stdout) {
        (Stdio::Fd(fd), _) => above(fd),
        (Stdio::Stdout, Some(stdout)) => Ok(fcntl_dupfd_cloexec(stdout, 3)?),
        _ => above(std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?.into()),
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), ProcessError> {
    let (read, write) = std::io::pipe()?;
    Ok((above(read.into())?, above(write.into())?))
}

/// Not below 3: what is moved to 0, 1 or 2 must not overwrite what is still to be moved.
fn above(fd: OwnedFd) -> Result<OwnedFd, ProcessError> {
    if std::os::fd::AsRawFd::as_raw_fd(&fd) > 2 {
        return Ok(fd);
    }
    Ok(fcntl_dupfd_cloexec(&fd, 3)?)
}

fn ours(fd: OwnedFd) -> Result<OwnedFd, ProcessError> {
    ioctl_fionbio(&fd, true)?;
    Ok(fd)
}
