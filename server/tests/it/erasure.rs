//! Erasing a user: nobody sees anything of them at once, and soon nothing is left on disk.

mod kills;
mod meanwhile;
mod replay;
mod snapshots;

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use testkit::{eventually, eventually_async};
use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, Erasing, StorageConfig};
use tidewire::feed::event::{MuteOrBlock, NewEdge};
use tidewire::feed::page::Range;
use tidewire::feed::post::{Body, Draft};
use tidewire::feed::rules::{Replies, RulesPatch};
use tidewire::id::{PostId, SourceId};
use tidewire::recovery::RecoveryProgress;
use tidewire::state::reader::PageRequest;

use crate::access::tokens::{self, SERVER_KEY, access, bearer};
use crate::server::{Answer, Server};
use testkit::oracle::{NaivePost, Of, Oracle};
use testkit::world::{above, draft, edge, entries, id, insist, patient, some, whole_feed, whole_feed_upward};

/// Who is erased: a name that nothing else holds.
pub const ZOE: &str = "zoe-4f1c9a77";
/// What is in each body of theirs, and in no other.
pub const MARKER: &str = "words-of-zoe-8812";
/// Of whom nothing is known but that tokens are revoked.
const REVOKED: &str = "rex-77d10b3e";
/// Of whom of the three tokens are revoked afterwards.
const REVOKED_AFTER: [bool; 3] = [false, false, true];
pub const OTHERS: [&str; 4] = ["ann", "bob", "cas", "dan"];

/// Few posts stay in memory, so that the archive has most.
pub fn small() -> EngineConfig {
    EngineConfig { outbox_posts: some(4), inbox_posts: some(10), celebrity: above(2), ..patient() }
}

/// An engine, and what a naive computation says of it.
pub struct Town {
    pub engine: Engine,
    pub oracle: Oracle,
}

impl Town {
    pub fn new(engine: Engine) -> Self {
        Self { engine, oracle: Oracle::default() }
    }

    async fn follow(&mut self, follower: &str, source: &str, hidden: bool) {
        self.engine.follow(vec![NewEdge { hidden, ..edge(follower, source) }]).await.unwrap();
        self.oracle.follow_with(follower, source, hidden, None);
    }

    pub async fn publish(&mut self, author: &str, change: impl FnOnce(Draft) -> Draft) -> PostId {
        let whose = if author == ZOE { MARKER } else { "of others" };
        let body = format!("\"{whose} {}\"", self.oracle.posts.len());
        let draft = change(draft(author, &body));
        let post = insist(async || self.engine.publish(draft.clone(), true).await).await.unwrap().post;
        let of = |id: Option<PostId>| id.and_then(|id| self.oracle.post(id.0));
        let repost_of = of(draft.repost_of).and_then(|post| post.repost_of).or(draft.repost_of.map(|id| id.0));
        let answered = of(draft.reply_to).map(|post| post.author.clone());
        self.oracle.posts.push(NaivePost {
            id: post.id().0,
            published_at: post.position.published_at.0,
            author: author.to_owned(),
            sources: draft.sources().map(|source| source.to_string()).collect(),
            body,
            repost_of,
            reply_to: draft.reply_to.map(|id| id.0),
            answered,
            ..NaivePost::default()
        });
        post.id()
    }

