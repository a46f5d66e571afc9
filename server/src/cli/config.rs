//! `tidewire config check`: validates the settings of a server without starting it.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Subcommand};
use serde_json::json;
use toml::{Table, Value};

use crate::cli::read_only::ReadOnly;
use crate::cli::settings::{Bytes, OldPosts, Settings, SettingsError, listen_address, names};
use crate::cli::{Outcome, memory, terminal};
use crate::http::auth;
use tidewire::storage::archive;
use tidewire::storage::directory_identity;
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files as _;

/// Subcommands of `tidewire config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigTool {
    /// Print the settings that `tidewire serve` would use, the origin of each, and every error
    #[command(visible_alias = "show")]
    Check(Box<Check>),
}

/// Arguments of `tidewire config check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 good, 1 a file or the data directory cannot be used, 2 a setting is wrong.")]
pub(crate) struct Check {
    #[command(flatten)]
    settings: Settings,

    /// TOML file with the settings
    #[arg(long, env = "TIDEWIRE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print each setting, and each error, as a line of JSON
    #[arg(long)]
    json: bool,
}

/// Errors of the settings. Invalid settings are listed before files that cannot be used.
#[derive(Default)]
struct Findings {
    wrong: Vec<String>,
    unusable: Vec<String>,
}

impl Findings {
    fn check<T>(&mut self, checked: Result<T, SettingsError>) {
        self.wrong.extend(checked.err().map(|cause| terminal::message_of(&cause)));
    }

    fn usable<T, E: std::error::Error>(&mut self, option: &str, used: Result<T, E>) {
        self.unusable.extend(used.err().map(|cause| format!("--{option}: {}", terminal::message_of(&cause))));
    }
}

impl ConfigTool {
    /// Runs the tool. `matches` are those of the whole command line, because only they contain the origin of values.
    pub(crate) fn run(self, matches: &ArgMatches) -> Outcome {
        let Self::Check(check) = self;
        let of_check = matches.subcommand_matches("config").and_then(|config| config.subcommand_matches("check"));
        check.run(of_check.unwrap_or(matches))
    }
}

impl Check {
    fn run(self, matches: &ArgMatches) -> Outcome {
        let mut findings = Findings::default();
        let file = match self.config.as_deref().map(Settings::read_all) {
            None => Some((Settings::default(), Table::new())),
            Some(Ok((good, wrong))) => {
                findings.wrong.extend(wrong.iter().map(|cause| terminal::message_of(cause)));
                good.map(|(settings, text)| (settings, text.parse().unwrap_or_default()))
            }
            Some(Err(cause)) => {
                findings.unusable.push(terminal::message_of(&cause));
                None
            }
        };
        let mut warnings: Vec<String> = Vec::new();
        if let Some((file, table)) = file {
            let settings = memory::fitted(self.settings.or(&file));
            find_wrong(&settings, &mut findings);
            find_unusable(&settings, &mut findings);
            print_effective((matches, &table), &settings, self.json);
            warnings.extend(table.keys().filter_map(|key| renamed("setting", key)));
            warnings.extend(settings.engine().ok().and_then(|config| memory::warning(&config)));
        }
        let variables = std::env::vars_os().filter_map(|(variable, _)| variable.into_string().ok());
        warnings.extend(variables.filter_map(|variable| renamed("variable", &variable)));
        warnings.extend(misspelt_variables().into_iter().map(|(variable, meant)| {
            format!("the variable {variable} is not a setting, and is ignored; the nearest is {meant}")
        }));
        for text in warnings {
            match self.json {
                true => terminal::print_json(&json!({"warning": text})),
                false => terminal::warn(&format!("warning: {text}")),
            }
        }
        let Findings { wrong, unusable } = &findings;
        for cause in wrong.iter().chain(unusable) {
            match self.json {
                true => terminal::print_json(&json!({"error": cause})),
                false => terminal::warn(&format!("error: {cause}")),
            }
        }
        Ok(match (wrong.is_empty(), unusable.is_empty()) {
            (false, _) => ExitCode::from(2),
            (true, false) => ExitCode::FAILURE,
            (true, true) => {
                if !self.json {
                    terminal::warn("no errors");
                }
                ExitCode::SUCCESS
            }
        })
    }
}

