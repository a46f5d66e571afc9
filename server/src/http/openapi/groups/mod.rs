//! The documentation of all operations by group, in display order.

mod changes;
mod diagnostics;
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
    pub(super) description: &'static str,
    pub(super) operations: Documented,
}

/// Functions that return the documentation of operations, by the names of the operations.
type Documented = &'static [(&'static str, fn() -> Documentation)];

/// All groups, in display order.
pub(super) static GROUPS: &[Group] = &[
    Group { name: "Posts", description: "What is published.", operations: posts::DOCUMENTATION },
    Group { name: "Following", description: "Who follows whom.", operations: follows::DOCUMENTATION },
    Group { name: "Feeds", description: "What readers see, newest first.", operations: feeds::DOCUMENTATION },
    Group { name: "Live", description: "What changes in a feed, as it does.", operations: live::DOCUMENTATION },
    Group {
        name: "Changes",
        description: "All that is accepted, in order, for other systems.",
        operations: changes::DOCUMENTATION,
    },
    Group {
        name: "Personal",
        description: "What readers decide: mutes, blocks, rules, marks and lists.",
        operations: personal::DOCUMENTATION,
    },
    Group {
        name: "Users",
        description: "What who runs the server does about users.",
        operations: users::DOCUMENTATION,
    },
    Group { name: "Server", description: "For who runs it.", operations: server::DOCUMENTATION },
    Group {
        name: "Diagnostics",
        description: "What happens on the node that answers, for its operators and the console.",
        operations: diagnostics::DOCUMENTATION,
    },
];

impl Documentation {
    /// Adds `?wait=delivered`, a parameter of all writes.
    fn waits(self) -> Self {
        let description =
            "Answer only once the post has reached every inbox it goes to; without meaning for what is no new post.";
        self.query("wait", description, json!({"enum": ["delivered"]}))
    }

    /// Adds `limit`, a parameter of all lists.
    fn limited(self) -> Self {
        self.query("limit", "How many items at most.", schemas::limit())
    }

    /// Adds `limit` and `cursor`, for lists that are not feeds.
    fn listed(self) -> Self {
        self.goes_on(&cursor::encode_edge(PUBLISHED_AT))
    }

    /// Adds `limit` and `cursor`; `example` is a cursor of another kind.
    fn goes_on(self, example: &str) -> Self {
        self.limited().query("cursor", "The `next` of the page before.", schema("Cursor")).for_instance(&json!(example))
    }

    /// Adds a query parameter that is `true` or `false`.
    fn truth(self, name: &str, description: &str) -> Self {
        self.query(name, description, json!({"type": "boolean", "default": false}))
    }

    /// Adds the responses to a `PUT` that creates an item unless it exists.
    fn puts(self) -> Self {
        let example = |created: bool| json!({"created": created});
        self.answers(201, "It is new.", "Put", &example(true)).answers(
            200,
            "It was so already.",
            "Put",
            &example(false),
        )
    }

    /// Adds the response to a `DELETE`. It is the same if there was nothing to delete.
    fn deletes(self) -> Self {
        self.answers_nothing(204, "It is gone, or never was there.")
    }

    /// Adds the header and the response of operations whose answers have an entity tag.
    fn tagged(self) -> Self {
        self.header(
            "If-None-Match",
            "The `ETag` of the answer that the client has: then 304, if that has not changed.",
            json!({"type": "string"}),
        )
        .answers_nothing(304, "What the client has has not changed.")
    }

    /// Adds the refusals of operations that may read a page from the archive.
    fn reads_archive(self) -> Self {
        self.refuses(500, &["archive_failed"]).refuses(503, &["archive_unavailable"])
    }

    /// Adds the refusals of operations that call a reader's actor.
    fn asks_reader(self) -> Self {
        self.refuses(500, &["archive_failed", "reader_crashed"]).refuses(503, &["archive_unavailable", "quarantined"])
    }

    /// Adds the refusals of operations that may name an unknown source.
    fn brings_sources(self) -> Self {
        self.refuses(429, &["too_many_sources"])
    }

    /// Adds an optional body: an object without fields, because some clients send one instead of no body.
    fn takes_nothing(self) -> Self {
        self.may_take("Nothing", REQUEST_BYTES_MAX, &Value::Object(serde_json::Map::new()))
    }
}
