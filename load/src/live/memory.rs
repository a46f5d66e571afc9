//! The server's memory for each idle connection.

use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::audience::Audience;
use crate::figures::{heading, mebibytes};
use crate::http::{Http, users};
use crate::server::Server;
use crate::settings::Settings;

/// Connections that wake readers.
const WAKERS: usize = 8;

/// How long the server gets to put away what it does not need any more.
const SETTLING: Duration = Duration::from_secs(2);

/// Who connects is woken anyway, so all are woken before: what is left is the connection's own.
pub async fn measure(settings: &Settings) {
    let server = Server::start(settings).await;
    let readers = Rc::new(users("reader", settings.idle));
    Http::open(server.address).await.unwrap().follow(&readers, "author").await;
    let asleep = server.resident_bytes();
    wake(&server, &readers).await;
    settle(settings).await;
    let awake = server.resident_bytes();
    let audience = Rc::new(Audience::default());
    let _listening = audience.connect(server.address, &readers).await;
    settle(settings).await;
    let connected = server.resident_bytes();
    tokio::time::sleep(settings.hold).await;
    let held = server.resident_bytes();

    let each = |more: u64, less: u64| (more as f64 - less as f64) / settings.idle as f64;
    let seconds = settings.hold.as_secs();
    heading(&format!(
        "idle connections | resident before | awake reader | connection | after {seconds} s | pings answered | troubles"
    ));
    println!(
        "| {} | {} | {:.0} B | {:.0} B | {:.0} B | {} | {} |",
        settings.idle,
        mebibytes(asleep),
        each(awake, asleep),
        each(connected, awake),
        each(held, awake),
        audience.pings(),
        audience.troubles(),
    );
}

async fn settle(settings: &Settings) {
    tokio::time::sleep(SETTLING.min(settings.hold)).await;
}

async fn wake(server: &Server, readers: &Rc<Vec<String>>) {
    let mut waking = JoinSet::new();
    for waker in 0..WAKERS {
        let mut http = Http::open(server.address).await.unwrap();
        let readers = Rc::clone(readers);
        waking.spawn_local(async move {
            for reader in readers.iter().skip(waker).step_by(WAKERS) {
                let (status, _) = http.send("GET", &format!("/v1/users/{reader}/feed"), "").await.unwrap();
                assert_eq!(status, 200, "GET /v1/users/{reader}/feed");
            }
        });
    }
    while let Some(woken) = waking.join_next().await {
        woken.unwrap();
    }
}
