//! What this program was made from.

use std::sync::LazyLock;

/// The version of the package.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, or `unknown` if it was made outside of a repository.
pub(crate) const COMMIT: &str = env!("TIDEWIRE_COMMIT");

/// The features that it has, separated by spaces, or `none`.
pub(crate) static FEATURES: LazyLock<String> = LazyLock::new(|| {
    let all = [
        ("backup", cfg!(feature = "backup")),
        ("cassandra", cfg!(feature = "cassandra")),
        ("cassandra-tls", cfg!(feature = "cassandra-tls")),
        ("cluster", cfg!(feature = "cluster")),
        ("cluster-tls", cfg!(any(feature = "cluster-tls", feature = "cluster-tls-vendored"))),
        ("otel", cfg!(feature = "otel")),
    ];
    let named: Vec<&str> = all.into_iter().filter_map(|(name, is_in)| is_in.then_some(name)).collect();
    if named.is_empty() { "none".to_owned() } else { named.join(" ") }
});

/// The version with all of it, for people.
pub(crate) static LONG_VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{VERSION}\ncommit {COMMIT}\nfeatures {}", *FEATURES));
