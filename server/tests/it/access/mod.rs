//! Who may do what: every operation by every kind of credential, live connections, the file with the keys, other origins.

mod forged;
mod intruders;
mod lifetime;
mod live;
pub mod matrix;
mod pages;
mod program;
mod revoke;
pub mod tokens;
mod visibility;
