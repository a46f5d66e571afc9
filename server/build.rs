//! Tells the program from which commit it is made: by `TIDEWIRE_COMMIT`, by the package from a registry, or by git.

use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TIDEWIRE_COMMIT");
    // Both change with the commit: the second one without another branch.
    for file in ["HEAD", "logs/HEAD"] {
        git(&["rev-parse", "--git-path", file]).iter().for_each(|path| println!("cargo:rerun-if-changed={path}"));
    }
    let given = env::var("TIDEWIRE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let found = given.or_else(of_package).or_else(|| git(&["rev-parse", "HEAD"]));
    let commit = found.as_deref().map_or("unknown", |commit| commit.get(..CHARS).unwrap_or(commit));
    println!("cargo:rustc-env=TIDEWIRE_COMMIT={commit}");
}

/// The characters of a commit that are shown.
const CHARS: usize = 12;

/// Returns the commit that `cargo publish` has written into the package. The folder of a package may be in the repository of somebody else, so
/// this comes before git.
fn of_package() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let commit = text.split("\"sha1\": \"").nth(1)?.split('"').next()?;
    Some(commit.to_owned())
}

/// Returns what git prints, or `None` without it or outside of a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}
