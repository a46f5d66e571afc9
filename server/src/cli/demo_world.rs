//! The generated data of `tidewire demo`: users who follow each other and publish. It is deterministic: the same seed gives the same
//! data.

use std::ops::Range;

use fastrand::Rng;

use tidewire::feed::event::NewEdge;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::SourceId;

/// Number of generated users.
pub const PEOPLE: usize = 300;

/// The users who read often, and those who read seldom. The others never read, so they sleep.
const FREQUENT: Range<usize> = 1..120;
const SELDOM: Range<usize> = 120..200;

/// The follower count above which the demo's server treats a source as a celebrity.
pub const CELEBRITY_FOLLOWERS: u64 = 150;

const FIRST: [&str; 20] = [
    "ada", "ben", "cleo", "dario", "edda", "finn", "gita", "hugo", "ines", "juno", "kofi", "lena", "milo", "nora",
    "oskar", "pia", "quinn", "rosa", "sami", "tess",
];
const LAST: [&str; 15] = [
    "ash", "brook", "cole", "dale", "elm", "fox", "grove", "hill", "iris", "jay", "knoll", "lake", "moss", "north",
    "oak",
];
const TAGS: [&str; 6] = ["rust", "tea", "trains", "chess", "clouds", "bread"];
const OPENINGS: [&str; 6] =
    ["Thinking about", "Just finished reading on", "Can anyone recommend", "A note on", "Today:", "Unpopular view of"];

/// A generator of users, follow edges and posts.
#[derive(Clone, Debug)]
pub struct DemoWorld {
    draw: Rng,
    people: Vec<SourceId>,
}

impl DemoWorld {
    /// Creates the generator for a seed.
    pub fn new(seed: u64) -> Self {
        let name = |n: usize| format!("{}.{}", FIRST[n % FIRST.len()], LAST[n / FIRST.len() % LAST.len()]);
        let people = (0..PEOPLE).map(|n| id(&name(n))).collect();
        Self { draw: Rng::with_seed(seed), people }
    }

    /// Returns a generator with the same users that draws by another seed.
    #[must_use]
    pub fn reseeded(&self, seed: u64) -> Self {
        Self { draw: Rng::with_seed(seed), ..self.clone() }
    }

    /// Returns the user that nearly everyone follows.
    pub fn celebrity(&self) -> &SourceId {
        &self.people[0]
    }

    /// Returns a user who follows many others, including the celebrity.
    pub fn reader(&self) -> &SourceId {
        &self.people[7]
    }

    /// Returns a user who follows everybody, and whose client is too slow for all these posts.
    pub fn slow_reader(&self) -> &SourceId {
        &self.people[PEOPLE - 1]
    }

    /// Draws any user but the celebrity.
    pub fn somebody(&mut self) -> SourceId {
        self.one_of(1..PEOPLE)
    }

    /// Draws one of the users who read often.
    pub fn frequent_reader(&mut self) -> SourceId {
        self.one_of(FREQUENT)
    }

    /// Draws this number of different users who read often.
    pub fn frequent_readers(&mut self, count: usize) -> Vec<SourceId> {
        self.draw.choose_multiple(&self.people[FREQUENT], count).into_iter().cloned().collect()
    }

    /// Draws one of the users who read seldom.
    pub fn seldom_reader(&mut self) -> SourceId {
        self.one_of(SELDOM)
    }

    /// Draws a number.
    pub fn number(&mut self, of: Range<u64>) -> u64 {
        self.draw.u64(of)
    }

    fn one_of(&mut self, people: Range<usize>) -> SourceId {
        self.people[self.draw.usize(people)].clone()
    }

    /// Generates the follow edges: mostly to users with many followers (a skewed distribution), plus one tag for each user.
    pub fn follows(&mut self) -> Vec<NewEdge> {
        let mut edges = Vec::new();
        for follower in 0..PEOPLE {
            if follower != 0 && (follower == 7 || self.draw.u8(..10) > 0) {
                edges.push(self.edge(follower, self.people[0].clone()));
            }
            for _ in 0..12 {
                let well_known = (self.draw.f64().powi(3) * PEOPLE as f64) as usize;
                if well_known != follower {
                    edges.push(self.edge(follower, self.people[well_known].clone()));
                }
            }
            let tag = TAGS[self.draw.usize(..TAGS.len())];
            edges.push(self.edge(follower, id(&format!("tag:{tag}"))));
        }
        edges.extend((0..PEOPLE - 1).map(|source| self.edge(PEOPLE - 1, self.people[source].clone())));
        edges
    }

    /// Generates the next post. Authors with many followers publish more often.
    pub fn post(&mut self) -> Draft {
        let author = if self.draw.u8(..8) == 0 { 0 } else { (self.draw.f64().powi(2) * PEOPLE as f64) as usize };
        let tag = TAGS[self.draw.usize(..TAGS.len())];
        let text = format!("{} {tag}, number {}", OPENINGS[self.draw.usize(..OPENINGS.len())], self.draw.u16(1..1_000));
        let body = Body::new(&serde_json::json!({ "text": text }).to_string()).expect("the text is small JSON");
        let mut post = Draft::new(self.people[author].clone(), body);
        if self.draw.bool() {
            post.tags = vec![id(&format!("tag:{tag}"))];
        }
        post
    }

    fn edge(&self, follower: usize, source: SourceId) -> NewEdge {
        NewEdge::new(self.people[follower].clone(), source)
    }
}

fn id(text: &str) -> SourceId {
    SourceId::new(text).expect("generated names are ids")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_same_seed_gives_the_same_world_with_one_celebrity() {
        let (mut one, mut same) = (DemoWorld::new(3), DemoWorld::new(3));
        let edges = one.follows();
        assert_eq!(edges, same.follows());
        assert_eq!(one.post(), same.post());
        assert_eq!(one.people.iter().collect::<BTreeSet<_>>().len(), PEOPLE);
        let followers = |source: &SourceId| {
            edges.iter().filter(|edge| edge.source == *source).map(|edge| &edge.follower).collect::<BTreeSet<_>>().len()
        };
        let celebrities: Vec<_> =
            one.people.iter().filter(|person| followers(person) as u64 > CELEBRITY_FOLLOWERS).collect();
        assert_eq!(celebrities, [one.celebrity()]);
        const { assert!(FREQUENT.end <= SELDOM.start && SELDOM.end < PEOPLE, "some never read") };
    }
}
