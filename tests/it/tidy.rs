//! House rules that no compiler checks.

mod circles;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn rust_files(folder: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, files: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    let mut files = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
    assert!(!files.is_empty());
    files
}

/// The part of a file before its unit tests. Where these have a file of their own, it is all of the file.
fn code(text: &str) -> &str {
    let kinds = ["mod", "pub(super) mod", "pub(crate) mod"];
    let inline = kinds.iter().filter_map(|kind| text.find(&format!("#[cfg(test)]\n{kind} tests {{")));
    inline.chain(text.find("#![cfg(test)]")).min().map_or(text, |start| &text[..start])
}

#[test]
fn every_file_begins_with_its_purpose() {
    for folder in [
        "src",
        "tests",
        "benches",
        "cassandra",
        "kafka",
        "server/src",
        "server/tests",
        "load",
        "testkit",
        "fuzz/fuzz_targets",
    ] {
        for (path, text) in rust_files(folder) {
            assert!(text.starts_with("//!"), "{} does not say what it is for", path.display());
        }
    }
}

#[test]
fn the_core_uses_no_io_or_threads() {
    let impure = [
        "actix",
        "tokio",
        "std::fs",
        "std::net",
        "std::thread",
        "SystemTime",
        "dashmap",
        "parking_lot",
        "crate::state",
    ];
    for (path, text) in rust_files("src/feed") {
        for word in impure {
            let used = code(&text).lines().any(|line| !line.trim_start().starts_with("//") && line.contains(word));
            assert!(!used, "{} uses {word}", path.display());
        }
    }
}

#[test]
fn code_does_not_unwrap_or_bypass_mailbox_limits() {
    for (path, text) in ["src", "cassandra/src", "kafka/src", "server/src", "load/src"].into_iter().flat_map(rust_files)
    {
        assert!(!code(&text).contains(".unwrap()"), "{} unwraps", path.display());
        let is_courier = path.ends_with("courier.rs");
        assert!(is_courier || !code(&text).contains("do_send("), "{} sends past a mailbox's limit", path.display());
    }
}

/// The modules of the engine, and which others each may use. Modules are listed after those that they use, so there is no circle.
const ENGINE_MODULES: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("limits", &["clock"]),
    ("id", &["limits"]),
    ("error", &["id"]),
    ("error_text", &[]),
    ("latency", &[]),
    ("throttle", &["limits"]),
    ("json", &[]),
    ("feed", &["clock", "id", "json", "limits"]),
    ("config", &["clock", "feed", "limits"]),
    ("storage", &["clock", "error_text", "feed", "id", "latency", "limits"]),
    ("cluster", &["clock", "feed", "id", "latency", "storage", "throttle"]),
    ("state", &["clock", "feed", "id", "limits", "storage"]),
    ("recovery", &["clock", "cluster", "feed", "id", "limits", "state", "storage"]),
    ("live", &["feed", "id", "limits", "state"]),
    (
        "runtime",
        &[
            "clock", "cluster", "config", "error", "feed", "id", "latency", "limits", "live", "recovery", "state",
            "storage", "throttle",
        ],
    ),
    (
        "engine",
        &[
            "clock", "cluster", "config", "error", "feed", "id", "limits", "live", "recovery", "runtime", "state",
            "storage",
        ],
    ),
    ("fuzzing", &["clock", "feed", "id", "recovery", "state", "storage"]),
];

