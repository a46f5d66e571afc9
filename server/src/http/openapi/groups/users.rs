//! The documentation of user operations for the server's owner.

use serde_json::json;

use crate::http::openapi::documentation::{Documentation, documented};
use crate::http::openapi::groups::Documented;
use crate::http::openapi::schemas::{PUBLISHED_AT, post, rules};
use tidewire::limits::{REQUEST_BYTES_MAX, TOKEN_CLOCK_AHEAD_MAX};

pub(super) static DOCUMENTATION: Documented = &[("revoke_tokens", revoke_tokens), ("read_user_data", read_user_data)];

fn revoke_tokens() -> Documentation {
    let at = PUBLISHED_AT.to_string();
    documented("Revoke a user's tokens")
        .description(format!(
            "Tokens whose `iat` is before `not_before` are refused from now on (`token_revoked`), and so are those without \
             `iat`; live connections that came by them end at once. Without a body that is now. An earlier instant than the one \
             that counts changes nothing, and one more than {} s ahead of the server's clock is refused.",
            TOKEN_CLOCK_AHEAD_MAX.as_secs()
        ))
        .may_take("Revoke", REQUEST_BYTES_MAX, &json!({"not_before": at}))
        .answers(200, "It is durable. The instant that counts.", "Revoked", &json!({"user": "ann", "not_before": at}))
        .refuses(422, &["not_a_user"])
}

fn read_user_data() -> Documentation {
    let list = json!([{"id": "bob", "since": PUBLISHED_AT.to_string()}]);
    let data = json!({
        "user": "ann", "last_seen": PUBLISHED_AT.to_string(), "tokens_not_before": null, "rules": rules(), "marker": null, "kept": [],
        "following": list, "hidden_following": [], "followers": [], "mutes": [], "blocks": [],
        "lists": [{"name": "friends", "members": list}], "posts": [post()], "unreadable": [],
    });
    documented("Read all that is stored about a user")
        .description(
            "To hand it out to the user. `kept` are posts that stay in the feed after an unfollow, by source and time of publication; \
             `hidden_following` are the sources followed virtually. `posts` are all posts, hidden ones too, the newest first; `unreadable` are \
             those that the archive cannot read. Each list is true when it is read. If something fails meanwhile, or the user is erased, the \
             connection is closed within the object. What others have decided about the user is theirs: mutes, blocks, lists, virtual follows.",
        )
        .answers(200, "All of it.", "UserData", &data)
        .refuses(404, &["unknown_source"])
        .reads_archive()
}
