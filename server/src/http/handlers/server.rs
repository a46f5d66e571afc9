//! Server operations: statistics, snapshots, and verification of feeds.

use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "cluster")]
use std::time::Duration;
use std::time::Instant;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

use crate::backup::figures::{BackupFigures, BackupRun};
use crate::build_info;
#[cfg(feature = "cluster")]
use crate::http::admission::turn::Turn;
use crate::http::admission::{Admission, Gate};
#[cfg(feature = "cluster")]
use crate::http::cluster::Peers;
use crate::http::engine_cell::{EngineCell, ReadyEngine};
use crate::http::handlers::readiness;
use crate::http::problem::Problem;
use crate::http::process::resident_bytes;
use crate::http::request::{Parameters, path};
use tidewire::clock::UnixMicros;
#[cfg(feature = "cluster")]
use tidewire::cluster::placement::{GoneNode, NodeInfo};
use tidewire::engine::{Engine, QueueDepth};
use tidewire::feed::cursor;
use tidewire::feed::position::Position;
use tidewire::id::{PostId, SourceId};
use tidewire::recovery::RecoveryReport;
use tidewire::runtime::fanout::latency::AudienceLatency;
use tidewire::runtime::hybrid_logical_clock::ClockReport;
use tidewire::runtime::message::SnapshotTaken;
use tidewire::state::verify::Verdict;
use tidewire::storage::disk_use::StoredBytes;
use tidewire::storage::journal::reader::{Lost, Torn};
use tidewire::storage::journal::writer::JournalFigures;
#[cfg(feature = "cluster")]
use tidewire::storage::sequence::Sequence;

/// Handles `POST /v1/snapshots`.
pub(in crate::http) async fn snapshot(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    Ok(HttpResponse::Created().json(snapshot_figures(&engine.snapshot().await?)))
}

/// Handles `POST /v1/users/{user}/feed/verify`.
pub(in crate::http) async fn verify(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    Ok(HttpResponse::Ok().json(verdict(&engine.verify_feed(&path::<SourceId>(&request, "user")?, false).await?)))
}

/// Handles `POST /v1/users/{user}/feed/rebuild`.
pub(in crate::http) async fn rebuild(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    Ok(HttpResponse::Ok().json(verdict(&engine.verify_feed(&path::<SourceId>(&request, "user")?, true).await?)))
}

fn verdict(verdict: &Verdict) -> Value {
    let named = |posts: &[PostId]| posts.iter().map(PostId::to_string).collect::<Vec<_>>();
    let is_cut = verdict.floor > Position::MIN;
    json!({
        "good": verdict.is_good(),
        "entries": verdict.entries,
        "rebuilt": verdict.rebuilt,
        "floor": is_cut.then(|| cursor::encode(verdict.floor)),
        "missing": named(&verdict.missing),
        "extra": named(&verdict.extra),
        "under_way": verdict.under_way,
        "stale": verdict.stale,
    })
}

/// Handles `GET /v1/stats`. With `?inboxes=count`, includes figures that require a traversal of all inboxes.
pub(in crate::http) async fn stats(
    request: HttpRequest,
    engine: ReadyEngine,
    engine_cell: Data<EngineCell>,
    admission: Data<Admission>,
    backups: Data<BackupFigures>,
) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["inboxes", "node"])?;
    let count_inboxes = parameters.flag("inboxes", "count")?;
    check_node(&request, &parameters)?;
    let mut stats = figures(&engine);
    stats["writes_refused"] = json!(readiness::writes_refused(&engine, readiness::placement(&request)));
    stats["backups"] = json!(backup_figures(&backups, engine.shared().clock.now()));
    stats["recovery"] = json!(engine_cell.report().map(recovery));
    let gate = |gate: &Gate| {
        let figures = json!({"under_way": gate.taken(), "limit": gate.limit, "refused": gate.refused()});
        (gate.name.to_owned(), figures)
    };
    stats["admission"] = admission.gates().into_iter().map(gate).collect();
    if count_inboxes {
        let totals = engine.inbox_totals().await;
        stats["inboxes"] = json!({"count": totals.inboxes, "entries": totals.entries, "bytes": totals.bytes});
    }
    Ok(HttpResponse::Ok().json(stats))
}

