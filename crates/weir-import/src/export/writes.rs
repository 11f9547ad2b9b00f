//! What rules write, as statements of nftables.
//!
//! Rules of weir test the packet as received, and nftables the packet as earlier statements left it. So the writes stand behind all verdicts, and
//! a rule that tests what an earlier one wrote has none.

use weir_policy::field::{Field, Header, Kind};
use weir_policy::model::{Match, Rule, Target, Test};

use super::nft::{self, Inexpressible};

/// Kind of the TCP option with the maximum segment size.
const SEGMENT_SIZE: u8 = 2;

/// A field as bits of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bits {
    header: Header,
    from: u16,
    to: u16,
}

/// What was written so far.
#[derive(Debug, Default)]
pub(super) struct Written {
    bits: Vec<Bits>,
    segment_size: bool,
    mark: bool,
    /// The mark may have bits of the tests in front.
    tested: bool,
}

/// The statements of a rule, in the order written.
#[derive(Debug, Default)]
struct Statements {
    texts: Vec<String>,
    bits: Vec<Bits>,
    segment_size: bool,
    mark: bool,
}

impl Written {
    /// For lines behind all verdicts. `tested`: lines of these leave bits in the mark.
    pub(super) fn behind(tested: bool) -> Written {
        Written {
            tested,
            ..Written::default()
        }
    }

    /// Adds the lines of a rule. Returns why targets of the rule are not in them.
    pub(super) fn add(&mut self, rule: &Rule, lines: &mut Vec<String>) -> Vec<&'static str> {
        let mut reasons = Vec::new();
        let mut statements = Statements::default();
        for target in rule.targets.iter().filter(|target| writes(target)) {
            if let Err(Inexpressible(reason)) = statements.add(target, rule)
                && !reasons.contains(&reason)
            {
                reasons.push(reason);
            }
        }
        if statements.texts.is_empty() {
            return reasons;
        }
        let made = match rule.matches.iter().any(|one| self.reads(one)) {
            true => Err(Inexpressible(
                "an earlier rule writes what this one tests, and rules of weir test the packet as received",
            )),
            false => nft::statement(rule, &statements.texts.join(" ")),
        };
        let made = made.and_then(
            |made| match made.len() > 1 && (self.mark || statements.mark) {
                true => Err(Inexpressible(
                    "its tests need the mark, which this rule or an earlier one writes",
                )),
                false => Ok(made),
            },
        );
        match made {
            Ok(made) => {
                if statements.mark && self.tested {
                    lines.push(nft::NO_MARK.to_owned());
                    self.tested = false;
                }
                self.tested |= made.len() > 1;
                self.mark |= statements.mark;
                self.segment_size |= statements.segment_size;
                self.bits.append(&mut statements.bits);
                lines.extend(made);
            }
            Err(Inexpressible(reason)) => reasons.push(reason),
        }
        reasons
    }

    /// The mark without the bits of tests.
    pub(super) fn end(self, lines: &mut Vec<String>) {
        if self.tested {
            lines.push(nft::NO_MARK.to_owned());
        }
    }

    /// Whether a test may read what was written.
    fn reads(&self, one: &Match) -> bool {
        let info = one.subject.field.info();
        match info.kind {
            Kind::Payload => self.segment_size && matches!(info.header, Header::Ip4 | Header::Ip6),
            Kind::TcpOption(_) => {
                let has_value = !matches!(one.test, Test::Present | Test::Always);
                self.segment_size && has_value && one.subject.option == Some(SEGMENT_SIZE)
            }
            _ if info.name == "ip-checksum" => {
                self.bits.iter().any(|bits| bits.header == Header::Ip4)
            }
            _ if info.name == "tcp-checksum" => self.segment_size,
            _ => {
                let read = Bits::of(one.subject.field);
                self.bits.iter().any(|written| written.meets(read))
            }
        }
    }
}

/// Whether a target changes the packet, its mark or its priority.
fn writes(target: &Target) -> bool {
    !matches!(
        target,
        Target::Accept | Target::Drop(_) | Target::Log { .. } | Target::ChangeSet(_)
    )
}

