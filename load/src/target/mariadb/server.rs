//! A private MariaDB server with the settings that an expert would choose for this work.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use tempfile::NamedTempFile;
use tokio::time::timeout;

use super::super::process::{Process, complete, find_program};
use super::super::{Failure, Later, answered};
use super::Options;
use super::session::failure;

/// The database of all tables.
const DATABASE: &str = "feeds";

/// Timeout for loading a table. Ten million edges take a minute.
const LOAD_MAX: Duration = Duration::from_secs(1_800);

/// Maximum bytes of a statement or row. It is set on both sides, because otherwise the client queries it when it connects.
const PACKET_BYTES_MAX: usize = 64 << 20;

/// A running MariaDB server. Dropping it stops the server and removes its directory.
pub(super) struct Server {
    process: Process,
    opts: Opts,
    settings: Vec<String>,
}

impl Server {
    /// Starts a server and creates `tables` in it.
    ///
    /// # Errors
    /// If MariaDB is not installed or does not start.
    pub(super) async fn start(options: &Options, tables: &[&str]) -> Result<Self, Failure> {
        let (program, initialise) = (installed("mariadbd")?, installed("mariadb-install-db")?);
        let set = settings(options);
        let mut initialised = Ok(());
        let started = Process::start(&program, |directory| {
            initialised = initialise_data(&initialise, directory, options);
            arguments(directory, &set)
        });
        initialised.map_err(|cause| Failure::Failed(format!("mariadb-install-db: {cause}")))?;
        let mut process = started.map_err(|cause| Failure::of(&cause))?;
        let without_database = opts(&socket(process.directory()));
        process
            .wait_until(async || Conn::new(without_database.clone()).await.is_ok())
            .await
            .map_err(|cause| Failure::of(&cause))?;

        let mut connection = Conn::new(without_database.clone()).await.map_err(failure)?;
        connection.query_drop(format!("CREATE DATABASE {DATABASE}")).await.map_err(failure)?;
        connection.query_drop(format!("USE {DATABASE}")).await.map_err(failure)?;
        for table in tables {
            connection.query_drop(*table).await.map_err(failure)?;
        }
        let version: Option<String> = connection.query_first("SELECT VERSION()").await.map_err(failure)?;
        let version = format!("MariaDB {}, by unix socket", version.unwrap_or_default());
        let settings = std::iter::once(version).chain(set.iter().map(Setting::describe)).collect();
        let opts = OptsBuilder::from_opts(without_database).db_name(Some(DATABASE)).into();
        Ok(Self { process, opts, settings })
    }

    /// Opens a new connection.
    ///
    /// # Errors
    /// [`Failure::Refused`] if there are too many connections.
    pub(super) fn connect(&self) -> Later<'_, Result<Conn, Failure>> {
        Box::pin(async { Conn::new(self.opts.clone()).await.map_err(failure) })
    }

    /// Bulk-loads rows into a table: one line per row, with tabs between columns. Rows with an existing key are skipped.
    pub(super) async fn load(&self, table: &str, rows: &str) -> Result<(), Failure> {
        let mut file = NamedTempFile::new_in(self.process.directory()).map_err(|cause| Failure::of(&cause))?;
        file.write_all(rows.as_bytes()).map_err(|cause| Failure::of(&cause))?;
        let mut connection = answered("connecting", self.connect()).await?;
        // With these checks off the server can fill an empty table without logging each row.
        connection.query_drop("SET unique_checks = 0, foreign_key_checks = 0").await.map_err(failure)?;
        let load = format!("LOAD DATA INFILE '{}' IGNORE INTO TABLE {table}", file.path().display());
        let loaded = timeout(LOAD_MAX, connection.query_drop(load)).await;
        loaded
            .map_err(|_| Failure::Failed(format!("LOAD DATA into {table}: not done within {LOAD_MAX:?}")))?
            .map_err(failure)
    }

    /// Returns its version and settings, one per line.
    pub(super) fn settings(&self) -> Vec<String> {
        self.settings.clone()
    }

    /// Returns the process id.
    pub(super) fn process(&self) -> u32 {
        self.process.id()
    }
}

