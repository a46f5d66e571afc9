//! `tidewire import state`: creates a data directory from the output of `tidewire export`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use crate::cli::lines::Input;
use crate::cli::{Outcome, terminal};
use crate::export::directory;

/// Arguments of `tidewire import state`.
#[derive(Debug, clap::Args)]
pub(crate) struct ImportState {
    /// Output file of `tidewire export`, also as gzip; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Data directory to create; it must be empty or not exist
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
}

impl ImportState {
    pub(super) fn run(self) -> Outcome {
        let Input { reader, read_bytes, bar } = Input::open(&self.file)?;
        let read = directory::create(&self.data_dir, reader, &mut |counts| {
            bar.set_position(read_bytes.load(Ordering::Relaxed));
            bar.set_message(format!("{} posts", counts.posts));
        });
        bar.finish_and_clear();
        let counts = read.map_err(|cause| format!("{}: {}", self.file.display(), terminal::message_of(&*cause)))?;
        terminal::print_line(&format!("created {}, verified by loading it: {counts}", self.data_dir.display()));
        Ok(ExitCode::SUCCESS)
    }
}
