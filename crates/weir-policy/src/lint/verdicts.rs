//! Verdicts of rules that others take away, and packets that a policy loses without meaning to: `accept` beats `drop` in every order, and a
//! drop without a protocol takes what links need.

use super::solve::{Demand, among, made};
use super::view::{Seen, View};
use crate::ast::Action;
use crate::diagnostic::Report;
use crate::field::{Field, Header, Kind};
use crate::model::{Classes, Match, Rule, Target, Test};

pub(super) fn judge(view: &View<'_>, report: &mut Report) {
    overridden(view, report);
    dropped_and_rewritten(view, report);
    links(view, report);
    fragments(view, report);
}

/// A drop all of whose packets another rule accepts.
fn overridden(view: &View<'_>, report: &mut Report) {
    for seen in view.rules.iter().filter(|seen| !seen.rule.stateful) {
        if !seen
            .rule
            .targets
            .iter()
            .any(|t| matches!(t, Target::Drop(_)))
        {
            continue;
        }
        let covers = |by: &&Seen<'_>| view.covers(by, &seen.demands);
        // It drops only what would open a connection, and that matches stateful rules, too.
        let opening = (view.wide_stateful_accepts()).filter(|_| counts_connections(seen.rule));
        let Some(by) = view.wide_accepts().chain(opening).find(covers) else {
            continue;
        };
        let help = match by.rule.stateful {
            true => {
                "`accept` overrides the limit: write the stateful rule without it, as `add-stateful tcp-dport 25 timeout 4h`"
            }
            false => {
                "`accept` overrides `drop` wherever it stands: make the other rule match fewer packets, or remove this one"
            }
        };
        report
            .warning(
                0,
                seen.drop_place(),
                format!(
                    "this `drop` has no effect: {} accepts every packet of this rule",
                    by.called()
                ),
            )
            .also(0, by.written.span, "this rule accepts them")
            .help(help);
    }
}

fn counts_connections(rule: &Rule) -> bool {
    rule.connections_at_a_time().is_some()
}

/// Rewrites of packets that the same rule drops.
fn dropped_and_rewritten(view: &View<'_>, report: &mut Report) {
    for seen in &view.rules {
        let always = |target: &Target| matches!(target, Target::Drop(when) if when.is_always());
        let rewrites = |action: &Action| {
            matches!(
                action,
                Action::Mod(..)
                    | Action::Add(..)
                    | Action::Strip(..)
                    | Action::StripAll
                    | Action::Map(..)
                    | Action::Shuffle(_)
            )
        };
        if !seen.rule.targets.iter().any(always)
            || !seen
                .written
                .targets
                .iter()
                .any(|target| rewrites(&target.action))
        {
            continue;
        }
        let mut accepts = view.all_accepts();
        if accepts.any(|other| view.meet(&[seen, other], &[])) {
            continue;
        }
        report
            .warning(
                0,
                seen.place(rewrites),
                "packets that are dropped are not rewritten, and this rule drops all of its own",
            )
            .also(0, seen.drop_place(), "dropped here")
            .help("remove the `drop`, or remove this");
    }
}

/// ARP and neighbour discovery, without which no address is found on a link.
fn links(view: &View<'_>, report: &mut Report) {
    // As they are sent (RFC 826, RFC 4861): whole, without extension headers.
    let arp = [among("eth-type", [0x0806])];
    let nd = [135, 136].map(|kind| {
        [
            among("icmp6-type", [kind]),
            among("ip6-hop-limit", [255]),
            made("ip6-eh", true, Test::Present),
        ]
    });
    for seen in view.wide_drops() {
        // Who names the protocol means it.
        if seen.names(&[Header::Ether, Header::Icmp6]) || seen.names_field("net-proto") {
            continue;
        }
        // A drop with exceptions; one without them closes an interface.
        let negates = seen.rule.matches.iter().any(|one| {
            one.negated
                && one.test == Test::Present
                && !matches!(one.subject.field.info().kind, Kind::Exists)
        });
        let is_meant = |family: Classes| {
            negates
                || view
                    .all_accepts()
                    .any(|by| view.meet(&[seen, by], &[Demand::Has(family)]))
        };
        // Of some interface or VLAN, but all of them there.
        let is_place = |one: &Match| {
            let info = one.subject.field.info();
            matches!(info.header, Header::Vlan | Header::Vlan2)
                || matches!(info.name, "in" | "out" | "queue")
        };
        let lost = |frame: &[Option<Match>]| {
            let asked: Vec<Demand<'_>> = frame.iter().flatten().map(Demand::Holds).collect();
            view.covers_but(seen, &asked, is_place)
                && !view.accepts().any(|by| view.meet(&[seen, by], &asked))
        };
        let arp = lost(&arp) && is_meant(Classes::IP4);
        let nd = nd.iter().any(|frame| lost(frame)) && is_meant(Classes::IP6);
        let (what, effect, cure) = match (arp, nd) {
            (true, true) => (
                "ARP and IPv6 neighbour discovery",
                "hosts on the link find no address",
                "`eth-type arp accept` and `icmp6-type in { 133-136 } ip6-hop-limit 255 accept`",
            ),
            (true, false) => (
                "ARP",
                "hosts on the link find no IPv4 address",
                "`eth-type arp accept`",
            ),
            (false, true) => (
                "IPv6 neighbour discovery",
                "hosts on the link find no IPv6 address",
                "`icmp6-type in { 133-136 } ip6-hop-limit 255 accept`",
            ),
            (false, false) => continue,
        };
        report
            .warning(
                0,
                seen.drop_place(),
                format!("this `drop` takes {what}, too"),
            )
            .label(effect)
            .help(format!("add {cure}"));
        return;
    }
}

