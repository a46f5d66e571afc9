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

use serde_json::json;

use crate::http::openapi::documentation::Documentation;
use crate::http::openapi::schemas::{self, PUBLISHED_AT, schema};
use crate::http::request::Nothing;
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
    Group { name: "Posts", description: "Publish, read, edit and delete posts.", operations: posts::DOCUMENTATION },
    Group {
        name: "Following",
        description: "Follows of users, tags, topics and replies.",
        operations: follows::DOCUMENTATION,
    },
    Group { name: "Feeds", description: "Pages of posts, newest first.", operations: feeds::DOCUMENTATION },
    Group { name: "Live", description: "Changes of a feed, as they happen.", operations: live::DOCUMENTATION },
    Group {
        name: "Changes",
        description: "All accepted events, in order, for other systems.",
        operations: changes::DOCUMENTATION,
    },
    Group {
        name: "Personal",
        description: "Settings of readers: mutes, blocks, rules, markers and lists.",
        operations: personal::DOCUMENTATION,
    },
    Group { name: "Users", description: "Operations on users, for operators.", operations: users::DOCUMENTATION },
    Group {
        name: "Server",
        description: "Operations on the server, for operators.",
        operations: server::DOCUMENTATION,
    },
    Group {
        name: "Diagnostics",
        description: "Figures of the answering node, for operators and the console.",
        operations: diagnostics::DOCUMENTATION,
    },
];

impl Documentation {
    /// Adds `?wait=delivered`, a parameter of all writes.
    fn waits(self) -> Self {
        let description = "Answer only after the post is in the inbox of every active follower. No effect unless the request publishes a post.";
        self.query("wait", description, json!({"enum": ["delivered"]}))
    }

    /// Adds `limit`, a parameter of all lists.
    fn limited(self) -> Self {
        self.query("limit", "Maximum number of items.", schemas::limit())
    }

    /// Adds `limit` and `cursor`, for lists that are not feeds.
    fn listed(self) -> Self {
        self.goes_on(&cursor::encode_edge(PUBLISHED_AT))
    }

    /// Adds `limit` and `cursor`; `example` is a cursor of another kind.
    fn goes_on(self, example: &str) -> Self {
        self.limited()
            .query("cursor", "The `next` of the previous page.", schema("Cursor"))
            .for_instance(&json!(example))
    }

    /// Adds a query parameter that is `true` or `false`.
    fn truth(self, name: &str, description: &str) -> Self {
        self.query(name, description, json!({"type": "boolean", "default": false}))
    }

    /// Adds the responses to a `PUT` that creates an item unless it exists.
    fn puts(self) -> Self {
        let example = |created: bool| json!({"created": created});
        self.answers(201, "Created.", "Put", &example(true)).answers(200, "It already existed.", "Put", &example(false))
    }

    /// Adds the response to a `DELETE`. It is the same if there was nothing to delete.
    fn deletes(self) -> Self {
        self.answers_nothing(204, "It is deleted, or never existed.")
    }

    /// Adds the header and the response of operations whose answers have an entity tag.
    fn tagged(self) -> Self {
        self.header(
            "If-None-Match",
            "The `ETag` of a stored response: the server answers 304 if that is unchanged.",
            json!({"type": "string"}),
        )
        .answers_nothing(304, "The response is unchanged.")
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
        self.may_take::<Nothing>(REQUEST_BYTES_MAX, &json!({}))
    }
}