    /// Everything in which a user can be named: posts in memory and in the archive, answers, reposts both ways, tags, edges both ways, hidden
    /// ones and those that are gone but for what they brought, mutes, blocks, lists, rules and a marker.
    pub async fn settle(&mut self, rounds: usize) {
        for other in OTHERS {
            self.follow(other, ZOE, other == "cas").await;
            self.follow(other, "tag:tea", false).await;
            if other != "ann" {
                self.follow(other, "ann", false).await;
            }
        }
        for followed in ["ann", "bob", "tag:tea"] {
            self.follow(ZOE, followed, false).await;
        }
        for nth in 0..rounds {
            let tea = |draft| Draft { tags: vec![SourceId::tag("tea").unwrap()], ..draft };
            let of_zoe = self.publish(ZOE, |draft| if nth % 2 == 0 { tea(draft) } else { draft }).await;
            let of_ann = self.publish("ann", |draft| draft).await;
            self.publish("bob", |draft| Draft { reply_to: Some(of_zoe), ..draft }).await;
            self.publish("ann", |draft| Draft { repost_of: Some(of_zoe), ..draft }).await;
            self.publish(ZOE, |draft| Draft { repost_of: Some(of_ann), ..draft }).await;
            self.publish("cas", tea).await;
            if nth % 4 == 0 {
                let body = Body::new(&format!("\"{MARKER} edited\"")).unwrap();
                self.engine.edit(of_zoe, Some(body), None).await.unwrap();
                let id = of_zoe.0;
                self.oracle.posts.iter_mut().find(|post| post.id == id).unwrap().body = format!("\"{MARKER} edited\"");
            }
        }
        self.decide().await;
    }

    async fn decide(&mut self) {
        let zoe = || id(ZOE);
        self.engine.unfollow_but_keep(id("dan"), zoe()).await.unwrap();
        self.oracle.unfollow_but_keep("dan", ZOE, i64::MAX / 2);
        let near = || "near".parse().unwrap();
        self.engine.set_listed(id("ann"), near(), zoe(), true).await.unwrap();
        self.engine.set_listed(id("ann"), near(), id("bob"), true).await.unwrap();
        let list = ["bob", ZOE].map(str::to_owned).into();
        self.oracle.lists.insert(("ann".to_owned(), "near".to_owned()), list);
        self.engine.set_listed(zoe(), near(), id("bob"), true).await.unwrap();
        self.engine.silence(id("gus"), zoe(), MuteOrBlock::Mute, true).await.unwrap();
        self.engine.silence(id("hal"), zoe(), MuteOrBlock::Block, true).await.unwrap();
        self.engine.silence(zoe(), id("ivy"), MuteOrBlock::Block, true).await.unwrap();
        let rules = RulesPatch { replies: Some(Replies::All), ..RulesPatch::default() };
        self.engine.change_rules(zoe(), rules).await.unwrap();
        self.engine.change_rules(id("dan"), rules).await.unwrap();
        self.oracle.change_rules("dan", rules);
        let page = self.engine.feed(&zoe(), PageRequest { range: Range::Newest, limit: 5 }).await.unwrap();
        self.engine.mark(zoe(), page.page.newest.unwrap()).await.unwrap();
    }

    pub async fn erase(&mut self) {
        assert_eq!(self.engine.erase(id(ZOE)).await.unwrap(), Erasing::UnderWay);
        self.oracle.erase(ZOE);
    }

    /// Waits until all erasures have ended.
    pub async fn ended(&self) {
        eventually_async("the erasure ends", async || self.engine.erasures().count == 0).await;
    }

    /// What everybody sees is what the oracle says.
    pub async fn check(&self) {
        for reader in OTHERS {
            let expected = self.oracle.feed(reader);
            assert_eq!(whole_feed(&self.engine, reader, 7).await, expected, "{reader}");
            assert_eq!(whole_feed_upward(&self.engine, reader, 9).await, expected, "{reader} up");
        }
        for source in ["ann", "bob", "cas", "tag:tea", ZOE] {
            let request = PageRequest { range: Range::Newest, limit: 100 };
            let page = self.engine.own_page(&id(source), request).await.unwrap();
            let expected = self.oracle.own_page(source);
            assert_eq!(entries(&page), expected[..expected.len().min(100)], "{source}");
        }
    }

