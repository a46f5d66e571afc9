//! Nodes that use TLS everywhere, as the guide describes it: with Kafka, which asks for a password, with each other and with clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use super::{free_address, tidewire};
use crate::tls;
use testkit::eventually;
use testkit::kafka::Brokers;

/// A directory with a certificate for `localhost`, which is its own authority.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        tls::issue(place.0.path());
        let both = ["key.pem", "cert.pem"].map(|name| fs::read_to_string(place.path(name)).unwrap()).concat();
        fs::write(place.path("both.pem"), both).unwrap();
        fs::write(place.path("key"), "0123456789abcdef0123456789abcdef").unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command with the options by which Kafka is reached.
    fn command(&self, arguments: &[&str], brokers: &Brokers, password: &str, authority: Option<&Path>) -> Command {
        let mut command = tidewire();
        command.args(arguments).args(["--cluster", "feeds", "--kafka", &brokers.addresses]);
        command.args(["--kafka-property", "security.protocol=SASL_SSL"]);
        let authority = authority.map(|file| format!("ssl.ca.location={}", file.display()));
        command.args(authority.iter().flat_map(|property| ["--kafka-property", property]));
        let secret = format!("sasl.mechanisms=SCRAM-SHA-512;sasl.username=feeds;sasl.password={password}");
        command.env("TIDEWIRE_KAFKA_PROPERTIES", secret);
        command
    }
}

/// Processes that end with the test.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn refusal(ran: &Output) -> String {
    assert!(!ran.status.success());
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

#[test]
#[ignore = "needs Kafka: scripts/kafka.sh install"]
fn nodes_reach_kafka_and_each_other_over_tls_and_report_wrong_secrets() {
    let place = Place::new();
    let brokers = Brokers::secure(&place.path("both.pem"));
    let authority = place.path("cert.pem");
    let init = ["cluster", "init", "--replicas", "1"];
    let wrong = place.command(&init, &brokers, "guessed", Some(&authority)).output().unwrap();
    assert!(refusal(&wrong).contains("invalid credentials"), "{}", refusal(&wrong));
    let unknown = place.command(&init, &brokers, "secret", None).output().unwrap();
    assert!(refusal(&unknown).contains("certificate verify failed"), "{}", refusal(&unknown));
    let done = place.command(&init, &brokers, "secret", Some(&authority)).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let mut running = Running(Vec::new());
    let mut urls = Vec::new();
    for name in ["a", "b"] {
        let address = free_address();
        let url = format!("https://localhost:{}", address.rsplit_once(':').unwrap().1);
        let mut serve = place.command(&["serve", "--listen", &address], &brokers, "secret", Some(&authority));
        serve.args(["--node", name, "--advertise", &url, "--member-timeout", "2s"]);
        for (option, file) in [
            ("--cluster-key-file", "key"),
            ("--cluster-ca-file", "cert.pem"),
            ("--tls-cert", "cert.pem"),
            ("--tls-key", "key.pem"),
        ] {
            serve.arg(option).arg(place.path(file));
        }
        running.0.push(serve.stderr(Stdio::null()).spawn().unwrap());
        urls.push(url);
    }
    let status = |url: &str| {
        let mut status = tidewire();
        status.args(["cluster", "status", "--server", url, "--ca-file"]).arg(&authority);
        let shown = String::from_utf8(status.output().unwrap().stdout).unwrap();
        shown.lines().filter(|line| line.contains("owns")).count()
    };
    // Each answers for readers of the other one, too, so that requests pass between them.
    eventually("both nodes own readers", || urls.iter().all(|url| status(url) == 2));
    let trusted = ureq::tls::RootCerts::new_with_certs(&[certificate(&authority)]);
    let tls = ureq::tls::TlsConfig::builder().root_certs(trusted).build();
    let agent = ureq::Agent::config_builder().tls_config(tls).build().new_agent();
    for reader in 0..8 {
        for url in &urls {
            let feed = format!("{url}/v1/users/reader-{reader}/feed");
            eventually("a page is answered", || agent.get(&feed).call().is_ok_and(|answer| answer.status() == 200));
        }
    }
}

fn certificate(file: &Path) -> ureq::tls::Certificate<'static> {
    ureq::tls::Certificate::from_pem(&fs::read(file).unwrap()).unwrap().to_owned()
}
