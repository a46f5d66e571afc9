//! The console and the live client: how they are served, and their own tests, which Node and a browser run.

use std::fs;
use std::io::{Read as _, Seek as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tidewire::config::EngineConfig;
use tidewire_server::console::ASSETS;

use crate::server::{Server, agent};
use testkit::test_servers::program;

const LINES_MAX: usize = 500;

#[test]
fn files_are_served_with_their_media_types() {
    let server = Server::start(EngineConfig::default());
    for asset in ASSETS {
        let answer = server.get(asset.path);
        assert_eq!((answer.status, answer.header("x-content-type-options")), (200, "nosniff"), "{}", asset.path);
        let expected = match asset.path.rsplit_once('.') {
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!(answer.header("content-type"), expected);
        assert_eq!(answer.header("cache-control"), "no-cache");
    }
    for page in ["/console/readers?user=ann&whatever=1", "/docs"] {
        let policy = server.get(page).header("content-security-policy").to_owned();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{page}: {policy}");
    }
    assert_eq!(server.send("HEAD", "/console/overview", None, "").status, 200);
    let refused = server.send("POST", "/tidewire.js", None, "");
    assert_eq!((refused.status, refused.header("allow")), (405, "GET, HEAD"));
    assert_eq!(server.get("/console/package.json").status, 404);
}

#[test]
fn cached_files_are_confirmed_by_etag() {
    let server = Server::start(EngineConfig::default());
    let tag = server.get("/tidewire.js").header("etag").to_owned();
    let agent = agent();
    for (known, status) in [(tag.as_str(), 304), ("\"another\"", 200), (&format!("\"another\", {tag}"), 304)] {
        let answer = agent.get(server.url("/tidewire.js")).header("if-none-match", known).call().unwrap();
        assert_eq!(answer.status(), status, "{known}");
        assert_eq!(answer.headers()["etag"], tag.as_str());
    }
}

#[test]
fn every_file_is_short_served_and_uses_no_unsafe_dom_function() {
    let entries =
        ["src/console/assets", "src/console/vendor"].map(|folder| fs::read_dir(repository().join(folder)).unwrap());
    for entry in entries.into_iter().flatten() {
        let path = entry.unwrap().path();
        // The folder of other people's code has what builds it as well, and what that needs.
        let is_code = path.extension().is_some_and(|extension| extension == "js" || extension == "css");
        if path.parent().unwrap().ends_with("vendor") && !is_code {
            continue;
        }
        let (name, text) = (path.file_name().unwrap().to_str().unwrap(), fs::read_to_string(&path).unwrap());
        // `tidewire.js` is built from several files in clients/typescript.
        assert!(name == "tidewire.js" || text.lines().count() <= LINES_MAX, "{name} has over {LINES_MAX} lines");
        // The one that only tells tools that these are modules.
        let is_around_pages = ["head.html", "foot.html"].contains(&name);
        let is_served =
            ASSETS.iter().any(|asset| asset.path.ends_with(name.trim_end_matches(".html"))) || is_around_pages;
        assert!(is_served || name == "package.json", "{name} is served nowhere");
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!text.contains(word), "{name} uses {word}");
        }
    }
}

#[test]
fn third_party_code_is_served_with_its_licence() {
    let server = Server::start(EngineConfig::default());
    let licence = fs::read_to_string(repository().join("src/console/vendor/LICENSE-uplot")).unwrap();
    let listed = fs::read_to_string(repository().join("../THIRD-PARTY.md")).unwrap();
    let lock = fs::read_to_string(repository().join("src/console/vendor/package-lock.json")).unwrap();
    for path in ["/console/uplot.js", "/console/uplot.css"] {
        let text = server.get(path).text;
        assert!(text.contains(licence.trim()), "{path} has no licence");
        let version = text.split_once("uPlot ").and_then(|(_, rest)| rest.split_once(',')).unwrap().0;
        assert!(listed.contains(&format!("uPlot {version}")), "THIRD-PARTY.md does not list uPlot {version}");
        assert!(lock.contains(&format!("\"version\": \"{version}\"")), "uPlot {version} is not what is pinned");
    }
}

#[test]
#[ignore = "needs Node 20 or newer"]
fn the_live_client_agrees_with_a_naive_model() {
    run_tests("tests/js", ".test.mjs", &[]);
}

#[test]
#[ignore = "needs Chromium, and `npm ci` in server/tests/browser"]
fn the_console_works_in_a_browser() {
    in_a_browser(".test.js", &[]);
}

/// Runs the tests in a browser in files with this ending, with these environment variables.
pub fn in_a_browser(ending: &str, environment: &[(&str, &str)]) {
    let chromium = std::env::var("TIDEWIRE_CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
    program(&chromium, "chromium, or name it by TIDEWIRE_CHROMIUM");
    assert!(repository().join("tests/browser/node_modules").exists(), "run `npm ci` in server/tests/browser");
    run_tests("tests/browser", ending, environment);
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Of a file, and of each test in it. What is cut off leaves its server running.
const TIMEOUT: &str = "--test-timeout=300000";

/// Files that run side by side, each with a browser and a server.
const SIDE_BY_SIDE: &str = "--test-concurrency=2";

/// Runs the tests in a folder, by Node's own runner.
fn run_tests(folder: &str, ending: &str, environment: &[(&str, &str)]) {
    let files = fs::read_dir(repository().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = files.filter(|path| path.to_str().unwrap().ends_with(ending)).collect();
    assert!(!files.is_empty());
    // Into a file: a pipe is at its end only once the last process that a browser left behind has closed it.
    let mut said = tempfile::tempfile().unwrap();
    let mut command = Command::new(program("node", "Node 20 or newer"));
    command.args(["--test", TIMEOUT, SIDE_BY_SIDE]).args(files).current_dir(repository()).stdin(Stdio::null());
    command.stdout(said.try_clone().unwrap()).stderr(said.try_clone().unwrap());
    command.envs(environment.iter().copied());
    let status = command.env("TIDEWIRE_BIN", env!("CARGO_BIN_EXE_tidewire")).status().unwrap();
    let mut text = String::new();
    said.rewind().unwrap();
    said.read_to_string(&mut text).unwrap();
    assert!(status.success(), "{text}");
}
