//! `tidewire completions` and `tidewire man`: files for shells and for `man`, which packages install.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;

use crate::cli::calls::printed;
use crate::cli::{Outcome, terminal};

/// Arguments of `tidewire completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: tidewire completions bash > /usr/share/bash-completion/completions/tidewire")]
pub(crate) struct Completions {
    /// Shell for which to print the script
    shell: Shell,
}

/// Arguments of `tidewire man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: tidewire man /usr/share/man/man1")]
pub(crate) struct Man {
    /// Directory to write tidewire.1 and a page for each command into; created if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Completions {
    pub(crate) fn run(self, mut command: Command) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "tidewire", &mut script);
        let mut out = terminal::output();
        printed(out.write_all(&script).and_then(|()| out.flush()))
    }
}

impl Man {
    pub(crate) fn run(self, command: Command) -> Outcome {
        let written =
            fs::create_dir_all(&self.directory).and_then(|()| clap_mangen::generate_to(command, &self.directory));
        written.map_err(|cause| format!("cannot write into {}: {cause}", self.directory.display()))?;
        Ok(std::process::ExitCode::SUCCESS)
    }
}
