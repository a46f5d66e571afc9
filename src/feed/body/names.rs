//! Duplicate names in one object of a body: some parsers use the first value, most use the last, and some refuse the whole text.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr2, memchr3};

/// Maximum characters of a name that an error shows.
const SHOWN_CHARS_MAX: usize = 64;

/// The duplicate names in a JSON text.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    /// A duplicate name, truncated if it is long, with the byte where its second occurrence begins.
    pub(super) first: Option<(String, usize)>,
    /// The byte ranges of members that a later one of the same name overrides, each up to the next member.
    pub(super) superseded: Vec<Range<usize>>,
    /// Number of comparisons of two names.
    #[cfg(test)]
    compared: usize,
}

/// A member of an object that is being parsed.
struct Member<'a> {
    name: Cow<'a, str>,
    begin: usize,
    /// The start of the next member.
    end: usize,
}

/// Finds the duplicate names in `json`, which must follow the grammar of JSON.
pub(super) fn repeated(json: &str) -> Repeated {
    let bytes = json.as_bytes();
    let mut repeated = Repeated::default();
    // The members of all open objects, and the index at which the members of each object begin.
    let (mut members, mut objects) = (Vec::<Member<'_>>::new(), Vec::<usize>::new());
    let mut at = 0;
    while let Some(next) = memchr3(b'"', b'{', b'}', &bytes[at..]) {
        let begin = at + next;
        at = begin + 1;
        match bytes[begin] {
            b'{' => objects.push(members.len()),
            b'}' => {
                let first = objects.pop().unwrap_or(0);
                repeated.add_object(&mut members[first..]);
                members.truncate(first);
            }
            _ => {
                at = string_end(bytes, at);
                // In JSON, only a name is followed by a colon.
                if bytes[at..].iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b':') {
                    continue;
                }
                if members.len() > objects.last().copied().unwrap_or(0) {
                    members.iter_mut().next_back().into_iter().for_each(|before| before.end = begin);
                }
                members.push(Member { name: name(&json[begin..at]), begin, end: begin });
            }
        }
    }
    repeated
}

impl Repeated {
    /// Adds the duplicate names among all members of one object.
    fn add_object(&mut self, members: &mut [Member<'_>]) {
        if members.len() < 2 {
            return;
        }
        members.sort_unstable_by(|one, other| {
            #[cfg(test)]
            {
                self.compared += 1;
            }
            (&*one.name, one.begin).cmp(&(&*other.name, other.begin))
        });
        for pair in members.windows(2).filter(|pair| pair[0].name == pair[1].name) {
            let shown = || pair[1].name.chars().take(SHOWN_CHARS_MAX).collect();
            self.first.get_or_insert_with(|| (shown(), pair[1].begin));
            self.superseded.push(pair[0].begin..pair[0].end);
        }
    }
}

/// Returns the end of the string whose first character is at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(next) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += next;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

/// Decodes a quoted name.
fn name(quoted: &str) -> Cow<'_, str> {
    let raw = quoted.trim_matches('"');
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    serde_json::from_str::<String>(quoted).map_or(Cow::Borrowed(raw), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_name_in_one_object_is_found_in_every_spelling() {
        for (json, expected) in [
            (r#"{"a":1,"a":2}"#, Some(("a", 7))),
            (r#"{"a":1,"\u0061":2}"#, Some(("a", 7))),
            (r#"{"a\"b":1,"a\u0022b":2}"#, Some(("a\"b", 10))),
            ("{\"a\" \t:1,\n\"a\"\r\n:2}", Some(("a", 10))),
            (r#"{"":1,"":2}"#, Some(("", 6))),
            (r#"[0,{"x":{"b":{"b":1},"c":"b","b":[]}}]"#, Some(("b", 29))),
            (r#"{"a":1,"b":2,"c":3,"b":{"a":1}}"#, Some(("b", 19))),
            (r#"{"a":{"a":[{"a":1},{"a":2}]},"A":1}"#, None),
            (r#"{"a":"a\":\"a","b":"\\","c":"{\"b\":1,\"b\":2}"}"#, None),
            (r#""{\"a\":1,\"a\":2}""#, None),
            (r#"["a","a",{}]"#, None),
            ("7", None),
        ] {
            let first = repeated(json).first;
            assert_eq!(first.as_ref().map(|(name, at)| (&**name, *at)), expected, "{json}");
        }
    }

    #[test]
    fn a_long_name_is_truncated_in_messages() {
        let long = "ä".repeat(1_000);
        let (shown, _) = repeated(&format!(r#"{{"{long}":1,"{long}":2}}"#)).first.unwrap();
        assert_eq!(shown.chars().count(), SHOWN_CHARS_MAX);
    }

    #[test]
    fn names_are_compared_in_linearithmic_time() {
        const NAMES: usize = 8_192;
        let members = |name: &dyn Fn(usize) -> usize| {
            let members: Vec<_> = (0..NAMES).map(|nth| format!("\"{:x}\":1", name(nth))).collect();
            format!("{{{}}}", members.join(","))
        };
        for json in
            [members(&|nth| nth), members(&|nth| NAMES - nth), members(&|nth| nth * 2_731 % NAMES), members(&|_| 1)]
        {
            let compared = repeated(&json).compared;
            assert!(compared <= 2 * NAMES * NAMES.ilog2() as usize, "{compared}");
        }
        assert_eq!(repeated(r#"{"text":"a","tags":["b"]}"#).compared, 1);
        assert_eq!(repeated(r#"{"text":"a"}"#).compared, 0);
    }
}
