//! The tables of an archive in Cassandra, and the statements on them.
//!
//! `docs/archive.md` describes the tables. The write time of entries and posts is their journal event, so that late or repeated writes
//! replace nothing newer. Compare-and-set changes `buckets` and `meta`.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scylla::client::session::Session;
use scylla::cluster::Node;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::policies::load_balancing::{LoadBalancingPolicy, NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;
use scylla::statement::{Consistency, SerialConsistency};

use super::connect::{CONNECT_TIME_MAX, Connection, WRITE_TIME_MAX, of_reads};
use super::errors::error;
use super::options::{CassandraOptions, CassandraUrl, Replication};
use super::rows;
use tidewire::storage::archive::ArchiveError;

/// Pause before a failed creation is retried.
const CREATE_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The format that this version writes and reads.
pub(super) const FORMAT: u64 = 1;

/// A table: its name, and its columns with their types, in the order in which Cassandra lists them.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: &'static [(&'static str, &'static str)],
    key: &'static str,
    options: &'static str,
}

pub(super) const TABLES: [Table; 4] = [
    Table {
        name: "posts",
        columns: &[("deleted", "boolean"), ("id", "bigint"), ("record", "blob")],
        key: "id",
        options: "",
    },
    Table {
        name: "outboxes",
        columns: &[
            ("bucket", "bigint"),
            ("id", "bigint"),
            ("kept", "boolean"),
            ("published_at", "bigint"),
            ("route", "tinyint"),
            ("source", "text"),
        ],
        key: "(source, route, bucket), published_at, id",
        options: "CLUSTERING ORDER BY (published_at DESC, id DESC) AND ",
    },
    Table {
        name: "buckets",
        columns: &[("layout", "blob"), ("route", "tinyint"), ("source", "text"), ("version", "bigint")],
        key: "source, route",
        options: "",
    },
    Table {
        name: "meta",
        columns: &[("key", "text"), ("value", "blob"), ("version", "bigint")],
        key: "key",
        options: "",
    },
];

impl Table {
    /// Returns the statement that creates the table in a keyspace.
    pub(super) fn creation(&self, keyspace: &str) -> String {
        let columns: Vec<String> = self.columns.iter().map(|(name, of_type)| format!("{name} {of_type}")).collect();
        // The default of Cassandra 5 would be the size-tiered strategy, which needs as much free space as there is data.
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.{} ({}, PRIMARY KEY ({})) \
            WITH {}compaction = {{'class': 'UnifiedCompactionStrategy'}}",
            self.name,
            columns.join(", "),
            self.key,
            self.options
        )
    }

    /// Returns the difference between the columns of a table and the expected ones. `found` has names and types, in the order of names.
    pub(super) fn difference(&self, found: &[(String, String)]) -> Option<String> {
        let expected = self.columns.iter().map(|(name, of_type)| ((*name).to_owned(), (*of_type).to_owned()));
        let missing =
            expected.filter(|column| !found.contains(column)).map(|(name, of_type)| format!("{name} {of_type}"));
        let missing: Vec<String> = missing.collect();
        match (found.is_empty(), missing.is_empty()) {
            (true, _) => Some(format!("there is no table {}", self.name)),
            (false, false) => Some(format!("the table {} has no column {}", self.name, missing.join(", "))),
            (false, true) => None,
        }
    }
}

/// The node that creates everything. Another one may not know the keyspace yet, and may create an existing table again.
pub(super) type Coordinator = Option<Arc<dyn LoadBalancingPolicy>>;

/// Chooses one of the connected nodes. Returns none if there is none now.
pub(super) fn coordinator(connection: &Connection) -> Coordinator {
    let cluster = connection.session.get_cluster_state();
    let is_usable = |node: &&Arc<Node>| {
        node.is_connected() && (connection.datacentre.is_none() || node.datacenter == connection.datacentre)
    };
    let node = cluster.get_nodes_info().iter().filter(is_usable).min_by_key(|node| node.host_id)?;
    Some(SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(Arc::clone(node)), None))
}

/// Creates the keyspace and the tables that are missing.
pub(super) async fn create(
    session: &Session,
    coordinator: &Coordinator,
    url: &CassandraUrl,
    replication: &Replication,
) -> Result<(), ArchiveError> {
    let keyspace = &url.keyspace;
    let keyspace_creation =
        format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {}", replication.cql());
    let creations = TABLES.iter().map(|table| table.creation(keyspace));
    for creation in std::iter::once(keyspace_creation).chain(creations) {
        let mut statement = Statement::new(creation);
        statement.set_load_balancing_policy(coordinator.clone());
        // All nodes must have the result before it is used.
        statement.set_request_timeout(Some(CONNECT_TIME_MAX));
        let done = session.query_unpaged(statement, ()).await;
        done.map_err(|cause| error("create", &url.to_string(), &cause))?;
    }
    check(session, url).await
}

