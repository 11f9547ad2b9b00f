//! Limits of iptables (`limit`, `hashlimit`, `connlimit`), nftables (`limit rate`, `ct count`, `meter`, sets that rules fill) and pf (`max`,
//! `max-src-conn`), in weir's words.

use crate::model::MOST_COUNTED;

/// What to say of a limit that lets through what is within it.
pub(super) const WITHIN: &str = "a limit says what is too much, and `accept` would override it: what is within it needs no rule";

/// What to say of connections that are counted.
const OPENED: &str = "a rule with `add-stateful` and without `accept` opens what is counted: `add-stateful tcp-dport 22 timeout 1h`";

/// What to say of `recent` with a number of hits.
pub(super) const HITS: &str = "that is near: a limit lets one packet in after each part of the time, and `recent` counts those of the last seconds; the rule with `--set` is not needed";

/// What to say where there was an answer.
const UNANSWERED: &str = "what is above a limit is dropped without an answer";

/// What to say of a larger number.
const FEWER: &str = "a limit counts 128 connections at most";

/// A limit in the making.
#[derive(Default)]
pub(super) struct Limit {
    /// Behind `drop over`: a rate, or a number of connections.
    rate: Option<String>,
    burst: Option<String>,
    per: Option<String>,
    /// It lets through what is within, and does not match what is above.
    within: bool,
    /// It counts connections.
    connections: bool,
    /// More connections than a limit counts.
    above_most: bool,
}

impl Limit {
    /// `-m connlimit`, which counts apart by source unless an option says otherwise.
    pub(super) fn connlimit(&mut self) {
        self.connections = true;
        self.per = Some("source".to_owned());
    }

    /// Whether an option of iptables has no value.
    pub(super) fn is_bare(option: &str) -> bool {
        matches!(option, "--connlimit-saddr" | "--connlimit-daddr")
    }

    /// An option of iptables with its value; `not`: behind `!`. False: it is none of a limit, or weir has nothing like it.
    pub(super) fn iptables(&mut self, option: &str, value: &str, not: bool) -> bool {
        match option {
            "--connlimit-above" | "--connlimit-upto" => {
                self.within = not != (option == "--connlimit-upto");
                self.count(value)
            }
            _ if not => false,
            "--connlimit-mask" => {
                let Ok(bits) = value.parse::<u8>() else {
                    return false;
                };
                let of = self.per.take();
                self.per = of.and_then(|of| match bits {
                    0 => None,
                    32 | 128 => Some(of),
                    1..32 => Some(format!("{of}/{bits}")),
                    _ => Some(format!("{of}/32/{bits}")),
                });
                true
            }
            "--connlimit-saddr" => true,
            "--connlimit-daddr" => {
                let masked = self.per.take();
                self.per = masked.map(|of| of.replace("source", "destination"));
                true
            }
            "--limit" | "--hashlimit" | "--hashlimit-upto" | "--hashlimit-above" => {
                self.within = option != "--hashlimit-above";
                self.rate = rate(value);
                self.rate.is_some()
            }
            "--limit-burst" | "--hashlimit-burst" => {
                self.burst = Some(value.to_owned());
                true
            }
            "--hashlimit-mode" => {
                self.per = match value {
                    "srcip" => Some("source"),
                    "dstip" => Some("destination"),
                    "srcip,dstip" | "dstip,srcip" => Some("pair"),
                    _ => None,
                }
                .map(str::to_owned);
                self.per.is_some()
            }
            "--hashlimit-srcmask" | "--hashlimit-dstmask" => match self.per.as_mut() {
                Some(per) if per != "pair" => {
                    per.push('/');
                    per.push_str(value);
                    true
                }
                _ => false,
            },
            // What the table is called and how large it is means nothing for what is dropped.
            "--hashlimit-name"
            | "--hashlimit-htable-size"
            | "--hashlimit-htable-max"
            | "--hashlimit-htable-expire"
            | "--hashlimit-htable-gcinterval" => true,
            _ => false,
        }
    }

