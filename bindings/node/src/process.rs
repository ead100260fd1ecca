//! Process trees: starting one, and what JavaScript learns of it.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::task::{Wake, Waker};

use countermand_runtime::process::{Command, Pipes, ProcessError, Stage, Stdio, Tree};
use napi::bindgen_prelude::{Buffer, Either, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Error, Result, Status};
use napi_derive::napi;
use parking_lot::Mutex;

use crate::options::milliseconds;
use crate::tokens::held;

/// Where a stream leads that is no descriptor.
pub(crate) const PIPE: i32 = -1;
const IGNORE: i32 = -3;

/// What JavaScript is told: the tree's number, doubled, and 1 more when it has ended.
type Tell = ThreadsafeFunction<u32, (), u32, Status, false, true>;

/// Trees that JavaScript has not closed, by a number that is never used again.
struct Trees {
    next: u32,
    open: Option<HashMap<u32, Tree>>,
    tell: Option<Arc<Tell>>,
}

static TREES: Mutex<Trees> = Mutex::new(Trees { next: 0, open: None, tell: None });

/// A command, and how its tree is kept.
#[napi(object)]
pub struct TreeOptions {
    /// Looked up in the `PATH` of `env` unless it has a slash.
    pub program: String,
    /// Without the program's own name.
    pub args: Vec<String>,
    /// The whole environment: a name, its value, and so on.
    pub env: Vec<String>,
    /// The working directory, if it is another than this process's.
    pub cwd: Option<String>,
    /// For stdin, stdout and stderr: a descriptor, -1 for a pipe, -3 for nothing.
    pub stdio: Vec<i32>,
    /// Whether it gets a session of its own.
    pub session: bool,
    /// From SIGTERM to SIGKILL, in milliseconds.
    pub grace_ms: Option<f64>,
    /// Given, the output is collected, and this is what the command reads.
    pub input: Option<Buffer>,
}

/// A tree that was started.
#[napi(object)]
pub struct StartedTree {
    /// By which the other functions know it.
    pub handle: u32,
    /// The command's process, and its group.
    pub pid: u32,
    /// This process's ends of the pipes, for the caller to close.
    pub stdin: Option<i32>,
    /// To be read.
    pub stdout: Option<i32>,
    /// To be read.
    pub stderr: Option<i32>,
}

/// Why none was started.
#[napi(object)]
pub struct RefusedTree {
    /// `tripped`, `exec`, `cwd`, `system`, `invalid` or `unsupported`.
    pub refused: String,
    /// The system's error.
    pub errno: Option<i32>,
    /// For people.
    pub message: String,
}

/// How a command exited: by itself, or by a signal.
#[napi(object)]
pub struct TreeExit {
    /// Its code.
    pub code: Option<i32>,
    /// The signal's number.
    pub signal: Option<i32>,
}

/// What was collected.
#[napi(object)]
pub struct TreeOutput {
    /// Of its standard output.
    pub stdout: Buffer,
    /// Of its standard error.
    pub stderr: Buffer,
}

struct Told {
    key: u32,
    tell: Arc<Tell>,
}

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        // Fails only while the environment shuts down, when nobody is left to be told.
        self.tell.call(self.key, ThreadsafeFunctionCallMode::NonBlocking);
    }
}

/// `tell` is called on the main thread with a tree's number, doubled, when its command has exited, and with 1
/// more when the tree has ended. It keeps no process alive.
#[napi(catch_unwind)]
pub fn trees_listen(tell: Function<'_, u32, ()>) -> Result<()> {
    let tell = tell.build_threadsafe_function::<u32>().weak::<true>().build()?;
    TREES.lock().tell = Some(Arc::new(tell));
    Ok(())
}