/// The modules of the server's HTTP, in the same way.
const HTTP_MODULES: &[(&str, &[&str])] = &[
    ("problem", &[]),
    ("offered_upgrade", &[]),
    ("caching", &[]),
    ("certificates", &[]),
    ("trust", &["certificates"]),
    ("watched_files", &[]),
    ("post_json", &[]),
    ("page_json", &["caching", "post_json"]),
    ("parsed", &[]),
    ("operation", &[]),
    ("client", &[]),
    ("collected", &[]),
    ("process", &[]),
    ("request_metrics", &["operation"]),
    ("noted_requests", &["operation"]),
    ("request", &["operation", "problem"]),
    ("engine_cell", &["problem"]),
    ("answer", &["problem", "request"]),
    ("proxies", &["client"]),
    ("admission", &["client", "operation", "problem"]),
    ("compression", &["admission", "caching"]),
    (
        "auth",
        &["admission", "client", "engine_cell", "offered_upgrade", "operation", "problem", "proxies", "watched_files"],
    ),
    ("sockets", &["caching", "offered_upgrade", "problem", "proxies"]),
    ("history", &["engine_cell", "operation", "process", "request_metrics", "sockets"]),
    (
        "cluster",
        &[
            "admission",
            "auth",
            "caching",
            "offered_upgrade",
            "operation",
            "page_json",
            "post_json",
            "problem",
            "request",
            "sockets",
            "trust",
        ],
    ),
    ("tls", &["certificates", "watched_files"]),
    ("upgrade", &[]),
    (
        "middleware",
        &[
            "admission",
            "auth",
            "caching",
            "client",
            "cluster",
            "compression",
            "engine_cell",
            "offered_upgrade",
            "operation",
            "problem",
            "proxies",
            "request",
            "request_metrics",
            "noted_requests",
            "sockets",
        ],
    ),
    ("changes", &["answer", "auth", "cluster", "engine_cell", "post_json", "problem", "request", "sockets"]),
    (
        "handlers",
        &[
            "admission",
            "answer",
            "auth",
            "caching",
            "changes",
            "cluster",
            "collected",
            "engine_cell",
            "history",
            "operation",
            "page_json",
            "parsed",
            "post_json",
            "problem",
            "process",
            "request",
            "request_metrics",
            "noted_requests",
            "sockets",
        ],
    ),
    (
        "live",
        &[
            "admission",
            "auth",
            "cluster",
            "engine_cell",
            "offered_upgrade",
            "operation",
            "page_json",
            "post_json",
            "problem",
            "request",
            "sockets",
        ],
    ),
    (
        "openapi",
        &[
            "changes",
            "compression",
            "handlers",
            "history",
            "operation",
            "parsed",
            "post_json",
            "problem",
            "request",
            "noted_requests",
        ],
    ),
    (
        "routes",
        &[
            "admission",
            "auth",
            "changes",
            "compression",
            "engine_cell",
            "handlers",
            "live",
            "middleware",
            "openapi",
            "operation",
            "page_json",
            "problem",
            "request",
        ],
    ),
    (
        "state",
        &[
            "admission",
            "auth",
            "changes",
            "cluster",
            "collected",
            "engine_cell",
            "history",
            "middleware",
            "proxies",
            "request_metrics",
            "routes",
            "noted_requests",
            "sockets",
            "tls",
        ],
    ),
    ("plain_text", &["problem", "upgrade"]),
    ("resp", &["admission", "auth", "handlers", "middleware", "operation", "problem", "routes", "sockets"]),
    (
        "serve",
        &[
            "auth",
            "engine_cell",
            "history",
            "middleware",
            "plain_text",
            "resp",
            "routes",
            "sockets",
            "state",
            "tls",
            "upgrade",
        ],
    ),
    ("fuzzing", &["auth", "handlers", "live", "problem", "request", "resp"]),
];

/// Which other modules each module of `folder` uses in its code, apart from its unit tests.
fn uses(folder: &str, prefix: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in rust_files(folder) {
        let inside = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
        let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs").to_owned();
        let lines = code(&text).lines().filter(|line| !line.trim_start().starts_with("//"));
        let used = modules.entry(module.clone()).or_default();
        for line in lines {
            for rest in line.split(prefix).skip(1) {
                let group = rest.strip_prefix('{').and_then(|group| group.split('}').next());
                for start in group.unwrap_or(rest).split(',').take(group.map_or(1, |_| usize::MAX)) {
                    let is_of_name = |letter: &char| letter.is_alphanumeric() || *letter == '_';
                    let name: String = start.trim().chars().take_while(is_of_name).collect();
                    if name != module && !name.is_empty() {
                        used.insert(name);
                    }
                }
            }
        }
    }
    modules
}

