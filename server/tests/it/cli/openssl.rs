//! A certificate as `openssl req -x509` makes it, which is its own authority: `--ca-file` accepts it, and nothing like it.

use std::fs;
use std::path::Path;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::state::HttpState;
use tidewire_server::http::tls::Certificate;

use super::{program, ran};
use crate::server::Server;
use crate::tools::Ran;
use testkit::test_servers;

/// Makes the same without `openssl`, which expires in this year.
pub fn issue_of_authority(directory: &Path, name: &str, year: i32) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params.not_before, params.not_after) = (date_time_ymd(2019, 1, 1), date_time_ymd(year, 1, 1));
    let key = KeyPair::generate().unwrap();
    fs::write(directory.join(format!("{name}.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

/// What is said of such a certificate.
const OF_AUTHORITY: &str = "a CA certificate, as `openssl req -x509` makes it";

/// Makes `NAME.pem` and `NAME.key`.
fn make(directory: &Path, name: &str, more: &[&str]) {
    let mut command = Command::new(test_servers::program("openssl", "openssl"));
    command.current_dir(directory).args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    command.args(["-nodes", "-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")]);
    command.args(["-subj", "/CN=localhost"]).args(more);
    let output = testkit::output(&mut command);
    assert!(output.status.success(), "{output:?}");
}

fn serving(directory: &Path, name: &str) -> Server {
    let file = |kind: &str| directory.join(format!("{name}.{kind}"));
    let engine = Engine::start(EngineConfig::default());
    let mut state = HttpState::from(engine.clone());
    state.certificate = Some(Certificate::read(file("pem"), file("key")).unwrap());
    Server::serving(state, engine)
}

fn feed(server: &Server, host: &str, ca_file: Option<&Path>) -> Ran {
    let mut command = program(&format!("https://{host}:{}", server.address().port()));
    command.args(["feed", "ann"]);
    if let Some(file) = ca_file {
        command.arg("--ca-file").arg(file);
    }
    ran(&mut command)
}

#[test]
#[ignore = "needs openssl"]
fn a_certificate_made_by_openssl_is_accepted_only_if_it_is_in_the_ca_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let at = |name: &str| path.join(format!("{name}.pem"));
    make(path, "named", &["-days", "9", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    make(path, "plain", &["-days", "9"]);
    // The same names, made by somebody else.
    make(path, "forged", &["-days", "9", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    make(path, "elsewhere", &["-days", "9", "-addext", "subjectAltName=DNS:example.org"]);
    for (shown, host, file, accepted) in [
        ("named", "localhost", Some("named"), true),
        ("named", "127.0.0.1", Some("named"), true),
        ("plain", "localhost", Some("plain"), true),
        ("plain", "127.0.0.1", Some("plain"), true),
        ("named", "localhost", None, false),
        ("named", "localhost", Some("forged"), false),
        ("forged", "localhost", Some("named"), false),
        ("elsewhere", "localhost", Some("elsewhere"), false),
    ] {
        let server = serving(path, shown);
        let ran = feed(&server, host, file.map(at).as_deref());
        assert_eq!(ran.code == 0, accepted, "{shown} at {host} by {file:?}: {}", ran.err);
        assert!(accepted || ran.code == 3 && ran.err.contains("certificate"), "{shown} by {file:?}: {}", ran.err);
        let advice = match file {
            None => OF_AUTHORITY.to_owned() + ": pass it with --ca-file\n",
            Some(file) => format!("{OF_AUTHORITY}, and not in {}: add it to this file", at(file).display()),
        };
        let is_other = file != Some(shown);
        assert_eq!(ran.err.contains(&advice), is_other, "{shown} by {file:?}: {}", ran.err);
        // Something serves there, so nobody should look whether it does.
        assert!(!ran.err.contains("is `tidewire serve` running"), "{}", ran.err);
        let mut health = program("http://unused");
        health.args(["health", "--server", &server.url("").replace("http://127.0.0.1", &format!("https://{host}"))]);
        if let Some(file) = file {
            health.arg("--ca-file").arg(at(file));
        }
        let health = super::ran(&mut health);
        assert_eq!((health.code == 0, health.err.contains(&advice)), (accepted, is_other), "{}", health.err);
    }
}

#[test]
fn an_expired_certificate_is_refused_even_if_it_is_in_the_ca_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for (year, accepted) in [(2020, false), (2999, true)] {
        issue_of_authority(path, "of", year);
        let ran = feed(&serving(path, "of"), "localhost", Some(&path.join("of.pem")));
        assert_eq!(ran.code == 0, accepted, "{year}: {}", ran.err);
        assert!(accepted || ran.err.contains("expired"), "{year}: {}", ran.err);
    }
}
