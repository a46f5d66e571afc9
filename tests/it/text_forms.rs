//! The table of text that is accepted, in `docs/text-forms.md`, is what is done.

use tidewire::clock::UnixMicros;
use tidewire::id::{ExternalId, PostName, SourceId};

/// Minimum number of rows, so that a table that cannot be read any more is not taken for one that is right.
const ROWS_MIN: usize = 60;

/// Returns the JSON text between the first two backticks, decoded.
fn text_in(cell: &str) -> Option<String> {
    let (_, text) = cell.split_once('`')?;
    serde_json::from_str(text.rsplit_once('`')?.0).ok()
}

/// Returns what becomes of a text, or why it is refused.
fn form(kind: &str, text: &str) -> Result<String, String> {
    let name = |id: SourceId, name: fn(&SourceId) -> Option<&str>| name(&id).unwrap().to_owned();
    match kind {
        "tag" => SourceId::tag(text).map(|id| name(id, SourceId::tag_name)).map_err(|cause| cause.to_string()),
        "topic" => SourceId::topic(text).map(|id| name(id, SourceId::topic_name)).map_err(|cause| cause.to_string()),
        "user" => SourceId::new(text).map(|id| id.to_string()).map_err(|cause| cause.to_string()),
        "external id" => ExternalId::new(text).map(String::from).map_err(|cause| cause.to_string()),
        "post" => text.parse::<PostName>().map(|name| name.id.to_string()).map_err(|cause| cause.to_string()),
        "time" => text.parse::<UnixMicros>().map(|at| at.to_string()).map_err(|cause| cause.to_string()),
        _ => panic!("no kind of text: {kind}"),
    }
}

#[test]
fn canonical_forms_agree_with_the_documented_table() {
    let table = include_str!("../../docs/text-forms.md");
    let (mut rows, mut wrong) = (0, Vec::new());
    for row in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| as a ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [kind, text, becomes] = cells[..] else { panic!("{row} has {} cells", cells.len()) };
        let text = text_in(text).unwrap_or_else(|| panic!("no text in {row}"));
        let form = form(kind, &text);
        let is_right = match becomes.strip_prefix("refused: ") {
            Some(why) => form.as_ref().is_err_and(|refused| refused.contains(why)),
            None if becomes == "=" => form.as_ref() == Ok(&text),
            None => form.is_ok() && form.as_ref().ok() == text_in(becomes).as_ref(),
        };
        if !is_right {
            wrong.push(format!("{row} {form:?}"));
        }
        rows += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(rows >= ROWS_MIN, "{rows} rows");
}
