//! Sets that packets fill as nftables, ipset and the match `recent` of iptables have them, in weir's words.

use crate::words::is_one_of;

/// What to say to a command of ipset.
pub(super) const IPSET: &str = "a line `set bad = dynamic timeout 10m` defines a set that packets fill; `weir set add bad 192.0.2.1` changes one of a policy that runs";

/// `add @seen { ip saddr timeout 10m }` of nftables as a target. `update` renews time-outs, which `add` does here.
pub(super) fn change(keyword: &str, set: &str, braces: &str) -> Option<String> {
    let inner = braces.strip_prefix('{')?.strip_suffix('}')?;
    let words: Vec<&str> = inner.split_whitespace().collect();
    Some(target(keyword == "delete", set.strip_prefix('@')?, &words))
}

/// The target that puts what these words of nftables say into a set, or takes it out.
pub(super) fn target(deletes: bool, set: &str, words: &[&str]) -> String {
    let has = |wanted: &[&str]| words.iter().any(|word| is_one_of(word, wanted));
    let address = match (has(&["daddr", "ip-daddr", "ip6-daddr"]), has(&["ether"])) {
        (false, false) => "source",
        (true, false) => "destination",
        (false, true) => "eth-saddr",
        (true, true) => "eth-daddr",
    };
    let timeout = words.iter().position(|word| is_one_of(word, &["timeout"]));
    let timeout = timeout
        .and_then(|at| words.get(at + 1))
        .filter(|_| !deletes);
    let timeout = timeout.map_or(String::new(), |time| format!(" {time}"));
    let keyword = if deletes { "delete" } else { "add" };
    format!("{keyword} @{set} {address}{timeout}")
}

/// The match `recent` of iptables.
#[derive(Debug, Default)]
pub(super) struct Recent {
    name: Option<String>,
    adds: bool,
    tests: bool,
    deletes: bool,
    hits: Option<u64>,
    seconds: Option<u64>,
    destination: bool,
}

impl Recent {
    /// Takes an option; `value` reads what stands behind it. Returns whether it is one of `recent`.
    pub(super) fn option(&mut self, option: &str, value: impl FnOnce() -> String) -> bool {
        match option {
            "--name" => self.name = Some(value()),
            "--set" => self.adds = true,
            "--rcheck" => self.tests = true,
            "--update" => (self.tests, self.adds) = (true, true),
            "--remove" => (self.tests, self.deletes) = (true, true),
            "--rdest" => self.destination = true,
            "--rsource" | "--rttl" | "--reap" => {}
            "--seconds" => self.seconds = value().parse().ok(),
            "--hitcount" => self.hits = value().parse().ok(),
            _ => return false,
        }
        true
    }

    /// The hits that it counts in so many seconds, and by which address.
    pub(super) fn hits(&self) -> Option<(u64, u64, &'static str)> {
        let hits = self.hits.filter(|hits| *hits > 1)?;
        let address = if self.destination {
            "destination"
        } else {
            "source"
        };
        Some((hits, self.seconds?, address))
    }

    /// Matches and targets, and what else is to be known.
    pub(super) fn words(&self, negated: bool) -> (Vec<String>, Vec<String>, &'static str) {
        let name = self.name.as_deref().unwrap_or("DEFAULT");
        let (field, word) = match self.destination {
            false => ("ip-saddr", "source"),
            true => ("ip-daddr", "destination"),
        };
        let mut matches = Vec::new();
        if self.tests {
            let not = if negated { "! " } else { "" };
            matches.push(format!("{not}{field} in @{name}"));
        }
        let mut targets = Vec::new();
        if self.adds {
            targets.push(format!("add @{name} {word}"));
        }
        if self.deletes {
            targets.push(format!("delete @{name} {word}"));
        }
        let note = match self.hits {
            Some(2..) => {
                "a set does not count: `drop over N/m burst N per source` does, with N hits in a minute"
            }
            _ => "its seconds are the time-out of the set, as in `set NAME = dynamic timeout 60s`",
        };
        (matches, targets, note)
    }
}

/// `--match-set NAME src` of iptables as a match.
pub(super) fn match_set(name: &str, side: &str, negated: bool) -> Option<String> {
    let field = match side {
        "src" => "ip-saddr",
        "dst" => "ip-daddr",
        _ => return None,
    };
    let not = if negated { "! " } else { "" };
    Some(format!("{not}{field} in @{name}"))
}

/// `-j SET --add-set NAME src` and `--del-set NAME src` of iptables as a target.
pub(super) fn set_target(option: &str, name: &str, side: &str) -> Option<String> {
    let keyword = if option == "--add-set" {
        "add"
    } else {
        "delete"
    };
    let address = match side {
        "src" => "source",
        "dst" => "destination",
        _ => return None,
    };
    Some(format!("{keyword} @{name} {address}"))
}
