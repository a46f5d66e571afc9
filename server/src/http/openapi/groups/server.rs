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
    documented("Ask whether the server lives").answers(200, "It does.", "Liveness", &json!({"alive": true}))
}

fn check_ready() -> Documentation {
    let recovery = json!({"phase": "journal", "snapshot_bytes": 7, "snapshot_bytes_total": 7, "events": 9});
    let about = "A server is ready if it answers reads. `writes` is false while it refuses all writes, as with a full disk until there is space \
                 again. After `journal_failed` it is not ready although it answers reads, since only a restart ends that.";
    documented("Ask whether the server is ready")
        .description(about)
        .query(
            "for",
            "A server that refuses all writes is not ready either: 503, with the code of `refused`.",
            json!({"enum": ["writes"]}),
        )
        .answers(200, "It answers reads.", "Readiness", &json!({"ready": true, "writes": true}))
        .answers(503, "How far recovery has come.", "NotReady", &json!({"ready": false, "recovery": recovery}))
        .refuses(503, &["disk_full", "joining", "journal_failed", "leaving", "out_of_files"])
        .refuses(503, &["owner_unavailable", "sequencer_unavailable"])
}

fn describe() -> Documentation {
    documented("Read this description")
        .description("In OpenAPI 3.1, made from the server's own table of operations.")
        .answers(200, "The description.", "OpenApi", &json!({"openapi": "3.1.0", "info": {}, "paths": {}}))
}

fn read_metrics() -> Documentation {
    let content = json!({OPENMETRICS: {"schema": {"type": "string"}, "example": "tidewire_ready 1\n# EOF\n"}});
    documented("Read metrics").answer(200, json!({"description": "For Prometheus.", "content": content}))
}

fn read_stats() -> Documentation {
    let inboxes = json!({"enum": ["count"]});
    let content = json!({"application/json": {"schema": schema("Stats")}});
    documented("Read what the server is doing")
        .of_named_node()
        .query("inboxes", "Figures too that need a walk over all inboxes.", inboxes)
        .answer(200, json!({"description": "Figures, most of them since the start.", "content": content}))
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
    documented("Read which node of the cluster does what")
        .description(
            "As the answering node sees it, `applied` being the last event that this node has. `partitions` of a node are those whose \
             readers it owns: the partition of a reader is the XXH3 hash of the id (64 bits, seed 0) modulo `partitions`. Who asks the \
             owner of a reader saves the way over another node. `heard_ms` of a node is the time since its last beat, of which it sends one each \
             `beat_ms`; null if none was heard yet. A node that is silent for `session_ms` counts as dead: until then it is listed, also as the \
             `sequencer`, and after three beats its writes and readers have most likely to wait. `gone` are the nodes that have left in the last hour, as far as the \
             answering node has seen it, the last first. `world` is the last event of users that is applied, and a digest of all \
             state: nodes with equal sequences have equal digests. It takes a walk over all state, and is left out while events are \
             applied all the time or another one is computed.",
        )
        .query("digest", "The digest too.", json!({"type": "boolean", "default": false}))
        .query(
            "delivered",
            "Answer after all posts up to this sequence are delivered to the readers of this node. After 5 s without it: 503.",
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
        .answers(201, "It is on disk.", "Snapshot", &taken)
        .refuses(409, &["no_data_directory"])
        .refuses(500, &["archive_failed", "snapshot_failed"])
        .refuses(507, &["disk_full"])
        .refuses(503, &["archive_unavailable", "journal_failed"])
}

fn erase_user() -> Documentation {
    documented("Erase a user for good")
        .description(
            "Posts, follows both ways, what the user decided and what others decided about the user. Once it is answered nobody sees \
             any of that; in the background it then goes from the disk: from the archive, the journal and snapshots. Until that has \
             ended, requests that name the user are refused as `being_erased`. Ask again to know: 204 says that it has ended. The id \
             may be used again then, and begins with nothing.",
        )
        .answers(202, "It is under way.", "Erasure", &json!({"erased": "under_way"}))
        .answers_nothing(204, "Nothing is known of such a user.")
        .refuses(422, &["not_a_user"])
}

fn verdict() -> Value {
    json!({
        "good": true, "entries": 10, "rebuilt": 10, "floor": null, "missing": [], "extra": [], "under_way": 0, "stale": 0,
    })
}

fn verify_feed() -> Documentation {
    documented("Compare an inbox with one built anew")
        .answers(200, "What differs.", "Verdict", &verdict())
        .refuses(404, &["unknown_source"])
        .asks_reader()
}

fn rebuild_feed() -> Documentation {
    documented("Replace an inbox by one built anew")
        .answers(200, "What differed.", "Verdict", &verdict())
        .refuses(404, &["unknown_source"])
        .asks_reader()
}
