//! Scripts: what those of rules may cost (`security.lua`), and those that are outputs (`lua` in `outputs`), which are read with the configuration.

use std::path::PathBuf;
use std::sync::Arc;

use crate::app::App;
use crate::script::{Limits, MOST, Script};
use crate::settings::{Settings, SettingsError};

/// A script that is an output.
#[derive(Clone, Debug)]
pub struct OutputScript {
    /// The script.
    pub script: Arc<Script>,
    /// What it is called for.
    pub wants: Wants,
}

/// What an output script is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Each alert of a packet.
    Alerts,
    /// Each packet.
    Packets,
    /// Each flow that is over.
    Flows,
    /// Each file.
    Files,
    /// Counters.
    Stats,
    /// Parts of TCP streams.
    Streams,
    /// Bodies of HTTP.
    Bodies,
    /// Transactions of a protocol.
    Transactions(App),
}

/// `security.lua`.
pub(super) fn limits(s: &Settings) -> Result<Option<Limits>, SettingsError> {
    let usual = Limits::USUAL;
    let bytes = s.bytes("security.lua.max-bytes")?;
    let instructions = s.number("security.lua.max-instructions")?;
    // The interpreter counts with a sign.
    let most = i32::MAX as u32;
    let limits = Limits {
        bytes: bytes.map_or(usual.bytes, |n| usize::try_from(n).unwrap_or(usize::MAX)),
        instructions: instructions.map_or(usual.instructions, |n| {
            u32::try_from(n).unwrap_or(most).min(most)
        }),
        unrestricted: s.truth("security.lua.allow-restricted-functions")? == Some(true),
    };
    let allowed = s.truth("security.lua.allow-rules")? != Some(false);
    Ok(allowed.then_some(limits))
}

/// The section of outputs at a key.
pub(super) fn outputs(s: &Settings, at: &str) -> Result<Vec<OutputScript>, SettingsError> {
    let folder = s.text(&format!("{at}.scripts-dir"));
    let folder = folder.or_else(|| s.text("default-rule-path"));
    let mut all = Vec::new();
    for name in s.list(&format!("{at}.scripts")).unwrap_or_default() {
        let path = match &folder {
            Some(folder) => s.path(&PathBuf::from(folder).join(&name).display().to_string()),
            None => s.path(&name),
        };
        let read = |error| SettingsError::Read {
            path: path.clone(),
            error,
        };
        if std::fs::metadata(&path).map_err(read)?.len() > MOST {
            let error = std::io::Error::other(format!("larger than {} MiB", MOST >> 20));
            return Err(read(error));
        }
        let source = std::fs::read(&path).map_err(read)?;
        let wrong = |message: String| SettingsError::Syntax {
            path: path.clone(),
            message,
        };
        let script = Script::output(&name, &source).map_err(wrong)?;
        let needs = &script.needs;
        let wants = match (needs.word("type"), needs.word("protocol")) {
            (Some("packet"), _) => match needs.word("filter") {
                Some("alerts") => Wants::Alerts,
                _ => Wants::Packets,
            },
            (Some("flow"), _) => Wants::Flows,
            (Some("file"), _) => Wants::Files,
            (Some("stats"), _) => Wants::Stats,
            (Some("streaming"), Some("http")) => Wants::Bodies,
            (Some("streaming"), _) => Wants::Streams,
            (None, Some("http")) => Wants::Transactions(App::Http1),
            (None, Some(name)) => {
                let app = App::ALL.iter().find(|app| app.name() == name);
                let unknown = || wrong(format!("`init` names the protocol `{name}`"));
                Wants::Transactions(*app.ok_or_else(unknown)?)
            }
            (Some(other), _) => return Err(wrong(format!("`init` names the type `{other}`"))),
            (None, None) => {
                return Err(wrong(
                    "`init` names neither a type nor a protocol".to_owned(),
                ));
            }
        };
        all.push(OutputScript {
            script: Arc::new(script),
            wants,
        });
    }
    Ok(all)
}
