//! The server as a process of its own: started, looked at from outside, and gone with its handle.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use crate::http::Http;
use crate::settings::Settings;

/// How long it may take to start.
const START_MAX: Duration = Duration::from_secs(30);

/// What `/proc` counts processor time in.
const TICK: Duration = Duration::from_millis(10);

pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// Removed after the process has ended.
    _directory: TempDir,
}

impl Server {
    /// Starts one on an empty directory, and waits until it is ready.
    pub async fn start(settings: &Settings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = directory.path().join("log");
        let child = Command::new(&settings.program)
            .args(["serve", "--durability", "everysec", "--live-max", "40000"])
            .args(["--listen", &address.to_string()])
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .args(&settings.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap_or_else(|cause| panic!("{}: {cause}", settings.program.display()));
        let mut server = Self { child, address, _directory: directory };
        server.wait_until_ready(&log).await;
        server
    }

    async fn wait_until_ready(&mut self, log: &PathBuf) {
        let began = Instant::now();
        loop {
            if let Ok(mut http) = Http::open(self.address).await
                && http.send("GET", "/readyz", "").await.is_ok_and(|(status, _)| status == 200)
            {
                return;
            }
            let ended = self.child.try_wait().unwrap();
            if ended.is_some() || began.elapsed() > START_MAX {
                panic!("the server does not start: {}", fs::read_to_string(log).unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Its memory now.
    pub fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most memory it ever had.
    pub fn peak_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, figure: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let kib = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
        kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
    }

    /// The processor time that it and this process have taken so far.
    pub fn processor_times(&self) -> ProcessorTimes {
        ProcessorTimes { server: processor_time(&self.child.id().to_string()), client: processor_time("self") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Copy)]
pub struct ProcessorTimes {
    server: Duration,
    client: Duration,
}

impl ProcessorTimes {
    /// What was taken since then for each of so many messages, as text.
    pub fn since(self, before: Self, messages: u64) -> String {
        let each = |taken: Duration| taken.as_secs_f64() * 1e6 / messages.max(1) as f64;
        format!("{:.1}, {:.1} us", each(self.server - before.server), each(self.client - before.client))
    }
}

fn processor_time(process: &str) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name of the program, in brackets, may hold anything. After it, the twelfth and thirteenth field are meant.
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let ticks = after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u32>().unwrap());
    TICK * ticks.sum::<u32>()
}

/// Lets this process, and those it starts, have so many open files, or as many as it may. Returns how many.
pub fn raise_descriptors(wanted: usize) -> usize {
    let wanted = wanted as u64;
    let now = getrlimit(Resource::Nofile);
    let allowed = now.maximum.unwrap_or(u64::MAX);
    let limit = |current, maximum| Rlimit { current: Some(current), maximum: Some(maximum) };
    if now.current.is_none_or(|current| current >= wanted) {
        return wanted as usize;
    }
    // Above what is allowed only for those who may raise that too.
    if setrlimit(Resource::Nofile, limit(wanted, allowed.max(wanted))).is_ok() {
        return wanted as usize;
    }
    let _ = setrlimit(Resource::Nofile, limit(allowed, allowed));
    getrlimit(Resource::Nofile).current.map_or(wanted, |current| current.min(wanted)) as usize
}
