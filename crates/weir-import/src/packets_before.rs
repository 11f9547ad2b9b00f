//! What depends on packets before: limits, and sets that packets fill.
//!
//! Only what means the same is translated. The token bucket of nftables and weir's limit are one arithmetic: a bucket of B packets that gains one
//! every T ns, T rounded down. Membership of a set is a field of one bit (`condition`): rules see the set as it was before the packet.

use std::time::Duration;

use crate::condition::Field;

/// Most sets and tests of sets that a policy may have (docs/language.md).
const MAX_SETS: usize = 32;
const MAX_TESTS: usize = 32;
/// Most addresses that a set of weir is made for.
const MAX_SIZE: u64 = 4_194_304;

/// Which packets are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Per {
    /// All of the rule.
    Rule,
    /// Those of a source network, by the lengths of IPv4 and IPv6.
    Source(u32, u32),
    Destination(u32, u32),
    Pair,
}

/// Why a count of connections is not translated that is not reached.
pub(crate) const WITHIN_CONNECTIONS: &str = "packets of connections that are open are within, too, and weir judges only those that open one";

/// Most connections that a limit of weir counts.
const MAX_COUNTED: u64 = 128;

/// Packets a unit of time, and how many at once; or connections at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) packets: u64,
    /// `s`, `m` or `h`.
    pub(crate) unit: char,
    pub(crate) burst: u64,
    pub(crate) per: Per,
    /// Not packets in a time but so many connections that are open.
    pub(crate) connections: bool,
}

impl Limit {
    /// Of so many connections at a time.
    pub(crate) fn connections(most: u64, per: Per) -> Result<Limit, String> {
        if most == 0 || most > MAX_COUNTED {
            return Err(format!(
                "a limit of weir counts 1 to {MAX_COUNTED} connections, not {most}"
            ));
        }
        Ok(Limit {
            packets: most,
            unit: 's',
            burst: 1,
            per,
            connections: true,
        })
    }

    /// Of so many packets in so many seconds: 1, 60, 3,600, 86,400 or 604,800. Weir counts an hour at most.
    pub(crate) fn new(packets: u64, seconds: u64, burst: u64, per: Per) -> Result<Limit, String> {
        let hours = seconds / 3600;
        let (packets, unit) = match seconds {
            1 => (packets, 's'),
            60 => (packets, 'm'),
            _ if hours > 0 && packets.is_multiple_of(hours) => (packets / hours, 'h'),
            _ => {
                return Err(format!(
                    "weir counts packets a second, a minute or an hour, and {packets} in {hours} hours is no whole number of them"
                ));
            }
        };
        if packets == 0 || burst == 0 || packets > 1_000_000_000 || burst > u64::from(u32::MAX) {
            return Err(
                "the rate of a limit is 1 to 1,000,000,000, and its burst 1 or more".to_owned(),
            );
        }
        Ok(Limit {
            packets,
            unit,
            burst,
            per,
            connections: false,
        })
    }

    /// How long a bucket that is empty takes to be full, in ns.
    pub(crate) fn refill_ns(&self) -> u128 {
        let second = match self.unit {
            's' => 1,
            'm' => 60,
            _ => 3600,
        };
        second * 1_000_000_000 / u128::from(self.packets) * u128::from(self.burst)
    }

    /// As a target: what is above it is dropped.
    pub(crate) fn target(&self) -> String {
        let lengths = |name: &str, four: u32, six: u32| match (four, six) {
            (32, 128) => format!(" per {name}"),
            _ => format!(" per {name}/{four}/{six}"),
        };
        let per = match self.per {
            Per::Rule => String::new(),
            Per::Source(four, six) => lengths("source", four, six),
            Per::Destination(four, six) => lengths("destination", four, six),
            Per::Pair => " per pair".to_owned(),
        };
        match self.connections {
            true => format!("drop over {} connections{per}", self.packets),
            false => format!("drop over {}{per}", self.pace()),
        }
    }

