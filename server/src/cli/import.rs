//! The common part of all imports: the target, the run and the exit code.
//!
//! An import into a data directory writes it as a server does. It opens the engine, which locks the directory, and sends requests over a
//! loopback socket.

use std::collections::HashSet;
use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use actix_web::dev::ServerHandle;
use actix_web::rt::System;
use serde_json::json;

use crate::cli::client::{Client, OUTCOME_UNKNOWN, Refused};
use crate::cli::in_order::{self, Format, Item, Part, StopCause, Stopped};
use crate::cli::lines::{Lines, ReadError};
use crate::cli::report::{Form, Report};
use crate::cli::server_access::{ServerAccess, ServerUrl};
use crate::cli::settings::Settings;
use crate::cli::{Outcome, opening, terminal};
use crate::http::serve;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::recovery::RecoveryProgress;
use tidewire::runtime::message::SnapshotTaken;
use tidewire::storage::journal::Durability;

/// Number of worker threads of the server inside this process.
const WORKERS: usize = 2;

/// Maximum number of items that are compared with later ones, of 8 bytes each.
const COMPARED_MAX: usize = 5_000_000;

/// The target of an import.
#[derive(Debug, Clone, clap::Args)]
pub struct Target {
    /// Running server to import into [env: TIDEWIRE_SERVER] [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", conflicts_with = "data_dir")]
    server: Option<ServerUrl>,

    #[command(flatten)]
    access: ServerAccess,

    /// Data directory to import into, without a server; created if missing, refused while in use
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// TOML file with the options of the data directory's server, for its limits
    #[arg(long, value_name = "FILE", requires = "data_dir")]
    config: Option<PathBuf>,

    /// Check only the file, and print the lines that would be sent and refused: send no request, and open no directory
    #[arg(long)]
    dry_run: bool,

    /// Exit with 1 if any line was refused [default: only if all were]
    #[arg(long)]
    strict: bool,

    /// Print refused lines and the summary as lines of JSON
    #[arg(long)]
    json: bool,
}

/// The code of a refusal with status 403 that concerns one follow and not the credentials.
const BLOCKED: &str = "blocked";

/// Returns the reason why the server refused a line. Returns an error that stops the import if the key is not sufficient, because all other
/// lines would fail too, or if the outcome is unknown.
pub(crate) fn reason(refused: Refused) -> Result<String, StopCause> {
    let is_denial = matches!(refused.status, 401 | 403) && refused.code != BLOCKED;
    if is_denial || refused.code == OUTCOME_UNKNOWN {
        return Err(refused.into());
    }
    Ok(format!("{}: {}", refused.code, refused.detail))
}

/// Runs an import of a file.
pub(crate) fn run<F: Format>(file: &Path, target: Target, format: F) -> Outcome {
    let mut lines = Lines::open(file)?;
    let mut form = Form { is_strict: target.strict, is_json: target.json, is_whole: true, is_dry_run: target.dry_run };
    let mut report = |(report, stopped): (Report, Option<Box<dyn Error>>)| {
        form.is_whole = stopped.is_none();
        let code = report.print(F::Item::WHAT, file, &form);
        stopped.map_or(Ok(code), Err)
    };
    let bar = lines.bar.clone();
    if target.dry_run {
        let (checked, unread) = check_all(&mut lines, format);
        bar.finish_and_clear();
        return report((checked, unread.map(Into::into)));
    }
    let local = match target.data_dir {
        Some(directory) => Some(Local::open(directory, target.config.as_deref())?),
        None => None,
    };
    let client = match &local {
        Some(local) => Client::within(local.address),
        None => target.access.client(target.server)?,
    };
    let (read, sent) = in_order::send_all(&mut lines, format, client);
    bar.finish_and_clear();
    let ended = report(together(read, sent));
    let closed = local.map_or(Ok(()), |local| local.close(target.json));
    ended.and_then(|code| closed.map(|()| code))
}

/// Checks all lines for `--dry-run`, and counts those that an import would send.
fn check_all<F: Format>(lines: &mut Lines, format: F) -> Part<ReadError> {
    let (mut seen, hasher) = (HashSet::new(), RandomState::new());
    in_order::read(lines, format, |item, _, report| {
        match item.check() {
            Err(why) => report.refuse(item.line(), why),
            Ok(identity) => {
                report.created += 1;
                if let Some(identity) = identity.map(|identity| hasher.hash_one(identity)) {
                    if seen.contains(&identity) {
                        report.note(F::Item::REPEATED);
                    } else if seen.len() < COMPARED_MAX {
                        seen.insert(identity);
                    } else {
                        report.note("too many lines to compare this one with later ones");
                    }
                }
            }
        }
        true
    })
}

/// Adds up both parts. Returns the error of the sender, or otherwise the error of reading the file.
fn together(read: Part<ReadError>, sent: thread::Result<Part<Stopped>>) -> (Report, Option<Box<dyn Error>>) {
    let (mut report, unread) = read;
    let stopped: Option<Box<dyn Error>> = match sent {
        Ok((part, cause)) => {
            report.add(part);
            cause.map(Into::into)
        }
        Err(_) => Some("the sender crashed".into()),
    };
    (report, stopped.or(unread.map(Into::into)))
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
        // A failed import can be repeated, so a sync for each group of lines would only cost time.
        storage.journal.durability = Durability::EverySecond;
        let listener = serve::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = listener.local_addr()?;
        let (directory, old_posts) = (storage.claim()?, settings.old_posts()?);
        let archive = opening::remote_archive(&old_posts)?;
        let opened = opening::engine(settings.engine()?, &storage, directory, archive, &RecoveryProgress::default());
        let (engine, _) = opened.map_err(|cause| -> Box<dyn Error> { cause })?;
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
    fn close(self, json: bool) -> Result<(), Box<dyn Error>> {
        let Self { engine, handle, thread, .. } = self;
        let taken = System::new().block_on(async {
            handle.stop(true).await;
            engine.snapshot().await
        });
        let served = thread.join();
        engine.shutdown();
        served.map_err(|_| "the server inside the import crashed")??;
        let taken = taken.map_err(|cause| format!("imported and stored in the journal, but {cause}"))?;
        let SnapshotTaken { file, sequence, bytes, .. } = taken;
        match json {
            true => terminal::print_json(&json!({"snapshot": {"file": file, "sequence": sequence, "bytes": bytes}})),
            false => terminal::print_line(&format!("snapshot {file} at event {sequence}, {bytes} bytes")),
        }
        Ok(())
    }
}
