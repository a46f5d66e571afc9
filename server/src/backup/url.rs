//! The place of backups: `file:///directory` or `s3://bucket/prefix`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The place of backups. Its text has no credentials, so it may be logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BackupUrl {
    /// A local or mounted directory.
    Directory(PathBuf),
    /// A bucket of S3 or of a compatible store. The environment has the region, the endpoint and the credentials.
    S3 {
        /// The name of the bucket.
        bucket: String,
        /// The prefix of the names of all objects, without slashes at both ends. It may be empty.
        prefix: String,
    },
}

impl FromStr for BackupUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is neither file:///directory nor s3://bucket/prefix");
        if let Some(path) = text.strip_prefix("file://") {
            return if path.starts_with('/') { Ok(Self::Directory(path.into())) } else { Err(wrong()) };
        }
        let rest = text.strip_prefix("s3://").ok_or_else(wrong)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |text: &str| !text.contains(['?', '#', '@', ':']);
        if bucket.is_empty() || !is_plain(bucket) || !is_plain(prefix) {
            return Err(wrong());
        }
        Ok(Self::S3 { bucket: bucket.to_owned(), prefix: prefix.trim_matches('/').to_owned() })
    }
}

impl fmt::Display for BackupUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "file://{}", path.display()),
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backup_urls_are_parsed_and_displayed() {
        for (text, shown) in [
            ("file:///var/backups/tidewire", "file:///var/backups/tidewire"),
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ] {
            assert_eq!(text.parse::<BackupUrl>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn invalid_backup_urls_are_refused() {
        for text in [
            "",
            "/var/backups",
            "file://relative",
            "s3://",
            "s3:///a",
            "s3://key:secret@bucket/a",
            "s3://b/a?x=1",
            "gs://b",
        ] {
            assert!(text.parse::<BackupUrl>().is_err(), "{text}");
        }
    }
}
