//! The permit of one request for its work, which the request releases while it waits.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use actix_web::{HttpMessage as _, HttpRequest};

use crate::http::admission::{Admission, Reservation};
use crate::http::client::Client;
use crate::http::operation::WorkKind;
use crate::http::problem::Problem;

/// The permit of one request for its work. The pipeline stores it in the request, and removes it when the request is answered.
#[derive(Debug)]
pub(in crate::http) struct Turn {
    admission: Arc<Admission>,
    work: WorkKind,
    client: Client,
    has_permit: Cell<bool>,
}

impl Turn {
    /// Admits a request to its work.
    pub(in crate::http) fn begin(
        admission: &Arc<Admission>,
        work: WorkKind,
        client: Client,
    ) -> Result<Rc<Self>, Problem> {
        let turn = Self { admission: Arc::clone(admission), work, client, has_permit: Cell::new(false) };
        turn.resume()?;
        Ok(Rc::new(turn))
    }

    /// Returns the turn of a request that the pipeline has admitted.
    pub(in crate::http) fn of(request: &HttpRequest) -> Result<Rc<Self>, Problem> {
        request.extensions().get().cloned().ok_or_else(|| Problem::internal(&"the request is not admitted"))
    }

    /// Returns the limits on the work of the request.
    pub(in crate::http) fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// Releases the permit, because the work is done or another node does it.
    pub(in crate::http) fn pause(&self) {
        if self.has_permit.take()
            && let Some(gate) = self.admission.gate(self.work)
        {
            gate.leave(1);
        }
    }

    /// Reserves a permit again, unless the request still has one.
    ///
    /// # Errors
    /// Fails if no permit is available.
    pub(in crate::http) fn resume(&self) -> Result<(), Problem> {
        if !self.has_permit.get() {
            self.admission.gate(self.work).map_or(Ok(()), |gate| gate.enter(1))?;
            self.has_permit.set(true);
        }
        Ok(())
    }

    /// Waits in a place to wait instead of occupying the permit, and then reserves a permit again.
    ///
    /// # Errors
    /// Fails at once if no place is available, and at the end if no permit is.
    pub(in crate::http) async fn wait<T>(&self, until: impl Future<Output = T>) -> Result<T, Problem> {
        let _place = self.place()?;
        self.pause();
        let waited = until.await;
        self.resume()?;
        Ok(waited)
    }

    /// Reserves the bytes of the answer, before they are in memory.
    ///
    /// # Errors
    /// Fails if there is no capacity for them.
    pub(in crate::http) fn answer(&self, bytes: usize) -> Result<Option<Reservation>, Problem> {
        self.admission.answer(self.work, self.client, bytes)
    }

    /// Exchanges the permit for work here for a permit for a request at the node at `address`. So an unresponsive node does not stop this
    /// one from doing its own work.
    ///
    /// # Errors
    /// Fails if no such permit is available, or if the client or that node has used up its share.
    #[cfg(feature = "cluster")]
    pub(in crate::http) fn pass(&self, address: &str) -> Result<Pass, Problem> {
        self.pause();
        let of_client = self.admission.reserve(|admission| &admission.passes, self.client, 1)?;
        let node = Client::named(address);
        Ok(Pass {
            _of_client: of_client,
            _to_node: self.admission.reserve(|admission| &admission.passes_to_node, node, 1)?,
        })
    }

    /// Reserves a place to wait.
    ///
    /// # Errors
    /// Fails if no place is available, or if the client has used up its share.
    pub(in crate::http) fn place(&self) -> Result<Reservation, Problem> {
        self.admission.reserve(|admission| &admission.waits, self.client, 1)
    }

    /// Releases the permit and waits until a post is delivered. Does not wait if too many publishers are waiting: the post is stored, so
    /// this is not a reason to refuse it.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "there is no other node"))]
    pub(in crate::http) async fn wait_for_delivery(&self, delivered: impl Future<Output = ()>) {
        self.pause();
        if let Ok(_place) = self.admission.reserve(|admission| &admission.delivery_waits, self.client, 1) {
            delivered.await;
        }
    }

    /// Returns true if at least half of the permits for such work are available. In this case a request may hold its permit while it
    /// waits for a node that can do its work, so that a planned move causes no refusals.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "there is no other node"))]
    pub(in crate::http) fn may_keep_permit(&self) -> bool {
        self.admission.gate(self.work).is_none_or(|gate| gate.taken() <= gate.limit.div_ceil(2))
    }
}

