//! Security groups in plans: each edge whose functions test a group has exactly its members, wherever these are, and members that come and go leave
//! the programs as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

use proptest::prelude::*;
use weir_bpf::abi::{element, exact_kind};
use weir_network::exact::scope;
use weir_network::values::{number, words};
use weir_network::{EdgeNetworks, Numbers};

use crate::bench::networks;

const EDGES: usize = 3;
const GROUPS: [&str; 3] = ["web", "db", "none"];

/// A workload: its edge, the last byte of its addresses, and whether it is in each group.
type Member = (usize, u8, [bool; 3]);

/// Two networks with the same addresses and the same names of groups. Each has a wall on every edge, or on one.
fn document(nets: &[(Option<usize>, Vec<Member>); 2], tested: &[bool; 3]) -> String {
    let mut text = String::new();
    for edge in 1..=EDGES {
        let _ = writeln!(
            text,
            "[[edge]]\nname = \"e{edge}\"\nunderlay = \"192.0.2.{edge}\"\ndevice = \"eth0\"\nmtu = 1600"
        );
    }
    for (n, (home, members)) in nets.iter().enumerate() {
        let _ = writeln!(
            text,
            "[[tenant]]\nname = \"t{n}\"\n[[network]]\nname = \"n{n}\"\ntenant = \"t{n}\"\n\
             [[network.subnet]]\nname = \"a\"\nprefix = [\"10.0.0.0/24\", \"fd00::/64\"]\n\
             [[network.subnet]]\nname = \"b\"\nprefix = [\"10.0.0.0/24\", \"fd00::/64\"]\n\
             [[network.link]]\nfrom = \"a\"\nto = \"wall\"\n[[network.link]]\nfrom = \"wall\"\nto = \"b\""
        );
        for group in GROUPS {
            let _ = writeln!(text, "[[network.group]]\nname = \"{group}\"");
        }
        let home = home.map_or(String::new(), |edge| format!("home = \"e{}\"\n", edge + 1));
        let mut rules = "udp-dport 1 drop\\n".to_owned();
        for (group, _) in GROUPS.iter().zip(tested).filter(|(_, tested)| **tested) {
            let _ = write!(
                rules,
                "ip-saddr in @{group} drop\\nip6-daddr in @{group} drop\\n"
            );
        }
        let _ = write!(
            text,
            "[[network.function]]\nname = \"wall\"\nkind = \"middlebox\"\n{home}rules = \"{rules}\"\n"
        );
        for (w, (edge, host, groups)) in members.iter().enumerate() {
            let groups = GROUPS.iter().zip(groups).filter(|(_, is_in)| **is_in);
            let groups: Vec<String> = groups.map(|(group, _)| format!("\"{group}\"")).collect();
            let _ = writeln!(
                text,
                "[[network.workload]]\nname = \"w{w}\"\nsubnet = \"a\"\nedge = \"e{}\"\ndevice = \"d{n}-{w}\"\n\
                 address = [\"10.0.0.{host}\", \"fd00::{host}\"]\ngroups = [{}]",
                edge + 1,
                groups.join(", ")
            );
        }
    }
    text
}

/// Addresses of the members of a group, as its network has them.
fn members(members: &[Member], group: usize) -> BTreeSet<IpAddr> {
    let is_in = members.iter().filter(|(_, _, groups)| groups[group]);
    is_in
        .flat_map(|(_, host, _)| [format!("10.0.0.{host}"), format!("fd00::{host}")])
        .map(|text| text.parse().expect("an address"))
        .collect()
}

/// Numbers that the program of a network's wall has for the groups that it tests.
fn numbers_of(plan: &EdgeNetworks, network: &str) -> BTreeMap<String, u32> {
    let found = plan.functions.iter().find(|one| one.network == network);
    let planned = &found.expect("it is here").planned;
    let constants = planned.instance.constants.iter();
    let mut places = constants.filter(|(symbol, _)| symbol == "weir_set");
    let bytes = &places.next().expect("a constant").1;
    let number = |at: usize| {
        let bytes = &bytes[at * 12..at * 12 + 4];
        u32::from_ne_bytes(bytes.try_into().expect("four bytes"))
    };
    let groups = planned.groups.iter();
    groups
        .map(|(at, name)| (name.clone(), number(*at)))
        .collect()
}

