//! The schemas of single values: ids, names, times, cursors; and of problems.

use serde_json::{Value, json};

use crate::http::openapi::schemas::{ID, Named, PUBLISHED_AT, count, feed_cursor, object};
use tidewire::feed::kind::Kind;
use tidewire::limits::{EXTERNAL_ID_BYTES_MAX, NAME_BYTES_MAX, SOURCE_ID_BYTES_MAX, USER_ID_BYTES_MAX};

/// Returns these schemas by name.
pub(super) fn all() -> Named {
    let mut all = ids();
    all.extend([
        (
            "Time",
            json!({
                "type": "string",
                "format": "date-time",
                "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$",
                "description": "RFC 3339 with any offset, and at most nine decimal digits of a second; digits after the sixth are dropped. Responses have UTC, six digits and `Z`, so times sort as text.",
                "examples": [PUBLISHED_AT.to_string()],
            }),
        ),
        (
            "Cursor",
            json!({
                "type": "string",
                "pattern": "^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)?$",
                "description": "Opaque: send it back unchanged. It stays valid across restarts, and after its entry is deleted.",
                "examples": [feed_cursor()],
            }),
        ),
        ("Kind", json!({"type": "string", "enum": [Kind::Post.as_str(), Kind::User.as_str(), Kind::Ad.as_str()]})),
        ("Problem", problem()),
    ]);
    all
}

fn ids() -> Named {
    let id = |bytes_max: usize, pattern: &str, description: &str, example: &str| {
        json!({
            "type": "string",
            "minLength": 1,
            "maxLength": bytes_max,
            "pattern": pattern,
            "description": description,
            "examples": [example],
        })
    };
    // Excludes only those invalid characters that all pattern dialects can express. The number of characters is at most the number of
    // bytes.
    const NAME: &str = r#"[^/\\"\x00-\x1f\x7f]{1,128}"#;
    const PLAIN: &str = "[.]{3,128}|[.]{0,127}[A-Za-z0-9_:@~-][A-Za-z0-9._:@~-]{0,127}";
    const { assert!(NAME_BYTES_MAX == 128 && USER_ID_BYTES_MAX == 128) };
    const EXTERNAL: &str = "[A-Za-z0-9._:@~+=-]{1,64}";
    const { assert!(EXTERNAL_ID_BYTES_MAX == 64) };
    let name = |description: &str, example: &str| id(NAME_BYTES_MAX, &format!("^{NAME}$"), description, example);
    vec![
        (
            "SourceId",
            id(
                SOURCE_ID_BYTES_MAX,
                &format!("^((tag|topic):{NAME}|replies:ext:{EXTERNAL}|{PLAIN})$"),
                "A user, `tag:NAME`, `topic:NAME`, or `replies:POST` for the replies to a post: `POST` is its id, or `ext:` and its external id.",
                "ann",
            ),
        ),
        ("TagName", name("The name of a tag, in any script. Responses have its form `NFKC_Casefold`.", "rust")),
        ("TopicName", name("The name of a topic, in any script. Responses have its form `NFC`.", "42")),
        (
            "ConsumerName",
            id(USER_ID_BYTES_MAX, &format!("^({PLAIN})$"), "The name of a consumer of changes.", "search"),
        ),
        ("ListName", id(USER_ID_BYTES_MAX, &format!("^({PLAIN})$"), "The name of a list.", "near")),
        (
            "PostId",
            json!({
                "type": "string",
                "pattern": decimal_pattern(u64::MAX),
                "description": "An unsigned 64-bit integer in decimal digits, without leading zeros.",
                "examples": [ID.to_string()],
            }),
        ),
        (
            "PostName",
            json!({
                "type": "string",
                "pattern": format!("^(ext:{EXTERNAL}|{}", &decimal_pattern(u64::MAX)["^(".len()..]),
                "description": "The id of a post, or `ext:` and its external id.",
                "examples": [ID.to_string()],
            }),
        ),
        (
            "ExternalId",
            id(
                EXTERNAL_ID_BYTES_MAX,
                &format!("^{EXTERNAL}$"),
                "The id of a post in another system, such as a UUID, a ULID or a URN. The id of the post is the first 8 bytes of its SHA-256, big-endian, modulo 7 × 10^18.",
                "550e8400-e29b-41d4-a716-446655440000",
            ),
        ),
    ]
}

/// Returns a pattern of the decimal numbers up to `max`, which have at most 20 digits.
pub(super) fn decimal_pattern(max: u64) -> String {
    let digits = max.to_string();
    let mut pattern = format!("^(0|[1-9][0-9]{{0,{}}}", digits.len() - 2);
    // Numbers with as many digits as `max`: equal to it up to a smaller digit.
    for (nth, digit) in digits.bytes().enumerate() {
        let lowest = if nth == 0 { b'1' } else { b'0' };
        if digit > lowest {
            let (equal, rest) = (&digits[..nth], digits.len() - nth - 1);
            let any = if rest == 0 { String::new() } else { format!("[0-9]{{{rest}}}") };
            pattern += &format!("|{equal}[{}-{}]{any}", char::from(lowest), char::from(digit - 1));
        }
    }
    pattern + &format!("|{digits})$")
}

fn problem() -> Value {
    let refused = object(json!({"index": count(), "code": {"type": "string"}, "detail": {"type": "string"}}));
    let mut problem = object(json!({
        "type": {"const": "about:blank"},
        "title": {"type": "string", "description": "The status as text."},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "A stable code on which programs branch."},
        "detail": {"type": "string", "description": "What failed and why, for people; may change."},
    }));
    problem["properties"]["field"] =
        json!({"type": "string", "description": "The invalid field, path part or query parameter."});
    problem["properties"]["retry_after"] = json!({"type": "integer", "minimum": 1, "description": "In place of the header `Retry-After`, only in `feeds` and `posts`."});
    let sequence = |description: &str| json!({"type": "integer", "minimum": 0, "description": description});
    problem["properties"]["oldest"] = sequence("With `gone`: the smallest possible sequence.");
    problem["properties"]["newest"] = sequence("With `sequence_in_future`: the largest possible sequence.");
    problem["properties"]["errors"] = json!({
        "type": "array",
        "description": "Of follows: each edge that cannot be added, by its index in the request.",
        "items": refused,
    });
    problem
}
