//! Matches that depend on packets before: `limit`, `hashlimit`, `recent`.
//!
//! `recent` without a count of hits is a set with a time-out. `hashlimit` forgets an address after a time without packets; where its bucket is full by
//! then, that is what weir's limit does.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::packets_before::{Limit, Limited, Per, WITHIN_CONNECTIONS};
use crate::values::Family;

/// What all rules of a dump together say of names that they share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// How many rules use a table of `hashlimit`.
    tables: BTreeMap<String, usize>,
    /// How long a list of `recent` is asked for, or why it is not a set.
    lists: BTreeMap<String, Result<Option<u64>, String>>,
}

/// `-m recent` of a rule.
#[derive(Debug, Default)]
pub(super) struct Recent {
    pub(super) verb: String,
    pub(super) negated: bool,
    pub(super) name: String,
    pub(super) destination: bool,
    seconds: Option<u64>,
    odd: Option<String>,
}

impl Shared {
    /// Notes what a rule says.
    pub(super) fn note(&mut self, words: &[String]) {
        for (at, word) in words.iter().enumerate() {
            match word.as_str() {
                "--hashlimit-name" => {
                    if let Some(name) = words.get(at + 1) {
                        *self.tables.entry(name.clone()).or_default() += 1;
                    }
                }
                "-m" | "--match" if words.get(at + 1).is_some_and(|name| name == "recent") => {
                    self.note_list(&Recent::read(words, at + 2).0);
                }
                _ => {}
            }
        }
    }

    fn note_list(&mut self, recent: &Recent) {
        let asked = matches!(recent.verb.as_str(), "--rcheck" | "--update");
        let known = self.lists.entry(recent.name.clone()).or_insert(Ok(None));
        if let Some(odd) = &recent.odd {
            *known = Err(odd.clone());
        }
        if !asked || known.is_err() {
            return;
        }
        let seconds = recent.seconds.unwrap_or_default();
        match known {
            Ok(None) => *known = Ok(Some(seconds)),
            Ok(Some(before)) if *before != seconds => {
                *known = Err(format!(
                    "rules ask list {} for different times, and a set of weir has one",
                    recent.name
                ));
            }
            _ => {}
        }
    }

    /// How long an address stays in a list: `None`, for good.
    pub(super) fn timeout(&self, name: &str) -> Result<Option<Duration>, String> {
        let known = self.lists.get(name).cloned().unwrap_or(Ok(None))?;
        Ok(known
            .filter(|&seconds| seconds > 0)
            .map(Duration::from_secs))
    }
}

impl Recent {
    /// Reads the options from a place on; where they end.
    pub(super) fn read(words: &[String], from: usize) -> (Recent, usize) {
        let mut recent = Recent {
            name: "DEFAULT".to_owned(),
            ..Recent::default()
        };
        let mut at = from;
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let is_verb = |word: &str| matches!(word, "--set" | "--rcheck" | "--update" | "--remove");
        loop {
            let value = || word(at + 1).to_owned();
            match word(at) {
                "!" if is_verb(word(at + 1)) => {
                    recent.negated = true;
                    at += 1;
                    continue;
                }
                verb if is_verb(verb) => {
                    recent.verb = verb.to_owned();
                    at += 1;
                    continue;
                }
                "--reap" | "--rsource" => {}
                "--rdest" => recent.destination = true,
                "--rttl" => {
                    recent.odd = Some(
                        "`--rttl` compares TTLs of packets, and a set of weir holds addresses"
                            .to_owned(),
                    )
                }
                "--seconds" => {
                    match value().parse() {
                        Ok(seconds) => recent.seconds = Some(seconds),
                        Err(_) => {
                            recent.odd = Some(format!("`--seconds {}` is not understood", value()))
                        }
                    }
                    at += 1;
                }
                "--hitcount" => {
                    if !matches!(value().as_str(), "0" | "1") {
                        recent.odd = Some("`--hitcount` counts the packets of the last seconds, one by one; a set of weir knows the last one, and `drop over 3/m burst 3 per source` counts otherwise".to_owned());
                    }
                    at += 1;
                }
                "--name" => {
                    recent.name = value();
                    at += 1;
                }
                "--mask" => {
                    let whole = ["255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"];
                    if !whole.contains(&value().as_str()) {
                        recent.odd = Some("`--mask` makes addresses of networks one, and a set of weir holds whole addresses".to_owned());
                    }
                    at += 1;
                }
                _ => return (recent, at),
            }
            at += 1;
        }
    }
}

/// `10/sec`: packets, and seconds of the unit.
fn rate(text: &str) -> Option<(u64, u64)> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "second"));
    let units = [
        ("second", 1),
        ("minute", 60),
        ("hour", 3600),
        ("day", 86_400),
    ];
    let named = units
        .iter()
        .find(|(name, _)| !unit.is_empty() && name.starts_with(unit));
    Some((number.parse().ok()?, named?.1))
}

/// `-m limit`, from a place on; where its options end.
pub(super) fn limit(words: &[String], from: usize) -> Result<(Limited, usize), String> {
    let (mut asked, mut burst) = ((3, 3600), 5);
    let mut at = from;
    loop {
        let value = words.get(at + 1).map_or("", String::as_str);
        let bad = || format!("`{value}` is not understood");
        match words.get(at).map_or("", String::as_str) {
            "--limit" => asked = rate(value).ok_or_else(bad)?,
            "--limit-burst" => burst = value.parse().map_err(|_| bad())?,
            _ => break,
        }
        at += 2;
    }
    let limit = Limit::new(asked.0, asked.1, burst, Per::Rule)?;
    let limited = Limited {
        limit,
        over: false,
        returns: false,
    };
    Ok((limited, at))
}

