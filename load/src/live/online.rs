//! Readers who are online while something else is measured: each has a live connection and reads all messages.

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
use crate::live::machine::{OTHER_FILES, raise_to};
use crate::live::messages::{Counts, Listener, Order};
use crate::live::socket::{Reads, Socket};
use crate::live::wire::Tidewire;
use crate::operation::User;
use crate::report::{Case, TargetReport};

/// Delay before a reader reconnects after its connection was cut off.
const BACK_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of connections that are opened concurrently.
const OPENING_MAX: usize = 64;

/// Maximum number of connections of clients besides readers, in an overload or in a search for the maximum rate.
const CLIENTS_MAX: usize = 4_096;

/// Raises the limit on open files, for this process and the server that it starts next, so that it suffices for the readers and the
/// clients.
///
/// # Errors
/// If the system does not allow it.
pub fn make_room(readers: usize) -> Result<(), Error> {
    let allowed = raise_to(readers + CLIENTS_MAX + OTHER_FILES);
    let room = allowed.saturating_sub(OTHER_FILES);
    if readers <= room {
        return Ok(());
    }
    Err(Error::OpenFiles { allowed, connections: readers, measure: "--online-share", room })
}

/// Online readers. They stay connected until `end` is called.
#[derive(Debug)]
pub struct Online {
    /// Dropped to stop the thread.
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Counts>,
    readers: usize,
}

/// The results of readers who were online.
#[derive(Clone, Debug)]
pub struct Heard {
    readers: usize,
    counts: Counts,
}

impl Online {
    /// Connects readers to a server. Returns after all have received their `hello`.
    ///
    /// # Errors
    /// If a reader cannot connect.
    pub fn connect(server: SocketAddr, readers: Vec<User>) -> Result<Self, Error> {
        let (stop, stopped) = oneshot::channel();
        let (ready, readied) = mpsc::channel();
        let count = readers.len();
        let thread = thread::spawn(move || {
            let counters = Rc::new(ReaderCounts::default());
            match runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => LocalSet::new().block_on(&runtime, stay(server, readers, &counters, ready, stopped)),
                Err(cause) => drop(ready.send(Err(Error::System(cause)))),
            }
            counters.0.take()
        });
        readied.recv().map_err(|_| Error::Crashed)??;
        Ok(Self { stop, thread, readers: count })
    }

    /// Ends the connections, and adds the numbers of received messages to the report.
    pub fn end_into(self, report: &mut TargetReport) {
        match self.end() {
            Ok(heard) => {
                report.failures.extend(heard.wrong());
                report.cases.insert(Heard::CASE.to_owned(), heard.case());
            }
            Err(cause) => report.failures.push(cause.to_string()),
        }
    }

    /// Ends the connections.
    ///
    /// # Errors
    /// If the thread of the connections crashed.
    pub fn end(self) -> Result<Heard, Error> {
        drop(self.stop);
        let counts = self.thread.join().map_err(|_| Error::Crashed)?;
        Ok(Heard { readers: self.readers, counts })
    }
}

/// Connects all readers, reports that they are ready, and keeps them connected until it is stopped.
async fn stay(
    server: SocketAddr,
    readers: Vec<User>,
    counters: &Rc<ReaderCounts>,
    ready: mpsc::Sender<Result<(), Error>>,
    stopped: oneshot::Receiver<()>,
) {
    let open = async |reader: User| {
        Socket::open(server, reader, Tidewire::boxed(reader), Reads::Always, Rc::clone(counters) as _).await
    };
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
        let counters = Rc::clone(counters);
        listening.spawn_local(async move {
            loop {
                socket.listen().await;
                socket = loop {
                    sleep(BACK_AFTER).await;
                    let wire = Tidewire::boxed(reader);
                    match Socket::open(server, reader, wire, Reads::Always, Rc::clone(&counters) as _).await {
                        Ok(socket) => break socket,
                        Err(_) => counters.0.borrow_mut().turned_away += 1,
                    }
                };
            }
        });
    }
    // The tasks of the connections end when the set is dropped.
    let _ = listening.run_until(stopped).await;
}

/// The counters of all readers.
#[derive(Debug, Default)]
struct ReaderCounts(RefCell<Counts>);

impl Listener for ReaderCounts {
    fn on_post(&self, _: usize, _: Instant) {
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

    /// Returns the case of the report: the number of received posts. Connections that were cut off count as failed.
    pub fn case(&self) -> Case {
        let heard = self.counts.messages as f64;
        let failed = self.counts.closed() + self.counts.turned_away;
        Case { unit: "posts".to_owned(), median: heard, rounds: vec![heard], failed, ..Case::default() }
    }

    /// Describes errors that are never allowed, whatever the load; `None` if there are none.
    pub fn wrong(&self) -> Option<String> {
        let reported = self.counts.tally.describe();
        (!reported.is_empty()).then(|| format!("{} readers online: {}", self.readers, reported.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disconnected_readers_are_counted_and_lost_messages_are_errors() {
        let counters = ReaderCounts::default();
        counters.on_post(0, Instant::now());
        counters.leave(4008);
        let heard = Heard { readers: 3, counts: counters.0.borrow().clone() };
        assert_eq!((heard.case().median, heard.case().failed, heard.wrong()), (1.0, 1, None));
        counters.count(Order::Gap(2));
        let heard = Heard { readers: 3, counts: counters.0.take() };
        assert_eq!(heard.wrong().as_deref(), Some("3 readers online: 2 messages lost"));
    }
}
