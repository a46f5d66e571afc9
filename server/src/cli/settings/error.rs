//! Errors of invalid settings.

use std::path::PathBuf;

/// The reason why the settings are rejected.
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
    /// The file has a key that is not a setting.
    #[error("the settings file {} is wrong: line {line}: there is no setting `{key}`{}", file.display(), advised(nearest))]
    Unknown {
        /// The path of the file.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The key that is not a setting.
        key: String,
        /// A line with the setting of the most similar name.
        nearest: Option<String>,
    },
    /// A value is outside its valid range.
    #[error("--{option}: {what}")]
    Nonsense {
        /// The name of the option.
        option: &'static str,
        /// Description of the error in the value.
        what: String,
    },
}

/// Returns advice for a missing settings file, because a new container usually lacks it.
fn advice(cause: &std::io::Error) -> &'static str {
    if cause.kind() == std::io::ErrorKind::NotFound { "; `tidewire init` writes a first one" } else { "" }
}

fn advised(nearest: &Option<String>) -> String {
    match nearest {
        Some(example) => format!("; the nearest is as in `{example}`"),
        None => "; `tidewire config check` without this line prints all settings".to_owned(),
    }
}
