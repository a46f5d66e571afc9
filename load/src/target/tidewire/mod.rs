//! Tidewire itself, over HTTP and in process.
//!
//! Responsible for:
//! - how it is set for a comparison: as it comes, but for what the rivals are set to as well.

pub mod connection;
pub mod http;
pub mod in_process;
mod page;

use crate::operation::User;

/// Whether an answer refuses what may succeed a little later. Of what else is answered with 503 nothing comes by trying again.
pub fn is_refusal(status: u16, body: &[u8]) -> bool {
    status == 429 || (status == 503 && memchr::memmem::find(body, br#""code":"overloaded""#).is_some())
}

/// What a comparison sets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Posts that an inbox holds.
    pub inbox_posts: usize,
    /// Followers above which an author's posts are pulled; none: all are pushed, as by the rivals.
    pub celebrity_followers: Option<u64>,
    /// Sources that a reader may follow; none: as many as by default.
    pub following_max: Option<usize>,
    /// Flags of the server beside these, each with its value: `--live-max 40000`.
    pub more_flags: Vec<String>,
}

impl Settings {
    fn told(&self) -> Vec<String> {
        let celebrity = self.celebrity_followers.map_or("off".to_owned(), |followers| followers.to_string());
        let mut told = vec![
            format!("Tidewire {}", env!("CARGO_PKG_VERSION")),
            format!("--inbox-posts {}", self.inbox_posts),
            format!("--celebrity-followers {celebrity}"),
            "--durability everysec".to_owned(),
        ];
        told.extend(self.following_max.map(|most| format!("--following-max {most}")));
        told.extend_from_slice(&self.more_flags);
        told
    }
}

/// What a user is called.
pub(crate) fn name(user: User) -> String {
    format!("u{user}")
}
