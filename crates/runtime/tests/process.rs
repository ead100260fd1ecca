//! Process trees on real processes: everything dies, nothing is left, nobody is held up.

#![cfg(target_os = "linux")]

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use countermand_core::{Cause, Config, Connection, Token};
use countermand_runtime::process::{Command, Output, Pipes, ProcessError, Stage, Stdio, Tree};

const PATIENCE: Duration = Duration::from_secs(30);

static ALONE: Mutex<()> = Mutex::new(());

/// A connection, and the right to count what this process has: its tests run one at a time.
struct Alone {
    connection: Connection,
    _alone: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Alone {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

/// A token that nobody else trips, and the connection that keeps it.
fn token() -> (Alone, Token) {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let connection = Connection::new(Config::default());
    let token = connection.root().child();
    (Alone { connection, _alone: alone }, token)
}

fn shell(script: &str) -> Command {
    Command::new("sh").args(["-c", script])
}

fn run(command: Command, input: Option<&[u8]>) -> (ExitStatus, Output) {
    let (_connection, token) = token();
    let tree = Tree::capture(&token, command, input.map(<[u8]>::to_vec)).unwrap();
    assert!(tree.wait(Stage::Ended, PATIENCE));
    (tree.exit().unwrap(), tree.take_output().unwrap())
}

/// The tree of `tests/tree/tree.sh`, and where its processes wrote their numbers.
struct Stubborn {
    folder: PathBuf,
}

impl Stubborn {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder }
    }

    fn command(&self, grace: Duration) -> Command {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tree/tree.sh");
        let mut command = Command::new("sh").args([script.as_ref(), self.folder.as_os_str()]);
        command.grace = grace;
        command
    }

    /// Waits until every process is there.
    fn ready(&self) -> Vec<i32> {
        until("the tree is up", || self.folder.join("ready").exists());
        let read = |name| std::fs::read_to_string(self.folder.join(name)).unwrap();
        let names = ["wrapper", "server", "grandchild", "session", "daemon"];
        names.map(|name| read(name).trim().parse().unwrap()).into()
    }
}

