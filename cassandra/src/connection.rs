//! The connection to Cassandra: the driver's session with a runtime of its own, and blocking calls to it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::ExecutionError;
use scylla::response::PagingState;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::batch::Batch as RowBatch;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Semaphore, watch};

use super::cache::Cache;
use super::connect::WRITE_TIME_MAX;
use super::errors::{error, failed, unavailable};
use super::layout::BucketLimits;
use super::options::{CassandraOptions, CassandraUrl};
use super::rows::typed;
use super::schema::Statements;
use tidewire::storage::archive::ArchiveError;

/// Time without a successful statement after which a batch fails. So a batch on slow nodes completes as long as they answer.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// As [`STALLED_AFTER`], for all calls while the engine stops. It is short, as the program may be killed if it does not end soon, but a write
/// on a node that is slow by a second or two completes.
pub(super) const STALLED_AT_STOP_AFTER: Duration = Duration::from_secs(3);

/// Maximum time of a scan of the whole archive.
const SCAN_TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Time between two checks for successful statements.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// Maximum number of concurrent statements that write.
const WRITES_IN_FLIGHT_MAX: usize = 32;

/// Maximum number of concurrent statements that read.
const READS_IN_FLIGHT_MAX: usize = 128;

/// Threads that run the driver.
const THREADS: usize = 2;

/// The reasons why a call has failed.
const TOO_LONG: &str = "it took too long";
const CLOSING: &str = "it is being closed";

/// The state that all calls share.
pub(super) struct Core {
    pub(super) session: Session,
    pub(super) statements: Statements,
    pub(super) cache: Cache,
    /// The address of the archive, for messages.
    pub(super) place: String,
    /// Time after which written data expires, in seconds. 0 for never.
    pub(super) ttl_seconds: i32,
    pub(super) buckets: BucketLimits,
    /// Maximum time for a read of a post, or of one outbox, which may take several statements.
    pub(super) read_time_max: Duration,
    reads: Semaphore,
    writes: Semaphore,
    pub(super) counters: Arc<Counters>,
}

/// Counts of statements.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) errors: AtomicU64,
    succeeded: AtomicU64,
}

impl Counters {
    fn note_success<T>(&self, done: &Result<T, ExecutionError>) {
        self.succeeded.fetch_add(u64::from(done.is_ok()), Ordering::Relaxed);
    }

    /// Returns once no statement has succeeded for this time.
    pub(super) async fn stalled(&self, time: Duration) {
        let count = || self.succeeded.load(Ordering::Relaxed);
        let (mut last, mut since) = (count(), Instant::now());
        while since.elapsed() < time {
            tokio::time::sleep(LOOK_PERIOD.min(time)).await;
            if count() != last {
                (last, since) = (count(), Instant::now());
            }
        }
    }
}

/// Whether calls may wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    Open,
    /// Calls other than scans continue while statements succeed.
    Stopping,
    /// All calls fail at once.
    Ended,
}

/// A runtime, and the stage that all calls share.
pub(super) struct Calls {
    place: String,
    handle: Handle,
    /// None once the archive is closed.
    runtime: Mutex<Option<Runtime>>,
    stage: Arc<watch::Sender<Stage>>,
    pub(super) counters: Arc<Counters>,
}

