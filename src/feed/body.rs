//! Bodies of posts: JSON that every parser accepts.
//!
//! A body is copied into the pages of all followers of its author. A body that some parser refuses would therefore make those pages
//! unreadable for its users. A body is I-JSON ([RFC 7493](https://www.rfc-editor.org/rfc/rfc7493)) with one exception: whole numbers may
//! have 64 bits.
//!
//! Responsible for:
//! - validating a body once, and storing exactly the received bytes;
//! - converting bodies that were stored before this validation to a form that every parser accepts.

mod scan;

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::feed::body::scan::{Flaw, Flaws};
use crate::id::Text;
use crate::limits::{POST_BODY_BYTES_MAX, POST_BODY_DEPTH_MAX, POST_NUMBER_BYTES_MAX};

/// Maximum characters of a name that an error shows.
const SHOWN_CHARS_MAX: usize = 64;

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
    /// Returns the violated limit, the place of the syntax error, or the first part that some parsers refuse.
    pub fn new(json: &str) -> Result<Self, BodyError> {
        let json = json.trim_matches([' ', '\t', '\n', '\r']);
        check_length(json)?;
        Self::of_json(serde_json::from_str(json)?)
    }

    /// Like [`Self::new`], for a text that a parser has found to be JSON.
    ///
    /// # Errors
    /// Returns the violated limit, or the first part that some parsers refuse, a duplicate name last.
    pub fn of_json(json: &RawValue) -> Result<Self, BodyError> {
        let json = json.get();
        check_length(json)?;
        match Flaws::of(json).min_by_key(Flaw::rank) {
            None => Ok(Self(json.into())),
            Some(Flaw::Depth) => Err(BodyError::TooDeep),
            Some(Flaw::Number(range)) => Err(BodyError::Number { at: range.start }),
            Some(Flaw::Surrogate(range)) => Err(BodyError::Surrogate { at: range.start }),
            Some(Flaw::Name { name, at, .. }) => {
                Err(BodyError::Name { name: name.chars().take(SHOWN_CHARS_MAX).collect(), at })
            }
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
    // Nearly all bodies have no flaws.
    if Flaws::of(json).next().is_none() {
        return Cow::Borrowed(json);
    }
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
            Flaw::Depth | Flaw::Name { .. } => continue,
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
    let mut superseded: Vec<_> = Flaws::of(json)
        .filter_map(|flaw| if let Flaw::Name { superseded, .. } = flaw { Some(superseded) } else { None })
        .collect();
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

/// Checks the length of a body.
fn check_length(json: &str) -> Result<(), BodyError> {
    let bytes = json.len();
    if bytes > POST_BODY_BYTES_MAX { Err(BodyError::TooLarge { bytes }) } else { Ok(()) }
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
        // Earlier builds had another limit on the depth.
        let depth = POST_BODY_DEPTH_MAX + 1;
        let deep = |number| format!("{}{number}{}", "[".repeat(depth), "]".repeat(depth));
        let stored: Body = serde_json::from_value(deep("1e400").into()).unwrap();
        assert_eq!(stored.as_str(), deep("\"1e400\""));
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
    fn of_several_flaws_depth_comes_first_and_duplicate_names_last() {
        let deep = "[".repeat(POST_BODY_DEPTH_MAX + 1) + &"]".repeat(POST_BODY_DEPTH_MAX + 1);
        let all = format!(r#"[{{"a":1,"a":2}},1e400,{deep}]"#);
        assert!(matches!(Body::new(&all), Err(BodyError::TooDeep)));
        assert!(matches!(Body::new(r#"[{"a":1,"a":2},1e400,"\ud800"]"#), Err(BodyError::Number { at: 15 })));
    }

    #[test]
    fn a_long_name_is_truncated_in_messages() {
        let long = "ä".repeat(1_000);
        let refused = Body::new(&format!(r#"{{"{long}":1,"{long}":2}}"#));
        assert!(matches!(refused, Err(BodyError::Name { name, .. }) if name.chars().count() == SHOWN_CHARS_MAX));
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
