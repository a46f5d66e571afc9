//! `tidewire demo`: a server with a small generated data set, whose users publish, read, follow, mute and watch. Its data directory is
//! temporary.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use actix_web::rt::System;
use tokio::sync::oneshot;

use crate::cli::demo_load::DemoLoad;
use crate::cli::demo_world::{CELEBRITY_FOLLOWERS, DemoWorld, PEOPLE};
use crate::cli::serve::raise_open_files;
use crate::cli::settings::{listen_address, reachable};
use crate::cli::{Outcome, terminal};
use crate::console::PATH as OVERVIEW;
use crate::http::auth::cors::Origins;
use crate::http::auth::{Access, AccessOptions, mint};
use crate::http::serve;
use crate::http::state::HttpState;
use tidewire::clock::{Clock as _, SystemClock};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::error::StorageError;
use tidewire::storage::journal::Durability;
use tidewire::storage::journal::writer::JournalOptions;

/// Number of posts at the start, one for each minute before the start.
const POSTS_BEFORE: u64 = 400;

/// Time after its last read at which a reader falls asleep. It is short, so that people see readers sleep and wake.
const ACTIVE_WINDOW: Duration = Duration::from_secs(90);

/// Arguments of `tidewire demo`.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Address and port to serve on
    #[arg(long, env = "TIDEWIRE_LISTEN", value_name = "ADDRESS:PORT", value_parser = listen_address, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// TOML file with the keys that requests need [default: none; then only on loopback]
    #[arg(long, env = "TIDEWIRE_ACCESS", value_name = "FILE")]
    access: Option<PathBuf>,

    /// Other origins whose pages may use the server, separated by commas [default: none]
    #[arg(long, env = "TIDEWIRE_CORS_ORIGINS", value_name = "ORIGINS")]
    cors_origins: Option<Origins>,

    /// Seconds after which the demo stops [default: run until Ctrl-C]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

impl Demo {
    /// Serves the generated data until it is stopped.
    pub(crate) fn run(self) -> Outcome {
        if let Some(refusal) = Access::refusal_to_listen(("--listen", self.listen), self.access.as_deref()) {
            return Ok(terminal::refuse(&refusal));
        }
        raise_open_files();
        let has_keys = self.access.is_some();
        let origins = self.cors_origins.unwrap_or_default();
        let access = Access::open(AccessOptions { file: self.access, origins, ..AccessOptions::default() })?;
        // If the server has keys, the users of the demo need one.
        let key = if has_keys { Some(mint::server_key()?) } else { None };
        let access = Arc::new(key.iter().fold(access, |access, key| access.with_own_key(key)));
        let listener = serve::bind(self.listen)?;
        let listen = listener.local_addr()?;
        let celebrity = NonZeroU64::new(CELEBRITY_FOLLOWERS).map_or(CelebrityPolicy::PushAll, CelebrityPolicy::Above);
        let config = EngineConfig { celebrity, active_window: ACTIVE_WINDOW, ..EngineConfig::default() };
        let directory = {
            let mut directory = tempfile::Builder::new();
            #[cfg(unix)]
            directory.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
            directory.prefix("tidewire-demo-").tempdir()?
        };
        let engine = open(config, directory.path())?;
        System::new().block_on(async move {
            let mut world = DemoWorld::new(1);
            populate(&engine, &mut world).await?;
            introduce(&world, reachable(listen), has_keys);
            // Its first requests wait in the queue of the listener until the server accepts connections.
            let _load = DemoLoad::start(&world, format!("http://{}", reachable(listen)), key.as_deref())?;
            let (_alive, failed) = oneshot::channel();
            let state = HttpState { access, ..HttpState::from(engine) };
            serve::run_on(state, listener, self.seconds.map(Duration::from_secs), failed).await?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Opens an engine on an empty directory. The data does not outlive the demo, so clients do not wait for the disk.
fn open(config: EngineConfig, directory: &Path) -> Result<Engine, StorageError> {
    let journal = JournalOptions { durability: Durability::EverySecond, ..JournalOptions::default() };
    let storage = StorageConfig { directory: directory.to_owned(), journal, ..StorageConfig::default() };
    Engine::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default()).map(|(engine, _)| engine)
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

fn introduce(world: &DemoWorld, listen: SocketAddr, has_keys: bool) {
    let key = if has_keys { " -H 'Authorization: Bearer KEY'" } else { "" };
    let (reader, celebrity) = (world.reader(), world.celebrity());
    terminal::print_line(&format!(
        "\
The console: http://{listen}{OVERVIEW}
A reader with a full feed: http://{listen}/console/readers?user={reader}

It is a small world, in which {PEOPLE} people publish, read, follow, mute and watch. {celebrity} is a celebrity, whose posts are pulled: here above
{CELEBRITY_FOLLOWERS} followers, with `tidewire serve` above 10,000. A third of the people never read, so nothing is pushed to them; about
once a minute many repost the same post. Two commands to try:

  curl{key} 'http://{listen}/v1/users/{reader}/feed?limit=3'
  curl{key} -X POST http://{listen}/v1/posts -H 'Content-Type: application/json' \\
       -d '{{\"author\":\"{celebrity}\",\"body\":{{\"text\":\"hello\"}}}}'

Ctrl-C stops it, and removes its data."
    ));
}
