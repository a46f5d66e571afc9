//! Bodies of posts: JSON that every parser accepts.
//!
//! A body is copied into the pages of all followers of its author. A body that some parser refuses would therefore make those pages
//! unreadable for its users. A body is I-JSON ([RFC 7493](https://www.rfc-editor.org/rfc/rfc7493)) with one exception: whole numbers may
//! have 64 bits.
//!
//! Responsible for:
//! - validating a body once, and storing exactly the received bytes;
//! - converting bodies that were stored before this validation to a form that every parser accepts.

mod names;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use memchr::memchr2;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::id::Text;
use crate::limits::{POST_BODY_BYTES_MAX, POST_BODY_DEPTH_MAX, POST_NUMBER_BYTES_MAX};

/// The content of a post: validated JSON text, byte for byte as the author sent it. It is cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(transparent)]
pub struct Body(Arc<str>);

/// The reason why a text is not a valid [`Body`].
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The text is longer than the limit.
    #[error("a body may have at most {POST_BODY_BYTES_MAX} bytes of JSON, this one has {bytes}")]
    TooLarge {
        /// The length in bytes.
        bytes: usize,
    },
    /// Arrays and objects are nested more deeply than the limit.
    #[error("a body may nest at most {POST_BODY_DEPTH_MAX} arrays and objects")]
    TooDeep,
    /// The text is not JSON.
    #[error("a body must be JSON")]
    NotJson(#[from] serde_json::Error),
    /// A number that some parsers refuse.
    #[error(
        "a number in a body must be within the range of a double, a whole one within 64 bits, and have at most {POST_NUMBER_BYTES_MAX} \
         characters: the number at byte {at} exceeds this; send it as text"
    )]
    Number {
        /// The start of the number, in bytes of the body.
        at: usize,
    },
    /// An escape of half a surrogate pair, which no Unicode text can contain.
    #[error("text in a body must be Unicode: the escape at byte {at} is half of a surrogate pair")]
    Surrogate {
        /// The start of the escape, in bytes of the body.
        at: usize,
    },
    /// An object has two members of the same name.
    #[error("names in an object of a body must be unique: {name:?} at byte {at} is a duplicate")]
    Name {
        /// The name, truncated if it is long.
        name: String,
        /// The start of the second name, in bytes of the body.
        at: usize,
    },
}

impl Body {
    /// Validates `json` and stores it unchanged, without surrounding white space.
    ///
    /// # Errors
    /// Returns the violated limit, the place of the syntax error, or the part that some parsers refuse.
    pub fn new(json: &str) -> Result<Self, BodyError> {
        let json = json.trim_matches([' ', '\t', '\n', '\r']);
        if json.len() > POST_BODY_BYTES_MAX {
            return Err(BodyError::TooLarge { bytes: json.len() });
        }
        if depth(json) > POST_BODY_DEPTH_MAX {
            return Err(BodyError::TooDeep);
        }
        serde_json::from_str::<IgnoredAny>(json)?;
        match Flaws::of(json).next() {
            None => {}
            Some(Flaw::Number(range)) => return Err(BodyError::Number { at: range.start }),
            Some(Flaw::Surrogate(range)) => return Err(BodyError::Surrogate { at: range.start }),
        }
        match names::repeated(json).first {
            None => Ok(Self(json.into())),
            Some((name, at)) => Err(BodyError::Name { name, at }),
        }
    }

    /// Creates a body from JSON that was validated before, or is served in this form already.
    pub(crate) fn kept(json: &str) -> Self {
        Self(json.into())
    }

    /// Returns the JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Reads a body from storage, which protects the validated text with a checksum. Bodies that were accepted before this validation existed
/// are converted to a form that every parser accepts.
impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Text(|json: &str| Ok::<_, BodyError>(Self(portable(json).into()))))
    }
}

/// Converts JSON to a form that every parser accepts: numbers that some parsers refuse become strings, and halves of surrogate pairs
/// become U+FFFD. Of several members with the same name, only the last remains.
fn portable(json: &str) -> Cow<'_, str> {
    match without_flaws(json) {
        Cow::Borrowed(json) => without_superseded(json).map_or(Cow::Borrowed(json), Cow::Owned),
        Cow::Owned(json) => Cow::Owned(without_superseded(&json).unwrap_or(json)),
    }
}

fn without_flaws(json: &str) -> Cow<'_, str> {
    let (mut portable, mut done) = (String::new(), 0);
    for flaw in Flaws::of(json) {
        let (range, before, after) = match flaw {
            Flaw::Number(range) => (range.clone(), "\"", &json[range]),
            Flaw::Surrogate(range) => (range, "", "\\ufffd"),
        };
        portable.push_str(&json[done..range.start]);
        portable.extend([before, after, before]);
        done = range.end;
    }
    if done == 0 {
        return Cow::Borrowed(json);
    }
    portable.push_str(&json[done..]);
    Cow::Owned(portable)
}

