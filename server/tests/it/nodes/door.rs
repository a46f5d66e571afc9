//! The network between one node and all brokers, as a proxy that can be cut: neither end notices anything but silence, and what was sent
//! meanwhile arrives when it is whole again.

use std::net::TcpListener;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

pub struct Door {
    /// The addresses of the brokers behind it, separated by commas.
    pub addresses: String,
    is_open: watch::Sender<bool>,
    runtime: Option<Runtime>,
}

impl Door {
    /// Creates an open door. `ports` has, for each broker, where the door listens, and where the broker does.
    pub fn new(ports: &[(u16, u16)]) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let is_open = watch::Sender::new(true);
        for (port, broker) in ports {
            let listener = TcpListener::bind(("127.0.0.1", *port)).unwrap();
            listener.set_nonblocking(true).unwrap();
            runtime.spawn(serve(listener, *broker, is_open.subscribe()));
        }
        let addresses: Vec<_> = ports.iter().map(|(port, _)| format!("127.0.0.1:{port}")).collect();
        Self { addresses: addresses.join(","), is_open, runtime: Some(runtime) }
    }

    pub fn set_open(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

async fn serve(listener: TcpListener, broker: u16, is_open: watch::Receiver<bool>) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    loop {
        let (node, _) = listener.accept().await.unwrap();
        tokio::spawn(pass(node, broker, is_open.clone()));
    }
}

async fn pass(node: TcpStream, broker: u16, mut is_open: watch::Receiver<bool>) {
    if is_open.wait_for(|is_open| *is_open).await.is_err() {
        return;
    }
    // The node loses its connection if the broker is dead.
    let Ok(broker) = TcpStream::connect(("127.0.0.1", broker)).await else { return };
    node.set_nodelay(true).and_then(|()| broker.set_nodelay(true)).unwrap();
    let ((of_node, to_node), (of_broker, to_broker)) = (node.into_split(), broker.into_split());
    tokio::select! {
        () = copy(of_node, to_broker, is_open.clone()) => {}
        () = copy(of_broker, to_node, is_open.clone()) => {}
    }
}

/// Passes bytes on while the door is open, until one of the sides has closed.
async fn copy(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut is_open: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        // The end of a connection does not pass a cut network either.
        let is_cut =
            tokio::time::timeout(Duration::from_secs(600), is_open.wait_for(|is_open| *is_open)).await.is_err();
        if read == 0 || is_cut || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
