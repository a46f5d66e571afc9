//! `tidewire demo`: what it prints, and that the figures which a new user looks at move.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::eventually;
use tidewire_server::http::auth::key::KeyScope;
use tidewire_server::http::auth::mint;

use crate::cli::{program, ran};
use crate::server::agent;

struct Demo {
    child: Child,
    /// The scheme, host and port of its console.
    origin: String,
    key: Option<String>,
    /// Its journal is left behind here, since it is killed.
    _temporary: TempDir,
}

impl Demo {
    fn start(arguments: &[&str], key: Option<&str>) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidewire"))
            .env("TMPDIR", temporary.path())
            .env("TIDEWIRE_LISTEN", "127.0.0.1:0")
            .args(["demo", "--seconds", "120"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
        let console = first.split_whitespace().last().unwrap().to_owned();
        let origin = console.strip_suffix("/console/overview").map(str::to_owned);
        assert!(first.starts_with("The console: http://") && origin.is_some(), "{first}");
        Self { child, origin: origin.unwrap(), key: key.map(str::to_owned), _temporary: temporary }
    }

    fn get(&self, path: &str) -> String {
        let url = format!("{}{path}", self.origin);
        let mut request = agent().get(url);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut answer = request.call().unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        answer.body_mut().read_to_string().unwrap()
    }

    fn stats(&self) -> Value {
        serde_json::from_str(&self.get("/v1/stats")).unwrap()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
#[ignore = "takes 10 s of the demo"]
fn p8_the_demo_generates_activity_that_console_and_commands_show() {
    let demo = Demo::start(&[], None);
    let (first, mut last) = (demo.stats(), Value::Null);
    let number = |stats: &Value, path: &str| stats.pointer(path).and_then(Value::as_u64).unwrap();
    for path in ["/posts", "/published", "/deliveries", "/pages", "/wakes", "/live/messages"] {
        eventually(path, || {
            last = demo.stats();
            number(&last, path) > number(&first, path)
        });
    }
    eventually("live connections", || number(&demo.stats(), "/live/connections") > 3);
    eventually("a latency of fan-outs", || demo.stats()["fanout_latency"][0]["p50_us"].as_u64().is_some());
    // Those who never read.
    eventually("many are awake", || number(&demo.stats(), "/active") > 100);
    assert!(number(&demo.stats(), "/active") < 201);
    for operation in ["read_feed", "publish", "follow", "mute", "mark", "stream_events"] {
        let is_counted = || demo.get("/metrics").contains(&format!("operation=\"{operation}\",status=\"2xx\""));
        eventually(operation, is_counted);
    }
    let celebrity: Value = serde_json::from_str(&demo.get("/v1/users/ada.ash")).unwrap();
    assert_eq!(celebrity["celebrity"], true, "{celebrity}");
    eventually("the slow client watches", || {
        let user: Value = serde_json::from_str(&demo.get("/v1/users/tess.oak")).unwrap();
        user["active"] == true && user["following"].as_u64() > Some(299)
    });
    eventually("a storm of reposts", || {
        let page: Value = serde_json::from_str(&demo.get("/v1/users/hugo.ash/feed")).unwrap();
        let reposts = page["items"].as_array().unwrap().iter().map(|item| item["reposts"].as_array().unwrap().len());
        reposts.max() > Some(1)
    });
    assert!(demo.get("/console/overview").contains("<title>"));
    let told = |words: &[&str]| ran(program(&demo.origin).args(words));
    let for_people = told(&["feed", "hugo.ash"]);
    assert!(for_people.code == 0 && for_people.out.contains(" · "), "{}{}", for_people.out, for_people.err);
    let for_programs = told(&["stats", "--json"]);
    assert_eq!(for_programs.code, 0, "{}", for_programs.err);
    assert!(number(&serde_json::from_str(&for_programs.out).unwrap(), "/posts") > 0);
}

#[test]
#[ignore = "takes 5 s of the demo"]
fn the_demo_runs_with_keys_and_continues_when_they_change() {
    let (key, other) = (mint::server_key().unwrap(), mint::server_key().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.toml");
    write_keys(&file, &[("one", &key)]);
    let mut demo = Demo::start(&["--access", file.to_str().unwrap()], Some(&key));
    eventually("pages", || demo.stats()["pages"].as_u64() > Some(20));
    write_keys(&file, &[("two", &other)]);
    demo.key = Some(other);
    let is_known = || {
        let url = format!("{}/v1/stats", demo.origin);
        let key = format!("Bearer {}", demo.key.as_ref().unwrap());
        agent().get(url).header("authorization", key).call().unwrap().status() == 200
    };
    eventually("the other key", is_known);
    let pages = demo.stats()["pages"].as_u64().unwrap();
    eventually("more pages", || demo.stats()["pages"].as_u64() > Some(pages + 40));
}

fn write_keys(file: &Path, keys: &[(&str, &String)]) {
    let entries = keys.iter().map(|(name, key)| mint::server_key_entry(name, key, KeyScope::All));
    std::fs::write(file, entries.collect::<String>()).unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn the_root_redirects_to_the_console() {
    let demo = Demo::start(&["--cors-origins", "http://localhost:8000"], None);
    let agent = agent();
    let origin = "http://localhost:8000";
    for path in ["/", "/console"] {
        let answer = agent
            .get(format!("{}{path}", demo.origin))
            .header("origin", origin)
            .config()
            .max_redirects(0)
            .build()
            .call()
            .unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["location"]),
            (302, &"/console/overview".parse().unwrap())
        );
        assert_eq!(answer.headers()["cache-control"], "no-store", "{path}");
        assert_eq!(answer.headers()["access-control-allow-origin"], origin, "{path}");
    }
    let posted = agent.post(format!("{}/", demo.origin)).send("{}").unwrap();
    assert_eq!(posted.status(), 405);
    let answer = agent.get(format!("{}/console/overview", demo.origin)).header("origin", origin).call().unwrap();
    assert_eq!(answer.headers()["access-control-allow-origin"], origin);
    let mut text = String::new();
    answer.into_body().into_reader().read_to_string(&mut text).unwrap();
    assert!(text.contains("<title>"));
}

#[test]
fn a_demo_on_all_addresses_prints_a_reachable_url() {
    let directory = tempfile::tempdir().unwrap();
    let (file, key) = (directory.path().join("access.toml"), mint::server_key().unwrap());
    write_keys(&file, &[("one", &key)]);
    let demo = Demo::start(&["--access", file.to_str().unwrap(), "--listen", "0.0.0.0:0"], Some(&key));
    assert!(demo.origin.starts_with("http://127.0.0.1:"), "{}", demo.origin);
}
