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
    registry.register("build", "What the program was made from", Info::new(build.to_vec()));
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
            "Whether the state is recovered, so that reads are answered",
            None,
            u64::from(self.engine_cell.engine().is_some()),
        )?;
        match self.engine_cell.engine() {
            Some(engine) => {
                sheet.of_engine(engine)?;
                let refused = readiness::writes_refused(engine, self.placement());
                let reasons = readiness::reasons().map(|reason| (reason, u64::from(refused == Some(reason))));
                sheet.gauges(
                    ("writes_refused", "1 while all writes are refused, by reason", None),
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

    /// Writes the use, the limit and the refusals of all gates, by their names and helps in this order.
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
            // The failures of an operation in use are counted from 0 on: Prometheus sees no increase in the first value of a series.
            .filter(|([_, (_, class)], count)| *count > 0 || *class == "5xx")
            .collect();
        let counts = labelled.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(
            (
                "http_requests",
                "Requests by operation and class of status, client_gone where nobody waited for an answer",
            ),
            counts,
        )?;
        let help = "From the head of a request to the head of its answer or until its client went away, by operation";
        let latencies = used().map(|(operation, of)| (operation, &of.latency));
        self.histograms(("http_request_duration", help), "operation", latencies)?;
        let refusals: Vec<_> =
            figures.requests.refusals().into_iter().map(|(code, count)| ([("code", code)], count)).collect();
        let refusals = refusals.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("http_refusals", "Requests refused or failed, by the code of the problem"), refusals)?;
        let names = [
            ("admission_under_way", "Requests or bytes under way, by gate"),
            ("admission_limit", "How much may be under way, by gate"),
            ("admission_refused", "Requests refused at the door, by gate"),
        ];
        self.gates(&figures.admission, names)?;
        self.of_connections(&figures.connections)?;
        let denied: Vec<_> = figures.access.denied().map(|(reason, count)| ([("reason", reason)], count)).collect();
        let denied = denied.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("denied", "Requests that were not let in, by the code they were answered with"), denied)?;
        let help = "Signatures of tokens computed: one for each key that may have signed a token not verified lately";
        self.counter("token_signatures", help, figures.access.signatures_computed())
    }

    fn of_connections(&mut self, connections: &Connections) -> fmt::Result {
        self.gauge("connections", "Connections of clients", None, connections.count() as u64)?;
        let limit = connections.limits().all as u64;
        self.gauge("connections_limit", "How many there may be, by the limit on open files", None, limit)?;
        let ended = connections.ended().map(|(reason, count)| ([("reason", reason)], count));
        let ended = ended.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("connections_ended", "Connections refused, or ended while they were idle, by reason"), ended)?;
        let failed: Vec<_> = peer_error_log::counts().map(|(kind, count)| ([("kind", kind)], count)).collect();
        let failed = failed.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("connections_failed", "What was no HTTP, broke off or could not be accepted, by kind"), failed)
    }

    fn of_engine(&mut self, engine: &Engine) -> fmt::Result {
        self.of_work(engine)?;
        self.of_state(engine)?;
        let counters = &engine.shared().counters;
        let help = "From a publish until it was answered, which with wait=delivered is once it is delivered";
        self.histogram("publish_duration", help, &counters.publish_latency)?;
        let help = "From the hand-over of a post until all inboxes had it, by number of followers";
        let by_audience = AUDIENCES.into_iter().zip(&counters.fanout_latency);
        self.histograms(("fanout_duration", help), "followers", by_audience)?;
        self.histogram(
            "page_duration",
            "From asking for a home feed's page until it was there",
            &counters.page_latency,
        )?;
        self.histogram("wake_duration", "Filling the inbox of a reader that woke", &counters.wake_latency)?;
        let Some(journal) = engine.journal() else { return Ok(()) };
        self.histogram("journal_sync_duration", "Syncing the journal to its disk", journal.sync_latency())?;
        let written = journal.written_bytes.load(Ordering::Relaxed);
        self.counter("journal_written_bytes", "Bytes written to the journal", written)?;
        self.counter("journal_commits", "Groups of events committed", journal.commits.load(Ordering::Relaxed))?;
        let failed = u64::from(journal.failure().is_some());
        self.gauge("journal_failed", "Whether the journal takes nothing any more until a restart", None, failed)?;
        let help = "Bytes that the disk of the data directory has left";
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
        self.gauges(("stored", "Bytes of the files in the data directory", bytes), "kind", stored)
    }

    fn of_changes(&mut self, changes: &ChangeStreams, engine: &Engine) -> fmt::Result {
        self.gauge("change_streams", "Open streams of changes", None, changes.open())?;
        self.gauge("change_streams_limit", "How many there may be", None, changes.limit() as u64)?;
        let last = engine.journal().map_or(Sequence(0), |journal| journal.committed.last());
        let help = "Records that the slowest stream of changes has not sent yet";
        self.gauge("change_streams_behind", help, None, changes.behind(last))?;
        let consumers = engine.change_consumers();
        let behind = consumers.iter().map(|consumer| (consumer.name.as_str(), consumer.behind));
        let help = "Records that a registered consumer of changes has not processed yet";
        self.gauges(("change_consumer_behind", help, None), "consumer", behind)?;
        let [refused, events, bytes] = changes.totals();
        self.counter("change_streams_refused", "Streams of changes refused because of the limit", refused)?;
        self.counter("change_events_sent", "Events sent in streams of changes", events)?;
        self.counter("change_bytes_sent", "Bytes sent in streams of changes", bytes)?;
        let ended = changes.ended().map(|(reason, count)| ([("reason", reason)], count));
        let ended = ended.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("change_streams_ended", "Streams of changes that ended, by reason"), ended)
    }

    /// Without backups there are no metrics of them, so that no alert takes their absence for a failure.
    fn of_backups(&mut self, backups: &BackupFigures, engine: &Engine) -> fmt::Result {
        let Some(interval) = backups.interval_seconds() else { return Ok(()) };
        let (seconds, now) = (Some(&Unit::Seconds), engine.shared().clock.now());
        let help = "Time since the last complete backup, or since the start if there was none";
        self.gauge("backup_age", help, seconds, backups.age_seconds(now))?;
        self.gauge("backup_interval", "Time between two backups, as it is set", seconds, interval)?;
        self.gauge("backups", "Backups in the store", None, backups.backups.load(Ordering::Relaxed))?;
        let stored = backups.stored_bytes.load(Ordering::Relaxed);
        self.gauge("backups", "Bytes of all backups in the store", Some(&Unit::Bytes), stored)?;
        let sent = backups.sent_bytes.load(Ordering::Relaxed);
        self.counter("backup_sent_bytes", "Bytes sent to the store of backups", sent)?;
        let is_failing = backups.is_failing.load(Ordering::Relaxed);
        self.gauge("backup_failing", "1 if the last backup failed", None, u64::from(is_failing))?;
        self.counter("backup_failures", "Backups that failed", backups.failures.load(Ordering::Relaxed))
    }

    fn of_work(&mut self, engine: &Engine) -> fmt::Result {
        let shared = engine.shared();
        let counters = &shared.counters;
        for (name, help, count) in [
            ("published", "Posts published, pushed or not", &counters.published),
            ("deliveries", "Posts put into inboxes, one for each recipient", &counters.deliveries),
            ("duplicate_deliveries", "Deliveries of a post that was there already", &counters.duplicates),
            ("deliveries_below_floor", "Deliveries of a post older than the inbox reaches", &counters.below_floor),
            ("pages", "Pages built", &counters.pages),
            ("archive_pages", "Pages built with the archive", &counters.cold_pages),
            (
                "direct_pages",
                "Pages built on the threads of their callers, without the reader's actor",
                &counters.direct_pages,
            ),
            ("long_pages", "Pages built where no other waits for them, since they took long", &counters.long_pages),
            ("partial_pages", "Pages that lacked what could not be read, or not in time", &counters.partial_pages),
            ("wakes", "Readers woken", &counters.wakes),
            ("sleeps", "Readers put to sleep", &counters.sleeps),
            ("user_crashes", "User actors that crashed", &counters.user_crashes),
            ("snapshots", "Snapshots taken", &counters.snapshots),
            ("live_messages", "Messages handed to live connections", &counters.live_messages),
            ("live_cut_off", "Live connections cut off since they were too slow", &counters.live_cut_off),
        ] {
            self.counter(name, help, count.get())?;
        }
        self.of_clock(&shared.clock_report)?;
        self.counter("archive_read_failures", "Reads of the archive that failed", shared.world.read_failures.count())?;
        let held_back = shared.world.held_back.sources() as u64;
        self.gauge("archive_held_back", "Sources that a damaged page keeps out of the archive", None, held_back)?;
        self.of_remote_archive(engine)?;
        let shed: Vec<_> = counters.shed.by_queue().map(|(queue, count)| ([("queue", queue)], count)).collect();
        let shed = shed.iter().map(|(labels, count)| (&labels[..], *count));
        self.counters(("shed", "Requests refused inside the engine, by what was full"), shed)?;
        let queues = engine.queues();
        let depths = queues.iter().map(|queue| (queue.name, queue.depth as u64));
        self.gauges(("queue_depth", "What waits, by queue", None), "queue", depths)?;
        let limits = queues.iter().map(|queue| (queue.name, queue.limit as u64));
        self.gauges(("queue_limit", "How much may wait, by queue", None), "queue", limits)
    }

    /// Of an archive across a network only.
    fn of_remote_archive(&mut self, engine: &Engine) -> fmt::Result {
        let archive = engine.shared().world.archive();
        if let Some(behind) = archive.and_then(|archive| archive.replicated_archive()) {
            let help = "Records of the log that this node has applied and the archive of the cluster does not have yet";
            self.gauge("archive_lag", help, None, behind.lag())?;
            let help = "Changes of posts that the archive of the cluster does not have yet";
            self.gauge("archive_changes_due", help, None, behind.behind() as u64)?;
        }
        let Some(figures) = archive.and_then(|archive| archive.figures()) else { return Ok(()) };
        self.counter("archive_statements_read", "Statements to the store of old posts that read", figures.reads)?;
        self.counter("archive_statements_written", "Statements to it that wrote", figures.writes)?;
        self.counter("archive_statements_failed", "Statements to it that failed", figures.errors)?;
        self.counter("archive_statements_retried", "Statements to it that were sent again", figures.retries)?;
        let help = "Statements to it that no node answered in time";
        self.counter("archive_statements_timed_out", help, figures.statement_timeouts)?;
        self.gauge("archive_connections", "Open connections to its nodes", None, figures.connections)?;
        let help = "Connections to its nodes that were not made in time";
        self.counter("archive_connections_timed_out", help, figures.connection_timeouts)?;
        self.counter("archive_cache_hits", "Reads of old posts answered from memory", figures.cache_hits)?;
        self.counter("archive_cache_misses", "Reads of old posts that asked the store", figures.cache_misses)?;
        let bytes = Some(&Unit::Bytes);
        self.gauge("archive_cache", "Memory that old posts take that were read", bytes, figures.cache_bytes)?;
        self.gauge(
            "archive_through",
            "The event up to which the store is known to be complete",
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
            ("clock_jumps", "Jumps of the clock by more than is waited for, noticed by the next write"),
            jumps,
        )?;
        let help = "By how much ids and instants of follows are ahead of the clock, negative if behind";
        let lead = clock.drift_seconds();
        self.family(("clock_lead", help, Some(&Unit::Seconds)), MetricType::Gauge, |metric| metric.encode_gauge(&lead))
    }

    fn of_state(&mut self, engine: &Engine) -> fmt::Result {
        let (shared, figures) = (engine.shared(), engine.figures());
        let (world, watchers) = (&shared.world, &shared.watchers);
        for (name, help, value) in [
            ("sources", "Known sources: users, tags, topics, posts with replies", figures.sources),
            ("active_readers", "Readers that are awake", figures.active),
            ("edges", "Follow edges", figures.edges),
            ("posts", "Posts in memory", figures.posts),
            ("live_connections", "Live connections", figures.live_connections),
            ("live_connections_limit", "How many there may be", shared.config.live_max),
            ("revocations", "Users whose tokens are revoked", world.revocations.len()),
            ("revocations_limit", "How many there may be", REVOCATIONS_MAX),
            ("watched_readers", "Readers with live connections", figures.watched_readers),
        ] {
            self.gauge(name, help, None, value as u64)?;
        }
        let erasures = engine.erasures();
        self.gauge("erasures_under_way", "Users being erased", None, erasures.count as u64)?;
        let oldest = erasures.oldest_seconds.unwrap_or(0);
        self.gauge("erasure_age", "Time since the oldest erasure under way began", Some(&Unit::Seconds), oldest)?;
        let bytes = Some(&Unit::Bytes);
        self.gauge("posts", "Memory that posts take", bytes, figures.posts_bytes)?;
        self.gauge("inboxes", "Memory that inboxes take, by a sample of them", bytes, figures.inboxes_bytes)?;
        let sources = figures.sources_bytes;
        self.gauge("sources", "Memory that sources take, with who follows whom, by a sample", bytes, sources)?;
        let reposts = figures.reposts_bytes;
        self.gauge("reposts", "Memory that it takes to know who repeats what, by a sample", bytes, reposts)?;
        self.gauge("posts_limit", "Memory that posts may take", bytes, shared.config.store_bytes_max as u64)?;
        let graph = world.sources.graph_bytes() as u64;
        self.gauge("graph", "Memory that sources, follow edges and preferences take, without outboxes", bytes, graph)?;
        let limit = shared.config.graph_bytes_max as u64;
        self.gauge("graph_limit", "Memory that sources, follow edges and preferences may take", bytes, limit)?;
        let waiting = watchers.waiting_bytes() as u64;
        self.gauge("live_waiting", "What waits for live connections to take it, once for each", bytes, waiting)?;
        let limit = LIVE_QUEUE_BYTES_MAX as u64;
        self.gauge("live_waiting_limit", "What may wait for one of them before it is cut off", bytes, limit)?;
        // If the system does not report the memory, the metric is omitted rather than zero.
        resident_bytes().map_or(Ok(()), |resident| self.gauge("resident", "Memory of the process", bytes, resident))?;
        self.gauge("uptime", "Time since the start", Some(&Unit::Seconds), shared.started.elapsed().as_secs())?;
        let newest = engine.snapshots().iter().map(|taken| taken.taken_at).max();
        let age = newest.map(|at| shared.clock.now().0.saturating_sub(at.0).max(0) as u64 / 1_000_000);
        age.map_or(Ok(()), |age| self.gauge("snapshot_age", "Age of the newest snapshot", Some(&Unit::Seconds), age))
    }
}
