//! Text for people: it fits the width of a terminal, and is coloured only there.

use std::io::{IsTerminal as _, stdout};

use console::{Style, Term, measure_text_width};

/// Minimum width of lines. A narrower terminal breaks them itself.
const COLUMNS_MIN: usize = 20;

/// Maximum width of lines, because longer ones are hard to read.
const COLUMNS_MAX: usize = 100;

/// The properties of the output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    /// Columns of a line. If none, lines are not broken.
    columns: Option<usize>,
    is_coloured: bool,
}

impl Screen {
    /// Returns the standard output. The variable `COLUMNS` sets a width for files and pipes, where lines are otherwise not broken.
    pub(super) fn of_stdout() -> Self {
        let set = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
        let of_terminal = stdout().is_terminal().then(|| usize::from(Term::stdout().size().1));
        let columns = of_terminal.or(set).map(|columns: usize| columns.clamp(COLUMNS_MIN, COLUMNS_MAX));
        Self { columns, is_coloured: crate::cli::terminal::is_coloured(&stdout()) }
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.styled(text, Style::new().bold())
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.styled(text, Style::new().dim())
    }

    pub(super) fn good(self, text: &str) -> String {
        self.styled(text, Style::new().green())
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.styled(text, Style::new().red())
    }

    fn styled(self, text: &str, style: Style) -> String {
        style.force_styling(self.is_coloured).apply_to(text).to_string()
    }

    /// Returns the lines of a text, each with this indent and no wider than the screen.
    pub(super) fn lines(self, text: &str, indent: usize) -> Vec<String> {
        let width = self.columns.map_or(usize::MAX, |columns| columns.saturating_sub(indent).max(1));
        let margin = " ".repeat(indent);
        let of_text = clean(text);
        of_text.split('\n').flat_map(|line| wrapped(line, width)).map(|line| format!("{margin}{line}")).collect()
    }

    /// Aligns `right` to the right edge if both fit into a line. Puts it beside `left` if lines are not broken.
    pub(super) fn edges(self, left: &str, right: &str) -> String {
        let taken = measure_text_width(left) + measure_text_width(right);
        match self.columns {
            Some(columns) if taken + 2 <= columns => format!("{left}{}{right}", " ".repeat(columns - taken)),
            Some(_) => format!("{left}\n  {right}"),
            None => format!("{left}  {right}"),
        }
    }
}

/// Breaks a line at spaces, and longer words at any character.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    if measure_text_width(line) <= width {
        return vec![line.to_owned()];
    }
    let (mut lines, mut current, mut taken) = (Vec::new(), String::new(), 0);
    for word in line.split(' ') {
        let wide = measure_text_width(word);
        if taken > 0 && taken + 1 + wide > width {
            lines.push(std::mem::take(&mut current));
            taken = 0;
        } else if taken > 0 {
            current.push(' ');
            taken += 1;
        }
        for character in word.chars() {
            let wide = measure_text_width(character.encode_utf8(&mut [0; 4]));
            if taken > 0 && taken + wide > width {
                lines.push(std::mem::take(&mut current));
                taken = 0;
            }
            current.push(character);
            taken += wide;
        }
    }
    lines.push(current);
    lines
}

/// Replaces control characters, and characters that change the text direction.
pub(super) fn clean(text: &str) -> String {
    let is_harmful = |character: char| {
        let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        (character.is_control() && character != '\n') || turns
    };
    let text = text.replace("\r\n", "\n").replace('\t', "    ");
    text.chars().map(|character| if is_harmful(character) { '\u{fffd}' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(columns: Option<usize>) -> Screen {
        Screen { columns, is_coloured: false }
    }

    #[test]
    fn lines_fit_the_screen_and_lose_no_text() {
        for (text, width, expected) in [
            ("ab cd ef", 5, &["ab cd", "ef"][..]),
            ("abcdefgh", 3, &["abc", "def", "gh"]),
            ("a bcdef g", 4, &["a", "bcde", "f g"]),
            ("日本語", 4, &["日本", "語"]),
            ("one\ntwo", 9, &["one", "two"]),
            ("", 9, &[""]),
        ] {
            assert_eq!(screen(Some(width)).lines(text, 0), expected, "{text:?}");
        }
        assert_eq!(screen(None).lines(&"long ".repeat(99), 2).len(), 1);
    }

    #[test]
    fn text_of_authors_cannot_control_the_terminal() {
        assert_eq!(
            clean("a\u{1b}[2Jb\u{7}\rc\u{9b}d\u{202e}e\tf\r\ng"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}c\u{fffd}d\u{fffd}e    f\ng"
        );
    }

    #[test]
    fn text_that_does_not_fit_on_the_line_goes_to_the_next_line() {
        assert_eq!(screen(Some(10)).edges("abc", "de"), "abc     de");
        assert_eq!(screen(Some(6)).edges("abc", "defg"), "abc\n  defg");
        assert_eq!(screen(None).edges("abc", "de"), "abc  de");
    }
}
