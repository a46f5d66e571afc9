//! `tidewire demo`: a server with a small generated data set in which users keep publishing.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use actix_web::rt::{self, System};
use tokio::sync::oneshot;

use crate::cli::demo_world::{CELEBRITY_FOLLOWERS, DemoWorld};
use crate::cli::serve::raise_open_files;
use crate::cli::{Outcome, terminal};
use crate::http::auth::{Access, AccessOptions};
use crate::http::serve;
use crate::http::state::HttpState;
use tidewire::clock::{Clock as _, SystemClock};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;

/// Number of posts at the start, one for each minute before the start.
const POSTS_BEFORE: u64 = 400;

/// Interval between two posts after the start.
const PERIOD: Duration = Duration::from_millis(500);

/// Arguments of `tidewire demo`.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Address and port to serve on
    #[arg(long, env = "TIDEWIRE_LISTEN", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// TOML file with the keys that requests need [default: none; then only on loopback]
    #[arg(long, env = "TIDEWIRE_ACCESS", value_name = "FILE")]
    access: Option<PathBuf>,

    /// Stop after so many seconds [default: run until Ctrl-C]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

impl Demo {
    /// Serves the generated data until it is stopped.
    pub(crate) fn run(self) -> Outcome {
        if let Some(refusal) = Access::refusal_to_listen(self.listen, self.access.as_deref()) {
            return Ok(terminal::refuse(&refusal));
        }
        raise_open_files();
        let access = Arc::new(Access::open(AccessOptions { file: self.access, ..AccessOptions::default() })?);
        let listener = serve::bind(self.listen)?;
        let listen = listener.local_addr()?;
        let celebrity = NonZeroU64::new(CELEBRITY_FOLLOWERS).map_or(CelebrityPolicy::PushAll, CelebrityPolicy::Above);
        let engine = Engine::start(EngineConfig { celebrity, ..EngineConfig::default() });
        System::new().block_on(async move {
            let mut world = DemoWorld::new(1);
            populate(&engine, &mut world).await?;
            introduce(&world, listen);
            rt::spawn(keep_publishing(engine.clone(), world));
            let (_alive, failed) = oneshot::channel();
            let state = HttpState { access, ..HttpState::from(engine) };
            serve::run_on(state, listener, self.seconds.map(Duration::from_secs), failed).await?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

async fn populate(engine: &Engine, world: &mut DemoWorld) -> Result<(), Error> {
    engine.follow(world.follows()).await?;
    let now = SystemClock.now();
    for minutes in (1..=POSTS_BEFORE).rev() {
        let published_at = Some(now.saturating_sub(Duration::from_secs(60 * minutes)));
        engine.publish(tidewire::feed::post::Draft { published_at, ..world.post() }, true).await?;
    }
    Ok(())
}

async fn keep_publishing(engine: Engine, mut world: DemoWorld) {
    loop {
        rt::time::sleep(PERIOD).await;
        match engine.publish(world.post(), false).await {
            Ok(_) => {}
            Err(busy) if busy.is_temporary() && busy != Error::ShuttingDown => {}
            Err(_) => return,
        }
    }
}

fn introduce(world: &DemoWorld, listen: SocketAddr) {
    let (reader, celebrity) = (world.reader(), world.celebrity());
    terminal::print_line(&format!(
        "\
A small world is being served, and somebody in it publishes twice a second. Try:

  http://{listen}/v1/users/{reader}/feed?limit=5      somebody's feed
  http://{listen}/v1/users/{celebrity}/posts?limit=5   the page of a celebrity, whose posts are pulled
  http://{listen}/v1/stats                           what the server is doing

Publish something yourself:

  curl -X POST http://{listen}/v1/posts -H 'Content-Type: application/json' \\
       -d '{{\"author\":\"{celebrity}\",\"body\":{{\"text\":\"hello\"}}}}'

Ctrl-C stops it."
    ));
}
