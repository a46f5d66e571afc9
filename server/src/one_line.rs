//! Writes JSON on one line, for formats with one document per line.

use std::borrow::Cow;

/// Replaces the line breaks of a JSON text by spaces. They occur only between tokens, because strings escape them.
pub(crate) fn on_one_line(json: &str) -> Cow<'_, str> {
    if json.contains(['\n', '\r']) { json.replace(['\n', '\r'], " ").into() } else { json.into() }
}