/// Makes an attempt, and repeats it for up to [`CONNECT_TIME_MAX`] after temporary errors. A node that has just started may not know a
/// new table yet, or may not know enough other nodes to answer.
pub(super) async fn until_known<T, F: Future<Output = Result<T, ArchiveError>>>(
    attempt: impl Fn() -> F,
) -> Result<T, ArchiveError> {
    let began = Instant::now();
    loop {
        match attempt().await {
            Err(cause) if may_be_unknown(&cause) && began.elapsed() < CONNECT_TIME_MAX => {
                tracing::info!("could not create the archive; retrying: {}", cause.with_sources());
                tokio::time::sleep(CREATE_AGAIN_AFTER).await;
            }
            done => return done,
        }
    }
}

/// Returns true for the errors of a node that does not know a new table yet, or cannot answer now.
pub(super) fn may_be_unknown(error: &ArchiveError) -> bool {
    let is_invalid = |error: &RequestAttemptError| matches!(error, RequestAttemptError::DbError(DbError::Invalid, _));
    match error {
        ArchiveError::Unprepared { .. } => true,
        ArchiveError::Failed { source, .. } => match (source.downcast_ref(), source.downcast_ref()) {
            (Some(ExecutionError::LastAttemptError(cause)), _) => is_invalid(cause),
            (_, Some(PrepareError::AllAttemptsFailed { first_attempt })) => is_invalid(first_attempt),
            _ => false,
        },
        other => other.is_temporary(),
    }
}

/// Checks that the keyspace has all tables, with their columns.
pub(super) async fn check(session: &Session, url: &CassandraUrl) -> Result<(), ArchiveError> {
    let place = url.to_string();
    let list = "SELECT table_name, column_name, type FROM system_schema.columns WHERE keyspace_name = ?";
    let found = session.query_unpaged(list, (url.keyspace.as_str(),)).await;
    let found = found.map_err(|cause| error("open", &place, &cause))?;
    let columns = rows::typed::<(String, String, String)>(found);
    let columns = columns.map_err(|cause| ArchiveError::Damaged { place, what: cause.to_string() })?;
    if columns.is_empty() {
        return Err(unprepared(url, "there is no such keyspace, or it has no tables"));
    }
    for table in &TABLES {
        let of_table = columns.iter().filter(|(name, ..)| name == table.name);
        let of_table: Vec<_> = of_table.map(|(_, name, of_type)| (name.clone(), of_type.clone())).collect();
        if let Some(difference) = table.difference(&of_table) {
            return Err(unprepared(url, &difference));
        }
    }
    Ok(())
}

/// Returns the error for an archive that was not created, or not completely.
pub(super) fn unprepared(url: &CassandraUrl, missing: &str) -> ArchiveError {
    ArchiveError::Unprepared { place: url.to_string(), missing: missing.to_owned() }
}

/// All statements, prepared.
pub(super) struct Statements {
    pub(super) put_post: PreparedStatement,
    pub(super) post: PreparedStatement,
    pub(super) put_entry: PreparedStatement,
    pub(super) delete_entry: PreparedStatement,
    pub(super) entry: PreparedStatement,
    pub(super) older: PreparedStatement,
    pub(super) newer: PreparedStatement,
    pub(super) bucket: PreparedStatement,
    pub(super) drop_bucket: PreparedStatement,
    pub(super) layouts: PreparedStatement,
    /// As `layouts`, but first completes the changes that another process has begun.
    pub(super) settled_layouts: PreparedStatement,
    pub(super) create_layout: PreparedStatement,
    pub(super) change_layout: PreparedStatement,
    pub(super) drop_layouts: PreparedStatement,
    pub(super) meta: PreparedStatement,
    pub(super) put_meta: PreparedStatement,
    pub(super) create_meta: PreparedStatement,
    pub(super) change_meta: PreparedStatement,
    pub(super) all_posts: PreparedStatement,
    pub(super) all_buckets: PreparedStatement,
}

/// Rows of a page of a scan.
const SCAN_ROWS: i32 = 1_000;

const OF_BUCKET: &str = "WHERE source = ? AND route = ? AND bucket = ?";

const IN_SPAN: &str = "AND (published_at, id) > (?, ?) AND (published_at, id) < (?, ?)";

