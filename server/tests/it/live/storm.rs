//! All clients are lost at once and come back at once, while posts go on.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{join_all, pending};
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::post::Body;
use tidewire::feed::stream::StreamLimits;
use tidewire::id::PostId;
use tidewire::recovery::RecoveryProgress;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::live::feed_client::{FeedClient, Session};
use crate::server::Server;
use testkit::DEADLINE;
use testkit::world::{above, draft, edge};

/// Whom readers follow: all of them the first, who has too many followers to push to, and some of the others.
const AUTHORS: [&str; 6] = ["star", "bob", "cas", "dan", "eve", "fay"];
const FOLLOWED: usize = 3;
const HISTORY: usize = 12;

/// Clients of the normal run; `TIDEWIRE_LIVE_CLIENTS` asks for more.
fn clients() -> usize {
    std::env::var("TIDEWIRE_LIVE_CLIENTS").ok().and_then(|clients| clients.parse().ok()).unwrap_or(200)
}

/// A window that posts leave, and a history that is soon too short.
fn config() -> EngineConfig {
    EngineConfig {
        live: StreamLimits { window_entries: 8, history_changes: HISTORY },
        // As many as come: while those before have not been noticed to be gone, some are refused.
        live_max: clients(),
        pull_budget: DEADLINE,
        ..testkit::world::config(2, above(clients() as u64 / 3))
    }
}

/// Two clients for each reader.
async fn readers_and_clients(engine: &Engine) -> Vec<FeedClient> {
    let mut clients: Vec<FeedClient> = (0..clients()).map(|nth| FeedClient::new(&format!("r{}", nth / 2))).collect();
    for nth in 0..clients.len().div_ceil(2) {
        let others = (0..FOLLOWED - 1).map(|other| AUTHORS[1 + (nth + other) % (AUTHORS.len() - 1)]);
        let edges = others.chain([AUTHORS[0]]).map(|author| edge(&format!("r{nth}"), author));
        engine.follow(edges.collect()).await.unwrap();
    }
    // Those who follow the same do not come one after the other.
    fastrand::Rng::with_seed(7).shuffle(&mut clients);
    clients
}

/// Publishes, edits and deletes.
struct Publisher {
    engine: Engine,
    random: fastrand::Rng,
    posts: Vec<PostId>,
}

impl Publisher {
    fn new(engine: &Engine) -> Self {
        Self { engine: engine.clone(), random: fastrand::Rng::with_seed(7), posts: Vec::new() }
    }

    /// Publishes so many more.
    async fn more(&mut self, posts: usize) {
        for _ in 0..posts {
            self.publish().await;
            // The clients take turns with it.
            yield_now().await;
        }
    }

    async fn publish(&mut self) {
        let Self { engine, random, posts } = self;
        let author = random.choice(AUTHORS).unwrap();
        let mut post = draft(author, &posts.len().to_string());
        post.repost_of = posts.last().copied().filter(|_| random.u8(0..6) == 0);
        posts.push(engine.publish(post, false).await.unwrap().post.id());
        let recent = posts[posts.len() - 1 - random.usize(0..posts.len().min(10))];
        match random.u8(0..6) {
            0 => engine.delete(recent).await.unwrap(),
            // It may have been deleted.
            1 => drop(engine.edit(recent, Some(Body::new("\"other\"").unwrap()), None).await),
            _ => {}
        }
    }

    /// All that is still on its way is ahead of these posts.
    async fn end(self) {
        for author in AUTHORS {
            self.engine.publish(draft(author, "\"the last\""), true).await.unwrap();
        }
    }
}

/// All clients come at the same time, while there are some posts, and are told of some.
async fn come(clients: &mut [FeedClient], server: &Server, publisher: &mut Publisher) {
    tokio::join!(join_all(clients.iter_mut().map(|client| client.come(server.address()))), publisher.more(3));
    let published = publisher.more(5).shared();
    let closed = join_all(clients.iter_mut().map(|client| client.listen(published.clone()))).await;
    assert!(closed.iter().all(Option::is_none), "nobody is closed: {closed:?}");
}

async fn settle(clients: &mut [FeedClient], server: &Server) {
    join_all(clients.iter_mut().map(|client| client.settle(server.address()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_converge_to_their_pages_after_a_reconnect_storm() {
    let server = Server::start(config());
    let mut clients = readers_and_clients(&server.engine).await;
    let mut publisher = Publisher::new(&server.engine);
    // Posts are published before they come back: none in particular, some, more than is remembered for anybody.
    for away in [0, 4, 4 * HISTORY, 1] {
        come(&mut clients, &server, &mut publisher).await;
        clients.iter_mut().for_each(FeedClient::go);
        publisher.more(away).await;
    }
    come(&mut clients, &server, &mut publisher).await;
    publisher.end().await;
    settle(&mut clients, &server).await;

    let sum = |count: fn(&FeedClient) -> usize| clients.iter().map(count).sum::<usize>();
    let (recovered, anew) = (sum(|client| client.recovered), sum(|client| client.anew));
    assert_eq!(recovered + anew, clients.len() * 5);
    // All read anew the first time.
    assert!(recovered > 0 && anew > clients.len(), "both ways to come back are gone: {recovered}, {anew}");
    let live = server.get("/v1/stats").json()["live"].clone();
    assert_eq!(live["connections"], clients.len(), "those before are gone: {live}, {}", sum(|client| client.refused));
}

/// A server on a directory.
fn serve(directory: &Path) -> Server {
    let storage = StorageConfig { directory: directory.to_owned(), ..StorageConfig::default() };
    Server::of(Engine::open(config(), &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_restarting_server_are_notified_and_reload_their_feed() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serve(directory.path());
    let mut clients = readers_and_clients(&server.engine).await;
    for _ in 0..2 {
        let mut publisher = Publisher::new(&server.engine);
        come(&mut clients, &server, &mut publisher).await;
        publisher.end().await;
        let stopping = tokio::task::spawn_blocking(move || drop(server));
        let closed = join_all(clients.iter_mut().map(|client| timeout(DEADLINE, client.listen(pending())))).await;
        let closed: Vec<_> = closed.into_iter().map(|code| code.expect("they are closed")).collect();
        assert!(closed.iter().all(|code| *code == Some(1012)), "{closed:?}");
        stopping.await.unwrap();
        server = serve(directory.path());
        let before: Vec<(usize, Session)> =
            clients.iter().map(|client| (client.recovered, client.session.clone().unwrap())).collect();
        join_all(clients.iter_mut().map(|client| client.come(server.address()))).await;
        for (client, (recovered, (epoch, _))) in clients.iter().zip(before) {
            assert_ne!(client.session.as_ref().unwrap().0, epoch, "{}", client.reader);
            assert_eq!(client.recovered, recovered, "{}: of another epoch nothing is left", client.reader);
        }
        settle(&mut clients, &server).await;
        clients.iter_mut().for_each(FeedClient::go);
    }
}