    /// None of the ways to a post, or to a name, leads to the user.
    async fn check_gone(&self) {
        let engine = &self.engine;
        assert_eq!(engine.source(&id(ZOE)).unwrap_err().code(), "unknown_source");
        let (all, newest) = (PageRequest { range: Range::Newest, limit: 100 }, UnixMicros(i64::MAX));
        assert!(engine.feed(&id(ZOE), all).await.unwrap().page.items.is_empty());
        for post in self.oracle.posts.iter().filter(|post| post.author == ZOE).map(|post| PostId(post.id)) {
            assert_eq!(engine.post(post).await.unwrap_err().code(), "unknown_post");
            assert_eq!(engine.edit(post, None, Some(true)).await.unwrap_err().code(), "unknown_post");
            let explained = format!("{:?}", engine.explain(&id("ann"), post).await.unwrap());
            assert!(!explained.contains(ZOE), "{explained}");
        }
        let near = "near".parse().unwrap();
        let page = engine.list_feed(&id("ann"), &near, all).await.unwrap();
        let expected = self.oracle.entries(Of::List("ann", "near"));
        assert_eq!(entries(&page), expected[..expected.len().min(100)]);
        let mut names = engine.members(&id("ann"), &near, newest, 1).unwrap();
        for other in ["ann", "bob", "cas", "dan", "gus", "hal", "ivy", "tag:tea"].map(id) {
            names.extend(engine.following(&other, newest, 1));
            names.extend(engine.hidden_following(&other, newest, 100));
            names.extend(engine.followers(&other, newest, 100));
            names.extend(engine.silenced(&other, MuteOrBlock::Mute, newest, 100));
            names.extend(engine.silenced(&other, MuteOrBlock::Block, newest, 100));
        }
        assert!(names.iter().any(|name| name.id == id("bob")));
        assert!(!names.iter().any(|name| name.id == id(ZOE)));
    }
}

/// Every file of a directory that holds one of the texts.
pub fn holding(directory: &Path, texts: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()) {
        let bytes = match std::fs::read(&file) {
            // It was removed meanwhile.
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => continue,
            read => read.unwrap(),
        };
        for text in texts.iter().filter(|text| bytes.windows(text.len()).any(|part| part == text.as_bytes())) {
            found.push(format!("{text} in {}", file.file_name().unwrap().display()));
        }
    }
    found
}

pub fn open(directory: &Path) -> Engine {
    let storage = StorageConfig { directory: directory.to_owned(), ..StorageConfig::default() };
    Engine::open(small(), &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0
}

pub fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
}

#[test]
fn an_erasure_removes_every_byte_of_the_user_and_nothing_of_others() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let mut town = Town::new(open(directory.path()));
        town.settle(20).await;
        for user in [ZOE, REVOKED, "ann"] {
            town.engine.revoke_tokens(id(user), UnixMicros(1_000_000), None).await.unwrap();
        }
        town.engine.snapshot().await.unwrap();
        town.publish(ZOE, |draft| draft).await;
        town.engine.snapshot().await.unwrap();
        let identity = std::fs::read(directory.path().join("identity")).unwrap();
        assert_eq!(holding(directory.path(), &[REVOKED]).len(), 3, "two snapshots and the journal");
        let before = holding(directory.path(), &[ZOE, MARKER]);
        assert!(before.len() >= 6, "snapshots, journal and archive have them: {before:?}");
        std::fs::write(directory.path().join("snapshot-00000000000000000001.tide.damaged"), ZOE).unwrap();
        for aside in ["journal-00000000000000000001.log.damaged-2", "archive.redb.damaged", "archive.sums.damaged-1"] {
            std::fs::write(directory.path().join(aside), ZOE).unwrap();
        }
        // Of a small set of users, some of them empty.
        town.engine.follow(vec![edge("nil-1", "bob")]).await.unwrap();
        assert_eq!(town.engine.erase(id("nil-1")).await, Ok(Erasing::UnderWay));
        assert_eq!(town.engine.erase(id("nobody")).await, Ok(Erasing::Unknown));
        assert_eq!(town.engine.erase(id("tag:tea")).await.unwrap_err().code(), "not_a_user");
        town.erase().await;
        let refused = town.engine.revoke_tokens(id(ZOE), UnixMicros(2_000_000), None).await;
        assert_eq!(refused.unwrap_err().code(), "being_erased");
        // Nothing is known of this one but the revocation.
        assert_eq!(town.engine.erase(id(REVOKED)).await, Ok(Erasing::UnderWay));
        town.check_gone().await;
        town.check().await;
        town.ended().await;
        assert_eq!([ZOE, REVOKED, "ann"].map(|user| town.engine.tokens_not_before(&id(user)).is_some()), REVOKED_AFTER);
        assert_eq!(town.engine.snapshots().len(), 1);
        assert_eq!(town.engine.erase(id(ZOE)).await, Ok(Erasing::Unknown));
        assert_eq!(holding(directory.path(), &[ZOE, MARKER, REVOKED]), [""; 0]);
        town.check_gone().await;
        town.check().await;
        // And after a start from what is left.
        town.engine.shutdown();
        assert_eq!(holding(directory.path(), &[ZOE, MARKER, REVOKED]), [""; 0]);
        assert_eq!(std::fs::read(directory.path().join("identity")).unwrap(), identity);
        assert!(directory.path().join("archive.sums").exists());
        town.engine = open(directory.path());
        assert_eq!(town.engine.erasures().count, 0);
        assert_eq!([ZOE, REVOKED, "ann"].map(|user| town.engine.tokens_not_before(&id(user)).is_some()), REVOKED_AFTER);
        town.check_gone().await;
        town.check().await;
        town.engine.snapshot().await.unwrap();
        town.publish("ann", |draft| draft).await;
        town.check().await;
        town.engine.shutdown();
        assert_eq!(holding(directory.path(), &[ZOE, MARKER, REVOKED]), [""; 0]);
    });
}