/// Starts a command under a token.
#[napi(catch_unwind)]
pub fn tree_start(token: u32, options: TreeOptions) -> Result<Either<StartedTree, RefusedTree>> {
    let token = held(token)?;
    let tell = TREES.lock().tell.clone();
    let tell = tell.ok_or_else(|| Error::new(Status::GenericFailure, "nobody listens to trees"))?;
    let started = command(&options).and_then(|command| match options.input {
        Some(input) => Tree::capture(&token, command, Some(input.to_vec()))
            .map(|tree| (tree, Pipes::default())),
        None => Tree::spawn(&token, command),
    });
    let (tree, Pipes { stdin, stdout, stderr }) = match started {
        Ok(started) => started,
        Err(error) => return Ok(Either::B(refused(&error))),
    };
    let raw = |fd: Option<OwnedFd>| fd.map(IntoRawFd::into_raw_fd);
    let pid = tree.pid();
    let mut trees = TREES.lock();
    trees.next += 1;
    let handle = trees.next;
    let tree = &*trees.open.get_or_insert_default().entry(handle).or_insert(tree);
    // What has happened already is told at once: by a call that is queued, so that this returns first.
    for (stage, more) in [(Stage::Exited, 0), (Stage::Ended, 1)] {
        tree.on(stage, Waker::from(Arc::new(Told { key: handle * 2 + more, tell: tell.clone() })));
    }
    let (stdin, stdout, stderr) = (raw(stdin), raw(stdout), raw(stderr));
    Ok(Either::A(StartedTree { handle, pid, stdin, stdout, stderr }))
}

/// Has a tree end: SIGTERM, the grace period, SIGKILL. Returns at once.
#[napi(catch_unwind)]
pub fn tree_stop(tree: u32) {
    if let Some(tree) = TREES.lock().open.as_ref().and_then(|open| open.get(&tree)) {
        tree.stop();
    }
}

/// How a tree's command exited, once it has.
#[napi(catch_unwind)]
pub fn tree_exit(tree: u32) -> Option<TreeExit> {
    let exit = TREES.lock().open.as_ref()?.get(&tree)?.exit()?;
    Some(TreeExit { code: exit.code(), signal: exit.signal() })
}

/// What was collected, once the tree has ended.
#[napi(catch_unwind)]
pub fn tree_output(tree: u32) -> Option<TreeOutput> {
    let output = TREES.lock().open.as_ref()?.get(&tree)?.take_output()?;
    Some(TreeOutput { stdout: output.stdout.into(), stderr: output.stderr.into() })
}

/// How many processes of the tree outlive SIGKILL.
#[napi(catch_unwind)]
pub fn tree_left(tree: u32) -> u32 {
    TREES.lock().open.as_ref().and_then(|open| open.get(&tree)).map_or(0, Tree::left)
}

/// Lets go of a tree.
#[napi(catch_unwind)]
pub fn tree_close(tree: u32) {
    let tree = TREES.lock().open.as_mut().and_then(|open| open.remove(&tree));
    drop(tree);
}

pub(crate) fn command(options: &TreeOptions) -> std::result::Result<Command, ProcessError> {
    let mut command = Command::new(&options.program).args(&options.args);
    let pairs = options.env.chunks_exact(2);
    command.env =
        Some(pairs.map(|pair| (pair[0].clone().into(), pair[1].clone().into())).collect());
    command.cwd = options.cwd.as_ref().map(Into::into);
    if let [stdin, stdout, stderr] = options.stdio[..] {
        command.stdin = stdio(stdin)?;
        command.stdout = stdio(stdout)?;
        command.stderr = stdio(stderr)?;
    }
    command.session = options.session;
    command.grace = options.grace_ms.map_or(command.grace, milliseconds);
    Ok(command)
}

fn stdio(wanted: i32) -> std::result::Result<Stdio, ProcessError> {
    match wanted {
        PIPE => Ok(Stdio::Pipe),
        IGNORE => Ok(Stdio::Null),
        fd if fd < 0 => Err(ProcessError::Invalid("stdio")),
        fd => {
            // SAFETY: only borrowed to be duplicated at once; one that is not open is an error then.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            Ok(Stdio::Fd(fd.try_clone_to_owned()?))
        }
    }
}

pub(crate) fn refused(error: &ProcessError) -> RefusedTree {
    let (refused, system) = match error {
        ProcessError::Tripped(_) => ("tripped", None),
        ProcessError::Exec { error, .. } => ("exec", Some(error)),
        ProcessError::Cwd { error, .. } => ("cwd", Some(error)),
        ProcessError::Io(error) => ("system", Some(error)),
        ProcessError::Unsupported => ("unsupported", None),
        _ => ("invalid", None),
    };
    let errno = system.and_then(std::io::Error::raw_os_error);
    RefusedTree { refused: refused.to_owned(), errno, message: error.to_string() }
}
