//! What clients that stop reading cost the others.

use std::rc::Rc;
use std::time::Instant;

use tokio::task::JoinSet;

use crate::audience::Audience;
use crate::figures::{heading, mebibytes};
use crate::http::{Http, text, users};
use crate::pace::Pace;
use crate::server::Server;
use crate::settings::Settings;
use crate::socket::{Reads, Socket};

/// Rounds without and with them take turns, since the machine is not the same from one minute to the next.
pub async fn measure(settings: &Settings) {
    let server = Server::start(settings).await;
    let mut http = Http::open(server.address).await.unwrap();
    let (healthy, stalled) = (users("healthy", settings.healthy), users("stalled", settings.stalled));
    http.follow(&healthy, "author").await;
    http.follow(&stalled, "author").await;
    let audience = Rc::new(Audience::default());
    let _listening = audience.connect(server.address, &healthy).await;

    let before_bytes = server.resident_bytes();
    let cut_off_before = cut_off(&mut http).await;
    let post = text(settings.body_bytes);
    let (mut without, mut with) = (Pace::new(), Pace::new());
    for _ in 0..settings.rounds {
        without.publish(&mut http, "author", &post, settings.round_posts, &audience).await;
        let known = cut_off(&mut http).await;
        let silent = stall(&server, &stalled).await;
        with.publish(&mut http, "author", &post, settings.round_posts, &audience).await;
        // On with it, so that they fall behind further, until all are cut off.
        let until = Instant::now() + settings.cut_off_patience;
        while cut_off(&mut http).await < known + silent.len() as u64 && Instant::now() < until {
            Pace::new().publish(&mut http, "author", &post, 1, &audience).await;
        }
    }
    let cut_off = cut_off(&mut http).await - cut_off_before;

    heading(&format!("{} healthy clients, posts of {} B | {}", settings.healthy, settings.body_bytes, Pace::COLUMNS));
    println!("| alone | {} |", without.cells());
    println!("| beside {} stalled ones | {} |", settings.stalled, with.cells());
    println!(
        "\nOf {} stalled clients {cut_off} were cut off. Resident {} before, {} after, {} at most. Troubles of the \
         healthy ones: {}.",
        settings.stalled * settings.rounds,
        mebibytes(before_bytes),
        mebibytes(server.resident_bytes()),
        mebibytes(server.peak_bytes()),
        audience.troubles(),
    );
}

/// Connects clients that read `hello`, and no more as long as they are kept.
async fn stall(server: &Server, users: &[String]) -> Vec<Socket> {
    let nobody = Rc::new(Audience::default());
    let mut opening = JoinSet::new();
    for (nth, user) in users.iter().enumerate() {
        opening.spawn_local(Socket::open(server.address, user.clone(), nth, Reads::NoMore, Rc::clone(&nobody)));
    }
    let opened = opening.join_all().await.into_iter();
    opened.map(|socket| socket.unwrap_or_else(|cause| panic!("cannot connect: {cause}"))).collect()
}

/// How many clients the server has cut off so far.
async fn cut_off(http: &mut Http) -> u64 {
    http.stats().await["live"]["cut_off"].as_u64().expect("the statistics tell how many clients were cut off")
}
