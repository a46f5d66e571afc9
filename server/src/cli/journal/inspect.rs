//! `tidewire journal inspect`: lists the segments of a journal and their content, even if the journal is damaged.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::journal::{event_line, open};
use crate::cli::{Outcome, terminal};
use tidewire::feed::event::Event;
use tidewire::storage::error::StorageError;
use tidewire::storage::frame::unpack;
use tidewire::storage::journal::reader;
use tidewire::storage::segment::{End, FoundEvent, Segment, SegmentRead};
use tidewire::storage::sequence::Sequence;

/// Arguments of `tidewire journal inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    /// A data directory, or one segment file
    path: PathBuf,

    /// Print every event as a line of JSON; the messages about segments go to standard error
    #[arg(long)]
    events: bool,

    /// Print each segment, and then the totals, as a line of JSON
    #[arg(long)]
    json: bool,
}

/// The totals of the segments read so far.
struct JournalTotals {
    /// The output for events, if they are printed.
    events: Option<Box<dyn Write>>,
    kinds: BTreeMap<&'static str, u64>,
    segments: u64,
    bytes: u64,
    /// The expected sequence of the next event.
    next: Option<Sequence>,
    bad: bool,
    json: bool,
}

impl Inspect {
    pub(super) fn run(self) -> Outcome {
        let files = open(&self.path)?;
        let segments = reader::segments(&files)?;
        let events = self.events.then(terminal::output);
        let mut sum = JournalTotals {
            events,
            kinds: BTreeMap::new(),
            segments: 0,
            bytes: 0,
            next: None,
            bad: false,
            json: self.json,
        };
        for (nth, (name, first)) in segments.iter().enumerate() {
            let segment = match Segment::read(&files, name, *first) {
                // A running server deleted the segment after the directory was listed.
                Err(StorageError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => continue,
                segment => segment?,
            };
            match sum.segment(&segment, nth + 1 == segments.len()) {
                Ok(()) => {}
                enough if terminal::is_enough(&enough) => return Ok(ExitCode::SUCCESS),
                Err(cause) => return Err(format!("cannot write: {cause}").into()),
            }
        }
        if sum.segments == 0 {
            return Err(format!("{} has no journal segment", self.path.display()).into());
        }
        sum.flush()?;
        sum.print_total();
        Ok(if sum.bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

impl JournalTotals {
    fn segment(&mut self, segment: &Segment, is_last: bool) -> io::Result<()> {
        if let Some(next) = self.next
            && segment.first > next
        {
            self.bad = true;
            let last = segment.first.0 - 1;
            let document = || json!({"missing": {"first": next.0, "last": last}});
            self.report(document, || format!("no segment contains events {next} to {last}"));
        }
        let walk = segment.walk(|found| self.event(segment, found))?;
        let (events, bytes) = (walk.next.0.saturating_sub(segment.first.0), walk.good_bytes + walk.rest_bytes);
        self.segments += 1;
        self.bytes += bytes;
        self.next = Some(walk.next);
        let range = match events {
            0 => format!("no events, the first would be {}", segment.first),
            _ => format!("events {} to {}", segment.first, walk.next.0 - 1),
        };
        let of = segment.identity().map_or(String::new(), |identity| format!(", of the data directory {identity}"));
        let is_bad = !matches!((&walk.end, is_last), (End::Whole, _) | (End::Torn, true));
        self.bad |= is_bad;
        let document = || {
            json!({
                "segment": segment.place,
                "first": segment.first.0,
                "events": events,
                "bytes": bytes,
                "good": !is_bad,
                "end": ending(&walk, is_last),
                "identity": segment.identity().map(|identity| identity.to_string()),
            })
        };
        self.report(document, || format!("{}: {range}, {bytes} bytes, {}{of}", segment.place, ending(&walk, is_last)));
        Ok(())
    }

    fn event(&mut self, segment: &Segment, found: FoundEvent<'_>) -> io::Result<()> {
        let event = unpack::<Event>(found.payload);
        let line = match (&event, &self.events) {
            (Ok(event), Some(_)) => event_line::line(found.sequence, event),
            (Ok(_), None) => Ok(String::new()),
            (Err(cause), _) => Err(cause.clone()),
        };
        let kind = event.as_ref().map_or("unreadable", Event::stored_name);
        *self.kinds.entry(kind).or_default() += 1;
        match (line, &mut self.events) {
            (Err(cause), _) => {
                self.bad = true;
                let FoundEvent { offset_bytes, sequence, .. } = found;
                let document = || json!({"unreadable": {"segment": segment.place, "sequence": sequence.0, "byte": offset_bytes, "error": cause}});
                self.report(document, || {
                    format!("{}: event {sequence} at byte {offset_bytes}: {cause}", segment.place)
                });
                Ok(())
            }
            (Ok(line), Some(out)) => writeln!(out, "{line}"),
            (Ok(_), None) => Ok(()),
        }
    }

    fn print_total(&self) {
        let events: u64 = self.kinds.values().sum();
        if self.json {
            let Self { segments, bytes, kinds, bad, .. } = self;
            let total = json!({"segments": segments, "bytes": bytes, "events": events, "kinds": kinds, "good": !bad});
            return self.print(&total.to_string());
        }
        self.print(&format!("segments: {}, bytes: {}, events: {events}", self.segments, self.bytes));
        self.kinds.iter().for_each(|(kind, count)| self.print(&format!("{kind}: {count}")));
    }

    fn flush(&mut self) -> Result<(), String> {
        let flushed = self.events.as_mut().map_or(Ok(()), Write::flush);
        if terminal::is_enough(&flushed) { Ok(()) } else { flushed.map_err(|cause| format!("cannot write: {cause}")) }
    }

    fn report(&self, document: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        self.print(&if self.json { document().to_string() } else { text() });
    }

    fn print(&self, line: &str) {
        if self.events.is_some() { terminal::warn(line) } else { terminal::print_line(line) }
    }
}

/// Describes the end of a segment.
fn ending(walk: &SegmentRead, is_last: bool) -> String {
    let SegmentRead { good_bytes, rest_bytes, .. } = walk;
    match &walk.end {
        End::Whole if walk.closed => "closed in order".to_owned(),
        End::Whole => "ends with a whole event".to_owned(),
        End::Torn if is_last => {
            format!("torn after byte {good_bytes}: {rest_bytes} bytes that are not known to be synced")
        }
        End::Torn => format!("DAMAGED at byte {good_bytes}: it ends within a frame, but a segment follows"),
        End::Damaged { reason } => {
            format!("DAMAGED at byte {good_bytes}, where event {} should be: {reason}", walk.next)
        }
    }
}
