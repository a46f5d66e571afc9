//! A naive feed service: each timeline is computed anew from all activities and follows. Knows nothing of Tidewire.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::count;

/// Readers who publish nothing; there are as many authors besides, and one whom all follow.
pub const READERS: usize = 10_500;
pub const AUTHORS: usize = 500;
const ACTIVITIES: usize = 12_000;
const ITEMS_PER_PAGE: usize = 100;

/// Which of the two documented formats is written.
#[derive(Clone, Copy, PartialEq)]
pub enum Shape {
    Export,
    Older,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Public,
    Deleted,
    Private,
    Expired,
}

#[derive(Clone)]
pub struct Activity {
    number: usize,
    author: String,
    feeds: Vec<String>,
    microsecond: usize,
    text: String,
    state: State,
}

pub struct Service {
    activities: Vec<Activity>,
    follows: BTreeMap<String, BTreeSet<String>>,
}

impl Activity {
    fn at(&self) -> String {
        format!("2024-02-29T23:59:59.{:06}", self.microsecond)
    }

    fn json(&self, shape: Shape) -> Value {
        let (number, author, feeds, text, at) = (self.number, &self.author, &self.feeds, &self.text, self.at());
        let mut record = match shape {
            Shape::Export => json!({
                "id": uuid(number), "type": "post", "user_id": author, "fids": feeds, "text": text, "created_at": at + "Z",
                "custom": {"number": number},
            }),
            Shape::Older => json!({
                "actor": format!("SU:{author}"), "verb": "post", "object": format!("post:{number}"), "text": text, "time": at,
                "foreign_id": format!("post:{number}"), "to": feeds[1..], "origin": feeds[0], "target": null,
            }),
        };
        // What comes from an import file has no id.
        if shape == Shape::Older && !self.is_in_import_file() {
            record["id"] = uuid(number).into();
        }
        match self.state {
            State::Public => {}
            State::Deleted => record["deleted_at"] = "2024-03-01T00:00:00Z".into(),
            State::Private => record["visibility"] = "private".into(),
            State::Expired => record["expires_at"] = "2024-03-01T00:00:00Z".into(),
        }
        record
    }

    fn is_in_import_file(&self) -> bool {
        self.number % 2 == 1
    }

    /// Returns a line that has this activity alone.
    pub fn line(&self, shape: Shape) -> String {
        let record = self.json(shape);
        format!("{}\n", if shape == Shape::Export { json!({"type": "activity", "data": record}) } else { record })
    }
}

impl Service {
    /// Returns a service with activities of which three always share their time. Some are also in a feed about a share, or only there; some were
    /// put into the timeline of a reader, or on the wall of another author.
    pub fn filled() -> Self {
        let mut service = Self { activities: Vec::new(), follows: BTreeMap::new() };
        for reader in 0..READERS {
            let name = format!("reader-{reader}");
            service.follow(&name, "user:star");
            for nth in 0..3 {
                service.follow(&name, &format!("user:author-{}", (reader * 31 + nth * 177) % AUTHORS));
            }
            if reader % 7 == 0 {
                service.follow(&name, "stock:apple");
            }
            if reader % 30 == 0 {
                service.follow(&name, "stock:pear");
            }
        }
        for author in 0..AUTHORS {
            service.follow(&format!("author-{author}"), "user:star");
            if author % 2 == 0 {
                service.follow(&format!("author-{author}"), &format!("user:author-{author}"));
            }
        }
        for number in 0..ACTIVITIES {
            let nth = number * 7919 % AUTHORS;
            let author = if number % 10 == 0 { "star".to_owned() } else { format!("author-{nth}") };
            let mut feeds = vec![format!("user:{author}")];
            let mut put = |wanted: bool, feed: String| feeds.extend(wanted.then_some(feed));
            put(number % 11 == 0, "stock:apple".to_owned());
            put(number % 101 == 0, format!("timeline:reader-{}", number % 420));
            put(number % 103 == 0, format!("user:author-{}", (nth + 1) % AUTHORS));
            if number % 107 == 1 {
                feeds = vec!["stock:pear".to_owned()];
            }
            let state = match number {
                _ if number % 50 == 5 => State::Deleted,
                _ if number % 50 == 6 => State::Private,
                _ if number % 50 == 7 => State::Expired,
                _ => State::Public,
            };
            let text = format!("text {number} \"\u{e4}\u{1f600}\"\n");
            service.activities.push(Activity { number, author, feeds, microsecond: number / 3, text, state });
        }
        service
    }

