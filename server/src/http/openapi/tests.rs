//! Tests that the description matches the table of operations, and that its patterns match the code.
#![cfg(test)]

use std::collections::BTreeSet;

use crate::http::openapi::groups::GROUPS;
use crate::http::openapi::{document, value_schemas};
use crate::http::operation::Needs;
use crate::http::routes::OPERATIONS;
use tidewire::feed::rules::RulesPatch;
use tidewire::id::PostId;

#[test]
fn each_operation_and_nothing_else_is_described_exactly_once() {
    let table: Vec<&str> = OPERATIONS.iter().map(|operation| operation.name).collect();
    let mut described: Vec<&str> = GROUPS.iter().flat_map(|group| group.operations).map(|(name, _)| *name).collect();
    let mut expected = table.clone();
    expected.sort_unstable();
    described.sort_unstable();
    assert_eq!(described, expected);
    let document = document(OPERATIONS);
    for operation in OPERATIONS {
        let method = operation.method.as_str().to_lowercase();
        let documentation = &document["paths"][operation.path][method];
        assert_eq!(documentation["operationId"], operation.name);
        let is_open = documentation["security"].as_array().unwrap().is_empty();
        assert_eq!(
            (is_open, documentation["responses"].get("401").is_none()),
            (operation.needs == Needs::Nothing, is_open)
        );
    }
}

#[test]
fn the_console_has_a_client_method_for_each_operation_of_the_clients() {
    let methods = include_str!("../../console/assets/snippets.js").split_once("const METHODS = {").unwrap().1;
    let methods = methods.split_once("\n};").unwrap().0.split(',').filter_map(|entry| entry.trim().split_once(':'));
    let found: BTreeSet<&str> = methods.map(|(operation, _)| operation).collect();
    let without = include_str!("../../../../clients/without-method.json");
    let without: serde_json::Map<String, serde_json::Value> = serde_json::from_str(without).unwrap();
    let in_no_client = |method: &str, path: &str| {
        without.get(&format!("{method} {path}")).is_some_and(|entry| entry["clients"].as_array().unwrap().len() == 2)
    };
    let with_method = OPERATIONS.iter().filter(|operation| !in_no_client(operation.method.as_str(), operation.path));
    assert_eq!(found, with_method.map(|operation| operation.name).collect());
}

#[test]
fn every_referenced_schema_exists_and_every_schema_is_referenced() {
    fn named(value: &serde_json::Value, found: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(members) => {
                let name = members.get("$ref").and_then(|to| to.as_str()?.strip_prefix("#/components/schemas/"));
                found.extend(name.map(str::to_owned));
                members.values().for_each(|member| named(member, found));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| named(item, found)),
            _ => {}
        }
    }
    let (mut found, document) = (BTreeSet::new(), document(OPERATIONS));
    named(&document, &mut found);
    let there: BTreeSet<String> = document["components"]["schemas"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(found, there);
}

#[test]
fn the_schema_of_a_change_of_rules_has_the_fields_that_are_parsed() {
    let refusal = serde_json::from_str::<RulesPatch>(r#"{"?":0}"#).unwrap_err().to_string();
    let parsed: BTreeSet<&str> = refusal.split('`').skip(3).step_by(2).collect();
    let schema = &document(OPERATIONS)["components"]["schemas"]["RulesPatch"]["properties"];
    assert_eq!(schema.as_object().unwrap().keys().map(String::as_str).collect::<BTreeSet<_>>(), parsed);
}

#[test]
fn a_decimal_pattern_matches_exactly_the_numbers_up_to_its_maximum() {
    for max in [10, 255, 1_099, 18_446, 99_999] {
        let pattern =
            jsonschema::options().build(&serde_json::json!({"pattern": value_schemas::decimal_pattern(max)})).unwrap();
        for number in 0..=max + 200 {
            assert_eq!(pattern.is_valid(&number.to_string().into()), number <= max, "{number} of {max}");
        }
    }
    let schema = serde_json::json!({"pattern": value_schemas::decimal_pattern(u64::MAX)});
    let pattern = jsonschema::options().build(&schema).unwrap();
    for text in [
        "0",
        "7",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551609",
        "",
        "01",
        "-1",
        "99999999999999999999",
        "10000000000000000000",
    ] {
        assert_eq!(pattern.is_valid(&text.into()), text.parse::<PostId>().is_ok(), "{text}");
    }
}
