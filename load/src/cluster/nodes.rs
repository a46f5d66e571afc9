//! The processes of a cluster, and the owners of its readers.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::cluster::unexpected;
use crate::target::process::{Process, complete, free_address, processor_time, resident_bytes};
use crate::target::tidewire::connection::Connection;

/// The common settings of all nodes of a cluster.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The server, built with the feature `cluster`.
    pub program: PathBuf,
    /// The addresses of the brokers.
    pub kafka: String,
    /// The number of copies of the log.
    pub replicas: u32,
    /// Time after which a silent node counts as dead.
    pub session: Duration,
}

/// A running node.
pub struct Node {
    name: String,
    /// The address that the node listens on.
    pub address: SocketAddr,
    process: Process,
}

/// Running nodes, and the owners of all readers.
pub struct Nodes {
    setup: Setup,
    cluster: String,
    key: tempfile::NamedTempFile,
    /// The nodes, in the order of their names.
    pub nodes: Vec<Node>,
    /// The cluster state as the first node reports it.
    pub view: ClusterInfo,
}

/// The answer to `GET /v1/cluster`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ClusterInfo {
    sequencer: Option<String>,
    /// The last record that the node has applied.
    pub applied: u64,
    partitions: u64,
    nodes: Vec<Member>,
}

#[derive(Clone, Debug, Deserialize)]
struct Member {
    name: String,
    partitions: Vec<u64>,
}

/// A request as text.
pub fn request(what: &str, json: &str) -> String {
    let mut request = format!("{what} HTTP/1.1\r\nHost: localhost\r\n");
    if !json.is_empty() {
        // Writing to a `String` cannot fail.
        let _ = write!(request, "Content-Type: application/json\r\nContent-Length: {}\r\n", json.len());
    }
    let _ = write!(request, "\r\n{json}");
    request
}

impl Node {
    async fn start(program: &Path, name: &str, options: &[String]) -> io::Result<Self> {
        let address = free_address()?;
        let mut process = Process::start(program, |directory| {
            let mut all: Vec<String> = vec!["serve".to_owned(), "--listen".to_owned(), address.to_string()];
            if options.iter().any(|option| option == "--cluster") {
                all.extend([
                    "--node".to_owned(),
                    name.to_owned(),
                    "--advertise".to_owned(),
                    format!("http://{address}"),
                ]);
            } else {
                all.extend(["--data-dir".to_owned(), directory.join("data").display().to_string()]);
            }
            all.extend_from_slice(options);
            all
        })?;
        process.wait_until(async || get(address, "/readyz").await.is_ok_and(|(status, _)| status == 200)).await?;
        Ok(Self { name: name.to_owned(), address, process })
    }

    /// Starts a single node with its own journal.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn alone(program: &Path, durability: &str) -> io::Result<Self> {
        Self::start(program, "alone", &["--durability".to_owned(), durability.to_owned()]).await
    }

    /// Returns the resident memory of the process.
    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(self.process.id())
    }

    /// Returns the processor time that the process has used.
    pub fn processor_time(&self) -> Duration {
        processor_time(self.process.id())
    }
}

/// Sends a GET request to a node.
pub async fn get(address: SocketAddr, path: &str) -> io::Result<(u16, Vec<u8>)> {
    let mut connection = Connection::open(address).await?;
    let (status, body) = connection.ask(request(&format!("GET {path}"), "").as_bytes()).await?;
    Ok((status, body.to_vec()))
}

impl Nodes {
    /// Creates a cluster with this name, and starts its nodes.
    ///
    /// # Errors
    /// If the brokers refuse it, or a node does not become a member.
    pub async fn start(setup: &Setup, cluster: &str, count: usize) -> io::Result<Self> {
        let replicas = setup.replicas.to_string();
        let init = ["cluster", "init", "--cluster", cluster, "--kafka", &setup.kafka, "--replicas", &replicas];
        let init = complete(&setup.program, init.map(str::to_owned))?;
        if !init.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&init.stderr).into_owned()));
        }
        let key = tempfile::NamedTempFile::new()?;
        std::fs::write(key.path(), "0123456789abcdef0123456789abcdef")?;
        let mut nodes = Self {
            setup: setup.clone(),
            cluster: cluster.to_owned(),
            key,
            nodes: Vec::new(),
            view: ClusterInfo::default(),
        };
        for nth in 0..count {
            nodes.add(&format!("node-{nth}")).await?;
        }
        nodes.await_members().await?;
        Ok(nodes)
    }

    /// Starts a further node.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn add(&mut self, name: &str) -> io::Result<()> {
        let session = format!("{}ms", self.setup.session.as_millis());
        let key = self.key.path().display().to_string();
        let options = ["--cluster", &self.cluster, "--kafka", &self.setup.kafka, "--member-timeout", &session];
        let mut options: Vec<String> = options.map(str::to_owned).to_vec();
        options.extend(["--cluster-key-file".to_owned(), key]);
        self.nodes.push(Node::start(&self.setup.program, name, &options).await?);
        Ok(())
    }

    /// Waits until all nodes report all nodes as members.
    ///
    /// # Errors
    /// If that takes longer than ten sessions.
    pub async fn await_members(&mut self) -> io::Result<()> {
        for _ in 0..1_000 {
            let mut agree = true;
            for node in &self.nodes {
                let (status, body) = get(node.address, "/v1/cluster").await?;
                self.view = serde_json::from_slice(&body).map_err(|_| unexpected("GET /v1/cluster", status, &body))?;
                agree &= self.view.sequencer.is_some() && self.view.nodes.len() == self.nodes.len();
            }
            if agree {
                return Ok(());
            }
            tokio::time::sleep(self.setup.session / 100).await;
        }
        Err(io::Error::other(format!("not all nodes are members: {:?}", self.view)))
    }

    /// Kills a node, and returns its name.
    pub fn kill(&mut self, node: usize) -> String {
        self.nodes.remove(node).name
    }

    /// Returns the sequencer: the node that accepts writes.
    pub fn sequencer(&self) -> usize {
        let is_it = |node: &Node| Some(&node.name) == self.view.sequencer.as_ref();
        self.nodes.iter().position(is_it).unwrap_or_default()
    }

    /// Returns the node that owns a reader.
    pub fn owner(&self, reader: &str) -> usize {
        let partition = xxh3_64(reader.as_bytes()) % self.view.partitions.max(1);
        let owner = self.view.nodes.iter().find(|member| member.partitions.contains(&partition));
        self.nodes.iter().position(|node| owner.is_some_and(|owner| owner.name == node.name)).unwrap_or_default()
    }

    /// Returns the numbers of the authors `author-0`, `author-1` … that a node owns. The owner of an author forwards its posts.
    pub fn authors_of(&self, node: usize, authors: usize) -> Vec<usize> {
        (0..authors).filter(|author| self.owner(&format!("author-{author}")) == node).collect()
    }

    /// Returns the addresses of all nodes.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_belongs_to_the_partition_that_the_servers_document() {
        // Must match the engine: `cluster::membership`.
        for (reader, partition) in [("alice", 176), ("bob", 229), ("carol", 164)] {
            assert_eq!(xxh3_64(reader.as_bytes()) % 256, partition);
        }
    }

    #[test]
    fn a_request_has_the_length_of_its_body() {
        assert_eq!(request("GET /", ""), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(request("POST /", "{}").ends_with("Content-Length: 2\r\n\r\n{}"));
    }
}
