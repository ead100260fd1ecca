//! The keeper's life: starts the leader, watches host and tree, ends the tree, and is gone with it.
//!
//! ```text
//! running ──leader exited──▶ lingering ──grace──▶ terminating ──grace──▶ killing ──▶ empty
//!    └──────── asked to, or the host died ───────────▲
//! ```
//!
//! What the leader leaves behind has the grace period to end by itself; what has to be ended gets SIGTERM,
//! the grace period and SIGKILL, over and over until nothing is left. The tree is empty when the keeper has no
//! child, which no process can hide from. All signals are blocked here but SIGKILL.

use super::descendants::Descendants;
use super::exec::{errno, start};
use super::{EMPTY, EXITED, LEFT, PACKET, Packet, STARTED, memory};
use crate::process::plan::Plan;
use crate::process::platform::Keeping;

/// The grace of a tree whose host has died: it has to be gone within two seconds.
const ORPHAN_GRACE_MS: i32 = 1000;
/// Between two rounds of SIGKILL: who forks while it is killed has a child that is not dead yet.
const AGAIN_MS: i32 = 10;
/// After so much of that the host is told that some outlive it, and the rounds become rare.
const HOPELESS_MS: i64 = 2000;
const RARELY_MS: i32 = 500;
const NAME: &std::ffi::CStr = c"countermand";

/// What the keeper inherits by the fork.
pub(super) struct Work<'a> {
    pub(super) plan: &'a Plan,
    pub(super) keeping: Keeping,
    pub(super) control: i32,
    pub(super) host: i32,
}

enum Phase {
    Running,
    /// The leader has exited; the rest has until then.
    Lingering(i64),
    /// Asked to end until then.
    Terminating(i64),
    /// Killed again and again, since then.
    Killing(i64),
}

struct Keeper {
    control: i32,
    /// A pidfd of the host, negative where there is none or it has died.
    host: i32,
    /// A signalfd for SIGCHLD.
    children: i32,
    leader: i32,
    /// As long as it is not reaped its group's number can be nobody else's.
    leader_unreaped: bool,
    grace_ms: i32,
    phase: Phase,
    told_left: bool,
    descendants: Descendants,
}

/// The keeper, from the fork to its end.
pub(super) fn keep(work: &Work<'_>) -> ! {
    prepare(work);
    let started = start(work);
    for fd in work.keeping.stdio {
        // SAFETY: nobody in this process uses it.
        unsafe { libc::close(fd) };
    }
    // Told now: once the host knows of the tree, the tree alone has the other ends of its pipes.
    tell(work.control, started);
    let [STARTED, leader] = started else { exit() };
    // SAFETY: plain system calls; the set is filled before it is read.
    let (host, children) = unsafe {
        let _ = libc::chdir(c"/".as_ptr());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        let children = libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
        (libc::syscall(libc::SYS_pidfd_open, work.host, 0), children)
    };
    memory::give_back();
    let mut keeper = Keeper {
        control: work.control,
        host: i32::try_from(host).unwrap_or(-1),
        children,
        leader,
        leader_unreaped: true,
        grace_ms: work.keeping.grace_ms,
        phase: Phase::Running,
        told_left: false,
        descendants: Descendants::new(),
    };
    // SAFETY: no precondition.
    if unsafe { libc::getppid() } != work.host {
        // Dead before it could be watched: the number may be another's by now.
        keeper.host_died();
    }
    loop {
        keeper.reap();
        keeper.advance();
        keeper.wait();
    }
}

/// Takes the keeper out of its host: no descriptor, signal or group is shared any more.
fn prepare(work: &Work<'_>) {
    let [a, b, c] = work.keeping.stdio;
    let mut kept = [work.control, a, b, c];
    kept.sort_unstable();
    let mut from = 0;
    for fd in kept {
        close_range(from, fd - 1);
        from = fd + 1;
    }
    close_range(from, i32::MAX);
    // SAFETY: plain system calls.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
    }
}

fn close_range(first: i32, last: i32) {
    if first > last {
        return;
    }
    // SAFETY: closing what nobody in this process uses.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, 0) == 0 {
            return;
        }
        // A kernel before 5.9.
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        let most = i32::try_from(limit.rlim_cur).unwrap_or(1 << 20).min(1 << 20);
        for fd in first..=last.min(most) {
            libc::close(fd);
        }
    }
}

