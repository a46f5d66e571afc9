//! The designs of a comparison: their servers, each in its own process on private ports, and their clients.

use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::{fs, io};

use super::mqtt::Mqtt;
use super::nats::Nats;
use super::posts::Stamps;
use super::socket_io::SocketIo;
use crate::live::api::{Api, Publish};
use crate::live::audience::Audience;
use crate::live::socket::{Reads, Socket};
use crate::live::wire::{Tidewire, Wire};
use crate::live::{Error, start_tidewire};
use crate::operation::User;
use crate::target::process::{Process, find_program, free_address};
use crate::target::tidewire::http::Http;
use crate::target::{Failure, Target};

/// The folder of the Socket.IO server.
const RIVALS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rivals");

/// A design that delivers posts over WebSockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Design {
    /// Tidewire in its own process, published to over HTTP; messages in batches, as its clients request
    TidewireHttp,
    /// The same, each message in its own frame
    TidewireUnbatched,
    /// The MQTT broker Mosquitto, with a topic for each author
    Mosquitto,
    /// The NATS server, with a subject for each author
    Nats,
    /// Socket.IO on Node, with a room for each author
    SocketIo,
}

/// A running server and the number of its users so far. Dropping it stops the server.
pub(super) struct Running {
    design: Design,
    server: Server,
    users: Cell<User>,
}

enum Server {
    Tidewire(Http),
    Rival { process: Process, address: SocketAddr, settings: Vec<String> },
}

/// A publisher that stamps posts with numbers.
pub(super) struct Publisher {
    connection: Connection,
    stamps: Rc<Stamps>,
}

enum Connection {
    Http(Api),
    Socket(Socket),
}

impl Design {
    /// All designs, Tidewire first.
    pub const ALL: [Self; 5] =
        [Self::TidewireHttp, Self::TidewireUnbatched, Self::Mosquitto, Self::Nats, Self::SocketIo];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::TidewireHttp => "tidewire_http",
            Self::TidewireUnbatched => "tidewire_unbatched",
            Self::Mosquitto => "mosquitto",
            Self::Nats => "nats",
            Self::SocketIo => "socket_io",
        }
    }

    /// Returns the reason why the server cannot be started, or `None` if it is installed.
    pub(super) fn absence(self) -> Option<String> {
        self.program().err().map(|cause| cause.to_string())
    }

    /// Starts the server for this many connections, and waits until a client can subscribe.
    pub(super) async fn start(self, connections: usize) -> Result<Running, Failure> {
        let server = match self {
            Self::TidewireHttp | Self::TidewireUnbatched => Server::Tidewire(start_tidewire(connections, &[]).await?),
            Self::Mosquitto | Self::Nats | Self::SocketIo => self.start_rival().await?,
        };
        Ok(Running { design: self, server, users: Cell::new(0) })
    }

    async fn start_rival(self) -> Result<Server, Failure> {
        let program = self.program()?;
        let address = free_address().map_err(|cause| Failure::of(&cause))?;
        // Brokers listen for clients without WebSockets as well.
        let second = free_address().map_err(|cause| Failure::of(&cause))?;
        let process = Process::start(&program, |directory| self.arguments(directory, address, second));
        let mut process = process.map_err(|cause| Failure::of(&cause))?;
        let ready = process.wait_until(async || {
            let nobody = Rc::new(Audience::default());
            Socket::open(address, 0, self.wire(0, Some(0)), Reads::Always, nobody).await.is_ok()
        });
        ready.await.map_err(|cause| Failure::of(&cause))?;
        let log = fs::read_to_string(process.directory().join("log")).unwrap_or_default();
        let settings = [self.version(&log)].into_iter().chain(self.settings()).collect();
        Ok(Server::Rival { process, address, settings })
    }

    /// Returns the program of the server.
    fn program(self) -> Result<PathBuf, Failure> {
        let (name, package) = match self {
            Self::TidewireHttp | Self::TidewireUnbatched => return Ok(PathBuf::new()),
            Self::Mosquitto => ("mosquitto", "mosquitto"),
            Self::Nats => ("nats-server", "nats-server"),
            Self::SocketIo => ("node", "nodejs"),
        };
        let absent = || Failure::Failed(format!("there is no {name}: install the package {package} (Debian, Ubuntu)"));
        let program = find_program(name).ok_or_else(absent)?;
        if self == Self::SocketIo && !Path::new(RIVALS).join("node_modules/socket.io").is_dir() {
            return Err(Failure::Failed("there is no socket.io: run `npm ci` in load/rivals".to_owned()));
        }
        Ok(program)
    }

    /// Writes the configuration into the private directory, and returns the arguments of the server.
    fn arguments(self, directory: &Path, address: SocketAddr, second: SocketAddr) -> Vec<String> {
        let port = address.port();
        // A server that does not find its file exits, and the error contains its log.
        let configured = |text: String| {
            let file = directory.join("configuration");
            let _ = fs::write(&file, text);
            vec!["-c".to_owned(), file.display().to_string()]
        };
        match self {
            Self::TidewireHttp | Self::TidewireUnbatched => Vec::new(),
            // A change of the user would clear the parent-death signal, so that the broker would outlive this program. Version 2.0.11 exits
            // without a listener for clients without WebSockets, and ignores the address without `socket_domain`.
            Self::Mosquitto => configured(format!(
                "user root\nallow_anonymous true\nlistener {} 127.0.0.1\n\
                 listener {port} 127.0.0.1\nprotocol websockets\nsocket_domain ipv4\n",
                second.port()
            )),
            Self::Nats => {
                configured(format!("listen: \"{second}\"\nwebsocket {{\n  listen: \"{address}\"\n  no_tls: true\n}}\n"))
            }
            Self::SocketIo => {
                vec![Path::new(RIVALS).join("socket-io.js").display().to_string(), port.to_string()]
            }
        }
    }

    /// Returns the version that the server has written to its log.
    fn version(self, log: &str) -> String {
        let (mark, name) = match self {
            Self::TidewireHttp | Self::TidewireUnbatched => return String::new(),
            Self::Mosquitto => ("mosquitto version ", "Mosquitto"),
            Self::Nats => ("Version:", "nats-server"),
            Self::SocketIo => ("socket.io ", "Socket.IO"),
        };
        let found = log.lines().find_map(|line| Some(line.split_once(mark)?.1.trim()));
        format!("{name} {}", found.unwrap_or("of an unknown version").trim_end_matches(" starting"))
    }

    /// Returns the settings that differ from the server's defaults, and the options of its clients.
    fn settings(self) -> Vec<String> {
        let lines: &[&str] = match self {
            Self::TidewireHttp | Self::TidewireUnbatched => &[],
            Self::Mosquitto => &[
                "protocol websockets, allow_anonymous true: otherwise default settings",
                "MQTT 3.1.1, QoS 0, clean sessions without keep-alive pings; a topic for each author",
            ],
            Self::Nats => &[
                "websocket with no_tls: true: otherwise default settings",
                "core NATS, not verbose; a subject for each author",
            ],
            Self::SocketIo => &[
                "transports: websocket, serveClient: false: otherwise default settings, one process",
                "a room for each author, without connection state recovery",
            ],
        };
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    /// Returns the wire protocol of a client.
    fn wire(self, client: User, follows: Option<User>) -> Box<dyn Wire> {
        match self {
            Self::TidewireHttp => Tidewire::boxed(client),
            Self::TidewireUnbatched => Tidewire::unbatched(client),
            Self::Mosquitto => Box::new(Mqtt::of(client, follows)),
            Self::Nats => Box::new(Nats::of(follows)),
            Self::SocketIo => Box::new(SocketIo::of(follows)),
        }
    }
}

