//! A WebSocket client that reports what it is told.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use testkit::in_time;
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

pub struct Client {
    pub socket: WebSocketStream<TcpStream>,
    pub hello: Value,
}

/// What comes next.
#[derive(Debug, PartialEq)]
pub enum Next {
    Message(Value),
    Closed(u16),
}

impl Client {
    /// Connects.
    pub async fn open(address: SocketAddr, path: &str) -> Self {
        Self { socket: open(address, path).await.unwrap(), hello: Value::Null }
    }

    /// Connects, and takes the first message.
    pub async fn connect(address: SocketAddr, path: &str) -> Self {
        let mut client = Self::open(address, path).await;
        client.hello = client.message().await;
        assert_eq!(client.hello["type"], "hello", "{}", client.hello);
        client
    }

    /// The reader's feed, from the beginning.
    pub async fn watch(address: SocketAddr, reader: &str) -> Self {
        Self::connect(address, &format!("/v1/users/{reader}/live")).await
    }

    /// The same, by a client that is soon noticed to read nothing: it has small buffers.
    pub async fn with_small_buffers(address: SocketAddr, reader: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 * 1024).unwrap();
        let stream = socket.connect(address).await.unwrap();
        let socket = client_async(format!("ws://{address}/v1/users/{reader}/live"), stream).await.unwrap().0;
        let mut client = Self { socket, hello: Value::Null };
        client.hello = client.message().await;
        client
    }

    /// The reader's feed, from where another connection was.
    pub async fn resume(address: SocketAddr, reader: &str, epoch: &Value, seq: u64) -> Self {
        let epoch = epoch.as_str().unwrap();
        Self::connect(address, &format!("/v1/users/{reader}/live?epoch={epoch}&seq={seq}")).await
    }

    pub async fn next(&mut self) -> Next {
        let next = async {
            loop {
                return match self.socket.next().await {
                    Some(Ok(Message::Text(text))) => Next::Message(serde_json::from_str(&text).unwrap()),
                    Some(Ok(Message::Close(frame))) => Next::Closed(frame.map_or(0, |frame| frame.code.into())),
                    // Answered by the library with the next read.
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                    other => panic!("neither told nor closed: {other:?}"),
                };
            }
        };
        in_time("something is told", next).await
    }

    pub async fn message(&mut self) -> Value {
        match self.next().await {
            Next::Message(message) => message,
            Next::Closed(code) => panic!("closed with {code}"),
        }
    }

    /// The next message in short: its type, and the post it is about.
    pub async fn told(&mut self) -> String {
        let message = self.message().await;
        let post = [&message["item"]["post"]["id"], &message["post"]["id"], &message["post"], &message["below"]];
        let post = post.into_iter().find_map(Value::as_str).unwrap_or("");
        format!("{} {post}", message["type"].as_str().unwrap()).trim().to_owned()
    }

    pub async fn send(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }
}

/// Opens a WebSocket.
pub async fn open(address: SocketAddr, path: &str) -> Result<WebSocketStream<TcpStream>, Error> {
    let stream = TcpStream::connect(address).await.map_err(Error::Io)?;
    let opened = in_time("an answer to the handshake", client_async(format!("ws://{address}{path}"), stream)).await;
    opened.map(|(socket, _)| socket)
}
