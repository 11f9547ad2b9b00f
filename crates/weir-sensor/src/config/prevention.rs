//! Prevention: whether rules that drop do so, and what becomes of packets that cannot be inspected (exception policies).

use std::path::PathBuf;

use crate::rules::{ACTION_ORDER, Action, ActionOrder};
use crate::settings::{Settings, SettingsError};

/// The key of `--simulate-ips`.
pub const SIMULATE: &str = "ips.simulate";

/// What becomes of a flow whose beginning was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// It is inspected as far as it can be.
    #[default]
    Ignore,
    /// All of its packets are dropped.
    DropFlow,
    /// The packet is dropped.
    DropPacket,
    /// All of its packets are dropped, and both ends are told.
    Reject,
    /// Rules are not asked of it any more.
    PassFlow,
    /// Rules are not asked of the packet.
    PassPacket,
    /// It is not followed any more.
    Bypass,
}

impl Policy {
    /// As records and counters have it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Ignore => "ignore",
            Policy::DropFlow => "drop_flow",
            Policy::DropPacket => "drop_packet",
            Policy::Reject => "reject",
            Policy::PassFlow => "pass_flow",
            Policy::PassPacket => "pass_packet",
            Policy::Bypass => "bypass",
        }
    }

    /// Whether sessions that it is applied to cannot be taken up.
    fn gives_up(self) -> bool {
        self.drops() || self == Policy::PassPacket
    }

    /// Whether only an inline sensor can do it.
    pub fn drops(self) -> bool {
        matches!(self, Policy::DropFlow | Policy::DropPacket | Policy::Reject)
    }
}

/// What `auto` means, and who has it: `None` is `auto`.
fn read(s: &Settings, key: &str) -> Result<Option<Option<Policy>>, SettingsError> {
    let Some(word) = s.text(key) else {
        return Ok(None);
    };
    let policy = match word.to_ascii_lowercase().replace('_', "-").as_str() {
        "auto" => None,
        "ignore" => Some(Policy::Ignore),
        "drop-flow" => Some(Policy::DropFlow),
        "drop-packet" => Some(Policy::DropPacket),
        "reject" => Some(Policy::Reject),
        "pass-flow" => Some(Policy::PassFlow),
        "pass-packet" => Some(Policy::PassPacket),
        "bypass" => Some(Policy::Bypass),
        _ => {
            return Err(SettingsError::Value {
                key: key.to_owned(),
                value: word,
                expected: "auto, ignore, drop-flow, drop-packet, reject, pass-flow, pass-packet or bypass",
            });
        }
    };
    Ok(Some(policy))
}

/// The policy for sessions whose beginning was not seen: `stream.midstream-policy`, else `exception-policy`. `auto` drops the flow where the sensor can, unless such sessions are
/// taken up. Policies that drop are `ignore` beside the traffic.
pub(super) fn midstream(s: &Settings, ips: bool) -> Result<Policy, SettingsError> {
    let taken_up = s.truth("stream.midstream")? == Some(true);
    let own = read(s, "stream.midstream-policy")?;
    let all = read(s, "exception-policy")?;
    let auto = match taken_up {
        true => Policy::Ignore,
        false => Policy::DropFlow,
    };
    let policy = match own.or(all) {
        None => Policy::Ignore,
        Some(None) => auto,
        // One that says of all that flows are dropped does not say that sessions are not to be taken up.
        Some(Some(policy)) if own.is_none() && policy.drops() && taken_up => Policy::Ignore,
        Some(Some(policy)) if taken_up && policy.gives_up() => Policy::Ignore,
        Some(Some(policy)) => policy,
    };
    Ok(match policy.drops() && !ips {
        true => Policy::Ignore,
        false => policy,
    })
}

/// Whether somebody asked for a policy for such sessions.
pub(super) fn is_told(s: &Settings) -> bool {
    ["stream.midstream-policy", "exception-policy"]
        .iter()
        .any(|key| s.text(key).is_some())
}

/// The policy for flows whose parser gives up: `app-layer.error-policy`, else `exception-policy`. `auto` drops the flow where the sensor can. Policies that drop are `ignore` beside the
/// traffic.
pub(super) fn app_errors(s: &Settings, ips: bool) -> Result<Policy, SettingsError> {
    let own = read(s, "app-layer.error-policy")?;
    let policy = match own.or(read(s, "exception-policy")?) {
        None => Policy::Ignore,
        Some(policy) => policy.unwrap_or(Policy::DropFlow),
    };
    Ok(match policy.drops() && !ips {
        true => Policy::Ignore,
        false => policy,
    })
}

/// A policy for sessions whose beginning was not seen that contradicts taking them up: the key with its value, and what there is instead.
pub(super) fn contrary(s: &Settings) -> Result<Option<(String, &'static str)>, SettingsError> {
    let key = "stream.midstream-policy";
    let taken_up = s.truth("stream.midstream")? == Some(true);
    let policy = read(s, key)?.flatten();
    let wrong = policy.filter(|p| taken_up && p.gives_up());
    Ok(wrong.map(|policy| {
        (
            format!("{key}: {}", policy.name().replace('_', "-")),
            "contradicts stream.midstream: yes, which takes such sessions up; the policy is not applied",
        )
    }))
}

/// The key of the firewall's switch.
pub const FIREWALL: &str = "firewall.enabled";

