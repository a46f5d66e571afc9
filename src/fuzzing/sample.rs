//! Test data of the fuzz targets: a small event history, a recovery from files, and all records of a state.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::feed::celebrity::CelebrityPolicy;
use crate::feed::event::{Event, MuteOrBlock, NewEdge, OldEdge};
use crate::feed::followers::Sharding;
use crate::feed::position::Position;
use crate::feed::post::{Body, Draft, EarlierRepost};
use crate::feed::rules::{Replies, Rules};
use crate::id::{ExternalId, PostId, SourceId};
use crate::recovery::{Recovered, Recovery, RecoveryProgress};
use crate::state::records::RecordTraversal;
use crate::state::world::{StateMachine, World};
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::files::memory::MemoryFiles;
use crate::storage::frame::{self, FrameKind, pack};
use crate::storage::segment;
use crate::storage::sequence::Sequence;

fn source(id: &str) -> SourceId {
    SourceId::new(id).expect("these are ids")
}

fn published(id: u64, author: &str) -> Event {
    let position = Position { published_at: UnixMicros(id as i64 * 1_000), id: PostId(id) };
    let body = Body::new(&format!("{{\"text\":\"post {id}\"}}")).expect("this is JSON");
    let earlier = |id| EarlierRepost {
        at: Position { published_at: UnixMicros(id as i64 * 1_000), id: PostId(id) },
        sources: vec![source("bob"), source("tag:tea")],
        hidden: id == 4,
    };
    let draft = Draft {
        external_id: id.is_multiple_of(2).then(|| ExternalId::new("urn:isbn:0451450523").expect("it is one")),
        tags: vec![source("tag:tea")],
        repost_of: id.is_multiple_of(3).then(|| PostId(id - 1)),
        reply_to: id.is_multiple_of(4).then(|| PostId(id - 3)),
        earlier_reposts: id.is_multiple_of(3).then(|| earlier(id - 2)).into_iter().collect(),
        ..Draft::new(source(author), body)
    };
    Event::Published { position, draft, accepted_at: position.published_at }
}

/// Returns one event of each kind, and posts between them.
pub(super) fn events() -> Vec<Event> {
    let (ann, bob, tea) = (source("ann"), source("bob"), source("tag:tea"));
    let list = || "close".parse().expect("this is a name");
    let since = Some(UnixMicros(9_000));
    let edges = vec![
        NewEdge::new(ann.clone(), bob.clone()),
        NewEdge { hidden: true, ..NewEdge::new(ann.clone(), tea.clone()) },
    ];
    vec![
        Event::Followed { edges, since: UnixMicros(500) },
        published(1, "bob"),
        published(2, "cas"),
        published(3, "bob"),
        Event::MuteChanged { reader: ann.clone(), source: source("cas"), how: MuteOrBlock::Mute, since },
        Event::RulesChanged { reader: ann.clone(), rules: Rules { replies: Replies::All, ..Rules::default() } },
        published(4, "bob"),
        Event::Edited { id: PostId(1), body: None, hidden: Some(true), at: UnixMicros(9_500), post: None },
        Event::ListMemberChanged { reader: ann.clone(), list: list(), source: tea, since },
        Event::ListMemberChanged { reader: ann.clone(), list: list(), source: bob.clone(), since },
        Event::MarkerMoved {
            reader: ann.clone(),
            at: Position { published_at: UnixMicros(3_000), id: PostId(3) },
            seen: None,
        },
        Event::Deleted { id: PostId(3), repost_of: Some(PostId(2)), post: None },
        Event::FollowsChanged {
            follows: vec![NewEdge::new(bob.clone(), ann.clone())],
            since: UnixMicros(10_500),
            unfollows: vec![OldEdge { follower: bob.clone(), source: ann.clone() }],
        },
        Event::Unfollowed { follower: ann, source: bob, keep_until: Some(Position::MAX) },
        Event::Revoked { user: source("dan"), not_before: UnixMicros(7_000), forget_before: Some(UnixMicros(6_000)) },
        Event::ClockJumped { at: UnixMicros(20_000), drift_us: 5_000 },
        Event::Erased { user: source("dan"), at: UnixMicros(21_000) },
        Event::Erased { user: source("eve"), at: UnixMicros(21_001) },
        Event::ErasureScrubbed { at: UnixMicros(21_001) },
        Event::ErasureEnded { at: UnixMicros(21_001) },
    ]
}

fn make_world() -> (Arc<World>, StateMachine) {
    World::create(CelebrityPolicy::Above(NonZeroU64::MIN), Sharding::new(2))
}

/// Returns the state after these events.
pub(super) fn world_of(events: &[Event]) -> Arc<World> {
    let (world, mut machine) = make_world();
    for event in events {
        machine.apply(event);
    }
    world
}

/// Recovers the state from these files, as a start does.
pub(super) fn recover(files: &dyn Files) -> Result<Recovered, StorageError> {
    Recovery { files, make_world: &make_world, repair: false, progress: &RecoveryProgress::default() }.run()
}

/// Builds a journal of one segment with these payloads, each in a frame with valid checksums.
pub(super) fn journal_of<'a>(payloads: impl IntoIterator<Item = &'a [u8]>) -> MemoryFiles {
    let mut bytes = segment::header(Sequence(1));
    for (sequence, payload) in (1..).zip(payloads) {
        frame::encode(&mut bytes, FrameKind::Event, Sequence(sequence), Sequence(sequence - 1), |into| {
            into.extend(payload);
        });
    }
    let files = MemoryFiles::default();
    files.put(&segment::name(Sequence(1)), bytes);
    files
}

/// Returns all records that a snapshot of this state would have, sorted.
pub(super) fn image(world: &World) -> Vec<Vec<u8>> {
    fn packed<T: serde::Serialize>(record: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        pack(record, &mut bytes);
        bytes
    }
    let walk = RecordTraversal { world, sources: world.sources.len() };
    let mut image: Vec<Vec<u8>> = walk.sources().map(|record| packed(&record)).collect();
    image.extend(walk.edges().map(|record| packed(&record)));
    image.extend(walk.preferences().map(|record| packed(&record)));
    image.extend(walk.revocations().map(|record| packed(&record)));
    let mut add = |record: Vec<u8>| {
        image.push(record);
        Ok::<_, std::convert::Infallible>(())
    };
    let (Ok(()), Ok(())) = (walk.reposts(|record| add(packed(&record))), walk.posts(|record| add(packed(&record))));
    image.extend(world.posts.deleted().map(|id| id.0.to_le_bytes().to_vec()));
    image.sort_unstable();
    image
}
