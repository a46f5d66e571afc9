//! Tests of the settings from flags and files.
#![cfg(test)]

use std::num::NonZeroU64;
use std::time::Duration;

use super::*;
use clap::{Args, Command, FromArgMatches};
use tidewire::feed::celebrity::{CelebrityPolicy, CostModel};
use tidewire::storage::journal::Durability;

fn flags(words: &[&str]) -> Result<Settings, String> {
    let command = Settings::augment_args(Command::new("serve").no_binary_name(true));
    let matches = command.try_get_matches_from(words).map_err(|cause| cause.to_string())?;
    Settings::from_arg_matches(&matches).map_err(|cause| cause.to_string())
}

fn file(text: &str) -> Result<Settings, String> {
    toml::from_str(text).map_err(|cause: toml::de::Error| cause.to_string())
}

#[test]
fn flags_override_the_file_and_the_file_overrides_defaults() {
    let flags = flags(&["--inbox-posts", "7", "--celebrity-followers", "off"]).unwrap();
    let file = file("inbox-posts = 9\nactive-window = \"90s\"\ncelebrity-followers = 0").unwrap();
    let config = flags.or(&file).engine().unwrap();
    assert_eq!(config.inbox_posts.get(), 7);
    assert_eq!(config.celebrity, CelebrityPolicy::PushAll);
    assert_eq!(config.active_window, Duration::from_secs(90));
    assert_eq!(config.following_max, 5_000);
}

#[test]
fn flags_and_the_file_set_the_storage_options() {
    let flags = flags(&["--durability", "no", "--snapshot-interval", "90s", "--repair"]).unwrap();
    let file =
        "durability = \"everysec\"\nsnapshot-compression = \"zstd\"\nsnapshot-inboxes = \"none\"\ndata-dir = \"d\"";
    let file = self::file(file).unwrap();
    let storage = flags.or(&file).storage().unwrap();
    assert_eq!((storage.journal.durability, storage.repair), (Durability::Never, true));
    assert_eq!((storage.directory, storage.snapshots.interval), (PathBuf::from("d"), Duration::from_secs(90)));
    assert_eq!((storage.snapshots.compress, storage.snapshots.inboxes), (true, false));
    let storage = file.storage().unwrap();
    assert_eq!((storage.journal.durability, storage.repair), (Durability::EverySecond, false));
    let storage = Settings::default().storage().unwrap();
    assert_eq!(storage.journal.durability, Durability::Always);
    assert_eq!((storage.snapshots.compress, storage.snapshots.inboxes), (false, true));
}

#[test]
fn thresholds_have_four_forms() {
    let auto = CelebrityPolicy::ByCost(CostModel::default());
    let above = CelebrityPolicy::Above(NonZeroU64::new(5).unwrap());
    for (flag, toml, policy) in [
        ("off", "\"off\"", CelebrityPolicy::PushAll),
        ("auto", "\"auto\"", auto),
        ("0", "0", CelebrityPolicy::PullAll),
        ("5", "5", above),
    ] {
        assert_eq!(flags(&["--celebrity-followers", flag]).unwrap().celebrity_followers, Some(Celebrity(policy)));
        let file = file(&format!("celebrity-followers = {toml}")).unwrap();
        assert_eq!(file.celebrity_followers, Some(Celebrity(policy)));
    }
}

#[test]
fn sizes_have_units_or_are_plain_numbers_of_bytes() {
    for (flag, toml, bytes) in [
        ("4GiB", "\"4GiB\"", 4 << 30),
        ("4294967296", "4294967296", 4 << 30),
        ("512MB", "\"512MB\"", 512_000_000),
        ("1.5 KiB", "\"1.5 KiB\"", 1_536),
        ("7", "7", 7),
    ] {
        assert_eq!(flags(&["--store-bytes-max", flag]).unwrap().engine().unwrap().store_bytes_max, bytes);
        let file = file(&format!("store-bytes-max = {toml}\nsnapshot-journal-bytes = {toml}")).unwrap();
        assert_eq!(file.engine().unwrap().store_bytes_max, bytes);
        assert_eq!(file.storage().unwrap().snapshots.journal_bytes, bytes as u64);
    }
}

