//! What is documentation of each operation, by group, in the order in which they are read.

mod feeds;
mod follows;
mod live;
mod personal;
mod posts;
mod server;
mod users;

use serde_json::{Value, json};

use crate::http::openapi::documentation::Documentation;
use crate::http::openapi::schemas::{self, PUBLISHED_AT, schema};
use tidewire::feed::cursor;
use tidewire::limits::REQUEST_BYTES_MAX;

/// A group of operations.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) says: &'static str,
    pub(super) operations: Documented,
}

/// What is documentation of operations, by the names that the table of operations has.
type Documented = &'static [(&'static str, fn() -> Documentation)];

/// All groups.
pub(super) static GROUPS: &[Group] = &[
    Group { name: "Posts", says: "What is published.", operations: posts::TOLD },
    Group { name: "Following", says: "Who follows whom.", operations: follows::TOLD },
    Group { name: "Feeds", says: "What readers see, newest first.", operations: feeds::TOLD },
    Group { name: "Live", says: "What changes in a feed, as it does.", operations: live::TOLD },
    Group {
        name: "Personal",
        says: "What readers decide: mutes, blocks, rules, marks and lists.",
        operations: personal::TOLD,
    },
    Group { name: "Users", says: "What who runs the server does about users.", operations: users::TOLD },
    Group { name: "Server", says: "For who runs it.", operations: server::TOLD },
];

impl Documentation {
    /// `?wait=delivered`, as all writes have.
    fn waits(self) -> Self {
        let says =
            "Answer only once the post has reached every inbox it goes to; without meaning for what is no new post.";
        self.query("wait", says, json!({"enum": ["delivered"]}))
    }

    /// `limit`, as all lists have.
    fn limited(self) -> Self {
        self.query("limit", "How many items at most.", schemas::limit())
    }

    /// `limit` and `cursor`, as lists have that are not feeds.
    fn listed(self) -> Self {
        self.goes_on(&cursor::encode_edge(PUBLISHED_AT))
    }

    /// The same, with cursors of another kind.
    fn goes_on(self, example: &str) -> Self {
        self.limited().query("cursor", "The `next` of the page before.", schema("Cursor")).for_instance(&json!(example))
    }

    /// A query parameter that is `true` or `false`.
    fn truth(self, name: &str, says: &str) -> Self {
        self.query(name, says, json!({"type": "boolean", "default": false}))
    }

    /// What is answered to a `PUT` of something that may be there.
    fn puts(self) -> Self {
        let example = |created: bool| json!({"created": created});
        self.answers(201, "It is new.", "Put", &example(true)).answers(
            200,
            "It was so already.",
            "Put",
            &example(false),
        )
    }

    /// What is answered to a `DELETE`, whether there was anything or not.
    fn deletes(self) -> Self {
        self.answers_nothing(204, "It is gone, or never was there.")
    }

    /// What may go wrong where a page may be read from the archive.
    fn reads_archive(self) -> Self {
        self.refuses(500, &["archive_failed"])
    }

    /// What may go wrong where a reader's own actor is asked.
    fn asks_reader(self) -> Self {
        self.refuses(500, &["archive_failed", "reader_crashed"]).refuses(503, &["quarantined"])
    }

    /// What may go wrong where a source is named that nobody knows.
    fn brings_sources(self) -> Self {
        self.refuses(429, &["too_many_sources"])
    }

    /// Takes an object without fields, since some clients send that in place of no body.
    fn takes_nothing(self) -> Self {
        self.may_take("Nothing", REQUEST_BYTES_MAX, &Value::Object(serde_json::Map::new()))
    }
}