impl Statements {
    pub(super) async fn prepare(
        connection: &Connection,
        options: &CassandraOptions,
    ) -> Result<Self, scylla::errors::PrepareError> {
        let keyspace = &options.url.keyspace;
        let of = |text: &str| text.replace("{ks}", keyspace);
        let read = async |text: &str| with(connection, of(text), Kind::Read, options.read_time_max).await;
        let write = async |text: &str| with(connection, of(text), Kind::Write, WRITE_TIME_MAX).await;
        let swap = async |text: &str| with(connection, of(text), Kind::Swap, WRITE_TIME_MAX).await;
        let scan = async |text: &str| with(connection, of(text), Kind::Scan, WRITE_TIME_MAX).await;
        let mut settled_layouts = read("SELECT route, layout, version FROM {ks}.buckets WHERE source = ?").await?;
        settled_layouts.set_consistency(Consistency::LocalSerial);
        settled_layouts.set_request_timeout(Some(WRITE_TIME_MAX));
        let entry = format!("{OF_BUCKET} AND published_at = ? AND id = ?");
        Ok(Self {
            put_post: write("INSERT INTO {ks}.posts (id, record, deleted) VALUES (?, ?, ?) USING TIMESTAMP ? AND TTL ?")
                .await?,
            post: read("SELECT record, deleted FROM {ks}.posts WHERE id = ?").await?,
            put_entry: write(
                "INSERT INTO {ks}.outboxes (source, route, bucket, published_at, id, kept) VALUES (?, ?, ?, ?, ?, true) \
                USING TIMESTAMP ? AND TTL ?",
            )
            .await?,
            delete_entry: write(&format!("DELETE FROM {{ks}}.outboxes USING TIMESTAMP ? {entry}")).await?,
            entry: read(&format!("SELECT id FROM {{ks}}.outboxes {entry}")).await?,
            older: read(&format!("SELECT published_at, id FROM {{ks}}.outboxes {OF_BUCKET} {IN_SPAN} LIMIT ?")).await?,
            newer: read(&format!(
                "SELECT published_at, id FROM {{ks}}.outboxes {OF_BUCKET} {IN_SPAN} \
                ORDER BY published_at ASC, id ASC LIMIT ?"
            ))
            .await?,
            bucket: scan(&format!(
                "SELECT published_at, id, WRITETIME(kept), TTL(kept) FROM {{ks}}.outboxes {OF_BUCKET}"
            ))
            .await?,
            drop_bucket: write(&format!("DELETE FROM {{ks}}.outboxes USING TIMESTAMP ? {OF_BUCKET}")).await?,
            layouts: read("SELECT route, layout, version FROM {ks}.buckets WHERE source = ?").await?,
            settled_layouts,
            create_layout: swap(
                "INSERT INTO {ks}.buckets (source, route, layout, version) VALUES (?, ?, ?, ?) IF NOT EXISTS",
            )
            .await?,
            change_layout: swap(
                "UPDATE {ks}.buckets SET layout = ?, version = ? WHERE source = ? AND route = ? IF version = ?",
            )
            .await?,
            drop_layouts: swap("DELETE FROM {ks}.buckets WHERE source = ? AND route = ? IF version = ?").await?,
            meta: read("SELECT value, version FROM {ks}.meta WHERE key = ?").await?,
            put_meta: write("INSERT INTO {ks}.meta (key, value) VALUES (?, ?) USING TIMESTAMP ?").await?,
            create_meta: swap("INSERT INTO {ks}.meta (key, value, version) VALUES (?, ?, ?) IF NOT EXISTS").await?,
            change_meta: swap("UPDATE {ks}.meta SET value = ?, version = ? WHERE key = ? IF version = ?").await?,
            all_posts: scan("SELECT id, record, deleted FROM {ks}.posts").await?,
            all_buckets: scan("SELECT DISTINCT source, route, bucket FROM {ks}.outboxes").await?,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    /// A compare-and-set, which needs consensus.
    Swap,
    /// Page by page.
    Scan,
}

async fn with(
    connection: &Connection,
    text: String,
    kind: Kind,
    time_max: Duration,
) -> Result<PreparedStatement, scylla::errors::PrepareError> {
    let mut statement = Statement::new(text);
    statement.set_page_size(SCAN_ROWS);
    let mut prepared = connection.session.prepare(statement).await?;
    prepared.set_consistency(Consistency::LocalQuorum);
    prepared.set_serial_consistency(Some(SerialConsistency::LocalSerial));
    // Repeating a compare-and-set that was applied reports a conflict with itself.
    prepared.set_is_idempotent(kind != Kind::Swap);
    prepared.set_request_timeout(Some(time_max));
    if kind == Kind::Read {
        prepared.set_execution_profile_handle(Some(of_reads(connection.datacentre.as_deref())));
    }
    Ok(prepared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_table_or_column_is_named() {
        let [posts, ..] = &TABLES;
        let columns = |names: &[(&str, &str)]| -> Vec<_> {
            names.iter().map(|(name, of_type)| ((*name).to_owned(), (*of_type).to_owned())).collect()
        };
        assert_eq!(posts.difference(&[]), Some("there is no table posts".to_owned()));
        assert_eq!(posts.difference(&columns(posts.columns)), None);
        let mistyped = columns(&[("deleted", "boolean"), ("id", "text"), ("more", "int"), ("record", "blob")]);
        assert_eq!(posts.difference(&mistyped), Some("the table posts has no column id bigint".to_owned()));
        assert_eq!(
            TABLES[1].creation("feeds"),
            "CREATE TABLE IF NOT EXISTS feeds.outboxes (bucket bigint, id bigint, kept boolean, published_at bigint, \
            route tinyint, source text, PRIMARY KEY ((source, route, bucket), published_at, id)) \
            WITH CLUSTERING ORDER BY (published_at DESC, id DESC) AND compaction = {'class': 'UnifiedCompactionStrategy'}"
        );
    }
}
