//! `tidewire init`: writes a first configuration with keys.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::settings::{listen_address, reachable};
use crate::cli::{Outcome, terminal};
use crate::http::auth::key::KeyScope;
use crate::http::auth::mint;

/// Only the user of the server may read the access file.
const ACCESS_FILE_MODE: u32 = 0o600;

/// Prometheus can read its key if it is in the group of the server.
const METRICS_KEY_MODE: u32 = 0o640;

/// The settings are not secret.
const SETTINGS_MODE: u32 = 0o644;

/// Others must not list the directory.
const DIRECTORY_MODE: u32 = 0o750;

/// Arguments of `tidewire init`.
#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// Directory for the files; created if missing
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,

    /// Address and port to serve on; in a container: 0.0.0.0:8080
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listen_address, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// Directory of journal, snapshots and archive [default: data in DIR]
    #[arg(long, env = "TIDEWIRE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// A file to write.
struct Planned {
    path: PathBuf,
    mode: u32,
    content: String,
}

impl Init {
    pub(crate) fn run(self) -> Outcome {
        let directory = std::path::absolute(&self.directory)?;
        let data = std::path::absolute(self.data_dir.unwrap_or_else(|| directory.join("data")))?;
        let at = |name: &str| directory.join(name);
        let (settings, access, metrics) = (at("tidewire.toml"), at("access.toml"), at("metrics.key"));
        let (key, metrics_key) = (mint::server_key()?, mint::server_key()?);
        // Write the settings last: if they exist, the files that they refer to are complete.
        let files = [
            Planned { path: metrics.clone(), mode: METRICS_KEY_MODE, content: format!("{metrics_key}\n") },
            Planned { path: access.clone(), mode: ACCESS_FILE_MODE, content: access_text(&key, &metrics_key) },
            Planned {
                path: settings.clone(),
                mode: SETTINGS_MODE,
                content: settings_text(self.listen, &directory, &access, &data)?,
            },
        ];
        create_directory(&directory).map_err(|cause| format!("cannot create {}: {cause}", directory.display()))?;
        write_all(&files)?;
        for file in files.iter().rev() {
            terminal::warn(&format!("wrote {}", file.path.display()));
        }
        terminal::warn("\nThe server key, shown only now. It permits everything; access.toml has its hash:\n");
        terminal::print_line(&key);
        terminal::warn(&next_steps(self.listen, &settings, &metrics));
        Ok(ExitCode::SUCCESS)
    }
}

fn access_text(key: &str, metrics_key: &str) -> String {
    format!(
        "# Keys of the server. `tidewire key NAME --access FILE` adds another one; the server reads changes by itself.\n\
         {}\n\n# The key in metrics.key, for Prometheus.\n{}\n",
        mint::server_key_entry("first", key, KeyScope::All),
        mint::server_key_entry("prometheus", metrics_key, KeyScope::Metrics)
    )
}

/// Returns the text of the settings file.
fn settings_text(listen: SocketAddr, directory: &Path, access: &Path, data: &Path) -> Result<String, String> {
    let (access, data) = (toml_string(access)?, toml_string(data)?);
    let (certificate, key) = (toml_string(&directory.join("cert.pem"))?, toml_string(&directory.join("key.pem"))?);
    Ok(format!(
        "# Settings of `tidewire serve --config`: each option of `tidewire serve --help`, by the name of its flag.\n\
         # Flags and variables of the environment take precedence.\n\
         listen = \"{listen}\"\n\
         access = {access}\n\
         data-dir = {data}\n\
         \n\
         # TLS. Without it, a proxy must encrypt connections from other machines.\n\
         # tls-cert = {certificate}\n\
         # tls-key = {key}\n"
    ))
}

/// Returns a path as a TOML string, which has the same escapes as JSON.
fn toml_string(path: &Path) -> Result<String, String> {
    let text = path.to_str().filter(|text| !text.contains('\u{7f}'));
    let text = text.ok_or_else(|| format!("{} cannot be written in a settings file", path.display()))?;
    Ok(serde_json::Value::from(text).to_string())
}

fn next_steps(listen: SocketAddr, settings: &Path, metrics: &Path) -> String {
    let address = reachable(listen);
    let to_others = if listen.ip().is_loopback() {
        "The server will answer this machine only. For others, change `listen`, and add TLS or a proxy."
    } else {
        "The server will answer other machines. Add TLS (tls-cert, tls-key), or a proxy with TLS."
    };
    format!(
        "\nNext:\n  \
         1. Store the key for your backend; below it is $KEY.\n  \
         2. tidewire serve --config {settings}\n  \
         3. curl -H \"Authorization: Bearer $KEY\" http://{address}/v1/stats\n  \
         4. Console: http://{address}/console   Prometheus: the key in {metrics}\n\
         {to_others}",
        settings = settings.display(),
        metrics = metrics.display()
    )
}

#[cfg_attr(not(unix), expect(unused_mut, reason = "modes are of unix"))]
fn create_directory(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, DIRECTORY_MODE);
    builder.recursive(true).create(directory)
}

/// Writes all files or none: after a failure, removes the files of this call.
fn write_all(files: &[Planned]) -> Result<(), String> {
    for (nth, file) in files.iter().enumerate() {
        if let Err(cause) = create(file) {
            for written in &files[..nth] {
                let _ = fs::remove_file(&written.path);
            }
            let is_there = cause.kind() == io::ErrorKind::AlreadyExists;
            let hint =
                if is_there { "; files are not overwritten: move it away, or name another directory" } else { "" };
            return Err(format!("cannot create {}: {cause}{hint}", file.path.display()));
        }
    }
    Ok(())
}

/// Creates a file that does not exist yet.
fn create(file: &Planned) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, file.mode);
    let mut opened: File = options.open(&file.path)?;
    let written = opened.write_all(file.content.as_bytes()).and_then(|()| opened.sync_all());
    if written.is_err() {
        // Remove a partial file, because it would make the next attempt fail.
        let _ = fs::remove_file(&file.path);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_steps_name_an_address_at_which_the_server_answers() {
        for (listen, expected) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/"),
            ("0.0.0.0:8443", "http://127.0.0.1:8443/"),
            ("192.0.2.7:8080", "http://192.0.2.7:8080/"),
            ("[::1]:8080", "http://[::1]:8080/"),
        ] {
            let steps = next_steps(listen.parse().unwrap(), Path::new("settings"), Path::new("key"));
            let urls: Vec<&str> = steps.split_whitespace().filter(|word| word.starts_with("http://")).collect();
            assert!(urls.len() == 2 && urls.iter().all(|url| url.starts_with(expected)), "{listen}: {urls:?}");
        }
    }
}
