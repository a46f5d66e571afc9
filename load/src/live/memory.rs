//! Measures the server's memory for each idle connection.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use crate::live::audience::Audience;
use crate::live::wire::Tidewire;
use crate::live::{Error, Run};
use crate::report::{Case, figure};
use crate::target::process::resident_bytes;

/// Names of the cases.
const CONNECTION: &str = "live_idle_memory";
const READER: &str = "live_reader_memory";

/// Time for the server to release memory that it no longer needs.
const SETTLING: Duration = Duration::from_secs(2);

/// Connecting wakes a reader, so all are woken before: the remaining growth is caused by the connections alone.
pub(super) async fn measure(run: &mut Run<'_>) -> Result<(), Error> {
    let server = run.server().await?;
    let (connections, hold) = (run.settings.connections, run.settings.hold);
    let resident = || resident_bytes(server.process());
    run.step(CONNECTION, &format!("{connections} connections"));
    let (_, readers) = server.author_of(connections).await?;
    let asleep = resident();
    server.wake(readers.clone()).await?;
    sleep(SETTLING.min(hold)).await;
    let awake = resident();
    let audience = Rc::new(Audience::default());
    let _listening = audience.connect(server.address(), readers, Tidewire::boxed).await?;
    run.step(CONNECTION, &format!("{connections} connections, for {hold:?}"));
    let stretch = Duration::from_millis(500).min(hold).max(Duration::from_millis(1));
    let mut held = Duration::ZERO;
    while held < hold {
        sleep(stretch).await;
        held += stretch;
        run.tick(held.as_secs_f64() / hold.as_secs_f64());
    }
    let connected = resident();

    let each = |more: u64, less: u64| (more as f64 - less as f64) / connections as f64;
    let (connection, reader) = (each(connected, awake), each(awake, asleep));
    run.done(&format!(
        "{} each, and {} for its reader; {} pings answered",
        figure::bytes(connection),
        figure::bytes(reader),
        audience.pings()
    ));
    let failed = run.report_troubles(CONNECTION, &audience, 0);
    let case =
        |unit: &str, bytes: f64| Case { unit: unit.to_owned(), median: bytes, rounds: vec![bytes], ..Case::default() };
    run.case(CONNECTION, Case { failed, ..case("bytes/connection", connection) });
    run.case(READER, case("bytes/reader", reader));
    Ok(())
}
