//! Who won which race: reads it off what was seen, for the counters of `coverage`.

use std::time::Duration;

use countermand_core::{
    Abandoned, BeginError, Cause, IgnoreReason, RejectReason, SwallowReason, Time,
};

use crate::audit::calls::{Call, Calls, End};
use crate::audit::{Audit, History};
use crate::coverage::{Counter, Coverage};
use crate::model::read::Key;
use crate::model::{Out, Told, Verdict};
use crate::step::Label;

/// An answer this shortly before the end was in a race with it.
const CLOSE: Duration = Duration::from_millis(5);
/// What was so near to the end of a request of ours was in a race with it.
const SHORTLY: Duration = Duration::from_millis(3);

impl Coverage {
    /// A request was cancelled by its peer.
    pub(crate) fn cancelled(&mut self, hit: &History, meant: &Key) {
        self.hit(Counter::CausePeer);
        self.hit_if(hit.id != *meant, Counter::LenientMatch);
        self.hit_if(hit.started && !hit.ended, Counter::StartBeatCancel);
        self.hit_if(hit.ended, Counter::ExitBeatCancel);
        self.hit_if(hit.progressed, Counter::ProgressBeatCancel);
    }

    /// A message was consumed or rejected; `hit` is the last request with the id that it names.
    pub(crate) fn refused(&mut self, verdict: &Verdict, hit: Option<&History>, request: bool) {
        let counter = match verdict {
            Verdict::Ignored(reason) => match reason {
                IgnoreReason::LateCancel => Counter::LateCancel,
                IgnoreReason::UnknownCancel => Counter::UnknownCancel,
                IgnoreReason::MalformedCancel => Counter::MalformedCancel,
                IgnoreReason::RepeatedCancel => Counter::RepeatedCancel,
                IgnoreReason::InitializeCancel => Counter::InitializeCancel,
                IgnoreReason::HeldCancel => Counter::HeldCancel,
                IgnoreReason::CancelledEarly => Counter::CancelledEarly,
                _ => Counter::IgnoredClosed,
            },
            Verdict::Reject(reason, _) => match reason {
                RejectReason::DuplicateId => Counter::DuplicateId,
                RejectReason::TooManyInFlight => Counter::TooManyInFlight,
                RejectReason::IdTooLong => Counter::IdTooLong,
                RejectReason::Batch => Counter::Batch,
                _ => Counter::RejectedEarly,
            },
            _ => return,
        };
        self.hit(counter);
        self.hit_if(counter == Counter::DuplicateId, Counter::ReuseBeatAnswer);
        let early = matches!(counter, Counter::CancelledEarly | Counter::RejectedEarly);
        self.hit_if(early, Counter::EarlyCancelMet);
        let answered = hit.is_some_and(|hit| hit.answered_at.is_some());
        let absent = matches!(counter, Counter::LateCancel | Counter::UnknownCancel);
        self.hit_if(absent && answered, Counter::AnswerBeatCancel);
        let task = hit.is_some_and(|hit| hit.became_task);
        self.hit_if(absent && task, Counter::TaskBeatCancel);
        let cut_off = hit.is_some_and(|hit| hit.answered_at.is_none());
        let closed = counter == Counter::IgnoredClosed && !request;
        self.hit_if(closed && cut_off, Counter::CloseBeatCancel);
    }

    /// A request was delivered; `before` is the last one with its id.
    pub(crate) fn reused(&mut self, before: Option<&History>, new: &History) {
        self.hit_if(new.raw_id != new.inner_id, Counter::IdAlias);
        let Some(before) = before else { return };
        if before.cancelled_at.is_some() {
            self.hit_if(before.started && !before.ended, Counter::ReuseBeforeExit);
            self.hit_if(before.ended, Counter::ReuseAfterExit);
        }
        self.hit_if(before.answered_at.is_some(), Counter::AnswerBeatReuse);
    }

