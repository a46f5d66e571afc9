//! A server as a process of its own, gone with its handle.
//!
//! Responsible for:
//! - starting a program in a private directory, with what it says in a file there;
//! - its memory and processor time; ending it, also when this process is killed.
//!
//! Not responsible for:
//! - whether it is ready: whoever started it knows how to ask.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group, set_parent_process_death_signal};
use tempfile::TempDir;

/// How long a server may take until it is ready.
pub const START_MAX: Duration = Duration::from_secs(60);

/// What `/proc` counts processor time in.
const TICK: Duration = Duration::from_millis(10);

/// Bytes at the end of what a server said that are told when it fails.
const LOG_TOLD_BYTES: usize = 2_000;

/// A running server.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    /// Removed after the process has ended.
    directory: PrivateDirectory,
}

impl Process {
    /// Starts `program`. `arguments` gets the private directory.
    ///
    /// # Errors
    /// When there is no such program, or no room for its directory.
    pub fn start(program: &Path, arguments: impl FnOnce(&Path) -> Vec<String>) -> io::Result<Self> {
        let directory = PrivateDirectory::new()?;
        let log = directory.path().join("log");
        let said = File::create(&log)?;
        let child = guarded(program)?
            .args(arguments(directory.path()))
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .spawn()
            .map_err(|cause| io::Error::new(cause.kind(), format!("{}: {cause}", program.display())))?;
        left_behind().push(Left::Server(child.id()));
        Ok(Self { child, log, directory })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Asks again and again until `ready` says so.
    ///
    /// # Errors
    /// When the server ends instead, or takes more than [`START_MAX`]; with what it said last.
    pub async fn wait_until(&mut self, mut ready: impl AsyncFnMut() -> bool) -> io::Result<()> {
        let began = Instant::now();
        loop {
            // It may take connections and then hang.
            let left = START_MAX.saturating_sub(began.elapsed());
            if tokio::time::timeout(left, ready()).await.unwrap_or(false) {
                return Ok(());
            }
            let why = match self.child.try_wait()? {
                Some(status) => format!("ended ({status})"),
                None if began.elapsed() >= START_MAX => format!("is not ready after {START_MAX:?}"),
                None => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            };
            return Err(io::Error::other(format!("the server {why}: {}", self.last_words())));
        }
    }

    fn last_words(&self) -> String {
        let said = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&said[said.len().saturating_sub(LOG_TOLD_BYTES)..]).trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        left_behind().retain(|left| *left != Left::Server(self.child.id()));
    }
}

/// Runs `program` to its end, and collects what it says. It ends early if this process does, with all that it started.
///
/// # Errors
/// When there is no such program.
pub fn complete(program: &Path, arguments: impl IntoIterator<Item = String>) -> io::Result<Output> {
    let child = guarded(program)?
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let group = child.id();
    left_behind().push(Left::Group(group));
    let output = child.wait_with_output();
    left_behind().retain(|left| *left != Left::Group(group));
    output
}

/// A directory that goes with its handle.
#[derive(Debug)]
pub struct PrivateDirectory(TempDir);

impl PrivateDirectory {
    /// Makes one.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("tidewire-load-").tempdir()?;
        left_behind().push(Left::Directory(directory.path().to_owned()));
        Ok(Self(directory))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let gone = Left::Directory(self.path().to_owned());
        left_behind().retain(|left| *left != gone);
    }
}

/// What would be left behind if this process ended now.
#[derive(PartialEq, Eq, Debug)]
enum Left {
    Server(u32),
    /// A process that has started others.
    Group(u32),
    Directory(PathBuf),
}

static LEFT_BEHIND: Mutex<Vec<Left>> = Mutex::new(Vec::new());

fn left_behind() -> MutexGuard<'static, Vec<Left>> {
    // Nobody panics with it in hand; if somebody did, the list would be as good as before.
    LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends all servers and removes their directories, then this process. For those who are told to end in the middle of it.
pub fn end_everything() {
    let (directories, servers): (Vec<_>, Vec<_>) =
        left_behind().drain(..).partition(|left| matches!(left, Left::Directory(_)));
    // Servers first: they would go on writing. Each step fails only if it is done already.
    for left in servers.into_iter().chain(directories) {
        match left {
            Left::Server(process) => drop(pid(process).map(|process| kill_process(process, Signal::KILL))),
            Left::Group(leader) => drop(pid(leader).map(|leader| kill_process_group(leader, Signal::KILL))),
            Left::Directory(path) => drop(fs::remove_dir_all(path)),
        }
    }
    let _ = kill_process(getpid(), Signal::KILL);
}

fn pid(process: u32) -> Option<Pid> {
    i32::try_from(process).ok().and_then(Pid::from_raw)
}

/// The name of the hidden command by which this program becomes another that does not outlive its parent.
pub const GUARDED: &str = "guarded";

/// This program, or what [`set_harness`] says.
///
/// # Errors
/// When it is gone.
pub fn harness() -> io::Result<PathBuf> {
    HARNESS.get().map_or_else(std::env::current_exe, |harness| Ok(harness.clone()))
}

/// Says where the program is that knows [`GUARDED`], for a process that does not itself, as tests. Said once: whatever is
/// said later changes nothing.
pub fn set_harness(program: &Path) {
    HARNESS.get_or_init(|| program.to_owned());
}

static HARNESS: OnceLock<PathBuf> = OnceLock::new();

/// A command for `program` that ends when this process does, however that ends.
fn guarded(program: &Path) -> io::Result<Command> {
    let mut command = Command::new(harness()?);
    command.arg(GUARDED).arg(program);
    Ok(command)
}

/// Becomes the program in `arguments`, to be killed when the parent ends.
///
/// # Errors
/// Always: without one, this does not return.
pub fn become_guarded(arguments: &[String]) -> io::Error {
    let Some((program, arguments)) = arguments.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no program is named");
    };
    match set_parent_process_death_signal(Some(Signal::KILL)) {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(cause) => cause.into(),
    }
}

/// A port of the loopback address that nobody listens on.
///
/// # Errors
/// When there is none.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Where a program is, by the search path and the directories that servers are in.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// Memory that a process has now, in bytes; 0 if it has ended.
pub fn resident_bytes(process: u32) -> u64 {
    memory_bytes(process, "VmRSS:")
}

/// The most memory that a process ever had, in bytes; 0 if it has ended.
pub fn peak_bytes(process: u32) -> u64 {
    memory_bytes(process, "VmHWM:")
}

fn memory_bytes(process: u32, figure: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix(figure));
    kib.and_then(|kib| kib.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1_024
}

/// Files that a process has open; 0 if it has ended.
pub fn descriptors(process: u32) -> u64 {
    fs::read_dir(format!("/proc/{process}/fd")).map_or(0, |open| open.count() as u64)
}

/// Processor time that a process has taken so far.
pub fn processor_time(process: u32) -> Duration {
    processor_time_in(&fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default())
}

/// Processor time in what the system tells of a process, or of one of its threads.
pub fn processor_time_in(stat: &str) -> Duration {
    // The name of the program, in brackets, may hold anything. After it, the twelfth and thirteenth field are meant.
    let after_name = stat.rsplit_once(')').map_or("", |(_, after)| after);
    TICK * after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok()).sum::<u32>()
}
