//! What imports share: where they import into, how they run, and how they end.
//!
//! Responsible for:
//! - a running server, or a data directory that is served to this import alone;
//! - the bar, the report, and the exit code.
//!
//! Not responsible for:
//! - what a line is, and how it is sent (`cli::import_posts`, `cli::import_follows`).
//!
//! A data directory is imported into as a server would write it: the engine opens it, lock and all, and is spoken to over a
//! socket that only this machine reaches.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use actix_web::dev::ServerHandle;
use actix_web::rt::System;
use ureq::tls::RootCerts;

use crate::cli::client::{self, Client, ClientError};
use crate::cli::lines::{Lines, ReadError};
use crate::cli::report::Report;
use crate::cli::settings::Settings;
use crate::cli::{Outcome, keys, terminal};
use crate::http::serve;
use tidewire::clock::SystemClock;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::storage::journal::Durability;
use tidewire::storage::recovery::Progress;

/// Threads of the server inside this process.
const WORKERS: usize = 2;

/// Where to import into.
#[derive(Debug, Clone, clap::Args)]
pub struct Target {
    /// Running server to import into [env: TIDEWIRE_SERVER] [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", conflicts_with = "data_dir")]
    server: Option<String>,

    /// File with the key of that server, if it asks for one
    #[arg(long, env = "TIDEWIRE_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// PEM file with the certificates that may vouch for an https server [default: those of public authorities]
    #[arg(long, env = "TIDEWIRE_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Data directory to import into, without a server; made if there is none, refused while in use
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// TOML file with the options that the data directory is served with, for its limits
    #[arg(long, value_name = "FILE", requires = "data_dir")]
    config: Option<PathBuf>,
}

/// What came of reading the file, and of each sender.
pub(crate) type Sent = (Result<Report, ReadError>, Vec<thread::Result<Result<Report, ClientError>>>);

/// Runs an import of `what` from `file`: `send` reads the lines, and sends them to the client.
pub(crate) fn run(file: &Path, target: Target, what: &str, send: impl FnOnce(&mut Lines, &Client) -> Sent) -> Outcome {
    let mut lines = Lines::open(file)?;
    let local = match target.data_dir {
        Some(directory) => Some(Local::open(directory, target.config.as_deref())?),
        None => None,
    };
    let client = match &local {
        Some(local) => Client::within(local.address),
        None => {
            let roots = target.ca_file.as_deref().map_or(Ok(RootCerts::WebPki), client::trusted)?;
            let client = Client::new(&target.server.unwrap_or_else(default_server), roots);
            match target.key_file {
                Some(file) => client.with_key(
                    &keys::secret(&file).map_err(|cause| format!("cannot read {}: {cause}", file.display()))?,
                ),
                None => client,
            }
        }
    };
    let bar = lines.bar.clone();
    let (read, sent) = send(&mut lines, &client);
    bar.finish_and_clear();
    let reported = report(read, sent, file, what);
    let closed = local.map_or(Ok(()), Local::close);
    let code = reported?;
    closed?;
    Ok(code)
}

fn report(
    read: Result<Report, ReadError>,
    sent: Vec<thread::Result<Result<Report, ClientError>>>,
    file: &Path,
    what: &str,
) -> Outcome {
    let mut report = read?;
    for sender in sent {
        report.add(sender.map_err(|_| "a sender crashed")??);
    }
    if report.created + report.existing + report.refused() == 0 {
        terminal::warn(&format!("{} has no {what}", file.display()));
        return Ok(ExitCode::FAILURE);
    }
    Ok(report.print(what))
}

/// Not clap's doing: what the environment says must not exclude `--data-dir`.
fn default_server() -> String {
    let set = std::env::var("TIDEWIRE_SERVER").ok().filter(|server| !server.is_empty());
    set.unwrap_or_else(|| "http://127.0.0.1:8080".to_owned())
}

/// An engine on a data directory, served inside this process.
struct Local {
    engine: Engine,
    address: SocketAddr,
    handle: ServerHandle,
    thread: JoinHandle<io::Result<()>>,
}

impl Local {
    fn open(directory: PathBuf, config: Option<&Path>) -> Result<Self, Box<dyn Error>> {
        let settings = config.map(Settings::read).transpose()?.unwrap_or_default();
        let mut storage = StorageConfig { directory, ..settings.storage()? };
        // Who imports can do so again: a sync for each group of lines would cost more than it is worth.
        storage.journal.durability = Durability::EverySecond;
        let listener = serve::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = listener.local_addr()?;
        let (engine, _) = Engine::open(settings.engine()?, &storage, Arc::new(SystemClock), &Progress::default())?;
        let (tell, told) = mpsc::channel();
        let served = engine.clone();
        let thread = thread::spawn(move || {
            System::new().block_on(async move {
                let server = serve::server(served, listener, WORKERS)?;
                // Fails only if the import has ended.
                let _ = tell.send(server.handle());
                server.await
            })
        });
        match told.recv() {
            Ok(handle) => Ok(Self { engine, address, handle, thread }),
            Err(_) => {
                engine.shutdown();
                thread.join().map_err(|_| "the server inside the import crashed")??;
                Err("the server inside the import did not start".into())
            }
        }
    }

    /// Takes a snapshot, and ends in order.
    fn close(self) -> Result<(), Box<dyn Error>> {
        let Self { engine, handle, thread, .. } = self;
        let taken = System::new().block_on(async {
            handle.stop(true).await;
            engine.snapshot().await
        });
        let served = thread.join();
        engine.shutdown();
        served.map_err(|_| "the server inside the import crashed")??;
        let taken = taken.map_err(|cause| format!("imported, and kept in the journal; but {cause}"))?;
        terminal::say(&format!("snapshot {} at event {}, {} bytes", taken.file, taken.sequence, taken.bytes));
        Ok(())
    }
}