    /// An answer was tried. `other` is another request with the same id, and whether it came later.
    pub(crate) fn answered(
        &mut self,
        before: &History,
        other: Option<(bool, History)>,
        out: &Out,
        task: bool,
        closed: bool,
    ) {
        if let Some((later, other)) = other {
            let late = before.cancelled_at.is_some();
            self.hit_if(later && late && other.open(), Counter::OldAnswersFirst);
            let open = before.open() && other.cancelled_at.is_some() && !other.tried;
            self.hit_if(!later && open, Counter::NewAnswersFirst);
        }
        self.hit_if(before.tried, Counter::SecondAnswer);
        let Out::Swallow(reason) = out else { return };
        self.swallowed(*reason);
        if closed {
            self.hit_if(before.answered_at.is_none(), Counter::CloseBeatAnswer);
        } else if *reason == SwallowReason::CancelledAnswer {
            self.hit(Counter::CancelBeatAnswer);
            self.hit_if(before.ended, Counter::AnswerBeatEviction);
            self.hit_if(task, Counter::CancelBeatTask);
        } else if before.cancelled_at.is_some() && !before.tried {
            self.hit(Counter::EvictionBeatAnswer);
        }
    }

    /// Something that our side sent was swallowed.
    pub(crate) fn swallowed(&mut self, reason: SwallowReason) {
        self.hit(match reason {
            SwallowReason::CancelledAnswer => Counter::CancelledAnswer,
            SwallowReason::CancelledProgress => Counter::CancelledProgress,
            SwallowReason::NoSuchRequest => Counter::NoSuchRequest,
            SwallowReason::StaleCancel => Counter::StaleCancel,
            SwallowReason::NotSent => Counter::NotSent,
            SwallowReason::InitializeCancel => Counter::SwallowedInitializeCancel,
            SwallowReason::StreamCloses => Counter::StreamCloses,
            _ => Counter::SwallowedClosed,
        });
        self.hit_if(reason == SwallowReason::CancelledProgress, Counter::CancelBeatProgress);
    }

    /// Our side tripped a token.
    pub(crate) fn tripped(&mut self, cause: Cause, first: bool) {
        self.hit_if(!first, Counter::ParentTripFirst);
        self.hit_if(first, counter(cause));
    }

    /// A connection is about to be closed.
    pub(crate) fn closed(&mut self, audit: &Audit, link: usize, cause: Cause, now: Time) {
        self.hit(counter(cause));
        let mine = || audit.all().filter(|(_, history)| history.link == link);
        let cancelled = mine().any(|(_, history)| history.cancelled_at.is_some() && !history.ended);
        self.hit_if(cancelled, Counter::CancelBeatClose);
        let ours = || audit.calls.all().map(|(_, call)| call).filter(|call| call.link == link);
        let just = ours()
            .any(|call| matches!(call.end, Some((End::Settled, at)) if now.since(at) <= CLOSE));
        self.hit_if(just, Counter::ResponseBeatClose);
        self.hit_if(ours().any(|call| call.open() && call.sent), Counter::CutPending);
        self.hit_if(ours().any(|call| call.open() && !call.sent), Counter::CutQueued);
        let answered = mine().filter_map(|(_, history)| history.answered_at);
        let just = answered.max().is_some_and(|at| now.since(at) <= CLOSE);
        self.hit_if(just, Counter::AnswerBeatClose);
    }

    /// A request of ours could not be made.
    pub(crate) fn refused_call(&mut self, error: BeginError) {
        self.hit(match error {
            BeginError::TooMany { .. } => Counter::CallTooMany,
            BeginError::Cancelled(_) => Counter::CallCancelled,
            BeginError::ForeignParent => Counter::CallForeign,
            _ => Counter::CallClosed,
        });
    }

    /// The writer's turn had come to a request of ours.
    pub(crate) fn transmitted(&mut self, call: &Call, may: bool) {
        let given_up = matches!(call.end, Some((End::GivenUp | End::TimedOut, _)));
        self.hit_if(!may && given_up, Counter::AbandonBeatTransmit);
    }

    /// A caller of ours has given up.
    pub(crate) fn abandoned(&mut self, call: &Call, abandoned: Abandoned, now: Time) {
        let sent = !matches!(abandoned, Abandoned::Settled | Abandoned::NotSent);
        self.hit_if(sent, Counter::TransmitBeatAbandon);
        let just = matches!(call.end, Some((End::Settled, at)) if now.since(at) <= SHORTLY);
        self.hit_if(just && abandoned == Abandoned::Settled, Counter::ResponseBeatAbandon);
    }