/// Returns a warning if this is the former name of a setting or of its variable.
fn renamed(kind: &str, name: &str) -> Option<String> {
    names::present_name(name)
        .map(|present| format!("the {kind} {name} is now {present}; the next release does not read it"))
}

/// Returns variables that are probably misspelt names of settings, each with the name of the setting's variable.
fn misspelt_variables() -> Vec<(String, String)> {
    let set = std::env::vars_os().filter_map(|(variable, _)| variable.into_string().ok());
    set.filter_map(|variable| names::misspelt_variable(&variable).map(|meant| (variable, meant))).collect()
}

fn find_wrong(settings: &Settings, findings: &mut Findings) {
    findings.check(settings.engine());
    findings.check(settings.storage());
    findings.check(settings.admission());
    findings.check(settings.access());
    findings.check(settings.backups());
    findings.wrong.extend(settings.refusal_to_listen());
    let is_half = settings.tls_cert.is_some() != settings.tls_key.is_some();
    if is_half {
        findings.check(settings.certificate());
    }
}

fn find_unusable(settings: &Settings, findings: &mut Findings) {
    let files = [
        ("archive-password-file", &settings.archive_password_file),
        ("archive-tls-ca", &settings.archive_tls_ca),
        ("tls-cert", &settings.tls_cert),
        ("tls-key", &settings.tls_key),
    ];
    let before = findings.unusable.len();
    for (option, file) in files {
        if let Some(file) = file
            && let Err(cause) = File::open(file)
        {
            findings.unusable.push(format!("--{option}: cannot read {}: {cause}", file.display()));
        }
    }
    let are_readable = findings.unusable.len() == before;
    if are_readable && settings.tls_cert.is_some() && settings.tls_key.is_some() {
        findings.unusable.extend(settings.certificate().err().map(|cause| terminal::message_of(&cause)));
    }
    if are_readable {
        findings.check(settings.old_posts());
    }
    if let Ok(options) = settings.access() {
        findings.usable("access", auth::Access::open(options));
    }
    if let Ok(storage) = settings.storage() {
        let is_own = matches!(settings.old_posts(), Ok(OldPosts::Directory));
        findings.unusable.extend(refusal_of_directory(&storage.directory, is_own));
    }
}

/// Returns the reason why a data directory cannot be used. Nothing is written, and a server may be using the directory.
fn refusal_of_directory(directory: &Path, is_own: bool) -> Option<String> {
    let refused = |why: &dyn fmt::Display| Some(format!("--data-dir: cannot use {}: {why}", directory.display()));
    match directory_or_ancestor(directory) {
        Err(why) => return refused(&why),
        // The start creates the directory.
        Ok(found) if found != directory => return None,
        Ok(_) => {}
    }
    let lock = directory.join("LOCK");
    if lock.exists()
        && let Err(cause) = may_write(&lock, true)
    {
        return refused(&format!("{}: {cause}", lock.display()));
    }
    let files = ReadOnly::directory(directory);
    let found = match is_own {
        true => directory_identity::refuse_of_cluster(&files).and_then(|()| compare_with_archive(&files)),
        false => directory_identity::find(&files).map(drop),
    };
    found.err().and_then(|cause| refused(&terminal::message_of(&cause)))
}

/// Returns the directory, or the nearest of its ancestors that exists, if this process may create files in it.
fn directory_or_ancestor(directory: &Path) -> Result<&Path, String> {
    let mut place = directory;
    let found = loop {
        let shown = if place.as_os_str().is_empty() { Path::new(".") } else { place };
        match fs::metadata(shown) {
            Ok(found) => break found,
            Err(_) if shown.is_symlink() => return Err(format!("{} is a broken symbolic link", shown.display())),
            Err(cause) if matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(cause) => return Err(format!("{}: {cause}", shown.display())),
        }
        place = place.parent().ok_or("none of the directories above it exists")?;
    };
    let shown = if place.as_os_str().is_empty() { Path::new(".") } else { place };
    if !found.is_dir() {
        return Err(format!("{} is not a directory", shown.display()));
    }
    match may_write(shown, place == directory) {
        Ok(()) => Ok(place),
        Err(cause) => Err(format!("no files can be created in {}: {cause}", shown.display())),
    }
}