impl Drop for Stubborn {
    fn drop(&mut self) {
        // Where a test has failed, some are there.
        for file in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let pid = std::fs::read_to_string(file.path()).unwrap_or_default();
            if pid.trim().parse().is_ok_and(alive) {
                let _ = std::process::Command::new("kill").args(["-KILL", pid.trim()]).status();
            }
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process is there and no zombie.
fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn all_dead(pids: &[i32]) {
    for &pid in pids {
        assert!(
            !alive(pid),
            "{pid} lives: {:?}",
            std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
        );
    }
}

/// Children of this process, zombies among them.
fn children() -> Vec<i32> {
    let me = std::process::id().to_string();
    let numbers = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
            rest.split(' ').nth(1) == Some(&me)
        })
        .collect()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn run_collects_what_was_written_and_how_it_exited() {
    let (status, output) = run(shell("cat; echo oops >&2; exit 3"), Some(b"hello"));
    assert_eq!(status.code(), Some(3));
    assert_eq!(output.stdout, b"hello");
    assert_eq!(output.stderr, b"oops\n");
}

#[test]
fn run_takes_input_and_output_larger_than_a_pipe() {
    let input: Vec<u8> = (0..5_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let (status, output) = run(Command::new("cat"), Some(&input));
    assert!(status.success());
    assert!(output.stdout == input);
}

#[test]
fn a_command_that_does_not_read_its_input_is_no_error() {
    let (status, output) = run(shell("exec <&-; echo done"), Some(&vec![0; 1 << 20]));
    assert!(status.success());
    assert_eq!(output.stdout, b"done\n");
}

#[test]
fn the_command_gets_its_folder_environment_and_streams() {
    let mut command = shell("pwd; echo $MARK; echo err >&2");
    command.cwd = Some("/usr".into());
    command.env =
        Some(vec![("MARK".into(), "here".into()), ("PATH".into(), "/usr/bin:/bin".into())]);
    command.stderr = Stdio::Stdout;
    let (_, output) = run(command, None);
    assert_eq!(output.stdout, b"/usr\nhere\nerr\n");
}

#[test]
fn the_command_has_only_its_three_streams_no_blocked_signal_and_a_group_of_its_own() {
    let script =
        "ls /proc/self/fd | wc -l; grep -h SigBlk /proc/self/status; echo $$; ps -o pgid= -p $$";
    let (_, output) = run(shell(script), None);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    // The fourth is the folder that `ls` reads.
    assert_eq!(lines[..2], ["4", "SigBlk:\t0000000000000000"]);
    assert_eq!(lines[2], lines[3]);
}

#[test]
fn a_session_is_given_where_it_is_asked_for() {
    for session in [false, true] {
        let mut command = shell("echo $$; ps -o sid= -p $$");
        command.session = session;
        let (_, output) = run(command, None);
        let text = String::from_utf8(output.stdout).unwrap();
        let (pid, sid) = text.trim().split_once('\n').unwrap();
        assert_eq!(pid.trim() == sid.trim(), session);
    }
}

#[test]
fn what_cannot_be_started_says_why_and_leaves_nothing() {
    let (connection, token) = token();
    let missing = Tree::spawn(&token, Command::new("no-such-program")).unwrap_err();
    assert!(
        matches!(&missing, ProcessError::Exec { error, .. } if error.raw_os_error() == Some(2))
    );
    assert_eq!(
        missing.to_string(),
        "cannot run no-such-program: No such file or directory (os error 2)"
    );
    let refused = Tree::spawn(&token, Command::new("/etc/passwd")).unwrap_err();
    assert!(
        matches!(refused, ProcessError::Exec { error, .. } if error.raw_os_error() == Some(13))
    );
    let mut nowhere = shell("true");
    nowhere.cwd = Some("/no/such/folder".into());
    let nowhere = Tree::spawn(&token, nowhere).unwrap_err();
    assert!(matches!(nowhere, ProcessError::Cwd { error, .. } if error.raw_os_error() == Some(2)));
    let nul = Tree::spawn(&token, shell("a\0b")).unwrap_err();
    assert!(matches!(nul, ProcessError::Invalid("argument")));
    assert!(children().is_empty());
    assert_eq!(connection.stats().watches, 0);
}

#[test]
fn k27_a_tripped_token_starts_nothing() {
    let (_connection, token) = token();
    token.trip(Cause::Peer, None);
    let refused = Tree::spawn(&token, shell("true")).unwrap_err();
    assert!(matches!(refused, ProcessError::Tripped(Cause::Peer)));
}

#[test]
fn i11_nothing_left_of_a_stubborn_tree_after_a_trip() {
    let (connection, token) = token();
    let stubborn = Stubborn::new("trip");
    let tree = Tree::capture(&token, stubborn.command(Duration::from_millis(100)), None).unwrap();
    let pids = stubborn.ready();
    assert_eq!(pids[0].unsigned_abs(), tree.pid());
    assert!(pids.iter().all(|&pid| alive(pid)));
    token.trip(Cause::Peer, None);
    assert!(tree.wait(Stage::Ended, PATIENCE));
    all_dead(&pids);
    assert_eq!(tree.left(), 0);
    assert_eq!(tree.exit().unwrap().signal(), Some(15));
    assert!(children().is_empty());
    assert_eq!(connection.stats().watches, 0);
}

#[test]
fn i11_nothing_left_after_stop_drop_and_close() {
    for end in ["stop", "drop", "close"] {
        let (connection, token) = token();
        let stubborn = Stubborn::new(end);
        let (tree, _pipes) = Tree::spawn(&token, stubborn.command(Duration::ZERO)).unwrap();
        let pids = stubborn.ready();
        match end {
            "stop" => tree.stop(),
            "drop" => drop(tree),
            _ => drop(connection.close(Cause::Disconnect, countermand_core::Time(0))),
        }
        until("the tree is gone", || pids.iter().all(|&pid| !alive(pid)));
    }
}

#[test]
fn k04_the_grace_period_is_kept_for_those_who_use_it() {
    let (_connection, token) = token();
    let script =
        "trap 'sleep 0.3; echo cleaned; exit 0' TERM; echo up; while :; do sleep 0.01; done";
    let (tree, pipes) = Tree::spawn(&token, shell(script)).unwrap();
    let mut stdout = std::fs::File::from(pipes.stdout.unwrap());
    let mut text = String::new();
    read_until(&mut stdout, &mut text, "up\n");
    tree.stop();
    read_until(&mut stdout, &mut text, "up\ncleaned\n");
    assert!(tree.wait(Stage::Ended, PATIENCE));
    assert_eq!(tree.exit().unwrap().code(), Some(0));
}

fn read_until(from: &mut std::fs::File, text: &mut String, wanted: &str) {
    until(wanted, || {
        let mut buffer = [0; 64];
        if let Ok(count) = from.read(&mut buffer) {
            text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        }
        text == wanted
    });
}

#[test]
fn k04_what_the_leader_leaves_behind_holds_nobody_up() {
    let mut command = shell("(trap '' TERM; sleep 1000) & echo $!; exit 7");
    command.grace = Duration::from_millis(100);
    let (status, output) = run(command, None);
    assert_eq!(status.code(), Some(7));
    let pid = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    all_dead(&[pid]);
}

#[test]
fn k04_what_the_leader_leaves_behind_may_end_by_itself() {
    let (status, output) = run(shell("(sleep 0.3; echo late) & echo early"), None);
    assert!(status.success());
    assert_eq!(output.stdout, b"early\nlate\n");
}

#[test]
fn k04_who_is_outside_the_tree_and_holds_its_pipe_holds_nobody_up() {
    let (_connection, token) = token();
    let tree = Tree::capture(&token, shell("echo here; exec sleep 1000"), None).unwrap();
    let holding = format!("/proc/{}/fd/1", tree.pid());
    let held = std::fs::OpenOptions::new().write(true).open(holding).unwrap();
    let named = format!("/proc/{}/comm", tree.pid());
    until("it has written", || std::fs::read_to_string(&named).unwrap() == "sleep\n");
    tree.stop();
    assert!(tree.wait(Stage::Ended, PATIENCE));
    assert_eq!(tree.take_output().unwrap().stdout, b"here\n");
    drop(held);
}

#[test]
fn a_keeper_keeps_nothing_of_its_hosts_memory() {
    let (_connection, token) = token();
    let heap = vec![1_u8; 64 << 20];
    let (_tree, _pipes) = Tree::spawn(&token, Command::new("sleep").args(["1000"])).unwrap();
    let status = format!("/proc/{}/status", children()[0]);
    until("it has given the memory back", || {
        let status = std::fs::read_to_string(&status).unwrap();
        let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        own.trim().trim_end_matches(" kB").parse::<u32>().unwrap() < 4096
    });
    assert_eq!(heap[heap.len() - 1], 1);
}

#[test]
fn k04_a_stopped_tree_hears_its_sigterm() {
    let (_connection, token) = token();
    let (tree, _pipes) = Tree::spawn(&token, shell("kill -STOP $$")).unwrap();
    let stat = format!("/proc/{}/stat", tree.pid());
    until("it is stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
    tree.stop();
    assert!(tree.wait(Stage::Exited, PATIENCE));
    assert_eq!(tree.exit().unwrap().signal(), Some(15));
}

#[test]
fn k27_started_while_the_token_trips_dies_too() {
    for round in 0..50 {
        let (_connection, token) = token();
        let other = token.clone();
        let tripping = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(round * 60));
            other.trip(Cause::Peer, None);
        });
        let started = Tree::spawn(&token, Command::new("sleep").args(["1000"]));
        tripping.join().unwrap();
        match started {
            Ok((tree, _pipes)) => assert!(tree.wait(Stage::Ended, PATIENCE)),
            Err(error) => assert!(matches!(error, ProcessError::Tripped(_))),
        }
    }
}

