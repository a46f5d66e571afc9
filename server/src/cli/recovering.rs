//! Reports the progress of a recovery on the terminal or in the log, and to the service manager.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use indicatif::HumanBytes;
use tracing::info;

use crate::cli::terminal;
use crate::http::engine_cell::EngineCell;
use crate::service_manager;
use tidewire::recovery::RecoveryProgress;

/// Interval between two progress messages. A shorter recovery reports nothing.
const PERIOD: Duration = Duration::from_secs(1);

/// Runs a recovery, and reports its progress at the same time.
///
/// # Errors
/// Fails if the recovery panics.
pub(super) fn reported<T>(cell: &EngineCell, recover: impl FnOnce() -> T) -> Result<T, &'static str> {
    let (recovering, ended) = crossbeam_channel::bounded(0);
    let waiting = cell.clone();
    let reporting = thread::spawn(move || report(waiting.progress(), &ended));
    let recovered = panic::catch_unwind(AssertUnwindSafe(recover));
    drop(recovering);
    // Wait until the progress line is removed before anything else is printed.
    let _ = reporting.join();
    recovered.map_err(|_| "recovery crashed")
}

/// Reports the progress until the sender of `ended` is dropped, once a second: as one moving line on a terminal, otherwise in the log if it has
/// changed.
fn report(progress: &RecoveryProgress, ended: &Receiver<()>) {
    let line = terminal::changing_line();
    report_every(PERIOD, progress, ended, |message, is_new| {
        line.set_message(message.to_owned());
        line.tick();
        if is_new {
            service_manager::status(message);
        }
        if is_new && line.is_hidden() {
            info!("{message}");
        }
    });
    line.finish_and_clear();
}

fn report_every(
    period: Duration,
    progress: &RecoveryProgress,
    ended: &Receiver<()>,
    mut print: impl FnMut(&str, bool),
) {
    let mut last = String::new();
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(period) {
        let message = message(progress);
        print(&message, message != last);
        last = message;
    }
}

fn message(progress: &RecoveryProgress) -> String {
    let number = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let [loaded, total] = [&progress.snapshot_bytes, &progress.snapshot_bytes_total].map(number);
    let snapshot = match total {
        0 => String::new(),
        _ => format!("{} of {} of the snapshot loaded, ", HumanBytes(loaded), HumanBytes(total)),
    };
    format!("recovering: {}: {snapshot}{} events replayed", progress.phase(), number(&progress.events))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_bytes_and_events_are_reported_until_the_recovery_ends() {
        let (progress, mut all) = (RecoveryProgress::default(), Vec::new());
        let (recovering, ended) = crossbeam_channel::bounded(0);
        let mut recovering = Some(recovering);
        progress.enter("loading the snapshot");
        report_every(Duration::from_millis(1), &progress, &ended, |message, is_new| {
            // A slow machine reports the same twice.
            if !is_new {
                return;
            }
            all.push(message.to_owned());
            match all.len() {
                1 => {
                    progress.snapshot_bytes.store(1 << 20, Ordering::Relaxed);
                    progress.snapshot_bytes_total.store(3 << 20, Ordering::Relaxed);
                }
                2 => {
                    progress.enter("replaying the journal");
                    progress.events.store(7, Ordering::Relaxed);
                }
                _ => recovering = None,
            }
        });
        let expected = [
            "recovering: loading the snapshot: 0 events replayed",
            "recovering: loading the snapshot: 1.00 MiB of 3.00 MiB of the snapshot loaded, 0 events replayed",
            "recovering: replaying the journal: 1.00 MiB of 3.00 MiB of the snapshot loaded, 7 events replayed",
        ];
        assert_eq!(all, expected);
    }
}
