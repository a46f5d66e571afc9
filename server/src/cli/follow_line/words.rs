//! The words of a line without a header, comments, and times; the fields of a line of CSV.

use std::borrow::Cow;

/// Removes the comment of a line. It begins with a `#` at the beginning of a word, because names of tags may contain one.
pub(super) fn without_comment(line: &str) -> &str {
    let (mut is_quoted, mut before) = (false, ' ');
    let begins = |character: char| {
        let is_one = character == '#' && !is_quoted && is_separator(before);
        is_quoted ^= character == '"';
        before = character;
        is_one
    };
    line.find(begins).map_or(line, |at| &line[..at])
}

pub(super) fn words(text: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let is_end = |character: char| {
        is_quoted ^= character == '"';
        !is_quoted && is_separator(character)
    };
    text.split(is_end).map(unquoted).filter(|word| !word.is_empty()).collect()
}

/// Returns an id as a word of a line. It is in quotation marks, which ids do not contain, if it contains a separator or a `#`.
pub(crate) fn word(id: &str) -> Cow<'_, str> {
    let needs_marks = id.contains(|character| is_separator(character) || character == '#');
    if needs_marks { Cow::Owned(format!("\"{id}\"")) } else { Cow::Borrowed(id) }
}

fn is_separator(character: char) -> bool {
    matches!(character, ' ' | '\t' | ',' | ';')
}

pub(super) fn unquoted(word: &str) -> &str {
    word.strip_prefix('"').and_then(|word| word.strip_suffix('"')).unwrap_or(word)
}

/// Returns true for a date with or without a time of day, as RFC 3339 and databases write it, and for seconds, milliseconds or microseconds
/// since 1970.
pub(super) fn is_time(text: &str) -> bool {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return matches!(text.len(), 10 | 13 | 16);
    }
    let Some((date, rest)) = text.split_at_checked("2026-01-01".len()) else { return false };
    let is_date = date.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    let rest = rest.trim_end_matches("UTC");
    is_date && rest.bytes().all(|byte| byte.is_ascii_digit() || b"Tt Zz:.+-".contains(&byte))
}

/// Splits a line of CSV. Returns `None` if a quoted field does not end in it.
pub(super) fn fields(text: &str, delimiter: char) -> Option<Vec<String>> {
    let mut fields = vec![String::new()];
    let (mut characters, mut is_quoted) = (text.chars().peekable(), false);
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => fields.last_mut()?.extend(characters.next()),
            '"' => is_quoted = !is_quoted,
            other if other == delimiter && !is_quoted => fields.push(String::new()),
            other => fields.last_mut()?.push(other),
        }
    }
    (!is_quoted).then(|| fields.iter().map(|field| field.trim().to_owned()).collect())
}