/// Workloads, each with addresses of its own.
fn step() -> impl Strategy<Value = Vec<Member>> {
    let member = (0..EDGES, any::<[bool; 3]>());
    let members = prop::collection::btree_map(1..6_u8, member, 1..=5);
    members.prop_map(|members| {
        let members = members.into_iter();
        members
            .map(|(host, (edge, groups))| (edge, host, groups))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn edges_have_the_members_of_the_groups_that_they_test(
        homes in any::<[Option<bool>; 2]>(),
        at in 0..EDGES,
        tested in any::<[bool; 3]>(),
        steps in prop::collection::vec((step(), step()), 1..=4),
    ) {
        let homes = homes.map(|home| home.map(|_| at));
        let mut before: BTreeMap<usize, EdgeNetworks> = BTreeMap::new();
        for (one, two) in steps {
            let nets = [(homes[0], one), (homes[1], two)];
            let checked = networks(&document(&nets, &tested));
            for edge in 0..EDGES {
                let had = before.get(&edge);
                let numbers = had.map_or_else(Numbers::default, |plan| (*plan.numbers).clone());
                let plan = checked.plan(&format!("e{}", edge + 1), &numbers).expect("a plan");
                let cells = plan.exact.iter().map(|cell| (cell.scope, cell.key));
                let cells: Vec<(u32, [u64; 2])> = cells.filter(|(scope, _)| scope >> 28 == exact_kind::GROUP).collect();
                let mut wanted = BTreeSet::new();
                for (n, (home, all)) in nets.iter().enumerate() {
                    let network = format!("n{n}");
                    let is_member = all.iter().any(|(on, ..)| *on == edge);
                    let is_here = home.map_or(is_member, |home| home == edge);
                    let functions: Vec<&str> = plan.functions.iter().map(|one| one.network.as_str()).collect();
                    prop_assert_eq!(functions.contains(&network.as_str()), is_here);
                    if !is_here {
                        continue;
                    }
                    let numbers = numbers_of(&plan, &network);
                    for (group, name) in GROUPS.iter().enumerate() {
                        prop_assert_eq!(numbers.contains_key(*name), tested[group]);
                        let Some(&instance) = numbers.get(*name) else { continue };
                        prop_assert!(instance != 0);
                        for address in members(all, group) {
                            let kind = if address.is_ipv4() { element::IP4 } else { element::IP6 };
                            let key = words(number(address));
                            prop_assert!(wanted.insert((scope(exact_kind::GROUP, instance, kind as u32), key)), "two groups share a number");
                        }
                    }
                    // Only its members changed: what is loaded is the same.
                    let own = |plan: &EdgeNetworks| plan.functions.iter().find(|one| one.network == network).map(|one| one.planned.clone());
                    if let Some(was) = had.and_then(own) {
                        prop_assert_eq!(Some(was), own(&plan));
                    }
                }
                prop_assert_eq!(cells.len(), wanted.len());
                prop_assert_eq!(cells.into_iter().collect::<BTreeSet<_>>(), wanted);
                before.insert(edge, plan);
            }
        }
    }
}

#[test]
fn a_document_with_groups_is_written_as_it_was_read() {
    let nets = [
        (None, vec![(0, 1, [true, true, false]), (1, 2, [false; 3])]),
        (Some(2), vec![(2, 1, [true, false, false])]),
    ];
    let text = document(&nets, &[true, true, true]);
    let parsed = weir_network::parse(&text, "net.toml").expect("right");
    let again = weir_network::parse(&weir_network::export(&parsed), "again").expect("right");
    assert!(parsed == again);
    let other = text.replacen("groups = [\"web\", \"db\"]", "groups = [\"db\"]", 1);
    let other = weir_network::parse(&other, "net.toml").expect("right");
    let diff = weir_network::diff(&parsed, &other).to_string();
    assert!(
        diff.contains("workload w0 changed (groups [\"web\", \"db\"] -> \"db\")"),
        "{diff}"
    );
}
