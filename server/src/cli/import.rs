//! The common part of all imports: the target, the run and the exit code.
//!
//! Responsible for:
//! - the target: a running server, or a data directory that is served to this import only;
//! - the progress bar, the report, and the exit code.
//!
//! Not responsible for:
//! - the format of a line and how it is sent (`cli::import_posts`, `cli::import_follows`).
//!
//! An import into a data directory writes it as a server does: it opens the engine, which locks the directory, and sends requests over a
//! loopback socket.

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
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::journal::Durability;

/// Worker threads of the server inside this process.
const WORKERS: usize = 2;

/// The target of an import.
#[derive(Debug, Clone, clap::Args)]
pub struct Target {
    /// Running server to import into [env: TIDEWIRE_SERVER] [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", conflicts_with = "data_dir")]
    server: Option<String>,

    /// File with a key of that server, if the server requires one
    #[arg(long, env = "TIDEWIRE_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// PEM file with the root certificates that are trusted for an https server [default: those of public authorities]
    #[arg(long, env = "TIDEWIRE_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Data directory to import into, without a server; created if missing, refused while in use
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// TOML file with the options of the data directory's server, for its limits
    #[arg(long, value_name = "FILE", requires = "data_dir")]
    config: Option<PathBuf>,
}

/// The result of reading the file, and of each sender.
pub(crate) type Sent = (Result<Report, ReadError>, Vec<thread::Result<Result<Report, ClientError>>>);

/// Runs an import of `what` from `file`: `send` reads the lines and sends them through the client.
pub(crate) fn run(file: &Path, target: Target, what: &str, send: impl FnOnce(&mut Lines, &Client) -> Sent) -> Outcome {
    let mut lines = Lines::open(file)?;
    let local = match target.data_dir {
        Some(directory) => Some(Local::open(directory, target.config.as_deref())?),
        None => None,
    };
    let client = match &local {
        Some(local) => Client::within(local.address),
        None => client(target.server, target.key_file, target.ca_file.as_deref())?,
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

/// Creates a client of a running server, or of the default one.
pub(crate) fn client(
    server: Option<String>,
    key_file: Option<PathBuf>,
    ca_file: Option<&Path>,
) -> Result<Client, Box<dyn Error>> {
    let roots = ca_file.map_or(Ok(RootCerts::WebPki), client::trusted)?;
    let client = Client::new(&server.unwrap_or_else(default_server), roots);
    let Some(file) = key_file else { return Ok(client) };
    let secret = keys::secret(&file).map_err(|cause| format!("cannot read {}: {cause}", file.display()))?;
    Ok(client.with_key(&secret))
}

/// Returns the default server. This is not a default of clap, because the environment variable must not conflict with `--data-dir`.
fn default_server() -> String {
    let set = std::env::var("TIDEWIRE_SERVER").ok().filter(|server| !server.is_empty());
    set.unwrap_or_else(|| "http://127.0.0.1:8080".to_owned())
}

/// An engine on a data directory, with a server inside this process.
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
        // A failed import can be repeated, so a sync for each group of lines is not worth its cost.
        storage.journal.durability = Durability::EverySecond;
        let listener = serve::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = listener.local_addr()?;
        let (engine, _) =
            Engine::open(settings.engine()?, &storage, Arc::new(SystemClock), &RecoveryProgress::default())?;
        let (handle_tx, handle_rx) = mpsc::channel();
        let served = engine.clone();
        let thread = thread::spawn(move || {
            System::new().block_on(async move {
                let server = serve::server(served, listener, WORKERS)?;
                // Sending fails only if the import has ended.
                let _ = handle_tx.send(server.handle());
                server.await
            })
        });
        match handle_rx.recv() {
            Ok(handle) => Ok(Self { engine, address, handle, thread }),
            Err(_) => {
                engine.shutdown();
                thread.join().map_err(|_| "the server inside the import crashed")??;
                Err("the server inside the import did not start".into())
            }
        }
    }

    /// Takes a snapshot and shuts the engine down.
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
        terminal::print_line(&format!("snapshot {} at event {}, {} bytes", taken.file, taken.sequence, taken.bytes));
        Ok(())
    }
}
