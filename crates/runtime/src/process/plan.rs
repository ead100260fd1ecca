//! A command as `exec` wants it: NUL-terminated strings and arrays of pointers to them, made before the
//! fork, because nothing may be allocated after it.

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;

use super::{Command, ProcessError};

/// Where programs are looked for when the environment does not say.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// Strings, and the array of pointers to them that ends with a null.
pub(super) struct Strings {
    strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Strings {
    fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect();
        Self { strings, pointers }
    }

    pub(super) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

pub(super) struct Plan {
    pub(super) argv: Strings,
    pub(super) env: Strings,
    /// The places to look for the program, in order.
    pub(super) paths: Strings,
    pub(super) cwd: Option<CString>,
}

impl Plan {
    /// The program as it was given.
    pub(super) fn program(&self) -> &CStr {
        self.argv.strings.first().map_or(c"", CString::as_c_str)
    }

    pub(super) fn new(command: &Command) -> Result<Self, ProcessError> {
        let env = command.env.as_ref().map_or_else(|| std::env::vars_os().collect(), Clone::clone);
        let paths = paths(&command.program, &env)?;
        let argv = [&command.program].into_iter().chain(&command.args);
        let argv = argv.map(|arg| string("argument", arg.as_bytes())).collect::<Result<_, _>>()?;
        let env = env.into_iter().map(variable).collect::<Result<_, _>>()?;
        let cwd = command.cwd.as_ref();
        let cwd = cwd.map(|cwd| string("cwd", cwd.as_os_str().as_bytes())).transpose()?;
        Ok(Self {
            argv: Strings::new(argv),
            env: Strings::new(env),
            paths: Strings::new(paths),
            cwd,
        })
    }
}

fn string(what: &'static str, bytes: &[u8]) -> Result<CString, ProcessError> {
    CString::new(bytes).map_err(|_| ProcessError::Invalid(what))
}

fn variable((name, value): (OsString, OsString)) -> Result<CString, ProcessError> {
    if name.is_empty() || name.as_bytes().contains(&b'=') {
        return Err(ProcessError::Invalid("environment"));
    }
    let mut bytes = name.into_vec();
    bytes.push(b'=');
    bytes.extend_from_slice(value.as_bytes());
    string("environment", &bytes)
}

fn paths(program: &OsStr, env: &[(OsString, OsString)]) -> Result<Vec<CString>, ProcessError> {
    let program = program.as_bytes();
    if program.is_empty() {
        return Err(ProcessError::Invalid("program"));
    }
    if program.contains(&b'/') {
        return Ok(vec![string("program", program)?]);
    }
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_bytes());
    let folders = path.unwrap_or(DEFAULT_PATH).split(|&byte| byte == b':');
    folders
        .map(|folder| {
            let folder = if folder.is_empty() { b"." } else { folder };
            string("program", &[folder, b"/", program].concat())
        })
        .collect()
}
