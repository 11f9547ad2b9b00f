//! Certificates of the address for other hosts: read from files, and read again when those change.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;
use weir_store::tls::{self, Identity};

use crate::event::Event;
use crate::files::Stamp;
use crate::settings::{ApiSettings, TlsFiles};

/// What became of the files since the last look.
#[derive(Debug)]
pub(super) enum Renewal {
    /// They are the same, or still cannot be used.
    Nothing,
    /// The next connection gets another certificate; open ones go on.
    Certificate(Event),
    /// Clients are to be verified by others than before: open connections must end.
    Authority,
    /// They cannot be used; what was read before is.
    Failed(Event),
}

/// Keys and certificates, as they were read last.
#[derive(Debug, Default)]
pub(super) struct Keys {
    stamps: Option<[Stamp; 3]>,
    sender: Option<watch::Sender<Arc<ServerConfig>>>,
    /// Why the files cannot be used. Said once.
    error: Option<String>,
}

impl Keys {
    /// Reads the files if they changed, or could not be used.
    pub(super) fn look(&mut self, settings: &ApiSettings) -> Renewal {
        let Some(files) = settings.tls_files() else {
            *self = Keys::default();
            return Renewal::Nothing;
        };
        let stamps = [files.certificate, files.key, files.client_ca].map(Stamp::of);
        if self.stamps.as_ref() == Some(&stamps) && self.error.is_none() {
            return Renewal::Nothing;
        }
        let config = match read(files) {
            Ok(config) => config,
            Err(error) => {
                let text = match self.sender.is_some() {
                    true => format!(
                        "{error}; the certificates before are served, and clients are verified with the authorities before"
                    ),
                    false => format!("other hosts are not served: {error}"),
                };
                let is_new = self.error.as_ref() != Some(&text);
                self.error = Some(text.clone());
                return match is_new {
                    true => Renewal::Failed(Event::Warning { text }),
                    false => Renewal::Nothing,
                };
            }
        };
        self.error = None;
        let before = self.stamps.replace(stamps);
        let is_same_authority = match (&before, &self.stamps) {
            (Some([_, _, before]), Some([_, _, now])) => before == now,
            _ => false,
        };
        match &self.sender {
            Some(sender) if is_same_authority => {
                sender.send_replace(config);
                Renewal::Certificate(Event::Renewed {
                    file: files.certificate.to_owned(),
                })
            }
            _ => {
                self.sender = Some(watch::channel(config).0);
                Renewal::Authority
            }
        }
    }

    /// Why the files cannot be used.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// What connections are served with; `None`: nothing could be read yet.
    pub(super) fn follow(&self) -> Option<watch::Receiver<Arc<ServerConfig>>> {
        self.sender.as_ref().map(watch::Sender::subscribe)
    }
}

fn read(files: TlsFiles<'_>) -> Result<Arc<ServerConfig>, tls::TlsError> {
    let identity = Identity {
        certificate: files.certificate,
        key: files.key,
    };
    tls::server(identity, files.client_ca)
}
