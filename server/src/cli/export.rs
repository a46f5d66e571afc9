//! `tidewire export`: writes all data of a data directory or of a backup as lines of JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgGroup;

use crate::backup::url::BackupUrl;
use crate::cli::{Outcome, terminal};
use crate::export::{WriteError, directory, write};

/// Arguments of `tidewire export`.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("of").required(true).args(["data_dir", "from"])))]
pub(crate) struct Export {
    /// Data directory; no server may use it at the same time
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Store with the backups of a server, which may be running: the newest backup is restored into a temporary directory (in TMPDIR) and
    /// exported. The credentials of S3 come from the environment
    #[arg(long, value_name = "URL")]
    from: Option<BackupUrl>,

    /// File to create; - is the standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
}

impl Export {
    pub(super) fn run(self) -> Outcome {
        // Without this check, the error would come only after all data is loaded.
        if self.out.is_file() {
            return Err(
                format!("cannot create {}: the file exists; files are not overwritten", self.out.display()).into()
            );
        }
        let line = terminal::changing_line();
        line.set_message("loading");
        // Dropped at the end, which removes the directory.
        let temporary = self.from.is_some().then(tempfile::tempdir).transpose();
        let temporary = temporary.map_err(|cause| format!("cannot create a temporary directory: {cause}"))?;
        let (state, _lock) = match (&self.from, &temporary, &self.data_dir) {
            (Some(from), Some(temporary), _) => directory::load_backup(from, temporary.path())?,
            (.., data_dir) => directory::load(data_dir.as_deref().unwrap_or(Path::new("")))?,
        };
        let out = terminal::create(&self.out)?;
        let written = write(&state, out, &mut |posts| line.set_message(format!("{posts} posts")));
        line.finish_and_clear();
        match written {
            // Print this to standard error, because the export may go to standard output.
            Ok(counts) => terminal::warn(&counts.to_string()),
            // The pipe was closed, as by `… | head`.
            Err(WriteError::Out(cause)) if terminal::is_enough(&Err(cause.kind().into())) => {}
            Err(cause) => {
                if self.out.is_file() {
                    let _ = fs::remove_file(&self.out);
                }
                return Err(format!("{}: {}", self.out.display(), terminal::message_of(&cause)).into());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
