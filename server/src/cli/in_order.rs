//! The path of an import from its file to the server, in the order of the file.
//!
//! There is one sender, because the meaning of a line depends on the lines before it: a repost on its original, an edge on an earlier line
//! with the same edge. Batches give the throughput that several senders would give.

use std::hash::Hash;
use std::thread;

use crossbeam_channel::{Receiver, bounded};
use indicatif::ProgressBar;

use crate::cli::client::{Client, ClientError, Refused};
use crate::cli::lines::{InputLine, Lines, ReadError};
use crate::cli::report::Report;

/// The error of an import that stopped before the end of its file.
#[derive(Debug, thiserror::Error)]
#[error("{cause}{place}")]
pub(crate) struct Stopped {
    /// The reason why it stopped. It determines the exit code.
    pub(crate) cause: StopCause,
    /// The line to continue from, as the end of a sentence. Empty if the whole file can be imported again.
    pub(crate) place: String,
}

/// The reason why an import stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StopCause {
    /// There was no usable answer.
    #[error(transparent)]
    NoAnswer(#[from] ClientError),
    /// The server refused the key, which also concerns all other lines, or the outcome of the request is unknown.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl From<StopCause> for Stopped {
    fn from(cause: StopCause) -> Self {
        Self { cause, place: String::new() }
    }
}

/// The report of one part of the import, and the error that ended it early, if any.
pub(crate) type Part<E> = (Report, Option<E>);

/// The results of reading the file and of sending.
pub(crate) type Sent = (Part<ReadError>, thread::Result<Part<Stopped>>);

/// The content of a line, as it is sent.
pub(crate) trait Item: Send {
    /// The name of the items in messages.
    const WHAT: &'static str;
    /// Maximum number of items in a request, and of items that are read ahead of the sender.
    const PER_REQUEST_MAX: usize;
    /// Maximum bytes of the items in a request.
    const REQUEST_BYTES_MAX: usize;
    /// A note about an item that occurred earlier in the file.
    const REPEATED: &'static str;

    /// The number of the line.
    fn line(&self) -> u64;

    /// Bytes of this item in a request.
    fn bytes(&self) -> usize;

    /// Returns true if the next item must be in another request.
    fn ends_batch(&self) -> bool {
        false
    }

    /// Checks the item as a server does, without its state. Returns a key that equal items have in common.
    ///
    /// # Errors
    /// The reason why a server would refuse it.
    fn check(&self) -> Result<Option<impl Hash + use<Self>>, String>;
}

/// The reason why a line cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// Only this line is refused.
    Line(String),
    /// The whole file is refused, because it has another format.
    File(String),
}

impl From<String> for Unusable {
    fn from(why: String) -> Self {
        Self::Line(why)
    }
}

/// A format of files.
pub(crate) trait Format {
    /// The content of a line.
    type Item: Item;

    /// Parses a line. Returns `None` if it contains nothing to import.
    ///
    /// # Errors
    /// If the line or the whole file cannot be used.
    fn parse(&mut self, line: InputLine, report: &mut Report) -> Result<Option<Self::Item>, Unusable>;

    /// Creates the sender of the items.
    fn sender(client: Client) -> impl SendBatch<Self::Item>;
}

/// Sends the items of one request.
pub(crate) trait SendBatch<T>: Send {
    /// Sends a batch, which is never empty, and reports the outcome of each item.
    ///
    /// # Errors
    /// If the import has to stop at this batch.
    fn send(&mut self, batch: Vec<T>, report: &mut Report) -> Result<(), Stopped>;
}

/// An item, and the number of file bytes that were read for it.
struct Read<T> {
    item: T,
    bytes: u64,
}

/// Reads all lines, and sends their items.
pub(crate) fn send_all<F: Format>(lines: &mut Lines, format: F, client: Client) -> Sent {
    let mut progress = Progress::new(lines.bar.clone(), F::Item::WHAT);
    let (queue, taken) = bounded(F::Item::PER_REQUEST_MAX);
    thread::scope(|scope| {
        let sender = F::sender(client);
        let sent = scope.spawn(move || send(Batches { taken, held: None }, sender, &mut progress));
        let read = read(lines, format, |item, bytes, _| queue.send(Read { item, bytes }).is_ok());
        drop(queue);
        (read, sent.join())
    })
}

/// Reads until the end of the file, or until `take` returns false. `take` gets each item with the number of file bytes that were read for
/// it.
pub(crate) fn read<F: Format>(
    lines: &mut Lines,
    mut format: F,
    mut take: impl FnMut(F::Item, u64, &mut Report) -> bool,
) -> Part<ReadError> {
    let mut report = Report::begin();
    while let Some(line) = lines.next() {
        let line = match line {
            Ok(line) => line,
            Err(cause) => return (report, Some(cause)),
        };
        let number = line.number;
        match format.parse(line, &mut report) {
            Ok(None) => {}
            Ok(Some(item)) => {
                if !take(item, lines.taken(), &mut report) {
                    break;
                }
            }
            Err(Unusable::Line(why)) => report.refuse(number, why),
            Err(Unusable::File(why)) => return (report, Some(lines.refused(&why))),
        }
    }
    (report, None)
}

