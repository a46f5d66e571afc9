//! Starts a node of a cluster: restores its state from its own snapshot or that of another node, and from the log.

use std::error::Error;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use tokio::time::timeout;
use ureq::http::StatusCode;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::backup::cluster::newest_snapshot;
use crate::backup::store::Store;
use crate::backup::url::BackupUrl;
use crate::cli::client::Refused;
use crate::cli::node_log::NodeLog;
use crate::cli::opening;
use crate::cli::recovering;
use crate::cli::scheduled_backups::{Backups, start_backups};
use crate::cli::settings::{OldPosts, Settings, SettingsError};
use crate::cli::tls_connector;
use crate::http::cluster::{ClusterKey, KEY_HEADER};
use crate::http::engine_cell::EngineCell;
use crate::http::trust::{self, TrustError};
use tidewire::StorageError;
use tidewire::clock::SystemClock;
use tidewire::cluster::journal::NodeOptions;
use tidewire::cluster::placement::Placement as _;
use tidewire::cluster::state::ClusterState;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, Joining, NodeStorage};
use tidewire::recovery::node::{NoSnapshot, SnapshotPeers};
use tidewire::storage::log::SharedLog;
use tidewire::storage::sequence::Sequence;

/// Maximum time between two searches for live connections of readers that this node does not own. Each change of ownership triggers
/// another search.
const LIVE_LOOK_PERIOD: Duration = Duration::from_secs(1);

/// Maximum time to connect to another node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum time until another node answers. A node answers soon even if it has to take a snapshot first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time between two pieces of a snapshot.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Maximum time for a snapshot: some hundred GB at the minimum rate of the sender.
const SENDING_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Maximum time for a part of a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a snapshot per read.
const PIECE_BYTES: usize = 256 << 10;

/// Number of pieces that are read ahead of storing them.
const PIECES_AHEAD: usize = 4;

/// Minimum retention of a cluster's backups. A node that is replaced in the middle of a run then does not remove a backup that the next
/// node continues.
const BACKUP_KEEP_MIN: Duration = Duration::from_secs(3_600);

/// The URL scheme of an archive that several nodes can share.
const SHARED_ARCHIVE: &str = "cassandra://";

/// Refuses settings that a node of a cluster does not support.
///
/// # Errors
/// The error names the option.
pub(super) fn check(settings: &Settings) -> Result<(), SettingsError> {
    let refuse = |option, what: &str| Err(SettingsError::Nonsense { option, what: what.to_owned() });
    if settings.repair {
        return refuse("repair", "is for a server on one machine: a node reads the log of its cluster again");
    }
    if settings.archive.as_ref().is_some_and(|archive| !archive.starts_with(SHARED_ARCHIVE)) {
        return refuse(
            "archive",
            "must be cassandra://HOST:PORT,…/KEYSPACE in a cluster, or left out to keep all posts in memory: all nodes share it",
        );
    }
    if settings.archive_ttl.is_some() {
        return refuse(
            "archive-ttl",
            "is for a server on one machine: the archive of a cluster also has the posts in memory, and would lose them",
        );
    }
    if settings.backup_to.is_some() && settings.data_dir.is_none() {
        return refuse(
            "backup-to",
            "needs --data-dir on a node of a cluster: each backup begins with a snapshot of the node",
        );
    }
    if settings.backup_keep.is_some_and(|kept| kept.0 < BACKUP_KEEP_MIN) {
        return refuse(
            "backup-keep",
            "must be at least 1h in a cluster: another node may take over in the middle of a run",
        );
    }
    Ok(())
}

/// A node that is about to join its cluster.
pub(crate) struct NodeStart {
    pub(super) log: NodeLog,
    pub(super) options: NodeOptions,
    pub(super) view: Arc<ClusterState>,
    pub(super) storage: Option<NodeStorage>,
    pub(super) peers: HttpPeers,
    pub(super) old_posts: OldPosts,
}

