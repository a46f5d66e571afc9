//! Measures live connections from outside: a real server in its own process, and thousands of connections to it.
//!
//! | file | measures |
//! |---|---|
//! | `latency.rs` | time from a publish until the first and the last follower have received all of it |
//! | `throughput.rs` | messages per second, and a check that none is lost |
//! | `memory.rs` | memory of the server for each idle connection |
//! | `stalled.rs` | the effect of clients that stop reading on the others |
//! | `compare/` | the same measurements of other designs, in turns |
//!
//! All connections are on one thread (`audience.rs`, `socket.rs`), so that this program uses as little of the machine as possible. Results
//! include the time in which it reads. The report has the cores that it used.
//!
//! Responsible for:
//! - the measurements, each with its own server and with a bounded duration.

mod api;
mod audience;
pub mod compare;
mod frames;
mod latency;
mod machine;
mod memory;
mod messages;
pub mod online;
mod pace;
mod settings;
mod socket;
mod stalled;
mod throughput;
mod wire;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::pin;

use futures_util::future::{Either, select};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::LocalSet;

use crate::environment::Environment;
use crate::live::audience::Audience;
use crate::live::machine::{Cores, Watched};
use crate::live::pace::Rounds;
pub use crate::live::settings::{Measure, Settings};
use crate::operation::User;
use crate::report::progress::Progress;
use crate::report::{Case, TargetReport, figure};
use crate::target::tidewire::Settings as ServerSettings;
use crate::target::tidewire::http::Http;
use crate::target::{Failure, Target};

/// Maximum number of connections. Above it this program runs out of ports.
pub const CONNECTIONS_MAX: usize = 200_000;

/// Minimum bytes of a body.
pub const BODY_BYTES_MIN: usize = api::BODY_BYTES_MIN;

/// The design that is measured.
const TARGET: &str = "tidewire_http";

/// Number of posts in an inbox of the server.
const INBOX_POSTS: usize = 300;

/// All connections are on one thread.
const CLIENT_CORES_MAX: f64 = 1.0;

/// The reason why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// More connections than the limit on open files allows.
    #[error(
        "the system allows {} open files; {} connections were requested: request at most {} ({measure}), or raise the limit \
         with ulimit -n",
        figure::count(*allowed as u64), figure::count(*connections as u64), figure::count(*room as u64)
    )]
    OpenFiles {
        /// The limit of the system.
        allowed: usize,
        /// The requested number of connections.
        connections: usize,
        /// The measure that needs them.
        measure: &'static str,
        /// The number of connections that the limit allows.
        room: usize,
    },
    /// A live connection could not be opened.
    #[error("failed to connect {user} to {server}: {source}")]
    Connect {
        /// The user of the connection.
        user: String,
        /// The address of the server.
        server: SocketAddr,
        /// The I/O error.
        source: io::Error,
    },
    /// The server did not start, or a request to it failed.
    #[error(transparent)]
    Server(#[from] Failure),
    /// This program cannot be set up.
    #[error("failed to set up this program: {0}")]
    System(io::Error),
    /// A signal ended the measurement.
    #[error("interrupted")]
    Interrupted,
    /// A task of this program ended early.
    #[error("a client crashed")]
    Crashed,
}

/// The results of the measurements.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The results, and the errors of messages and connections.
    pub target: TargetReport,
    /// The load of the machine during the measurements.
    pub environment: Environment,
    /// Problems that cannot be seen in the results themselves.
    pub warnings: Vec<String>,
}

/// Runs the selected measurements.
///
/// # Errors
/// If the limit on open files is too low, the server fails, or a signal ends the run. Errors of messages are not an error here, but part
/// of the report.
pub fn measure(settings: &Settings, progress: &Progress) -> Result<Measured, Error> {
    let (connections, measure) = settings.connections_max();
    machine::raise_open_files(connections, measure.name())?;
    until_signal(all(settings, progress))
}

/// Runs a measurement on this thread, until a signal ends it.
fn until_signal<T>(measure: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::System)?;
    runtime.block_on(async {
        let ends = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        let [interrupt, terminate] = ends.map(|end| end.map_err(Error::System));
        let end_signal = pin!(end_signal(interrupt?, terminate?));
        let local = LocalSet::new();
        let measured = pin!(local.run_until(measure));
        // Check for a signal first: an interrupt from the terminal also ends the server, which must not be reported as a failure.
        match select(end_signal, measured).await {
            Either::Left(_) => Err(Error::Interrupted),
            Either::Right((measured, _)) => measured,
        }
    })
}

