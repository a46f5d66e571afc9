//! Live connections: the data shared by the actor of a watched reader and the connections that watch this reader.
//!
//! Responsible for:
//! - the events ([`event`]), the bounded queue of each connection ([`subscriber_queue`]), the set of watched readers
//!   ([`watchers`]), and the connections that a user's token authenticated ([`sessions`]).

pub mod event;
pub mod sessions;
pub mod subscriber_queue;
pub mod watchers;
