//! Metrics for Prometheus (OpenMetrics text format).
//!
//! Responsible for:
//! - names, units and labels of metrics. Every label has a fixed set of values; there are no metrics by user.

#[cfg(feature = "cluster")]
mod cluster;

use std::fmt;
#[cfg(feature = "cluster")]
use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::backup::figures::BackupFigures;
use crate::build_info::{COMMIT, FEATURES, VERSION};
use crate::http::admission::Admission;
use crate::http::auth::Access;
use crate::http::changes::streams::ChangeStreams;
#[cfg(feature = "cluster")]
use crate::http::cluster::{Cluster, Peers};
use crate::http::engine_cell::EngineCell;
use crate::http::handlers::readiness;
use crate::http::problem::Problem;
use crate::http::process::resident_bytes;
use crate::http::request::Parameters;
use crate::http::request_metrics::RequestMetrics;
use crate::http::sockets::connection_slots::Connections;
use crate::peer_error_log;
use tidewire::cluster::placement::Placement;
use tidewire::engine::Engine;
use tidewire::latency::{BOUNDS_US, Latency};
use tidewire::limits::{LIVE_QUEUE_BYTES_MAX, REVOCATIONS_MAX};
use tidewire::runtime::fanout::latency::AUDIENCES;
use tidewire::runtime::hybrid_logical_clock::ClockReport;
use tidewire::storage::archive::RemoteArchive;
use tidewire::storage::disk_use::StoredBytes;
use tidewire::storage::sequence::Sequence;

/// The media type of OpenMetrics text.
pub(in crate::http) const OPENMETRICS: &str = "application/openmetrics-text";

/// The content type with the version and charset that Prometheus expects.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Handles `GET /metrics`.
pub(in crate::http) async fn metrics(
    request: HttpRequest,
    engine_cell: Data<EngineCell>,
    requests: Data<RequestMetrics>,
    admission: Data<Admission>,
    connections: Data<Connections>,
    access: Data<Access>,
    backups: Data<BackupFigures>,
) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let changes = request.app_data::<Data<ChangeStreams>>();
    let changes = changes.cloned().ok_or_else(|| Problem::internal(&"the server has no streams of changes"))?;
    let mut registry = Registry::with_prefix("tidewire");
    let build = [("version", VERSION), ("commit", COMMIT), ("features", FEATURES.as_str())];
    registry.register("build", "Version, commit and features of the program", Info::new(build.to_vec()));
    registry.register_collector(Box::new(Figures {
        engine_cell,
        requests,
        admission,
        connections,
        access,
        backups,
        changes,
        #[cfg(feature = "cluster")]
        cluster: request.app_data::<Data<Peers>>().map(|peers| Arc::clone(peers.cluster())),
    }));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|cause| Problem::internal(&cause))?;
    Ok(HttpResponse::Ok().content_type(CONTENT_TYPE).body(text))
}

/// Collects all metrics of a server.
struct Figures {
    engine_cell: Data<EngineCell>,
    requests: Data<RequestMetrics>,
    admission: Data<Admission>,
    connections: Data<Connections>,
    access: Data<Access>,
    backups: Data<BackupFigures>,
    changes: Data<ChangeStreams>,
    #[cfg(feature = "cluster")]
    cluster: Option<Arc<Cluster>>,
}

impl Figures {
    #[cfg(feature = "cluster")]
    fn placement(&self) -> Option<&dyn Placement> {
        self.cluster.as_deref().map(Cluster::placement)
    }

    #[cfg(not(feature = "cluster"))]
    fn placement(&self) -> Option<&dyn Placement> {
        None
    }
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Figures")
    }
}