fn ask(server: &Server, credential: &str, request: &str, body: &Value) -> Answer {
    let ((method, path), credential) = (request.split_once(' ').unwrap(), bearer(credential));
    let headers = [("authorization", credential.as_str()), ("content-type", "application/json")];
    if body.is_null() {
        return server.ask(method, path, &headers[..1], "");
    }
    server.ask(method, path, &headers, body.to_string())
}

#[test]
fn p3_an_erased_user_is_in_no_feed_and_no_file_and_a_revoked_token_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let start = || Server::guarding(open(directory.path()), access());
    let server = start();
    let status = |request: &str, body: &Value| ask(&server, SERVER_KEY, request, body).status;
    let follows = [ZOE, "bob"].map(|source| json!({"follower": "ann", "source": source}));
    assert_eq!(status("POST /v1/follows", &json!({"follows": follows})), 200);
    let mut posts: Vec<Value> = (0..19).map(|nth| json!({"author": ZOE, "body": format!("{MARKER} {nth}")})).collect();
    posts.push(json!({"author": "bob", "body": 1}));
    assert_eq!(status("POST /v1/posts/batch?wait=delivered", &json!({"posts": posts})), 200);
    let feed = |server: &Server, user: &str, credential: &str| {
        ask(server, credential, &format!("GET /v1/users/{user}/feed"), &Value::Null)
    };
    let entries = |server: &Server| feed(server, "ann", SERVER_KEY).json()["items"].as_array().unwrap().len();
    let [of_ann, of_bob] = ["ann", "bob"].map(|user| tokens::made(user, 60.0, 600.0));
    assert_eq!((feed(&server, "ann", &of_ann).status, entries(&server)), (200, 20));
    assert!(!holding(directory.path(), &[ZOE, MARKER]).is_empty());
    assert_eq!(status("POST /v1/users/ann/revoke", &Value::Null), 200);
    let erase = format!("DELETE /v1/users/{ZOE}");
    assert_eq!((status(&erase, &Value::Null), entries(&server)), (202, 1), "nobody sees the posts any more");
    eventually("the erasure ends", || status(&erase, &Value::Null) == 204);
    drop(server);
    assert_eq!(holding(directory.path(), &[ZOE, MARKER]), [""; 0]);
    let server = start();
    assert_eq!(entries(&server), 1);
    assert_eq!(feed(&server, "ann", &of_ann).json()["code"], "token_revoked");
    assert_eq!(feed(&server, "bob", &of_bob).status, 200, "the token of another user");
}
