//! The documentation of preference operations.

use serde_json::json;

use crate::http::handlers::preferences::Mark;
use crate::http::openapi::documentation::{Documentation, documented};
use crate::http::openapi::groups::Documented;
use crate::http::openapi::schemas::{feed_cursor, rules, source_list};
use crate::http::parsed::Parsed;
use tidewire::feed::cursor;
use tidewire::feed::rules::RulesPatch;
use tidewire::limits::{LISTS_MAX, REQUEST_BYTES_MAX, UNREAD_MAX};

pub(super) static DOCUMENTATION: Documented = &[
    ("list_mutes", list_mutes),
    ("mute", mute),
    ("unmute", unmute),
    ("list_blocks", list_blocks),
    ("block", block),
    ("unblock", unblock),
    ("read_rules", read_rules),
    ("change_rules", change_rules),
    ("read_marker", read_marker),
    ("mark", mark),
    ("list_lists", list_lists),
    ("delete_list", delete_list),
    ("list_members", list_members),
    ("add_member", add_member),
    ("remove_member", remove_member),
];

fn list_mutes() -> Documentation {
    documented("List the sources that a reader mutes").listed().answers(
        200,
        "A page of the list.",
        "SourceList",
        &source_list(),
    )
}

fn list_blocks() -> Documentation {
    documented("List the sources that a reader blocks").listed().answers(
        200,
        "A page of the list.",
        "SourceList",
        &source_list(),
    )
}

fn mute() -> Documentation {
    documented("Mute a source")
        .description("Hides all posts of the source, and all reposts of them.")
        .waits()
        .takes_nothing()
        .puts()
        .brings_sources()
        .refuses(422, &["not_a_user", "self_mute", "too_many"])
}

fn block() -> Documentation {
    documented("Block a source")
        .description("Hides posts like a mute. Also removes the edges between both users, and refuses new ones.")
        .waits()
        .takes_nothing()
        .puts()
        .brings_sources()
        .refuses(422, &["not_a_user", "self_block", "too_many"])
}

fn unmute() -> Documentation {
    documented("Unmute a source").waits().deletes().refuses(422, &["not_a_user", "self_mute"])
}

fn unblock() -> Documentation {
    documented("Unblock a source").waits().deletes().refuses(422, &["not_a_user", "self_block"])
}

fn read_rules() -> Documentation {
    documented("Read a reader's rules").answers(200, "The rules.", "Rules", &rules())
}

fn change_rules() -> Documentation {
    let mut changed = rules();
    changed["per_source_max"] = json!(3);
    documented("Change a reader's rules")
        .description("Omitted rules stay unchanged.")
        .waits()
        .takes::<Parsed<RulesPatch>>(REQUEST_BYTES_MAX, &json!({"per_source_max": 3}))
        .answers(200, "All rules after the change.", "Rules", &changed)
        .refuses(422, &["not_a_user"])
}

fn read_marker() -> Documentation {
    let marker = json!({"cursor": null, "unread": UNREAD_MAX, "capped": true, "complete": true});
    documented("Read the read marker")
        .answers(200, "The marker, and the number of unread entries.", "Marker", &marker)
        .asks_reader()
}

fn mark() -> Documentation {
    let marker = json!({"cursor": feed_cursor(), "unread": 0, "capped": false, "complete": true});
    documented("Set the read marker")
        .waits()
        .takes::<Mark>(REQUEST_BYTES_MAX, &json!({"cursor": feed_cursor()}))
        .answers(200, "The marker, and the number of unread entries.", "Marker", &marker)
        .refuses(422, &["not_a_user"])
        .asks_reader()
}

fn list_lists() -> Documentation {
    let lists = json!({"items": [{"name": "near", "members": 2}], "next": null});
    documented("List a reader's lists").description("Sorted by name.").goes_on(&cursor::encode_name("far")).answers(
        200,
        "A page of the list.",
        "ListOfLists",
        &lists,
    )
}

fn delete_list() -> Documentation {
    documented("Delete a list").waits().deletes().refuses(422, &["not_a_user"])
}

fn list_members() -> Documentation {
    documented("List the members of a list")
        .description("Newest first.")
        .listed()
        .answers(200, "A page of the list.", "SourceList", &source_list())
        .refuses(404, &["unknown_list"])
}

fn add_member() -> Documentation {
    documented("Add a source to a list")
        .description(format!("The first member creates the list. A reader can have {LISTS_MAX} lists."))
        .waits()
        .takes_nothing()
        .puts()
        .brings_sources()
        .refuses(422, &["not_a_user", "too_many"])
}

fn remove_member() -> Documentation {
    documented("Remove a source from a list").waits().deletes().refuses(422, &["not_a_user"])
}
