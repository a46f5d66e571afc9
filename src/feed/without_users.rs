//! Removes the data of erased users from events, for consumers of changes that read the events later.

use std::collections::BTreeSet;

use crate::clock::UnixMicros;
use crate::feed::event::{ChangedPost, Event, NewEdge, OldEdge};
use crate::id::SourceId;

impl Event {
    /// Returns the event without the data of these users, or `None` if nothing of it is left. The start of an erasure still names its user,
    /// because consumers need it to delete the user's data.
    ///
    /// An edit does not name the author, so its body may be left; the caller knows which posts still exist. The edges of one request get
    /// their instants by their order. After a removed edge, except the first one, they therefore begin a microsecond earlier.
    pub fn without_users(mut self, users: &BTreeSet<SourceId>) -> Option<Self> {
        let is_one = |id: &SourceId| users.contains(id);
        let is_new_edge_left = |edge: &NewEdge| !is_one(&edge.follower) && !is_one(&edge.source);
        let is_old_edge_left = |edge: &OldEdge| !is_one(&edge.follower) && !is_one(&edge.source);
        let is_left = match &mut self {
            Self::Published { draft, .. } => {
                draft.answered.take_if(|author| is_one(author));
                draft.earlier_reposts.iter_mut().for_each(|repost| repost.sources.retain(|source| !is_one(source)));
                !is_one(&draft.author)
            }
            Self::Edited { post, .. } | Self::Deleted { post, .. } => {
                post.take_if(|post: &mut Box<ChangedPost>| post.sources.iter().any(is_one));
                true
            }
            Self::Followed { edges, since } => {
                retain_edges(edges, since, is_new_edge_left);
                !edges.is_empty()
            }
            Self::FollowsChanged { follows, since, unfollows } => {
                retain_edges(follows, since, is_new_edge_left);
                unfollows.retain(is_old_edge_left);
                !follows.is_empty() || !unfollows.is_empty()
            }
            Self::Unfollowed { follower, source, .. } => !is_one(follower) && !is_one(source),
            Self::MuteChanged { reader, source, .. } | Self::ListMemberChanged { reader, source, .. } => {
                !is_one(reader) && !is_one(source)
            }
            Self::RulesChanged { reader, .. } | Self::MarkerMoved { reader, .. } | Self::ListDeleted { reader, .. } => {
                !is_one(reader)
            }
            Self::Revoked { user, .. } => !is_one(user),
            Self::Erased { .. }
            | Self::ErasureScrubbed { .. }
            | Self::ErasureEnded { .. }
            | Self::ClockJumped { .. } => true,
        };
        is_left.then_some(self)
    }
}

