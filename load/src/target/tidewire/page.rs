//! Parses pages of Tidewire.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::operation::Item;
use crate::target::Failure;

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    items: Vec<Entry<'a>>,
}

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    post: Post<'a>,
}

#[derive(Deserialize)]
struct Post<'a> {
    id: &'a str,
    author: &'a str,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// Parses the entries of a page.
pub(super) fn items(json: &[u8]) -> Result<Vec<Item>, Failure> {
    let page: Page<'_> = serde_json::from_slice(json).map_err(|cause| Failure::of(&cause))?;
    page.items.iter().map(|entry| item(&entry.post)).collect()
}

fn item(post: &Post<'_>) -> Result<Item, Failure> {
    let strange = || Failure::Failed(format!("post {} by {} is not in this data set", post.id, post.author));
    let id = post.id.parse().map_err(|_| strange())?;
    let author = post.author.strip_prefix('u').and_then(|number| number.parse().ok()).ok_or_else(strange)?;
    Ok(Item { id, author, body: post.body.get().to_owned() })
}

/// Counts the entries of a page without parsing it: each entry has one cursor, and no body contains this text.
pub(super) fn count(json: &[u8]) -> usize {
    memchr::memmem::find_iter(json, br#","cursor":""#).count()
}

/// Counts the entries of the pages of several readers in one response.
pub(super) fn count_together(json: &[u8]) -> Result<usize, Failure> {
    if let Some(at) = memchr::memmem::find(json, br#","problem":{"#) {
        let problem = String::from_utf8_lossy(&json[at + 1..json.len().min(at + 200)]);
        return Err(Failure::Failed(format!("one of many pages was refused: {problem}")));
    }
    Ok(count(json))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_and_counted() {
        let json = br#"{"items":[{"post":{"id":"7","author":"u3","published_at":"x","kind":"post","body":{"a":[1]},"hidden":false},"cursor":"c","reposts":[],"via":["u3"]}],"next":null,"newest":"c","partial":[]}"#;
        assert_eq!(items(json).unwrap(), [Item { id: 7, author: 3, body: r#"{"a":[1]}"#.to_owned() }]);
        assert_eq!(count(json), 1);
        assert!(items(br#"{"items":[{"post":{"id":"7","author":"ann","body":1}}]}"#).is_err());
        assert!(items(b"{}").is_err());
    }

    #[test]
    fn a_refused_page_among_many_is_an_error() {
        let right = r#"{"user":"u1","items":[{"post":{"id":"7"},"cursor":"c"}],"next":null}"#;
        let refused = r#"{"user":"u2","problem":{"code":"overloaded"}}"#;
        assert_eq!(count_together(format!("[{right},{right}]").as_bytes()).unwrap(), 2);
        let failure = count_together(format!("[{right},{refused}]").as_bytes()).unwrap_err().to_string();
        assert!(failure.starts_with(r#"one of many pages was refused: "problem":{"code":"overloaded""#), "{failure}");
    }
}