/// Waits for a signal. The caller then drops the server and its directory before the program ends.
async fn end_signal(mut interrupt: Signal, mut terminate: Signal) {
    select(pin!(interrupt.recv()), pin!(terminate.recv())).await;
}

async fn all(settings: &Settings, progress: &Progress) -> Result<Measured, Error> {
    let target = TargetReport { name: TARGET.to_owned(), ..TargetReport::default() };
    let environment = Environment::new(CLIENT_CORES_MAX);
    let mut run = Run { settings, progress, measured: Measured { target, environment, warnings: Vec::new() } };
    for measure in Measure::ALL.into_iter().filter(|measure| settings.wants(*measure)) {
        match measure {
            Measure::Latency => latency::measure(&mut run).await?,
            Measure::Throughput => throughput::measure(&mut run).await?,
            Measure::Memory => memory::measure(&mut run).await?,
            Measure::Stalled => stalled::measure(&mut run).await?,
        }
    }
    Ok(run.measured)
}

/// Starts a server for this many live connections.
async fn start_tidewire(connections: usize, flags: &[String]) -> Result<Http, Failure> {
    // Closed connections count until the server notices it, so the limit is twice the number of connections.
    let mut more_flags = vec![format!("--live-max {}", (2 * connections).max(1))];
    more_flags.extend_from_slice(flags);
    Http::start(&ServerSettings {
        inbox_posts: INBOX_POSTS,
        celebrity_followers: None,
        following_max: None,
        more_flags,
    })
    .await
}

/// The measurements done so far.
struct Run<'a> {
    settings: &'a Settings,
    progress: &'a Progress,
    measured: Measured,
}

impl Run<'_> {
    /// Starts a server for the next measurement.
    async fn server(&mut self) -> Result<Server, Error> {
        let (connections, _) = self.settings.connections_max();
        let http = start_tidewire(connections, &self.settings.server_flags).await?;
        self.measured.target.settings = http.settings();
        let process = http.process().ok_or_else(|| Failure::Failed("the server has no process".to_owned()))?;
        Ok(Server { http, process, users: Cell::new(0) })
    }

    fn step(&self, case: &str, what: &str) {
        self.progress.step(case, what);
    }

    fn step_of_round(&self, case: &str, round: usize) {
        self.step(case, &format!("round {} of {}", round + 1, self.settings.rounds));
    }

    fn tick(&self, share: f64) {
        self.progress.tick(share, "");
    }

    fn done(&self, figure: &str) {
        self.progress.done(figure);
    }

    /// Ends a period of a case.
    fn stretch(&mut self, watched: Watched, case: &str) -> Cores {
        let (cores, stretch) = watched.stop(&format!("{case} of {TARGET}"));
        self.measured.environment.stretches.push(stretch);
        cores
    }

    fn failure(&mut self, case: &str, what: &str) {
        self.measured.target.failures.push(format!("{case}: {what}"));
    }

    /// Records the errors of an audience in the report. Returns their number without posts that were not received.
    fn report_troubles(&mut self, case: &str, audience: &Audience, unheard: u64) -> u64 {
        let (mut troubles, count) = audience.troubles();
        if unheard > 0 {
            troubles.push(format!("{unheard} posts were not received by all"));
        }
        if !troubles.is_empty() {
            self.failure(case, &troubles.join(", "));
        }
        count
    }

    fn case(&mut self, name: &str, case: Case) {
        self.measured.target.cases.insert(name.to_owned(), case);
    }

    /// Adds two cases: `name` for the last follower, and one with a suffix for the first follower.
    fn timed(&mut self, name: &str, rounds: &Rounds, failed: u64) {
        self.measured.warnings.extend(rounds.warning().map(|warning| format!("{name}: {warning}")));
        let [last, first] = rounds.cases(failed);
        self.case(name, last);
        self.case(&format!("{name}_first"), first);
    }
}

/// A server and the number of its users so far. Dropping it stops the server.
struct Server {
    http: Http,
    process: u32,
    users: Cell<User>,
}

impl Server {
    fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// Returns the process id.
    fn process(&self) -> u32 {
        self.process
    }

    /// Creates an author with this many new followers.
    async fn author_of(&self, followers: usize) -> Result<(User, Range<User>), Error> {
        let author = self.users.get();
        let readers = author + 1..author + 1 + followers as User;
        self.users.set(readers.end);
        let edges: Vec<(User, User)> = readers.clone().map(|reader| (reader, author)).collect();
        self.http.load_follows(&edges).await?;
        Ok((author, readers))
    }

    /// Wakes readers by reading a page of each.
    async fn wake(&self, readers: Range<User>) -> Result<(), Error> {
        Ok(self.http.activate(&readers.collect::<Vec<_>>()).await?)
    }
}
