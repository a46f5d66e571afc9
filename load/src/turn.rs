//! One turn of a design: a run of it alone, what the machine did meanwhile, and whether its server outlived it.
//!
//! Responsible for:
//! - telling the processor time of designs that only wait for their turns from that of other programs;
//! - noticing a server that ended.
//!
//! Not responsible for:
//! - whose turn it is (`compare`), what follows from what was seen (`warning`).

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

/// What a turn came to.
#[derive(Debug)]
pub struct Turn {
    /// What was done, if clients could be opened at all.
    pub ran: Result<Run, Failure>,
    /// Whether the server ended: what was done then says nothing of the design.
    pub died: bool,
    /// Most memory that the server was seen to take; none if it has no process of its own.
    pub resident_most: Option<u64>,
    /// What the machine did meanwhile.
    pub stretch: Stretch,
}

/// Does the work on one design, while others wait for their turns. `what` names it for people.
pub fn take(
    target: &Arc<dyn Target>,
    waiting: &[Arc<dyn Target>],
    workload: &Arc<Workload>,
    plan: &Plan,
    (what, progress): (&str, &Progress),
) -> Turn {
    let (sampler, before) = (Sampler::start(), Times::now(&**target, waiting));
    let resident_most = Cell::new(None);
    let tell = |share| {
        resident_most.set(resident_most.get().max(target.process().map(resident_bytes)));
        progress.tick(share, "");
    };
    let ran = drive::run(target, workload, plan, &tell);
    let times = Times::now(&**target, waiting).since(&before);
    let names = waiting.iter().map(|target| target.name());
    let idle: Vec<(&str, Duration)> = names.zip(times.waiting).collect();
    let stretch = sampler.stop_beside(what, times.ours, &idle);
    let died = target.process().is_some_and(|process| !is_alive(process));
    Turn { ran, died, resident_most: resident_most.get(), stretch }
}

/// Processor times so far.
struct Times {
    /// Of the design whose turn it is, and of this program, which is its client.
    ours: Duration,
    /// Of each design that waits.
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
                    // It waits within this program, which is counted as the client.
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

/// Processor time of the threads of an engine that is embedded in this program.
fn engine_time() -> Duration {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_engine = threads.filter_map(|thread| {
        let name = fs::read_to_string(thread.path().join("comm")).ok()?;
        // By its number alone, as a process, a thread would be told with all others.
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        is_of_engine(name.trim()).then(|| processor_time_in(&stat))
    });
    of_engine.sum()
}

/// Whether an engine names its threads so. Clients' threads are called as the program is.
fn is_of_engine(name: &str) -> bool {
    name.starts_with("actix-rt") || (name.starts_with("tidewire-") && !name.starts_with("tidewire-load"))
}

/// Whether a process has not ended. One that has is there as a zombie, until whoever started it looks.
pub fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program, in brackets, may hold anything. After it comes the state.
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
    fn a_process_that_ended_is_not_alive_though_nobody_looked_yet() {
        assert!(is_alive(std::process::id()));
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let number = child.id();
        assert!(is_alive(number));
        child.kill().unwrap();
        while is_alive(number) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_alive(number));
    }

    #[test]
    fn threads_of_an_engine_are_known_by_their_names() {
        assert!(["tidewire-scribe", "tidewire-sync", "actix-rt|system"].into_iter().all(is_of_engine));
        assert!(
            ["tidewire-load", "tidewire_load-f", "tokio-runtime-w", ""].into_iter().all(|name| !is_of_engine(name))
        );
    }

    #[test]
    fn only_the_threads_of_an_engine_are_counted_as_it() {
        let ms = Duration::from_millis;
        let (begin, begun) = mpsc::channel();
        let engine = thread::Builder::new().name("tidewire-scribe".to_owned()).spawn(move || {
            begun.recv().unwrap();
            let before = engine_time();
            // On a busy machine it gets little of the time that passes.
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
    fn what_an_engine_takes_while_it_waits_is_not_the_client_s() {
        let waiting = vec![Duration::from_secs(3)];
        let before = Times { ours: Duration::from_secs(1), waiting: vec![Duration::from_secs(1)] };
        let times = Times { ours: Duration::from_secs(4), waiting }.since(&before);
        assert_eq!((times.ours, times.waiting), (Duration::from_secs(3), vec![Duration::from_secs(2)]));
    }
}
