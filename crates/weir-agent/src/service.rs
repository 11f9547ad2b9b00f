//! What the agent tells systemd: that it is ready, what it does, and that it lives. Without systemd nothing is told.

use std::time::Duration;

use sd_notify::NotifyState;

/// Ready, with a line for `systemctl status`.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// It lives, with a line for `systemctl status`.
pub fn alive(status: &str) {
    tell(&[NotifyState::Watchdog, NotifyState::Status(status)]);
}

/// It ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// How long systemd waits for [`alive`]; `None`: it does not.
#[must_use]
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// An error is ignored: without systemd the agent keeps working.
fn tell(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}