/// Returns the JSON without the members that a later one of the same name overrides, or `None` if there are no such members.
fn without_superseded(json: &str) -> Option<String> {
    let mut superseded = names::repeated(json).superseded;
    if superseded.is_empty() {
        return None;
    }
    superseded.sort_unstable_by_key(|range| range.start);
    let (mut remaining, mut done) = (String::new(), 0);
    for range in superseded {
        // A superseded member may be inside another one.
        if range.start >= done {
            remaining.push_str(&json[done..range.start]);
            done = range.end;
        }
    }
    remaining.push_str(&json[done..]);
    Some(remaining)
}

/// Returns the maximum nesting of arrays and objects in a JSON text.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// A part of grammatically valid JSON that some parsers refuse, with its byte range.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Flaw {
    Number(Range<usize>),
    Surrogate(Range<usize>),
}

/// An iterator over the flaws of a JSON text, from its beginning.
struct Flaws<'a> {
    json: &'a str,
    at: usize,
    in_string: bool,
}

impl<'a> Flaws<'a> {
    /// Starts at the beginning of `json`, which must follow the grammar of JSON.
    fn of(json: &'a str) -> Self {
        Self { json, at: 0, in_string: false }
    }

    /// Advances past the next quote or escape in a string, and returns a flaw there.
    fn in_string(&mut self) -> Option<Flaw> {
        let bytes = self.json.as_bytes();
        let Some(next) = memchr2(b'"', b'\\', &bytes[self.at..]) else {
            self.at = bytes.len();
            return None;
        };
        let at = self.at + next;
        if bytes[at] == b'"' {
            (self.in_string, self.at) = (false, at + 1);
            return None;
        }
        let Some(unit) = self.escaped_unit(at) else {
            self.at = at + 2;
            return None;
        };
        let is_high = (0xd800..0xdc00).contains(&unit);
        let is_pair = is_high && self.escaped_unit(at + 6).is_some_and(|unit| (0xdc00..0xe000).contains(&unit));
        self.at = at + if is_pair { 12 } else { 6 };
        let is_half = !is_pair && (0xd800..0xe000).contains(&unit);
        is_half.then_some(Flaw::Surrogate(at..at + 6))
    }

    /// Returns the UTF-16 code unit of the escape `\uXXXX` at `at`, if there is one.
    fn escaped_unit(&self, at: usize) -> Option<u16> {
        let digits = self.json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    }

    /// Advances past the next number or into the next string, and returns a flaw there.
    fn outside(&mut self) -> Option<Flaw> {
        let bytes = self.json.as_bytes();
        let is_next = |byte: &u8| matches!(byte, b'"' | b'-' | b'0'..=b'9');
        let Some(next) = bytes[self.at..].iter().position(is_next) else {
            self.at = bytes.len();
            return None;
        };
        let at = self.at + next;
        if bytes[at] == b'"' {
            (self.in_string, self.at) = (true, at + 1);
            return None;
        }
        let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = bytes[at..].iter().position(|byte| !is_of_number(byte)).unwrap_or(bytes.len() - at);
        self.at = at + length;
        (!is_portable_number(&self.json[at..self.at])).then_some(Flaw::Number(at..self.at))
    }
}

impl Iterator for Flaws<'_> {
    type Item = Flaw;

    fn next(&mut self) -> Option<Flaw> {
        while self.at < self.json.len() {
            let flaw = if self.in_string { self.in_string() } else { self.outside() };
            if flaw.is_some() {
                return flaw;
            }
        }
        None
    }
}

