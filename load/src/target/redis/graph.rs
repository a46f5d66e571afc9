//! What the fan-out worker keeps in its own memory: who follows whom, who is active, who has published.
//!
//! Responsible for:
//! - answering to whom a post is pushed without asking the server.
//!
//! Not responsible for:
//! - keeping that durably: the same edges are sets in Redis.

use crate::operation::User;

/// Users by number; those that were never heard of follow nobody.
#[derive(Debug, Default)]
pub(super) struct Graph {
    users: Vec<Entry>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    followers: Vec<User>,
    following: Vec<User>,
    is_active: bool,
    has_published: bool,
}

impl Graph {
    /// Adds an edge; nothing changes if it is there, or if it leads to the user it comes from.
    pub(super) fn follow(&mut self, follower: User, source: User) {
        if follower == source || self.entry(follower).following.contains(&source) {
            return;
        }
        self.entry(follower).following.push(source);
        self.entry(source).followers.push(follower);
    }

    /// Adds many edges.
    pub(super) fn follow_all(&mut self, edges: &[(User, User)]) {
        for (follower, source) in edges {
            self.follow(*follower, *source);
        }
    }

    /// Removes an edge; nothing changes if there is none.
    pub(super) fn unfollow(&mut self, follower: User, source: User) {
        remove(&mut self.entry(follower).following, source);
        remove(&mut self.entry(source).followers, follower);
    }

    /// Makes a reader active; false if that it was already.
    pub(super) fn activate(&mut self, reader: User) -> bool {
        !std::mem::replace(&mut self.entry(reader).is_active, true)
    }

    /// Whether posts are pushed to a reader.
    pub(super) fn is_active(&self, reader: User) -> bool {
        self.get(reader).is_some_and(|entry| entry.is_active)
    }

    /// There is something to find in this author's outbox from now on.
    pub(super) fn has_published(&mut self, author: User) {
        self.entry(author).has_published = true;
    }

    /// Those whose outboxes make a reader's feed: whom the reader follows, and the reader. Without those who have never
    /// published.
    pub(super) fn outboxes(&self, reader: User) -> Vec<User> {
        let following = self.get(reader).map_or(&[][..], |entry| &entry.following);
        let has_published = |user: &User| self.get(*user).is_some_and(|entry| entry.has_published);
        following.iter().copied().chain([reader]).filter(has_published).collect()
    }

    /// Those to whom an author's post is pushed, but for the author.
    pub(super) fn active_followers(&self, author: User) -> Vec<User> {
        let followers = self.get(author).map_or(&[][..], |entry| &entry.followers);
        followers.iter().copied().filter(|follower| self.is_active(*follower)).collect()
    }

    fn get(&self, user: User) -> Option<&Entry> {
        self.users.get(user as usize)
    }

    fn entry(&mut self, user: User) -> &mut Entry {
        let place = user as usize;
        if self.users.len() <= place {
            self.users.resize(place + 1, Entry::default());
        }
        &mut self.users[place]
    }
}

fn remove(users: &mut Vec<User>, user: User) {
    if let Some(place) = users.iter().position(|other| *other == user) {
        users.swap_remove(place);
    }
}
