//! Backups of a cluster whose log has records that do not count, or does not answer, and of which parts are lost.

use std::io::Read as _;
use std::sync::atomic::AtomicBool;

use tidewire::clock::{Clock as _, UnixMicros};
use tidewire::cluster::record::{ClusterId, Content, Epoch, Header, Incarnation, encode, encode_packed};
use tidewire::feed::event::Event;
use tidewire::recovery::node::NoPeers;
use tidewire::storage::log::memory::MemoryLog;
use tidewire::storage::log::{LogError, LogRange, LogReader, LogWriter, ReadLog, SharedLog};
use tidewire_server::backup::cluster::newest_snapshot;
use tidewire_server::backup::store::Store;

use super::of_cluster::{founded, loaded, start};
use super::*;
use testkit::world::id;

#[test]
fn late_events_of_a_replaced_node_are_not_backed_up() {
    run(async {
        let (place, log) = (Place::new(), founded(5));
        let node = start(&log, "a", &place.data(), &NoPeers).unwrap();
        node.write(1).await;
        let mut backups = node.backups(&place, Arc::new(log.clone()));
        back_up(&mut backups).unwrap();
        node.write(50).await;
        let by = Incarnation { node: "z".parse().unwrap(), run: 1 };
        let header = Header { cluster: ClusterId(5), by, epoch: Epoch(0), nth: 7 };
        let erased = Event::Erased { user: id("bob"), at: UnixMicros(i64::MAX / 2) };
        let mut writer = log.writer().unwrap();
        writer.append(encode(&header, &Content::Event(erased))).unwrap();
        // One that only a later version knows.
        writer.append(encode_packed(&header, b"\x81\xa5event\x81\xa6future\x80")).unwrap();
        node.write(100).await;
        let expected = node.state().await;
        let at = SystemClock.now();
        node.write(200).await;
        back_up(&mut backups).unwrap();
        let ran = place.restore("time", &format!("--to-time {at}"));
        assert_eq!((ran.code, &*ran.err), (0, ""), "nobody was erased");
        // Records without a time may follow the last event.
        let restored = loaded(&place.path("time"));
        assert!(restored.0 >= expected.0 && restored.1 == expected.1, "{restored:?} {expected:?}");
        let ran = place.restore("before", &format!("--to-sequence {}", restored.0 - 30));
        assert_eq!((ran.code, &*ran.err), (0, ""), "nobody is erased later");
        node.engine.shutdown();
    });
}

/// A log that does not answer the first reader.
struct Silent {
    log: MemoryLog,
    is_asked: AtomicBool,
}

impl SharedLog for Silent {
    fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
        self.log.writer()
    }

    fn to_read(&self) -> Arc<dyn ReadLog> {
        self.log.to_read()
    }
}

impl ReadLog for Silent {
    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError> {
        if self.is_asked.swap(true, Ordering::Relaxed) {
            return self.log.reader(after);
        }
        Err(LogError::Unavailable("no answer".to_owned()))
    }

    fn range(&self) -> Result<LogRange, LogError> {
        self.log.range()
    }

    fn place(&self) -> String {
        self.log.place()
    }
}

#[test]
fn an_unavailable_log_fails_a_run_and_the_next_run_continues_the_backup() {
    run(async {
        let (place, log) = (Place::new(), founded(5));
        let node = start(&log, "a", &place.data(), &NoPeers).unwrap();
        node.write(1).await;
        let mut backups = node.backups(&place, Arc::new(log.clone()));
        back_up(&mut backups).unwrap();
        node.write(50).await;
        back_up(&mut backups).unwrap();
        let mut backups = node.backups(&place, Arc::new(Silent { log: log.clone(), is_asked: AtomicBool::new(false) }));
        let failed = back_up(&mut backups).unwrap_err();
        assert!(matches!(failed, BackupError::Log(LogError::Unavailable(_))), "{failed}");
        back_up(&mut backups).unwrap();
        assert_eq!(place.objects("backups").len(), 1, "it is the same backup");
        node.engine.shutdown();
    });
}

#[test]
fn a_node_uses_an_older_backup_if_the_newest_one_lost_its_snapshot() {
    run(async {
        let (place, log) = (Place::new(), founded(5));
        let node = start(&log, "a", &place.data(), &NoPeers).unwrap();
        let options = BackupOptions { begin_every: Duration::ZERO, ..place.options() };
        let mut backups = node.backups_with(&place, Arc::new(log.clone()), options);
        let mut snapshots = Vec::new();
        for first in [1, 50] {
            node.write(first).await;
            node.state().await;
            back_up(&mut backups).unwrap();
            snapshots.push(node.engine.snapshots()[0].sequence);
        }
        let manifest = std::fs::read(place.objects("backups").last().unwrap()).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let lost = manifest["snapshot"][0]["sha256"].as_str().unwrap();
        std::fs::remove_file(place.store().join("objects").join(lost)).unwrap();
        // The snapshot of the older backup, and one that is made of it and the records after it.
        for from in snapshots {
            let open = || newest_snapshot(Store::open(&place.options().to, false).unwrap(), from, &place.path("node"));
            let read = || open().map(|mut snapshot| snapshot.read_to_end(&mut Vec::new()).unwrap());
            let bytes = thread::scope(|scope| scope.spawn(read).join().unwrap());
            assert!(bytes.unwrap() > 100, "{from}");
        }
        node.engine.shutdown();
    });
}