/// Files of the firewall's rules: `firewall.rule-files` below `firewall.rule-path`.
pub(super) fn firewall(s: &Settings, ips: bool) -> Result<Option<Vec<PathBuf>>, SettingsError> {
    let folder = s.text("firewall.rule-path").map(|path| s.path(&path));
    let files = s.list("firewall.rule-files").unwrap_or_default();
    let files = files.into_iter();
    let files = files.map(|name| match &folder {
        Some(folder) => folder.join(name),
        None => s.path(&name),
    });
    let files = files.collect();
    if s.truth(FIREWALL)? != Some(true) {
        return Ok(None);
    }
    if !ips {
        return Err(SettingsError::Value {
            key: FIREWALL.to_owned(),
            value: "yes".to_owned(),
            expected: "no, as nothing can be dropped beside the traffic; captures with --simulate-ips have a firewall",
        });
    }
    // What is read only when it is acknowledged has passed by then.
    let inline = "stream.inline";
    if let Some(value) = s.text(inline).filter(|value| value != "auto")
        && s.truth(inline)? == Some(false)
    {
        return Err(SettingsError::Value {
            key: inline.to_owned(),
            value,
            expected: "yes or auto, where a firewall decides about what streams carry",
        });
    }
    Ok(Some(files))
}

/// What `exception-policy` asks for beside sessions whose beginning was not seen, if it asks for anything: the key with its value, and what there is instead.
pub(super) fn unmet(s: &Settings) -> Option<(String, &'static str)> {
    let value = s.text("exception-policy")?;
    let usual = matches!(value.to_ascii_lowercase().as_str(), "auto" | "ignore");
    (!usual).then(|| {
        (
            format!("exception-policy: {value}"),
            "applies to midstream sessions and errors of applications only; at memory limits this sensor inspects as much as it can",
        )
    })
}

/// In which order rules are decided by their actions: `action-order`, which names each once.
pub(super) fn action_order(s: &Settings) -> Result<ActionOrder, SettingsError> {
    const KEY: &str = "action-order";
    let Some(words) = s.list(KEY) else {
        return Ok(ACTION_ORDER);
    };
    let named: Vec<Action> = (words.iter())
        .filter_map(|word| match word.trim().to_ascii_lowercase().as_str() {
            "pass" => Some(Action::Pass),
            "drop" => Some(Action::Drop),
            "reject" => Some(Action::Reject),
            "alert" => Some(Action::Alert),
            _ => None,
        })
        .collect();
    let each_once = ACTION_ORDER.iter().all(|action| named.contains(action));
    match ActionOrder::try_from(named) {
        Ok(order) if each_once && words.len() == order.len() => Ok(order),
        _ => Err(SettingsError::Value {
            key: KEY.to_owned(),
            value: words.join(", "),
            expected: "each of pass, drop, reject and alert once",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_in_another_order() {
        let read = |text: &str| action_order(&Settings::parse(text, false).expect("YAML"));
        assert_eq!(read("a: b").expect("usual"), ACTION_ORDER);
        let order = read("action-order:\n  - drop\n  - pass\n  - reject\n  - alert\n");
        let expected = [Action::Drop, Action::Pass, Action::Reject, Action::Alert];
        assert_eq!(order.expect("right"), expected);
        for wrong in [
            "[drop, pass]",
            "[drop, drop, pass, alert]",
            "[drop, pass, reject, alert, allow]",
        ] {
            let error = read(&format!("action-order: {wrong}")).expect_err(wrong);
            assert!(error.to_string().contains("each of pass"), "{error}");
        }
    }

    #[test]
    fn policies_of_sessions_that_began_before() {
        for (text, beside, in_line) in [
            ("", Policy::Ignore, Policy::Ignore),
            ("exception-policy: auto", Policy::Ignore, Policy::DropFlow),
            (
                "exception-policy: pass-flow",
                Policy::PassFlow,
                Policy::PassFlow,
            ),
            (
                "exception-policy: auto\nstream:\n  midstream: true",
                Policy::Ignore,
                Policy::Ignore,
            ),
            (
                "exception-policy: drop-packet\nstream:\n  midstream-policy: bypass",
                Policy::Bypass,
                Policy::Bypass,
            ),
            (
                "stream:\n  midstream: true\n  midstream-policy: drop-flow",
                Policy::Ignore,
                Policy::Ignore,
            ),
            (
                "stream:\n  midstream-policy: Reject",
                Policy::Ignore,
                Policy::Reject,
            ),
        ] {
            let s = Settings::parse(text, false).expect("YAML");
            assert_eq!(midstream(&s, false).expect("right"), beside, "{text}");
            assert_eq!(midstream(&s, true).expect("right"), in_line, "{text}");
        }
        for (policy, wrong) in [
            ("drop-flow", true),
            ("pass-packet", true),
            ("bypass", false),
        ] {
            let text = |taken: bool| {
                format!("stream:\n  midstream: {taken}\n  midstream-policy: {policy}")
            };
            let found = |taken: bool| {
                let s = Settings::parse(&text(taken), false).expect("YAML");
                contrary(&s).expect("right").is_some()
            };
            assert_eq!((found(true), found(false)), (wrong, false), "{policy}");
        }
        let s = Settings::parse("exception-policy: drop", false).expect("YAML");
        let error = midstream(&s, true).expect_err("refused").to_string();
        assert!(error.contains("drop-flow"), "{error}");
    }
}
