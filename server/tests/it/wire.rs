//! Connections that can be cut.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes the bytes of connections on, until they are cut. Later ones are passed on again.
pub struct Wire {
    pub address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Wire {
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let open = Arc::clone(&streams);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let far = testkit::connect(target);
                let copies = [(&near, &far), (&far, &near)]
                    .map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()));
                // Noted before any byte passes, so that `cut` also ends a connection whose first bytes were just read.
                open.lock().unwrap().extend([near, far]);
                for (mut from, mut to) in copies {
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        Self { address, streams }
    }

    pub fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