    /// So many connections. False: it is no number of them.
    fn count(&mut self, number: &str) -> bool {
        let Some(number) = number.parse::<u64>().ok().filter(|number| *number > 0) else {
            return false;
        };
        self.connections = true;
        let most = u64::from(MOST_COUNTED);
        self.above_most = number > most;
        self.rate = Some(format!("{} connections", number.min(most)));
        true
    }

    /// `ct count [over] N` of nftables. Returns how many words that is; 0: it is none.
    fn ct_count(&mut self, words: &[&str]) -> usize {
        let (over, number) = match words {
            ["ct", "count", "over", number, ..] => (1, number),
            ["ct", "count", number, ..] => (0, number),
            _ => return 0,
        };
        self.within = over == 0;
        if self.count(number) { 3 + over } else { 0 }
    }

    /// `recent --seconds SECONDS --hitcount HITS`.
    pub(super) fn hits(&mut self, hits: u64, seconds: u64, address: &str) {
        self.per = Some(address.to_owned());
        // The packet that makes it so many matches.
        self.burst = Some((hits - 1).to_string());
        self.rate = steady(hits - 1, seconds);
    }

    /// The rule that limits, beside the one that opens connections; `None`: it says nothing.
    pub(super) fn beside(&self, matches: &[String]) -> Option<String> {
        let state = if self.connections {
            ""
        } else {
            "ct-state new "
        };
        let tests = matches.join(" ");
        Some(format!("`{tests} {state}{}`", self.target()?))
    }

    /// `limit rate [over] N/unit [burst N packets]` or `ct count [over] N` of nftables. Returns how many words that is; 0: it is none.
    pub(super) fn nftables(&mut self, words: &[&str]) -> usize {
        let ["limit", "rate", rest @ ..] = words else {
            return self.ct_count(words);
        };
        let (over, rest) = match rest {
            ["over", rest @ ..] => (1, rest),
            ["until", rest @ ..] => {
                self.within = true;
                (1, rest)
            }
            _ => {
                self.within = true;
                (0, rest)
            }
        };
        let Some(found) = rest.first().and_then(|word| rate(word)) else {
            return 0;
        };
        self.rate = Some(found);
        let burst = match rest.get(1..) {
            Some(["burst", burst, "packets", ..]) => {
                self.burst = Some((*burst).to_owned());
                3
            }
            _ => 0,
        };
        3 + over + burst
    }

    /// `{ ip saddr limit rate over ... }`, `{ ip saddr ct count over ... }`: behind `meter NAME`, `add @SET` and `update @SET`. Returns a test of the family that has such a
    /// key; `None`: weir has nothing like it.
    pub(super) fn braced(&mut self, text: &str) -> Option<&'static str> {
        let inner = text.trim_matches(['{', '}']);
        let words: Vec<&str> = inner.split_whitespace().collect();
        let at = (words.iter()).position(|word| matches!(*word, "limit" | "ct"))?;
        let (key, limit) = words.split_at(at);
        let key = match key {
            [key @ .., "timeout", _] => key,
            key => key,
        };
        let per = match key {
            ["ip" | "ip6", "saddr"] => "source",
            ["ip" | "ip6", "daddr"] => "destination",
            ["ip", "saddr", ".", "ip", "daddr"] | ["ip6", "saddr", ".", "ip6", "daddr"] => "pair",
            _ => return None,
        };
        self.per = Some(per.to_owned());
        let family = match key {
            ["ip6", ..] => "net-proto ip6",
            _ => "net-proto ip4",
        };
        (self.nftables(limit) == limit.len()).then_some(family)
    }

    /// The target, if there is a limit.
    pub(super) fn target(&self) -> Option<String> {
        let mut over = format!("drop over {}", self.rate.as_ref()?);
        if !self.connections {
            // iptables and nftables let 5 packets come at once unless they are told another number.
            over.push_str(" burst ");
            over.push_str(self.burst.as_deref().unwrap_or("5"));
        }
        if let Some(per) = &self.per {
            over.push_str(&format!(" per {per}"));
        }
        Some(over)
    }

    /// What is to be known of it.
    pub(super) fn notes(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.within, WITHIN),
            (self.connections, OPENED),
            (self.above_most, FEWER),
        ];
        all.into_iter().filter_map(|(is, note)| is.then_some(note))
    }

    /// Puts the limit in place of the verdict that it guards. Returns what is to be known of it.
    pub(super) fn put(&self, targets: &mut Vec<String>) -> Vec<&'static str> {
        let (Some(rate), Some(over)) = (&self.rate, self.target()) else {
            return Vec::new();
        };
        if let [log] = targets.as_mut_slice()
            && (log == "log" || log.starts_with("log "))
            && self.within
            && self.per.is_none()
            && !self.connections
        {
            let burst = self.burst.as_deref().unwrap_or("5");
            log.push_str(&format!(" limit {rate} burst {burst}"));
            return Vec::new();
        }
        let mut notes: Vec<&str> = self.notes().collect();
        let guards = |target: &str| match self.within {
            true => target == "accept",
            false => target == "drop" || target.starts_with("reject"),
        };
        match targets.iter_mut().find(|target| guards(target)) {
            Some(target) => {
                if target.starts_with("reject") {
                    notes.push(UNANSWERED);
                }
                *target = over;
            }
            None => targets.push(over),
        }
        notes
    }
}

