//! The feed commands, and the request that each of them makes.

use std::str::FromStr;

use actix_web::http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::http::handlers::page_query::PageQuery;
use tidewire::feed::cursor;
use tidewire::feed::page::Range;
use tidewire::state::reader::PageRequest;

/// The characters that are encoded in a path or query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A feed command.
pub(super) struct FeedCommand {
    /// The name, in capitals.
    pub(super) name: &'static str,
    /// The words behind the name, as documents show them.
    pub(super) syntax: &'static str,
    /// The number of words with the name; the minimum as a negative number if there may be more.
    pub(super) arity: i64,
    /// True if it changes anything.
    pub(super) writes: bool,
    request: fn(&mut Words<'_, '_>) -> Result<Request, SyntaxError>,
}

/// The request of a command.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) target: Target,
    /// The JSON body; empty if there is none.
    pub(super) body: String,
    /// True to answer with values of the protocol in place of JSON.
    pub(super) as_array: bool,
    /// The sequence of a cluster's log that the response must have applied.
    pub(super) after_sequence: Option<u64>,
}

/// The resource of a request.
#[derive(Debug, PartialEq)]
pub(super) enum Target {
    /// A page of a home feed.
    Feed(PageQuery),
    /// A path and a query.
    Path(String),
}

impl Target {
    /// Returns the path and the query.
    pub(super) fn into_path(self) -> String {
        let PageQuery { user, page: PageRequest { range, limit }, fields } = match self {
            Self::Feed(query) => query,
            Self::Path(path) => return path,
        };
        let mut path = format!("{}?limit={limit}", feed_path(user.as_str()));
        match range {
            Range::Before(position) => path.extend(["&before=", &cursor::encode(position)]),
            Range::Resume(token) => path.extend(["&after=", &cursor::encode_resume(token)]),
            // No parameter requests others.
            Range::Newest | Range::After(_) | Range::Since(_) => {}
        }
        fields.name().into_iter().for_each(|name| path.extend(["&fields=", name]));
        path
    }
}

/// The reason why words are not those of a command.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum SyntaxError {
    /// A word is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A word is not a number.
    #[error("{0} is not a number: {1:?}")]
    NotANumber(&'static str, String),
    /// A word is not an option.
    #[error("unknown option {0:?}")]
    Unknown(String),
    /// A word is not text.
    #[error("a word is not UTF-8")]
    NotText,
    /// A body is not JSON.
    #[error("the body is not JSON: {0}")]
    NotJson(String),
}

const fn command(
    name: &'static str,
    syntax: &'static str,
    (arity, writes): (i64, bool),
    request: fn(&mut Words<'_, '_>) -> Result<Request, SyntaxError>,
) -> FeedCommand {
    FeedCommand { name, syntax, arity, writes, request }
}

const READ: bool = false;
const WRITE: bool = true;

