//! Filters log lines of libraries that remote peers cause: invalid HTTP, broken connections, and failed accepts.

use std::fmt::{self, Write as _};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber, span, warn};
use tracing_subscriber::layer::{Context, Filter};

use tidewire::runtime::counters::Counter;
use tidewire::throttle::Throttle;

/// One kind of suppressed log line.
struct Kind {
    name: &'static str,
    /// The prefix of the names of the modules that write these lines.
    target: &'static str,
    count: Counter,
    waiting: Mutex<Waiting>,
    throttle: Throttle,
}

#[derive(Default)]
struct Waiting {
    count: u64,
    first: String,
}

impl Kind {
    const fn new(name: &'static str, target: &'static str) -> Self {
        let waiting = Mutex::new(Waiting { count: 0, first: String::new() });
        Self { name, target, count: Counter::new(), waiting, throttle: Throttle::new() }
    }

    fn of(metadata: &Metadata<'_>) -> Option<&'static Self> {
        let is_loud = *metadata.level() <= Level::WARN;
        KINDS.iter().find(|kind| is_loud && metadata.is_event() && metadata.target().starts_with(kind.target))
    }

    fn note(&self, event: &Event<'_>) {
        self.count.add(1);
        let waiting = &mut *self.waiting.lock();
        waiting.count += 1;
        // Only the first message of each period is formatted, because formatting every message is too expensive during a flood.
        if waiting.count == 1 {
            waiting.first.clear();
            event.record(&mut Message(&mut waiting.first));
        }
    }

    fn report(&self) {
        if self.waiting.lock().count == 0 || self.throttle.due().is_none() {
            return;
        }
        let Waiting { count, first } = std::mem::take(&mut *self.waiting.lock());
        warn!(kind = self.name, count, first, "connections failed");
    }
}

/// All kinds. They are static because a process has one log.
static KINDS: [Kind; 3] =
    [Kind::new("http", "actix_http"), Kind::new("accept", "actix_server::accept"), Kind::new("tls", "actix_tls")];

/// Returns the number of suppressed lines since the start, by kind.
pub(crate) fn counts() -> impl Iterator<Item = (&'static str, u64)> {
    KINDS.iter().map(|kind| (kind.name, kind.count.get()))
}

/// Writes the summary lines that are due.
pub(crate) fn report() {
    KINDS.iter().for_each(Kind::report);
}

/// Maximum bytes of a message in the log.
const MESSAGE_BYTES_MAX: usize = 256;

struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a `String` cannot fail.
            let _ = write!(self.0, "{value:?}");
            let end = (0..=MESSAGE_BYTES_MAX.min(self.0.len())).rev().find(|at| self.0.is_char_boundary(*at));
            self.0.truncate(end.unwrap_or(0));
        }
    }
}

/// A log filter that suppresses and counts the lines that remote peers cause.
pub(crate) struct WithoutPeerErrors<F>(pub(crate) F);

impl<S: Subscriber, F: Filter<S>> Filter<S> for WithoutPeerErrors<F> {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        Kind::of(metadata).is_some() || Filter::enabled(&self.0, metadata, context)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Kind::of(metadata).is_some() {
            return Interest::sometimes();
        }
        Filter::<S>::callsite_enabled(&self.0, metadata)
    }

    fn event_enabled(&self, event: &Event<'_>, context: &Context<'_, S>) -> bool {
        match Kind::of(event.metadata()) {
            Some(kind) => {
                kind.note(event);
                false
            }
            None => Filter::event_enabled(&self.0, event, context),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Filter::<S>::max_level_hint(&self.0).map(|hint| hint.max(LevelFilter::WARN))
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        Filter::on_new_span(&self.0, attributes, id, context);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        Filter::on_record(&self.0, id, values, context);
    }

    fn on_enter(&self, id: &span::Id, context: Context<'_, S>) {
        Filter::on_enter(&self.0, id, context);
    }

    fn on_exit(&self, id: &span::Id, context: Context<'_, S>) {
        Filter::on_exit(&self.0, id, context);
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        Filter::on_close(&self.0, id, context);
    }
}
