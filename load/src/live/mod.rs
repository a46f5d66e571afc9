//! Live push, seen from outside: the real server as a process of its own, and thousands of connections to it.
//!
//! | file | measures |
//! |---|---|
//! | `latency.rs` | from a publish to the first and to the last follower's last byte |
//! | `throughput.rs` | messages a second, and that none is lost |
//! | `memory.rs` | the server's memory for each idle connection |
//! | `stalled.rs` | what clients that stop reading cost the others |
//!
//! The connections take turns on one thread (`audience.rs`, `socket.rs`), so that as little as can be of the machine is spent
//! on this side. Figures include the time in which it reads; how much that is, is told beside them as cores.
//!
//! Responsible for:
//! - the four measures, each on a server of its own that ends with it, and each with an end.
//!
//! Not responsible for:
//! - what live connections tell (`docs/live.md`), telling the figures (`report`), whether to believe them (`warning`).

mod api;
mod audience;
mod frames;
mod heard;
mod latency;
mod machine;
mod memory;
mod numbers;
pub mod online;
mod pace;
mod settings;
mod socket;
mod stalled;
mod throughput;

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

/// Most connections: beyond it this side has no more ports.
pub const CONNECTIONS_MAX: usize = 200_000;

/// Least bytes of a body.
pub const BODY_BYTES_MIN: usize = api::BODY_BYTES_MIN;

/// The design that is measured.
const TARGET: &str = "tidewire_http";

/// Posts that an inbox of it holds.
const INBOX_POSTS: usize = 300;

/// All connections are on one thread.
const CLIENT_CORES_MAX: f64 = 1.0;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// More connections than files that may be open.
    #[error(
        "the system allows {} open files; {} connections were asked for: ask for at most {} ({measure}), or raise the limit \
         with ulimit -n",
        figure::count(*allowed as u64), figure::count(*connections as u64), figure::count(*room as u64)
    )]
    OpenFiles {
        /// What the system allows.
        allowed: usize,
        /// What was asked for.
        connections: usize,
        /// By which measure.
        measure: &'static str,
        /// Connections that there is room for.
        room: usize,
    },
    /// A live connection could not be opened.
    #[error("failed to connect {user} to {server}: {source}")]
    Connect {
        /// Whose.
        user: String,
        /// To where.
        server: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The server did not start, or did not do what it was asked.
    #[error(transparent)]
    Server(#[from] Failure),
    /// This program cannot run.
    #[error("failed to set up this program: {0}")]
    System(io::Error),
    /// It was told to end.
    #[error("interrupted")]
    Interrupted,
    /// A task of this program ended early.
    #[error("a client crashed")]
    Crashed,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The figures, and what went wrong with messages and connections.
    pub target: TargetReport,
    /// What they were measured in.
    pub environment: Environment,
    /// What speaks against figures beside what anyone can see in them.
    pub warnings: Vec<String>,
}

/// Measures what is asked for.
///
/// # Errors
/// When there are fewer open files than it takes, the server fails, or somebody ends it. What goes wrong with messages is no
/// error, but told in the report.
pub fn measure(settings: &Settings, progress: &Progress) -> Result<Measured, Error> {
    machine::raise_open_files(settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::System)?;
    runtime.block_on(async {
        let ends = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        let [interrupt, terminate] = ends.map(|end| end.map_err(Error::System));
        let told_to_end = pin!(told_to_end(interrupt?, terminate?));
        let local = LocalSet::new();
        let measured = pin!(local.run_until(all(settings, progress)));
        // The end first: an interrupt from the terminal ends the server too, which is no failure of a measure.
        match select(told_to_end, measured).await {
            Either::Left(_) => Err(Error::Interrupted),
            Either::Right((measured, _)) => measured,
        }
    })
}

/// Whoever is told to end lets go of the server first, and of its directory.
async fn told_to_end(mut interrupt: Signal, mut terminate: Signal) {
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

/// The measures so far.
struct Run<'a> {
    settings: &'a Settings,
    progress: &'a Progress,
    measured: Measured,
}

impl Run<'_> {
    /// Starts a server for the next measure.
    async fn server(&mut self) -> Result<Server, Error> {
        // Those that were left behind count until the server notices, so there is room for all twice.
        let (connections, _) = self.settings.connections_max();
        let mut more_flags = vec![format!("--live-max {}", (2 * connections).max(1))];
        more_flags.extend_from_slice(&self.settings.server_flags);
        let settings =
            ServerSettings { inbox_posts: INBOX_POSTS, celebrity_followers: None, following_max: None, more_flags };
        let http = Http::start(&settings).await?;
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

    /// Ends a stretch of a case.
    fn stretch(&mut self, watched: Watched, case: &str) -> Cores {
        let (cores, stretch) = watched.stop(&format!("{case} of {TARGET}"));
        self.measured.environment.stretches.push(stretch);
        cores
    }

    fn failure(&mut self, case: &str, what: &str) {
        self.measured.target.failures.push(format!("{case}: {what}"));
    }

    /// Tells what went wrong with the audience of a case. Returns how many times something did, but for unheard posts.
    fn told_of(&mut self, case: &str, audience: &Audience, unheard: u64) -> u64 {
        let (mut troubles, count) = audience.troubles();
        if unheard > 0 {
            troubles.push(format!("{unheard} posts were not heard by all"));
        }
        if !troubles.is_empty() {
            self.failure(case, &troubles.join(", "));
        }
        count
    }

    fn case(&mut self, name: &str, case: Case) {
        self.measured.target.cases.insert(name.to_owned(), case);
    }

    /// The case of the last follower has the name, and that of the first follower one like it.
    fn timed(&mut self, name: &str, rounds: &Rounds, failed: u64) {
        self.measured.warnings.extend(rounds.warning().map(|warning| format!("{name}: {warning}")));
        let [last, first] = rounds.cases(failed);
        self.case(name, last);
        self.case(&format!("{name}_first"), first);
    }
}

/// A server, and who is a user of it so far. It ends with this.
struct Server {
    http: Http,
    process: u32,
    users: Cell<User>,
}

impl Server {
    fn address(&self) -> SocketAddr {
        self.http.address()
    }

    /// The number of its process.
    fn process(&self) -> u32 {
        self.process
    }

    /// A new author with so many new followers.
    async fn author_of(&self, followers: usize) -> Result<(User, Range<User>), Error> {
        let author = self.users.get();
        let readers = author + 1..author + 1 + followers as User;
        self.users.set(readers.end);
        let edges: Vec<(User, User)> = readers.clone().map(|reader| (reader, author)).collect();
        self.http.load_follows(&edges).await?;
        Ok((author, readers))
    }

    /// Wakes readers.
    async fn wake(&self, readers: Range<User>) -> Result<(), Error> {
        Ok(self.http.activate(&readers.collect::<Vec<_>>()).await?)
    }
}
