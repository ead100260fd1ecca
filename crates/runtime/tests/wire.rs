//! The wire on real pipes: what a language sees, and what the peer sees.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use countermand_core::{Cause, Finish, Generation};
use countermand_runtime::{Event, Outcome, Wire, WireConfig, WireError};

struct Peer {
    to: Option<PipeWriter>,
    from: BufReader<PipeReader>,
}

impl Peer {
    fn write(&mut self, text: &str) {
        self.to.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line
    }
}

struct Language {
    wire: Wire,
    woken: Receiver<()>,
    events: VecDeque<Event>,
}

impl Language {
    fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            self.woken.recv_timeout(Duration::from_secs(20)).expect("an event");
            let mut out = Vec::new();
            while self.wire.drain(3, &mut out) {}
            self.events.extend(out);
        }
    }

    fn request(&mut self) -> Generation {
        match self.next() {
            Event::Message { request: Some(request), .. } => request.generation,
            other => panic!("not a request: {other:?}"),
        }
    }
}

fn open(change: impl FnOnce(&mut WireConfig)) -> (Peer, Language) {
    let (their_read, our_write) = std::io::pipe().unwrap();
    let (our_read, their_write) = std::io::pipe().unwrap();
    // As an event loop that shares the pipe leaves it: a write may be short.
    rustix::fs::fcntl_setfl(&our_write, rustix::fs::OFlags::NONBLOCK).unwrap();
    let (sender, woken) = channel();
    let mut config =
        WireConfig { handle_signals: false, exit_process: false, ..WireConfig::default() };
    change(&mut config);
    let wire =
        Wire::from_fds(OwnedFd::from(our_read), OwnedFd::from(our_write), config, move || {
            let _ = sender.send(());
        });
    let language = Language { wire: wire.unwrap(), woken, events: VecDeque::default() };
    (Peer { to: Some(their_write), from: BufReader::new(their_read) }, language)
}

fn call(id: u32) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\"}}\n")
}

fn cancel(id: u32) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id}}}}}\n"
    )
}

fn answer(id: u32) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}")
}