/// Returns the connection options: no database, and the user that a new data directory has.
fn opts(socket: &Path) -> Opts {
    OptsBuilder::default()
        .user(Some("root"))
        .socket(Some(socket.display().to_string()))
        .prefer_socket(false)
        .max_allowed_packet(Some(PACKET_BYTES_MAX))
        .wait_timeout(Some(28_800))
        .into()
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

fn data(directory: &Path) -> PathBuf {
    directory.join("data")
}

/// Returns a private directory for temporary files, because a starting server removes files that look like temporary tables of any
/// server.
fn temporary(directory: &Path) -> PathBuf {
    directory.join("temporary")
}

fn installed(program: &str) -> Result<PathBuf, Failure> {
    find_program(program)
        .ok_or_else(|| Failure::Failed(format!("there is no {program}: install the package mariadb-server")))
}

/// Creates the system tables. This takes seconds.
fn initialise_data(program: &Path, directory: &Path, options: &Options) -> io::Result<()> {
    fs::create_dir(temporary(directory))?;
    let mut arguments = vec![
        "--no-defaults".to_owned(),
        format!("--datadir={}", data(directory).display()),
        format!("--tmpdir={}", temporary(directory).display()),
        format!("--innodb-log-file-size={}", options.redo_log_bytes),
    ];
    let fixed = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"];
    // Data may be lost in a crash.
    let careless = ["--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite"];
    arguments.extend(fixed.into_iter().chain(careless).chain(as_root()).map(str::to_owned));
    let made = complete(program, arguments)?;
    if made.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&made.stderr);
    Err(io::Error::other(format!("{}: {}", made.status, stderr.trim())))
}

/// Returns the option that allows MariaDB to run as root, if this process does.
fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

fn arguments(directory: &Path, settings: &[Setting]) -> Vec<String> {
    let mut arguments = vec![
        // This must be the first argument.
        "--no-defaults".to_owned(),
        format!("--datadir={}", data(directory).display()),
        format!("--tmpdir={}", temporary(directory).display()),
        format!("--socket={}", socket(directory).display()),
        format!("--pid-file={}", directory.join("pid").display()),
    ];
    arguments.extend(as_root().map(str::to_owned));
    arguments.extend(settings.iter().map(|setting| format!("--{}={}", setting.name, setting.value)));
    arguments
}

/// A setting that differs from its default.
struct Setting {
    name: &'static str,
    value: String,
    why: &'static str,
}

impl Setting {
    fn describe(&self) -> String {
        format!("{} = {}: {}", self.name, self.value, self.why)
    }
}

fn settings(options: &Options) -> Vec<Setting> {
    let set = |name, value: &dyn ToString, why| Setting { name, value: value.to_string(), why };
    vec![
        set("innodb_flush_log_at_trx_commit", &2, "a commit is passed to the system, and is on disk within a second"),
        set("innodb_log_file_buffering", &1, "so that a commit is a copy into the page cache, not a write to the disk"),
        set("innodb_buffer_pool_size", &options.buffer_pool_bytes, "everything fits in memory"),
        set("innodb_log_file_size", &options.redo_log_bytes, "pages are not written early"),
        set("innodb_log_buffer_size", &(64 << 20), "large transactions do not wait for the log"),
        set("innodb_flush_neighbors", &0, "the disk has no seek time"),
        set("innodb_io_capacity", &2_000, "the disk is not a slow one"),
        set("innodb_stats_persistent", &0, "tables are new: no job that counts rows while others work"),
        set("transaction_isolation", &"READ-COMMITTED", "no gap locks: publishes do not wait for each other"),
        set(
            "thread_handling",
            &"pool-of-threads",
            "as many transactions at once as cores: with 64 clients twice as fast",
        ),
        set("max_connections", &options.connections_max, "a connection for each client"),
        set("max_prepared_stmt_count", &1_000_000, "several statements for each connection"),
        set("max_allowed_packet", &PACKET_BYTES_MAX, "large rows"),
        set("back_log", &1_000, "many clients connect at once"),
        set("query_cache_size", &0, "feeds change all the time"),
        set("skip_networking", &1, "a unix socket is the shorter way"),
        set("skip_name_resolve", &1, "nothing is to be looked up"),
    ]
}
