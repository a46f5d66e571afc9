//! Replies of before the replies to a post were a source.

use tidewire::clock::UnixMicros;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::Event;
use tidewire::feed::followers::Sharding;
use tidewire::feed::position::Position;
use tidewire::feed::post::Draft;
use tidewire::feed::record::PostRecord;
use tidewire::id::{PostId, SourceId};
use tidewire::state::records::{SourceRecord, record};
use tidewire::state::world::{StateMachine, World};

use testkit::fixture_files::at;
use testkit::world::{draft, id};

fn create() -> (std::sync::Arc<World>, StateMachine) {
    World::create(CelebrityPolicy::PushAll, Sharding::new(1))
}

fn reply(repost_of: Option<PostId>) -> Event {
    let draft = Draft { reply_to: Some(PostId(7)), repost_of, ..draft("ann", "1") };
    Event::Published { position: at(1, 1), draft, accepted_at: UnixMicros(1) }
}

/// The record of a post as earlier versions wrote it.
fn earlier(event: &Event) -> PostRecord<u32> {
    let (world, mut machine) = create();
    machine.apply(event);
    let post = world.posts.get(PostId(1)).unwrap();
    let mut record = record(&world, &post, |source| source.slot.0);
    record.sources.truncate(1);
    record
}

fn replies(world: &World) -> Vec<Position> {
    let source = world.sources.get(&SourceId::replies_to(PostId(7)));
    source.iter().filter(|source| source.outbox().contains(at(1, 1))).map(|_| at(1, 1)).collect()
}

#[test]
fn a_reply_from_a_snapshot_of_an_earlier_version_is_listed() {
    for (event, expected) in [(reply(None), vec![at(1, 1)]), (reply(Some(PostId(3))), vec![])] {
        let (world, mut machine) = create();
        machine.restore_source(&SourceRecord::new(id("ann"))).unwrap();
        machine.restore_post(&earlier(&event)).unwrap();
        assert_eq!(replies(&world), expected);
        // What the journal has after the snapshot may be in the snapshot as well.
        machine.set_replaying(true);
        machine.apply(&event);
        assert_eq!(replies(&world), expected);
        machine.apply(&Event::Deleted { id: PostId(1), repost_of: None, post: None });
        assert_eq!(replies(&world), []);
    }
}

#[test]
fn the_reply_list_of_a_post_uses_less_memory_than_a_post() {
    let (world, mut machine) = create();
    let bytes = |world: &World| world.sources.get(&SourceId::replies_to(PostId(1 << 60))).unwrap().bytes();
    let mut taken = Vec::new();
    for id in 1..=50 {
        let draft = Draft { reply_to: Some(PostId(1 << 60)), ..draft("ann", "1") };
        machine.apply(&Event::Published { position: at(id, id as u64), draft, accepted_at: UnixMicros(id) });
        taken.push(bytes(&world));
    }
    assert!(taken[0] <= 480 && taken[49] - taken[0] <= 50 * 32, "{taken:?}");
}