/// What an option behind `keep state` of pf limits, if anything. `None`: weir has nothing like it.
pub(super) fn of_states(option: &[&str]) -> Option<Option<Limit>> {
    let mut limit = Limit::default();
    let known = match option {
        // What becomes of a source above the limit: weir drops its packets.
        ["overload", ..] => return Some(None),
        ["max", number] => limit.count(number),
        ["max-src-conn" | "max-src-states", number] => {
            limit.per = Some("source".to_owned());
            limit.count(number)
        }
        ["max-src-conn-rate", rate] => {
            let (count, seconds) = rate.split_once('/')?;
            limit.per = Some("source".to_owned());
            limit.burst = Some(count.to_owned());
            limit.rate = steady(count.parse().ok()?, seconds.parse().ok()?);
            limit.rate.is_some()
        }
        _ => false,
    };
    known.then_some(Some(limit))
}

/// Whether what stands in the braces of a set limits.
pub(super) fn is_in(braces: &str) -> bool {
    braces.contains("limit ") || braces.contains("ct count ")
}

/// What a module of iptables counts that no limit does, and what comes near.
pub(super) fn uncounted(module: &str) -> Option<(&'static str, &'static str)> {
    match module {
        "quota" => Some((
            "`-m quota` matches up to so many bytes, and weir drops what is above",
            "write `drop over 500M bytes`: it counts bytes of frames",
        )),
        _ => None,
    }
}

/// So many in so many seconds as a rate of weir: a second, a minute or an hour, whichever says it with whole numbers, else the nearest.
fn steady(count: u64, seconds: u64) -> Option<String> {
    let of = |unit: u64| count.checked_mul(unit).filter(|_| seconds > 0);
    let units = [(1, 's'), (60, 'm'), (3600, 'h')];
    let exact = units.into_iter().find_map(|(unit, name)| {
        let packets = of(unit)?;
        (packets > 0 && packets % seconds == 0).then(|| format!("{}/{name}", packets / seconds))
    });
    exact.or_else(|| Some(format!("{}/h", (of(3600)? / seconds).max(1))))
}

/// A rate with the units of iptables and nftables.
fn rate(word: &str) -> Option<String> {
    let (number, unit) = word.split_once('/').unwrap_or((word, "s"));
    number.parse::<u64>().ok()?;
    let unit = ["second", "minute", "hour"]
        .iter()
        .find(|known| !unit.is_empty() && known.starts_with(unit))?;
    Some(format!("{number}/{}", unit.get(..1)?))
}
