//! `reject` of weir as statements of nftables: a reset for TCP, an error with its code for the rest.

use weir_policy::model::{Answer, Classes, Rule};

use crate::answers::{CODES4, CODES6, Code};

/// The rules that a rule with `reject` becomes, in their order, each with what it does.
///
/// # Errors
/// nftables has no such answer.
pub(super) fn lines(rule: &Rule, how: Answer) -> Result<Vec<(Rule, String)>, &'static str> {
    let is = |class| rule.requires.contains(class);
    let reset = "reject with tcp reset".to_owned();
    if how.reset && is(Classes::TCP) {
        return Ok(vec![(rule.clone(), reset)]);
    }
    let mut out = Vec::new();
    let others = [Classes::UDP, Classes::ICMP, Classes::ICMP6];
    if how.reset && !others.into_iter().any(is) {
        let of_tcp = Rule {
            requires: rule.requires.union(Classes::TCP),
            ..rule.clone()
        };
        out.push((of_tcp, reset));
    }
    let error = if is(Classes::IP4) || is(Classes::ICMP) {
        named(CODES4, how.icmp4).map(|name| format!("icmp type {name}"))
    } else if is(Classes::IP6) || is(Classes::ICMP6) {
        named(CODES6, how.icmp6).map(|name| format!("icmpv6 type {name}"))
    } else {
        of_either(how).map(|name| format!("icmpx type {name}"))
    };
    let error = error.ok_or("nftables has no such answer")?;
    out.push((rule.clone(), format!("reject with {error}")));
    Ok(out)
}

fn named(codes: &[Code], number: u8) -> Option<&'static str> {
    let number = number.to_string();
    let found = codes.iter().find(|(_, code, _)| *code == number);
    found.map(|(name, ..)| *name)
}

/// The name that means these codes of the two versions.
fn of_either(how: Answer) -> Option<&'static str> {
    match (how.icmp4, how.icmp6) {
        (0, 0) => Some("no-route"),
        (1, 3) => Some("host-unreachable"),
        (3, 4) => Some("port-unreachable"),
        (13, 1) => Some("admin-prohibited"),
        _ => None,
    }
}
