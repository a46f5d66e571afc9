//! Connects to Cassandra, with a password and TLS where they are set.

use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::retry::DefaultRetryPolicy;
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::statement::Consistency;

use super::datacentre;
use super::errors::{failed, unavailable, with_causes};
use super::options::{CassandraOptions, Replication};
use tidewire::storage::archive::ArchiveError;

/// Time after which a read asks one more node, as the first may hang. A node that is only busy answers sooner, so this adds little load.
const ASK_ANOTHER_AFTER: Duration = Duration::from_millis(100);

/// Further nodes that a read asks.
const OTHERS_ASKED_MAX: usize = 2;

/// Timeout of a statement that writes, and of a page of a scan.
pub(super) const WRITE_TIME_MAX: Duration = Duration::from_secs(5);

/// Timeout of connecting, and of creating or checking tables.
pub(super) const CONNECT_TIME_MAX: Duration = Duration::from_secs(15);

/// Time after which a silent connection gets a keepalive request. It is closed after the same time without an answer.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// A session, and the datacentre to which all its statements go, if the nodes have one.
pub(super) struct Connection {
    pub(super) session: Session,
    pub(super) datacentre: Option<String>,
}

/// Connects to the nodes of a keyspace, or of one to be created with this replication.
pub(super) async fn connect(
    options: &CassandraOptions,
    replication: Option<&Replication>,
) -> Result<Connection, ArchiveError> {
    let place = options.url.to_string();
    let profile = |datacentre: Option<&str>| {
        ExecutionProfile::builder()
            .consistency(Consistency::LocalQuorum)
            .request_timeout(Some(WRITE_TIME_MAX))
            .retry_policy(Arc::new(DefaultRetryPolicy::new()))
            .load_balancing_policy(datacentre::policy(datacentre))
            .build()
    };
    let mut handle = profile(options.datacentre.as_deref()).into_handle();
    let mut builder = SessionBuilder::new()
        .known_nodes(&options.url.contacts)
        .default_execution_profile_handle(handle.clone())
        .connection_timeout(WRITE_TIME_MAX)
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        // Only the metadata that routes a request to a replica. Other keyspaces may be large.
        .keyspaces_to_fetch([&options.url.keyspace])
        .fetch_full_schema_metadata(false);
    if let Some(login) = &options.login {
        builder = builder.user(&login.user, &login.password);
    }
    if let Some(tls) = &options.tls {
        builder = with_tls(builder, tls).map_err(|cause| failed("open", &place, cause))?;
    }
    let session = builder.build().await.map_err(|cause| unavailable("connect to", &place, with_causes(&cause)))?;
    let datacentre = datacentre::choose(&session, options, replication)?;
    // Only the nodes know the datacentre of a keyspace that is in a single one.
    handle.map_to_another_profile(profile(datacentre.as_deref()));
    Ok(Connection { session, datacentre })
}

/// Returns the execution profile of reads: if a node hangs, the driver asks other nodes within the time limit of a page.
pub(super) fn of_reads(datacentre: Option<&str>) -> ExecutionProfileHandle {
    let asks_another =
        SimpleSpeculativeExecutionPolicy { max_retry_count: OTHERS_ASKED_MAX, retry_interval: ASK_ANOTHER_AFTER };
    ExecutionProfile::builder()
        .retry_policy(Arc::new(DefaultRetryPolicy::new()))
        .speculative_execution_policy(Some(Arc::new(asks_another)))
        .load_balancing_policy(datacentre::policy(datacentre))
        .build()
        .into_handle()
}

#[cfg(feature = "ssl")]
fn with_tls(builder: SessionBuilder, tls: &super::options::TlsOptions) -> Result<SessionBuilder, std::io::Error> {
    use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
    use openssl::x509::X509;
    use openssl::x509::store::X509StoreBuilder;
    use openssl::x509::verify::X509VerifyFlags;
    use scylla::client::session::OpenSsl010Config;

    let named = |cause: std::io::Error| std::io::Error::other(format!("{}: {cause}", tls.authorities.display()));
    let pem = std::fs::read(&tls.authorities).map_err(named)?;
    let certificates = X509::stack_from_pem(&pem).map_err(|cause| named(cause.into()))?;
    if certificates.is_empty() {
        return Err(named(std::io::Error::other("it has no certificate")));
    }
    let mut trusted = X509StoreBuilder::new()?;
    // Trusts each certificate of the file, even if it is not an authority, or its own authority is not in the file.
    trusted.set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
    certificates.into_iter().try_for_each(|certificate| trusted.add_cert(certificate))?;
    let mut connector = SslConnector::builder(SslMethod::tls_client())?;
    connector.set_verify(SslVerifyMode::PEER);
    connector.set_cert_store(trusted.build());
    Ok(builder.tls_context(Some(OpenSsl010Config::new(connector))))
}

#[cfg(not(feature = "ssl"))]
fn with_tls(_: SessionBuilder, _: &super::options::TlsOptions) -> Result<SessionBuilder, std::io::Error> {
    Err(std::io::Error::other("this program was built without TLS to Cassandra (the feature cassandra-tls)"))
}