#[test]
fn k04_a_keeper_that_is_killed_takes_the_command_along() {
    let (_connection, token) = token();
    let (tree, _pipes) = Tree::spawn(&token, Command::new("sleep").args(["1000"])).unwrap();
    let keeper = children();
    assert_eq!(keeper.len(), 1);
    std::process::Command::new("kill").args(["-KILL", &keeper[0].to_string()]).status().unwrap();
    assert!(tree.wait(Stage::Ended, PATIENCE));
    until("the command is gone", || !alive(tree.pid().cast_signed()));
    assert!(children().is_empty());
}

#[test]
fn k04_children_of_the_hosts_own_keep_their_exit_status() {
    let (_connection, token) = token();
    let mut own =
        std::process::Command::new("sh").args(["-c", "sleep 0.2; exit 42"]).spawn().unwrap();
    let (tree, _pipes) = Tree::spawn(&token, shell("exit 7")).unwrap();
    // Not among those that a host waits for when it waits for any.
    assert!(tree.wait(Stage::Ended, PATIENCE));
    assert_eq!(own.wait().unwrap().code(), Some(42));
    assert_eq!(tree.exit().unwrap().code(), Some(7));
}

/// Starts and trips so many, and compares what the process had before and has after.
fn leaves_nothing(count: usize) {
    let (connection, token) = token();
    let spawn = |at: usize| {
        let child = token.child();
        let (tree, pipes): (Tree, Pipes) = match at % 3 {
            0 => (Tree::capture(&child, shell("echo hi"), None).unwrap(), Pipes::default()),
            1 => Tree::spawn(&child, shell("sleep 1000 & sleep 1000")).unwrap(),
            _ => Tree::spawn(&child, Command::new("sleep").args(["1000"])).unwrap(),
        };
        child.trip(Cause::Peer, None);
        assert!(tree.wait(Stage::Ended, PATIENCE));
        drop(pipes);
    };
    (0..3).for_each(spawn);
    let before = (descriptors(), threads(), children());
    (0..count).for_each(spawn);
    assert_eq!((descriptors(), threads(), children()), before);
    assert_eq!(connection.stats().watches, 0);
    assert_eq!(connection.stats().tokens, 1);
}

