//! `tidewire import` into a server that goes away, or that permits less.

use std::io::Write as _;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use super::{program, ran};
use crate::access::tokens::{SERVER_KEY, access, token};
use crate::program::Program;
use crate::server::Server;
use testkit::eventually;
use tidewire::config::EngineConfig;

/// An import that reads from its standard input.
fn import(server: &Program, options: &[&str]) -> Child {
    let mut command = program(&server.url);
    command
        .args(["import", "posts", "-"])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Writes further lines, and closes the input.
fn finish(mut import: Child, lines: &str) -> (Option<i32>, String, String) {
    // An import that has stopped does not read.
    let _ = import.stdin.take().unwrap().write_all(lines.as_bytes());
    let ended = testkit::output_of(import);
    let [out, err] = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (ended.status.code(), out, err)
}

fn posts(server: &Program) -> Vec<Value> {
    let (status, page) = server.get("/v1/users/ann/posts").unwrap();
    assert!(status == 200 || status == 404, "{status}");
    page["items"].as_array().cloned().unwrap_or_default()
}

/// Ends the server after the answers under way, so that the import has them.
fn stop(server: Program) {
    server.signal("TERM");
    server.ended();
}

fn wait_for(server: &Program, count: usize) {
    eventually(&format!("{count} posts are imported"), || posts(server).len() >= count);
}

#[test]
fn a_stopped_import_names_the_line_to_continue_from_and_can_be_repeated_with_ids() {
    for has_ids in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let server = Program::start(directory.path(), &["--durability", "always"]);
        let line = |nth: u64| {
            let mut post = json!({"author": "ann", "body": nth});
            if has_ids {
                post["id"] = json!(nth.to_string());
            }
            format!("{post}\n")
        };
        let mut stopping = import(&server, &[]);
        stopping.stdin.as_mut().unwrap().write_all((line(1) + "\n" + &line(2)).as_bytes()).unwrap();
        wait_for(&server, 2);
        stop(server);
        let (code, _, said) = finish(stopping, &line(3));
        // The empty line counts as well.
        let place = "line 4 is the first line that is not imported, and line 4 the last that was sent; to continue, import again from line 4";
        assert!(code == Some(3) && said.contains("no answer from") && said.contains(place), "{code:?} {said}");
        assert!(said.contains("posts with an `id` or `external_id` are not published twice"), "{said}");
        let server = Program::start(directory.path(), &[]);
        let (from, expected) =
            if has_ids { (1, "1 post created, 2 existing") } else { (3, "1 post created, 0 existing") };
        let (code, out, said) = finish(import(&server, &[]), &(from..=3).map(line).collect::<String>());
        assert!(code == Some(0) && out.contains(expected), "{code:?} {out}{said}");
        assert_eq!(posts(&server).len(), 3);
        server.kill();
    }
}

#[test]
fn a_stopped_import_lists_the_refused_lines() {
    for is_json in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let server = Program::start(directory.path(), &[]);
        let mut stopping = import(&server, if is_json { &["--json"] } else { &[] });
        let lines = b"\xff\n{\"author\":\"ann\",\"body\":1}\n";
        stopping.stdin.as_mut().unwrap().write_all(lines).unwrap();
        wait_for(&server, 1);
        stop(server);
        let (code, out, said) = finish(stopping, "{\"author\":\"ann\",\"body\":2}\n");
        assert!(code == Some(3) && said.contains("no answer from"), "{code:?} {said}");
        if is_json {
            let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!((lines.len(), &lines[0]["line"]), (2, &json!(1)), "{out}");
            let [complete, created, refused] = ["complete", "created", "refused"].map(|name| &lines[1][name]);
            assert_eq!((complete, created, refused), (&json!(false), &json!(1), &json!(1)), "{out}");
        } else {
            assert!(said.contains("line 1: the line is not UTF-8"), "{said}");
            assert!(out.starts_with("stopped early: 1 post created, 0 existing, 1 line refused"), "{out}");
        }
    }
}

#[test]
fn posts_are_imported_with_a_key_of_the_server_and_own_posts_with_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("posts");
    let server = Server::guarded(EngineConfig::default(), access());
    let own = "{\"author\":\"ann\",\"body\":1}\n{\"author\":\"ann\",\"body\":2}\n";
    let import = |credential: &str, lines: &str| {
        std::fs::write(&path, lines).unwrap();
        let mut command = program(&server.url(""));
        ran(command.arg("import").arg("posts").arg(&path).env("TIDEWIRE_KEY", credential))
    };
    for credential in [SERVER_KEY, &token("ann")] {
        let ran = import(credential, own);
        assert!(ran.code == 0 && ran.out.starts_with("2 posts created, 0 existing"), "{}{}", ran.out, ran.err);
    }
    let foreign = format!("{own}{{\"author\":\"bob\",\"body\":3}}\n{own}");
    let ran = import(&token("ann"), &foreign);
    let place = "; line 3 is the first line that is not imported";
    assert!(ran.code == 5 && ran.out.starts_with("stopped early: 2 posts created"), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("another author's") && ran.err.contains(place), "{}", ran.err);
}
