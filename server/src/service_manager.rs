//! Tells the service manager that started the server how far it is: systemd, or another that speaks the protocol of `sd_notify(3)`.
//!
//! Does nothing if the environment names no socket of one (`NOTIFY_SOCKET`). Calls block for at most a second, so none is for an actor's thread.

/// The state is recovered, and the server answers requests.
pub(crate) fn ready() {
    tell("READY=1\nSTATUS=serving");
}

/// The server has begun to stop. `reason` has no line breaks.
pub(crate) fn stopping(reason: &str) {
    tell(&format!("STOPPING=1\nSTATUS=stopping: {reason}"));
}

/// What the server does meanwhile, for `systemctl status`. `message` has no line breaks.
pub(crate) fn status(message: &str) {
    tell(&format!("STATUS={message}"));
}

#[cfg(unix)]
fn tell(states: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(cause) = send(states, path.as_ref())
    {
        tracing::debug!("the service manager cannot be told: {cause}");
    }
}

#[cfg(not(unix))]
fn tell(_: &str) {}

/// Sends states, one per line. Gives up after a second: a manager that reads nothing must delay neither a recovery nor a stop.
#[cfg(unix)]
fn send(states: &str, path: &std::path::Path) -> std::io::Result<()> {
    let socket = std::os::unix::net::UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(std::time::Duration::from_secs(1)))?;
    socket.send_to(states.as_bytes(), path).map(drop)
}