#[test]
fn i11_nothing_left_of_300_spawns_and_trips() {
    leaves_nothing(300);
}

#[test]
#[ignore = "long: part of make soak"]
fn i11_nothing_left_of_10_000_spawns_and_trips() {
    leaves_nothing(10_000);
}

/// Where a host that was killed left its tree: the test re-runs itself as that host.
const HOST: &str = "COUNTERMAND_TEST_HOST";

#[test]
fn i11_nothing_left_when_the_host_is_killed() {
    if let Some(folder) = std::env::var_os(HOST) {
        let stubborn = std::mem::ManuallyDrop::new(Stubborn { folder: folder.into() });
        let (_connection, token) = token();
        let tree = Tree::capture(&token, stubborn.command(Duration::from_mins(1)), None).unwrap();
        tree.wait(Stage::Ended, PATIENCE);
        unreachable!("the host is killed before");
    }
    let stubborn = Stubborn::new("host");
    let mut host = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "i11_nothing_left_when_the_host_is_killed"])
        .env(HOST, Path::new(&stubborn.folder))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pids = stubborn.ready();
    host.kill().unwrap();
    let killed = Instant::now();
    host.wait().unwrap();
    until("the tree is gone", || pids.iter().all(|&pid| !alive(pid)));
    // The promise is two seconds.
    assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", killed.elapsed());
}