impl NodeStart {
    /// Puts the engine into the cell of the HTTP server once it has caught up with the log. Returns when it cannot follow the log any
    /// longer.
    pub(super) fn run(
        self,
        config: EngineConfig,
        cell: &EngineCell,
        backups: Option<Backups>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Self { log, options, view, storage, peers, old_posts } = self;
        let (clock, joined) = (Arc::new(SystemClock), Arc::clone(&view));
        let join = || {
            let log = Arc::new(log.open(cell.progress())?);
            // Without an archive, a node of a cluster keeps all posts in memory.
            let archive = opening::awaited_archive(&old_posts, cell.progress()).map_err(StorageError::from)?;
            let joining = Joining {
                config,
                log: &*log,
                options,
                view,
                storage,
                archive,
                peers: &peers,
                clock,
                progress: cell.progress(),
            };
            Ok::<_, Box<dyn Error + Send + Sync>>((joining.run()?, log))
        };
        let ((engine, report), log) = recovering::reported(cell, join)??;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        // Fails only if the state is dropped.
        let _ = runtime.block_on(joined.role_changes().wait_for(|()| joined.is_ready() || joined.has_failed()));
        if joined.is_ready() {
            if let Some((options, figures)) = backups {
                let cluster = (Arc::clone(&log) as Arc<dyn SharedLog>, Arc::clone(&joined));
                if let Err(cause) = start_backups(&engine, Some(cluster), options, &figures) {
                    engine.shutdown();
                    return Err(cause.into());
                }
            }
            cell.set_recovered(engine.clone(), report);
            runtime.block_on(follow(&engine, &joined));
        }
        // End the process, so that a supervisor can start it again.
        Err("this node cannot follow the log of the cluster; the reason is logged above".into())
    }
}

/// Ends live connections of readers that move to other nodes, until the log cannot be followed any longer.
async fn follow(engine: &Engine, view: &ClusterState) {
    let mut changes = view.role_changes();
    loop {
        // Before the state is read: a change after this ends the wait.
        changes.mark_unchanged();
        if view.has_failed() {
            return;
        }
        engine.end_live_elsewhere(view);
        // Search again later: a connection may have been accepted before a change, and have a reader only now.
        let mut wait = LIVE_LOOK_PERIOD;
        // The owners of readers are unknown from the end of the lease on.
        if view.is_leased() {
            wait = wait.min(view.lease_left());
        }
        let _ = timeout(wait, changes.changed()).await;
    }
}

/// Other nodes, by their addresses, and the store of backups.
pub(super) struct HttpPeers {
    agent: Agent,
    key: String,
    /// The store, and the data directory of this node.
    store: Option<(BackupUrl, PathBuf)>,
}

impl HttpPeers {
    /// Creates a client of other nodes. Their `https` certificates must be signed by one of `authorities`, or be in this file.
    pub(super) fn new(key: &ClusterKey, authorities: Option<&Path>) -> Result<Self, TrustError> {
        let none = RootCerts::new_with_certs(&[]);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            // Never send the key of the cluster to another address.
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(ANSWER_TIMEOUT))
            .timeout_recv_body(Some(SENDING_TIMEOUT))
            .tls_config(TlsConfig::builder().root_certs(none).build())
            .build();
        let agent = match authorities {
            Some(file) => tls_connector::agent(config, trust::trusted(file)?),
            None => config.new_agent(),
        };
        let key = key.header().to_str().unwrap_or_default().to_owned();
        Ok(Self { agent, key, store: None })
    }

    /// Adds the store of backups, and the data directory of this node.
    pub(super) fn with_store(mut self, store: Option<(&BackupUrl, &Path)>) -> Self {
        self.store = store.map(|(store, directory)| (store.clone(), directory.to_owned()));
        self
    }
}

impl SnapshotPeers for HttpPeers {
    fn open(&self, address: &str, from: Sequence) -> Result<Box<dyn Read + Send>, NoSnapshot> {
        let request =
            self.agent.get(format!("{address}/v1/cluster/snapshot?from={from}")).header(KEY_HEADER, &self.key);
        let answer = request.call().map_err(|cause| NoSnapshot::Refused(cause.to_string()))?;
        let status = answer.status();
        let received = pieces(answer.into_body()).map_err(|cause| NoSnapshot::Refused(cause.to_string()))?;
        if status == StatusCode::OK {
            return Ok(Box::new(Pieces { received, piece: Vec::new(), taken: 0, silence_max: SILENCE_MAX }));
        }
        let parts = (0..PIECES_AHEAD).map_while(|_| received.recv_timeout(REFUSAL_TIMEOUT).ok()?.ok());
        let text: Vec<u8> = parts.flatten().collect();
        let refused = serde_json::from_slice::<Refused>(&text).map(|refused| refused.detail);
        let cause = refused.unwrap_or_else(|_| format!("it answered {status}"));
        Err(match status {
            StatusCode::SERVICE_UNAVAILABLE => NoSnapshot::Later(cause),
            _ => NoSnapshot::Refused(cause),
        })
    }

