//! A server in its own process, which ends when its handle is dropped.

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

/// Maximum time until a server is ready.
pub const START_MAX: Duration = Duration::from_secs(60);

/// Unit of the processor times in `/proc` (`USER_HZ` is 100).
const TICK: Duration = Duration::from_millis(10);

/// Maximum bytes of the end of the server's log that an error message contains.
const LOG_TAIL_BYTES: usize = 2_000;

/// A running server process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    /// The private directory. It is removed after the process has ended.
    directory: PrivateDirectory,
}

impl Process {
    /// Starts `program`. `arguments` is called with the private directory.
    ///
    /// # Errors
    /// If there is no such program, or the directory cannot be created.
    pub fn start(program: &Path, arguments: impl FnOnce(&Path) -> Vec<String>) -> io::Result<Self> {
        let directory = PrivateDirectory::new()?;
        let log = directory.path().join("log");
        let output = File::create(&log)?;
        let child = guarded(program)?
            .args(arguments(directory.path()))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .map_err(|cause| io::Error::new(cause.kind(), format!("{}: {cause}", program.display())))?;
        left_behind().push(Left::Server(child.id()));
        Ok(Self { child, log, directory })
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the private directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Calls `ready` repeatedly until it returns true.
    ///
    /// # Errors
    /// If the server ends, or takes more than [`START_MAX`]. The message has the end of its log.
    pub async fn wait_until(&mut self, mut ready: impl AsyncFnMut() -> bool) -> io::Result<()> {
        let began = Instant::now();
        loop {
            // A server can accept connections and then hang.
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
            return Err(io::Error::other(format!("the server {why}: {}", self.log_tail())));
        }
    }

    fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // This fails only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        left_behind().retain(|left| *left != Left::Server(self.child.id()));
    }
}

/// Runs `program` to its end and collects its output. The program and its children are killed if this process ends.
///
/// # Errors
/// If there is no such program.
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

/// A directory that is removed when its handle is dropped.
#[derive(Debug)]
pub struct PrivateDirectory(TempDir);

impl PrivateDirectory {
    /// Creates the directory.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("tidewire-load-").tempdir()?;
        left_behind().push(Left::Directory(directory.path().to_owned()));
        Ok(Self(directory))
    }

    /// Returns the path of the directory.
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

/// Resources to release if a signal ends this process.
#[derive(PartialEq, Eq, Debug)]
enum Left {
    Server(u32),
    /// The leader of a process group.
    Group(u32),
    Directory(PathBuf),
}

static LEFT_BEHIND: Mutex<Vec<Left>> = Mutex::new(Vec::new());

fn left_behind() -> MutexGuard<'static, Vec<Left>> {
    // No code panics while it holds the lock, and the list would still be valid.
    LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all servers, removes their directories, and then kills this process. Called when a signal ends this process.
pub fn end_everything() {
    let (directories, servers): (Vec<_>, Vec<_>) =
        left_behind().drain(..).partition(|left| matches!(left, Left::Directory(_)));
    // Kill the servers first, because they would continue to write. Each step fails only if it is already done.
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

/// The name of the hidden command by which this program starts another one that must not outlive its parent.
pub const GUARDED: &str = "guarded";

/// Returns the path of this program, or the one set by [`set_harness`].
///
/// # Errors
/// If the path of this program cannot be determined.
pub fn harness() -> io::Result<PathBuf> {
    HARNESS.get().map_or_else(std::env::current_exe, |harness| Ok(harness.clone()))
}

/// Sets the path of the program that has the command [`GUARDED`], for processes that do not have it themselves, such as tests. Only the
/// first call has an effect.
pub fn set_harness(program: &Path) {
    HARNESS.get_or_init(|| program.to_owned());
}

static HARNESS: OnceLock<PathBuf> = OnceLock::new();

/// Creates a command for `program` that is killed when this process ends for any reason.
fn guarded(program: &Path) -> io::Result<Command> {
    let mut command = Command::new(harness()?);
    command.arg(GUARDED).arg(program);
    Ok(command)
}

/// Replaces this process by the program in `arguments`, which is killed when its parent ends.
///
/// # Errors
/// Always: on success this function does not return.
pub fn become_guarded(arguments: &[String]) -> io::Error {
    let Some((program, arguments)) = arguments.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no program is named");
    };
    match set_parent_process_death_signal(Some(Signal::KILL)) {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(cause) => cause.into(),
    }
}

/// Returns a free port on the loopback address.
///
/// # Errors
/// If there is none.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Searches a program in `PATH` and in the usual directories of servers.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// Returns the resident memory of a process in bytes, or 0 if it has ended.
pub fn resident_bytes(process: u32) -> u64 {
    memory_bytes(process, "VmRSS:")
}

/// Returns the peak resident memory of a process in bytes, or 0 if it has ended.
pub fn peak_bytes(process: u32) -> u64 {
    memory_bytes(process, "VmHWM:")
}

fn memory_bytes(process: u32, figure: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix(figure));
    kib.and_then(|kib| kib.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1_024
}

/// Returns the number of open file descriptors of a process, or 0 if it has ended.
pub fn descriptors(process: u32) -> u64 {
    fs::read_dir(format!("/proc/{process}/fd")).map_or(0, |open| open.count() as u64)
}

/// Returns the processor time that a process has used.
pub fn processor_time(process: u32) -> Duration {
    processor_time_in(&fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default())
}

/// Returns the processor time in the `stat` file of a process or of a thread.
pub fn processor_time_in(stat: &str) -> Duration {
    // The program name in brackets can contain any character. The fields 12 and 13 after it are user and system time.
    let after_name = stat.rsplit_once(')').map_or("", |(_, after)| after);
    TICK * after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok()).sum::<u32>()
}
