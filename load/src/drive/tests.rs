//! Tests of the run loop with a mock: no test waits for a server or asserts a speed.
#![cfg(test)]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::pacer::Pacer;
use super::{Pace, Plan, Run, run};
use crate::operation::{Kind, User};
use crate::target::mock::{Fault, Mock, Stall};
use crate::target::{Client, Failure, Later, Target};
use crate::workload::{Mix, Workload};
use crate::world::generated::Recipe;

const SHORT: Duration = Duration::from_millis(60);

fn workload(mix: &str) -> Arc<Workload> {
    let recipe = Recipe {
        users: 50,
        authors: 5,
        mean_followers: 10,
        most_followers: 20,
        exponent: 0.5,
        active_share: 1.0,
        seed: 1,
    };
    let (world, mix) = (Arc::new(recipe.make()), Mix::named(mix).unwrap());
    Arc::new(Workload::new(world, mix, (0.0, 0.0), Arc::default(), 1))
}

fn plan(pace: Pace) -> Plan {
    let some = |count| NonZeroUsize::new(count).unwrap();
    Plan { clients: some(6), threads: some(2), pace, retry_refused: false, first_client: 0 }
}

fn run_on(mock: &Mock, mix: &str, plan: &Plan) -> Run {
    let target: Arc<dyn Target> = Arc::new(mock.clone());
    run(&target, &workload(mix), plan, &|_| {}).unwrap()
}

#[test]
#[ignore = "measures real time, in which every client has to be scheduled"]
fn a_closed_loop_counts_operations_after_the_warm_up() {
    let mock = Mock::blind(None);
    let ran = run_on(&mock, "publish", &plan(Pace::Closed { warm_up: SHORT, lasts: SHORT }));
    let done = ran.record.operations();
    assert!(done > 0 && done < mock.asked(), "{done} of {}", mock.asked());
    assert_eq!(ran.record.latencies[&Kind::Publish].len(), done);
    // Authors have 10 followers on average, and all of them are active.
    let each = ran.record.deliveries as f64 / done as f64;
    assert!((5.0..15.0).contains(&each), "{each}");
    assert_eq!((ran.record.failed, ran.record.refused, ran.lasted), (0, 0, SHORT));
}

#[test]
fn an_open_loop_does_each_operation_once() {
    let mock = Mock::blind(None);
    let ran = run_on(&mock, "page", &plan(Pace::open(Pacer::steady(2_000.0, 2 * SHORT), Duration::ZERO)));
    assert_eq!((ran.record.operations(), mock.asked(), ran.lateness.len()), (240, 240, 240));
}

#[test]
fn an_open_loop_is_warmed_up_by_operations_that_do_not_count() {
    let mock = Mock::blind(None);
    let ran = run_on(&mock, "page", &plan(Pace::open(Pacer::steady(2_000.0, 2 * SHORT), SHORT)));
    assert_eq!((ran.record.operations(), mock.asked(), ran.lateness.len()), (240, 360, 240));
    assert_eq!(ran.planned, 2 * SHORT);
}

#[test]
#[ignore = "measures real time, in which every client has to be scheduled"]
fn a_stall_that_ends_with_the_warm_up_is_not_counted() {
    let stall = Stall { from: Duration::ZERO, until: 2 * SHORT };
    let pace = Pace::open(Pacer::steady(1_000.0, 2 * SHORT), 3 * SHORT);
    let ran = run_on(&Mock::blind(Some(stall)), "page", &plan(pace));
    let latencies = &ran.record.latencies[&Kind::Page];
    assert_eq!(latencies.len(), 120);
    assert!(latencies.value_at_quantile(0.5) < SHORT.as_nanos() as u64, "{}", latencies.value_at_quantile(0.5));
}

#[test]
#[ignore = "measures real time, in which every client has to be scheduled"]
fn a_run_reports_its_progress() {
    let reported = std::cell::RefCell::new(Vec::new());
    let target: Arc<dyn Target> = Arc::new(Mock::blind(None));
    let closed = plan(Pace::Closed { warm_up: SHORT, lasts: 10 * SHORT });
    run(&target, &workload("page"), &closed, &|share| reported.borrow_mut().push(share)).unwrap();
    let reported = reported.into_inner();
    assert!(
        !reported.is_empty() && reported.is_sorted() && reported.iter().all(|share| (0.3..=1.5).contains(share)),
        "{reported:?}"
    );
}

