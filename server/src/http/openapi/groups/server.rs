//! The documentation of server operations.

use serde_json::{Value, json};

use crate::http::handlers::metrics::OPENMETRICS;
use crate::http::openapi::documentation::{Documentation, documented};
use crate::http::openapi::groups::Documented;
use crate::http::openapi::schemas::schema;

pub(super) static DOCUMENTATION: Documented = &[
    ("check_alive", check_alive),
    ("check_ready", check_ready),
    ("describe", describe),
    ("read_metrics", read_metrics),
    ("read_stats", read_stats),
    ("read_cluster", read_cluster),
    ("take_snapshot", take_snapshot),
    ("erase_user", erase_user),
    ("verify_feed", verify_feed),
    ("rebuild_feed", rebuild_feed),
];

fn check_alive() -> Documentation {
    documented("Check that the server is alive").answers(
        200,
        "The server is alive.",
        "Liveness",
        &json!({"alive": true}),
    )
}

fn check_ready() -> Documentation {
    let recovery = json!({"phase": "journal", "snapshot_bytes": 7, "snapshot_bytes_total": 7, "events": 9});
    let about = "A server is ready if it answers reads. `writes` is false while it refuses all writes, for example while the disk is full. \
                 After `journal_failed` the server is not ready, although it answers reads, because only a restart ends this state.";
    documented("Check that the server is ready")
        .description(about)
        .query(
            "for",
            "With `writes`, a server that refuses all writes is not ready either: 503, with the code of `refused`.",
            json!({"enum": ["writes"]}),
        )
        .answers(200, "The server answers reads.", "Readiness", &json!({"ready": true, "writes": true}))
        .answers(503, "The progress of recovery.", "NotReady", &json!({"ready": false, "recovery": recovery}))
        .refuses(503, &["disk_full", "joining", "journal_failed", "leaving", "out_of_files"])
        .refuses(503, &["owner_unavailable", "sequencer_unavailable"])
}

fn describe() -> Documentation {
    documented("Read this description")
        .description("OpenAPI 3.1, generated from the server's table of operations.")
        .answers(200, "The description.", "OpenApi", &json!({"openapi": "3.1.0", "info": {}, "paths": {}}))
}

fn read_metrics() -> Documentation {
    let content = json!({OPENMETRICS: {"schema": {"type": "string"}, "example": "tidewire_ready 1\n# EOF\n"}});
    documented("Read metrics").answer(200, json!({"description": "Metrics for Prometheus.", "content": content}))
}

fn read_stats() -> Documentation {
    let inboxes = json!({"enum": ["count"]});
    let content = json!({"application/json": {"schema": schema("Stats")}});
    documented("Read statistics")
        .of_named_node()
        .query("inboxes", "Include figures that need a walk over all inboxes.", inboxes)
        .answer(200, json!({"description": "Statistics, most of them since the start.", "content": content}))
}

fn read_cluster() -> Documentation {
    let nodes = json!([
        {"name": "a", "address": "https://a.example:8080", "partitions": [0, 2], "heard_ms": 120},
        {"name": "b", "address": "https://b.example:8080", "partitions": [1], "heard_ms": 340},
    ]);
    let world = json!({"sequence": 4090, "digest": "0123456789abcdef0123456789abcdef"});
    let mut cluster =
        json!({"node": "a", "epoch": 7, "sequencer": "b", "applied": 4096, "partitions": 3, "nodes": nodes});
    cluster["gone"] = json!([{"name": "c", "address": "https://c.example:8080", "gone_ms": 180_000}]);
    (cluster["session_ms"], cluster["beat_ms"]) = (json!(6000), json!(500));
    cluster["world"] = world;
    documented("Read the state of the cluster")
        .description(
            "The cluster as the answering node sees it; `applied` is the last event that this node has applied. `partitions` of a node are \
             those whose readers it owns: the partition of a reader is the XXH3 hash of the id (64 bits, seed 0) modulo `partitions`. \
             Requests to the owner of a reader need no forwarding. `heard_ms` of a node is the time since its last heartbeat, null before the \
             first; a node sends one every `beat_ms`. A node that is silent for `session_ms` counts as dead. Until then it is listed, also as \
             the `sequencer`; after three missed heartbeats, its writes and readers probably have to wait. `gone` lists the nodes that have \
             left in the last hour, as far as the answering node has seen it, the last one first. `world` has the last applied event of \
             users, and a digest of the whole state: nodes with equal sequences have equal digests. The digest takes a walk over the whole \
             state. It is omitted while events are applied continuously or another digest is computed.",
        )
        .query("digest", "Include the digest.", json!({"type": "boolean", "default": false}))
        .query(
            "delivered",
            "Answer after all posts up to this sequence are delivered to the readers of this node, or 503 after 5 s.",
            json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
        )
        .refuses(503, &["not_applied_yet"])
        .answers(200, "The cluster.", "Cluster", &cluster)
        .refuses(404, &["no_cluster"])
}

fn take_snapshot() -> Documentation {
    let taken = json!({
        "file": "snapshot-00000000000000000042.tide",
        "sequence": 42,
        "bytes": 4096,
        "taken_at": "2026-11-20T10:00:00.123456Z",
    });
    documented("Take a snapshot now")
        .answers(201, "The snapshot is on disk.", "Snapshot", &taken)
        .refuses(409, &["no_data_directory"])
        .refuses(500, &["archive_failed", "snapshot_failed"])
        .refuses(507, &["disk_full"])
        .refuses(503, &["archive_unavailable", "journal_failed"])
}

fn erase_user() -> Documentation {
    documented("Erase a user permanently")
        .description(
            "Erases posts, follows in both directions, the user's settings, and the settings of others about the user. After the response \
             nobody sees this data. The server then removes it in the background from the archive, the journal and snapshots. Until \
             that has ended, requests that name the user are refused as `being_erased`. Repeat the request to check: 204 means that the \
             erasure has ended. The id can then be used again, and starts empty.",
        )
        .answers(202, "The erasure is in progress.", "Erasure", &json!({"erased": "under_way"}))
        .answers_nothing(204, "The user is unknown, or fully erased.")
        .refuses(422, &["not_a_user"])
}

fn verdict() -> Value {
    json!({
        "good": true, "entries": 10, "rebuilt": 10, "floor": null, "missing": [], "extra": [], "under_way": 0, "stale": 0,
    })
}

fn verify_feed() -> Documentation {
    documented("Compare an inbox with a newly built one")
        .answers(200, "The differences.", "Verdict", &verdict())
        .refuses(404, &["unknown_source"])
        .asks_reader()
}

fn rebuild_feed() -> Documentation {
    documented("Replace an inbox with a newly built one")
        .answers(200, "The differences before the replacement.", "Verdict", &verdict())
        .refuses(404, &["unknown_source"])
        .asks_reader()
}
