//! Messages a second, and that none is lost.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::audience::Audience;
use crate::figures::heading;
use crate::http::{Http, ORDINARY_BYTES, text, users};
use crate::server::Server;
use crate::settings::Settings;

/// How long a publisher waits that was refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// What all publishers have done.
#[derive(Default)]
struct Published {
    posts: Cell<usize>,
    refused: Cell<usize>,
}

/// Publishes as fast as the server accepts, but no further ahead of the slowest follower than the window: without it, clients
/// that share the machine with the server would sooner or later be cut off.
pub async fn measure(settings: &Settings) {
    let server = Server::start(settings).await;
    let readers = users("reader", settings.audience);
    Http::open(server.address).await.unwrap().follow(&readers, "author").await;
    let audience = Rc::new(Audience::default());
    let _listening = audience.connect(server.address, &readers).await;

    let before = server.processor_times();
    let began = Instant::now();
    let until = began + Duration::from_secs(settings.seconds as u64);
    let published = Rc::new(Published::default());
    let mut publishers = JoinSet::new();
    for _ in 0..settings.publishers {
        let http = Http::open(server.address).await.unwrap();
        let (audience, published) = (Rc::clone(&audience), Rc::clone(&published));
        publishers.spawn_local(publish(http, until, settings.window, audience, published));
    }
    while let Some(ended) = publishers.join_next().await {
        ended.unwrap();
    }
    let all_heard = audience.hears(published.posts.get()).await;
    let took = began.elapsed().as_secs_f64();

    let (posts, messages) = (published.posts.get(), audience.messages());
    heading(
        "followers online | publishers | window | posts/s | messages/s | refused | lost | troubles | \
         CPU per message, server and client",
    );
    println!(
        "| {} | {} | {} | {:.0} | {:.0} | {} | {} | {} | {} |",
        settings.audience,
        settings.publishers,
        settings.window,
        posts as f64 / took,
        messages as f64 / took,
        published.refused.get(),
        if all_heard { 0 } else { (posts * settings.audience) as i64 - messages as i64 },
        audience.troubles(),
        server.processor_times().since(before, messages),
    );
}

async fn publish(mut http: Http, until: Instant, window: usize, audience: Rc<Audience>, published: Rc<Published>) {
    let text = text(ORDINARY_BYTES);
    while Instant::now() < until {
        if window > 0 && published.posts.get() >= audience.complete() + window {
            // Nothing is missed in between: all take turns on one thread. A follower that is gone ends the wait too.
            let _ = tokio::time::timeout_at(until.into(), audience.grows()).await;
            continue;
        }
        // Counted before, so that all publishers together keep within the window.
        published.posts.set(published.posts.get() + 1);
        if !http.publish("author", &text).await {
            published.posts.set(published.posts.get() - 1);
            published.refused.set(published.refused.get() + 1);
            tokio::time::sleep(REFUSED_PAUSE).await;
        }
    }
}
