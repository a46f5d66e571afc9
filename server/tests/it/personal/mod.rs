//! The HTTP contract of what readers decide about their feeds, over real sockets.

mod explain;
mod follows;
mod lists;
mod preferences;
mod refusals;
mod restart;

use serde_json::{Value, json};
use tidewire::config::EngineConfig;

use crate::server::{Answer, Server};

pub fn server() -> Server {
    Server::start(EngineConfig::default())
}

pub fn status(server: &Server, method: &str, path: &str) -> u16 {
    server.send(method, path, None, "").status
}

pub fn follow(server: &Server, follower: &str, source: &str) {
    assert_eq!(status(server, "PUT", &format!("/v1/users/{follower}/following/{source}")), 201);
}

/// Publishes a post whose body is its number, and returns its id.
pub fn publish(server: &Server, author: &str, body: u64, fields: &Value) -> String {
    let mut post = json!({"author": author, "body": body});
    post.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let answer = server.post("/v1/posts?wait=delivered", &post);
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()["id"].as_str().unwrap().to_owned()
}

pub fn posts(server: &Server, author: &str, bodies: std::ops::RangeInclusive<u64>) -> Vec<String> {
    bodies.map(|body| publish(server, author, body, &json!({}))).collect()
}

pub fn bodies(server: &Server, path: &str) -> Vec<u64> {
    let page = server.get(path).json();
    page["items"].as_array().unwrap().iter().map(|item| item["post"]["body"].as_u64().unwrap()).collect()
}

pub fn ids(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

fn check(answer: &Answer, what: &str, status: u16, code: &str, field: Option<&str>) {
    let problem = answer.json();
    assert_eq!((answer.status, problem["code"].as_str()), (status, Some(code)), "{what}: {}", answer.text);
    assert_eq!(
        (answer.header("content-type"), problem["field"].as_str()),
        ("application/problem+json", field),
        "{what}"
    );
}