/// Handles `GET /v1/cluster`. With `?digest=true`, includes the digest of the state, which requires a traversal of the whole state.
#[cfg(feature = "cluster")]
pub(in crate::http) async fn cluster(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["digest", "delivered"])?;
    let (has_digest, delivered) = (parameters.truth("digest")?, parameters.number("delivered")?);
    let peers = request.app_data::<Data<Peers>>().ok_or_else(no_cluster)?;
    let placement = peers.cluster().placement();
    if let Some(sequence) = delivered
        && !Turn::of(&request)?.wait(peers.cluster().has_delivered(&engine, Sequence(sequence))).await?
    {
        let detail = format!("this node has not delivered all posts up to {sequence} yet");
        return Err(Problem::unavailable("not_applied_yet", detail).retry_soon());
    }
    let view = placement.view();
    let in_ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let node = |node: &NodeInfo| {
        let heard_ms = node.heard_ago.map(in_ms);
        json!({"name": node.name, "address": node.address, "partitions": node.partitions, "heard_ms": heard_ms})
    };
    let gone = |gone: &GoneNode| json!({"name": gone.name, "address": gone.address, "gone_ms": in_ms(gone.gone_ago)});
    let mut answer = json!({
        "node": placement.me(),
        "epoch": view.epoch,
        "sequencer": view.sequencer,
        "applied": placement.applied(),
        "partitions": view.partitions,
        "nodes": view.nodes.iter().map(node).collect::<Vec<_>>(),
        "gone": view.gone.iter().map(gone).collect::<Vec<_>>(),
        "session_ms": in_ms(view.session),
        "beat_ms": in_ms(view.heartbeat),
    });
    if has_digest && let Some((sequence, digest)) = peers.cluster().digest(&engine).await {
        answer["world"] = json!({"sequence": sequence, "digest": digest.to_string()});
    }
    Ok(HttpResponse::Ok().json(answer))
}

/// Handles `GET /v1/cluster`.
#[cfg(not(feature = "cluster"))]
pub(in crate::http) async fn cluster(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["digest", "delivered"])?;
    parameters.truth("digest")?;
    parameters.number("delivered")?;
    Err(no_cluster())
}

/// Refuses a request that names a cluster node, if there is no cluster. In a cluster, such a request was forwarded to that node.
pub(super) fn check_node(request: &HttpRequest, parameters: &Parameters<'_>) -> Result<(), Problem> {
    let is_alone = readiness::placement(request).is_none();
    if is_alone && parameters.text("node").is_some() { Err(no_cluster()) } else { Ok(()) }
}

fn no_cluster() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no_cluster", "this server is not part of a cluster")
}

fn figures(engine: &Engine) -> Value {
    let shared = engine.shared();
    let (levels, counters) = (engine.figures(), &shared.counters);
    let queue = |queue: QueueDepth| (queue.name.to_owned(), json!({"depth": queue.depth, "limit": queue.limit}));
    let queues: serde_json::Map<String, Value> = engine.queues().into_iter().map(queue).collect();
    let latencies = shared.fanout_latency.lock().figures(Instant::now());
    let now = shared.clock.now();
    json!({
        "version": build_info::VERSION,
        "commit": build_info::COMMIT,
        "uptime_seconds": shared.started.elapsed().as_secs(),
        "users": levels.sources,
        "active": levels.active,
        "edges": levels.edges,
        "posts": levels.posts,
        "published": counters.published.get(),
        "deliveries": counters.deliveries.get(),
        "duplicate_deliveries": counters.duplicates.get(),
        "deliveries_below_floor": counters.below_floor.get(),
        "pages": counters.pages.get(),
        "partial_pages": counters.partial_pages.get(),
        "archive_read_failures": shared.world.read_failures.count(),
        "wakes": counters.wakes.get(),
        "sleeps": counters.sleeps.get(),
        "user_crashes": counters.user_crashes.get(),
        "shed": counters.shed.get(),
        "live": {
            "connections": levels.live_connections,
            "readers": levels.watched_readers,
            "messages": counters.live_messages.get(),
            "cut_off": counters.live_cut_off.get(),
        },
        "erasures": erasures(engine),
        "clock": clock(&shared.clock_report, now),
        "queues": queues,
        "fanout_latency": latencies.iter().map(audience_latency).collect::<Vec<_>>(),
        "memory": {
            "resident_bytes": resident_bytes(),
            "posts_bytes": levels.posts_bytes,
            "sources_bytes": levels.sources_bytes,
            "inboxes_bytes": levels.inboxes_bytes,
            "reposts_bytes": levels.reposts_bytes,
        },
        "journal": engine.journal().map(|journal| journal_figures(&journal)),
        "disk_free_bytes": engine.disk_free_bytes(),
        "stored_bytes": engine.stored_bytes().map(stored_bytes),
        "snapshots": engine.snapshots().iter().map(|taken| aged(taken, now)).collect::<Vec<_>>(),
    })
}

