//! Interprets answers and failures of other nodes for the request that was sent to them.

use std::time::{Duration, Instant};

use actix_web::http::header::HeaderName;
use actix_web::rt::time::sleep;
use hyper::body::Incoming;

use crate::http::admission::turn::Turn;
use crate::http::cluster::peer_auth::{self, PeerRole};
use crate::http::cluster::peers::Failure;
use crate::http::problem::Problem;

/// The header with the number of seconds for which the log was silent.
pub(super) const STALE: HeaderName = HeaderName::from_static("tidewire-stale-seconds");

/// Maximum time that a request waits for the node that takes over a role.
const MOVE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Intervals between two checks of a role's holder: the first one, and the longest.
const MOVE_LOOKS: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(50)];

/// The longest silence of the log in seconds that an owner of other readers has reported, if any has. Stored as an extension of the
/// request.
#[derive(Clone, Copy, Default)]
pub(in crate::http) struct PartsStale(pub(super) Option<u64>);

/// Returns true if another node has refused a request because it does not have the role for it.
pub(super) fn has_moved(response: &http1::Response<Incoming>) -> bool {
    response.headers().contains_key(peer_auth::NOT_OWNER.as_str())
}

/// Polls the holder of a role for a limited time, because no node has it for some milliseconds during a planned move.
#[derive(Default)]
pub(super) struct Looks {
    began: Option<Instant>,
    interval: Duration,
}

impl Looks {
    /// Waits with a permit until the next check. Returns false if the time is over, or if others need the permit.
    pub(super) async fn again(&mut self, turn: &Turn) -> bool {
        let began = *self.began.get_or_insert_with(Instant::now);
        if began.elapsed() >= MOVE_WAIT_MAX || turn.resume().is_err() || !turn.may_keep_permit() {
            return false;
        }
        let [first, longest] = MOVE_LOOKS;
        self.interval = longest.min(self.interval * 2).max(first);
        sleep(self.interval).await;
        true
    }
}

/// The code of the problem when the answer to a write was lost.
pub(super) const OUTCOME_UNKNOWN: &str = "outcome_unknown";

/// Returns the problem of a request that has no answer.
pub(super) fn problem_of(failure: &Failure, is_read: bool, to: PeerRole) -> Problem {
    match failure {
        Failure::Refused(problem) => problem.clone(),
        Failure::Lost(_) if !is_read => {
            let detail = "the connection to the node that accepts the write broke, so the write may be done or not: a retry is \
                          safe, of a new post only with the same id";
            Problem::unavailable(OUTCOME_UNKNOWN, detail).retry_soon()
        }
        Failure::NotSent(_) | Failure::Lost(_) => to.unavailable(),
    }
}
