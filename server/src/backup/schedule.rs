//! The thread that runs backups at intervals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tracing::{info, warn};

use crate::backup::cluster::ClusterSource;
use crate::backup::figures::{BackupFigures, BackupRun};
use crate::backup::run::Backups;
use crate::backup::{BackupError, BackupOptions, start};
use tidewire::engine::Engine;
use tidewire::storage::sequence::Sequence;

/// Maximum time after a failed run until the next one.
const RETRY: Duration = Duration::from_secs(60);

/// Maximum number of times that the wait doubles after further failures.
const RETRY_DOUBLINGS_MAX: u32 = 6;

/// Interval between checks for an erasure that waits for a run.
const POLL_PERIOD: Duration = Duration::from_secs(1);

/// Maximum time to wait for a run in progress when the server stops. A request to a store that does not answer takes longer.
const STOP_MAX: Duration = Duration::from_secs(5);

/// A thread that runs backups. It ends when this is dropped.
pub struct BackupThread {
    stop: Option<Sender<()>>,
    stopping: Arc<AtomicBool>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl BackupThread {
    /// Starts backups of an engine, which may be a node of a cluster. The first run begins at once.
    ///
    /// # Errors
    /// Fails if the engine has no data directory, a node's store has the backups of another cluster, or the thread cannot be started. If
    /// the store cannot be used, the thread retries, as after every failed run.
    pub fn start(
        engine: &Engine,
        cluster: Option<ClusterSource>,
        options: BackupOptions,
        figures: &Arc<BackupFigures>,
    ) -> Result<Self, BackupError> {
        if cluster.is_none() {
            // Retain the whole journal until the store is read.
            engine.keep_journal_after(Some(Sequence(0)));
        }
        let stopping = Arc::<AtomicBool>::default();
        let identity = engine.data_files().and_then(|files| files.identity()).ok_or(BackupError::NoDataDirectory)?;
        if cluster.is_some() {
            // On one machine, this was checked before the data directory was written.
            start::check_owner(&options.to, identity)?;
        }
        figures.begin(options.every, engine.shared().clock.now());
        let (stop, stopped) = crossbeam_channel::bounded(0);
        let (end, ended) = crossbeam_channel::bounded(0);
        let opening = Opening {
            engine: engine.clone(),
            cluster,
            options,
            figures: Arc::clone(figures),
            stopping: Arc::clone(&stopping),
            backups: None,
        };
        let thread = thread::Builder::new().name("tidewire-backup".to_owned()).spawn(move || {
            run(opening, &stopped);
            // Release the engine before reporting the end.
            drop(end);
        });
        let thread = thread.map_err(BackupError::file("start", "the backup thread"))?;
        Ok(Self { stop: Some(stop), stopping, ended, thread: Some(thread) })
    }
}

/// Backups of a store, which is opened as soon as it can be used.
struct Opening {
    engine: Engine,
    cluster: Option<ClusterSource>,
    options: BackupOptions,
    figures: Arc<BackupFigures>,
    stopping: Arc<AtomicBool>,
    backups: Option<Backups>,
}

impl Opening {
    fn open(&self) -> Result<Backups, BackupError> {
        let (options, figures, stopping) =
            (self.options.clone(), Arc::clone(&self.figures), Arc::clone(&self.stopping));
        let opened = Backups::new(self.engine.clone(), options, figures, stopping)?;
        Ok(match self.cluster.clone() {
            Some(cluster) => opened.of_cluster(cluster),
            None => opened,
        })
    }

    fn run(&mut self) -> Result<(), BackupError> {
        let started_at = self.engine.shared().clock.now();
        let (began, sent_before) = (Instant::now(), self.figures.sent_bytes.load(Ordering::Relaxed));
        let ran = match &mut self.backups {
            Some(backups) => backups.run(),
            None => match self.open() {
                Ok(opened) => self.backups.insert(opened).run(),
                Err(cause) => {
                    self.figures.failures.fetch_add(1, Ordering::Relaxed);
                    Err(cause)
                }
            },
        };
        if matches!(ran, Err(BackupError::Stopping)) {
            return ran;
        }
        // Record the run before `is_failing`, so that readers of the flag find the failed run.
        self.figures.ended(BackupRun {
            started_at,
            took: began.elapsed(),
            sent_bytes: self.figures.sent_bytes.load(Ordering::Relaxed) - sent_before,
            error: ran.as_ref().err().map(ToString::to_string),
        });
        self.figures.is_failing.store(ran.is_err(), Ordering::Release);
        ran
    }

    fn is_wanted(&self) -> bool {
        self.backups.as_ref().is_some_and(Backups::is_wanted)
    }
}

fn run(mut backups: Opening, stopped: &Receiver<()>) {
    let mut failures = 0;
    loop {
        let began = Instant::now();
        let every = backups.options.every;
        let wait = match backups.run() {
            Ok(()) => {
                failures = 0;
                every
            }
            Err(BackupError::Stopping) => return,
            Err(cause) => {
                // Each attempt may take a snapshot.
                let wait = every.min(RETRY.saturating_mul(1 << failures.min(RETRY_DOUBLINGS_MAX)));
                failures += 1;
                warn!("backup failed; retrying in {wait:.0?}: {cause}");
                wait
            }
        };
        // Wait at least one interval, so that a store that fails at once is not retried in a busy loop.
        loop {
            match stopped.recv_timeout(POLL_PERIOD.min(wait)) {
                Err(RecvTimeoutError::Timeout) if began.elapsed() >= wait || backups.is_wanted() => break,
                Err(RecvTimeoutError::Timeout) => {}
                _ => return,
            }
        }
    }
}

impl Drop for BackupThread {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        drop(self.stop.take());
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(STOP_MAX) {
            info!("the backup store does not answer; abandoning the run, which the next start continues");
            return;
        }
        if let Some(thread) = self.thread.take() {
            // The panic of a thread is already logged.
            let _ = thread.join();
        }
    }
}
