//! Who descends from the keeper, by the parents in /proc, and signals to them.
//!
//! Whatever leaves its parent becomes a child of the keeper, its subreaper: so the chains of parents
//! are complete, whatever a process did to its group, its session or its environment. A process is only
//! ever signalled as the one that was seen: through a pidfd, checked against the time of its start.

use std::ffi::c_char;
use std::ptr;

use super::exec::errno;

/// How many processes of the whole system are looked at.
const ROOM: usize = 1 << 16;

#[derive(Clone, Copy)]
struct Seen {
    pid: i32,
    parent: i32,
    group: i32,
    started: u64,
    dead: bool,
    ours: bool,
}

/// What was seen, in memory of its own that is only used up as far as there are processes.
pub(super) struct Descendants {
    table: *mut Seen,
    seen: usize,
    me: i32,
}

impl Descendants {
    pub(super) fn new() -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping, at no address in particular.
        let table = unsafe {
            libc::mmap(ptr::null_mut(), ROOM * size_of::<Seen>(), protection, flags, -1, 0)
        };
        let table = if table == libc::MAP_FAILED { ptr::null_mut() } else { table.cast() };
        // SAFETY: no precondition.
        let me = unsafe { libc::getpid() };
        Self { table, seen: 0, me }
    }

    /// Signals every descendant that is not in the group `but`; says how many were alive.
    pub(super) fn signal(&mut self, signal: i32, but: Option<i32>) -> i32 {
        self.look();
        let mut alive: i32 = 0;
        for seen in self.table().iter().filter(|seen| seen.ours) {
            if !seen.dead {
                alive = alive.saturating_add(1);
            }
            // The dead may have threads that live.
            if but != Some(seen.group) {
                send(seen, signal);
            }
        }
        alive
    }

    fn table(&mut self) -> &mut [Seen] {
        if self.table.is_null() {
            return &mut [];
        }
        // SAFETY: the mapping has room for `ROOM`, never fewer than were written.
        unsafe { std::slice::from_raw_parts_mut(self.table, self.seen) }
    }

    fn add(&mut self, seen: Seen) {
        if self.seen < ROOM && !self.table.is_null() {
            // SAFETY: there is room, as was just seen.
            unsafe { self.table.add(self.seen).write(seen) };
            self.seen = self.seen.saturating_add(1);
        }
    }

    /// Fills the table, and marks who descends from us.
    fn look(&mut self) {
        self.seen = 0;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the path has its NUL.
        let proc = unsafe { libc::open(c"/proc".as_ptr(), flags) };
        if proc < 0 {
            return;
        }
        // Of another namespace the numbers would mean others.
        if own_number(proc) == Some(self.me) {
            self.read(proc);
            self.mark();
        }
        // SAFETY: opened above.
        unsafe { libc::close(proc) };
    }

    fn read(&mut self, proc: i32) {
        let mut buffer = Entries([0; 8192]);
        loop {
            // SAFETY: the buffer is as long as is said.
            let count = unsafe {
                libc::syscall(libc::SYS_getdents64, proc, buffer.0.as_mut_ptr(), buffer.0.len())
            };
            let Ok(count @ 1..) = usize::try_from(count) else { return };
            let mut rest = buffer.0.get(..count).unwrap_or_default();
            // ino u64, off i64, reclen u16, type u8, then the name with its NUL.
            while let Some((&[low, high], name)) = rest.get(16..18).zip(rest.get(19..)) {
                if let Some(pid) = number(name)
                    && let Some(seen) = stat(proc, pid)
                {
                    self.add(seen);
                }
                let length = usize::from(u16::from_ne_bytes([low, high]));
                rest = rest.get(length.max(1)..).unwrap_or_default();
            }
        }
    }

    fn mark(&mut self) {
        let me = self.me;
        // Most children come after their parents: few rounds are needed. /proc is sorted by number.
        let mut found = true;
        while found {
            found = false;
            let count = self.table().len();
            for at in 0..count {
                let Some(&Seen { parent, ours: false, .. }) = self.table().get(at) else {
                    continue;
                };
                let above = self.table().binary_search_by_key(&parent, |other| other.pid);
                let above = above.ok().and_then(|above| self.table().get(above).copied());
                let ours = parent == me || above.is_some_and(|above| above.ours);
                if ours && let Some(seen) = self.table().get_mut(at) {
                    seen.ours = true;
                    found = true;
                }
            }
        }
    }
}

