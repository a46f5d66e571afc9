//! The Tidewire server: the engine of [`tidewire`] over HTTP and WebSocket, its console, and its command line.
//!
//! [`http`] answers requests, [`console`] is the operator's page, [`cli`] is the command line with its tools for data directories.

// Documentation is for developers of the server: it is a program, not a library for others.
#![allow(rustdoc::private_intra_doc_links)]

pub mod backup;
mod bounded;
mod build_info;
pub mod cli;
pub mod console;
#[cfg(feature = "backup")]
mod export;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
mod one_line;
mod peer_error_log;
mod process_memory;
mod service_manager;

#[cfg(test)]
mod test_support {
    //! Helpers for the unit tests of several modules.

    use tidewire::clock::UnixMicros;
    use tidewire::feed::position::Position;
    use tidewire::id::PostId;

    pub(crate) fn at(published_at: i64, id: u64) -> Position {
        Position { published_at: UnixMicros(published_at), id: PostId(id) }
    }
}