/// Fails if a module uses one that `allowed` does not list for it, or if what is allowed has a circle.
fn check_modules(folder: &str, prefix: &str, allowed: &[(&str, &[&str])]) {
    for (nth, (module, others)) in allowed.iter().enumerate() {
        for other in *others {
            let is_before = allowed[..nth].iter().any(|(before, _)| before == other);
            assert!(is_before, "{module} uses {other}, which has to be listed before it");
        }
    }
    for (module, used) in uses(folder, prefix) {
        if module == "mod" || module == "lib" {
            continue;
        }
        let allowed =
            allowed.iter().find(|(name, _)| *name == module).unwrap_or_else(|| panic!("{module} is not listed")).1;
        for other in used.iter().filter(|other| is_module(folder, other)) {
            assert!(
                allowed.contains(&other.as_str()),
                "{folder}/{module} uses {other}, which the list above does not allow"
            );
        }
    }
}

fn is_module(folder: &str, name: &str) -> bool {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    folder.join(name).is_dir() || folder.join(format!("{name}.rs")).is_file()
}

#[test]
fn module_dependencies_have_no_cycles() {
    check_modules("src", "crate::", ENGINE_MODULES);
    check_modules("server/src/http", "crate::http::", HTTP_MODULES);
}

#[test]
fn modules_do_not_use_their_parent_module() {
    const HTTP: &str = "server/src/http";
    for (module, used) in uses(HTTP, "crate::http::").into_iter().filter(|(module, _)| module != "mod") {
        let of_owner: Vec<_> = used.iter().filter(|name| !is_module(HTTP, name)).collect();
        assert!(of_owner.is_empty(), "{HTTP}/{module} uses {of_owner:?} of {HTTP}/mod.rs");
    }
    for (path, text) in rust_files(HTTP).into_iter().filter(|(path, _)| !path.ends_with("http/mod.rs")) {
        let is_at_top = path.ends_with("mod.rs") || path.parent().is_some_and(|folder| folder.ends_with(HTTP));
        let ways = ["crate::http;", "crate::http as ", if is_at_top { "super::" } else { "super::super::" }];
        let way = ways.iter().find(|way| code(&text).contains(**way));
        assert_eq!(way, None, "{} may use {HTTP}/mod.rs in this way", path.display());
    }
}

/// The documents that people read, with their texts.
fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let all = [root.to_owned(), root.join("docs")].into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = all.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "md"));
    paths.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn documents_are_short_and_name_only_existing_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, text) in documents() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let most = match name {
            "README.md" => 7_000,
            "ARCHITECTURE.md" => 9_000,
            "performance.md" => 6_000,
            _ => usize::MAX,
        };
        assert!(text.len() <= most, "{name} has {} bytes, over {most}", text.len());
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.is_empty() && !link.contains(':') && !link.contains(' ')) {
            assert!(path.parent().unwrap().join(link).exists(), "{name} links to {link}, which is not there");
        }
        // Of code spans, those that can only be paths: from the top, or to a file of code within a crate.
        let spans = text.split('`').skip(1).step_by(2);
        let tops = [
            "src/",
            "cassandra/",
            "kafka/",
            "server/",
            "load/",
            "docs/",
            "tests/",
            "benches/",
            "fuzz/",
            "ops/",
            "scripts/",
            "examples/",
        ];
        for span in spans.filter(|span| !span.contains([' ', '*', '{', '\n'])) {
            let is_of_code = span.contains('/') && span.ends_with(".rs");
            if is_of_code || tops.iter().any(|top| span.starts_with(top)) {
                let is_there = ["", "src", "server/src"].iter().any(|from| root.join(from).join(span).exists());
                assert!(is_there, "{name} names {span}, which is not there");
            }
        }
    }
}

