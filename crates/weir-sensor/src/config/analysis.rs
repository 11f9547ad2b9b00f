//! What an analysis of rules (`--engine-analysis`) writes: `engine-analysis`, and `detect` as far as it is about groups of rules.

use crate::settings::{Settings, SettingsError};

/// What is written.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// `engine-analysis.rules`: what each rule asks.
    pub rules: bool,
    /// `engine-analysis.rules-fast-pattern`: what leads to it.
    pub patterns: bool,
    /// `detect.profiling.grouping.dump-to-disk`: which rules are held to which ports.
    pub grouping: Option<Grouping>,
}

/// How ports are grouped.
#[derive(Clone, Debug)]
pub struct Grouping {
    /// The numbers of the rules are listed.
    pub rules: bool,
    /// Groups at most, to the server and to the client, beside the one for the rest.
    pub most: [usize; 2],
    /// Ports of TCP and of UDP whose groups come first.
    pub prior: [Vec<u16>; 2],
}

/// Ports that carry most traffic, as configurations of such sensors have them.
const PRIOR: [&[u16]; 2] = [
    &[53, 80, 139, 443, 445, 1433, 3306, 3389, 6666, 6667, 8080],
    &[53, 135, 5060],
];

pub(super) fn analysis(s: &Settings) -> Result<Analysis, SettingsError> {
    let truth = |key: &str| Ok(s.truth(key)?.unwrap_or(false));
    let dumps = truth("detect.profiling.grouping.dump-to-disk")?;
    Ok(Analysis {
        rules: truth("engine-analysis.rules")?,
        patterns: truth("engine-analysis.rules-fast-pattern")?,
        grouping: match dumps {
            true => Some(grouping(s)?),
            false => None,
        },
    })
}

fn grouping(s: &Settings) -> Result<Grouping, SettingsError> {
    let profile = s.text("detect.profile").unwrap_or_default();
    let most = match profile.as_str() {
        "low" => [25, 15],
        "" | "medium" => [40, 20],
        "high" => [75, 75],
        "custom" => {
            let number = |key: &str, usual: usize| -> Result<usize, SettingsError> {
                let number = s.number(&format!("detect.custom-values.{key}"))?;
                Ok(number.map_or(usual, |n| usize::try_from(n).unwrap_or(usize::MAX)))
            };
            [
                number("toserver-groups", 40)?,
                number("toclient-groups", 20)?,
            ]
        }
        _ => {
            return Err(SettingsError::Value {
                key: "detect.profile".to_owned(),
                value: profile,
                expected: "low, medium, high or custom",
            });
        }
    };
    let ports = |name: &str, usual: &[u16]| -> Result<Vec<u16>, SettingsError> {
        let key = format!("detect.grouping.{name}-priority-ports");
        let Some(words) = s.list(&key) else {
            return Ok(usual.to_vec());
        };
        let numbers = words.iter().flat_map(|w| w.split(','));
        let parsed = numbers.map(|n| n.trim().parse().map_err(|_| n.to_owned()));
        let all: Result<Vec<u16>, String> = parsed.collect();
        all.map_err(|value| SettingsError::Value {
            key: key.clone(),
            value,
            expected: "a port",
        })
    };
    Ok(Grouping {
        rules: s
            .truth("detect.profiling.grouping.include-rules")?
            .unwrap_or(false),
        most,
        prior: [ports("tcp", PRIOR[0])?, ports("udp", PRIOR[1])?],
    })
}