impl Running {
    /// Returns the address for WebSockets.
    pub(super) fn address(&self) -> SocketAddr {
        match &self.server {
            Server::Tidewire(http) => http.address(),
            Server::Rival { address, .. } => *address,
        }
    }

    /// Returns the process id.
    pub(super) fn process(&self) -> u32 {
        match &self.server {
            Server::Tidewire(http) => http.process().unwrap_or_default(),
            Server::Rival { process, .. } => process.id(),
        }
    }

    /// Returns the version and the settings, one per line.
    pub(super) fn settings(&self) -> Vec<String> {
        match &self.server {
            Server::Tidewire(http) => http.settings(),
            Server::Rival { settings, .. } => settings.clone(),
        }
    }

    /// Creates an author with this many new followers. In the other designs followers exist only once they subscribe.
    pub(super) async fn author_of(&self, followers: usize) -> Result<(User, Range<User>), Failure> {
        let author = self.users.get();
        let readers = author + 1..author + 1 + followers as User;
        self.users.set(readers.end);
        if let Server::Tidewire(http) = &self.server {
            let edges: Vec<(User, User)> = readers.clone().map(|reader| (reader, author)).collect();
            http.load_follows(&edges).await?;
        }
        Ok((author, readers))
    }

    /// Returns the wire protocol of a follower.
    pub(super) fn wire(&self, reader: User, author: User) -> Box<dyn Wire> {
        self.design.wire(reader, Some(author))
    }

    /// Opens a connection to publish.
    pub(super) async fn publisher(&self, stamps: &Rc<Stamps>) -> Result<Publisher, Error> {
        let address = self.address();
        let connection = match &self.server {
            Server::Tidewire(_) => Connection::Http(Api::open(address).await?),
            Server::Rival { .. } => {
                // A broker closes the older one of two connections of the same client.
                let client = self.users.get();
                self.users.set(client + 1);
                let (wire, nobody) = (self.design.wire(client, None), Rc::new(Audience::default()));
                Connection::Socket(Socket::open(address, client, wire, Reads::Always, nobody).await?)
            }
        };
        Ok(Publisher { connection, stamps: Rc::clone(stamps) })
    }

    /// Returns the number of concurrent publishers. One is enough for the other designs, because their publishers do not wait for an
    /// answer.
    pub(super) fn publishers(&self, of_tidewire: usize) -> usize {
        if matches!(self.server, Server::Tidewire(_)) { of_tidewire } else { 1 }
    }
}

impl Publish for Publisher {
    async fn publish(&mut self, author: User, body: &str) -> Result<(), Failure> {
        let body = self.stamps.stamp(author, body);
        let sent = match &mut self.connection {
            Connection::Http(api) => return api.publish(author, &body).await,
            Connection::Socket(socket) => socket.send(|wire, out| wire.publish(author, &body, out)).await,
        };
        sent.map_err(|cause: io::Error| Failure::Failed(format!("publishing: {cause}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_logs() {
        for (design, log, version) in [
            (Design::Mosquitto, "1: Warning\n2: mosquitto version 2.0.11 starting\n", "Mosquitto 2.0.11"),
            (Design::Nats, "[INF] Starting nats-server\n[INF]   Version:  2.9.10\n", "nats-server 2.9.10"),
            (Design::SocketIo, "socket.io 4.8.4, Node v20\n", "Socket.IO 4.8.4, Node v20"),
            (Design::Nats, "", "nats-server of an unknown version"),
        ] {
            assert_eq!(design.version(log), version);
        }
    }
}