/// Returns true if all known parsers accept the number. simdjson refuses whole numbers beyond 64 bits, Python those of more than 4,300
/// digits, Jackson those of more than 1,000 characters, Go and most others those beyond the range of a double.
fn is_portable_number(number: &str) -> bool {
    let is_whole = !number.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    match number.len() {
        length if length > POST_NUMBER_BYTES_MAX => false,
        _ if is_whole => number.parse::<u64>().is_ok() || number.parse::<i64>().is_ok(),
        _ => number.parse::<f64>().is_ok_and(f64::is_finite),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_bounded_json() {
        let string_of = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        for good in ["null", "0", r#""[[[\"[""#, &string_of(POST_BODY_BYTES_MAX), &nested(POST_BODY_DEPTH_MAX)] {
            assert_eq!(Body::new(good).unwrap().as_str(), good);
        }
        assert!(matches!(Body::new(&string_of(POST_BODY_BYTES_MAX + 1)), Err(BodyError::TooLarge { .. })));
        assert!(matches!(Body::new(&nested(POST_BODY_DEPTH_MAX + 1)), Err(BodyError::TooDeep)));
        for bad in ["", "{", "1 2", "nul", "{'a':1}", "[1,]"] {
            assert!(matches!(Body::new(bad), Err(BodyError::NotJson(_))), "{bad:?}");
        }
    }

    #[test]
    fn portable_json_is_stored_unchanged() {
        let longest = format!("0.{}", "1".repeat(POST_NUMBER_BYTES_MAX - 2));
        for good in [
            "-0",
            "18446744073709551615",
            "-9223372036854775808",
            "1.7976931348623157e308",
            "1e-400",
            "[1,-2.5e+3,{\"a\":0.1}]",
            r#""\ud83d\ude00 \u0000 \\ud800 \"1e400""#,
            r#"{"1e400":"99999999999999999999"}"#,
            &longest,
        ] {
            assert_eq!(Body::new(good).unwrap().as_str(), good);
            assert!(matches!(portable(good), Cow::Borrowed(_)), "{good}");
        }
    }

    #[test]
    fn unportable_json_is_refused_by_position_and_stored_cases_are_served_portably() {
        let digits = "9".repeat(4_301);
        let long = format!("0.{}", "1".repeat(POST_NUMBER_BYTES_MAX - 1));
        let numbers =
            ["1e400", "-1e400", "18446744073709551616", "-9223372036854775809", "1.8e308", digits.as_str(), &long];
        for number in numbers {
            let body = format!(r#"{{"n":[0,{number}]}}"#);
            assert!(matches!(Body::new(&body), Err(BodyError::Number { at: 8 })), "{number}");
            assert_eq!(portable(&body), format!(r#"{{"n":[0,"{number}"]}}"#));
            assert_eq!(portable(number), format!("\"{number}\""));
        }
        for (half, at, served) in [
            (r#""a\ud800""#, 2, r#""a\ufffd""#),
            (r#""\uDFFF""#, 1, r#""\ufffd""#),
            (r#""\ud800\ud800\udc00""#, 1, r#""\ufffd\ud800\udc00""#),
            (r#""\ud800\u0041""#, 1, r#""\ufffd\u0041""#),
            (r#""\ud800\\udc00""#, 1, r#""\ufffd\\udc00""#),
            (r#"{"\udc00":1}"#, 2, r#"{"\ufffd":1}"#),
        ] {
            assert!(matches!(Body::new(half), Err(BodyError::Surrogate { at: found }) if found == at), "{half}");
            assert_eq!(portable(half), served);
        }
    }

    #[test]
    fn unportable_bodies_from_storage_become_portable_when_decoded() {
        let stored: Body = serde_json::from_value(r#"[1e400,"\ud800"]"#.into()).unwrap();
        assert_eq!(stored.as_str(), r#"["1e400","\ufffd"]"#);
        let good: Body = serde_json::from_value(r#"[1.50,"\ud83d\ude00"]"#.into()).unwrap();
        assert_eq!(good.as_str(), r#"[1.50,"\ud83d\ude00"]"#);
    }

    #[test]
    fn a_duplicate_name_is_refused_by_position_and_served_with_its_last_value() {
        for (body, at, served) in [
            (r#"{"a":1,"a":2}"#, 7, r#"{"a":2}"#),
            (r#"{"a":1, "b":{"a":1} , "\u0061":[2]}"#, 22, r#"{"b":{"a":1} , "\u0061":[2]}"#),
            (r#"[{"a":{"b":1,"b":2},"a":{"b":3,"b":4}}]"#, 13, r#"[{"a":{"b":4}}]"#),
            (r#"{"a":1,"a":2,"b":3,"a":4,"b":5}"#, 7, r#"{"a":4,"b":5}"#),
        ] {
            let refused = Body::new(body);
            assert!(matches!(&refused, Err(BodyError::Name { at: found, .. }) if *found == at), "{body}: {refused:?}");
            assert_eq!(portable(body), served);
            let last: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(serde_json::from_str::<serde_json::Value>(served).unwrap(), last);
        }
        let halves = r#"{"\ud800":1,"\ud801":2}"#;
        assert_eq!(portable(halves), r#"{"\ufffd":2}"#);
    }

    #[test]
    fn the_portable_form_of_a_body_is_a_valid_body() {
        let body =
            r#"[1e999,"\ud800\ud800",{"\udc00":-1e999,"\udc01":{"a":1,"a":2e999}},123456789012345678901234567890]"#;
        assert!(serde_json::from_str::<serde_json::Value>(body).is_err());
        let served = portable(body);
        assert_eq!(Body::new(&served).unwrap().as_str(), served);
        serde_json::from_str::<serde_json::Value>(&served).unwrap();
    }
}