impl Bits {
    fn of(field: Field) -> Bits {
        let info = field.info();
        let from = info.offset;
        Bits {
            header: info.header,
            from,
            to: from + info.bits,
        }
    }

    fn meets(self, other: Bits) -> bool {
        self.header == other.header && self.from < other.to && other.from < self.to
    }
}

impl Statements {
    fn add(&mut self, target: &Target, rule: &Rule) -> Result<(), Inexpressible> {
        let text = match target {
            Target::Set { field, value } => {
                let text = match field.info().header {
                    Header::Vlan => of_tag(*field, *value),
                    _ => format!("{} set {value}", place(*field)?),
                };
                self.bits.push(Bits::of(*field));
                text
            }
            Target::SetMeta { field, value, mask } => {
                let is_mark = field.info().name == "mark";
                self.mark |= is_mark;
                match (is_mark, *mask) {
                    (false, _) => {
                        format!("meta priority set {:x}:{:x}", value >> 16, value & 0xffff)
                    }
                    (true, u32::MAX) => format!("meta mark set {value:#x}"),
                    (true, mask) => {
                        format!("meta mark set meta mark and {:#x} or {value:#x}", !mask)
                    }
                }
            }
            Target::SetOption { kind, value } if *kind == SEGMENT_SIZE => {
                let size = (value.iter()).fold(0, |size, byte| size << 8 | u128::from(*byte));
                if !rule.matches.iter().any(|one| is_above(one, size)) {
                    return Err(Inexpressible(
                        "nftables never raises a maximum segment size: write `tcp-opt-mss > N mod tcp-opt-mss N`",
                    ));
                }
                self.segment_size = true;
                format!("tcp option maxseg size set {size}")
            }
            Target::DecrementTtl => {
                return Err(Inexpressible("nftables sets a TTL, and decrements none"));
            }
            Target::PushTag { .. } | Target::PopTag => {
                return Err(Inexpressible("nftables does not push or pop VLAN tags"));
            }
            _ => return Err(Inexpressible("this rewriting is not exported")),
        };
        self.texts.push(text);
        Ok(())
    }
}

/// Bits of the tag control information. The tag lies beside the packet, where the kernel writes all of it or nothing: `vlan pcp set`, which
/// writes one byte, has no effect.
fn of_tag(field: Field, value: u128) -> String {
    let bits = Bits::of(field);
    let shift = 16 - u32::from(bits.to);
    let mask = ((1u32 << (bits.to - bits.from)) - 1) << shift;
    format!(
        "@ll,112,16 set @ll,112,16 and {:#06x} or {:#06x}",
        !mask & 0xffff,
        (value as u32) << shift
    )
}

/// The field as nftables writes it.
fn place(field: Field) -> Result<String, Inexpressible> {
    let info = field.info();
    Ok(match (info.header, info.name) {
        (_, "ip-dscp") => "ip dscp".to_owned(),
        (_, "ip-ttl") => "ip ttl".to_owned(),
        (_, "ip-id") => "ip id".to_owned(),
        (Header::Ip4, "ip-ecn" | "ip-non-ect" | "ip-ect0" | "ip-ect1" | "ip-ce") => {
            "ip ecn".to_owned()
        }
        (_, "ip6-dscp") => "ip6 dscp".to_owned(),
        (_, "ip6-ecn") => "ip6 ecn".to_owned(),
        (_, "ip6-hop-limit") => "ip6 hoplimit".to_owned(),
        (_, "ip6-flow-label") => "ip6 flowlabel".to_owned(),
        _ => return Err(Inexpressible("this rewriting is not exported")),
    })
}

/// Whether a packet that passes the test has a larger maximum segment size.
fn is_above(one: &Match, size: u128) -> bool {
    let of_size = one.subject.option == Some(SEGMENT_SIZE) && !one.negated;
    match &one.test {
        Test::In(set) if of_size => (set.intervals().first()).is_some_and(|&(low, _)| low >= size),
        _ => false,
    }
}
