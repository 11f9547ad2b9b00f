//! Protocols that a configuration turns off: they are not recognized, or recognized and not parsed.

use super::names::App;

/// A bit for each protocol.
type Apps = u64;

const _: () = assert!(App::ALL.len() <= 64);

fn bit(app: App) -> Apps {
    1 << app as u8
}

/// What is done of a protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// It is recognized and parsed.
    #[default]
    On,
    /// It is recognized, and its transactions are not told apart.
    Recognized,
    /// It is not known.
    Off,
}

/// What is done of each protocol, over UDP and over TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    off: [Apps; 2],
    unparsed: [Apps; 2],
}

impl Switches {
    /// Sets what is done of a protocol over TCP or else UDP.
    pub fn set(&mut self, app: App, tcp: bool, switch: Switch) {
        let at = usize::from(tcp);
        let put = |set: Option<&mut Apps>, on: bool| {
            if let Some(set) = set {
                *set = if on {
                    *set | bit(app)
                } else {
                    *set & !bit(app)
                };
            }
        };
        put(self.off.get_mut(at), switch == Switch::Off);
        put(self.unparsed.get_mut(at), switch == Switch::Recognized);
    }

    /// Those that are not recognized.
    pub(super) fn off(&self, tcp: bool) -> Off {
        Off(self.off.get(usize::from(tcp)).copied().unwrap_or_default())
    }

    /// Whether transactions of a protocol are told apart.
    pub(super) fn parses(&self, app: App, tcp: bool) -> bool {
        let unparsed = self.unparsed.get(usize::from(tcp)).copied();
        unparsed.unwrap_or_default() & bit(app) == 0
    }
}

/// Protocols that are not recognized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Off(Apps);

impl Off {
    pub(super) fn has(self, app: App) -> bool {
        self.0 & bit(app) != 0
    }
}