fn retain_edges(edges: &mut Vec<NewEdge>, since: &mut UnixMicros, is_left: impl Fn(&NewEdge) -> bool) {
    if let Some(removed_first) = edges.iter().position(&is_left) {
        since.0 = since.0.saturating_add(removed_first as i64);
    }
    edges.retain(is_left);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::event::MuteOrBlock;
    use crate::feed::position::Position;
    use crate::feed::post::{Body, Draft, EarlierRepost};
    use crate::feed::rules::Rules;
    use crate::id::PostId;
    use crate::storage::frame::pack;

    const AT: UnixMicros = UnixMicros(7);

    fn id(text: &str) -> SourceId {
        SourceId::new(text).unwrap()
    }

    fn edges(named: &[(&str, &str)]) -> Vec<NewEdge> {
        named.iter().map(|(follower, source)| NewEdge::new(id(follower), id(source))).collect()
    }

    fn old_edges(named: &[(&str, &str)]) -> Vec<OldEdge> {
        named.iter().map(|(follower, source)| OldEdge { follower: id(follower), source: id(source) }).collect()
    }

    fn published(author: &str, answered: Option<&str>, reposters: &[&str]) -> Event {
        let position = Position { published_at: AT, id: PostId(1) };
        let earlier_reposts =
            EarlierRepost { at: position, sources: reposters.iter().map(|by| id(by)).collect(), hidden: false };
        let draft = Draft {
            answered: answered.map(id),
            earlier_reposts: vec![earlier_reposts],
            tags: vec![SourceId::tag("zoe").unwrap()],
            ..Draft::new(id(author), Body::new("1").unwrap())
        };
        Event::Published { position, draft, accepted_at: AT }
    }

    fn changed(sources: &[&str]) -> Option<Box<ChangedPost>> {
        let at = Position { published_at: AT, id: PostId(1) };
        Some(Box::new(ChangedPost {
            at,
            sources: sources.iter().map(|by| id(by)).collect(),
            repost_of: None,
            hidden: false,
        }))
    }

    /// Events that name zoe, each with the expected remainder without her.
    fn naming_zoe() -> Vec<(Event, Option<Event>)> {
        let rules = Rules::default;
        let near = || "near".parse().unwrap();
        let marked = Position { published_at: AT, id: PostId(1) };
        let followed = |named| Event::Followed { edges: edges(named), since: AT };
        let follows_changed = |follows, unfollows| Event::FollowsChanged {
            follows: edges(follows),
            since: AT,
            unfollows: old_edges(unfollows),
        };
        let deleted = |post| Event::Deleted { id: PostId(1), repost_of: Some(PostId(2)), post };
        let edited = |post| Event::Edited { id: PostId(1), body: None, hidden: Some(true), at: AT, post };
        let unfollowed =
            |follower, source| Event::Unfollowed { follower: id(follower), source: id(source), keep_until: None };
        let silenced = |reader, source| Event::MuteChanged {
            reader: id(reader),
            source: id(source),
            how: MuteOrBlock::Mute,
            since: None,
        };
        let listed = |reader, source| Event::ListMemberChanged {
            reader: id(reader),
            list: near(),
            source: id(source),
            since: None,
        };
        vec![
            (published("zoe", None, &["ann"]), None),
            (published("ann", Some("zoe"), &["zoe", "bob"]), Some(published("ann", None, &["bob"]))),
            (deleted(changed(&["zoe"])), Some(deleted(None))),
            (edited(changed(&["zoe"])), Some(edited(None))),
            (followed(&[("zoe", "ann"), ("ann", "zoe")]), None),
            // The remaining edge has the same instant as before.
            (
                followed(&[("zoe", "ann"), ("ann", "zoe"), ("ann", "bob")]),
                Some(Event::Followed { edges: edges(&[("ann", "bob")]), since: UnixMicros(AT.0 + 2) }),
            ),
            (
                followed(&[("ann", "bob"), ("ann", "zoe"), ("zoe", "ann"), ("ann", "cas")]),
                Some(followed(&[("ann", "bob"), ("ann", "cas")])),
            ),
            (follows_changed(&[("ann", "zoe")], &[("zoe", "bob")]), None),
            (
                follows_changed(&[("ann", "zoe")], &[("ann", "bob"), ("ann", "zoe")]),
                Some(follows_changed(&[], &[("ann", "bob")])),
            ),
            (unfollowed("zoe", "ann"), None),
            (unfollowed("ann", "zoe"), None),
            (silenced("zoe", "ann"), None),
            (silenced("ann", "zoe"), None),
            (listed("zoe", "ann"), None),
            (listed("ann", "zoe"), None),
            (Event::RulesChanged { reader: id("zoe"), rules: rules() }, None),
            (Event::MarkerMoved { reader: id("zoe"), at: marked, seen: None }, None),
            (Event::ListDeleted { reader: id("zoe"), list: near() }, None),
            (Event::Revoked { user: id("zoe"), not_before: AT, forget_before: None }, None),
        ]
    }

    fn names(event: &Event, user: &str) -> bool {
        let mut bytes = Vec::new();
        pack(event, &mut bytes);
        // A text in MessagePack: its length, then its bytes. So `tag:zoe` does not match.
        let text = [&[0xa0 + user.len() as u8], user.as_bytes()].concat();
        bytes.windows(text.len()).any(|window| window == text)
    }

    #[test]
    fn each_event_keeps_only_its_data_of_other_users() {
        let (zoe, yan) = (BTreeSet::from([id("zoe")]), BTreeSet::from([id("yan")]));
        let kinds: BTreeSet<_> = naming_zoe().iter().map(|(event, _)| event.stored_name()).collect();
        assert_eq!(kinds.len(), 12, "all but those of erasures and of the clock");
        for (event, expected) in naming_zoe() {
            assert!(names(&event, "zoe"), "{event:?}");
            assert!(expected.iter().all(|left| !names(left, "zoe")), "{expected:?}");
            assert_eq!(event.clone().without_users(&zoe), expected);
            assert_eq!(event.clone().without_users(&yan), Some(event));
        }
        let erased = Event::Erased { user: id("zoe"), at: AT };
        assert_eq!(erased.clone().without_users(&zoe), Some(erased), "consumers learn of it");
    }
}