    /// The peer sent a response to this request of ours, if to any.
    pub(crate) fn responded(&mut self, call: Option<&Call>, verdict: &Verdict, now: Time) {
        let end = call.and_then(|call| call.end).map(|(end, _)| end);
        let taken = matches!(verdict, Verdict::Settled(_) | Verdict::Deliver(..));
        if taken {
            let due = call.and_then(Call::due);
            let near = due.is_some_and(|due| due.since(now) <= SHORTLY);
            self.hit_if(near, Counter::ResponseBeatTimeout);
            self.hit_if(call.is_none(), Counter::LenientResponse);
        }
        let Verdict::Ignored(reason) = verdict else { return };
        let unsent = call.is_some_and(|call| call.open() && !call.sent);
        self.hit_if(unsent, Counter::ResponseBeforeSent);
        self.hit(match reason {
            IgnoreReason::LateResponse => Counter::LateResponseIgnored,
            IgnoreReason::DuplicateResponse => Counter::DuplicateResponse,
            IgnoreReason::WrongTypeResponse => Counter::WrongTypeResponse,
            IgnoreReason::UnknownResponse => Counter::UnknownResponse,
            _ => Counter::IgnoredClosed,
        });
        let late = *reason == IgnoreReason::LateResponse;
        self.hit_if(late && end == Some(End::GivenUp), Counter::AbandonBeatResponse);
        self.hit_if(late && end == Some(End::TimedOut), Counter::TimeoutBeatResponse);
        self.hit_if(late && end == Some(End::WithParent), Counter::ParentBeatResponse);
        let closed = *reason == IgnoreReason::Closed;
        self.hit_if(closed && end == Some(End::CutOff), Counter::CloseBeatResponse);
    }

    /// The peer sent progress of this request of ours, if of any.
    pub(crate) fn peers_progress(&mut self, call: Option<&Call>, verdict: &Verdict, now: Time) {
        let idle = |call: &&Call| call.idle.is_some() && call.due().is_some();
        let near = call.filter(idle).and_then(Call::due);
        let near = near.is_some_and(|due| due.since(now) <= SHORTLY);
        let moved = matches!(verdict, Verdict::Progress(_));
        self.hit_if(moved && near, Counter::ProgressBeatIdle);
        if *verdict == Verdict::Ignored(IgnoreReason::LateProgress) {
            self.hit(Counter::LateProgress);
            let out = matches!(call.and_then(|call| call.end), Some((End::TimedOut, _)));
            self.hit_if(out && call.is_some_and(|it| it.idle.is_some()), Counter::IdleBeatProgress);
        }
    }

    /// The core wants something done about a request of ours.
    pub(crate) fn told(&mut self, calls: &Calls, told: &Told, refused: bool) {
        match told {
            Told::Abandoned { call, .. } => {
                let end = calls.get(*call).and_then(|call| call.end);
                self.hit_if(matches!(end, Some((End::WithParent, _))), Counter::NestedCut);
            }
            Told::Refused(_) => {
                self.hit(if refused { Counter::RefusedAtOnce } else { Counter::NestedCut });
            }
            Told::Cancel { .. } => self.hit(Counter::Notified),
            Told::CloseStream(_) => self.hit(Counter::StreamClosed),
            Told::CloseTransport => self.hit(Counter::TransportClosed),
        }
    }

    /// A token was seen tripped.
    pub(crate) fn cut(&mut self, calls: &Calls, token: Label) {
        let settled = calls.all().any(|(_, call)| {
            call.parent == Some(token) && matches!(call.end, Some((End::Settled, _)))
        });
        self.hit_if(settled, Counter::ResponseBeatParent);
    }
}

fn counter(cause: Cause) -> Counter {
    match cause {
        Cause::Peer => Counter::CausePeer,
        Cause::Timeout => Counter::CauseTimeout,
        Cause::Disconnect => Counter::CauseDisconnect,
        Cause::Shutdown => Counter::CauseShutdown,
        _ => Counter::CauseLocal,
    }
}