#[test]
fn all_packages_have_one_version_and_one_licence() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (version, licence) = (env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_LICENSE"));
    for (file, equals) in [("clients/python/pyproject.toml", " = "), ("clients/typescript/package.json", ": ")] {
        let text = fs::read_to_string(root.join(file)).unwrap();
        for (field, value) in [("version", version), ("license", licence)] {
            let lines = text.lines().map(|line| line.trim().trim_end_matches(',').replace('"', ""));
            let wanted = format!("{field}{equals}{value}");
            assert!(lines.clone().any(|line| line == wanted), "{file} has no {wanted:?}");
        }
    }
}

/// The modules are hidden from programs that embed the engine: they are for the server, the load tool and tests.
#[test]
fn examples_use_only_names_at_the_root_of_the_crate() {
    let documents =
        documents().into_iter().filter(|(path, _)| path.ends_with("README.md") || path.ends_with("embedding.md"));
    let root = [(PathBuf::from("src/lib.rs"), include_str!("../../src/lib.rs").to_owned())];
    let texts: Vec<(PathBuf, String)> = rust_files("examples").into_iter().chain(documents).chain(root).collect();
    assert!(texts.len() >= 6);
    for (path, text) in texts {
        let uses: Vec<&str> = text.split("tidewire::").skip(1).collect();
        assert!(!uses.is_empty(), "{} does not use the crate", path.display());
        for used in uses {
            let used = used.split_once(';').map_or(used, |(used, _)| used);
            let names = used.strip_prefix('{').map_or(used, |names| names.split('}').next().unwrap());
            for name in names.split(',').map(str::trim) {
                let is_at_root = name.starts_with(|first: char| first.is_ascii_uppercase());
                assert!(is_at_root, "{} uses tidewire::{name}, which is not at the root", path.display());
            }
        }
    }
}

/// Words that were pictures, each with the one to use.
const RETIRED_WORDS: &[(&str, &str)] = &[
    ("doorkeeper", "activator"),
    ("mailroom", "inbox store"),
    ("pigeonhole", "inbox handle"),
    ("archivist", "archiver"),
    ("shelving", "tiering"),
    ("silencing", "mute or block"),
    ("tenure", "session expiry"),
    ("stranger", "unauthenticated connection"),
    ("surroundings", "environment"),
];

#[test]
fn retired_words_do_not_occur() {
    let of_code = ["src", "cassandra/src", "kafka/src", "server/src", "load/src"].into_iter().flat_map(rust_files);
    let of_documents = documents().into_iter().filter(|(path, _)| !path.ends_with("CHANGELOG.md"));
    for (path, text) in of_code.chain(of_documents) {
        // Names of tests are sentences of their own time.
        let prose = text.lines().filter(|line| !line.contains("fn ") && !line.contains("::"));
        for line in prose {
            for (word, instead) in RETIRED_WORDS {
                let has = line.to_lowercase().split(|letter: char| !letter.is_alphabetic()).any(|found| found == *word);
                assert!(!has, "{}: {line:?} has {word:?}: write {instead:?}", path.display());
            }
        }
    }
}

#[test]
fn doc_comments_have_at_least_three_words() {
    let mut short = Vec::new();
    for (path, text) in ["src", "cassandra/src", "kafka/src", "server/src", "load/src"].into_iter().flat_map(rust_files)
    {
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        for (nth, line) in lines.iter().enumerate() {
            let Some(words) = line.strip_prefix("/// ") else { continue };
            let is_alone = !lines[nth + 1].starts_with("///") && (nth == 0 || !lines[nth - 1].starts_with("///"));
            if is_alone && words.split_whitespace().count() < 3 && !words.contains('`') {
                short.push(format!("{}:{}: {words}", path.display(), nth + 1));
            }
        }
    }
    assert!(short.is_empty(), "{} comments of fewer than three words:\n{}", short.len(), short.join("\n"));
}
