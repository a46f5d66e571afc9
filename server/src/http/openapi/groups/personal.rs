//! The documentation of preference operations.

use serde_json::json;

use crate::http::openapi::documentation::{Documentation, documented};
use crate::http::openapi::groups::Documented;
use crate::http::openapi::schemas::{feed_cursor, rules, source_list};
use tidewire::feed::cursor;
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
    documented("List whom a reader mutes").listed().answers(200, "A page of the list.", "SourceList", &source_list())
}

fn list_blocks() -> Documentation {
    documented("List whom a reader blocks").listed().answers(200, "A page of the list.", "SourceList", &source_list())
}

fn mute() -> Documentation {
    documented("Mute a source")
        .description("Nothing of it shows, nor any repost of it.")
        .waits()
        .takes_nothing()
        .puts()
        .brings_sources()
        .refuses(422, &["not_a_user", "self_mute", "too_many"])
}

fn block() -> Documentation {
    documented("Block a source")
        .description("As muted; besides, the edges between both end, and new ones are refused.")
        .waits()
        .takes_nothing()
        .puts()
        .brings_sources()
        .refuses(422, &["not_a_user", "self_block", "too_many"])
}

fn unmute() -> Documentation {
    documented("Mute a source no longer").waits().deletes().refuses(422, &["not_a_user", "self_mute"])
}

fn unblock() -> Documentation {
    documented("Block a source no longer").waits().deletes().refuses(422, &["not_a_user", "self_block"])
}

fn read_rules() -> Documentation {
    documented("Read a reader's rules").answers(200, "The rules.", "Rules", &rules())
}

fn change_rules() -> Documentation {
    let mut changed = rules();
    changed["per_source_max"] = json!(3);
    documented("Change a reader's rules")
        .description("What is not named stays.")
        .waits()
        .takes("RulesPatch", REQUEST_BYTES_MAX, &json!({"per_source_max": 3}))
        .answers(200, "The rules as they are now.", "Rules", &changed)
        .refuses(422, &["not_a_user"])
}

fn read_marker() -> Documentation {
    let marker = json!({"cursor": null, "unread": UNREAD_MAX, "capped": true, "complete": true});
    documented("Read how far a reader has read")
        .answers(200, "The marker, and how much is unread.", "Marker", &marker)
        .asks_reader()
}

fn mark() -> Documentation {
    let marker = json!({"cursor": feed_cursor(), "unread": 0, "capped": false, "complete": true});
    documented("Say how far a reader has read")
        .waits()
        .takes("Mark", REQUEST_BYTES_MAX, &json!({"cursor": feed_cursor()}))
        .answers(200, "The marker, and how much is unread.", "Marker", &marker)
        .refuses(422, &["not_a_user"])
        .asks_reader()
}

fn list_lists() -> Documentation {
    let lists = json!({"items": [{"name": "near", "members": 2}], "next": null});
    documented("List a reader's lists").description("By name.").goes_on(&cursor::encode_name("far")).answers(
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
        .description("The newest first.")
        .listed()
        .answers(200, "A page of the list.", "SourceList", &source_list())
        .refuses(404, &["unknown_list"])
}

fn add_member() -> Documentation {
    documented("Put a source on a list")
        .description(format!("The list comes to be by its first member. A reader may have {LISTS_MAX}."))
        .waits()
        .takes_nothing()
        .puts()
        .brings_sources()
        .refuses(422, &["not_a_user", "too_many"])
}

fn remove_member() -> Documentation {
    documented("Take a source off a list").waits().deletes().refuses(422, &["not_a_user"])
}
