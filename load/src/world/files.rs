//! Reads a world from files of real follow edges and of recorded activity.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use tidewire_server::cli::lines::{Lines, ReadError};

use crate::operation::User;
use crate::world::World;

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A line cannot be parsed.
    #[error("{file}, line {line}: {what}")]
    Line {
        /// The path of the file.
        file: String,
        /// The line number, from 1.
        line: u64,
        /// Description of the error in the line.
        what: String,
    },
    /// The file has no usable line.
    #[error("{file} holds no {what}")]
    Empty {
        /// The path of the file.
        file: String,
        /// The content that the file should have.
        what: &'static str,
    },
}

/// Numbers users in the order in which they appear.
#[derive(Debug, Default)]
struct Numbers(HashMap<String, User>);

impl Numbers {
    fn of(&mut self, name: &str) -> User {
        let next = self.0.len() as User;
        match self.0.get(name) {
            Some(user) => *user,
            None => *self.0.entry(name.to_owned()).or_insert(next),
        }
    }
}

/// Reads a world: each line of `follows` is `follower source`; each line of `activity`, if given, is `author … unix_seconds …`, with at
/// most one post per author and second. Lines that begin with `#` and edges from a user to itself are skipped.
///
/// # Errors
/// If a file cannot be read, or a line cannot be parsed.
pub fn read(
    follows: &Path,
    activity: Option<&Path>,
    active_share: f64,
    rng: &mut fastrand::Rng,
) -> Result<World, FileError> {
    let mut numbers = Numbers::default();
    let edges = read_edges(follows, &mut numbers)?;
    let activity = activity.map(|file| read_activity(file, &mut numbers)).transpose()?.unwrap_or_default();
    Ok(World { activity, ..World::new(numbers.0.len(), &edges, active_share, rng) })
}

fn read_edges(file: &Path, numbers: &mut Numbers) -> Result<Vec<(User, User)>, FileError> {
    let mut edges = HashSet::new();
    for_each_line(file, |words| {
        let [follower, source] = words else { return Err("expected `follower source`".to_owned()) };
        let edge = (numbers.of(follower), numbers.of(source));
        if edge.0 != edge.1 {
            edges.insert(edge);
        }
        Ok(())
    })?;
    if edges.is_empty() {
        return Err(FileError::Empty { file: file.display().to_string(), what: "edges" });
    }
    // The order of a set differs from run to run.
    let mut edges: Vec<_> = edges.into_iter().collect();
    edges.sort_unstable();
    Ok(edges)
}

fn read_activity(file: &Path, numbers: &mut Numbers) -> Result<Vec<(u64, User)>, FileError> {
    let mut posts = HashSet::new();
    for_each_line(file, |words| {
        let [author, _, second, ..] = words else { return Err("expected `author other unix_seconds`".to_owned()) };
        let second: u64 = second.parse().map_err(|_| format!("`{second}` is not a number of seconds"))?;
        posts.insert((second, numbers.of(author)));
        Ok(())
    })?;
    let mut posts: Vec<_> = posts.into_iter().collect();
    posts.sort_unstable();
    let Some(&(first, _)) = posts.first() else {
        return Err(FileError::Empty { file: file.display().to_string(), what: "posts" });
    };
    Ok(posts.into_iter().map(|(second, author)| ((second - first).saturating_mul(1_000), author)).collect())
}

fn for_each_line(file: &Path, mut each: impl FnMut(&[&str]) -> Result<(), String>) -> Result<(), FileError> {
    for line in Lines::open(file)? {
        let line = line?;
        let wrong = |what: String| FileError::Line { file: file.display().to_string(), line: line.number, what };
        let text = line.text.as_deref().map_err(|what| wrong((*what).to_owned()))?;
        let words: Vec<&str> = text
            .split([' ', '\t', ','])
            .filter(|word| !word.is_empty())
            .take_while(|word| !word.starts_with('#'))
            .collect();
        if !words.is_empty() {
            each(&words).map_err(wrong)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use tempfile::NamedTempFile;

    fn file(text: &str) -> NamedTempFile {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn read_texts(follows: &str, activity: &str) -> Result<World, FileError> {
        let (follows, activity) = (file(follows), file(activity));
        let mut rng = fastrand::Rng::with_seed(1);
        read(follows.path(), Some(activity.path()), 1.0, &mut rng)
    }

    #[test]
    fn user_names_become_the_same_numbers_in_both_files() {
        let world = read_texts(
            "# who follows whom\nann bob\nbob\tann\ncas,bob\ncas cas\nann bob\n",
            "bob x 105 RT\nann y 100 RE\nbob z 105 MT\n",
        );
        let world = world.unwrap();
        assert_eq!(world.edges().len(), 3);
        assert_eq!(world.activity, [(0, 0), (5_000, 1)]);
    }

    #[test]
    fn errors_name_the_line() {
        for (follows, activity, wrong) in [
            ("a b\na\n", "a b 1", "line 2: expected `follower source`"),
            ("a b c\n", "a b 1", "line 1: expected `follower source`"),
            ("# nothing\n", "a b 1", "holds no edges"),
            ("a b\n", "a b soon\n", "line 1: `soon` is not a number of seconds"),
            ("a b\n", "", "holds no posts"),
        ] {
            let message = read_texts(follows, activity).unwrap_err().to_string();
            assert!(message.contains(wrong), "{message}");
        }
    }
}