/// Returns the figures of backups, if there are any.
fn backup_figures(backups: &BackupFigures, now: UnixMicros) -> Option<Value> {
    let interval = backups.interval_seconds()?;
    let number = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let from = backups.restorable_from.load(Ordering::Relaxed);
    Some(json!({
        "interval_seconds": interval,
        "age_seconds": backups.age_seconds(now),
        "count": number(&backups.backups),
        "stored_bytes": number(&backups.stored_bytes),
        "sent_bytes": number(&backups.sent_bytes),
        "restorable_from": (from > 0).then(|| UnixMicros(from).to_string()),
        "restorable_to": (from > 0).then(|| backups.complete_at().to_string()),
        "failures": number(&backups.failures),
        "failing": backups.is_failing.load(Ordering::Relaxed),
        "runs": backups.runs().iter().map(run).collect::<Vec<_>>(),
    }))
}

fn run(BackupRun { started_at, took, sent_bytes, error }: &BackupRun) -> Value {
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    json!({"started_at": started_at.to_string(), "took_ms": took_ms, "sent_bytes": sent_bytes, "error": error})
}

/// Returns the figures of user erasures in progress.
fn erasures(engine: &Engine) -> Value {
    let erasures = engine.erasures();
    json!({"under_way": erasures.count, "oldest_seconds": erasures.oldest_seconds})
}

/// Returns the current time and the clock jumps since the start.
fn clock(report: &ClockReport, now: UnixMicros) -> Value {
    json!({
        "now": now.to_string(),
        "jumps_ahead": report.jumps_ahead.get(),
        "jumps_back": report.jumps_back.get(),
        "last_jump_seconds": report.last_jump_seconds(),
        "lead_seconds": report.drift_seconds(),
    })
}

/// Returns the recovery report of the last start.
fn recovery(report: &RecoveryReport) -> Value {
    let cut = |torn: &Torn| {
        json!({
            "segment": torn.place,
            "after_byte": torn.good_bytes,
            "bytes": torn.torn_bytes,
            "whole_events": torn.whole_behind,
        })
    };
    let lost = |lost: &Lost| {
        let through = lost.until.map(|until| until.0.saturating_sub(1));
        json!({"from": lost.from, "through": through, "segment": lost.place, "reason": lost.reason})
    };
    json!({
        "snapshot": report.snapshot,
        "skipped": report.skipped,
        "events": report.events,
        "cut": report.torn.as_ref().map(cut),
        "lost": report.lost.iter().map(lost).collect::<Vec<_>>(),
    })
}

fn stored_bytes(StoredBytes { journal, changes, snapshots, archive, other }: StoredBytes) -> Value {
    json!({"journal": journal, "changes": changes, "snapshots": snapshots, "archive": archive, "other": other})
}

fn snapshot_figures(SnapshotTaken { file, sequence, bytes, taken_at }: &SnapshotTaken) -> Value {
    json!({"file": file, "sequence": sequence, "bytes": bytes, "taken_at": taken_at.to_string()})
}

fn aged(taken: &SnapshotTaken, now: UnixMicros) -> Value {
    let mut figures = snapshot_figures(taken);
    // The age is never negative, even if the clock was set back.
    figures["age_seconds"] = json!(now.0.saturating_sub(taken.taken_at.0).max(0) / 1_000_000);
    figures
}

fn audience_latency(latency: &AudienceLatency) -> Value {
    let AudienceLatency { followers, count, p50_us, p99_us, max_us } = latency;
    json!({"followers": followers, "count": count, "p50_us": p50_us, "p99_us": p99_us, "max_us": max_us})
}

fn journal_figures(journal: &JournalFigures) -> Value {
    let number = |number: &AtomicU64| number.load(Ordering::Relaxed);
    json!({
        "sequence": journal.committed.last().0,
        "written_bytes": number(&journal.written_bytes),
        "commits": number(&journal.commits),
    })
}
