//! Limits of iptables (`limit`, `hashlimit`) and nftables (`limit rate`, `meter`, sets that rules fill), in weir's words.

/// What to say of a limit that lets through what is within it.
pub(super) const WITHIN: &str = "a limit says what is too much, and `accept` would override it: what is within it needs no rule";

/// A limit in the making.
#[derive(Default)]
pub(super) struct Limit {
    rate: Option<String>,
    burst: Option<String>,
    per: Option<String>,
    /// It lets through what is within, and does not match what is above.
    within: bool,
}

impl Limit {
    /// An option of iptables with its value. False: it is none of a limit, or weir has nothing like it.
    pub(super) fn iptables(&mut self, option: &str, value: &str) -> bool {
        match option {
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

    /// `limit rate [over] N/unit [burst N packets]` of nftables. Returns how many words that is; 0: it is none.
    pub(super) fn nftables(&mut self, words: &[&str]) -> usize {
        let ["limit", "rate", rest @ ..] = words else {
            return 0;
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

    /// `{ ip saddr limit rate over ... }`: behind `meter NAME`, `add @SET` and `update @SET`. Returns a test of the family that has such a
    /// key; `None`: weir has nothing like it.
    pub(super) fn braced(&mut self, text: &str) -> Option<&'static str> {
        let inner = text.trim_matches(['{', '}']);
        let words: Vec<&str> = inner.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "limit")?;
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

    /// Puts the limit in place of the verdict that it guards. True: it let through what is within.
    pub(super) fn put(&self, targets: &mut Vec<String>) -> bool {
        let Some(rate) = &self.rate else {
            return false;
        };
        // iptables and nftables let 5 packets come at once unless they are told another number.
        let burst = self.burst.as_deref().unwrap_or("5");
        if let [log] = targets.as_mut_slice()
            && (log == "log" || log.starts_with("log "))
            && self.within
            && self.per.is_none()
        {
            log.push_str(&format!(" limit {rate} burst {burst}"));
            return false;
        }
        let mut over = format!("drop over {rate} burst {burst}");
        if let Some(per) = &self.per {
            over.push_str(&format!(" per {per}"));
        }
        let guarded = if self.within { "accept" } else { "drop" };
        match targets.iter_mut().find(|target| *target == guarded) {
            Some(target) => *target = over,
            None => targets.push(over),
        }
        self.within
    }
}

/// What a module of iptables counts that no limit does, and what comes near.
pub(super) fn uncounted(module: &str) -> Option<(&'static str, &'static str)> {
    match module {
        "connlimit" => Some((
            "`-m connlimit` counts connections, and limits of weir count packets",
            "write `ct-state new tcp-dport 22 drop over 10/m burst 20 per source`: it limits how many connections a source opens, not how many it has",
        )),
        "quota" => Some((
            "`-m quota` matches up to so many bytes, and weir drops what is above",
            "write `drop over 500M bytes`: it counts bytes of frames",
        )),
        _ => None,
    }
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
