//! Parses a follow edge from a line of text, for `tidewire import follows`.
//!
//! Responsible for:
//! - words separated by tabs, commas, semicolons or spaces, in quotation marks if they contain one of these or begin with `#`;
//! - CSV files of other systems: a first line with the names of the columns, and quoted fields.

mod words;

pub(crate) use words::word;
use words::{fields, is_time, unquoted, without_comment, words};

use crate::cli::in_order::Unusable;
use crate::cli::report::Report;
use tidewire::id::SourceId;

/// An edge of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) follower: SourceId,
    pub(crate) source: SourceId,
    pub(crate) hidden: bool,
}

/// The third word of a line with a hidden edge, which is in no list and no count.
const HIDDEN: &str = "hidden";

const HEADER: &str = "column names, skipped";
const TIME: &str = "with the time of the follow, which is not imported";
const LIKE_A_HEADER: &str =
    "used as an edge, though it resembles column names (`follower` and `source`, separated by a comma or a tab)";

const IF_AN_EDGE: &str = "or if this line is an edge, write it with spaces, not commas or tabs";

/// The content of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Follower,
    Source,
    /// The other side: a follower beside a column of sources, or a source beside a column of followers.
    User,
    Hidden,
    Time,
}

/// Names of columns, in lowercase letters without other characters. Systems use `source,target` and `src,dst` in both directions, so a file
/// with two of these is ambiguous.
const NAMES: &[(Column, &[&str])] = &[
    (Column::Follower, &["follower", "from"]),
    (Column::Source, &["source", "followee", "followed", "following", "to", "target", "src", "dst", "destination"]),
    (Column::User, &["user"]),
    (Column::Hidden, &["hidden", "ishidden"]),
    (Column::Time, &["since", "createdat", "followedat", "time", "timestamp", "date"]),
];

/// Suffixes of the name of a side. There may be several: `followerUserName`.
const SIDE_SUFFIXES: &[&str] = &["uid", "id", "name", "user"];

/// The endings of `follow…` as a part of a name.
const FOLLOW_ENDINGS: &[&str] = &["", "s", "er", "ers", "ed", "ee", "ees", "ing"];

/// The values of the column `hidden`.
const TRUTHS: &[(&str, bool)] = &[
    ("", false),
    ("false", false),
    ("no", false),
    ("0", false),
    (HIDDEN, true),
    ("true", true),
    ("yes", true),
    ("1", true),
];

/// Reads the lines of a file. The first line may be a header.
#[derive(Default)]
pub(crate) struct EdgeLines {
    has_begun: bool,
    header: Option<Header>,
}

/// A line with names of columns.
struct Header {
    text: String,
    delimiter: char,
    columns: Vec<Column>,
}

impl EdgeLines {
    /// Parses the edge of a line. Returns `None` for an empty line, a comment or a header.
    ///
    /// # Errors
    /// If the line has no edge, or if it is a header with an unknown column.
    pub(crate) fn parse(&mut self, line: &str, report: &mut Report) -> Result<Option<Edge>, Unusable> {
        let text = without_comment(line);
        if text.trim().is_empty() {
            return Ok(None);
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            self.header = Header::read(text)?;
            if self.header.is_none() && are_names(&words(text), text) {
                report.note(LIKE_A_HEADER);
            }
        }
        match &self.header {
            // Concatenated files have one header each.
            Some(header) if header.text == text => {
                report.note(HEADER);
                Ok(None)
            }
            Some(header) => header.edge(text, report).map(Some),
            None => plain_edge(text, report).map(Some),
        }
    }
}

/// Parses a line of a file without a header.
fn plain_edge(text: &str, report: &mut Report) -> Result<Edge, Unusable> {
    let words = words(text);
    let unknown = || {
        let plural = if words.len() == 1 { "" } else { "s" };
        format!("expected `follower source`, found {} word{plural}", words.len())
    };
    let [follower, source, rest @ ..] = &words[..] else { return Err(unknown().into()) };
    let (hidden, rest) = match rest {
        [HIDDEN, rest @ ..] => (true, rest),
        _ => (false, rest),
    };
    if !rest.is_empty() {
        if !is_time(unquoted(&rest.join(" "))) {
            return Err(unknown().into());
        }
        report.note(TIME);
    }
    edge(follower, source, hidden)
}