/// Fails if this process may not write a file or create files in a directory, or if `reads` is set and it may not read it.
#[cfg(unix)]
fn may_write(path: &Path, reads: bool) -> io::Result<()> {
    use rustix::fs::{Access, access};
    let of_directory = if path.is_dir() { Access::EXEC_OK } else { Access::empty() };
    let of_reader = if reads { Access::READ_OK } else { Access::empty() };
    Ok(access(path, Access::WRITE_OK | of_directory | of_reader)?)
}

/// Permissions are unknown on these systems; the start checks them.
#[cfg(not(unix))]
fn may_write(_: &Path, _: bool) -> io::Result<()> {
    Ok(())
}

/// Refuses an archive of another directory, as a start does, as far as this is possible without a lock: a server that starts now must not
/// find the archive in use. Only the next start compares an archive that is open, or that a killed server has left.
fn compare_with_archive(files: &ReadOnly) -> Result<(), StorageError> {
    let place = files.place(archive::FILE);
    match archive::identity_without_lock(Path::new(&place))? {
        Some(of_archive) => directory_identity::compare(files, place, of_archive),
        None => Ok(()),
    }
}

fn print_effective((matches, file): (&ArgMatches, &Table), settings: &Settings, json: bool) {
    let arguments: Vec<Arg> = names::of_file().collect();
    let width = arguments.iter().map(|argument| names::name(argument).len()).max().unwrap_or_default();
    for argument in &arguments {
        let (mut value, from) = effective(argument, matches, file);
        let name = names::name(argument);
        // Their defaults depend on the memory.
        let fitted = match name {
            "store-bytes-max" => settings.store_bytes_max,
            "graph-bytes-max" => settings.graph_bytes_max,
            _ => None,
        };
        fitted.into_iter().for_each(|bytes| value = bytes.to_string());
        match json {
            true => terminal::print_json(&json!({"setting": name, "value": value, "from": from})),
            false => terminal::print_line(&format!("{name:<width$}  {value}  ({from})")),
        }
    }
}

/// Returns the value of a setting in effect, and its origin.
fn effective(argument: &Arg, matches: &ArgMatches, file: &Table) -> (String, String) {
    let (value, from) = given(argument, matches, file);
    let kind = argument.get_value_names().and_then(<[_]>::first).map(|name| name.as_str());
    let understood = match kind {
        Some("ADDRESS:PORT") => listen_address(&value).ok().map(|address| address.to_string()),
        Some("SIZE") => value.parse().ok().map(|bytes: Bytes| bytes.to_string()),
        _ => None,
    };
    (understood.unwrap_or(value), from)
}

/// Returns the value of a setting as given, and its origin.
fn given(argument: &Arg, matches: &ArgMatches, file: &Table) -> (String, String) {
    let id = argument.get_id().as_str();
    let given = || matches.get_raw(id).into_iter().flatten().map(lossy).collect::<Vec<_>>().join(",");
    let variable = || argument.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = names::name(argument);
    match (matches.value_source(id), file.get(name).or_else(|| file.get(names::earlier_name(name)?))) {
        (Some(ValueSource::CommandLine), _) => (given(), "flag".to_owned()),
        (Some(ValueSource::EnvVariable), _) => (given(), variable()),
        (_, Some(Value::String(text))) => (text.clone(), "file".to_owned()),
        (_, Some(Value::Integer(number))) => (number.to_string(), "file".to_owned()),
        // Settings have no values of other types, so this one was refused.
        (_, Some(_)) => (String::new(), "file".to_owned()),
        (_, None) => (names::default_of(argument), "default".to_owned()),
    }
}

fn lossy(text: &std::ffi::OsStr) -> String {
    OsString::from(text).to_string_lossy().into_owned()
}