#[test]
fn i14_what_is_not_about_cancellation_passes_byte_for_byte() {
    let (mut peer, mut language) = open(|_| {});
    let odd = "  { \"jsonrpc\" : \"2.0\",\"method\":\"x\\u0041\", \"params\":{\"é\":1e2} } \t";
    peer.write(&format!("{odd}\r\n\nnot json\n"));
    for expected in [odd, "not json"] {
        match language.next() {
            Event::Message { frame, request: None } => assert_eq!(frame, expected.as_bytes()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(language.wire.send(odd.as_bytes()).unwrap(), Outcome::Written);
    assert_eq!(peer.line(), format!("{odd}\n"));
}

#[test]
fn i2_silence_a_stuck_language_sees_the_token_trip_and_its_answer_is_swallowed() {
    let (mut peer, mut language) = open(|_| {});
    peer.write(&call(7));
    let generation = language.request();
    let token = language.wire.connection().token(generation).unwrap();
    assert!(language.wire.connection().start(generation, language.wire.now()));
    peer.write(&cancel(7));
    // The language drains nothing here: only the wire thread can have done it.
    while !token.cancelled() {
        std::hint::spin_loop();
    }
    assert_eq!(language.wire.send(answer(7).as_bytes()).unwrap(), Outcome::Swallowed);
    assert!(matches!(language.next(), Event::Cancelled { generation: g, .. } if g == generation));
    peer.write(&call(8));
    let next = language.request();
    assert_ne!(next, generation);
    language.wire.send(answer(8).as_bytes()).unwrap();
    assert_eq!(peer.line(), answer(8) + "\n");
    assert_eq!(language.wire.connection().finish(generation, language.wire.now()), Finish::Silent);
}

#[test]
fn k11_a_request_that_still_waits_is_withdrawn_with_its_cancel() {
    let (mut peer, mut language) = open(|_| {});
    peer.write(&format!("{}{}{}", call(1), cancel(1), call(2)));
    let generation = language.request();
    let second = language.wire.connection().inner_id(generation).unwrap();
    assert_eq!(second.to_json(), "2", "the first never came");
    assert_eq!(language.wire.connection().stats().in_flight, 1);
}

#[test]
fn i3_no_loss_a_full_inbox_is_back_pressure() {
    // One byte is too much: the reader pauses after each read until all of it was taken.
    let (mut peer, mut language) = open(|config| config.max_queued = 1);
    let writer = std::thread::spawn(move || {
        for id in 0..2_000 {
            peer.write(&call(id));
        }
        peer
    });
    for id in 0..2_000 {
        let generation = language.request();
        let inner = language.wire.connection().inner_id(generation).unwrap();
        assert_eq!(inner.to_json(), id.to_string());
    }
    writer.join().unwrap();
}

#[test]
fn i4_whole_frames_a_peer_that_reads_slowly_gets_every_byte() {
    let (mut peer, mut language) = open(|config| config.max_queued = 100_000);
    let body = "x".repeat(50_000);
    let notes: Vec<_> = (0..20)
        .map(|n| format!("{{\"jsonrpc\":\"2.0\",\"method\":\"n{n}\",\"p\":\"{body}\"}}"))
        .collect();
    for note in &notes {
        language.wire.send(note.as_bytes()).unwrap();
    }
    assert!(language.wire.congested());
    for note in &notes {
        assert_eq!(peer.line().trim_end(), note);
    }
    assert!(matches!(language.next(), Event::Writable));
    assert!(language.wire.flush(Duration::from_secs(20)));
}

#[test]
fn k03_the_end_of_input_cancels_everything_and_comes_last() {
    let (mut peer, mut language) = open(|_| {});
    peer.write(&call(1));
    let generation = language.request();
    let token = language.wire.connection().token(generation).unwrap();
    assert_eq!(language.wire.exit_code(), None);
    peer.to = None;
    assert!(matches!(language.next(), Event::Cancelled { generation: g, .. } if g == generation));
    assert!(matches!(language.next(), Event::Closed { cause: Cause::Disconnect }));
    assert_eq!(language.wire.exit_code(), Some(0));
    assert_eq!(token.cause(), Some(Cause::Disconnect));
    let late = language.wire.send(answer(1).as_bytes());
    assert!(matches!(late, Ok(Outcome::Swallowed)), "{late:?}");
}

#[test]
fn i15_a_peer_that_closes_our_output_is_a_disconnect() {
    let (mut peer, mut language) = open(|_| {});
    peer.write(&call(1));
    let _ = language.request();
    let Peer { to, from } = peer;
    drop(from);
    language.wire.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"x\"}").unwrap();
    loop {
        if let Event::Closed { cause } = language.next() {
            assert_eq!(cause, Cause::Disconnect);
            break;
        }
    }
    drop(to);
}

#[test]
fn i3_no_loss_closing_from_our_side_writes_what_was_decided() {
    let (mut peer, mut language) = open(|_| {});
    peer.write(&call(1));
    let _ = language.request();
    // More than the pipe holds: the writer is in the middle of it when the end comes.
    let note =
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"p\":\"{}\"}}", "x".repeat(200_000));
    language.wire.send(note.as_bytes()).unwrap();
    language.wire.send(answer(1).as_bytes()).unwrap();
    language.wire.close(Cause::Shutdown);
    assert!(matches!(language.next(), Event::Closed { cause: Cause::Shutdown }));
    assert_eq!(peer.line(), note + "\n");
    assert_eq!(peer.line(), answer(1) + "\n");
    assert!(matches!(language.wire.send(b"{}"), Ok(Outcome::Swallowed) | Err(WireError::Closed)));
}

#[test]
fn i15_a_frame_that_is_too_long_is_answered_and_skipped() {
    let (mut peer, mut language) = open(|config| config.max_frame = 1_000);
    peer.write(&format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"x\":\"{}\"}}\n", "y".repeat(2_000)));
    let reply = peer.line();
    assert!(reply.contains("-32600") && reply.contains("1000 bytes"), "{reply}");
    peer.write(&call(2));
    language.request();
}