impl Keeper {
    /// Takes the exit statuses of all that has ended; where nothing is left, this is the end.
    fn reap(&mut self) {
        loop {
            let mut status = 0;
            // SAFETY: `status` is valid for writing. Whatever is a child here belongs to the tree.
            match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) } {
                0 => return,
                pid if pid == self.leader => {
                    self.leader_unreaped = false;
                    tell(self.control, [EXITED, status]);
                    if matches!(self.phase, Phase::Running) {
                        self.phase = Phase::Lingering(after(self.grace_ms));
                    }
                }
                pid if pid > 0 => {}
                _ if errno() == libc::ECHILD => {
                    tell(self.control, [EMPTY, 0]);
                    exit();
                }
                _ => {}
            }
        }
    }

    fn advance(&mut self) {
        match self.phase {
            Phase::Lingering(until) if now() >= until => self.terminate(self.grace_ms),
            Phase::Terminating(until) if now() >= until => self.phase = Phase::Killing(now()),
            _ => {}
        }
        if let Phase::Killing(since) = self.phase {
            self.group(libc::SIGKILL);
            let alive = self.descendants.signal(libc::SIGKILL, None);
            if now() - since >= HOPELESS_MS && !self.told_left {
                self.told_left = true;
                tell(self.control, [LEFT, alive]);
            }
        }
    }

    fn terminate(&mut self, grace_ms: i32) {
        // Asked once each: some take a second SIGTERM for "now".
        self.group(libc::SIGTERM);
        let group = self.leader_unreaped.then_some(self.leader);
        self.descendants.signal(libc::SIGTERM, group);
        // Who is stopped hears nothing.
        self.group(libc::SIGCONT);
        self.descendants.signal(libc::SIGCONT, group);
        self.phase = Phase::Terminating(after(grace_ms));
    }

    /// Signals the whole group at once, while its number is certainly its own.
    fn group(&self, signal: i32) {
        if self.leader_unreaped {
            // SAFETY: no precondition.
            unsafe { libc::killpg(self.leader, signal) };
        }
    }

    fn asked(&mut self) {
        if matches!(self.phase, Phase::Running | Phase::Lingering(_)) {
            self.terminate(self.grace_ms);
        }
    }

    fn host_died(&mut self) {
        self.host = -1;
        self.control = -1;
        let grace_ms = self.grace_ms.min(ORPHAN_GRACE_MS);
        match self.phase {
            Phase::Running | Phase::Lingering(_) => self.terminate(grace_ms),
            Phase::Terminating(until) => {
                self.phase = Phase::Terminating(until.min(after(grace_ms)));
            }
            Phase::Killing(_) => {}
        }
    }

    /// Sleeps until a child ends, the host speaks or dies, or the time has come.
    fn wait(&mut self) {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [poll(self.children), poll(self.control), poll(self.host)];
        let timeout = match self.phase {
            Phase::Running => -1,
            Phase::Lingering(until) | Phase::Terminating(until) => left(until),
            Phase::Killing(_) if self.told_left => RARELY_MS,
            Phase::Killing(_) => AGAIN_MS,
        };
        let mut buffer = [0_u8; 128];
        // SAFETY: three entries, as said, and a buffer that is as long as is said.
        let (asked, host) = unsafe {
            libc::poll(fds.as_mut_ptr(), 3, timeout);
            let [children, control, host] = fds;
            if children.revents != 0 {
                // Which child it was is found by reaping.
                libc::read(self.children, buffer.as_mut_ptr().cast(), buffer.len());
            }
            let asked = (control.revents != 0).then(|| {
                libc::recv(self.control, buffer.as_mut_ptr().cast(), 1, libc::MSG_DONTWAIT)
            });
            (asked, host)
        };
        match asked {
            Some(1) => self.asked(),
            Some(count) if count == 0 || errno() != libc::EAGAIN => self.host_died(),
            _ if host.revents != 0 => self.host_died(),
            _ => {}
        }
    }
}

fn tell(control: i32, packet: Packet) {
    if control >= 0 {
        // SAFETY: the packet is as long as is said.
        unsafe { libc::send(control, (&raw const packet).cast(), PACKET, libc::MSG_NOSIGNAL) };
    }
}

fn exit() -> ! {
    // SAFETY: does not return, and runs nothing of the host's.
    unsafe { libc::_exit(0) }
}

/// Milliseconds of the monotonic clock.
fn now() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.wrapping_mul(1000).wrapping_add(time.tv_nsec / 1_000_000)
}

fn after(ms: i32) -> i64 {
    now().saturating_add(i64::from(ms.max(0)))
}

fn left(until: i64) -> i32 {
    i32::try_from(until.saturating_sub(now()).max(0)).unwrap_or(i32::MAX)
}
