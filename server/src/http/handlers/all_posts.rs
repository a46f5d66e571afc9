//! All posts in pages, by ascending id, to build an index of them: `GET /v1/posts/all`.
//!
//! Responsible for:
//! - the ids of all posts in memory: collecting them with the first page, for all pages of a minute, and forgetting them afterwards.
//!
//! Not responsible for:
//! - which posts a page has (the engine), what is accepted meanwhile (`http::changes`).

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::rt;
use actix_web::rt::time::sleep;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use tokio::sync::Mutex;

use crate::http::admission::turn::Turn;
use crate::http::answer;
use crate::http::engine_cell::ReadyEngine;
use crate::http::problem::Problem;
use crate::http::request::{Parameters, invalid_parameter};
use tidewire::engine::{Engine, PostIds};
use tidewire::error::Error;
use tidewire::id::PostId;
use tidewire::limits::{POSTS_PAGE_BYTES, POSTS_PAGE_DEFAULT, POSTS_PAGE_MAX};
use tidewire::state::all_posts::{PostsBounds, PostsPage};

/// Time for which the ids that were collected are used, and after which they are forgotten. The journal must reach back so far and as long as
/// the pages take.
const IDS_KEPT: Duration = Duration::from_secs(60);

/// Time between two collections: so long a first page waits after another one, so that many of them do not keep the server busy.
const IDS_PAUSE: Duration = Duration::from_secs(1);

/// The ids of all posts in memory, while somebody reads pages of them: 8 bytes for each post, once for all requests.
#[derive(Default)]
pub struct ListedIds(Mutex<Option<Collected>>);

struct Collected {
    ids: Arc<PostIds>,
    at: Instant,
}

impl ListedIds {
    /// Returns ids that were collected since this request came, or, unless it `begins` to read all pages, within the last minute. Requests
    /// wait for each other meanwhile, so that one collection serves all that wait.
    async fn get(listed: Arc<Self>, engine: Engine, begins: bool) -> Result<Arc<PostIds>, Error> {
        let came = Instant::now();
        let mut collected = listed.0.lock().await;
        while let Some(Collected { ids, at }) = &*collected {
            if *at >= came || (!begins && at.elapsed() < IDS_KEPT) {
                return Ok(Arc::clone(ids));
            }
            let rest = IDS_PAUSE.saturating_sub(at.elapsed());
            if rest.is_zero() {
                break;
            }
            // Further pages need the ids meanwhile.
            drop(collected);
            sleep(rest).await;
            collected = listed.0.lock().await;
        }
        let at = Instant::now();
        let ids = Arc::new(engine.post_ids().await?);
        *collected = Some(Collected { ids: Arc::clone(&ids), at });
        drop(collected);
        rt::spawn(Self::forget(Arc::clone(&listed)));
        Ok(ids)
    }

    async fn forget(listed: Arc<Self>) {
        sleep(IDS_KEPT).await;
        let mut collected = listed.0.lock().await;
        // They may have been collected anew.
        if collected.as_ref().is_some_and(|collected| collected.at.elapsed() >= IDS_KEPT) {
            *collected = None;
        }
    }
}

/// Handles `GET /v1/posts/all`.
pub(in crate::http) async fn list(
    request: HttpRequest,
    engine: ReadyEngine,
    listed: Data<ListedIds>,
) -> Result<HttpResponse, Problem> {
    let bounds = bounds(&Parameters::read(&request, &["after", "limit"])?)?;
    let collecting = ListedIds::get(listed.into_inner(), Engine::clone(&engine), bounds.after.is_none());
    // In a task of its own, so that clients who leave and ask again find the ids, in place of collecting them once more.
    let ids = Turn::of(&request)?.wait(rt::spawn(collecting)).await?.map_err(|_| Error::ShuttingDown)??;
    let page = engine.posts_after(Arc::clone(&ids), bounds).await?;
    Ok(answer::json_text(json(&page, &ids)))
}

fn bounds(parameters: &Parameters<'_>) -> Result<PostsBounds, Problem> {
    let parse = |text: &str| text.parse().map_err(|cause| invalid_parameter("after", &format!("{text:?}: {cause}")));
    let after: Option<PostId> = parameters.text("after").map(parse).transpose()?;
    let limit = parameters.limit_of(POSTS_PAGE_DEFAULT, POSTS_PAGE_MAX)?;
    Ok(PostsBounds { after, limit, bytes: POSTS_PAGE_BYTES })
}

// Ids contain no character that JSON escapes. Writing to a `String` cannot fail.
fn json(page: &PostsPage, ids: &PostIds) -> String {
    let PostsPage { posts, unreadable, next } = page;
    let mut json = String::from(r#"{"posts":"#);
    answer::push_array(&mut json, posts, |json, post| json.push_str(post.json()));
    json.push_str(r#","unreadable":"#);
    answer::push_ids(&mut json, unreadable);
    let (sequence, is_complete) = (ids.sequence(), ids.is_complete());
    let _ = match next {
        Some(next) => write!(json, r#","next":"{next}","sequence":{sequence},"complete":{is_complete}}}"#),
        None => write!(json, r#","next":null,"sequence":{sequence},"complete":{is_complete}}}"#),
    };
    json
}
