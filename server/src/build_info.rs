//! Describes the build of this program.

use std::sync::LazyLock;

/// The version of the package.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, or `unknown` if the program was built outside of a repository.
pub(crate) const COMMIT: &str = env!("TIDEWIRE_COMMIT");

/// The enabled features, separated by spaces, or `none`.
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

/// The version with commit and features, for people.
pub(crate) static LONG_VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{VERSION}\ncommit {COMMIT}\nfeatures {}", *FEATURES));