impl Collector for Figures {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut sheet = Sheet(encoder);
        sheet.of_requests(self)?;
        #[cfg(feature = "cluster")]
        self.cluster.as_deref().map_or(Ok(()), |cluster| sheet.of_cluster(cluster))?;
        sheet.gauge(
            "ready",
            "1 if the state is recovered and the server answers reads",
            None,
            u64::from(self.engine_cell.engine().is_some()),
        )?;
        match self.engine_cell.engine() {
            Some(engine) => {
                sheet.of_engine(engine)?;
                let refused = readiness::writes_refused(engine, self.placement());
                let reasons = readiness::reasons().map(|reason| (reason, u64::from(refused == Some(reason))));
                sheet.gauges(
                    ("writes_refused", "1 while the server refuses all writes, by reason", None),
                    "reason",
                    reasons,
                )?;
                sheet.of_changes(&self.changes, engine)?;
                sheet.of_backups(&self.backups, engine)
            }
            None => Ok(()),
        }
    }
}

/// The encoder to which metrics are written.
struct Sheet<'a>(DescriptorEncoder<'a>);

type Labels<'a> = [(&'static str, &'a str)];

impl Sheet<'_> {
    fn family(
        &mut self,
        (name, help, unit): (&str, &str, Option<&Unit>),
        kind: MetricType,
        write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        write(&mut self.0.encode_descriptor(name, help, unit, kind)?)
    }

    fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: u64) -> fmt::Result {
        self.family((name, help, unit), MetricType::Gauge, |metric| metric.encode_gauge(&value))
    }

    fn gauges<'l>(
        &mut self,
        name_help_unit: (&str, &str, Option<&Unit>),
        label: &'static str,
        values: impl IntoIterator<Item = (&'l str, u64)>,
    ) -> fmt::Result {
        self.family(name_help_unit, MetricType::Gauge, |metric| {
            values.into_iter().try_for_each(|(of, value)| metric.encode_family(&[(label, of)])?.encode_gauge(&value))
        })
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counters((name, help), [(&[][..], value)])
    }

    /// Writes the use, the limit and the refusals of all gates. The array has the names and help texts in this order.
    fn gates(&mut self, admission: &Admission, [under_way, limit, refused]: [(&str, &str); 3]) -> fmt::Result {
        let gates = admission.gates();
        self.gauges((under_way.0, under_way.1, None), "gate", gates.map(|gate| (gate.name, gate.taken() as u64)))?;
        self.gauges((limit.0, limit.1, None), "gate", gates.map(|gate| (gate.name, gate.limit as u64)))?;
        let counts = gates.map(|gate| ([("gate", gate.name)], gate.refused()));
        self.counters(refused, counts.iter().map(|(labels, count)| (&labels[..], *count)))
    }

    fn counters<'l>(
        &mut self,
        (name, help): (&str, &str),
        values: impl IntoIterator<Item = (&'l Labels<'l>, u64)>,
    ) -> fmt::Result {
        self.family((name, help, None), MetricType::Counter, |metric| {
            let none = None::<&prometheus_client::metrics::exemplar::Exemplar<NoLabelSet, u64>>;
            values.into_iter().try_for_each(|(labels, value)| match labels {
                [] => metric.encode_counter(&value, none),
                labels => metric.encode_family(&labels)?.encode_counter(&value, none),
            })
        })
    }

    fn histogram(&mut self, name: &str, help: &str, latency: &Latency) -> fmt::Result {
        self.family((name, help, Some(&Unit::Seconds)), MetricType::Histogram, |metric| buckets(metric, latency))
    }

    fn histograms<'l>(
        &mut self,
        (name, help): (&str, &str),
        label: &'static str,
        latencies: impl Iterator<Item = (&'l str, &'l Latency)>,
    ) -> fmt::Result {
        self.family((name, help, Some(&Unit::Seconds)), MetricType::Histogram, |metric| {
            let mut latencies = latencies;
            latencies.try_for_each(|(of, latency)| buckets(&mut metric.encode_family(&[(label, of)])?, latency))
        })
    }
}

fn buckets(metric: &mut MetricEncoder<'_>, latency: &Latency) -> fmt::Result {
    let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(latency.counts()).collect();
    let count = buckets.iter().map(|bucket| bucket.1).sum();
    metric.encode_histogram::<NoLabelSet>(latency.sum().as_secs_f64(), count, &buckets, None)
}