    /// Rate and burst.
    pub(crate) fn pace(&self) -> String {
        format!("{}/{} burst {}", self.packets, self.unit, self.burst)
    }
}

/// A limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) limit: Limit,
    /// Whether the rule is for what is above it, not for what is within.
    pub(crate) over: bool,
    /// What is within leaves the chain: it was written as `return` in front of a drop.
    pub(crate) returns: bool,
}

/// What a rule does to a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) set: u8,
    /// Take the address out.
    pub(crate) delete: bool,
    /// The address, as targets name it.
    pub(crate) field: &'static str,
    pub(crate) timeout: Option<Duration>,
}

/// A set that packets or programs fill.
#[derive(Clone, Debug)]
pub(crate) struct Dynamic {
    /// What the file calls it, with its table.
    key: String,
    /// A name of the language.
    pub(crate) name: String,
    pub(crate) size: Option<u64>,
    /// Who fills it, where packets do not.
    pub(crate) filled_by: Option<String>,
}

/// The sets of a file, and the pairs of a set and an address that are tested.
#[derive(Clone, Debug, Default)]
pub(crate) struct DynamicSets {
    sets: Vec<Dynamic>,
    tests: Vec<(u8, Field)>,
}

impl DynamicSets {
    /// The number of a set; `key` is its own in the whole file.
    pub(crate) fn set(&mut self, key: &str, name: &str, size: Option<u64>) -> Result<u8, String> {
        if let Some(at) = self.sets.iter().position(|set| set.key == key) {
            return Ok(at as u8);
        }
        if self.sets.len() >= MAX_SETS {
            return Err(format!(
                "a policy has at most {MAX_SETS} sets that packets fill"
            ));
        }
        if size.is_some_and(|size| size == 0 || size > MAX_SIZE) {
            return Err(format!(
                "a set of weir is made for 1 to {MAX_SIZE} addresses"
            ));
        }
        let taken = |name: &String| self.sets.iter().any(|set| set.name == *name);
        let numbered = (2..).map(|n| format!("{name}-{n}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        let name = names.find(|name| !taken(name)).unwrap_or_default();
        self.sets.push(Dynamic {
            key: key.to_owned(),
            name,
            size,
            filled_by: None,
        });
        Ok((self.sets.len() - 1) as u8)
    }

    /// Says who fills a set.
    pub(crate) fn fill_by(&mut self, set: u8, who: String) {
        if let Some(set) = self.sets.get_mut(usize::from(set)) {
            set.filled_by = Some(who);
        }
    }

    /// The field that says whether an address is in a set.
    pub(crate) fn test(&mut self, set: u8, address: Field) -> Result<Field, String> {
        let of = |number: usize| Field::member(number as u8, address);
        if let Some(at) = self.tests.iter().position(|one| *one == (set, address)) {
            return of(at).ok_or_else(no_address);
        }
        if self.tests.len() >= MAX_TESTS {
            return Err(format!(
                "a policy tests at most {MAX_TESTS} pairs of a set and an address"
            ));
        }
        let field = of(self.tests.len()).ok_or_else(no_address)?;
        self.tests.push((set, address));
        Ok(field)
    }

    /// Set and address of a test.
    pub(crate) fn tested(&self, number: u8) -> Option<(u8, Field)> {
        self.tests.get(usize::from(number)).copied()
    }

    pub(crate) fn name(&self, set: u8) -> &str {
        self.sets.get(usize::from(set)).map_or("", |set| &set.name)
    }

    /// In the order of their numbers.
    pub(crate) fn all(&self) -> &[Dynamic] {
        &self.sets
    }
}

fn no_address() -> String {
    "a set that packets fill holds addresses".to_owned()
}

/// A time as policies write it, in the largest unit that divides it.
pub(crate) fn written(time: Duration) -> String {
    let ms = time.as_millis();
    for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        if ms.is_multiple_of(size) {
            return format!("{}{unit}", ms / size);
        }
    }
    format!("{ms}ms")
}