/// Sends batches until none is left, or until the import has to stop.
fn send<T: Item>(batches: Batches<T>, mut sender: impl SendBatch<T>, progress: &mut Progress) -> Part<Stopped> {
    let mut report = Report::begin();
    for (batch, bytes) in batches {
        let before = report.done();
        if let Err(stopped) = sender.send(batch, &mut report) {
            return (report, Some(stopped));
        }
        progress.add(report.done() - before, bytes);
    }
    (report, None)
}

/// The read items, in batches.
struct Batches<T> {
    taken: Receiver<Read<T>>,
    /// An item that the last batch had no space for.
    held: Option<Read<T>>,
}

impl<T: Item> Iterator for Batches<T> {
    type Item = (Vec<T>, u64);

    /// Waits for an item, and adds the items that are already read.
    fn next(&mut self) -> Option<Self::Item> {
        let Read { item, bytes: mut file_bytes } = self.held.take().or_else(|| self.taken.recv().ok())?;
        let (mut bytes, mut batch) = (item.bytes(), vec![item]);
        while batch.len() < T::PER_REQUEST_MAX && !batch.last().is_some_and(T::ends_batch) {
            let Ok(next) = self.taken.try_recv() else { break };
            bytes += next.item.bytes();
            if bytes > T::REQUEST_BYTES_MAX {
                self.held = Some(next);
                break;
            }
            file_bytes += next.bytes;
            batch.push(next.item);
        }
        Some((batch, file_bytes))
    }
}

/// The progress of the sender of an import.
struct Progress {
    bar: ProgressBar,
    what: &'static str,
    done: usize,
}

impl Progress {
    /// Shows the number of finished items on `bar`. `what` names the items.
    fn new(bar: ProgressBar, what: &'static str) -> Self {
        Self { bar, what, done: 0 }
    }

    /// Adds finished items and the file bytes of these items.
    fn add(&mut self, count: usize, bytes: u64) {
        self.done += count;
        self.bar.inc(bytes);
        self.bar.set_message(format!("{} {}", self.done, self.what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An item of this number of bytes. An odd item ends its batch.
    impl Item for usize {
        const WHAT: &'static str = "numbers";
        const PER_REQUEST_MAX: usize = 4;
        const REQUEST_BYTES_MAX: usize = 20;
        const REPEATED: &'static str = "";

        fn line(&self) -> u64 {
            0
        }

        fn check(&self) -> Result<Option<impl Hash + use<>>, String> {
            Ok(Some(*self))
        }

        fn bytes(&self) -> usize {
            *self
        }

        fn ends_batch(&self) -> bool {
            self % 2 == 1
        }
    }

    #[test]
    fn a_batch_ends_when_it_is_full_or_nothing_more_was_read() {
        for (items, expected) in [
            (&[2, 4, 2, 4, 2][..], &[&[2, 4, 2, 4][..], &[2]][..]),
            (&[8, 12, 2], &[&[8, 12], &[2]]),
            (&[8, 14, 2], &[&[8], &[14, 2]]),
            (&[2, 3, 5, 2], &[&[2, 3], &[5], &[2]]),
            (&[90, 90], &[&[90], &[90]]),
            (&[], &[]),
        ] {
            let (queue, taken) = bounded(9);
            items.iter().for_each(|item| queue.send(Read { item: *item, bytes: 1 }).unwrap());
            drop(queue);
            let batches: Vec<_> = Batches { taken, held: None }.collect();
            assert_eq!(batches.iter().map(|(batch, _)| &batch[..]).collect::<Vec<_>>(), expected, "{items:?}");
            assert!(batches.iter().all(|(batch, bytes)| batch.len() as u64 == *bytes), "{items:?}");
        }
        let (queue, taken) = bounded(9);
        let mut batches = Batches { taken, held: None };
        queue.send(Read { item: 2, bytes: 1 }).unwrap();
        assert_eq!(batches.next(), Some((vec![2], 1)), "it does not wait for a second");
    }

    #[test]
    fn completed_items_are_counted_and_advance_the_progress_bar() {
        let bar = ProgressBar::with_draw_target(Some(10), indicatif::ProgressDrawTarget::hidden());
        let mut progress = Progress::new(bar.clone(), "edges");
        progress.add(3, 1);
        progress.add(0, 4);
        progress.add(2, 1);
        assert_eq!((bar.message(), bar.position()), ("5 edges".to_owned(), 6));
    }
}
