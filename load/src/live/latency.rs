//! From a publish to the last follower's last byte.

use std::rc::Rc;

use crate::audience::Audience;
use crate::figures::heading;
use crate::http::{Http, ORDINARY_BYTES, text, users};
use crate::pace::Pace;
use crate::server::Server;
use crate::settings::Settings;

/// Each author's followers are readers of its own, and all are connected all the time.
pub async fn measure(settings: &Settings) {
    let server = Server::start(settings).await;
    let mut http = Http::open(server.address).await.unwrap();
    let mut audiences = Vec::new();
    for &followers in &settings.followers {
        let author = format!("author{followers}");
        let readers = users(&format!("reader{followers}-"), followers);
        http.follow(&readers, &author).await;
        let audience = Rc::new(Audience::default());
        let listening = audience.connect(server.address, &readers).await;
        audiences.push((followers, author, audience, listening));
    }
    heading(&format!("followers online | {} | troubles | CPU per message, server and client", Pace::COLUMNS));
    for (followers, author, audience, _listening) in &audiences {
        let mut pace = Pace::new();
        let before = server.processor_times();
        pace.publish(&mut http, author, &text(ORDINARY_BYTES), settings.posts, audience).await;
        let times = server.processor_times().since(before, audience.messages());
        println!("| {followers} | {} | {} | {times} |", pace.cells(), audience.troubles());
    }
}
