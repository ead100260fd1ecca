//! What happened in the worlds that were run: proof that the rare things were not missed.

/// Declares the counters and their names in one place.
macro_rules! counters {
    ($($variant:ident => $name:literal,)*) => {
        /// Something that should happen often enough to be believed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter { $(
            #[doc = concat!("`", $name, "`")]
            $variant,
        )* }

        impl Counter {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// What a table calls it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

counters! {
    AnswerBeatCancel => "answer against cancel: the answer won",
    CancelBeatAnswer => "answer against cancel: the cancel won",
    StartBeatCancel => "start against cancel: the handler had started",
    CancelBeatStart => "start against cancel: the handler never started",
    ExitBeatCancel => "exit against cancel: the handler had exited, unanswered",
    CancelBeatExit => "exit against cancel: the handler ran on",
    CancelBeatClose => "cancel against disconnect: the cancel won",
    CloseBeatCancel => "cancel against disconnect: the disconnect won",
    AnswerBeatClose => "answer against disconnect: the answer won",
    CloseBeatAnswer => "answer against disconnect: the disconnect won",
    ChildBeatTrip => "child against trip: made before, tripped with its parent",
    TripBeatChild => "child against trip: born tripped",
    ChildTripFirst => "two trips of one token: its own came first",
    ParentTripFirst => "two trips of one token: its parent's came first",
    ReuseBeforeExit => "reuse of a cancelled id: its old handler was live",
    ReuseAfterExit => "reuse of a cancelled id: its old handler had exited",
    OldAnswersFirst => "two generations of one id: the old one answered first",
    NewAnswersFirst => "two generations of one id: the new one answered first",
    AnswerBeatReuse => "reuse against answer: answered before, accepted",
    ReuseBeatAnswer => "reuse against answer: a duplicate id, rejected",
    ProgressBeatCancel => "progress against cancel: written",
    CancelBeatProgress => "progress against cancel: swallowed",
    WatchBeatTrip => "watch against trip: woken by the trip",
    TripBeatWatch => "watch against trip: woken at once",
    AnswerBeatEviction => "late answer against eviction: still remembered",
    EvictionBeatAnswer => "late answer against eviction: already forgotten",
    EarlyCancelMet => "early cancel against expiry: met its request",
    EarlyCancelExpired => "early cancel against expiry: expired",
    TaskBeatCancel => "task handle against cancel: returned before, the task lives on",
    CancelBeatTask => "task handle against cancel: cancelled before",
    CausePeer => "cause: peer",
    CauseTimeout => "cause: timeout",
    CauseDisconnect => "cause: disconnect",
    CauseShutdown => "cause: shutdown",
    CauseLocal => "cause: local",
    LateCancel => "ignored: late_cancel",
    UnknownCancel => "ignored: unknown_cancel",
    MalformedCancel => "ignored: malformed_cancel",
    RepeatedCancel => "ignored: repeated_cancel",
    InitializeCancel => "ignored: initialize_cancel",
    HeldCancel => "ignored: held_cancel",
    CancelledEarly => "ignored: cancelled_early",
    IgnoredClosed => "ignored: closed",
    DuplicateId => "rejected: duplicate_id",
    TooManyInFlight => "rejected: too_many_in_flight",
    IdTooLong => "rejected: id_too_long",
    Batch => "rejected: batch",
    RejectedEarly => "rejected: cancelled_early",
    CancelledAnswer => "swallowed: cancelled_answer",
    CancelledProgress => "swallowed: cancelled_progress",
    NoSuchRequest => "swallowed: no_such_request",
    SwallowedClosed => "swallowed: closed",
    Discarded => "withdrawn from a queue after its cancel",
    DeepTrip => "trip of a tree deeper than 5",
    DisconnectMidWrite => "disconnect in the middle of a frame",
    LenientMatch => "cancel matched by the other type",
    BatchSplit => "batch split",
    BatchCut => "batch of ours that lost elements",
    TaskTripped => "task tripped by tasks/cancel",
    IdAlias => "request under an alias",
    ProgressAlias => "progress translated back",
    SecondAnswer => "second answer to one request",
    Modern => "world of the 2026 era",
    LateResponse => "late response dropped by the peer",
    ResponseBeatAbandon => "response against abandonment: the response won",
    AbandonBeatResponse => "response against abandonment: the abandonment won",
    ResponseBeatTimeout => "response against timeout: the response won",
    TimeoutBeatResponse => "response against timeout: the timeout won",
    TransmitBeatAbandon => "transmit against abandonment: it had been sent",
    AbandonBeatTransmit => "transmit against abandonment: it is never sent",
    ProgressBeatIdle => "progress against idle timeout: put off",
    IdleBeatProgress => "progress against idle timeout: out of time",
    ResponseBeatParent => "parent's trip against response: the response won",
    ParentBeatResponse => "parent's trip against response: the trip won",
    ResponseBeatClose => "response against disconnect: the response won",
    CloseBeatResponse => "response against disconnect: the disconnect won",
    CutQueued => "disconnect with a call in the queue",
    CutPending => "disconnect with a call on the wire",
    LateResponseIgnored => "ignored: late_response",
    DuplicateResponse => "ignored: duplicate_response",
    WrongTypeResponse => "ignored: wrong_type_response",
    UnknownResponse => "ignored: unknown_response",
    LateProgress => "ignored: late_progress",
    ResponseBeforeSent => "response to a call that was not sent",
    LenientResponse => "response matched by the other type",
    LateSaysCancelled => "late response: -32800",
    StaleCancel => "swallowed: stale_cancel",
    NotSent => "swallowed: not_sent",
    SwallowedInitializeCancel => "swallowed: initialize_cancel",
    StreamCloses => "swallowed: stream_closes",
    SdkCancel => "cancel of an SDK for its own request",
    Notified => "abandoned: the peer is told",
    StreamClosed => "abandoned: its stream is closed",
    TransportClosed => "abandoned: initialize, the transport is closed",
    NestedCut => "nested call abandoned with its parent",
    RefusedAtOnce => "request of an SDK for what is cancelled",
    CallClosed => "no call: closed",
    CallTooMany => "no call: too_many",
    CallCancelled => "no call: cancelled",
    CallForeign => "no call: foreign_parent",
    CallAlias => "request of an SDK under another id",
    CallTokenAlias => "request of an SDK under another progress token",
}

/// The counts.
#[derive(Clone, Debug)]
pub struct Coverage([u64; Counter::ALL.len()]);

impl Default for Coverage {
    fn default() -> Self {
        Self([0; Counter::ALL.len()])
    }
}

impl Coverage {
    /// It happened once more.
    pub fn hit(&mut self, counter: Counter) {
        self.0[counter as usize] += 1;
    }

    /// Hits it if `happened`.
    pub fn hit_if(&mut self, happened: bool, counter: Counter) {
        self.0[counter as usize] += u64::from(happened);
    }

    /// How often it happened.
    pub fn count(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }
}
