//! Tells the program from which commit it is made: by `TIDEWIRE_COMMIT`, or by git.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=TIDEWIRE_COMMIT");
    // Both change with the commit: the second one without another branch.
    for file in ["HEAD", "logs/HEAD"] {
        git(&["rev-parse", "--git-path", file]).iter().for_each(|path| println!("cargo:rerun-if-changed={path}"));
    }
    let given = env::var("TIDEWIRE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"])).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=TIDEWIRE_COMMIT={commit}");
}

/// Returns what git prints, or `None` without it or outside of a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}
