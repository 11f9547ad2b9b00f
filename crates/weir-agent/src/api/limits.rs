//! How much of the agent clients may take; docs/design/api.md states the defaults.

use std::time::Duration;

/// Limits of what clients may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections of all users but root.
    pub(crate) connections: usize,
    /// Connections of one user, root included.
    pub(crate) of_user: usize,
    /// Connections to the address of the metrics.
    pub(crate) scrapers: usize,
    /// Connections to the address of the page. A browser opens up to six for each tab.
    pub(crate) visitors: usize,
    /// Connections of other hosts, by certificates with a role.
    pub(crate) remotes: usize,
    /// Connections that have not shown a certificate yet, of all and of one address.
    pub(crate) handshakes: usize,
    pub(crate) handshakes_of_address: usize,
    /// Until the TLS handshake is done.
    pub(crate) handshake_time: Duration,
    /// Until a connection of another host ends: then it has to show its certificate again.
    pub(crate) remote_time: Duration,
    /// Refused connections that are listened to, so that they get to read why. More are closed at once.
    pub(crate) refused: usize,
    /// For how long.
    pub(crate) refused_time: Duration,
    /// Bytes of a request's line and headers.
    pub(crate) head: usize,
    /// Header lines.
    pub(crate) headers: usize,
    /// Bytes of a body.
    pub(crate) body: usize,
    /// Until a request's headers are there, from the connection or the answer before.
    pub(crate) head_time: Duration,
    /// Until its body is there.
    pub(crate) body_time: Duration,
    /// Until it is answered.
    pub(crate) answer_time: Duration,
    /// Until the agent has carried out a change.
    pub(crate) change_time: Duration,
    /// Without progress of what is sent.
    pub(crate) stall_time: Duration,
    /// Requests that wait for the one that reads the host.
    pub(crate) waiting: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 128,
            of_user: 32,
            scrapers: 16,
            visitors: 48,
            remotes: 128,
            handshakes: 64,
            handshakes_of_address: 16,
            handshake_time: Duration::from_secs(5),
            remote_time: Duration::from_secs(8 * 60 * 60),
            refused: 32,
            refused_time: Duration::from_secs(1),
            head: 16 << 10,
            headers: 64,
            body: 64 << 10,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(10),
            answer_time: Duration::from_secs(60),
            change_time: Duration::from_secs(120),
            stall_time: Duration::from_secs(10),
            waiting: 32,
        }
    }
}
