//! Tidewire as a design, over HTTP, over the Redis protocol and in process.
//!
//! Responsible for:
//! - its settings in a comparison: the defaults, except where the other designs have the same setting.

pub mod connection;
pub mod http;
pub mod in_process;
mod page;
pub mod resp;

use crate::operation::User;

/// Returns true if the answer is a refusal that may succeed on a retry. Other answers with status 503 are permanent.
pub fn is_refusal(status: u16, body: &[u8]) -> bool {
    status == 429 || (status == 503 && memchr::memmem::find(body, br#""code":"overloaded""#).is_some())
}

/// The settings of Tidewire in a comparison.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of posts in an inbox.
    pub inbox_posts: usize,
    /// Followers above which an author's posts are pulled. `None`: all are pushed, as by the other designs.
    pub celebrity_followers: Option<u64>,
    /// Maximum number of sources that a reader may follow. `None`: the default.
    pub following_max: Option<usize>,
    /// Further flags of the server, each with its value, such as `--live-max 40000`.
    pub more_flags: Vec<String>,
}

impl Settings {
    fn describe(&self) -> Vec<String> {
        let celebrity = self.celebrity_followers.map_or("off".to_owned(), |followers| followers.to_string());
        let mut lines = vec![
            format!("Tidewire {}", env!("CARGO_PKG_VERSION")),
            format!("--inbox-posts {}", self.inbox_posts),
            format!("--celebrity-followers {celebrity}"),
            "--durability everysec".to_owned(),
        ];
        lines.extend(self.following_max.map(|most| format!("--following-max {most}")));
        lines.extend_from_slice(&self.more_flags);
        lines
    }
}

/// Returns the user id for a user number.
pub(crate) fn name(user: User) -> String {
    format!("u{user}")
}