    pub fn publish(&mut self, author: &str, text: &str, further: &[&str]) -> Activity {
        let number = self.activities.len();
        let feeds = [format!("user:{author}")].into_iter().chain(further.iter().map(|&feed| feed.to_owned())).collect();
        let (author, text) = (author.to_owned(), text.to_owned());
        self.activities.push(Activity { number, author, feeds, microsecond: number, text, state: State::Public });
        self.activities[number].clone()
    }

    /// Deletes an activity. Returns what it was.
    pub fn delete(&mut self, number: usize) -> Activity {
        let was = self.activities[number].clone();
        self.activities[number].state = State::Deleted;
        was
    }

    /// Lets a timeline follow a feed. Returns the answer that shows it.
    pub fn follow(&mut self, reader: &str, feed: &str) -> String {
        self.follows.entry(reader.to_owned()).or_default().insert(feed.to_owned());
        json!({"feed_id": format!("timeline:{reader}"), "target_id": feed}).to_string() + "\n"
    }

    pub fn unfollow(&mut self, reader: &str, feed: &str) {
        assert!(self.follows.get_mut(reader).unwrap().remove(feed));
    }

    /// Returns what a reader sees, newest first: times and texts. Those of the same time are ordered by text.
    pub fn timeline(&self, reader: &str) -> Vec<(String, String)> {
        let mut found: Vec<_> =
            self.shown(reader).into_iter().map(|activity| (activity.at() + "Z", activity.text.clone())).collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        found
    }

    fn shown(&self, reader: &str) -> Vec<&Activity> {
        let own = format!("timeline:{reader}");
        let follows = &self.follows[reader];
        let is_shown = |activity: &&Activity| {
            activity.state == State::Public && activity.feeds.iter().any(|feed| *feed == own || follows.contains(feed))
        };
        let mut found: Vec<&Activity> = self.activities.iter().filter(is_shown).collect();
        found.sort_by_key(|activity| std::cmp::Reverse(activity.microsecond));
        found
    }

    /// Returns the answer to a request for a timeline.
    pub fn answer(&self, reader: &str, shape: Shape) -> String {
        let shown = self.shown(reader);
        if shape == Shape::Export {
            return shown.iter().map(|activity| activity.line(shape)).collect();
        }
        let page = |piece: &[&Activity]| {
            json!({"results": piece.iter().map(|one| one.json(shape)).collect::<Vec<_>>()}).to_string() + "\n"
        };
        shown.chunks(ITEMS_PER_PAGE).map(page).collect()
    }

    /// Returns the whole export.
    pub fn export(&self, shape: Shape) -> String {
        if shape == Shape::Export { self.newer_export() } else { self.older_export() }
    }

    fn newer_export(&self) -> String {
        let mut lines = String::new();
        let mut add = |kind: &str, data: Value| writeln!(lines, "{}", json!({"type": kind, "data": data})).unwrap();
        for (reader, feeds) in &self.follows {
            add("user", json!({"id": reader, "role": "user"}));
            for feed in feeds {
                add("follow", json!({"source_fid": format!("timeline:{reader}"), "target_fid": feed}));
            }
        }
        for activity in &self.activities {
            add("activity", activity.json(Shape::Export));
            if is_commented(activity) {
                let number = activity.number;
                add(
                    "comment",
                    json!({
                        "id": uuid(number), "object_type": "activity", "object_id": uuid(number), "user_id": "star",
                        "text": format!("comment {number}"), "created_at": "2024-03-01T00:00:00Z",
                    }),
                );
                add("reaction", json!({"user_id": "star", "activity_id": uuid(number), "type": "like"}));
            }
        }
        lines
    }

