//! `tidewire import posts`: imports a file of posts into a running server or a data directory.
//!
//! Each line is the document of `POST /v1/posts`. Lines of an export may also have the field `hidden`. Such a post is published and then
//! hidden, before the next line is sent.
//!
//! Lines are sent in batches, which the server publishes in order. With a user token, which does not permit batches, posts are sent one by
//! one.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::cli::Outcome;
use crate::cli::client::{self, ATTEMPTS_MAX, Client, ClientError, OUTCOME_UNKNOWN, Refused, ServerResponse};
use crate::cli::import::{self, Target};
use crate::cli::in_order::{Format, Item, SendBatch, StopCause, Stopped, Unusable};
use crate::cli::lines::InputLine;
use crate::cli::report::Report;
use crate::http;
use tidewire::limits::POSTS_PER_REQUEST_MAX;

/// Maximum bytes of the posts in a request. It is below the server's limit, because many proxies refuse more than 1 MiB by default.
const BATCH_BYTES_MAX: usize = 1_000_000;

/// Arguments of `tidewire import posts`.
#[derive(Debug, clap::Args)]
pub struct ImportPosts {
    /// File with one post per line, as accepted by POST /v1/posts; .gz too; - is standard input
    file: PathBuf,

    #[command(flatten)]
    target: Target,
}

/// A line with a post.
pub(crate) struct NumberedPost {
    line: u64,
    /// The body of a `POST /v1/posts` request: one JSON value, which the server validates.
    json: String,
    has_id: bool,
    hidden: bool,
}

/// The fields that determine how a post is sent.
#[derive(Default, Deserialize)]
struct KnownFields {
    id: Option<IgnoredAny>,
    external_id: Option<IgnoredAny>,
    hidden: Option<bool>,
}

/// Reads the lines of a file.
#[derive(Default)]
pub(crate) struct PostLines {
    has_begun: bool,
}

impl ImportPosts {
    /// Sends the posts of the file to the target.
    pub(crate) fn run(self) -> Outcome {
        import::run(&self.file, self.target, PostLines::default())
    }
}

impl Item for NumberedPost {
    const WHAT: &'static str = "posts";
    const PER_REQUEST_MAX: usize = POSTS_PER_REQUEST_MAX;
    const REQUEST_BYTES_MAX: usize = BATCH_BYTES_MAX;
    const REPEATED: &'static str = "with the same id as an earlier line; the first post is published";

    fn line(&self) -> u64 {
        self.line
    }

    fn bytes(&self) -> usize {
        self.json.len()
    }

    fn ends_batch(&self) -> bool {
        self.hidden
    }

    fn check(&self) -> Result<Option<impl Hash + use<>>, String> {
        http::check_post(self.json.as_bytes()).map_err(|problem| format!("{}: {}", problem.code(), problem.detail()))
    }
}

impl Format for PostLines {
    type Item = NumberedPost;

    /// Parses the parts of a line that the import needs.
    fn parse(&mut self, line: InputLine, _: &mut Report) -> Result<Option<NumberedPost>, Unusable> {
        let text = line.text.map_err(str::to_owned)?;
        let begins = text.trim_start();
        if begins.is_empty() {
            return Ok(None);
        }
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        if !has_begun && begins.starts_with('[') {
            let why = "expected one post a line (NDJSON), found an array; convert it with `jq -c '.[]'`";
            return Err(Unusable::File(why.to_owned()));
        }
        // In a batch, invalid JSON would make the other posts unreadable.
        let checked = serde_json::from_str::<&RawValue>(&text);
        if !has_begun && checked.is_err() && !begins.starts_with('{') {
            let why = "expected one post a line (NDJSON), found something else; docs/tools.md shows how to convert CSV";
            return Err(Unusable::File(why.to_owned()));
        }
        checked.map_err(|cause| format!("expected a post as JSON on one line: {cause}"))?;
        let KnownFields { id, external_id, hidden } = serde_json::from_str(&text).unwrap_or_default();
        let json = if hidden.is_some() { without_hidden(&text).unwrap_or(text) } else { text };
        let has_id = id.is_some() || external_id.is_some();
        Ok(Some(NumberedPost { line: line.number, json, has_id, hidden: hidden == Some(true) }))
    }

