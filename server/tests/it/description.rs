//! The description of the interface: kept as it was, right about its own examples, and held against whatever the server answers
//! in all other tests that ask over HTTP.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire_server::http::description;

use crate::server::{Answer, Server};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut document = description();
    document["components"]["schemas"].as_object_mut().unwrap().values_mut().for_each(close);
    document
});

/// Lets nothing be in an answer that is not described, though clients have to let it be.
fn close(schema: &mut Value) {
    if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
        schema["additionalProperties"] = json!(false);
    }
    match schema {
        Value::Object(members) => members.values_mut().for_each(close),
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// What checks values against a schema of the description. Made once for each.
fn validator(schema: &Value) -> Arc<Validator> {
    static MADE: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);
    let mut made = MADE.lock().unwrap();
    let make = || {
        let mut whole = schema.clone();
        whole["components"] = DOCUMENT["components"].clone();
        Arc::new(jsonschema::options().should_validate_formats(true).build(&whole).unwrap())
    };
    Arc::clone(made.entry(schema.to_string()).or_insert_with(make))
}

/// Says what of a value is not as a schema has it.
fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let fault = |fault: jsonschema::ValidationError<'_>| format!("{}: {fault}", fault.instance_path());
    validator(schema).iter_errors(value).map(fault).collect()
}

/// The operation that a request is for, if the path has any.
fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap();
    let fits = |template: &str| {
        let parts = || template.split('/').zip(path.split('/'));
        template.split('/').count() == path.split('/').count()
            && parts().all(|(of, part)| of == part || (of.starts_with('{') && !part.is_empty()))
    };
    let method = if method == "HEAD" { "get".to_owned() } else { method.to_lowercase() };
    let (_, operations) = DOCUMENT["paths"].as_object().unwrap().iter().find(|(template, _)| fits(template))?;
    operations.get(method)
}

/// Fails if the description does not allow an answer, or not the request that was granted by it.
pub fn check(method: &str, path: &str, sent: &[u8], answer: &Answer) {
    let Some(operation) = operation(method, path) else { return };
    // Only a request with `If-None-Match` gets it. Generated clients send none, and would have to handle an answer without a content.
    if answer.status == 304 {
        return assert_eq!(answer.text, "", "{method} {path}");
    }
    let told = &operation["responses"][answer.status.to_string()];
    let what = format!("{method} {path}: {} {}", answer.status, answer.text.get(..2_000).unwrap_or(&answer.text));
    assert!(told.is_object(), "{what}: no such status is described");
    for header in ["Retry-After", "WWW-Authenticate", "Upgrade"] {
        let is_described = told["headers"].get(header).is_some();
        assert!(is_described || answer.header(header).is_empty(), "{what}: {header} is not described");
    }
    let content_type = answer.header("content-type").split(';').next().unwrap();
    let content = &told["content"][content_type];
    match told.get("content") {
        None => assert_eq!(answer.text, "", "{what}: no body is described"),
        Some(_) => assert!(content.is_object(), "{what}: {content_type:?} is not described"),
    }
    if content_type == "application/x-ndjson" && method != "HEAD" {
        for line in answer.text.lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|cause| panic!("{what}: {line:?}: {cause}"));
            assert_eq!(faults(&content["x-messages"], &line), [""; 0], "{what}: {line}");
        }
    } else if content_type.ends_with("json") && method != "HEAD" {
        assert_eq!(faults(&content["schema"], &answer.json()), [""; 0], "{what}");
    }
    if content_type == "application/problem+json" && method != "HEAD" {
        let problem = answer.json();
        assert_eq!(problem["status"], answer.status, "{what}");
        let codes = told["x-codes"].as_array().unwrap_or_else(|| panic!("{what}: no codes are described"));
        assert!(codes.contains(&problem["code"]), "{what}: this code is not described");
    }
    if answer.status < 300 && !sent.is_empty() {
        let mut sent: Value = serde_json::from_slice(sent).unwrap();
        if operation["operationId"] == "publish_many" {
            // Each post is granted or refused by itself.
            let answered = answer.json();
            let mut entries = answered["posts"].as_array().unwrap().iter();
            let posts = sent["posts"].as_array_mut().unwrap();
            posts.retain(|_| entries.next().unwrap().get("problem").is_none());
        }
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(faults(schema, &sent), [""; 0], "{what}: was granted");
    }
}

/// Set to have the golden file written anew.
const RENEW: &str = "TIDEWIRE_RENEW_GOLDEN";

/// What differs, by where it is.
fn differences(place: &str, before: &Value, now: &Value, found: &mut Vec<String>) {
    match (before, now) {
        (Value::Object(old), Value::Object(new)) => {
            for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
                let of = |members: &serde_json::Map<_, _>| members.get(name).cloned().unwrap_or(json!("(nothing)"));
                differences(&format!("{place} > {name}"), &of(old), &of(new), found);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (nth, (old, new)) in old.iter().zip(new).enumerate() {
                differences(&format!("{place} > {nth}"), old, new, found);
            }
        }
        _ if before == now => {}
        _ => found.push(format!("{place}\n  - {before}\n  + {now}")),
    }
}

