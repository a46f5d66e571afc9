//! Escapes text for HTML and SVG.

/// Escapes text for HTML content and attributes. Control characters are removed.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Plots are XML, which allows no other control characters, not even escaped.
            '\n' | '\t' => escaped.push(character),
            other if other.is_control() => {}
            other => escaped.push(other),
        }
    }
    escaped
}