/// Fields by which a rule tells fragments apart.
const FRAGMENTS: &[&str] = &[
    "frag",
    "frag-first",
    "frag-later",
    "ip-frag-offset",
    "ip-mf",
    "ip-df",
    "ip-flags",
    "ip6-eh-fragment",
    "ip6-frag-offset",
];

/// Rules that match ports see no later fragments.
fn fragments(view: &View<'_>, report: &mut Report) {
    let Some(later) = made("frag-later", false, Test::Present) else {
        return;
    };
    let l4 = [Classes::TCP, Classes::UDP];
    // Who names fragments knows.
    let needs_ports = |seen: &Seen<'_>| {
        !seen.rule.stateful
            && !FRAGMENTS.iter().any(|name| seen.names_field(name))
            && l4.iter().any(|&class| seen.rule.requires.contains(class))
    };
    for seen in view.rules.iter().filter(|seen| needs_ports(seen)) {
        let mut asked: Vec<Demand<'_>> = network_part(seen).collect();
        asked.push(Demand::Holds(&later));
        if seen.accepts() {
            let lost = view.wide_drops().find(|by| view.covers(by, &asked));
            let kept = !view.meet(&[], &asked) || view.accepts().any(|by| view.meet(&[by], &asked));
            if let (Some(by), false) = (lost, kept) {
                report
                    .warning(
                        0,
                        seen.written.span,
                        format!("only the first fragment of a packet has ports: {} drops the later ones", by.called()),
                    )
                    .also(0, by.drop_place(), "later fragments are dropped here")
                    .help("add `frag-later accept` (without its first fragment a later one is useless), or begin this rule with `add-stateful`: fragments of connections follow their first");
                return;
            }
        }
        let is_address = |field: Field| matches!(field.info().kind, Kind::Addr4 | Kind::Addr6);
        let writes =
            |action: &Action| matches!(action, Action::Mod(field, _) if is_address(field.field));
        // A fragmented SYN, or TCP segment, is rare enough.
        let is_udp = seen.rule.requires.contains(Classes::UDP);
        if is_udp && seen.written.targets.iter().any(|t| writes(&t.action)) {
            report
                .warning(
                    0,
                    seen.place(writes),
                    "only the first fragment of a packet has ports: later ones keep their addresses, and the packet is lost",
                )
                .help("use `add-stateful` and `map`: fragments of connections follow their first; or match `! frag` and drop fragments");
            return;
        }
    }
}

/// The tests of a rule that later fragments can pass.
fn network_part<'a>(seen: &Seen<'a>) -> impl Iterator<Item = Demand<'a>> {
    let l4 = [Header::Tcp, Header::Udp, Header::Icmp, Header::Icmp6];
    let families = [Classes::IP4, Classes::IP6];
    let family = families
        .into_iter()
        .filter(|&family| seen.rule.requires.contains(family))
        .map(Demand::Has);
    let matches = seen
        .rule
        .matches
        .iter()
        .filter(move |one| !l4.contains(&one.subject.field.info().header));
    family
        .chain(matches.map(Demand::Holds))
        .collect::<Vec<_>>()
        .into_iter()
}
