//! A private `redis-server`.

use std::net::SocketAddr;

use crate::target::Failure;
use crate::target::process::{Process, find_program, free_address};
use crate::target::resp::link::Link;
use crate::target::resp::pool::Pool;
use crate::target::resp::protocol::Batch;

/// Settings that differ from the defaults, with the reason. They are the same for all designs.
const SETTINGS: &[(&str, &str, &str)] = &[
    ("bind", "127.0.0.1", "private"),
    ("protected-mode", "yes", "private"),
    ("save", "", "no snapshots: only the log is durable"),
    ("appendonly", "yes", "writes survive a crash"),
    ("appendfsync", "everysec", "of the log: up to a second of writes may be lost"),
    ("no-appendfsync-on-rewrite", "yes", "a rewrite of the log does not hold up writes"),
    ("auto-aof-rewrite-percentage", "100", "the log is rewritten when it has doubled, or the disk would fill in hours"),
    (
        "auto-aof-rewrite-min-size",
        "1gb",
        "and not before it has 1 GiB, instead of 64 MB: a rewrite takes a second core and memory, which favours Redis",
    ),
    ("set-max-intset-entries", "8192", "a follow edge takes 4 bytes in each direction, not 50"),
    ("list-max-listpack-size", "-2", "nodes of lists up to 8 KiB, which an inbox of 300 fits in"),
    ("list-compress-depth", "0", "lists are not compressed"),
];

/// A running Redis server.
#[derive(Debug)]
pub(super) struct Server {
    process: Process,
    version: String,
    pool: Pool,
}

impl Server {
    /// Starts a server with additional arguments, and waits until it answers.
    pub(super) async fn start(more_arguments: Vec<String>) -> Result<Self, Failure> {
        let program = find_program("redis-server").ok_or_else(|| {
            Failure::Failed(
                "there is no redis-server: install the package redis-server (Debian, Ubuntu) or redis".into(),
            )
        })?;
        let address = free_address().map_err(|cause| Failure::of(&cause))?;
        let process = Process::start(&program, |directory| {
            let mut arguments = vec!["--port".into(), address.port().to_string()];
            arguments.extend(["--dir".into(), directory.display().to_string()]);
            for (name, value, _) in SETTINGS {
                arguments.extend([format!("--{name}"), (*value).to_owned()]);
            }
            arguments.extend(more_arguments);
            arguments
        });
        let mut process = process.map_err(|cause| Failure::of(&cause))?;
        let number = process.id();
        let mut version = String::new();
        let ready = process.wait_until(async || match version_of(address, number).await {
            Some(found) => {
                version = found;
                true
            }
            None => false,
        });
        ready.await.map_err(|cause| Failure::of(&cause))?;
        Ok(Self { process, version, pool: Pool::new(address) })
    }

    /// Returns the process id.
    pub(super) fn process(&self) -> u32 {
        self.process.id()
    }

    /// Returns its version and settings.
    pub(super) fn settings(&self) -> Vec<String> {
        let version = format!("redis-server {}, one thread", self.version);
        let set = SETTINGS.iter().map(|(name, value, why)| match *value {
            "" => format!("{name} \"\": {why}"),
            value => format!("{name} {value}: {why}"),
        });
        [version].into_iter().chain(set).chain([Pool::describe()]).collect()
    }

    /// Returns the connections to it.
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }
}

/// Returns the version of the server at this address, if it is the process that was started here and accepts commands.
async fn version_of(address: SocketAddr, process: u32) -> Option<String> {
    let link = Link::open(address).await.ok()?;
    let mut batch = Batch::new("INFO");
    // A server that is still loading its data replies to PING with an error.
    batch.command("PING", 2).text(b"ready").command("INFO", 2).text(b"server");
    let mut replies = link.ask(batch).await.ok()?;
    replies.text()?;
    let info = String::from_utf8_lossy(replies.text()?).into_owned();
    let field =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::to_owned);
    (field("process_id")? == process.to_string()).then(|| field("redis_version"))?
}
