//! Why settings are rejected.

use std::path::PathBuf;

/// Why the settings are rejected.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read the settings file {}: {cause}{}", file.display(), advice(cause))]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The I/O error.
        cause: std::io::Error,
    },
    /// The file is not valid TOML, or a key or value is invalid.
    #[error("the settings file {} is wrong: {cause}", file.display())]
    Malformed {
        /// The path of the file.
        file: PathBuf,
        /// The parse error with its position.
        cause: toml::de::Error,
    },
    /// The file has a key that is no setting.
    #[error("the settings file {} is wrong: line {line}: there is no setting `{key}`{}", file.display(), advised(nearest))]
    Unknown {
        /// The path of the file.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The key that is no setting.
        key: String,
        /// A line with the setting that was probably meant.
        nearest: Option<String>,
    },
    /// A value is outside its valid range.
    #[error("--{option}: {what}")]
    Nonsense {
        /// The name of the option.
        option: &'static str,
        /// What is wrong with the value.
        what: String,
    },
}

/// Returns what to do about a settings file that is not there: it is the first thing that a new container lacks.
fn advice(cause: &std::io::Error) -> &'static str {
    if cause.kind() == std::io::ErrorKind::NotFound { "; `tidewire init` writes a first one" } else { "" }
}

fn advised(nearest: &Option<String>) -> String {
    match nearest {
        Some(example) => format!("; the nearest is as in `{example}`"),
        None => "; `tidewire config check` without this line prints all settings".to_owned(),
    }
}