#[test]
fn the_api_description_equals_the_golden_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/openapi.json");
    let server = Server::start(EngineConfig::default());
    let now = server.get("/openapi.json").json();
    if std::env::var_os(RENEW).is_some() {
        fs::write(&path, serde_json::to_string_pretty(&now).unwrap() + "\n").unwrap();
    }
    let before: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let mut found = Vec::new();
    differences("openapi.json", &before, &now, &mut found);
    let renew =
        format!("{RENEW}=1 cargo test -p tidewire-server --test server the_api_description_equals_the_golden_file");
    assert!(found.is_empty(), "the interface changed:\n{}\nif it is meant to: {renew}", found.join("\n"));
}

#[test]
fn examples_match_their_schemas() {
    fn walk(place: &str, value: &Value, count: &mut usize) {
        if let (Some(schema), Some(example)) = (value.get("schema"), value.get("example")) {
            assert_eq!(faults(schema, example), [""; 0], "{place}");
            *count += 1;
        }
        match value {
            Value::Object(members) => {
                members.iter().for_each(|(name, member)| walk(&format!("{place} > {name}"), member, count));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(place, item, count)),
            _ => {}
        }
    }
    let mut count = 0;
    walk("paths", &DOCUMENT["paths"], &mut count);
    assert!(count > 100, "{count}");
    for (name, schema) in DOCUMENT["components"]["schemas"].as_object().unwrap() {
        for example in schema["examples"].as_array().into_iter().flatten() {
            assert_eq!(faults(schema, example), [""; 0], "{name}");
        }
    }
}

#[test]
fn the_description_has_types_and_names_that_client_generators_support() {
    fn walk(place: &str, value: &Value) {
        if value.get("enum").is_some_and(Value::is_array) {
            assert!(value["type"].is_string(), "{place}: an enumeration without a type");
        }
        match value {
            Value::Object(members) => {
                members.iter().for_each(|(name, member)| walk(&format!("{place} > {name}"), member));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(place, item)),
            _ => {}
        }
    }
    walk("openapi.json", &DOCUMENT);
    for (name, schema) in DOCUMENT["components"]["schemas"].as_object().unwrap() {
        let properties = schema["properties"].as_object().into_iter().flatten();
        let own = properties.filter(|(property, _)| property.eq_ignore_ascii_case(name)).count();
        assert_eq!(own, 0, "{name} has a property of its own name");
    }
}

#[test]
fn the_described_query_parameters_are_those_that_are_parsed() {
    let server = Server::start(EngineConfig::default());
    for (template, operations) in DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let (mut path, mut described) = (template.clone(), BTreeSet::new());
            for parameter in operation["parameters"].as_array().unwrap() {
                let name = parameter["name"].as_str().unwrap();
                match parameter["in"].as_str().unwrap() {
                    "path" => path = path.replace(&format!("{{{name}}}"), parameter["example"].as_str().unwrap()),
                    "query" => drop(described.insert(name)),
                    _ => {}
                }
            }
            let (method, headers) = (method.to_uppercase(), [("Accept", "text/event-stream")]);
            let refusal = server.ask(&method, &format!("{path}?unknown=1"), &headers, "").json();
            let detail = refusal["detail"].as_str().unwrap_or_default();
            let known = detail.split_once("known here: ").unwrap_or_else(|| panic!("{method} {path}: {refusal}")).1;
            let known: BTreeSet<&str> = known.split(", ").filter(|name| *name != "none").collect();
            assert_eq!(described, known, "{method} {path}");
        }
    }
}

#[test]
fn undescribed_answers_are_detected() {
    let answer = |status: u16, content_type: &str, text: &str| {
        let mut headers = ureq::http::HeaderMap::new();
        headers.insert("content-type", content_type.parse().unwrap());
        Answer { status, headers, text: text.to_owned() }
    };
    let is_noticed =
        |path: &str, answer: Answer| std::panic::catch_unwind(|| check("GET", path, b"", &answer)).is_err();
    let rules = |more: &str| format!(r#"{{"show_own":true,"replies":"all","reposts":true{more}}}"#);
    let path = "/v1/users/ann/rules";
    let good = rules(r#","notify":false,"per_source_max":null"#);
    assert!(!is_noticed(path, answer(200, "application/json", &good)));
    assert!(is_noticed(path, answer(299, "application/json", &good)));
    assert!(is_noticed(path, answer(200, "text/plain", &good)));
    assert!(is_noticed(path, answer(200, "application/json", &rules(""))));
    assert!(is_noticed(path, answer(200, "application/json", &rules(r#","notify":false,"per_source_max":0"#))));
    assert!(is_noticed(
        path,
        answer(200, "application/json", &rules(r#","notify":false,"per_source_max":1,"colour":1"#))
    ));
    let problem = r#"{"type":"about:blank","title":"Bad Request","status":400,"code":"strange","detail":"x"}"#;
    assert!(is_noticed(path, answer(400, "application/problem+json", problem)));
    assert!(!is_noticed(path, answer(400, "application/problem+json", &problem.replace("strange", "invalid_path"))));
}
