//! A server process: its two pipes, and a third by which its tools report when they start and end.

use std::error::Error;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use memchr::memchr_iter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::pipe;
use rustix::time::{ClockId, clock_gettime};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Nanoseconds of the clock that the tools report in.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// What a tool says beside the wire.
pub(crate) struct Report {
    pub(crate) event: String,
    pub(crate) tag: String,
    pub(crate) at: u64,
}

impl Report {
    pub(crate) fn is(&self, event: &str, tag: &str) -> bool {
        self.event == event && self.tag == tag
    }
}

pub(crate) struct Server {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    reports: File,
    replies_rest: Vec<u8>,
    reports_rest: Vec<u8>,
    buffer: Vec<u8>,
    last_id: u64,
}

impl Server {
    /// Starts the process and shakes hands with it.
    pub(crate) fn start(command: &[String]) -> Result<Self> {
        let (reports, for_tools) = pipe()?;
        fcntl_setfd(&reports, FdFlags::CLOEXEC)?;
        let (program, arguments) = command.split_first().ok_or("an empty command")?;
        let mut child = Command::new(program)
            .args(arguments)
            .env("BENCH_REPORT_FD", for_tools.as_raw_fd().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let stdin = child.stdin.take().ok_or("no stdin")?;
        let stdout = child.stdout.take().ok_or("no stdout")?;
        let mut server = Server {
            child,
            stdin,
            stdout,
            reports: File::from(reports),
            replies_rest: Vec::new(),
            reports_rest: Vec::new(),
            buffer: vec![0; 1 << 16],
            last_id: 0,
        };
        let id = server.fresh_id();
        server.write(
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}}}
"#
            )
            .as_bytes(),
        )?;
        server.until(Duration::from_secs(30), |reply, _| reply == Some(id))?;
        server.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        Ok(server)
    }

    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Writes the bytes. Returns when: taken before the write, since a preempted writer can be overtaken by
    /// what its bytes bring about.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = now();
        self.stdin.write_all(bytes)?;
        Ok(at)
    }

    /// Waits for something from the server, at most so long, and hands out each reply (a line) and each report.
    pub(crate) fn read(
        &mut self,
        timeout: Duration,
        mut reply: impl FnMut(&[u8]),
        mut report: impl FnMut(Report),
    ) -> Result<()> {
        let timeout = Timespec::try_from(timeout)?;
        let mut fds = [
            PollFd::from_borrowed_fd(self.stdout.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.reports.as_fd(), PollFlags::IN),
        ];
        poll(&mut fds, Some(&timeout))?;
        let [replies_ready, reports_ready] = [0, 1].map(|i| !fds[i].revents().is_empty());
        if reports_ready {
            let length = self.reports.read(&mut self.buffer)?;
            each_line(&mut self.reports_rest, &self.buffer[..length], |line| {
                if let Some(parsed) = parse_report(line) {
                    report(parsed);
                }
            });
        }
        if replies_ready {
            let length = self.stdout.read(&mut self.buffer)?;
            if length == 0 {
                return Err(format!("the server is gone: {:?}", self.child.wait()?).into());
            }
            each_line(&mut self.replies_rest, &self.buffer[..length], &mut reply);
        }
        Ok(())
    }

    /// Reads until something has come: a reply with an id, or a report.
    pub(crate) fn until(
        &mut self,
        patience: Duration,
        mut done: impl FnMut(Option<u64>, Option<&Report>) -> bool,
    ) -> Result<()> {
        let end = now() + u64::try_from(patience.as_nanos())?;
        let over = std::cell::Cell::new(false);
        let done = std::cell::RefCell::new(&mut done);
        while !over.get() {
            if now() > end {
                return Err("the server did not do its part in time".into());
            }
            self.read(
                Duration::from_millis(50),
                |line| over.set(over.get() | done.borrow_mut()(id_of(line), None)),
                |report| over.set(over.get() | done.borrow_mut()(None, Some(&report))),
            )?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be busy or stuck: nothing that it could still say matters.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hands out the whole lines of what was left and what came; keeps the rest.
fn each_line(rest: &mut Vec<u8>, chunk: &[u8], mut take: impl FnMut(&[u8])) {
    let mut start = 0;
    for end in memchr_iter(b'\n', chunk) {
        if rest.is_empty() {
            take(&chunk[start..end]);
        } else {
            rest.extend_from_slice(&chunk[start..end]);
            take(rest);
            rest.clear();
        }
        start = end + 1;
    }
    rest.extend_from_slice(&chunk[start..]);
}

#[derive(serde::Deserialize)]
struct Envelope {
    id: Option<u64>,
}

/// The id of a reply; none for a notification.
pub(crate) fn id_of(line: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Envelope>(line).ok()?.id
}

fn parse_report(line: &[u8]) -> Option<Report> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (event, tag) = (words.next()?.to_owned(), words.next()?.to_owned());
    Some(Report { event, tag, at: words.next()?.parse().ok()? })
}
