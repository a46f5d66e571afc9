//! The text of an error with its causes, for logs and for people.

use std::error::Error;

/// Returns the text of an error, followed by the texts of its causes. Omits a cause whose text the result already contains, because some
/// errors include the text of their cause.
pub fn error_text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text += &format!(": {more}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    #[test]
    fn causes_are_appended_unless_the_text_contains_them() {
        for (chain, expected) in [
            (&["cannot start"][..], "cannot start"),
            (&["cannot start", "cannot open a file", "not found"], "cannot start: cannot open a file: not found"),
            (&["cannot start: not found", "not found"], "cannot start: not found"),
            (&["cannot start", "transport", "transport", "refused"], "cannot start: transport: refused"),
        ] {
            let link = |source, text: &&'static str| Some(Box::new(Link { text, source }));
            let error = chain.iter().rev().fold(None, link).unwrap();
            assert_eq!(error_text(&*error), expected);
        }
    }
}
