//! `tidewire-load cluster`: measures a cluster and compares it with one node.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::cli::options::duration;
use crate::cluster::Row;
use crate::cluster::compare::compare;
use crate::cluster::faults::{outages, takeover};
use crate::cluster::figures::{log_bytes, pages, publishes, replicas};
use crate::cluster::nodes::Setup;
use crate::simulation::costs::MEASURED;

/// Brokers must run already: `scripts/cluster_figures.sh` starts one. Servers, brokers and clients share the machine.
#[derive(Debug, clap::Args)]
pub(super) struct Cluster {
    /// The server, built with the feature `cluster` [default: beside this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    /// Brokers that hold the logs of the clusters
    #[arg(long, value_name = "HOST:PORT,…")]
    kafka: String,

    /// Data directory of a broker, for the bytes of an event in its log
    #[arg(long, value_name = "DIRECTORY")]
    kafka_data: Option<PathBuf>,

    /// Copies of each log
    #[arg(long, default_value_t = 1)]
    replicas: u32,

    /// Time after which a silent node counts as dead
    #[arg(long, value_name = "DURATION", default_value = "6s", value_parser = duration)]
    session: Duration,

    /// Measurements to run [default: all]
    #[arg(long, value_name = "MEASURES", value_delimiter = ',')]
    only: Vec<Measure>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Measure {
    Publishes,
    Replicas,
    Pages,
    Outages,
    Takeover,
    /// Run the same work on 1, 2, 3 and 6 nodes, and compare it with a simulation
    Scale,
}

impl Cluster {
    pub(super) fn run(self) -> Result<(), Box<dyn Error>> {
        let program = match self.program {
            Some(program) => program,
            None => std::env::current_exe()?.with_file_name("tidewire"),
        };
        let setup = Setup { program, kafka: self.kafka, replicas: self.replicas, session: self.session };
        let data = self.kafka_data;
        let cores = std::thread::available_parallelism()?.get();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        for measure in Measure::value_variants() {
            if !self.only.is_empty() && !self.only.contains(measure) {
                continue;
            }
            let rows = runtime.block_on(async {
                match measure {
                    Measure::Publishes => publishes(&setup).await,
                    Measure::Replicas => {
                        replicas(&setup, |cluster| data.as_deref().and_then(|data| log_bytes(data, cluster))).await
                    }
                    Measure::Pages => pages(&setup).await,
                    Measure::Outages => outages(&setup).await,
                    Measure::Takeover => takeover(&setup).await,
                    Measure::Scale => compare(&setup, &MEASURED, cores).await,
                }
            })?;
            rows.iter().for_each(print);
        }
        Ok(())
    }
}

#[allow(clippy::print_stdout, reason = "the result of the command")]
fn print(row: &Row) {
    println!("| {} | {} |", row.what, row.figure);
}
