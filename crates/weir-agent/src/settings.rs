//! The agent's own settings: `agent.toml` in its folder. Without the file, or without a key, the defaults hold.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::Deserialize;

use crate::AgentError;

/// Name of the file in the folder of the edges.
pub const SETTINGS: &str = "agent.toml";

/// What becomes of edits of a running edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edits {
    /// They are reported, and stay until the file changes.
    #[default]
    Report,
    /// The file is applied again.
    Revert,
}

/// Settings of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// What becomes of edits of a running edge.
    pub edits: Edits,
    /// Of single edges, by name.
    pub edge: BTreeMap<String, EdgeSettings>,
}

/// Settings of one edge: which commands run beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EdgeSettings {
    /// `weir service check` of balancers whose services have a `check`.
    pub check_services: bool,
    /// `weir net helper` of virtual networks.
    pub helper: bool,
    /// `weir route follow`.
    pub follow_routes: bool,
}

impl Default for EdgeSettings {
    fn default() -> EdgeSettings {
        EdgeSettings {
            check_services: true,
            helper: true,
            follow_routes: false,
        }
    }
}

impl Settings {
    /// Of a folder.
    ///
    /// # Errors
    /// The file cannot be read, or has a mistake.
    pub fn of(folder: &Path) -> Result<Settings, AgentError> {
        let path = folder.join(SETTINGS);
        let wrong = |text: String| AgentError::Settings {
            path: path.display().to_string(),
            text,
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|error| wrong(error.to_string())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Settings::default()),
            Err(error) => Err(wrong(format!("cannot be read: {error}"))),
        }
    }

    /// Of an edge.
    #[must_use]
    pub fn of_edge(&self, name: &str) -> EdgeSettings {
        self.edge.get(name).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_defaults_and_unknown_ones_are_refused() {
        let read = |text: &str| toml::from_str::<Settings>(text);
        assert_eq!(read("").expect("right"), Settings::default());
        let settings = read("edits = 'revert'\n[edge.office]\nfollow-routes = true\n");
        let settings = settings.expect("right");
        assert_eq!(settings.edits, Edits::Revert);
        assert!(settings.of_edge("office").follow_routes && settings.of_edge("office").helper);
        assert_eq!(settings.of_edge("other"), EdgeSettings::default());
        for text in [
            "edit = 'revert'",
            "edits = 'undo'",
            "[edge.a]\nroutes = true",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