    /// Saved pages of answers, and import files.
    fn older_export(&self) -> String {
        let mut lines = String::new();
        let mut add = |line: Value| writeln!(lines, "{line}").unwrap();
        for (reader, feeds) in &self.follows {
            if reader.ends_with('3') {
                add(json!({"instruction": "follow", "feedId": format!("timeline:{reader}"), "data": feeds}));
            } else {
                let edge = |feed: &String| json!({"feed_id": format!("timeline:{reader}"), "target_id": feed});
                add(json!({"results": feeds.iter().map(edge).collect::<Vec<_>>(), "duration": "1.92ms"}));
            }
        }
        let mut by_feed: BTreeMap<&str, Vec<&Activity>> = BTreeMap::new();
        for activity in self.activities.iter().filter(|activity| activity.state == State::Public) {
            by_feed.entry(&activity.feeds[0]).or_default().push(activity);
        }
        for (feed, activities) in by_feed {
            let (imported, answered): (Vec<_>, Vec<_>) =
                activities.into_iter().partition(|activity| activity.is_in_import_file());
            let json = |of: Vec<&Activity>| of.into_iter().map(|one| one.json(Shape::Older)).collect::<Vec<_>>();
            add(json!({"instruction": "add_activities", "feedId": feed, "data": json(imported)}));
            let comments: Vec<Value> = answered
                .iter()
                .filter(|activity| is_commented(activity))
                .flat_map(|activity| ["comment", "like"].map(|kind| (kind, activity.number)))
                .map(|(kind, number)| {
                    json!({
                        "id": uuid(number), "kind": kind, "activity_id": uuid(number), "user_id": "star",
                        "data": {"text": format!("comment {number}")}, "created_at": "2024-03-01T00:00:00.123456",
                    })
                })
                .collect();
            add(json!({"results": json(answered), "next": ""}));
            add(json!({"results": comments}));
        }
        lines
    }

    /// Returns the counts of an import that do not depend on Tidewire.
    pub fn expected(&self, shape: Shape) -> [usize; 6] {
        let of = |state: State| self.activities.iter().filter(move |activity| activity.state == state);
        let comments = of(State::Public).filter(|activity| is_commented(activity)).count();
        let pears = of(State::Public).filter(|activity| activity.feeds[0] == "stock:pear").count();
        let published = of(State::Public).count() + comments;
        if shape == Shape::Older {
            return [published, 0, 0, 0, comments, pears];
        }
        let hidden = [State::Deleted, State::Private, State::Expired];
        let likes = comments + hidden.into_iter().flat_map(of).filter(|activity| is_commented(activity)).count();
        let [deleted, private, expired] = hidden.map(|state| of(state).count());
        [published, deleted, private, expired, likes, pears]
    }

    /// Returns the same counts of a report.
    pub fn imported(said: &str) -> [usize; 6] {
        [
            count(said, "posts published") + count(said, "posts that are deleted in Tidewire, left out"),
            count(said, "activities that are deleted there"),
            count(said, "activities that are not public, left out"),
            count(said, "activities that have expired, left out"),
            count(said, "other records, left out: reactions (like)"),
            count(said, "activities in no feed of their actor, with the feed as the author"),
        ]
    }
}

/// Every fourth activity has a comment and a like. All of these have ids in both formats.
fn is_commented(activity: &Activity) -> bool {
    activity.number.is_multiple_of(4)
}

pub fn uuid(number: usize) -> String {
    format!("{number:08x}-d6c1-11ee-8000-{number:012x}")
}
