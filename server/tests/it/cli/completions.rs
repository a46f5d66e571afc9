//! The files for shells and for `man`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::{program, ran};
use testkit::test_servers;

const COMMANDS: [&str; 9] = ["serve", "feed", "publish", "follow", "unfollow", "explain", "watch", "stats", "config"];

#[test]
fn every_command_has_a_manual_page_and_completions() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    let ran = |words: &[&str]| ran(program("").args(words));
    assert_eq!(ran(&["man", pages.to_str().unwrap()]).code, 0);
    let names: BTreeSet<_> =
        fs::read_dir(&pages).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.contains("tidewire.1") && names.contains("tidewire-config-check.1"), "{names:?}");
    for command in COMMANDS {
        let page = fs::read_to_string(pages.join(format!("tidewire-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = ran(&["completions", shell]).out;
        COMMANDS.iter().for_each(|command| assert!(script.contains(command), "{shell}: {command}"));
    }
    assert_eq!(ran(&["completions", "cmd.exe"]).code, 2);
    fs::write(directory.path().join("file"), "").unwrap();
    assert_eq!(ran(&["man", directory.path().join("file").to_str().unwrap()]).code, 1);
}

#[test]
#[ignore = "needs bash"]
fn bash_completes_with_the_generated_script() {
    let script = ran(program("").args(["completions", "bash"])).out;
    let ask = "\nCOMP_WORDS=(tidewire unf); COMP_CWORD=1; _tidewire tidewire unf tidewire; printf '%s\\n' \"${COMPREPLY[@]}\"\n";
    let mut bash = Command::new(test_servers::program("bash", "bash"));
    let mut bash = bash.arg("-s").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    bash.stdin.take().unwrap().write_all((script + ask).as_bytes()).unwrap();
    let output = testkit::output_of(bash);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "unfollow");
}
