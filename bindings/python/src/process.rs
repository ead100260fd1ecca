//! Process trees: starting one, and what Python learns of it.

use std::ffi::OsString;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use countermand_runtime::process::{self, Command, Pipes, ProcessError, Stage, Stdio};
use parking_lot::Mutex;
use pyo3::exceptions::{PyNotImplementedError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::callbacks::Callbacks;
use crate::convert::duration;
use crate::token::Token;

/// As `subprocess` has them.
const PIPE: i32 = -1;
const STDOUT: i32 = -2;
const DEVNULL: i32 = -3;

/// A command and everything that it starts. Ends when this is let go of.
#[pyclass(frozen, module = "countermand._native")]
pub(crate) struct Tree {
    tree: process::Tree,
    pipes: Mutex<Pipes>,
}

#[pymethods]
impl Tree {
    /// Starts a command. `capture` has its output collected, and `input` given to it.
    #[new]
    #[pyo3(signature = (token, argv, env, *, cwd, stdin, stdout, stderr, session, grace, capture, input=None))]
    #[expect(clippy::too_many_arguments, reason = "named in Python, each")]
    fn new(
        py: Python<'_>,
        token: &Bound<'_, Token>,
        argv: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        cwd: Option<PathBuf>,
        stdin: i32,
        stdout: i32,
        stderr: i32,
        session: bool,
        grace: &Bound<'_, PyAny>,
        capture: bool,
        input: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        let mut argv = argv.into_iter();
        let program = argv.next().ok_or_else(|| PyValueError::new_err("the command is empty"))?;
        let mut command = Command::new(program).args(argv);
        command.env = Some(env);
        command.cwd = cwd;
        command.stdin = stdio(stdin)?;
        command.stdout = stdio(stdout)?;
        command.stderr = stdio(stderr)?;
        command.session = session;
        command.grace = duration("grace", grace)?;
        let native = token.get().inner.clone();
        let started = py.detach(move || {
            if capture {
                let tree = process::Tree::capture(&native, command, input)?;
                return Ok((tree, Pipes::default()));
            }
            process::Tree::spawn(&native, command)
        });
        match started {
            Ok((tree, pipes)) => Ok(Self { tree, pipes: Mutex::new(pipes) }),
            Err(ProcessError::Tripped(_)) => Err(token
                .get()
                .checkpoint(py)
                .err()
                .unwrap_or_else(|| PyOSError::new_err("the token has tripped"))),
            Err(error) => Err(process_error(error)),
        }
    }

    #[getter]
    fn pid(&self) -> u32 {
        self.tree.pid()
    }

    /// The command's exit code, or the negated number of the signal that killed it.
    #[getter]
    fn returncode(&self) -> Option<i32> {
        let exit = self.tree.exit()?;
        exit.code().or_else(|| exit.signal().map(|signal| -signal))
    }

    /// Whether nothing of the tree is left but what outlives SIGKILL.
    #[getter]
    fn ended(&self) -> bool {
        self.tree.ended()
    }

    /// How many outlive SIGKILL.
    #[getter]
    fn left(&self) -> u32 {
        self.tree.left()
    }

    /// Has the tree end; returns at once.
    fn stop(&self) {
        self.tree.stop();
    }

    /// The host's ends of the pipes, for the caller to close.
    fn pipes(&self) -> (Option<RawFd>, Option<RawFd>, Option<RawFd>) {
        let Pipes { stdin, stdout, stderr } = std::mem::take(&mut *self.pipes.lock());
        let raw = |fd: Option<OwnedFd>| fd.map(IntoRawFd::into_raw_fd);
        (raw(stdin), raw(stdout), raw(stderr))
    }

    /// What was collected, once the tree has ended.
    fn output<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let output = self.tree.take_output().unwrap_or_default();
        (PyBytes::new(py, &output.stdout), PyBytes::new(py, &output.stderr))
    }

    /// Has `key` arrive when the command has exited, at once if it has.
    fn notify_exited(&self, queue: &Bound<'_, Callbacks>, key: u64) {
        self.tree.on(Stage::Exited, queue.get().waker(key));
    }

    /// Has `key` arrive when the tree has ended, at once if it has.
    fn notify_ended(&self, queue: &Bound<'_, Callbacks>, key: u64) {
        self.tree.on(Stage::Ended, queue.get().waker(key));
    }
}

pub(crate) fn stdio(wanted: i32) -> PyResult<Stdio> {
    match wanted {
        PIPE => Ok(Stdio::Pipe),
        STDOUT => Ok(Stdio::Stdout),
        DEVNULL => Ok(Stdio::Null),
        fd if fd >= 0 => {
            // SAFETY: only borrowed to be duplicated at once; one that is not open is an error then.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            Ok(Stdio::Fd(fd.try_clone_to_owned()?))
        }
        other => Err(PyValueError::new_err(format!("no such stream: {other}"))),
    }
}

pub(crate) fn process_error(error: ProcessError) -> PyErr {
    let (error, name) = match error {
        ProcessError::Exec { program, error } => (error, Some(program)),
        ProcessError::Cwd { cwd, error } => (error, Some(cwd.into_os_string())),
        ProcessError::Io(error) => (error, None),
        ProcessError::Unsupported => return PyNotImplementedError::new_err(error.to_string()),
        other => return PyValueError::new_err(other.to_string()),
    };
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    // Of these three Python makes the subclass that fits.
    PyOSError::new_err((error.raw_os_error(), text, name))
}
