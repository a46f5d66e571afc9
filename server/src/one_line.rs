//! Writes JSON on one line, as formats need that have a document in each.

use std::borrow::Cow;

/// Replaces the line breaks of a JSON text by spaces. They only occur between tokens: inside strings they are escaped.
pub(crate) fn on_one_line(json: &str) -> Cow<'_, str> {
    if json.contains(['\n', '\r']) { json.replace(['\n', '\r'], " ").into() } else { json.into() }
}
