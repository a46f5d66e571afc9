//! Counts unread entries for a live connection whose client requests it.
//!
//! A count begins after an event that may change the number, and at most once in a period. It equals that of `GET
//! /v1/users/{user}/marker`. The process limits the number of concurrent counts, and others wait for a permit, because a post with many
//! followers outdates the counts of all their live connections at once.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::rt::time::{Sleep, sleep};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use tidewire::engine::{Engine, Unread};
use tidewire::error::Error;
use tidewire::id::SourceId;
use tidewire::live::event::EventKind;

/// Minimum time between two counts. A random part of up to the same length is added, so that connections do not count at the same time
/// forever.
const PERIOD: Duration = Duration::from_secs(1);

/// Counts unread entries of a reader.
pub(super) struct UnreadCount {
    engine: Engine,
    reader: SourceId,
    permits: Arc<Semaphore>,
    state: State,
    /// True if an event since the beginning of the last count may have changed the number.
    is_outdated: Arc<AtomicBool>,
    /// The last count that was sent to the client.
    told: Option<(usize, bool, bool)>,
}

enum State {
    /// A count may begin.
    Idle,
    /// A count waits for its permit or is in progress.
    Counting(Counting),
    /// The period after a count is not over.
    Pausing(Pin<Box<Sleep>>),
}

/// A count as a separate task. A connection is not polled while its client does not read, and must not hold a permit then.
struct Counting(JoinHandle<Result<Unread, Error>>);

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl UnreadCount {
    /// Creates the count for a connection. Each count in progress holds one of `permits`.
    pub(super) fn new(engine: Engine, reader: SourceId, permits: Arc<Semaphore>) -> Self {
        Self { engine, reader, permits, state: State::Idle, is_outdated: Arc::default(), told: None }
    }

    /// Notes a message to the client, which may outdate the count.
    pub(super) fn note(&mut self, event: &EventKind) {
        if !matches!(event, EventKind::Beat | EventKind::Update(_)) {
            self.is_outdated.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the count if it differs from the last one that was sent to the client.
    pub(super) fn poll_changed(&mut self, task: &mut Context<'_>) -> Poll<Unread> {
        loop {
            match &mut self.state {
                State::Idle if !self.is_outdated.load(Ordering::Relaxed) => return Poll::Pending,
                State::Idle => self.state = State::Counting(self.count()),
                State::Counting(Counting(counting)) => {
                    let Poll::Ready(counted) = Pin::new(counting).poll(task) else { return Poll::Pending };
                    self.state = State::Pausing(Box::pin(sleep(pause())));
                    match counted {
                        Ok(Ok(count)) => {
                            let told = Some((count.entries, count.capped, count.complete));
                            if std::mem::replace(&mut self.told, told) != told {
                                // Makes the connection poll the pause.
                                task.waker().wake_by_ref();
                                return Poll::Ready(count);
                            }
                        }
                        // For example, a queue is full.
                        Ok(Err(_)) | Err(_) => self.is_outdated.store(true, Ordering::Relaxed),
                    }
                }
                State::Pausing(pause) => {
                    if pause.as_mut().poll(task).is_pending() {
                        return Poll::Pending;
                    }
                    self.state = State::Idle;
                }
            }
        }
    }

    fn count(&self) -> Counting {
        let (engine, reader) = (self.engine.clone(), self.reader.clone());
        let (permits, is_outdated) = (Arc::clone(&self.permits), Arc::clone(&self.is_outdated));
        Counting(tokio::spawn(async move {
            // The permits are never closed.
            let _permit = permits.acquire_owned().await.ok();
            // The count includes all events that occurred while it waited.
            is_outdated.store(false, Ordering::Relaxed);
            engine.unread(&reader).await
        }))
    }
}

/// Returns the time until the next count.
fn pause() -> Duration {
    PERIOD + PERIOD.mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tidewire::config::EngineConfig;

    use super::*;

    fn counts(number: usize, permits: &Arc<Semaphore>) -> (Engine, Vec<UnreadCount>) {
        let engine = Engine::start(EngineConfig::default());
        let count = |nth| UnreadCount::new(engine.clone(), format!("r{nth}").parse().unwrap(), Arc::clone(permits));
        let mut counts: Vec<_> = (0..number).map(count).collect();
        counts.iter_mut().for_each(|count| count.note(&EventKind::Stale(None)));
        (engine, counts)
    }

    /// Waits until the engine has counted and the client can get the number.
    async fn told(count: &mut UnreadCount) {
        testkit::in_time("the number is told", poll_fn(|task| count.poll_changed(task))).await;
    }

    async fn is_pending(count: &mut UnreadCount) -> bool {
        poll_fn(|task| Poll::Ready(count.poll_changed(task))).await.is_pending()
    }

    #[tokio::test]
    async fn a_pending_count_includes_events_that_arrive_while_it_waits() {
        let permits = Arc::new(Semaphore::new(1));
        let (engine, mut counts) = counts(1, &permits);
        let busy = Arc::clone(&permits).acquire_owned().await.unwrap();
        assert!(is_pending(&mut counts[0]).await, "a count without a permit");
        counts[0].note(&EventKind::Stale(None));
        drop(busy);
        told(&mut counts[0]).await;
        assert!(!counts[0].is_outdated.load(Ordering::Relaxed));
        assert_eq!(permits.available_permits(), 1);
        engine.shutdown();
    }

    #[tokio::test]
    async fn neither_a_stalled_nor_a_disconnected_client_holds_a_permit() {
        let permits = Arc::new(Semaphore::new(1));
        let (engine, mut counts) = counts(3, &permits);
        for count in &mut counts {
            // Each count requests the permit, and only the last one is polled again.
            assert!(is_pending(count).await);
        }
        drop(counts.remove(1));
        // A connection that is not polled does not hold the permit.
        told(&mut counts[1]).await;
        assert_eq!(permits.available_permits(), 1);
        engine.shutdown();
    }

    #[test]
    fn pauses_between_counts_are_spread_randomly() {
        let pauses: std::collections::BTreeSet<_> = (0..100).map(|_| pause()).collect();
        assert!(pauses.len() > 50, "{pauses:?}");
        assert!(pauses.iter().all(|pause| (PERIOD..=2 * PERIOD).contains(pause)), "{pauses:?}");
    }
}
