//! One pass over the JSON of a body, which finds all parts that some parsers refuse.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

use memchr::memchr2;

use crate::limits::{POST_BODY_DEPTH_MAX, POST_NUMBER_BYTES_MAX};

/// A part of grammatically valid JSON that some parsers refuse. Positions are bytes of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Flaw<'a> {
    /// An array or object that is nested more deeply than the limit.
    Depth,
    /// A number that is too large or too long.
    Number(Range<usize>),
    /// The escape of half a surrogate pair.
    Surrogate(Range<usize>),
    /// A member of an object with the name of an earlier member. Some parsers use the first value, most use the last, and some refuse the
    /// whole text.
    Name {
        /// The decoded name.
        name: Cow<'a, str>,
        /// The start of the later member.
        at: usize,
        /// The earlier member, up to the next one.
        superseded: Range<usize>,
    },
}

impl Flaw<'_> {
    /// Returns the order in which the flaws of one text are reported.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Depth => 0,
            Self::Number(_) | Self::Surrogate(_) => 1,
            Self::Name { .. } => 2,
        }
    }
}

/// An iterator over the flaws of a JSON text. It returns duplicate names at the end of their object.
pub(super) struct Flaws<'a> {
    json: &'a str,
    at: usize,
    /// The start of the string that is being read.
    string: Option<usize>,
    depth: usize,
    /// The members of all open objects.
    members: Vec<Member<'a>>,
    /// The index in `members` at which those of each open object begin.
    objects: Vec<usize>,
    /// The flaws of the last object that was closed.
    pending: VecDeque<Flaw<'a>>,
    /// Number of comparisons of two names.
    #[cfg(test)]
    compared: usize,
}

/// A member of an object.
struct Member<'a> {
    name: Cow<'a, str>,
    begin: usize,
    /// The start of the next member.
    end: usize,
}

impl<'a> Flaws<'a> {
    /// Starts at the beginning of `json`, which must follow the grammar of JSON.
    pub(super) fn of(json: &'a str) -> Self {
        Self {
            json,
            at: 0,
            string: None,
            depth: 0,
            members: Vec::new(),
            objects: Vec::new(),
            pending: VecDeque::new(),
            #[cfg(test)]
            compared: 0,
        }
    }

    /// Advances past the next number, bracket or quote outside strings, and returns a flaw there.
    fn outside(&mut self) -> Option<Flaw<'a>> {
        let bytes = self.json.as_bytes();
        let is_next = |byte: &u8| matches!(byte, b'"' | b'-' | b'0'..=b'9' | b'[' | b']' | b'{' | b'}');
        let Some(next) = bytes[self.at..].iter().position(is_next) else {
            self.at = bytes.len();
            return None;
        };
        let at = self.at + next;
        self.at = at + 1;
        match bytes[at] {
            b'"' => self.string = Some(at),
            b'[' => return self.opened(),
            b'{' => {
                self.objects.push(self.members.len());
                return self.opened();
            }
            b']' => self.depth = self.depth.saturating_sub(1),
            b'}' => {
                self.depth = self.depth.saturating_sub(1);
                self.close_object();
                return self.pending.pop_front();
            }
            _ => return self.number(at),
        }
        None
    }

    fn opened(&mut self) -> Option<Flaw<'a>> {
        self.depth += 1;
        (self.depth == POST_BODY_DEPTH_MAX + 1).then_some(Flaw::Depth)
    }

    /// Advances past the number that begins at `at`.
    fn number(&mut self, at: usize) -> Option<Flaw<'a>> {
        let bytes = self.json.as_bytes();
        let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = bytes[at..].iter().position(|byte| !is_of_number(byte)).unwrap_or(bytes.len() - at);
        self.at = at + length;
        (!is_portable_number(&self.json[at..self.at])).then_some(Flaw::Number(at..self.at))
    }

    /// Advances past the next quote or escape in the string that begins at `begin`, and returns a flaw there.
    fn in_string(&mut self, begin: usize) -> Option<Flaw<'a>> {
        let bytes = self.json.as_bytes();
        let Some(next) = memchr2(b'"', b'\\', &bytes[self.at..]) else {
            self.at = bytes.len();
            return None;
        };
        let at = self.at + next;
        if bytes[at] == b'"' {
            (self.string, self.at) = (None, at + 1);
            self.add_member(begin);
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

    /// Adds a member if the string that begins at `begin` and ends here is a name: only a name is followed by a colon.
    fn add_member(&mut self, begin: usize) {
        let mut following = self.json.as_bytes()[self.at..].iter();
        if following.find(|byte| !byte.is_ascii_whitespace()) != Some(&b':') {
            return;
        }
        if self.members.len() > self.objects.last().copied().unwrap_or(0) {
            self.members.iter_mut().next_back().into_iter().for_each(|before| before.end = begin);
        }
        self.members.push(Member { name: name(&self.json[begin..self.at]), begin, end: begin });
    }

    /// Finds the duplicate names among the members of the object that ends here.
    fn close_object(&mut self) {
        let first = self.objects.pop().unwrap_or(0);
        let members = &mut self.members[first..];
        if members.len() > 1 {
            members.sort_unstable_by(|one, other| {
                #[cfg(test)]
                {
                    self.compared += 1;
                }
                (&*one.name, one.begin).cmp(&(&*other.name, other.begin))
            });
            let duplicates = members.windows(2).filter(|pair| pair[0].name == pair[1].name);
            self.pending.extend(duplicates.map(|pair| Flaw::Name {
                name: pair[1].name.clone(),
                at: pair[1].begin,
                superseded: pair[0].begin..pair[0].end,
            }));
        }
        self.members.truncate(first);
    }
}

impl<'a> Iterator for Flaws<'a> {
    type Item = Flaw<'a>;

    fn next(&mut self) -> Option<Flaw<'a>> {
        if let Some(pending) = self.pending.pop_front() {
            return Some(pending);
        }
        while self.at < self.json.len() {
            let flaw = match self.string {
                Some(begin) => self.in_string(begin),
                None => self.outside(),
            };
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

    fn compared(json: &str) -> usize {
        let mut flaws = Flaws::of(json);
        flaws.by_ref().for_each(drop);
        flaws.compared
    }

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
            let first = Flaws::of(json).next().map(|flaw| match flaw {
                Flaw::Name { name, at, .. } => (name.into_owned(), at),
                other => panic!("{json}: {other:?}"),
            });
            assert_eq!(first.as_ref().map(|(name, at)| (&**name, *at)), expected, "{json}");
        }
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
            let compared = compared(&json);
            assert!(compared <= 2 * NAMES * NAMES.ilog2() as usize, "{compared}");
        }
        assert_eq!(compared(r#"{"text":"a","tags":["b"]}"#), 1);
        assert_eq!(compared(r#"{"text":"a"}"#), 0);
    }
}
