//! `tidewire config check`, and what the program says of settings that are wrong.

use std::fs;
use std::ops::Bound;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::sync::Arc;

use redb::StorageBackend as _;
use redb::backends::FileBackend;
use serde_json::{Value, json};

use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::recovery::RecoveryProgress;

use super::{lines, program, ran};
use crate::tools::Ran;

/// A user who owns nothing.
const NOBODY: u32 = 65_534;

fn check(directory: &Path, words: &[&str]) -> Ran {
    ran(program("").current_dir(directory).args(["config", "check"]).args(words))
}

fn value(settings: &[Value], name: &str) -> Value {
    settings.iter().find(|setting| setting["setting"] == name).unwrap_or(&Value::Null).clone()
}

#[test]
fn effective_settings_are_printed_with_their_origin() {
    let directory = tempfile::tempdir().unwrap();
    let file = "listen = \":9\"\ninbox-posts = 9\nstore-bytes-max = \"2GiB\"\nactive-window = \"90s\"\n";
    fs::write(directory.path().join("t.toml"), file).unwrap();
    let mut command = program("");
    command.current_dir(directory.path()).args(["config", "check", "--config", "t.toml", "--shards", "3", "--json"]);
    let ran = ran(command.env("TIDEWIRE_ACTIVE_WINDOW", "2d"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let settings = lines(&ran.out);
    for (name, text, from) in [
        ("listen", "127.0.0.1:9", "file"),
        ("inbox-posts", "9", "file"),
        ("store-bytes-max", "2GiB", "file"),
        ("active-window", "2d", "TIDEWIRE_ACTIVE_WINDOW"),
        ("shards", "3", "flag"),
        ("sources-max", "50000000", "default"),
    ] {
        assert_eq!(value(&settings, name), json!({"setting": name, "value": text, "from": from}));
    }
    let text = check(directory.path(), &["--config", "t.toml"]).out;
    assert!(text.lines().any(|line| line.starts_with("inbox-posts ") && line.ends_with(" 9  (file)")), "{text}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing was written");
}

#[test]
fn a_misspelled_variable_of_a_setting_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = program("");
    let command = command.current_dir(directory.path()).args(["config", "check"]).env("TIDEWIRE_LISTN", ":9");
    let ran = ran(command.env("TIDEWIRE_KEY", "of a client"));
    let said = "warning: the variable TIDEWIRE_LISTN is not a setting, and is ignored; the nearest is TIDEWIRE_LISTEN\nno errors\n";
    assert_eq!((ran.code, ran.err.as_str()), (0, said));
}

#[test]
fn a_former_setting_name_is_accepted_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("t.toml"), "live-linger = \"90s\"\nsnapshot-inboxes = \"resident\"\n").unwrap();
    let check = || {
        let mut command = program("");
        let words = ["config", "check", "--config", "t.toml", "--compress-from", "1KiB", "--json"];
        command.current_dir(directory.path()).args(words).env("TIDEWIRE_HOSTS", "a.example");
        command
    };
    let earlier = ran(&mut check());
    assert_eq!(earlier.code, 0, "{}", earlier.out);
    let printed = lines(&earlier.out);
    for (name, text, from) in [
        ("live-history-ttl", "90s", "file"),
        ("compress-min-bytes", "1KiB", "flag"),
        ("allowed-hosts", "a.example", "TIDEWIRE_HOSTS"),
    ] {
        assert_eq!(value(&printed, name), json!({"setting": name, "value": text, "from": from}));
    }
    let warnings: Vec<_> = printed.iter().filter_map(|line| line["warning"].as_str()).collect();
    let is_named = |kind: &str| warnings.iter().any(|text| text.starts_with(kind));
    assert!(is_named("the setting live-linger is now live-history-ttl"), "{warnings:?}");
    assert!(is_named("the variable TIDEWIRE_HOSTS is now TIDEWIRE_ALLOWED_HOSTS"), "{warnings:?}");
    let both = ran(check().env("TIDEWIRE_ALLOWED_HOSTS", "b.example"));
    assert_eq!(value(&lines(&both.out), "allowed-hosts")["value"], "b.example");
}