/// `-m connlimit`, from a place on, and where its options end.
pub(super) fn connlimit(
    words: &[String],
    from: usize,
    family: Family,
) -> Result<(Limited, usize), String> {
    let whole = match family {
        Family::Four => 32,
        Family::Six => 128,
    };
    let (mut asked, mut over, mut mask, mut destination) = (None, false, whole, false);
    let (mut at, mut negated) = (from, false);
    loop {
        let value = words.get(at + 1).map_or("", String::as_str);
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("`{value}` is not understood"))
        };
        match words.get(at).map_or("", String::as_str) {
            "!" if value.starts_with("--connlimit") => {
                negated = true;
                at += 1;
                continue;
            }
            "--connlimit-above" => (asked, over) = (Some(number()?), !negated),
            "--connlimit-upto" => (asked, over) = (Some(number()?), negated),
            "--connlimit-mask" => mask = u32::try_from(number()?).unwrap_or(u32::MAX),
            "--connlimit-saddr" => {
                at += 1;
                continue;
            }
            "--connlimit-daddr" => {
                destination = true;
                at += 1;
                continue;
            }
            _ => break,
        }
        at += 2;
    }
    let most = asked.ok_or("`-m connlimit` names no number of connections")?;
    if !over {
        return Err(WITHIN_CONNECTIONS.to_owned());
    }
    if mask > whole {
        return Err(format!("`--connlimit-mask {mask}` is not understood"));
    }
    let lengths = match family {
        Family::Four => (mask, 128),
        Family::Six => (32, mask),
    };
    let per = match (mask, destination) {
        // All addresses of the family are one network.
        (0, _) => Per::Rule,
        (_, false) => Per::Source(lengths.0, lengths.1),
        (_, true) => Per::Destination(lengths.0, lengths.1),
    };
    let limited = Limited {
        limit: Limit::connections(most, per)?,
        over,
        returns: false,
    };
    Ok((limited, at))
}

/// `-m hashlimit`, from a place on; how many addresses it holds, and where its options end.
pub(super) fn hashlimit(
    words: &[String],
    from: usize,
    family: Family,
    shared: &Shared,
) -> Result<(Limited, Option<u64>, usize), String> {
    let mut asked = None;
    let (mut over, mut burst) = (false, 5);
    let (mut mode, mut most, mut expires_ms) = (Vec::new(), None, None);
    let mut masks = [None, None];
    let mut at = from;
    let mut negated = false;
    loop {
        let value = words.get(at + 1).map_or("", String::as_str);
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("`{value}` is not understood"))
        };
        let rate = || {
            rate(value).ok_or_else(|| {
                format!(
                    "`{value}` is not a number of packets in a time; weir has no limits of bytes"
                )
            })
        };
        match words.get(at).map_or("", String::as_str) {
            "!" if value.starts_with("--hashlimit") => {
                negated = true;
                at += 1;
                continue;
            }
            "--hashlimit" | "--hashlimit-upto" => (asked, over) = (Some(rate()?), negated),
            "--hashlimit-above" => (asked, over) = (Some(rate()?), !negated),
            "--hashlimit-burst" => burst = number()?,
            "--hashlimit-mode" => mode = value.split(',').collect(),
            "--hashlimit-srcmask" => masks[0] = Some(number()? as u32),
            "--hashlimit-dstmask" => masks[1] = Some(number()? as u32),
            "--hashlimit-htable-max" => most = Some(number()?),
            "--hashlimit-htable-expire" => expires_ms = Some(number()?),
            "--hashlimit-htable-size" | "--hashlimit-htable-gcinterval" => {
                number()?;
            }
            "--hashlimit-name" => {
                if shared.tables.get(value).is_some_and(|rules| *rules > 1) {
                    return Err(format!(
                        "several rules count in table {value} together, and each limit of weir counts its own packets"
                    ));
                }
            }
            other if other.starts_with("--hashlimit") => {
                return Err(format!("`{other}` has no counterpart"));
            }
            _ => break,
        }
        at += 2;
    }
    let (packets, seconds) = asked.ok_or("`-m hashlimit` names no rate")?;
    let whole = match family {
        Family::Four => 32,
        Family::Six => 128,
    };
    let lengths = |mask: Option<u32>| {
        let length = mask.unwrap_or(whole);
        match family {
            Family::Four => (length, 128),
            Family::Six => (32, length),
        }
    };
    let is_whole = masks.iter().flatten().all(|&mask| mask == whole);
    let ((four, six), (four_to, six_to)) = (lengths(masks[0]), lengths(masks[1]));
    mode.sort_unstable();
    let per = match mode[..] {
        [] => Per::Rule,
        ["srcip"] => Per::Source(four, six),
        ["dstip"] => Per::Destination(four_to, six_to),
        ["dstip", "srcip"] if is_whole => Per::Pair,
        ["dstip", "srcip"] => {
            return Err("limits of weir for pairs count whole addresses".to_owned());
        }
        _ => return Err("limits of weir count addresses, not ports".to_owned()),
    };
    if matches!(
        per,
        Per::Source(0, _) | Per::Source(_, 0) | Per::Destination(0, _) | Per::Destination(_, 0)
    ) {
        return Err("a mask of 0 has no counterpart".to_owned());
    }
    let limit = Limit::new(packets, seconds, burst, per)?;
    let expires_ns = u128::from(expires_ms.unwrap_or(seconds * 1000)) * 1_000_000;
    if per != Per::Rule && expires_ns < limit.refill_ns() {
        return Err(format!(
            "an address is forgotten after {} ms without packets and then has its whole burst at once; in weir it has that after {} ms",
            expires_ns / 1_000_000,
            limit.refill_ns() / 1_000_000
        ));
    }
    let limited = Limited {
        limit,
        over,
        returns: false,
    };
    Ok((limited, most, at))
}