impl Sheet<'_> {
    fn of_requests(&mut self, figures: &Figures) -> fmt::Result {
        let used = || figures.requests.by_operation().filter(|(_, of)| of.answered().any(|(_, count)| count > 0));
        let labelled: Vec<_> = used()
            .flat_map(|(operation, of)| {
                let of_class = move |(class, count)| ([("operation", operation), ("status", class)], count);
                of.answered().map(of_class)
            })
            // The failures of an operation in use begin with 0, because Prometheus sees no increase in the first value of a series.
            .filter(|([_, (_, class)], count)| *count > 0 || *class == "5xx")
            .collect();
        let counts = labelled.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(
            (
                "http_requests",
                "Number of requests, by operation and class of status (client_gone: disconnected before the response)",
            ),
            counts,
        )?;
        let help =
            "Time in seconds from the head of a request to that of its response or to a disconnection, by operation";
        let latencies = used().map(|(operation, of)| (operation, &of.latency));
        self.histograms(("http_request_duration", help), "operation", latencies)?;
        let refusals: Vec<_> =
            figures.requests.refusals().into_iter().map(|(code, count)| ([("code", code)], count)).collect();
        let refusals = refusals.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("http_refusals", "Number of refused or failed requests, by code of the problem"), refusals)?;
        let names = [
            ("admission_under_way", "Requests or bytes in progress, by gate"),
            ("admission_limit", "Maximum number of requests or bytes in progress, by gate"),
            ("admission_refused", "Number of requests that the server refused before any work, by gate"),
        ];
        self.gates(&figures.admission, names)?;
        self.of_connections(&figures.connections)?;
        let denied: Vec<_> = figures.access.denied().map(|(reason, count)| ([("reason", reason)], count)).collect();
        let denied = denied.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("denied", "Number of requests that access control denied, by code of the problem"), denied)?;
        let help = "Number of signatures computed for tokens not verified recently, one for each possible key";
        self.counter("token_signatures", help, figures.access.signatures_computed())
    }

    fn of_connections(&mut self, connections: &Connections) -> fmt::Result {
        self.gauge("connections", "Open client connections", None, connections.count() as u64)?;
        let limit = connections.limits().all as u64;
        self.gauge("connections_limit", "Maximum client connections, from the limit on open files", None, limit)?;
        let ended = connections.ended().map(|(reason, count)| ([("reason", reason)], count));
        let ended = ended.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("connections_ended", "Number of connections refused, or closed while idle, by reason"), ended)?;
        let failed: Vec<_> = peer_error_log::counts().map(|(kind, count)| ([("kind", kind)], count)).collect();
        let failed = failed.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("connections_failed", "Number of failed connections (HTTP, TLS or accept), by kind"), failed)
    }

    fn of_engine(&mut self, engine: &Engine) -> fmt::Result {
        self.of_work(engine)?;
        self.of_state(engine)?;
        let counters = &engine.shared().counters;
        let help = "Time in seconds from a publish to its response, including the delivery with wait=delivered";
        self.histogram("publish_duration", help, &counters.publish_latency)?;
        let help = "Time in seconds from queueing a post until all inboxes have it, by number of followers";
        let by_audience = AUDIENCES.into_iter().zip(&counters.fanout_latency);
        self.histograms(("fanout_duration", help), "followers", by_audience)?;
        self.histogram(
            "page_duration",
            "Time in seconds from the request for a home feed page until it is built",
            &counters.page_latency,
        )?;
        self.histogram("wake_duration", "Time in seconds to fill a waking reader's inbox", &counters.wake_latency)?;
        let Some(journal) = engine.journal() else { return Ok(()) };
        self.histogram("journal_sync_duration", "Time in seconds to sync the journal to disk", journal.sync_latency())?;
        let written = journal.written_bytes.load(Ordering::Relaxed);
        self.counter("journal_written_bytes", "Number of bytes written to the journal", written)?;
        self.counter("journal_commits", "Number of committed event groups", journal.commits.load(Ordering::Relaxed))?;
        let failed = u64::from(journal.failure().is_some());
        self.gauge("journal_failed", "1 if the journal failed and accepts no events until a restart", None, failed)?;
        let help = "Free bytes on the disk of the data directory";
        let bytes = Some(&Unit::Bytes);
        engine.disk_free_bytes().map_or(Ok(()), |free| self.gauge("disk_free", help, bytes, free))?;
        let Some(StoredBytes { journal, changes, snapshots, archive, other }) = engine.stored_bytes() else {
            return Ok(());
        };
        let stored = [
            ("journal", journal),
            ("changes", changes),
            ("snapshots", snapshots),
            ("archive", archive),
            ("other", other),
        ];
        self.gauges(("stored", "Bytes of the files in the data directory, by kind", bytes), "kind", stored)
    }

    fn of_changes(&mut self, changes: &ChangeStreams, engine: &Engine) -> fmt::Result {
        self.gauge("change_streams", "Open streams of changes", None, changes.open())?;
        self.gauge("change_streams_limit", "Maximum number of open streams of changes", None, changes.limit() as u64)?;
        let last = engine.journal().map_or(Sequence(0), |journal| journal.committed.last());
        let help = "Records that the slowest stream of changes has not sent yet";
        self.gauge("change_streams_behind", help, None, changes.behind(last))?;
        let consumers = engine.change_consumers();
        let behind = consumers.iter().map(|consumer| (consumer.name.as_str(), consumer.behind));
        let help = "Records that a registered consumer of changes has not processed yet, by consumer";
        self.gauges(("change_consumer_behind", help, None), "consumer", behind)?;
        let [refused, events, bytes] = changes.totals();
        self.counter("change_streams_refused", "Number of streams of changes refused because of the limit", refused)?;
        self.counter("change_events_sent", "Number of events sent in streams of changes", events)?;
        self.counter("change_bytes_sent", "Number of bytes sent in streams of changes", bytes)?;
        let ended = changes.ended().map(|(reason, count)| ([("reason", reason)], count));
        let ended = ended.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("change_streams_ended", "Number of streams of changes that ended, by reason"), ended)
    }

    /// Without backups, no backup metrics are written, so that no alert reports a failure.
    fn of_backups(&mut self, backups: &BackupFigures, engine: &Engine) -> fmt::Result {
        let Some(interval) = backups.interval_seconds() else { return Ok(()) };
        let (seconds, now) = (Some(&Unit::Seconds), engine.shared().clock.now());
        let help = "Time in seconds since the last complete backup, or since the start if there is none";
        self.gauge("backup_age", help, seconds, backups.age_seconds(now))?;
        self.gauge("backup_interval", "Configured time in seconds between two backups", seconds, interval)?;
        self.gauge("backups", "Backups in the backup store", None, backups.backups.load(Ordering::Relaxed))?;
        let stored = backups.stored_bytes.load(Ordering::Relaxed);
        self.gauge("backups", "Bytes of all backups in the backup store", Some(&Unit::Bytes), stored)?;
        let sent = backups.sent_bytes.load(Ordering::Relaxed);
        self.counter("backup_sent_bytes", "Number of bytes sent to the backup store", sent)?;
        let is_failing = backups.is_failing.load(Ordering::Relaxed);
        self.gauge("backup_failing", "1 if the last backup failed", None, u64::from(is_failing))?;
        self.counter("backup_failures", "Number of failed backups", backups.failures.load(Ordering::Relaxed))
    }

    fn of_work(&mut self, engine: &Engine) -> fmt::Result {
        let shared = engine.shared();
        let counters = &shared.counters;
        for (name, help, count) in [
            ("published", "Number of published posts, including those that fan-out does not push", &counters.published),
            ("deliveries", "Number of deliveries to inboxes, one for each recipient of a post", &counters.deliveries),
            ("duplicate_deliveries", "Number of deliveries of a post that the inbox already had", &counters.duplicates),
            ("deliveries_below_floor", "Number of deliveries of a post below the inbox's floor", &counters.below_floor),
            ("pages", "Number of built pages", &counters.pages),
            ("archive_pages", "Number of pages built with posts from the archive", &counters.cold_pages),
            (
                "direct_pages",
                "Number of pages built on the thread of their caller, without the reader's actor",
                &counters.direct_pages,
            ),
            ("long_pages", "Number of long pages without archived posts, built outside shards", &counters.long_pages),
            ("partial_pages", "Number of pages that lack posts, unreadable or read too late", &counters.partial_pages),
            ("wakes", "Number of times that a reader was woken", &counters.wakes),
            ("sleeps", "Number of times that a reader was put to sleep", &counters.sleeps),
            ("user_crashes", "Number of crashes of user actors and direct reads", &counters.user_crashes),
            ("snapshots", "Number of completed snapshots", &counters.snapshots),
            ("live_messages", "Number of messages handed to live connections", &counters.live_messages),
            ("live_cut_off", "Number of live connections closed because they were too slow", &counters.live_cut_off),
        ] {
            self.counter(name, help, count.get())?;
        }
        self.of_clock(&shared.clock_report)?;
        self.counter("archive_read_failures", "Number of failed archive reads", shared.world.read_failures.count())?;
        let held_back = shared.world.held_back.sources() as u64;
        self.gauge("archive_held_back", "Sources that a damaged page keeps out of the archive", None, held_back)?;
        self.of_remote_archive(engine)?;
        let shed: Vec<_> = counters.shed.by_queue().map(|(queue, count)| ([("queue", queue)], count)).collect();
        let shed = shed.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("shed", "Number of requests that the engine refused, by full queue"), shed)?;
        let queues = engine.queues();
        let depths = queues.iter().map(|queue| (queue.name, queue.depth as u64));
        self.gauges(("queue_depth", "Waiting items or bytes, by queue", None), "queue", depths)?;
        let limits = queues.iter().map(|queue| (queue.name, queue.limit as u64));
        self.gauges(("queue_limit", "Maximum number of waiting items or bytes, by queue", None), "queue", limits)
    }

    /// Writes the metrics of an archive across a network. A local archive has none of these.
    fn of_remote_archive(&mut self, engine: &Engine) -> fmt::Result {
        let world = &engine.shared().world;
        if let Some(behind) = world.replicated_archive() {
            let help = "Records of the log that this node has applied and the archive of the cluster lacks";
            self.gauge("archive_lag", help, None, behind.lag())?;
            let help = "Changes of posts that the archive of the cluster lacks";
            self.gauge("archive_changes_due", help, None, behind.behind() as u64)?;
        }
        let Some(figures) = world.archive().and_then(|archive| archive.remote()).map(RemoteArchive::figures) else {
            return Ok(());
        };
        self.counter("archive_statements_read", "Number of read statements to the archive", figures.reads)?;
        self.counter("archive_statements_written", "Number of write statements to the archive", figures.writes)?;
        self.counter("archive_statements_failed", "Number of failed statements to the archive", figures.errors)?;
        self.counter("archive_statements_retried", "Number of retried statements to the archive", figures.retries)?;
        let help = "Number of statements to the archive that timed out";
        self.counter("archive_statements_timed_out", help, figures.statement_timeouts)?;
        self.gauge("archive_connections", "Open connections to nodes of the archive", None, figures.connections)?;
        let help = "Number of connections to nodes of the archive that timed out";
        self.counter("archive_connections_timed_out", help, figures.connection_timeouts)?;
        self.counter("archive_cache_hits", "Number of archive reads answered from the cache", figures.cache_hits)?;
        self.counter("archive_cache_misses", "Number of archive reads that missed the cache", figures.cache_misses)?;
        let bytes = Some(&Unit::Bytes);
        self.gauge("archive_cache", "Memory in bytes of the cache of archived posts", bytes, figures.cache_bytes)?;
        self.gauge(
            "archive_through",
            "Sequence of the event up to which the archive is known to be complete",
            None,
            figures.through.0,
        )
    }

    fn of_clock(&mut self, clock: &ClockReport) -> fmt::Result {
        let jumps = [
            (&[("direction", "ahead")][..], clock.jumps_ahead.get()),
            (&[("direction", "back")][..], clock.jumps_back.get()),
        ];
        self.counters(
            ("clock_jumps", "Number of clock jumps beyond the tolerance, detected at the next write, by direction"),
            jumps,
        )?;
        let help = "Time in seconds by which ids and instants of follows are ahead of the clock, negative if behind";
        let lead = clock.drift_seconds();
        self.family(("clock_lead", help, Some(&Unit::Seconds)), MetricType::Gauge, |metric| metric.encode_gauge(&lead))
    }

    fn of_state(&mut self, engine: &Engine) -> fmt::Result {
        let (shared, figures) = (engine.shared(), engine.figures());
        let (world, watchers) = (&shared.world, &shared.watchers);
        for (name, help, value) in [
            ("sources", "Known sources: users, tags, topics, posts with replies", figures.sources),
            ("active_readers", "Awake readers", figures.active),
            ("edges", "Follow edges", figures.edges),
            ("posts", "Posts in memory", figures.posts),
            ("live_connections", "Open live connections", figures.live_connections),
            ("live_connections_limit", "Maximum number of open live connections", shared.config.live_max),
            ("revocations", "Users with revoked tokens", world.revocations.len()),
            ("revocations_limit", "Maximum number of users with revoked tokens", REVOCATIONS_MAX),
            ("watched_readers", "Readers with live connections", figures.watched_readers),
        ] {
            self.gauge(name, help, None, value as u64)?;
        }
        let erasures = engine.erasures();
        self.gauge("erasures_under_way", "Erasures of users in progress", None, erasures.count as u64)?;
        let oldest = erasures.oldest_seconds.unwrap_or(0);
        self.gauge("erasure_age", "Age in seconds of the oldest erasure in progress", Some(&Unit::Seconds), oldest)?;
        let bytes = Some(&Unit::Bytes);
        self.gauge("posts", "Memory in bytes of posts", bytes, figures.posts_bytes)?;
        self.gauge("inboxes", "Memory in bytes of inboxes, estimated from a sample", bytes, figures.inboxes_bytes)?;
        let sources = figures.sources_bytes;
        self.gauge("sources", "Memory in bytes of sources and follow edges, estimated from a sample", bytes, sources)?;
        let reposts = figures.reposts_bytes;
        self.gauge("reposts", "Memory in bytes of the index of reposts, estimated from a sample", bytes, reposts)?;
        self.gauge("posts_limit", "Maximum memory in bytes of posts", bytes, shared.config.store_bytes_max as u64)?;
        let graph = world.sources.graph_bytes() as u64;
        self.gauge("graph", "Memory in bytes of sources, edges and preferences, without outboxes", bytes, graph)?;
        let limit = shared.config.graph_bytes_max as u64;
        self.gauge("graph_limit", "Maximum memory in bytes of sources, edges and preferences", bytes, limit)?;
        let waiting = watchers.waiting_bytes() as u64;
        self.gauge("live_waiting", "Bytes queued for live connections, once for each connection", bytes, waiting)?;
        let limit = LIVE_QUEUE_BYTES_MAX as u64;
        self.gauge("live_waiting_limit", "Maximum bytes queued for one live connection", bytes, limit)?;
        // If the system does not report the memory, the metric is omitted rather than zero.
        resident_bytes()
            .map_or(Ok(()), |resident| self.gauge("resident", "Resident memory in bytes", bytes, resident))?;
        self.gauge("uptime", "Uptime in seconds", Some(&Unit::Seconds), shared.started.elapsed().as_secs())?;
        let newest = engine.snapshots().iter().map(|taken| taken.taken_at).max();
        let age = newest.map(|at| shared.clock.now().0.saturating_sub(at.0).max(0) as u64 / 1_000_000);
        age.map_or(Ok(()), |age| {
            self.gauge("snapshot_age", "Age in seconds of the newest snapshot", Some(&Unit::Seconds), age)
        })
    }
}
