//! The output of a program until it ends.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::{DEADLINE, ended};

/// Runs a program without input, and returns its output when it has ended.
///
/// # Panics
/// Panics after [`DEADLINE`]. The program is killed then.
pub fn output(command: &mut Command) -> Output {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    output_of(spawned.unwrap_or_else(|cause| panic!("{command:?}: {cause}")))
}

/// Returns the output of a process when it has ended. The process gets no more input.
///
/// # Panics
/// Panics after [`DEADLINE`]. The process is killed then.
pub fn output_of(child: Child) -> Output {
    let mut child = KilledOnDrop(child);
    drop(child.0.stdin.take());
    let (stdout, stderr) = (child.0.stdout.take().map(read), child.0.stderr.take().map(read));
    let status = ended(&mut child.0);
    // A child of the process may still hold the pipe.
    let all = |pipe: Option<Receiver<Vec<u8>>>| {
        pipe.map_or_else(Vec::new, |all| all.recv_timeout(DEADLINE).expect("the end of what the process says"))
    };
    Output { status, stdout: all(stdout), stderr: all(stderr) }
}

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.0.kill();
    }
}

fn read(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, all) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        let _ = sender.send(bytes);
    });
    all
}