/// All feed commands, the most frequent first.
pub(super) static COMMANDS: &[FeedCommand] = &[
    command(
        "FEED.GET",
        "user [COUNT n] [BEFORE cursor | AFTER cursor] [IDS] [AFTERSEQUENCE n] [AS ARRAY]",
        (-2, READ),
        |words| {
            let user = words.next("user")?;
            page(words, |parameters| match PageQuery::of(user, parameters.iter().copied()) {
                Some(query) => Target::Feed(query),
                // The application refuses it.
                None => Target::Path(with_parameters(feed_path(user), parameters)),
            })
        },
    ),
    command(
        "FEED.POST",
        "author body [ID id] [EXTERNALID id] [AT time] [KIND kind] [TAGS n tag ...] [TOPIC topic] [REPLYTO id] [REPOSTOF id] [WAIT] [AS ARRAY]",
        (-3, WRITE),
        publish,
    ),
    command("FEED.MGET", "n user ... [COUNT n] [IDS] [AFTERSEQUENCE n] [AS ARRAY]", (-3, READ), read_feeds),
    command(
        "FEED.OWN",
        "source [COUNT n] [BEFORE cursor | AFTER cursor] [IDS] [AFTERSEQUENCE n] [AS ARRAY]",
        (-2, READ),
        |words| {
            let source = words.next("source")?;
            let path = format!("/v1/users/{}/posts", encoded(source));
            page(words, |parameters| Target::Path(with_parameters(path, parameters)))
        },
    ),
    command("FEED.POSTS", "id ...", (-2, READ), |words| {
        let ids = std::iter::from_fn(|| words.take()).collect::<Result<Vec<_>, _>>()?;
        if let Some(id) = ids.iter().find(|id| id.contains(',')) {
            return Err(SyntaxError::Unknown((*id).to_owned()));
        }
        Ok(get(format!("/v1/posts?ids={}", encoded(&ids.join(",")))))
    }),
    command("FEED.EDIT", "id [BODY body] [HIDE | SHOW]", (-3, WRITE), edit),
    command("FEED.DEL", "id", (2, WRITE), |words| {
        Ok(request(Method::DELETE, format!("/v1/posts/{}", encoded(words.next("id")?))))
    }),
    command("FEED.FOLLOW", "user source [HIDDEN] [BACKFILL n]", (-3, WRITE), follow),
    command("FEED.UNFOLLOW", "user source [KEEP]", (-3, WRITE), |words| {
        let mut path = path_of_pair(words, "following")?;
        while let Some(option) = words.option()? {
            match &*option {
                "KEEP" => path.push_str("?keep=true"),
                _ => return Err(SyntaxError::Unknown(option)),
            }
        }
        Ok(request(Method::DELETE, path))
    }),
    command("FEED.MUTE", "user source", (3, WRITE), |words| of_pair(words, Method::PUT, "mutes")),
    command("FEED.UNMUTE", "user source", (3, WRITE), |words| of_pair(words, Method::DELETE, "mutes")),
    command("FEED.BLOCK", "user source", (3, WRITE), |words| of_pair(words, Method::PUT, "blocks")),
    command("FEED.UNBLOCK", "user source", (3, WRITE), |words| of_pair(words, Method::DELETE, "blocks")),
    command("FEED.MARK", "user cursor", (3, WRITE), |words| {
        let target = format!("/v1/users/{}/marker", encoded(words.next("user")?));
        let body = json!({"cursor": words.next("cursor")?});
        Ok(Request { body: body.to_string(), ..request(Method::PUT, target) })
    }),
    command("FEED.UNREAD", "user", (2, READ), |words| {
        Ok(get(format!("/v1/users/{}/marker", encoded(words.next("user")?))))
    }),
    command("FEED.EXPLAIN", "user post", (3, READ), |words| {
        let (user, post) = (words.next("user")?, words.next("post")?);
        Ok(get(format!("/v1/users/{}/feed/explain/{}", encoded(user), encoded(post))))
    }),
];

impl FeedCommand {
    /// Returns the command of this name, in any case.
    pub(super) fn find(name: &[u8]) -> Option<&'static Self> {
        COMMANDS.iter().find(|command| name.eq_ignore_ascii_case(command.name.as_bytes()))
    }

    /// Returns the request of the command with these words behind its name.
    ///
    /// # Errors
    /// Fails if the words are not those of the syntax.
    pub(super) fn request(&self, words: &mut dyn Iterator<Item = &[u8]>) -> Result<Request, SyntaxError> {
        let mut words = Words { words };
        let request = (self.request)(&mut words)?;
        match words.take().transpose()? {
            None => Ok(request),
            Some(more) => Err(SyntaxError::Unknown(more.to_owned())),
        }
    }
}

/// The words behind the name of a command.
struct Words<'w, 'a> {
    words: &'w mut dyn Iterator<Item = &'a [u8]>,
}

impl<'a> Words<'_, 'a> {
    /// Returns the next word, if there is one.
    fn take(&mut self) -> Option<Result<&'a str, SyntaxError>> {
        self.words.next().map(|word| str::from_utf8(word).map_err(|_| SyntaxError::NotText))
    }

    /// Returns the next word, which has this meaning.
    fn next(&mut self, what: &'static str) -> Result<&'a str, SyntaxError> {
        self.take()
            .ok_or(SyntaxError::Missing(what))?
            .and_then(|word| if word.is_empty() { Err(SyntaxError::Missing(what)) } else { Ok(word) })
    }

    /// Returns the next word as a number.
    fn number<T: FromStr>(&mut self, what: &'static str) -> Result<T, SyntaxError> {
        let word = self.next(what)?;
        word.parse().map_err(|_| SyntaxError::NotANumber(what, word.to_owned()))
    }

    /// Returns the next word in capitals, if there is one.
    fn option(&mut self) -> Result<Option<String>, SyntaxError> {
        Ok(self.take().transpose()?.map(str::to_ascii_uppercase))
    }
}

