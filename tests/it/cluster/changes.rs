//! Random changes of all kinds by users whose feeds the nemesis does not check, so that the worlds of nodes have something to differ in.

use fastrand::Rng;
use tidewire::clock::UnixMicros;
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::feed::event::{MuteOrBlock, NewEdge};
use tidewire::feed::position::Position;
use tidewire::feed::post::{Body, Draft};
use tidewire::feed::resume::Resume;
use tidewire::feed::rules::RulesPatch;
use tidewire::id::{ListName, PostId, SourceId};

use testkit::world::{draft, id};

const FANS: u64 = 12;

/// Makes a random change by a fan, or edits one of the posts up to `posts`.
pub async fn change(engine: &Engine, random: &mut Rng, authors: u64, posts: u64) -> Result<(), Error> {
    let fan = |random: &mut Rng| id(&format!("fan-{}", random.u64(..FANS)));
    let author = |random: &mut Rng| id(&format!("author-{}", random.u64(..authors)));
    let (one, other) = (fan(random), fan(random));
    let source = if random.bool() { other } else { author(random) };
    let post = PostId(random.u64(1..=posts));
    let at = Position { published_at: UnixMicros(post.0 as i64), id: post };
    let (is_on, how) = (random.bool(), if random.bool() { MuteOrBlock::Mute } else { MuteOrBlock::Block });
    let list = ["friends", "news"][random.usize(..2)].parse::<ListName>().unwrap();
    match random.u8(..12) {
        0 | 1 => {
            let start = random.bool().then_some(at);
            engine.follow(vec![NewEdge { hidden: random.bool(), start, ..NewEdge::new(one, source) }]).await.map(drop)
        }
        2 => engine.unfollow(one, source).await,
        3 => engine.unfollow_but_keep(one, source).await,
        4 => engine.silence(one, source, how, is_on).await.map(drop),
        5 => engine.change_rules(one, RulesPatch { show_own: Some(is_on), ..RulesPatch::default() }).await.map(drop),
        6 => engine.set_listed(one, list, source, is_on).await.map(drop),
        7 => engine.drop_list(one, list).await.map(drop),
        8 => engine.mark(one, Resume::at(at)).await,
        9 => engine.edit(post, Some(Body::new(&format!("{}", random.u32(..))).unwrap()), None).await.map(drop),
        10 => engine.erase(one).await.map(drop),
        _ => {
            let revoked = engine.revoke_tokens(one.clone(), UnixMicros(random.i64(1..1_000)), None).await;
            let draft = draft(one.as_str(), "{}");
            let repost_of = random.bool().then_some(post);
            let reply_to = Some(post).filter(|_| repost_of.is_none());
            let tags = vec![SourceId::tag("rust").unwrap()];
            revoked.and(engine.publish(Draft { repost_of, reply_to, tags, ..draft }, false).await.map(drop))
        }
    }
}
