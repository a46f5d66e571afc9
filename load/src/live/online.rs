//! Readers who are online while something else is measured: each has a live connection and reads whatever it is told.
//!
//! Responsible for:
//! - keeping so many connected, on a thread of its own, and connecting those again that are cut off;
//! - what all of them heard.
//!
//! Not responsible for:
//! - who is online (`prepare`), what they are told of (`drive`).

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::live::Error;
use crate::live::heard::Counts;
use crate::live::machine::{OTHER_FILES, raise_to};
use crate::live::numbers::Order;
use crate::live::socket::{Listener, Reads, Socket};
use crate::operation::User;
use crate::report::Case;

/// How long who was cut off waits before coming back.
const BACK_AFTER: Duration = Duration::from_secs(1);

/// Connections that are opened at the same time.
const OPENING_MAX: usize = 64;

/// Connections of clients beside readers, at most: those of an overload, or of a search for the most.
const CLIENTS_MAX: usize = 4_096;

/// Lets this process, and the server that it starts then, have as many open files as so many readers need, and clients beside
/// them.
///
/// # Errors
/// When the system does not allow it.
pub fn make_room(readers: usize) -> Result<(), Error> {
    let allowed = raise_to(readers + CLIENTS_MAX + OTHER_FILES);
    let room = allowed.saturating_sub(OTHER_FILES);
    if readers <= room {
        return Ok(());
    }
    Err(Error::OpenFiles { allowed, connections: readers, measure: "--online-share", room })
}

/// Readers who are online until this ends.
#[derive(Debug)]
pub struct Online {
    /// Dropped to end.
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Counts>,
    readers: usize,
}

/// What readers who were online heard.
#[derive(Clone, Debug)]
pub struct Heard {
    readers: usize,
    counts: Counts,
}

impl Online {
    /// Connects readers to a server, and returns once each has its `hello`.
    ///
    /// # Errors
    /// When one cannot connect.
    pub fn connect(server: SocketAddr, readers: Vec<User>) -> Result<Self, Error> {
        let (stop, stopped) = oneshot::channel();
        let (ready, readied) = mpsc::channel();
        let count = readers.len();
        let thread = thread::spawn(move || {
            let crowd = Rc::new(Crowd::default());
            match runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => LocalSet::new().block_on(&runtime, stay(server, readers, &crowd, ready, stopped)),
                Err(cause) => drop(ready.send(Err(Error::System(cause)))),
            }
            crowd.0.take()
        });
        readied.recv().map_err(|_| Error::Crashed)??;
        Ok(Self { stop, thread, readers: count })
    }

    /// Ends the connections.
    ///
    /// # Errors
    /// When the thread that had them crashed.
    pub fn end(self) -> Result<Heard, Error> {
        drop(self.stop);
        let counts = self.thread.join().map_err(|_| Error::Crashed)?;
        Ok(Heard { readers: self.readers, counts })
    }
}

/// Connects them all, says so, and keeps them connected until it is told to stop.
async fn stay(
    server: SocketAddr,
    readers: Vec<User>,
    crowd: &Rc<Crowd>,
    ready: mpsc::Sender<Result<(), Error>>,
    stopped: oneshot::Receiver<()>,
) {
    let open = async |reader: User| Socket::open(server, reader, Reads::Always, Rc::clone(crowd) as _).await;
    let opening = stream::iter(&readers).map(async |reader| open(*reader).await.map(|socket| (*reader, socket)));
    let opened: Vec<_> = opening.buffer_unordered(OPENING_MAX).collect().await;
    let opened: Result<Vec<_>, Error> = opened.into_iter().collect();
    let sockets = match opened {
        Ok(sockets) => sockets,
        Err(cause) => return drop(ready.send(Err(cause))),
    };
    let _ = ready.send(Ok(()));
    let listening = LocalSet::new();
    for (reader, mut socket) in sockets {
        let crowd = Rc::clone(crowd);
        listening.spawn_local(async move {
            loop {
                socket.listen().await;
                socket = loop {
                    sleep(BACK_AFTER).await;
                    match Socket::open(server, reader, Reads::Always, Rc::clone(&crowd) as _).await {
                        Ok(socket) => break socket,
                        Err(_) => crowd.0.borrow_mut().turned_away += 1,
                    }
                };
            }
        });
    }
    // Their tasks end with the set.
    let _ = listening.run_until(stopped).await;
}

/// All of them.
#[derive(Debug, Default)]
struct Crowd(RefCell<Counts>);

impl Listener for Crowd {
    fn hear(&self, _: usize, _: Instant) {
        self.0.borrow_mut().messages += 1;
    }

    fn count(&self, order: Order) {
        self.0.borrow_mut().tally.add(order);
    }

    fn count_unnumbered(&self) {
        self.0.borrow_mut().tally.unnumbered += 1;
    }

    fn pinged(&self) {
        self.0.borrow_mut().pings += 1;
    }

    fn leave(&self, code: u16) {
        self.0.borrow_mut().leave(code);
    }
}

impl Heard {
    /// The name of the case.
    pub const CASE: &'static str = "heard_live";

    /// As it is told: posts that came over live connections. Connections that were cut off count as failed.
    pub fn case(&self) -> Case {
        let heard = self.counts.messages as f64;
        let failed = self.counts.closed() + self.counts.turned_away;
        Case { unit: "posts".to_owned(), median: heard, rounds: vec![heard], failed, ..Case::default() }
    }

    /// What is wrong with what they heard, whatever the load; none if nothing is.
    pub fn wrong(&self) -> Option<String> {
        let told = self.counts.tally.told();
        (!told.is_empty()).then(|| format!("{} readers online: {}", self.readers, told.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_cut_off_under_load_is_counted_and_what_is_lost_is_wrong() {
        let crowd = Crowd::default();
        crowd.hear(0, Instant::now());
        crowd.leave(4008);
        let heard = Heard { readers: 3, counts: crowd.0.borrow().clone() };
        assert_eq!((heard.case().median, heard.case().failed, heard.wrong()), (1.0, 1, None));
        crowd.count(Order::Gap(2));
        let heard = Heard { readers: 3, counts: crowd.0.take() };
        assert_eq!(heard.wrong().as_deref(), Some("3 readers online: 2 messages lost"));
    }
}
