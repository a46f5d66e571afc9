//! What a load balancer does for clients: it sends requests to a node once `/readyz` has answered 200, until it answers that the node leaves.
//!
//! It goes on to use a node that does not answer or is not ready any more, so that clients meet each fault.

use std::sync::{Arc, RwLock, Weak};
use std::thread;
use std::time::Duration;

use super::client::{Client, Readiness};

/// The period of its questions. A node that leaves goes on to answer for much longer.
const PERIOD: Duration = Duration::from_millis(20);

/// A balancer that its clients share.
#[derive(Clone)]
pub struct Balancer(Arc<RwLock<Vec<Target>>>);

struct Target {
    url: String,
    is_used: bool,
}

impl Balancer {
    /// Creates a balancer for nodes at these addresses, none of which is used yet, and a thread that asks each of them.
    pub fn start(urls: Vec<String>) -> Self {
        let targets: Vec<Target> = urls.into_iter().map(|url| Target { url, is_used: false }).collect();
        let targets = Arc::new(RwLock::new(targets));
        for node in 0..targets.read().unwrap().len() {
            let targets = Arc::downgrade(&targets);
            thread::spawn(move || ask(node, &targets));
        }
        Self(targets)
    }

    /// Changes the address of a node that starts.
    pub fn set_url(&self, node: usize, url: String) {
        self.0.write().unwrap()[node] = Target { url, is_used: false };
    }

    pub fn url(&self, node: usize) -> String {
        self.0.read().unwrap()[node].url.clone()
    }

    /// Returns the address of a random node that is used, or of any node if none is.
    pub fn any_url(&self, random: &mut fastrand::Rng) -> String {
        let targets = self.0.read().unwrap();
        let used: Vec<&Target> = targets.iter().filter(|target| target.is_used).collect();
        let chosen = random.choice(used).unwrap_or(&targets[random.usize(..targets.len())]);
        chosen.url.clone()
    }
}

/// Asks a node whether it is ready, until nobody needs the balancer any more.
fn ask(node: usize, targets: &Weak<RwLock<Vec<Target>>>) {
    let client = Client::new();
    while let Some(url) = targets.upgrade().map(|targets| targets.read().unwrap()[node].url.clone()) {
        let is_used = match client.readiness(&url) {
            Readiness::Ready => Some(true),
            Readiness::Leaving => Some(false),
            Readiness::Unknown => None,
        };
        if let (Some(is_used), Some(targets)) = (is_used, targets.upgrade()) {
            let target = &mut targets.write().unwrap()[node];
            // Another process may have started in its place.
            if target.url == url {
                target.is_used = is_used;
            }
        }
        thread::sleep(PERIOD);
    }
}
