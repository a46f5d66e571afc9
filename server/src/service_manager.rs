//! Tells the service manager that started the server how far it is: systemd, or another that speaks the protocol of `sd_notify(3)`.
//!
//! Does nothing if the environment names no socket of one (`NOTIFY_SOCKET`).

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

/// Sends states, one per line. The server goes on without a service manager, so a failure is only logged.
#[cfg(unix)]
fn tell(states: &str) {
    if let Err(cause) = sd_notify::notify(&[sd_notify::NotifyState::Custom(states)]) {
        tracing::debug!("the service manager cannot be told: {cause}");
    }
}

#[cfg(not(unix))]
fn tell(_: &str) {}
