//! One turn of a design: it runs alone while the others are idle. The turn also records the load of the machine, and checks that the server
//! is still alive.

use std::cell::Cell;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::drive::{self, Plan, Run};
use crate::environment::{Sampler, Stretch};
use crate::report::progress::Progress;
use crate::target::kind::Kind;
use crate::target::process::{processor_time, processor_time_in, resident_bytes};
use crate::target::{Failure, Target};
use crate::workload::Workload;

/// The result of a turn.
#[derive(Debug)]
pub struct Turn {
    /// The results of the run, or the failure if its clients could not be opened.
    pub ran: Result<Run, Failure>,
    /// True if the server ended. The results are then invalid.
    pub died: bool,
    /// Highest resident memory of the server in bytes; `None` if it has no process of its own.
    pub resident_most: Option<u64>,
    /// The load of the machine during the turn.
    pub stretch: Stretch,
}

/// Runs the workload on one design while the others are idle. `what` names the turn in messages.
pub fn take(
    target: &Arc<dyn Target>,
    waiting: &[Arc<dyn Target>],
    workload: &Arc<Workload>,
    plan: &Plan,
    (what, progress): (&str, &Progress),
) -> Turn {
    let (sampler, before) = (Sampler::start(), Times::now(&**target, waiting));
    let resident_most = Cell::new(None);
    let on_progress = |share| {
        resident_most.set(resident_most.get().max(target.process().map(resident_bytes)));
        progress.tick(share, "");
    };
    let ran = drive::run(target, workload, plan, &on_progress);
    let times = Times::now(&**target, waiting).since(&before);
    let names = waiting.iter().map(|target| target.name());
    let idle: Vec<(&str, Duration)> = names.zip(times.waiting).collect();
    let stretch = sampler.stop_beside(what, times.ours, &idle);
    let died = target.process().is_some_and(|process| !is_alive(process));
    Turn { ran, died, resident_most: resident_most.get(), stretch }
}

/// Processor times up to now.
struct Times {
    /// Of the design that is measured, plus this program, which is its client.
    ours: Duration,
    /// Of each idle design.
    waiting: Vec<Duration>,
}

impl Times {
    fn now(target: &dyn Target, waiting: &[Arc<dyn Target>]) -> Self {
        let server = target.process().map(processor_time).unwrap_or_default();
        let (mut ours, mut times) = (server + processor_time(std::process::id()), Vec::new());
        for target in waiting {
            times.push(match target.process() {
                Some(process) => processor_time(process),
                None if target.name() == Kind::TidewireInProcess.name() => {
                    // The idle engine runs inside this program, whose time is otherwise counted as the client's.
                    let time = engine_time();
                    ours = ours.saturating_sub(time);
                    time
                }
                None => Duration::ZERO,
            });
        }
        Self { ours, waiting: times }
    }

    fn since(self, before: &Self) -> Self {
        let waiting = self.waiting.iter().zip(&before.waiting).map(|(now, then)| now.saturating_sub(*then));
        Self { ours: self.ours.saturating_sub(before.ours), waiting: waiting.collect() }
    }
}

/// Returns the processor time of all threads of an engine embedded in this program.
fn engine_time() -> Duration {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_engine = threads.filter_map(|thread| {
        let name = fs::read_to_string(thread.path().join("comm")).ok()?;
        // Read the `stat` file of the thread: `/proc/<id>/stat` sums up all threads of the process.
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        is_of_engine(name.trim()).then(|| processor_time_in(&stat))
    });
    of_engine.sum()
}

/// Returns true if the name is one that an engine gives its threads. Client threads have the name of the program.
fn is_of_engine(name: &str) -> bool {
    name.starts_with("actix-rt") || (name.starts_with("tidewire-") && !name.starts_with("tidewire-load"))
}

/// Returns true if a process has not ended. An ended process stays a zombie until its parent waits for it.
pub fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The program name in brackets can contain any character. The state follows it.
    let state = stat.rsplit_once(") ").and_then(|(_, after)| after.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_zombie_process_is_not_alive() {
        assert!(is_alive(std::process::id()));
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let number = child.id();
        assert!(is_alive(number));
        child.kill().unwrap();
        testkit::eventually("the process has ended", || !is_alive(number));
        child.wait().unwrap();
        assert!(!is_alive(number));
    }

    #[test]
    fn threads_of_an_engine_are_identified_by_their_names() {
        assert!(["tidewire-writer", "tidewire-sync", "actix-rt|system"].into_iter().all(is_of_engine));
        assert!(
            ["tidewire-load", "tidewire_load-f", "tokio-runtime-w", ""].into_iter().all(|name| !is_of_engine(name))
        );
    }

    #[test]
    fn only_threads_of_an_engine_count_as_engine_time() {
        let ms = Duration::from_millis;
        let (begin, begun) = mpsc::channel();
        let engine = thread::Builder::new().name("tidewire-writer".to_owned()).spawn(move || {
            begun.recv().unwrap();
            let before = engine_time();
            // On a busy machine the thread gets only a small part of the elapsed time.
            while engine_time() < before + ms(30) {}
        });
        let all = || processor_time(std::process::id());
        let before = (engine_time(), all());
        while all() < before.1 + ms(100) {}
        assert!(engine_time() < before.0 + ms(50), "what the client took is counted as the engine's");
        begin.send(()).unwrap();
        engine.unwrap().join().unwrap();
    }

    #[test]
    fn time_of_waiting_engines_is_not_client_time() {
        let waiting = vec![Duration::from_secs(3)];
        let before = Times { ours: Duration::from_secs(1), waiting: vec![Duration::from_secs(1)] };
        let times = Times { ours: Duration::from_secs(4), waiting }.since(&before);
        assert_eq!((times.ours, times.waiting), (Duration::from_secs(3), vec![Duration::from_secs(2)]));
    }
}