fn edge(follower: &str, source: &str, hidden: bool) -> Result<Edge, Unusable> {
    let id = |text: &str| SourceId::new(text).map_err(|cause| format!("{text:?}: {cause}"));
    let (follower, source) = (id(follower)?, id(source)?);
    if follower == source {
        return Err(format!("{follower} cannot follow itself").into());
    }
    Ok(Edge { follower, source, hidden })
}

/// Returns the content of the column with this name.
fn column(name: &str) -> Option<Column> {
    let letters = name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase());
    let letters: String = letters.collect();
    named(&letters).or_else(|| {
        let mut letters = letters.as_str();
        while let Some(shorter) = SIDE_SUFFIXES.iter().find_map(|suffix| letters.strip_suffix(suffix)) {
            letters = shorter;
            let side = named(letters).filter(|column| !matches!(column, Column::Hidden | Column::Time));
            if side.is_some() {
                return side;
            }
        }
        None
    })
}

fn named(letters: &str) -> Option<Column> {
    NAMES.iter().find(|(_, names)| names.contains(&letters)).map(|(column, _)| *column)
}

/// Returns true if these words of the first line look like names of columns, known or not. An edge that is mistaken for names is refused,
/// and can be written in another form, but names that are mistaken for an edge would become users.
fn are_names<Word: AsRef<str>>(all: &[Word], text: &str) -> bool {
    // The mark of a hidden edge is also the name of a column.
    let is_marked = words(text).get(2) == Some(&HIDDEN);
    let is_name = |name: &&str| !(name.is_empty() || is_marked && *name == HIDDEN);
    let mut names = all.iter().map(Word::as_ref).filter(is_name);
    let is_tag = |name: &str| SourceId::new(name).is_ok_and(|id| !id.is_user());
    if names.clone().any(is_tag) {
        return false;
    }
    names.clone().any(|name| column(name).is_some() || is_about_follows(name))
        || (names.clone().next().is_some() && names.all(ends_as_a_name))
}

/// Returns true for `followed_by`. Users may be numbered: `follower_17`.
fn is_about_follows(name: &str) -> bool {
    let is_follow = |part: &String| part.strip_prefix("follow").is_some_and(|end| FOLLOW_ENDINGS.contains(&end));
    !name.contains(|character: char| character.is_ascii_digit()) && parts(name).iter().any(is_follow)
}

/// Returns true for `artistId`, and for `id_1` beside `id_2`.
fn ends_as_a_name(name: &str) -> bool {
    let name = name.strip_suffix(['1', '2']).unwrap_or(name);
    parts(name).last().is_some_and(|part| ["id", "uid", "name", "username"].contains(&part.as_str()))
}

