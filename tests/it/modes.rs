//! Pure push, pure pull and hybrid: one feed.

use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::post::Draft;
use tidewire::id::{PostId, SourceId};

use testkit::oracle::{NaivePost, Oracle};
use testkit::world::{NEWEST, above, config, draft, edge, flapping, id, some, whole_feed};

const USERS: usize = 200;
const POSTS: usize = 600;

/// A small generator of our own (xorshift), so that the graph is the same on every machine.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// Small numbers far more often than large ones.
    fn skewed(&mut self, bound: usize) -> usize {
        let limit = self.below(bound) + 1;
        let limit = self.below(limit) + 1;
        self.below(limit)
    }
}

fn power_law_graph(draw: &mut Draw) -> Oracle {
    let mut oracle = Oracle::default();
    for follower in 0..USERS {
        for _ in 0..12 {
            let source = draw.skewed(USERS);
            if source != follower {
                oracle.follow(&format!("u{follower}"), &format!("u{source}"));
            }
        }
    }
    oracle
}

fn posts(draw: &mut Draw) -> Vec<NaivePost> {
    let post = |nth: usize| {
        let author = format!("u{}", draw.skewed(USERS));
        // Few instants for many posts, and not in order.
        let published_at = draw.below(POSTS / 3) as i64;
        let sources = vec![author.clone()];
        let (id, body) = (nth as u64 + 1, nth.to_string());
        NaivePost { id, published_at, author, sources, body, ..NaivePost::default() }
    };
    (0..POSTS).map(post).collect()
}

#[tokio::test]
async fn push_pull_and_hybrid_have_equal_feeds() {
    let mut draw = Draw(0x9e37_79b9_7f4a_7c15);
    let mut oracle = power_law_graph(&mut draw);
    oracle.posts = posts(&mut draw);
    let celebrities = (0..USERS).filter(|n| oracle.followers(&format!("u{n}")) > 20).count();
    assert!((5..USERS / 2).contains(&celebrities), "{celebrities} celebrities");
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll, above(20), flapping()] {
        let engine = Engine::start(tidewire::config::EngineConfig { inbox_posts: some(50), ..config(3, policy) });
        let edges = oracle.edges.keys().map(|(follower, source)| edge(follower, source)).collect();
        engine.follow(edges).await.unwrap();
        for (nth, post) in oracle.posts.iter().enumerate() {
            if nth % (POSTS / 20) == 0 {
                // Some are awake from early on, some later, some not at all.
                for reader in 0..USERS / 2 {
                    if reader % 20 == nth / (POSTS / 20) {
                        engine.feed(&id(&format!("u{reader}")), NEWEST).await.unwrap();
                    }
                }
            }
            let dated = Draft {
                id: Some(PostId(post.id)),
                published_at: Some(tidewire::clock::UnixMicros(post.published_at)),
                ..draft(&post.author, &post.body)
            };
            engine.publish(dated, true).await.unwrap();
        }
        for reader in 0..USERS {
            let reader = SourceId::new(&format!("u{reader}")).unwrap().to_string();
            assert_eq!(whole_feed(&engine, &reader, 100).await, oracle.feed(&reader), "{reader} under {policy:?}");
        }
        engine.shutdown();
    }
}
