//! The log of this process, on standard error.

use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::cli::settings::{LogFormat, LogLevel};
use crate::cli::terminal;
use crate::peer_error_log::WithoutPeerErrors;

/// The log while the process runs.
#[derive(Clone)]
pub(crate) struct Log(reload::Handle<EnvFilter, Registry>);

impl Log {
    /// Starts the log.
    pub(crate) fn begin(format: LogFormat, level: Option<&LogLevel>) -> Self {
        let (filter, handle) = reload::Layer::new(filter(level));
        let filter = WithoutPeerErrors(filter);
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(terminal::is_coloured(&std::io::stderr()));
        let log = tracing_subscriber::registry();
        match format {
            LogFormat::Text => log.with(lines.with_filter(filter)).init(),
            LogFormat::Json => log.with(lines.json().flatten_event(true).with_filter(filter)).init(),
        }
        Self(handle)
    }

    /// Changes the level of later messages.
    pub(crate) fn set(&self, level: Option<&LogLevel>) {
        // This fails only if the log no longer exists, and the log lasts as long as the process.
        let _ = self.0.reload(filter(level));
    }
}

/// Returns the level from the environment, for commands without a setting for it.
pub(crate) fn level_of_environment() -> Option<LogLevel> {
    std::env::var("TIDEWIRE_LOG_LEVEL").ok()?.parse().ok()
}

fn filter(level: Option<&LogLevel>) -> EnvFilter {
    // An empty variable counts as unset, because the filter would treat it as errors only.
    let of_environment = || std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|filter| !filter.is_empty());
    let filter = level.map(LogLevel::filter).or_else(of_environment);
    filter.and_then(|filter| EnvFilter::try_new(filter).ok()).unwrap_or_else(|| EnvFilter::new("warn,tidewire=info"))
}
