//! Which rules are held to traffic of a port (`rule_group.json`): ports divided where rules begin and end, those with most rules first, the rest in one group that all other ports share.
//!
//! It tells which ports cost most. Detection here selects rules by content and by header together, and needs no such groups.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::config::Grouping;
use crate::rules::PortSet;

use super::lists::Lists;

/// A rule with the ports of one direction.
struct Member {
    sid: u32,
    ports: Vec<(u16, u16)>,
}

/// Ports from one to another, with places of the rules that are held to them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    from: u16,
    to: u16,
    prior: bool,
    rules: Vec<usize>,
}

/// Rules by protocol and direction.
#[derive(Default)]
pub(super) struct Groups {
    /// TCP, UDP; to the server, to the client.
    members: [[Vec<Member>; 2]; 2],
}

impl Groups {
    /// Adds a rule, unless it is about addresses only.
    pub(super) fn add(&mut self, lists: &Lists<'_>, kind: &str) {
        if kind == "ip_only" {
            return;
        }
        let header = &lists.rule.header;
        let ports = [&header.destination_ports, &header.source_ports];
        for (members, has) in self
            .members
            .iter_mut()
            .zip([lists.has_tcp(), lists.has_udp()])
        {
            for ((members, set), asked) in members.iter_mut().zip(ports).zip(lists.directions) {
                if has && asked {
                    members.push(Member {
                        sid: lists.rule.sid,
                        ports: ranges(set),
                    });
                }
            }
        }
    }

    /// As `rule_group.json` has them. Groups of the same rules have one number.
    pub(super) fn json(&self, grouping: &Grouping) -> Value {
        let mut known: Vec<Vec<u32>> = Vec::new();
        let mut of = |members: &[Member], prior: &[u16], most: usize| -> Value {
            let spans = grouped(members, prior, most).into_iter().map(|span| {
                let sids = span
                    .rules
                    .iter()
                    .filter_map(|at| Some(members.get(*at)?.sid));
                let sids: Vec<u32> = sids.collect();
                let id = known.iter().position(|k| *k == sids).unwrap_or_else(|| {
                    known.push(sids.clone());
                    known.len() - 1
                });
                let mut group = json!({"id": id, "stats": {"total": sids.len()}});
                if grouping.rules
                    && let Value::Object(map) = &mut group
                {
                    let rules = sids.iter().map(|sid| json!({"sig_id": sid}));
                    map.insert("rules".to_owned(), rules.collect());
                }
                json!({"port": span.from, "port2": span.to, "rulegroup": group})
            });
            spans.collect()
        };
        let [[tcp_server, tcp_client], [udp_server, udp_client]] = &self.members;
        let [server, client] = grouping.most;
        let mut of_protocol = |to: &[Member], from: &[Member], prior: &[u16]| {
            let to = of(to, prior, server);
            json!({"toserver": to, "toclient": of(from, prior, client)})
        };
        let tcp = of_protocol(tcp_server, tcp_client, &grouping.prior[0]);
        let udp = of_protocol(udp_server, udp_client, &grouping.prior[1]);
        json!({"tcp": tcp, "udp": udp})
    }
}

fn ranges(set: &PortSet) -> Vec<(u16, u16)> {
    match set.any {
        true => vec![(0, u16::MAX)],
        false => set.ranges.to_vec(),
    }
}

/// Spans with the same rules throughout, those of ports that matter most and those with most rules first; behind so many of them one for all ports.
fn grouped(members: &[Member], prior: &[u16], most: usize) -> Vec<Span> {
    let mut begins = BTreeSet::new();
    for (from, to) in members.iter().flat_map(|m| &m.ports) {
        begins.insert(u32::from(*from));
        begins.insert(u32::from(*to) + 1);
    }
    let begins: Vec<u32> = begins.into_iter().collect();
    let mut spans: Vec<Span> = Vec::new();
    for pair in begins.windows(2) {
        let [from, behind] = *pair else { continue };
        let (Ok(from), Ok(to)) = (u16::try_from(from), u16::try_from(behind - 1)) else {
            continue;
        };
        let mut span = Span {
            from,
            to,
            prior: false,
            rules: Vec::new(),
        };
        for (at, member) in members.iter().enumerate() {
            let Some(range) = member.ports.iter().find(|(a, b)| *a <= from && to <= *b) else {
                continue;
            };
            span.rules.push(at);
            span.prior |= range.0 == range.1 && prior.contains(&range.0);
        }
        if !span.rules.is_empty() {
            spans.push(span);
        }
    }
    spans.sort_by_key(|s| Reverse((s.prior, s.rules.len())));
    if spans.len() > most {
        let rest: BTreeSet<usize> = spans.drain(most..).flat_map(|s| s.rules).collect();
        spans.push(Span {
            from: 0,
            to: u16::MAX,
            prior: false,
            rules: rest.into_iter().collect(),
        });
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::{Member, grouped};

    fn spans(ports: &[(u16, u16)], prior: &[u16], most: usize) -> Vec<(u16, u16, Vec<usize>)> {
        let members: Vec<Member> = ports
            .iter()
            .map(|range| Member {
                sid: 1,
                ports: vec![*range],
            })
            .collect();
        let all = grouped(&members, prior, most).into_iter();
        all.map(|s| (s.from, s.to, s.rules)).collect()
    }

    #[test]
    fn ports_are_divided_where_rules_begin_and_end() {
        let expected = vec![(5, 10, vec![0, 1]), (1, 4, vec![0]), (11, 20, vec![1])];
        assert_eq!(spans(&[(1, 10), (5, 20)], &[], 40), expected);
        let ends = vec![(0, 0, vec![0, 1]), (1, 65535, vec![0])];
        assert_eq!(spans(&[(0, 65535), (0, 0)], &[], 40), ends);
    }

    #[test]
    fn what_matters_comes_first_and_the_rest_is_one_group() {
        let expected = vec![(80, 80, vec![2]), (0, 65535, vec![0, 1])];
        assert_eq!(spans(&[(1, 1), (2, 2), (80, 80)], &[80], 1), expected);
    }
}