#[test]
fn an_address_without_a_host_is_loopback() {
    for (text, address) in [
        (":8080", "127.0.0.1:8080"),
        ("localhost:8080", "127.0.0.1:8080"),
        ("192.0.2.1:80", "192.0.2.1:80"),
        ("[::1]:80", "[::1]:80"),
    ] {
        let address = Some(address.parse().unwrap());
        assert_eq!(flags(&["--listen", text]).unwrap().listen, address);
        assert_eq!(file(&format!("listen = {text:?}")).unwrap().listen, address);
    }
    assert_eq!(file("").unwrap().listen, None);
    for text in [":", "localhost", "localhost:", ":99999", "*:8080", "example.org:80", "::1:8080x"] {
        assert!(flags(&["--listen", text]).is_err(), "{text}");
    }
}

#[test]
fn no_address_is_public_without_keys() {
    for (arguments, refused) in [
        (&["--listen", "0.0.0.0:8080"][..], Some("--listen 0.0.0.0:8080 ")),
        (&["--resp", "0.0.0.0:7379"], Some("--resp 0.0.0.0:7379 ")),
        (&["--resp", "0.0.0.0:7379", "--access", "access.toml"], None),
        (&["--resp", ":7379"], None),
    ] {
        let refusal = flags(arguments).unwrap().refusal_to_listen();
        assert_eq!(refusal.is_some(), refused.is_some(), "{arguments:?}: {refusal:?}");
        assert!(refusal.unwrap_or_default().starts_with(refused.unwrap_or_default()), "{arguments:?}");
    }
}

#[test]
fn invalid_values_are_refused_with_the_name_of_the_option() {
    let cases: [&[&str]; 35] = [
        &["--erasure-grace", "25h"],
        &["--inbox-posts", "0"],
        &["--inbox-posts", "100001"],
        &["--inbox-posts", "many"],
        &["--shards", "0"],
        &["--shards", "257"],
        &["--celebrity-followers", "1.5"],
        &["--celebrity-followers", "on"],
        &["--active-window", "0s"],
        &["--active-window", "soon"],
        &["--pull-budget", "0ms"],
        &["--listen", "8080"],
        &["--archive-budget", "0s"],
        &["--outbox-posts", "0"],
        &["--store-bytes-max", "8Gi8"],
        &["--store-bytes-max", "99999999999TiB"],
        &["--store-bytes-max", "16EiB"],
        &["--sources-max", "0"],
        &["--edges-max", "0"],
        &["--graph-bytes-max", "0GiB"],
        &["--reposts-max", "many"],
        &["--durability", "sometimes"],
        &["--durability", "ALWAYS"],
        &["--snapshot-interval", "0s"],
        &["--snapshot-interval", "hourly"],
        &["--snapshot-journal-bytes", "0"],
        &["--snapshot-inboxes", "all"],
        &["--snapshot-compression", "gzip"],
        &["--write-bytes-max", "3519999"],
        &["--rate-limit", "0"],
        &["--rate-limit", "fast"],
        &["--token-lifetime-max", "0s"],
        &["--token-lifetime-max", "long"],
        &["--cors-origins", "*"],
        &["--cors-origins", "https://a.example,b.example"],
    ];
    for words in cases {
        let refused = flags(words).and_then(|raw| {
            let checked = raw.engine().and(raw.storage()).and(raw.admission()).and(raw.access());
            checked.map_err(|cause| cause.to_string())
        });
        let cause = refused.expect_err(&words.join(" "));
        assert!(cause.contains(words[0]), "{words:?}: {cause}");
    }
    for (text, named) in [
        ("inbox-post = 3", "inbox-post"),
        ("inbox-posts = 0", "inbox-posts"),
        ("inbox_posts = 3", "inbox_posts"),
        ("active-window = 5", "active-window"),
        ("celebrity-followers = \"on\"", "celebrity-followers"),
        ("durability = \"sometimes\"", "sometimes"),
        ("snapshot-interval = 900", "snapshot-interval"),
        ("snapshot-compression = true", "snapshot-compression"),
        ("snapshot-journal-bytes = 0", "snapshot-journal-bytes"),
        ("store-bytes-max = \"much\"", "store-bytes-max"),
        ("listen = \"8080\"", "listen"),
        ("repair = true", "repair"),
        ("rate-limit = 0", "rate-limit"),
        ("cors-origins = \"a.example\"", "cors-origins"),
    ] {
        let cause = file(text).expect_err(text);
        assert!(cause.contains(named), "{text}: {cause}");
    }
}
