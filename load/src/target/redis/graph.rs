//! The in-memory state of the fan-out worker: follow edges, active readers, authors with posts.

use crate::operation::User;

/// The follow graph by user number. Unknown users have no edges.
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
    /// Adds an edge. Nothing changes if it exists or leads from a user to itself.
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

    /// Removes an edge. Nothing changes if it does not exist.
    pub(super) fn unfollow(&mut self, follower: User, source: User) {
        remove(&mut self.entry(follower).following, source);
        remove(&mut self.entry(source).followers, follower);
    }

    /// Activates a reader. Returns false if it was active before.
    pub(super) fn activate(&mut self, reader: User) -> bool {
        !std::mem::replace(&mut self.entry(reader).is_active, true)
    }

    /// Returns true if posts are pushed to this reader.
    pub(super) fn is_active(&self, reader: User) -> bool {
        self.get(reader).is_some_and(|entry| entry.is_active)
    }

    /// Records that the outbox of this author is not empty.
    pub(super) fn has_published(&mut self, author: User) {
        self.entry(author).has_published = true;
    }

    /// Returns the users whose outboxes form a reader's feed: the followed sources and the reader, without users who never published.
    pub(super) fn outboxes(&self, reader: User) -> Vec<User> {
        let following = self.get(reader).map_or(&[][..], |entry| &entry.following);
        let has_published = |user: &User| self.get(*user).is_some_and(|entry| entry.has_published);
        following.iter().copied().chain([reader]).filter(has_published).collect()
    }

    /// Returns the readers, besides the author, to whom an author's posts are pushed.
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
