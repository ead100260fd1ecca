//! What a fork of a large process would keep for good: the host's memory as it was at the fork. The keeper
//! gives it back, so that it costs the host nothing when it writes to its own.

use std::ffi::c_void;

/// Smaller mappings stay: among them is what the C library needs.
const SMALL: usize = 1 << 20;

/// Gives back the keeper's copies of the host's heap. Its own stack and the thread's own data stay, and
/// so does everything that stands in a file.
pub(super) fn give_back() {
    let here = 0_u8;
    // SAFETY: the address is this thread's own.
    let own_data = unsafe { libc::__errno_location() } as usize;
    let kept = [&raw const here as usize, own_data];
    // SAFETY: the path has its NUL.
    let maps = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if maps < 0 {
        return;
    }
    let mut line = Line::default();
    let mut buffer = [0_u8; 4096];
    loop {
        // SAFETY: the buffer is as long as is said.
        let count = unsafe { libc::read(maps, buffer.as_mut_ptr().cast(), buffer.len()) };
        let Ok(count @ 1..) = usize::try_from(count) else { break };
        for &byte in buffer.iter().take(count) {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            if let Some((start, end)) = line.heap()
                && end - start >= SMALL
                && kept.iter().all(|&address| address < start || address >= end)
            {
                // SAFETY: nothing in the keeper reads what is there: neither its stack, nor its thread's
                // data, nor what a library has in a file or in little.
                unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED) };
            }
            line = Line::default();
        }
    }
    // SAFETY: opened above.
    unsafe { libc::close(maps) };
}

/// One line of the map, read as it comes: `start-end perms offset device inode path`.
#[derive(Default)]
struct Line {
    numbers: [usize; 2],
    private_and_writable: [bool; 2],
    inode: usize,
    field: u8,
    at: u8,
}

impl Line {
    fn push(&mut self, byte: u8) {
        match (self.field, byte) {
            (0, b'-') | (_, b' ') => {
                self.field = self.field.saturating_add(1);
                self.at = 0;
                return;
            }
            (0, _) => shift(&mut self.numbers[0], byte),
            (1, _) => shift(&mut self.numbers[1], byte),
            (2, b'w') => self.private_and_writable[1] = true,
            (2, b'p') if self.at == 3 => self.private_and_writable[0] = true,
            (5, b'1'..=b'9') => self.inode = 1,
            _ => {}
        }
        self.at = self.at.saturating_add(1);
    }

    fn heap(&self) -> Option<(usize, usize)> {
        let [start, end] = self.numbers;
        (self.private_and_writable == [true; 2] && self.inode == 0 && start < end)
            .then_some((start, end))
    }
}

fn shift(number: &mut usize, digit: u8) {
    let value = match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => return,
    };
    *number = number.wrapping_shl(4) | usize::from(value);
}