/// Six clients that wait for their answers send only six requests to a server that stalls. Measured from the intended times, all
/// operations that the stall delayed have a high latency.
#[test]
#[ignore = "measures real time, in which every client has to be scheduled"]
fn a_stall_counts_in_the_latency_of_every_delayed_operation() {
    let stall = Stall { from: Duration::ZERO, until: 4 * SHORT };
    let ran =
        run_on(&Mock::blind(Some(stall)), "page", &plan(Pace::open(Pacer::steady(1_000.0, 2 * SHORT), Duration::ZERO)));
    let latencies = &ran.record.latencies[&Kind::Page];
    assert_eq!(latencies.len(), 120);
    assert!(latencies.value_at_quantile(0.1) > SHORT.as_nanos() as u64, "{}", latencies.value_at_quantile(0.1));
}

#[test]
fn refused_operations_are_counted_and_retried_on_request() {
    let open = plan(Pace::open(Pacer::steady(1_000.0, SHORT), Duration::ZERO));
    let once = run_on(&Mock::with_fault(Some(Fault::RefusesHalf)), "page", &open);
    assert_eq!((once.record.operations(), once.record.refused, once.record.failed), (30, 30, 30));
    let again = run_on(&Mock::with_fault(Some(Fault::RefusesHalf)), "page", &Plan { retry_refused: true, ..open });
    assert_eq!((again.record.operations(), again.record.failed), (60, 0));
    assert!(again.record.refused > 0);
}

#[test]
fn failures_are_counted_and_the_first_is_reported() {
    let open = plan(Pace::open(Pacer::steady(1_000.0, SHORT), Duration::ZERO));
    let ran = run_on(&Mock::with_fault(Some(Fault::FailsNow)), "page", &open);
    assert_eq!((ran.record.operations(), ran.record.failed), (0, 60));
    assert_eq!(ran.record.first_failure.as_deref(), Some("the mock is broken"));
}

#[test]
fn recorded_posts_are_published_by_their_authors() {
    let recorded = Pacer::recorded(&[(0, 1), (20, 2), (40, 1)], 2.0, 4);
    let ran = run_on(&Mock::blind(None), "page", &plan(Pace::open(recorded, Duration::ZERO)));
    assert_eq!((ran.record.done[&Kind::Publish], ran.record.done[&Kind::Page]), (3, 12));
}

/// A server that accepts no clients.
struct Closed;

impl Target for Closed {
    fn name(&self) -> &'static str {
        "closed"
    }

    fn settings(&self) -> Vec<String> {
        Vec::new()
    }

    fn open(&self) -> Later<'_, Result<Box<dyn Client>, Failure>> {
        Box::pin(async { Err(Failure::Failed("nobody listens".to_owned())) })
    }

    fn load_follows<'a>(&'a self, _: &'a [(User, User)]) -> Later<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn activate<'a>(&'a self, _: &'a [User]) -> Later<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn process(&self) -> Option<u32> {
        None
    }
}

#[test]
fn a_run_fails_at_once_if_the_server_accepts_no_clients() {
    let target: Arc<dyn Target> = Arc::new(Closed);
    let closed = plan(Pace::Closed { warm_up: SHORT, lasts: SHORT });
    let message = run(&target, &workload("page"), &closed, &|_| {}).unwrap_err().to_string();
    assert_eq!(message, "nobody listens");
}

#[test]
#[ignore = "measures real time, in which every client has to be scheduled"]
fn a_run_undoes_its_follows_at_the_end() {
    let mock = Mock::with_fault(None);
    let target: Arc<dyn Target> = Arc::new(mock.clone());
    let workload = workload("pequod");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(target.load_follows(&workload.world().edges())).unwrap();
    let before = mock.edges();
    let ran = run(&target, &workload, &plan(Pace::Closed { warm_up: SHORT, lasts: SHORT }), &|_| {}).unwrap();
    assert!(ran.record.done[&Kind::Follow] > 0);
    assert_eq!(mock.edges(), before);
}

#[test]
fn an_unresponsive_server_ends_the_run_and_is_named() {
    let long = Duration::from_secs(3_600);
    for pace in [Pace::Closed { warm_up: SHORT, lasts: long }, Pace::open(Pacer::steady(1_000.0, long), SHORT)] {
        let target: Arc<dyn Target> = Arc::new(Mock::with_fault(Some(Fault::Silent)));
        let message = run(&target, &workload("page"), &plan(pace), &|_| {}).unwrap_err().to_string();
        assert_eq!(message, "mock: feed page: the mock: no answer within 30s");
    }
}
