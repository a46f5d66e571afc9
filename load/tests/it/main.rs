//! The load tool as a whole, with real servers.

mod live;