/// Encodes a part of a path or of a query.
pub(super) fn encoded(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, ENCODED).to_string()
}

fn request(method: Method, path: String) -> Request {
    Request { method, target: Target::Path(path), body: String::new(), as_array: false, after_sequence: None }
}

fn feed_path(user: &str) -> String {
    format!("/v1/users/{}/feed", encoded(user))
}

/// Returns a request of a path and query.
pub(super) fn get(target: String) -> Request {
    request(Method::GET, target)
}

/// Returns the request of a page. `target` gets the options as the parameters of a query.
fn page<'a>(
    words: &mut Words<'_, 'a>,
    target: impl FnOnce(&[(&'static str, &'a str)]) -> Target,
) -> Result<Request, SyntaxError> {
    let (mut parameters, mut as_array, mut after_sequence) = (Vec::new(), false, None);
    while let Some(option) = words.option()? {
        match &*option {
            "COUNT" => parameters.push(("limit", words.next("COUNT n")?)),
            "BEFORE" => parameters.push(("before", words.next("BEFORE cursor")?)),
            "AFTER" => parameters.push(("after", words.next("AFTER cursor")?)),
            "IDS" => parameters.push(("fields", "ids")),
            "AFTERSEQUENCE" => after_sequence = Some(words.number("AFTERSEQUENCE n")?),
            "AS" => as_array = array(words)?,
            _ => return Err(SyntaxError::Unknown(option)),
        }
    }
    Ok(Request { method: Method::GET, target: target(&parameters), body: String::new(), as_array, after_sequence })
}

/// Appends parameters to a path.
fn with_parameters(mut path: String, parameters: &[(&str, &str)]) -> String {
    for (nth, (name, value)) in parameters.iter().enumerate() {
        let separator = if nth == 0 { '?' } else { '&' };
        path.push_str(&format!("{separator}{name}={}", encoded(value)));
    }
    path
}

/// Parses the rest of `AS ARRAY`.
fn array(words: &mut Words<'_, '_>) -> Result<bool, SyntaxError> {
    let what = words.next("ARRAY")?;
    if what.eq_ignore_ascii_case("ARRAY") { Ok(true) } else { Err(SyntaxError::Unknown(format!("AS {what}"))) }
}

fn read_feeds(words: &mut Words<'_, '_>) -> Result<Request, SyntaxError> {
    let count: usize = words.number("n")?;
    let users = (0..count).map(|_| words.next("user")).collect::<Result<Vec<_>, _>>()?;
    let (mut body, mut as_array) = (Map::from_iter([("users".to_owned(), json!(users))]), false);
    let mut after_sequence = None;
    while let Some(option) = words.option()? {
        match &*option {
            "COUNT" => drop(body.insert("limit".to_owned(), json!(words.number::<usize>("COUNT n")?))),
            "IDS" => drop(body.insert("fields".to_owned(), json!("ids"))),
            "AFTERSEQUENCE" => after_sequence = Some(words.number("AFTERSEQUENCE n")?),
            "AS" => as_array = array(words)?,
            _ => return Err(SyntaxError::Unknown(option)),
        }
    }
    let body = Value::from(body).to_string();
    Ok(Request { body, as_array, after_sequence, ..request(Method::POST, "/v1/feeds".to_owned()) })
}