#[repr(C, align(8))]
struct Entries([u8; 8192]);

fn send(seen: &Seen, signal: i32) {
    // SAFETY: plain system calls; the descriptor is closed again.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, seen.pid, 0);
        if fd < 0 && errno() == libc::ESRCH {
            return;
        }
        // Whoever has the number now that it is held: the same as then?
        if stat(libc::AT_FDCWD, seen.pid).is_some_and(|now| now.started == seen.started) {
            let Ok(fd) = i32::try_from(fd) else { return };
            if fd < 0 {
                libc::kill(seen.pid, signal);
            } else {
                libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, ptr::null::<u8>(), 0);
            }
        }
        if let Ok(fd @ 0..) = i32::try_from(fd) {
            libc::close(fd);
        }
    }
}

/// Which number we have in this /proc.
fn own_number(proc: i32) -> Option<i32> {
    let mut buffer = [0_u8; 16];
    // SAFETY: the buffer is longer than is said, and so ends with a NUL.
    let count = unsafe { libc::readlinkat(proc, c"self".as_ptr(), buffer.as_mut_ptr().cast(), 15) };
    if count > 0 { number(&buffer) } else { None }
}

/// The number that a name is, up to its NUL.
fn number(name: &[u8]) -> Option<i32> {
    let mut value: i32 = 0;
    let mut digits = 0;
    for byte in name.iter().take_while(|byte| **byte != 0) {
        value = value.wrapping_mul(10).wrapping_add(i32::from(byte.wrapping_sub(b'0')));
        if !byte.is_ascii_digit() || digits == 9 {
            return None;
        }
        digits += 1;
    }
    (digits > 0).then_some(value)
}

/// What /proc says of a process.
fn stat(proc: i32, pid: i32) -> Option<Seen> {
    let path = Path::new(proc == libc::AT_FDCWD, pid);
    let mut buffer = [0_u8; 1024];
    // SAFETY: the path has its NUL, and the buffer is as long as is said.
    let count = unsafe {
        let file = libc::openat(proc, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let count = libc::read(file, buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(file);
        count
    };
    let text = buffer.get(..usize::try_from(count).ok()?)?;
    // `pid (name) state parent group session …`, the start the 22nd; a name may hold anything.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let mut fields = text.get(end.checked_add(2)?..)?.split(|byte| *byte == b' ');
    let dead = matches!(fields.next()?, b"Z" | b"X");
    let parent = number(fields.next()?)?;
    let group = number(fields.next()?)?;
    let started = fields.nth(16)?;
    let started = started.iter().fold(0_u64, |value, digit| {
        value.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0')))
    });
    Some(Seen { pid, parent, group, started, dead, ours: false })
}

/// `[/proc/]PID/stat`, without an allocation.
struct Path([u8; 32]);

impl Path {
    fn new(absolute: bool, pid: i32) -> Self {
        let mut digits = [0_u8; 10];
        let mut rest = pid;
        let mut length = 0_usize;
        for digit in digits.iter_mut().rev() {
            *digit = b'0'.wrapping_add(u8::try_from(rest % 10).unwrap_or(0));
            rest /= 10;
            length = length.saturating_add(1);
            if rest == 0 {
                break;
            }
        }
        let digits = digits.iter().skip(digits.len().saturating_sub(length));
        let root: &[u8] = if absolute { b"/proc/" } else { b"" };
        let mut path = [0_u8; 32];
        for (to, from) in path.iter_mut().zip(root.iter().chain(digits).chain(b"/stat")) {
            *to = *from;
        }
        Self(path)
    }

    fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}