    fn open_stored(&self, from: Sequence) -> Option<Result<Box<dyn Read + Send>, String>> {
        self.store.as_ref().map(|(store, directory)| open_stored(store, from, directory))
    }
}

fn open_stored(store: &BackupUrl, from: Sequence, directory: &Path) -> Result<Box<dyn Read + Send>, String> {
    let opened = Store::open(store, false).and_then(|store| newest_snapshot(store, from, directory));
    opened.map_err(|cause| cause.to_string())
}

/// Reads an answer on its own thread, because a silent node may block it. The thread ends with the connection.
fn pieces(body: Body) -> io::Result<Receiver<io::Result<Vec<u8>>>> {
    let (pieces, received) = crossbeam_channel::bounded(PIECES_AHEAD);
    let mut body = body.into_reader();
    thread::Builder::new().name("tidewire-fetch".to_owned()).spawn(move || {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let read = body.read(&mut piece).inspect(|bytes| piece.truncate(*bytes));
            let is_last = !matches!(read, Ok(1..));
            if pieces.send(read.map(|_| piece)).is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(received)
}

/// The pieces of a snapshot, in order. The last piece is empty, or an error.
struct Pieces {
    received: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    taken: usize,
    silence_max: Duration,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() {
            self.piece = match self.received.recv_timeout(self.silence_max) {
                Ok(piece) => piece?,
                Err(RecvTimeoutError::Timeout) => {
                    let silent = format!("the other node has sent nothing for {:?}", self.silence_max);
                    return Err(io::Error::new(io::ErrorKind::TimedOut, silent));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            };
            self.taken = 0;
        }
        let left = &self.piece[self.taken..];
        let bytes = left.len().min(into.len());
        into[..bytes].copy_from_slice(&left[..bytes]);
        self.taken += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use testkit::eventually;

    use super::*;

    #[test]
    fn single_server_settings_are_refused() {
        let repair = Settings { repair: true, ..Settings::default() };
        let archive = |url: &str| Settings { archive: Some(url.to_owned()), ..Settings::default() };
        let expiring = Settings { archive_ttl: Some("7d".parse().unwrap()), ..archive("cassandra://127.0.0.1/feeds") };
        let backup = Settings { backup_to: Some("file:///backup".parse().unwrap()), ..Settings::default() };
        let with_directory = |settings: &Settings| Settings { data_dir: Some("data".into()), ..settings.clone() };
        let keep = |kept: &str| Settings { backup_keep: Some(kept.parse().unwrap()), ..with_directory(&backup) };
        for (settings, refused) in [
            (Settings::default(), None),
            (repair, Some("--repair")),
            (archive("/data/archive.redb"), Some("--archive")),
            (archive("cassandra://127.0.0.1/feeds"), None),
            (expiring, Some("--archive-ttl")),
            (backup.clone(), Some("--backup-to")),
            (with_directory(&backup), None),
            (keep("59m"), Some("--backup-keep")),
            (keep("1h"), None),
        ] {
            let found = check(&settings).err().map(|cause| cause.to_string());
            assert_eq!(found.is_some(), refused.is_some(), "{found:?}");
            assert!(found.unwrap_or_default().starts_with(refused.unwrap_or_default()));
        }
    }

    #[test]
    fn pieces_are_read_in_order_and_a_silent_sender_is_abandoned() {
        let (sender, received) = crossbeam_channel::bounded(PIECES_AHEAD);
        let mut pieces = Pieces { received, piece: Vec::new(), taken: 0, silence_max: Duration::from_millis(1) };
        sender.send(Ok(b"first ".to_vec())).unwrap();
        sender.send(Ok(b"second".to_vec())).unwrap();
        let mut read = [0; 12];
        pieces.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"first second");
        assert_eq!(pieces.read(&mut read).unwrap_err().kind(), io::ErrorKind::TimedOut);
        sender.send(Err(io::ErrorKind::ConnectionReset.into())).unwrap();
        assert_eq!(pieces.read(&mut read).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        drop(sender);
        assert_eq!(pieces.read(&mut read).unwrap(), 0);
    }

    /// Answers each request on a local port with the next of these texts, and returns the requests.
    fn answering(answers: Vec<String>) -> (String, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = thread::spawn(move || {
            let answer = |answer: String| {
                let mut connection = listener.accept().unwrap().0;
                let mut request = [0; 2_048];
                let bytes = connection.read(&mut request).unwrap();
                connection.write_all(answer.as_bytes()).unwrap();
                String::from_utf8_lossy(&request[..bytes]).into_owned()
            };
            answers.into_iter().map(answer).collect()
        });
        (address, asked)
    }

    #[test]
    fn only_snapshot_responses_are_accepted_and_redirects_do_not_receive_the_key() {
        let answer = |status: &str, header: &str, body: &str| {
            let bytes = body.len();
            format!("HTTP/1.1 {status}\r\ncontent-length: {bytes}\r\nconnection: close\r\n{header}\r\n{body}")
        };
        let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
        elsewhere.set_nonblocking(true).unwrap();
        let location = format!("location: http://{}/snapshot\r\n", elsewhere.local_addr().unwrap());
        let busy = r#"{"code": "overloaded", "detail": "it sends one"}"#;
        let (address, asked) = answering(vec![
            answer("307 Temporary Redirect", &location, ""),
            answer("204 No Content", "", ""),
            answer("503 Service Unavailable", "", busy),
            answer("403 Forbidden", "", "no problem document"),
            answer("200 OK", "", "the snapshot"),
        ]);
        let peers = HttpPeers::new(&ClusterKey::new(&"k".repeat(40)).unwrap(), None).unwrap();
        let mut refusals = Vec::new();
        let open = || peers.open(&address, Sequence(9));
        let mut opened = eventually("a snapshot comes", || open().map_err(|cause| refusals.push(cause)).ok());
        let refused = |cause: &str| NoSnapshot::Refused(cause.to_owned());
        assert_eq!(
            refusals,
            [
                refused("it answered 307 Temporary Redirect"),
                refused("it answered 204 No Content"),
                NoSnapshot::Later("it sends one".to_owned()),
                refused("it answered 403 Forbidden"),
            ]
        );
        let mut text = String::new();
        opened.read_to_string(&mut text).unwrap();
        assert_eq!(text, "the snapshot");
        for request in asked.join().unwrap() {
            assert!(request.starts_with("GET /v1/cluster/snapshot?from=9 "), "{request}");
            assert!(request.contains(&"k".repeat(40)), "{request}");
        }
        assert_eq!(elsewhere.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "nothing was sent there");
    }

    /// Answers one request over TLS, if the client accepts this certificate.
    fn answering_over_tls(certificate: &rcgen::Certificate, key: &rcgen::KeyPair) -> (String, thread::JoinHandle<()>) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let (chain, key) = (vec![certificate.der().clone()], key.serialize_der().try_into().unwrap());
        let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let serving = thread::spawn(move || {
            let connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, listener.accept().unwrap().0);
            if stream.read(&mut [0; 2_048]).is_ok_and(|bytes| bytes > 0) {
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nsnap";
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        (address, serving)
    }

    #[test]
    fn a_snapshot_is_fetched_over_tls_only_from_a_node_with_a_trusted_certificate() {
        let issue = || {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let key = rcgen::KeyPair::generate().unwrap();
            (params.self_signed(&key).unwrap(), key)
        };
        let (shown, other) = (issue(), issue());
        for (trusted, is_accepted) in [(&shown, true), (&other, false)] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), trusted.0.pem()).unwrap();
            let (address, serving) = answering_over_tls(&shown.0, &shown.1);
            let peers = HttpPeers::new(&ClusterKey::new(&"k".repeat(40)).unwrap(), Some(file.path())).unwrap();
            match peers.open(&address, Sequence(9)) {
                Ok(mut opened) => {
                    let mut text = String::new();
                    opened.read_to_string(&mut text).unwrap();
                    assert!(is_accepted && text == "snap", "{text}");
                }
                Err(cause) => {
                    let advice = format!("not in {}: add it to this file", file.path().display());
                    assert!(!is_accepted && format!("{cause:?}").contains(&advice), "{cause:?}");
                }
            }
            serving.join().unwrap();
        }
    }
}
