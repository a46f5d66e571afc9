//! Tests that `docs/settings.md`, the reference of all settings, matches the code.
#![cfg(test)]

use std::fmt::Write as _;
use std::{env, fs};

use clap::{Args, Command};

use super::Settings;

const HEAD: &str = "# Settings

Settings of `tidewire serve` come from flags, environment variables, and a TOML file (`--config FILE`) under the names of the flags, in this order
of precedence. Write durations as `50ms`, `90s`, `12h` or `7d`, and sizes as `4GiB`, `512MB` or a plain number of bytes. `:8080` and
`localhost:8080` are addresses of this machine only. `tidewire config check` prints the values that a server would use
([command line](command-line.md#check-the-settings)).
";

/// The last section. A build without the feature `cluster` does not have its options.
const CLUSTER: &str = "Cluster";

const CLUSTER_SAYS: &str = "
These settings need the feature `cluster`. Set them by flags and variables only, because nodes may share a settings file.
[cluster.md](cluster.md) describes their use.
";

/// Appends a table for each section of the help text.
fn tables<A: Args>(text: &mut String) {
    let mut section = None;
    for argument in A::augment_args(Command::new("serve")).get_arguments() {
        let of = argument.get_help_heading().expect("every setting has a section");
        if section.replace(of.to_owned()).as_deref() != Some(of) {
            let _ = write!(text, "\n## {of}\n");
            text.push_str(if of == CLUSTER { CLUSTER_SAYS } else { "" });
            text.push_str("\n| flag | variable | value | |\n|---|---|---|---|\n");
        }
        let flag = argument.get_long().expect("every setting has a flag");
        let variable = argument.get_env().map(|variable| format!("`{}`", variable.to_string_lossy()));
        let values = argument.get_value_names().unwrap_or_default().iter().map(|name| name.as_str());
        let value = values.filter(|_| argument.get_action().takes_values()).collect::<Vec<_>>().join(" ");
        let value = if value.is_empty() { String::new() } else { format!("`{}`", value.replace('|', "\\|")) };
        let help = argument.get_help().expect("every setting has a help text").to_string();
        let _ = writeln!(text, "| `--{flag}` | {} | {value} | {help} |", variable.unwrap_or_default());
    }
}

fn reference() -> String {
    let mut text = HEAD.to_owned();
    tables::<Settings>(&mut text);
    #[cfg(feature = "cluster")]
    tables::<crate::cli::cluster::Node>(&mut text);
    text
}

#[test]
fn the_reference_documents_every_setting() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/settings.md");
    let expected = reference();
    if cfg!(feature = "cluster") && env::var_os("TIDEWIRE_RENEW_GOLDEN").is_some() {
        fs::write(file, &expected).unwrap();
    }
    let found = fs::read_to_string(file).unwrap_or_default();
    assert!(
        if cfg!(feature = "cluster") { found == expected } else { found.starts_with(&expected) },
        "docs/settings.md differs from the code: set TIDEWIRE_RENEW_GOLDEN=1 and run this test once with the feature `cluster` to renew it"
    );
}
