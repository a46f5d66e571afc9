//! Reports the state of the server to the service manager that started it: systemd, or another with the protocol of `sd_notify(3)`.
//!
//! Does nothing if the environment has no socket (`NOTIFY_SOCKET`). Calls block for at most a second, so they must not run on an actor's
//! thread.

/// The state is recovered, and the server answers requests.
pub(crate) fn ready() {
    tell("READY=1\nSTATUS=serving");
}

/// The server has begun to stop. `reason` has no line breaks.
pub(crate) fn stopping(reason: &str) {
    tell(&format!("STOPPING=1\nSTATUS=stopping: {reason}"));
}

/// Reports the current work of the server, for `systemctl status`. `message` has no line breaks.
pub(crate) fn status(message: &str) {
    tell(&format!("STATUS={message}"));
}

#[cfg(unix)]
fn tell(states: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(cause) = send(states, path.as_ref())
    {
        tracing::debug!("could not notify the service manager: {cause}");
    }
}

#[cfg(not(unix))]
fn tell(_: &str) {}

/// Sends states, one per line. Gives up after a second, because a manager that does not read must not delay a recovery or a stop.
#[cfg(unix)]
fn send(states: &str, path: &std::path::Path) -> std::io::Result<()> {
    let socket = std::os::unix::net::UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(std::time::Duration::from_secs(1)))?;
    socket.send_to(states.as_bytes(), path).map(drop)
}
