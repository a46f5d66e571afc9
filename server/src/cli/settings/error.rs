//! Why settings are rejected.

use std::path::PathBuf;

/// Why the settings are rejected.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read the settings file {}: {cause}", file.display())]
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
    /// A value is outside its valid range.
    #[error("--{option}: {what}")]
    Nonsense {
        /// The name of the option.
        option: &'static str,
        /// What is wrong with the value.
        what: String,
    },
}