#[test]
fn all_errors_are_reported_and_the_exit_code_names_their_kind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("file"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", path.join("dangling")).unwrap();
    let file = |text: &str| fs::write(path.join("t.toml"), text).unwrap();
    for (text, code, named) in [
        ("", 0, &[][..]),
        ("inbox-post = 3", 2, &["line 1", "`inbox-post`", "inbox-posts = 200"]),
        (
            "inbox-post = 3\nshards = 0\nsnapshot-interval = \"0s\"\ncolour = 1",
            2,
            &["line 1", "inbox-post", "shards", "--snapshot-interval", "line 4", "`colour`"],
        ),
        ("inbox-posts = \"a\"", 2, &["inbox-posts"]),
        ("inbox-posts = 100001\nsnapshot-interval = \"0s\"", 2, &["inbox-posts", "snapshot-interval"]),
        ("listen = \"0.0.0.0:8080\"", 2, &["--access FILE"]),
        ("tls-cert = \"file\"", 2, &["tls-key"]),
        ("access = \"missing\"\ntls-cert = \"gone\"\ntls-key = \"file\"", 1, &["missing", "gone"]),
        ("data-dir = \"file\"", 1, &["data-dir", "not a directory"]),
        ("data-dir = \"file/below\"", 1, &["data-dir", "not a directory"]),
        ("data-dir = \"new/below\"", 0, &[]),
        ("data-dir = \"dangling\"", 1, &["broken symbolic link"]),
    ] {
        file(text);
        let ran = check(path, &["--config", "t.toml"]);
        assert_eq!(ran.code, code, "{text}: {}", ran.err);
        named.iter().for_each(|named| assert!(ran.err.contains(named), "{text}: {named} in {}", ran.err));
        let of_json = check(path, &["--config", "t.toml", "--json"]);
        let errors = lines(&of_json.out).into_iter().filter(|line| line.get("error").is_some()).count();
        assert_eq!((of_json.code, errors), (code, ran.err.lines().filter(|line| line.starts_with("error: ")).count()));
    }
    assert_eq!(check(path, &["--config", "no.toml"]).code, 1);
    let ran = check(path, &["--inbox-post", "3"]);
    assert!(ran.code == 2 && ran.err.contains("'--inbox-posts'"), "{}", ran.err);
    assert!(!path.join("new").exists());
}

/// Runs the check without the rights of root, to whom every directory is open.
fn check_as_anybody(directory: &Path, place: &str) -> Ran {
    let mut command = program("");
    command.current_dir(directory).args(["config", "check", "--data-dir", place]);
    if fs::metadata(directory).unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = testkit::output(&mut command);
    Ran { code: output.status.code().unwrap(), out: String::new(), err: String::from_utf8(output.stderr).unwrap() }
}

#[test]
#[ignore = "needs the program where other users may run it"]
fn a_directory_in_which_no_files_can_be_created_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mode = |name: &str, mode: u32| {
        fs::create_dir_all(path.join(name)).unwrap();
        fs::set_permissions(path.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    for (name, bits) in [("closed", 0o000), ("read", 0o555), ("open", 0o777)] {
        mode(name, bits);
    }
    for (place, code) in
        [("closed", 1), ("closed/new", 1), ("read", 1), ("read/new/below", 1), ("open", 0), ("open/new", 0)]
    {
        let ran = check_as_anybody(path, place);
        assert_eq!(ran.code, code, "{place}: {}", ran.err);
    }
}

#[test]
fn a_directory_in_use_passes_and_one_with_a_foreign_archive_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (one, other) = (directory.path().join("one"), directory.path().join("other"));
    let open = |directory: &Path| {
        let storage = StorageConfig { directory: directory.to_owned(), ..StorageConfig::default() };
        Engine::open(EngineConfig::default(), &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0
    };
    let check = |place: &str| check(directory.path(), &["--data-dir", place]);
    let copy = || {
        for name in ["archive.redb", "archive.sums"] {
            fs::copy(other.join(name), one.join(name)).unwrap();
        }
    };
    let engines = [open(&one), open(&other)];
    assert_eq!(check("one").code, 0, "{}", check("one").err);
    let [of_one, of_other] = engines;
    of_one.shutdown();
    assert_eq!(check("one").code, 0, "{}", check("one").err);
    // As a killed server leaves it: only a start may repair it, and compares it.
    copy();
    assert_eq!(check("one").code, 0, "{}", check("one").err);
    of_other.shutdown();
    copy();
    // A server that is starting has locked it. The check needs no lock, by which it could keep a server from starting.
    let held =
        FileBackend::new(fs::File::options().read(true).write(true).open(one.join("archive.redb")).unwrap()).unwrap();
    assert!(held.try_lock_range(Bound::Unbounded, Bound::Unbounded).unwrap());
    assert!(check("one").code == 1 && check("one").err.contains("archive.redb"), "{}", check("one").err);
}