/// Returns the parts of a name in `camelCase`, or with other characters between them, in lowercase.
fn parts(name: &str) -> Vec<String> {
    let (mut parts, mut after_small) = (vec![String::new()], false);
    for character in name.chars() {
        if !character.is_alphanumeric() || (after_small && character.is_uppercase()) {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut().filter(|_| character.is_alphanumeric()) {
            part.extend(character.to_lowercase());
        }
        after_small = character.is_lowercase();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns the accepted names of columns.
fn known_names() -> String {
    let names: Vec<String> = NAMES.iter().map(|(_, names)| names.join(", ")).collect();
    names.join("; ")
}

impl Header {
    /// Parses the first line of a file. It is a header if its words look like names of columns and are not separated by spaces. With spaces
    /// it is an edge between users with these names.
    ///
    /// # Errors
    /// If a column is unknown, or if the columns are not the two sides of an edge.
    fn read(text: &str) -> Result<Option<Self>, Unusable> {
        let Some(delimiter) = ['\t', ',', ';'].into_iter().find(|character| text.contains(*character)) else {
            return Ok(None);
        };
        let names = fields(text, delimiter).unwrap_or_default();
        if !are_names(&names, text) {
            return Ok(None);
        }
        let mut columns = Vec::with_capacity(names.len());
        for name in &names {
            let why = || {
                format!("unknown column {name:?}: rename or remove it, {IF_AN_EDGE}; known columns: {}", known_names())
            };
            columns.push(column(name).ok_or_else(|| Unusable::File(why()))?);
        }
        let count = |wanted| columns.iter().filter(|column| **column == wanted).count();
        let user = match [Column::Follower, Column::Source, Column::User].map(count) {
            [1, 1, 0] => None,
            [0, 1, 1] => Some(Column::Follower),
            [1, 0, 1] => Some(Column::Source),
            _ => {
                let why = format!(
                    "the columns {names:?} do not define an edge: name one follower and one source, {IF_AN_EDGE}"
                );
                return Err(Unusable::File(why));
            }
        };
        for column in &mut columns {
            if *column == Column::User {
                *column = user.unwrap_or(Column::User);
            }
        }
        Ok(Some(Self { text: text.to_owned(), delimiter, columns }))
    }

    /// Parses a line below the header.
    fn edge(&self, text: &str, report: &mut Report) -> Result<Edge, Unusable> {
        let fields = fields(text, self.delimiter).ok_or_else(|| "a quoted field has no end".to_owned())?;
        if fields.len() > self.columns.len() {
            let (found, named) = (fields.len(), self.text.trim());
            return Err(format!("expected the columns {named}, found {found} fields").into());
        }
        let (mut follower, mut source, mut hidden) = ("", "", false);
        for (column, field) in self.columns.iter().zip(&fields) {
            match column {
                Column::Follower => follower = field,
                Column::Source | Column::User => source = field,
                Column::Hidden => hidden = truth(field)?,
                Column::Time if field.is_empty() => {}
                Column::Time => report.note(TIME),
            }
        }
        edge(follower, source, hidden)
    }
}

fn truth(word: &str) -> Result<bool, String> {
    let known = TRUTHS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word));
    known.map(|(_, hidden)| *hidden).ok_or_else(|| format!("hidden: expected true or false, found {word:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the edges and the refusals of a file as text, and its notes.
    fn read(lines: &[&str]) -> (Vec<String>, Vec<(&'static str, usize)>) {
        let (mut file, mut report) = (EdgeLines::default(), Report::begin());
        let mut read = Vec::new();
        for line in lines {
            match file.parse(line, &mut report) {
                Ok(None) => {}
                Ok(Some(Edge { follower, source, hidden })) => {
                    read.push(format!("{follower}>{source}{}", if hidden { "?" } else { "" }));
                }
                Err(Unusable::Line(why)) => read.push(format!("line: {why}")),
                Err(Unusable::File(why)) => read.push(format!("file: {why}")),
            }
        }
        (read, report.notes().to_vec())
    }

    #[test]
    fn edges_are_read_with_any_separator() {
        for text in ["a b", "a\tb", "a,b", "a;b", " a ,  b # c", "a b #", "\"a\",\"b\"", "a,b,"] {
            assert_eq!(read(&[text]), (vec!["a>b".to_owned()], vec![]), "{text:?}");
        }
        for text in ["a\tb\thidden", "a, b hidden", "a;b;\"hidden\""] {
            assert_eq!(read(&[text]).0, ["a>b?"], "{text:?}");
        }
        for text in ["", "  ", "# a b", "#"] {
            assert_eq!(read(&[text]).0, [""; 0], "{text:?}");
        }
        for text in [
            "a",
            "a b c",
            "a a",
            "a b/c",
            "é b",
            "\"a,b\"",
            "\"a,b\",c",
            "a b true",
            "a b 5",
            "a b hidden c",
            "a b#",
            "\"a b",
        ] {
            assert!(read(&[text]).0[0].starts_with("line: "), "{text:?}");
        }
    }

    #[test]
    fn ids_are_read_as_written_even_with_special_characters_in_tag_names() {
        for name in [
            "tag:c#",
            "tag:#1",
            "tag:machine learning",
            "tag:a,b;c",
            "tag:top hidden",
            "tag:top 1704103200",
            "topic:C# 8, 9",
        ] {
            for text in [format!("a\t{}", word(name)), format!("a\t{}\t# {name}", word(name))] {
                assert_eq!(read(&[&text]), (vec![format!("a>{name}")], vec![]), "{text:?}");
            }
            assert_eq!(read(&[&format!("a\t{}\thidden", word(name))]).0, [format!("a>{name}?")]);
        }
        assert_eq!((word("tag:größe"), word("ann")), ("tag:größe".into(), "ann".into()));
        assert_eq!(read(&["a tag:c#"]).0, ["a>tag:c#"]);
    }

    #[test]
    fn the_time_of_a_follow_is_ignored_and_counted() {
        for time in [
            "2024-01-01T10:00:00Z",
            "2024-01-01T10:00:00.123456+02:00",
            "2024-01-01 10:00:00",
            "2024-01-01 10:00:00 UTC",
            "\"2024-01-01 10:00:00\"",
            "2024-01-01",
            "1704103200",
            "1704103200000",
            "1704103200000000",
        ] {
            for delimiter in ["\t", ",", " "] {
                let line = ["a", "b", time].join(delimiter);
                assert_eq!(read(&[&line]), (vec!["a>b".to_owned()], vec![(TIME, 1)]), "{line:?}");
            }
        }
        assert_eq!(
            read(&["a b hidden 2024-01-01", "a b 2024-01-01"]),
            (vec!["a>b?".into(), "a>b".into()], vec![(TIME, 2)])
        );
        for other in ["2024-1-1", "12345", "01/02/2024", "2024-01-01 at noon", "été-01-01x"] {
            assert!(read(&[&format!("a,b,{other}")]).0[0].starts_with("line: expected `follower source`"), "{other:?}");
        }
    }

    #[test]
    fn column_names_determine_the_column_order() {
        for (header, line) in [
            ("follower,source", "a,b"),
            ("source,follower", "b,a"),
            ("\"Follower ID\";\"Followee-ID\"", "\"a\";\"b\""),
            ("user_id\tfollowee_id", "a\tb"),
            ("user_id,follower_id", "b,a"),
            ("from,to", " a , b "),
            ("follower_username,followed_username", "a,b"),
            ("followerName,followeeName", "a,b"),
            ("FOLLOWEE_NAME;FOLLOWER_NAME", "b;a"),
            ("followingUserName,follower_user_id", "b,a"),
            ("to_uid\tfrom_uid", "b\ta"),
            ("username,following_username", "a,b"),
            ("follower,dst", "a,b"),
            ("followerId,followedId,hidden", "a,b"),
            ("hidden,source,follower", ",b,a"),
            ("hidden,source,follower", "No,b,a"),
            ("hidden\tsource\tfollower", "\tb\ta"),
        ] {
            assert_eq!(
                read(&["# a comment", "", header, line]),
                (vec!["a>b".to_owned()], vec![(HEADER, 1)]),
                "{header}"
            );
        }
        for hidden in ["true", "1", "hidden", "YES"] {
            assert_eq!(read(&["follower,hidden,source", &format!("a,{hidden},b")]).0, ["a>b?"], "{hidden}");
        }
        let joined =
            ["created_at,source,follower", "\"1 May, noon\",b,a", ",c,a", "created_at,source,follower", "x,d,a"];
        assert_eq!(read(&joined), (vec!["a>b".into(), "a>c".into(), "a>d".into()], vec![(HEADER, 2), (TIME, 2)]));
        for (line, why) in [
            ("a", "\"\": an id must have"),
            ("a,b,c", "expected the columns follower,source, found 3 fields"),
            ("\"a\"\"\",b", "\"a\\\"\": an id may contain only"),
            ("\"a,b", "a quoted field has no end"),
            ("a,a", "a cannot follow itself"),
        ] {
            let read = read(&["follower,source", line]).0;
            assert!(read[0].starts_with(&format!("line: {why}")), "{line:?}: {read:?}");
        }
    }

    #[test]
    fn a_file_with_an_unknown_header_is_refused() {
        for (header, why) in [
            ("follower,source,weight", "unknown column \"weight\""),
            ("id,follower_id,followee_id", "unknown column \"id\""),
            ("source,target", "the columns [\"source\", \"target\"] do not define an edge"),
            ("source_id,target_id", "the columns [\"source_id\", \"target_id\"] do not define an edge"),
            ("src,dst", "the columns [\"src\", \"dst\"] do not define an edge"),
            ("Source\tDestination", "the columns [\"Source\", \"Destination\"] do not define an edge"),
            ("src,dst,weight", "unknown column \"weight\""),
            ("follower_id,follower_name,source", "the columns [\"follower_id\", \"follower_name\", \"source\"] do not"),
            ("follower,since", "the columns [\"follower\", \"since\"] do not define an edge"),
            ("user,bob", "unknown column \"bob\""),
            ("user_id,friend_id", "unknown column \"friend_id\""),
            ("follower,artist", "unknown column \"artist\""),
            ("fan;artist;created_at", "unknown column \"fan\""),
            ("fan,hidden", "unknown column \"fan\""),
            ("follower,artist,hidden", "unknown column \"artist\""),
            ("followed_by,who", "unknown column \"followed_by\""),
            ("Person,IsFollowing", "unknown column \"Person\""),
            ("who-follows\twhom", "unknown column \"who-follows\""),
            ("fanId,artistID", "unknown column \"fanId\""),
            ("fan_id,artist_name,hidden", "unknown column \"fan_id\""),
            ("Fan Username,Artist Username", "unknown column \"Fan Username\""),
            ("\"id\",\"name\"", "unknown column \"id\""),
            ("id_1,id_2", "unknown column \"id_1\""),
            ("user,user_id", "the columns [\"user\", \"user_id\"] do not define an edge"),
        ] {
            let (read, notes) = read(&[header]);
            assert!(read[0].starts_with(&format!("file: {why}")), "{header:?}: {read:?}");
            assert!(read[0].contains("if this line is an edge, write it with spaces"), "{header:?}: {read:?}");
            assert_eq!(notes, [], "{header:?}");
        }
        assert!(read(&["fan_id,artist_id"]).0[0].ends_with(
            "; known columns: follower, from; source, followee, followed, \
            following, to, target, src, dst, destination; user; hidden, ishidden; since, createdat, followedat, time, \
            timestamp, date"
        ));
    }

    #[test]
    fn users_may_have_the_names_of_columns() {
        assert_eq!(
            read(&["follower source", "a b"]),
            (vec!["follower>source".into(), "a>b".into()], vec![(LIKE_A_HEADER, 1)])
        );
        for (text, edge) in [("user bob", "user>bob"), ("fan_id artist_id hidden", "fan_id>artist_id?")] {
            assert_eq!(read(&[text]), (vec![edge.to_owned()], vec![(LIKE_A_HEADER, 1)]), "{text}");
        }
        for (text, edge) in [
            ("david,sigrid", "david>sigrid"),
            ("user1,user2", "user1>user2"),
            ("user_1\tuser_2", "user_1>user_2"),
            ("follower-17;source-4", "follower-17>source-4"),
            ("ann,bob_id", "ann>bob_id"),
            ("follower,tag:follow", "follower>tag:follow"),
            ("tom,fromage,hidden", "tom>fromage?"),
            ("a b\thidden", "a>b?"),
        ] {
            assert_eq!(read(&[text]), (vec![edge.to_owned()], vec![]), "{text:?}");
        }
        assert_eq!(read(&["a,b", "follower,source"]), (vec!["a>b".into(), "follower>source".into()], vec![]));
    }
}