fn publish(words: &mut Words<'_, '_>) -> Result<Request, SyntaxError> {
    let (author, body) = (words.next("author")?, words.next("body")?);
    // The body is inserted as it is, so that the server stores its bytes.
    let body: &RawValue = serde_json::from_str(body).map_err(|cause| SyntaxError::NotJson(cause.to_string()))?;
    let (mut more, mut target, mut as_array) = (Map::new(), "/v1/posts".to_owned(), false);
    while let Some(option) = words.option()? {
        let field = match &*option {
            "ID" => "id",
            "EXTERNALID" => "external_id",
            "AT" => "published_at",
            "KIND" => "kind",
            "TOPIC" => "topic",
            "REPLYTO" => "reply_to",
            "REPOSTOF" => "repost_of",
            "TAGS" => {
                let count: usize = words.number("TAGS n")?;
                let tags = (0..count).map(|_| words.next("tag")).collect::<Result<Vec<_>, _>>()?;
                more.insert("tags".to_owned(), json!(tags));
                continue;
            }
            "WAIT" => {
                "/v1/posts?wait=delivered".clone_into(&mut target);
                continue;
            }
            "AS" => {
                as_array = array(words)?;
                continue;
            }
            _ => return Err(SyntaxError::Unknown(option)),
        };
        more.insert(field.to_owned(), words.next(field)?.into());
    }
    let mut post = format!(r#"{{"author":{},"body":{}"#, json!(author), body.get());
    for (name, value) in more {
        post.push_str(&format!(r#","{name}":{value}"#));
    }
    post.push('}');
    Ok(Request { body: post, as_array, ..request(Method::POST, target) })
}

fn edit(words: &mut Words<'_, '_>) -> Result<Request, SyntaxError> {
    let target = format!("/v1/posts/{}", encoded(words.next("id")?));
    let mut members = Vec::new();
    while let Some(option) = words.option()? {
        members.push(match &*option {
            "BODY" => {
                let body = words.next("body")?;
                let body: &RawValue =
                    serde_json::from_str(body).map_err(|cause| SyntaxError::NotJson(cause.to_string()))?;
                format!(r#""body":{}"#, body.get())
            }
            "HIDE" => r#""hidden":true"#.to_owned(),
            "SHOW" => r#""hidden":false"#.to_owned(),
            _ => return Err(SyntaxError::Unknown(option)),
        });
    }
    Ok(Request { body: format!("{{{}}}", members.join(",")), ..request(Method::PATCH, target) })
}

/// Returns a request for an edge, a mute or a block.
fn of_pair(words: &mut Words<'_, '_>, method: Method, list: &str) -> Result<Request, SyntaxError> {
    path_of_pair(words, list).map(|path| request(method, path))
}

/// Returns the path of an edge, a mute or a block: it has the user and the source.
fn path_of_pair(words: &mut Words<'_, '_>, list: &str) -> Result<String, SyntaxError> {
    let (user, source) = (words.next("user")?, words.next("source")?);
    Ok(format!("/v1/users/{}/{list}/{}", encoded(user), encoded(source)))
}

fn follow(words: &mut Words<'_, '_>) -> Result<Request, SyntaxError> {
    let follow = of_pair(words, Method::PUT, "following")?;
    let mut options = Map::new();
    while let Some(option) = words.option()? {
        match &*option {
            "HIDDEN" => drop(options.insert("hidden".to_owned(), json!(true))),
            "BACKFILL" => drop(options.insert("backfill".to_owned(), json!(words.number::<usize>("BACKFILL n")?))),
            _ => return Err(SyntaxError::Unknown(option)),
        }
    }
    let body = if options.is_empty() { String::new() } else { Value::from(options).to_string() };
    Ok(Request { body, ..follow })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::clock::UnixMicros;
    use tidewire::feed::position::Position;
    use tidewire::feed::resume::Resume;
    use tidewire::id::PostId;

    fn request_of(line: &str) -> Result<String, String> {
        let mut words = line.split(' ').map(str::as_bytes);
        let command = FeedCommand::find(words.next().unwrap()).unwrap();
        let request = command.request(&mut words).map_err(|cause| cause.to_string())?;
        let array = if request.as_array { " as array" } else { "" };
        let after = request.after_sequence.map(|sequence| format!(" after {sequence}")).unwrap_or_default();
        let target = request.target.into_path();
        Ok(format!("{} {target} {}{array}{after}", request.method, request.body).trim_end().to_owned())
    }

    #[test]
    fn each_command_makes_one_request() {
        for (command, request) in [
            ("FEED.GET ann", "GET /v1/users/ann/feed?limit=20"),
            ("feed.get ann ids count 5", "GET /v1/users/ann/feed?limit=5&fields=ids"),
            ("FEED.GET ann COUNT 5 BEFORE c== IDS", "GET /v1/users/ann/feed?limit=5&before=c%3D%3D&fields=ids"),
            ("FEED.GET a/b AFTER c AS ARRAY", "GET /v1/users/a%2Fb/feed?after=c  as array"),
            ("FEED.GET ann COUNT 5 COUNT 5", "GET /v1/users/ann/feed?limit=5&limit=5"),
            ("FEED.GET ann AFTERSEQUENCE 7", "GET /v1/users/ann/feed?limit=20  after 7"),
            ("FEED.MGET 2 ann bob COUNT 3", r#"POST /v1/feeds {"limit":3,"users":["ann","bob"]}"#),
            ("FEED.MGET 1 ann AFTERSEQUENCE 7", r#"POST /v1/feeds {"users":["ann"]} after 7"#),
            ("FEED.OWN tag:東京 COUNT 1", "GET /v1/users/tag%3A%E6%9D%B1%E4%BA%AC/posts?limit=1"),
            ("FEED.POST bob 1", r#"POST /v1/posts {"author":"bob","body":1}"#),
            (
                "FEED.POST bob [1.0] TAGS 2 a b REPLYTO 7 WAIT",
                r#"POST /v1/posts?wait=delivered {"author":"bob","body":[1.0],"reply_to":"7","tags":["a","b"]}"#,
            ),
            ("FEED.POSTS 1 ext:2", "GET /v1/posts?ids=1%2Cext%3A2"),
            ("FEED.EDIT 7 BODY {} HIDE", r#"PATCH /v1/posts/7 {"body":{},"hidden":true}"#),
            ("FEED.DEL 7", "DELETE /v1/posts/7"),
            ("FEED.FOLLOW ann bob", "PUT /v1/users/ann/following/bob"),
            ("FEED.FOLLOW ann bob BACKFILL 0", r#"PUT /v1/users/ann/following/bob {"backfill":0}"#),
            ("FEED.UNFOLLOW ann bob KEEP", "DELETE /v1/users/ann/following/bob?keep=true"),
            ("FEED.MUTE ann bob", "PUT /v1/users/ann/mutes/bob"),
            ("FEED.UNBLOCK ann bob", "DELETE /v1/users/ann/blocks/bob"),
            ("FEED.MARK ann c", r#"PUT /v1/users/ann/marker {"cursor":"c"}"#),
            ("FEED.UNREAD ann", "GET /v1/users/ann/marker"),
            ("FEED.EXPLAIN ann 7", "GET /v1/users/ann/feed/explain/7"),
        ] {
            assert_eq!(request_of(command).as_deref(), Ok(request), "{command}");
        }
    }

    #[test]
    fn a_page_requests_the_entries_that_its_words_name() {
        let position = Position { published_at: UnixMicros(7), id: PostId(9) };
        let token = Resume { above: Some(UnixMicros(8)), ..Resume::at(position) };
        for (option, value) in [
            ("before", cursor::encode(position)),
            ("after", cursor::encode(position)),
            ("after", cursor::encode_resume(token)),
        ] {
            let path = request_of(&format!("FEED.GET ann {option} {value}"));
            assert_eq!(path, Ok(format!("GET /v1/users/ann/feed?limit=20&{option}={value}")));
        }
    }

    #[test]
    fn a_wrong_word_is_named() {
        for (command, refused) in [
            ("FEED.GET", "user is missing"),
            ("FEED.GET ann COUNT", "COUNT n is missing"),
            ("FEED.OWN ann AFTERSEQUENCE x", "AFTERSEQUENCE n is not a number: \"x\""),
            ("FEED.GET ann TOP", "unknown option \"TOP\""),
            ("FEED.GET ann AS JSON", "unknown option \"AS JSON\""),
            ("FEED.MGET two ann bob", "n is not a number: \"two\""),
            ("FEED.MGET 3 ann bob", "user is missing"),
            ("FEED.POST bob {", "the body is not JSON: EOF while parsing an object at line 1 column 1"),
            ("FEED.POST bob 1 TAGS 2 a", "tag is missing"),
            ("FEED.DEL 7 8", "unknown option \"8\""),
            ("FEED.MUTE ann", "source is missing"),
        ] {
            assert_eq!(request_of(command), Err(refused.to_owned()), "{command}");
        }
    }

    #[test]
    fn the_document_has_each_command() {
        let document = include_str!("../../../../docs/redis-protocol.md").replace("\\|", "|");
        for FeedCommand { name, syntax, .. } in COMMANDS {
            assert!(document.contains(&format!("`{name} {syntax}`")), "{name} {syntax}");
        }
    }

    #[test]
    fn a_body_cannot_add_fields() {
        assert!(request_of(r#"FEED.POST bob 1,"id":"7""#).is_err());
        assert!(request_of(r#"FEED.EDIT 7 BODY 1,"hidden":true"#).is_err());
    }
}