    fn sender(client: Client) -> impl SendBatch<NumberedPost> {
        PostSender::new(client)
    }
}

/// Returns the same document without the field `hidden`, which the server does not accept. The other fields are unchanged.
fn without_hidden(json: &str) -> Option<String> {
    let mut fields: BTreeMap<&str, &RawValue> = serde_json::from_str(json).ok()?;
    fields.remove("hidden");
    serde_json::to_string(&fields).ok()
}

/// The answer to a request for many posts.
#[derive(Deserialize)]
struct Answers {
    posts: Vec<Answer>,
}

/// The answer for one post, which has either `post` or `problem`.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    created: bool,
    post: Option<PublishedPost>,
    problem: Option<Problem>,
}

#[derive(Deserialize)]
struct PublishedPost {
    id: String,
}

#[derive(Deserialize)]
struct Problem {
    #[serde(flatten)]
    refused: Refused,
    /// Seconds after which the server accepts another attempt.
    retry_after: Option<u64>,
}

/// Sends posts with this client.
struct PostSender {
    client: Client,
    /// True if the server does not permit batches.
    is_single: bool,
    /// True if any line was answered.
    has_answers: bool,
}

impl SendBatch<NumberedPost> for PostSender {
    fn send(&mut self, batch: Vec<NumberedPost>, report: &mut Report) -> Result<(), Stopped> {
        let (mut undone, last) = (0, batch.last().map_or(0, |post| post.line));
        let sent = self.publish(batch, report, &mut undone);
        sent.map_err(|cause| Stopped { cause, place: self.place(undone, last) })
    }
}

impl PostSender {
    fn new(client: Client) -> Self {
        Self { client, is_single: false, has_answers: false }
    }

    /// Returns the line to continue from, as the end of a sentence. Empty if no line was answered.
    fn place(&self, undone: u64, last: u64) -> String {
        if !self.has_answers {
            return String::new();
        }
        format!(
            "; line {undone} is the first line that is not imported, and line {last} the last that was sent; to continue, import again from \
             line {undone}: posts with an `id` or `external_id` are not published twice, but published posts without one are"
        )
    }

    /// Publishes posts, and retries those that the server refuses temporarily. `undone` is the line of the first post that is not done.
    fn publish(
        &mut self,
        mut posts: Vec<NumberedPost>,
        report: &mut Report,
        undone: &mut u64,
    ) -> Result<(), StopCause> {
        let mut attempts = 0;
        while let Some(first) = posts.first() {
            *undone = first.line;
            if self.is_single {
                return self.publish_singly(&posts, report, undone);
            }
            let answers = match self.publish_batch(&posts)? {
                Ok(answers) => answers,
                Err(Refused { status: 403, .. }) => {
                    self.is_single = true;
                    continue;
                }
                Err(refused) => {
                    let reason = import::reason(refused)?;
                    posts.iter().for_each(|post| report.refuse(post.line, reason.as_str()));
                    return Ok(());
                }
            };
            self.has_answers = true;
            let before = posts.len();
            let mut again: Vec<NumberedPost> = Vec::new();
            let mut last_problem = None;
            for (post, answer) in posts.into_iter().zip(answers) {
                *undone = again.first().unwrap_or(&post).line;
                if let Some(problem) = self.settle(&post, answer, report)? {
                    last_problem = Some(problem);
                    again.push(post);
                }
            }
            posts = again;
            if let Some(Problem { refused, retry_after }) = last_problem {
                attempts = if posts.len() < before { 0 } else { attempts + 1 };
                if attempts == ATTEMPTS_MAX {
                    return Err(self.client.still_refused(attempts, refused).into());
                }
                client::pause(Duration::from_secs(retry_after.unwrap_or(0)));
            }
        }
        Ok(())
    }

