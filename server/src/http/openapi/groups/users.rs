//! The documentation of user operations for the server's owner.

use serde_json::json;

use crate::http::handlers::users::Revocation;
use crate::http::openapi::documentation::{Documentation, documented};
use crate::http::openapi::groups::Documented;
use crate::http::openapi::schemas::{PUBLISHED_AT, post, rules};
use tidewire::limits::{REQUEST_BYTES_MAX, TOKEN_CLOCK_AHEAD_MAX};

pub(super) static DOCUMENTATION: Documented = &[("revoke_tokens", revoke_tokens), ("read_user_data", read_user_data)];

fn revoke_tokens() -> Documentation {
    let at = PUBLISHED_AT.to_string();
    documented("Revoke a user's tokens")
        .description(format!(
            "The server refuses tokens without `iat`, and tokens whose `iat` is before `not_before` (`token_revoked`). It ends live \
             connections with such tokens at once. The default of `not_before` is now. An earlier instant than the current one has \
             no effect. The server refuses an instant more than {} s ahead of its clock.",
            TOKEN_CLOCK_AHEAD_MAX.as_secs()
        ))
        .may_take::<Revocation>(REQUEST_BYTES_MAX, &json!({"not_before": at}))
        .answers(200, "The revocation is durable. `not_before` is the current instant.", "Revoked", &json!({"user": "ann", "not_before": at}))
        .refuses(422, &["not_a_user"])
}

fn read_user_data() -> Documentation {
    let list = json!([{"id": "bob", "since": PUBLISHED_AT.to_string()}]);
    let data = json!({
        "user": "ann", "last_seen": PUBLISHED_AT.to_string(), "tokens_not_before": null, "rules": rules(), "marker": null, "kept": [],
        "following": list, "hidden_following": [], "followers": [], "mutes": [], "blocks": [],
        "lists": [{"name": "friends", "members": list}], "posts": [post()], "unreadable": [],
    });
    documented("Read all stored data of a user")
        .description(
            "To hand it out to the user. `kept` lists posts that stay in the feed after an unfollow, by source and time of publication; \
             `hidden_following` lists the hidden follows. `posts` has all posts, including hidden ones, newest first; `unreadable` lists \
             those that the archive cannot read. Each list is correct when it is read. If something fails meanwhile, or the user is erased, the \
             server closes the connection within the object. Not included: mutes, blocks, lists and hidden follows of others.",
        )
        .answers(200, "All stored data.", "UserData", &data)
        .refuses(404, &["unknown_source"])
        .reads_archive()
}