impl Calls {
    pub(super) fn new(url: &CassandraUrl) -> Result<Self, ArchiveError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("tidewire-cassandra")
            .enable_all()
            .build()
            .map_err(|cause| failed("open", &url.to_string(), cause))?;
        let handle = runtime.handle().clone();
        let stage = Arc::new(watch::Sender::new(Stage::Open));
        Ok(Self { place: url.to_string(), handle, runtime: Mutex::new(Some(runtime)), stage, counters: Arc::default() })
    }

    /// Runs a future on the runtime and waits for it, at most for this time, which includes the wait for other writes.
    pub(super) fn run<T: Send + 'static>(
        &self,
        action: &'static str,
        time_max: Duration,
        future: impl Future<Output = Result<T, ArchiveError>> + Send + 'static,
    ) -> Result<T, ArchiveError> {
        let time_ends = async move {
            tokio::time::sleep(time_max).await;
            TOO_LONG
        };
        self.run_until(action, time_ends, future)
    }

    /// As [`Self::run`], for a scan of the whole archive: it fails as soon as the engine stops.
    pub(super) fn run_scan<T: Send + 'static>(
        &self,
        action: &'static str,
        future: impl Future<Output = Result<T, ArchiveError>> + Send + 'static,
    ) -> Result<T, ArchiveError> {
        let stage = Arc::clone(&self.stage);
        let time_ends = async move {
            match tokio::time::timeout(SCAN_TIME_MAX, entered(&stage, Stage::Stopping)).await {
                Ok(()) => CLOSING,
                Err(_) => TOO_LONG,
            }
        };
        self.run_until(action, time_ends, future)
    }

    /// Fails if the engine stops. For a scan that makes many calls.
    pub(super) fn check_open(&self, action: &'static str) -> Result<(), ArchiveError> {
        if *self.stage.borrow() == Stage::Open { Ok(()) } else { Err(unavailable(action, &self.place, CLOSING)) }
    }

    /// As [`Self::run`], for a batch: it may take as long as statements succeed. Statements of other calls count as well, but a statement
    /// that hangs fails by itself, and ends the batch.
    pub(super) fn run_batch<T: Send + 'static>(
        &self,
        action: &'static str,
        future: impl Future<Output = Result<T, ArchiveError>> + Send + 'static,
    ) -> Result<T, ArchiveError> {
        self.run_stalling(action, STALLED_AFTER, future)
    }

    /// Runs a future on the runtime and waits for it, until no statement has succeeded for this time.
    fn run_stalling<T: Send + 'static>(
        &self,
        action: &'static str,
        stalled_after: Duration,
        future: impl Future<Output = Result<T, ArchiveError>> + Send + 'static,
    ) -> Result<T, ArchiveError> {
        let counters = Arc::clone(&self.counters);
        let time_ends = async move {
            counters.stalled(stalled_after).await;
            TOO_LONG
        };
        self.run_until(action, time_ends, future)
    }

    /// Runs a future on the runtime and waits for it, at most until the future `time_ends` returns the reason to give up.
    fn run_until<T: Send + 'static>(
        &self,
        action: &'static str,
        time_ends: impl Future<Output = &'static str> + Send + 'static,
        future: impl Future<Output = Result<T, ArchiveError>> + Send + 'static,
    ) -> Result<T, ArchiveError> {
        let why = |why: &str| unavailable(action, &self.place, why);
        if *self.stage.borrow() == Stage::Ended || self.runtime.lock().is_none() {
            return Err(why(CLOSING));
        }
        let end = end(Arc::clone(&self.stage), Arc::clone(&self.counters));
        let (sender, answer) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            let (future, time_ends, end) = (std::pin::pin!(future), std::pin::pin!(time_ends), std::pin::pin!(end));
            let outcome = match select(future, select(time_ends, end)).await {
                Either::Left((outcome, _)) => Ok(outcome),
                Either::Right((Either::Left((reason, _)), _)) => Err(reason),
                Either::Right((Either::Right(_), _)) => Err(CLOSING),
            };
            let _ = sender.send(outcome);
        });
        match answer.recv() {
            Ok(outcome) => outcome.unwrap_or_else(|cause| Err(why(cause))),
            // The runtime was shut down, and has dropped the future.
            Err(_) => Err(why(CLOSING)),
        }
    }

    /// Makes scans fail, and other calls once no statement succeeds any more, now and later.
    pub(super) fn stop_waiting(&self) {
        advance(&self.stage, Stage::Stopping);
    }

    /// Shuts the runtime down without waiting for it: the caller may be a thread of another runtime.
    pub(super) fn close(&self) {
        advance(&self.stage, Stage::Ended);
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns when a call has to end because of the stage. A call that stalls while the engine stops ends all others: each of them would stall as
/// well.
async fn end(stage: Arc<watch::Sender<Stage>>, counters: Arc<Counters>) {
    entered(&stage, Stage::Stopping).await;
    select(std::pin::pin!(counters.stalled(STALLED_AT_STOP_AFTER)), std::pin::pin!(entered(&stage, Stage::Ended)))
        .await;
    advance(&stage, Stage::Ended);
}

/// Returns once this stage, or a later one, was entered.
async fn entered(stage: &watch::Sender<Stage>, wanted: Stage) {
    // The wait cannot fail, as the sender exists.
    drop(stage.subscribe().wait_for(|stage| *stage >= wanted).await);
}

/// Enters a stage, unless a later one was entered.
fn advance(stage: &watch::Sender<Stage>, to: Stage) {
    stage.send_if_modified(|stage| std::mem::replace(stage, to.max(*stage)) < to);
}

impl Core {
    pub(super) fn new(
        session: Session,
        statements: Statements,
        options: &CassandraOptions,
        buckets: BucketLimits,
        counters: Arc<Counters>,
    ) -> Self {
        let ttl_seconds = options.ttl_seconds.map_or(0, |seconds| i32::try_from(seconds.get()).unwrap_or(i32::MAX));
        Self {
            session,
            statements,
            cache: Cache::new(options.cache_bytes),
            place: options.url.to_string(),
            ttl_seconds,
            buckets,
            read_time_max: options.read_time_max,
            reads: Semaphore::new(READS_IN_FLIGHT_MAX),
            writes: Semaphore::new(WRITES_IN_FLIGHT_MAX),
            counters,
        }
    }

    /// Runs a statement that reads.
    pub(super) async fn read(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult, ArchiveError> {
        // The semaphore is never closed. Without a permit the read would run anyway.
        let _permit = self.reads.acquire().await.ok();
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        let done = self.session.execute_unpaged(statement, values).await;
        self.counters.note_success(&done);
        done.map_err(|cause| self.error("read", &cause))
    }

    /// Reads a page of rows, and returns the start of the next page if there may be one.
    pub(super) async fn read_page(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        from: PagingState,
    ) -> Result<(QueryResult, Option<PagingState>), ArchiveError> {
        let _permit = self.reads.acquire().await.ok();
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        let done = self.session.execute_single_page(statement, values, from).await;
        self.counters.note_success(&done);
        let (page, next) = done.map_err(|cause| self.error("read", &cause))?;
        Ok((page, next.into_paging_control_flow().continue_value()))
    }

    /// Returns true if a compare-and-set was applied, and false if the stored value was another one.
    pub(super) fn is_applied(&self, done: QueryResult) -> Result<bool, ArchiveError> {
        let row = self.first_row::<Row>(done)?;
        match row.as_ref().and_then(|row| row.columns.first()) {
            Some(Some(CqlValue::Boolean(is_applied))) => Ok(*is_applied),
            _ => Err(self.damaged("a compare-and-set has no outcome")),
        }
    }

    /// Runs a statement that writes.
    pub(super) async fn write(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult, ArchiveError> {
        let _permit = self.writes.acquire().await.ok();
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        let done = self.session.execute_unpaged(statement, values).await;
        self.counters.note_success(&done);
        done.map_err(|cause| self.error("write to", &cause))
    }

    /// Writes rows of one partition together.
    pub(super) async fn write_rows(
        &self,
        statement: &PreparedStatement,
        rows: Vec<impl SerializeRow>,
    ) -> Result<(), ArchiveError> {
        if let [row] = &rows[..] {
            return self.write(statement, row).await.map(drop);
        }
        let mut batch = RowBatch::new(scylla::statement::batch::BatchType::Unlogged);
        batch.set_is_idempotent(true);
        batch.set_consistency(Consistency::LocalQuorum);
        batch.set_request_timeout(Some(WRITE_TIME_MAX));
        rows.iter().for_each(|_| batch.append_statement(statement.clone()));
        let _permit = self.writes.acquire().await.ok();
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        let done = self.session.batch(&batch, rows).await;
        self.counters.note_success(&done);
        done.map(drop).map_err(|cause| self.error("write to", &cause))
    }

    pub(super) fn error(&self, action: &'static str, cause: &ExecutionError) -> ArchiveError {
        self.counters.errors.fetch_add(1, Ordering::Relaxed);
        error(action, &self.place, cause)
    }

    /// Returns the error for a row that no version writes.
    pub(super) fn damaged(&self, what: impl std::fmt::Display) -> ArchiveError {
        self.counters.errors.fetch_add(1, Ordering::Relaxed);
        ArchiveError::Damaged { place: self.place.clone(), what: what.to_string() }
    }

    /// Returns the rows of an answer.
    pub(super) fn rows<T: for<'a> DeserializeRow<'a, 'a>>(&self, found: QueryResult) -> Result<Vec<T>, ArchiveError> {
        typed(found).map_err(|cause| self.damaged(cause))
    }

    /// Returns the first row of an answer, if it has rows.
    pub(super) fn first_row<T: for<'a> DeserializeRow<'a, 'a>>(
        &self,
        found: QueryResult,
    ) -> Result<Option<T>, ArchiveError> {
        Ok(self.rows(found)?.into_iter().next())
    }

    /// Reads all rows that a statement finds, and passes them to `each` page by page.
    pub(super) async fn each_page<T: for<'a> DeserializeRow<'a, 'a>>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        mut each: impl FnMut(Vec<T>) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let mut paging = Some(PagingState::start());
        while let Some(at) = paging {
            let (page, next) = self.read_page(statement, &values, at).await?;
            each(self.rows(page)?)?;
            paging = next;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn calls() -> Calls {
        Calls::new(&"cassandra://127.0.0.1:1/feeds".parse().unwrap()).unwrap()
    }

    #[test]
    #[ignore = "takes 20 s of real time"]
    fn a_batch_continues_while_statements_succeed_and_ends_when_none_does() {
        let calls = calls();
        // Each batch runs six statements, one after the other. The first `succeed` statements succeed, and the others fail.
        let batch = |each: Duration, succeed: u32| {
            let counters = Arc::clone(&calls.counters);
            async move {
                for nth in 0..6 {
                    tokio::time::sleep(each).await;
                    counters.note_success(&if nth < succeed { Ok(()) } else { Err(ExecutionError::EmptyPlan) });
                }
                Ok(())
            }
        };
        let patience = Duration::from_millis(500);
        for (succeed, is_done) in [(6, true), (1, false)] {
            let began = Instant::now();
            let done = calls.run_stalling("write to", patience, batch(patience / 2, succeed));
            assert_eq!(done.is_ok(), is_done, "{done:?}");
            assert!(is_done || began.elapsed() < 4 * patience, "{:?}", began.elapsed());
        }
        calls.stop_waiting();
        calls.run_batch("write to", batch(STALLED_AT_STOP_AFTER / 2, 6)).unwrap();
        // The first batch that stalls ends those after it as well.
        let began = Instant::now();
        for succeed in [1, 6, 6] {
            let ended = calls.run_batch("write to", batch(STALLED_AT_STOP_AFTER / 2, succeed)).unwrap_err();
            assert!(ended.to_string().ends_with("it is being closed"), "{ended}");
            calls.stop_waiting();
        }
        assert!(began.elapsed() < 2 * STALLED_AT_STOP_AFTER, "{:?}", began.elapsed());
        calls.close();
    }

    #[test]
    fn a_scan_ends_as_soon_as_the_engine_stops_while_other_calls_continue() {
        let calls = calls();
        let scan = |text: &'static str| async move { Ok(text) };
        assert_eq!(calls.run_scan("count", scan("all")).unwrap(), "all");
        calls.check_open("rewrite").unwrap();
        let (starts, started) = mpsc::channel();
        let ended = std::thread::scope(|scope| {
            let endless = async move {
                let _ = starts.send(());
                std::future::pending::<Result<(), _>>().await
            };
            let scanning = scope.spawn(|| calls.run_scan("rewrite", endless));
            started.recv().unwrap();
            calls.stop_waiting();
            scanning.join().unwrap()
        });
        let expected =
            "the archive cassandra://127.0.0.1:1/feeds is unavailable: failed to rewrite it: it is being closed";
        for ended in [ended, calls.check_open("rewrite"), calls.run_scan("rewrite", std::future::pending())] {
            assert_eq!(ended.unwrap_err().to_string(), expected);
        }
        assert_eq!(calls.run("read", Duration::MAX, scan("a post")).unwrap(), "a post");
    }

    #[test]
    fn an_abandoned_call_reports_the_action_and_the_cause() {
        let calls = calls();
        let text = |action| {
            let given_up = calls.run(action, Duration::ZERO, std::future::pending::<Result<(), _>>());
            given_up.unwrap_err().to_string()
        };
        let expected =
            |what: &str| format!("the archive cassandra://127.0.0.1:1/feeds is unavailable: failed to {what}");
        assert_eq!(text("write to"), expected("write to it: it took too long"));
        assert_eq!(text("list the ids of"), expected("list the ids of it: it took too long"));
        calls.close();
        assert_eq!(text("read"), expected("read it: it is being closed"));
    }
}