    /// Sends posts in one request. Returns an answer for each, or the refusal of all.
    fn publish_batch(&self, posts: &[NumberedPost]) -> Result<Result<Vec<Answer>, Refused>, ClientError> {
        let texts: Vec<&str> = posts.iter().map(|post| post.json.as_str()).collect();
        let json = format!(r#"{{"posts":[{}]}}"#, texts.join(","));
        match self.post("/v1/posts/batch", &json, posts.iter().all(|post| post.has_id))? {
            ServerResponse::Refused(refused) => Ok(Err(refused)),
            ServerResponse::Done(status, text) => match serde_json::from_str(&text) {
                Ok(Answers { posts: answers }) if answers.len() == posts.len() => Ok(Ok(answers)),
                _ => Err(self.client.foreign(status, &text)),
            },
        }
    }

    /// Sends each post in its own request.
    fn publish_singly(
        &mut self,
        posts: &[NumberedPost],
        report: &mut Report,
        undone: &mut u64,
    ) -> Result<(), StopCause> {
        for post in posts {
            *undone = post.line;
            let answer = match self.post("/v1/posts", &post.json, post.has_id)? {
                ServerResponse::Refused(refused) => {
                    Answer { created: false, post: None, problem: Some(Problem { refused, retry_after: None }) }
                }
                ServerResponse::Done(status, text) => match serde_json::from_str(&text) {
                    Ok(published) => Answer { created: status == 201, post: Some(published), problem: None },
                    Err(_) => return Err(self.client.foreign(status, &text).into()),
                },
            };
            self.settle(post, answer, report)?;
            self.has_answers = true;
        }
        Ok(())
    }

    /// Sends one post. Without an id, a post that is sent twice is published twice.
    fn post(&self, path: &str, json: &str, is_repeatable: bool) -> Result<ServerResponse, ClientError> {
        if is_repeatable { self.client.post(path, json) } else { self.client.post_once(path, json) }
    }

    /// Hides the post if requested, and reports it. Returns the problem if the post has to be sent again.
    fn settle(&self, post: &NumberedPost, answer: Answer, report: &mut Report) -> Result<Option<Problem>, StopCause> {
        let refused = match answer {
            Answer { problem: Some(problem), .. } => {
                let may_be_done = problem.refused.code == OUTCOME_UNKNOWN && !post.has_id;
                if problem.retry_after.is_some() && !may_be_done {
                    return Ok(Some(problem));
                }
                Some(problem.refused)
            }
            Answer { post: Some(PublishedPost { id }), .. } if post.hidden => {
                match self.client.patch(&format!("/v1/posts/{id}"), r#"{"hidden":true}"#)? {
                    ServerResponse::Done(..) => None,
                    ServerResponse::Refused(refused) => Some(refused),
                }
            }
            _ => None,
        };
        match refused {
            Some(refused) => report.refuse(post.line, import::reason(refused)?),
            None if answer.created => report.created += 1,
            None => report.existing += 1,
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;
    use crate::cli::client::tests::recorded;

    const FORBIDDEN: &str = "HTTP/1.1 403 x\r\nConnection: close\r\n\r\n{\"code\":\"forbidden\",\"detail\":\"d\"}";

    fn sent(answers: &'static [&'static str], lines: &[&str]) -> (Result<(), Stopped>, [usize; 3], Receiver<String>) {
        let (client, bodies) = recorded(answers);
        let parsed = (1..).zip(lines).map(|(number, text)| InputLine { number, text: Ok((*text).to_owned()) });
        let (mut file, mut report) = (PostLines::default(), Report::begin());
        let batch = parsed.map(|line| file.parse(line, &mut report).unwrap().unwrap()).collect();
        let ended = PostSender::new(client).send(batch, &mut report);
        (ended, [report.created, report.existing, report.refused()], bodies)
    }

    #[test]
    fn only_temporarily_refused_posts_are_sent_again() {
        const PARTLY: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"posts\":[\
            {\"created\":true,\"post\":{\"id\":\"1\"}},\
            {\"problem\":{\"status\":503,\"code\":\"overloaded\",\"detail\":\"d\",\"retry_after\":0}},\
            {\"problem\":{\"status\":409,\"code\":\"post_id_taken\",\"detail\":\"d\"}},\
            {\"created\":false,\"post\":{\"id\":\"4\"}}]}";
        const REST: &str =
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"posts\":[{\"created\":true,\"post\":{\"id\":\"2\"}}]}";
        let (ended, counts, bodies) = sent(&[PARTLY, REST], &["{}", r#"{"id":"2"}"#, "[ 3 ]", "4"]);
        assert_eq!((ended.is_ok(), counts), (true, [2, 1, 1]));
        assert_eq!(
            bodies.iter().collect::<Vec<_>>(),
            [r#"{"posts":[{},{"id":"2"},[ 3 ],4]}"#, r#"{"posts":[{"id":"2"}]}"#]
        );
    }

    #[test]
    fn with_a_token_that_may_not_send_batches_posts_are_sent_one_by_one() {
        const CREATED: &str = "HTTP/1.1 201 x\r\nConnection: close\r\n\r\n{\"id\":\"7\"}";
        const HIDDEN: &str = "HTTP/1.1 200 x\r\nConnection: close\r\n\r\n{\"id\":\"7\"}";
        let (ended, counts, bodies) =
            sent(&[FORBIDDEN, CREATED, HIDDEN, HIDDEN, HIDDEN], &["1", r#"{"hidden":true}"#, "3"]);
        assert_eq!((ended.is_ok(), counts), (true, [1, 2, 0]));
        assert_eq!(bodies.iter().skip(1).collect::<Vec<_>>(), ["1", "{}", r#"{"hidden":true}"#, "3"]);
        let (ended, counts, bodies) = sent(&[FORBIDDEN, FORBIDDEN], &["1", "2"]);
        assert!(matches!(ended, Err(Stopped { cause: StopCause::Refused(Refused { status: 403, .. }), .. })));
        assert_eq!((counts, bodies.iter().count()), ([0; 3], 2), "every other post would be refused as well");
    }

    #[test]
    fn an_import_stops_at_a_post_without_id_whose_outcome_is_unknown() {
        const UNKNOWN: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"posts\":[\
            {\"created\":true,\"post\":{\"id\":\"1\"}},\
            {\"problem\":{\"status\":503,\"code\":\"outcome_unknown\",\"detail\":\"d\",\"retry_after\":0}}]}";
        const CUT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 90\r\nConnection: close\r\n\r\n{";
        let (ended, counts, _) = sent(&[UNKNOWN], &[r#"{"id":"1"}"#, "{}"]);
        let stopped = ended.unwrap_err();
        assert!(matches!(&stopped.cause, StopCause::Refused(refused) if refused.code == OUTCOME_UNKNOWN), "{stopped}");
        assert!(stopped.place.starts_with("; line 2 is the first line that is not imported"), "{stopped}");
        assert_eq!(counts, [1, 0, 0]);
        for (lines, is_unknown) in [([r#"{"id":"1"}"#, "{}"], true), ([r#"{"id":"1"}"#, r#"{"id":"2"}"#], false)] {
            let Err(Stopped { cause: StopCause::NoAnswer(cause), .. }) = sent(&[CUT], &lines).0 else {
                panic!("{lines:?} has no answer")
            };
            assert_eq!(matches!(cause, ClientError::OutcomeUnknown { .. }), is_unknown, "{lines:?}");
        }
    }

    #[test]
    fn a_line_that_is_not_json_is_refused_before_its_batch_is_sent() {
        let parsed = |text: &str| {
            let line = InputLine { number: 1, text: Ok(text.to_owned()) };
            PostLines { has_begun: true }.parse(line, &mut Report::begin())
        };
        for text in ["{", "{} {}", "ann,hello", r#"{"author":"a"},"#, "[{},", "\u{1}"] {
            let Err(Unusable::Line(why)) = parsed(text) else { panic!("{text:?} is sent") };
            assert!(why.starts_with("expected a post as JSON on one line"), "{text:?}: {why}");
        }
        assert!(parsed(" \t").is_ok_and(|post| post.is_none()));
        let known = |text: &str| parsed(text).ok().flatten().map(|post| (post.has_id, post.hidden));
        for (text, expected) in [
            ("{}", (false, false)),
            (r#" {"id":7,"hidden":true} "#, (true, true)),
            (r#"{"id":null,"hidden":false}"#, (false, false)),
            (r#"{"external_id":"7"}"#, (true, false)),
            (r#"{"id":"7","hidden":"no"}"#, (false, false)),
        ] {
            assert_eq!(known(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn the_hidden_field_is_removed_and_the_rest_stays_as_written() {
        let json = r#"{"hidden": true, "author":"a","body":{ "n": 1.50, "hidden":true }}"#;
        assert_eq!(without_hidden(json).unwrap(), r#"{"author":"a","body":{ "n": 1.50, "hidden":true }}"#);
    }
}
