//! Collecting what a tree writes, and giving it its input, on the supervisor's thread.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::Pipes;

/// What a pipe holds at most unless somebody enlarged it: after the tree has ended no more is waited for.
const REST: usize = 1 << 20;
const READ: usize = 1 << 16;

/// What a tree has written.
#[derive(Debug, Default)]
pub struct Output {
    /// To its standard output, if that was a pipe.
    pub stdout: Vec<u8>,
    /// To its standard error, if that was a pipe.
    pub stderr: Vec<u8>,
}

pub(super) struct Capture {
    stdin: Option<OwnedFd>,
    input: Vec<u8>,
    written: usize,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    output: Output,
}

impl Capture {
    pub(super) fn new(pipes: Pipes, input: Vec<u8>) -> Self {
        let Pipes { stdin, stdout, stderr } = pipes;
        let stdin = stdin.filter(|_| !input.is_empty());
        Self { stdin, input, written: 0, stdout, stderr, output: Output::default() }
    }

    /// What to wait for.
    pub(super) fn poll<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        fds.extend(self.stdin.iter().map(|fd| PollFd::new(fd, PollFlags::OUT)));
        let outputs = self.stdout.iter().chain(&self.stderr);
        fds.extend(outputs.map(|fd| PollFd::new(fd, PollFlags::IN)));
    }

    /// Does what can be done without waiting; not too much of it, others wait too.
    pub(super) fn work(&mut self) {
        self.feed();
        read(&mut self.stdout, &mut self.output.stdout, READ);
        read(&mut self.stderr, &mut self.output.stderr, READ);
    }

    /// The tree has ended: takes what is in the pipes, and waits for nobody.
    pub(super) fn finish(mut self) -> Output {
        read(&mut self.stdout, &mut self.output.stdout, REST);
        read(&mut self.stderr, &mut self.output.stderr, REST);
        self.output
    }

    fn feed(&mut self) {
        while let Some(stdin) = &self.stdin {
            match rustix::io::write(stdin, &self.input[self.written..]) {
                Ok(count) => {
                    self.written += count;
                    if self.written == self.input.len() {
                        self.stdin = None;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // It reads no more, as `head` does: no error of ours.
                Err(_) => self.stdin = None,
            }
        }
    }
}

fn read(from: &mut Option<OwnedFd>, to: &mut Vec<u8>, most: usize) {
    let end = to.len() + most;
    while let Some(fd) = from
        && to.len() < end
    {
        to.reserve(READ);
        match rustix::io::read(&*fd, rustix::buffer::spare_capacity(to)) {
            Ok(0) => *from = None,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return,
            Err(_) => *from = None,
        }
    }
}