/// A permit for a request at another node, released on drop.
#[cfg(feature = "cluster")]
#[derive(Debug)]
pub(in crate::http) struct Pass {
    _of_client: Reservation,
    _to_node: Reservation,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.pause();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::http::admission::gate::CLIENTS_PER_GATE;
    use crate::http::admission::{AdmissionLimits, WAITS_MAX};

    const LIMITS: AdmissionLimits = AdmissionLimits {
        reads: 2,
        wake_ups: 1,
        writes: CLIENTS_PER_GATE,
        write_bytes: 1_000,
        response_bytes: 1_000,
        passes: 2 * CLIENTS_PER_GATE,
    };

    fn turn(admission: &Arc<Admission>, client: u64) -> Result<Rc<Turn>, Problem> {
        Turn::begin(admission, WorkKind::Read, Client::One(client))
    }

    #[test]
    fn a_waiting_request_releases_its_permit_and_acquires_one_afterwards() {
        let admission = Admission::new(LIMITS);
        let (waiting, _other) = (turn(&admission, 1).unwrap(), turn(&admission, 2).unwrap());
        assert!(turn(&admission, 3).is_err());
        let further = waiting.wait(async { turn(&admission, 3).unwrap() }).now_or_never().unwrap();
        assert!(further.is_err(), "it has to do its work, and there is no permit");
        assert_eq!(admission.reads.taken(), 1, "the further request is gone, and the one that waited has nothing");
        waiting.wait(async {}).now_or_never().unwrap().unwrap();
        assert_eq!((admission.reads.taken(), admission.waits.gate.taken()), (2, 0));
        drop(waiting);
        assert_eq!(admission.reads.taken(), 1);
    }

    #[test]
    fn waiting_requests_of_one_client_are_limited_to_its_share() {
        let admission = Admission::new(LIMITS);
        let (one, other) = (turn(&admission, 1).unwrap(), turn(&admission, 2).unwrap());
        let share: Vec<_> = (0..WAITS_MAX / CLIENTS_PER_GATE).map(|_| one.place().unwrap()).collect();
        assert!(one.wait(async {}).now_or_never().unwrap().is_err());
        assert_eq!(admission.reads.taken(), 2, "it is refused with its permit, which goes with it");
        assert!(other.wait(async {}).now_or_never().unwrap().is_ok());
        drop(share);
        assert!(one.wait(async {}).now_or_never().unwrap().is_ok());
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn neither_one_client_nor_a_hanging_node_uses_up_all_forwarding_passes() {
        let admission = Admission::new(LIMITS);
        let [one, other] = [1, 2].map(|client| turn(&admission, client).unwrap());
        let all = Turn::begin(&admission, WorkKind::Write, Client::Trusted).unwrap();
        let of_one = [one.pass("a").unwrap(), one.pass("b").unwrap()];
        assert!(one.pass("c").is_err(), "it has its share, wherever its requests are");
        let to_a: Vec<_> = (0..CLIENTS_PER_GATE - 1).map(|_| all.pass("a").unwrap()).collect();
        assert!(other.pass("a").is_err(), "half of all are there");
        assert!(other.pass("b").is_ok());
        drop((of_one, to_a));
        assert!(one.pass("a").is_ok());
        assert!(admission.gates().iter().all(|gate| gate.taken() == 0), "with a pass, the work here is paused");
    }

    #[test]
    fn a_publisher_waits_for_delivery_without_a_permit_if_a_waiting_place_is_free() {
        let admission = Admission::new(LIMITS);
        let publisher = |client| Turn::begin(&admission, WorkKind::Write, Client::One(client)).unwrap();
        let (one, same, other) = (publisher(1), publisher(1), publisher(2));
        let first = one.wait_for_delivery(async {
            assert_eq!(admission.writes.taken(), 2);
            let never = std::future::pending();
            assert_eq!(same.wait_for_delivery(never).now_or_never(), Some(()), "the client has its share");
            assert_eq!(admission.writes.taken(), 1);
            let never = std::future::pending();
            assert_eq!(other.wait_for_delivery(never).now_or_never(), None, "another client has a share of its own");
        });
        assert_eq!(first.now_or_never(), Some(()));
        assert!(admission.gates().iter().all(|gate| gate.taken() == 0));
    }

    #[test]
    fn half_of_the_permits_are_reserved_for_requests_that_do_not_wait_for_a_node() {
        let admission = Admission::new(AdmissionLimits { reads: 4, ..LIMITS });
        let [one, _two] = [1, 2].map(|client| turn(&admission, client).unwrap());
        assert!(one.may_keep_permit());
        let _three = turn(&admission, 3).unwrap();
        assert!(!one.may_keep_permit());
    }
}
