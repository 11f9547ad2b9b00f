//! Configurations that are right: their plans, printed.

use crate::common;
use crate::common::{Given, plan};
use weir_graph::{Target, diff};

#[test]
fn two_ports_and_a_middlebox_between_them() {
    let files = Given::new(&[("edge.weir", "tcp-dport 23 drop\nin lan tcp-dport 25 drop\n")]);
    let text = r#"
        edge = "office"
        [[port]]
        name = "wan"
        device = "veth0"
        checksums = "complete"
        [[port]]
        name = "lan"
        device = "veth1"
        mode = "generic"
        [[function]]
        name = "rules"
        kind = "middlebox"
        policy = "edge.weir"
        [[function]]
        name = "nothing"
        kind = "empty"
        [[link]]
        from = "wan"
        to = "rules"
        [[link]]
        from = "lan"
        to = "rules"
        [[link]]
        from = "rules"
        to = "nothing"
        [[link]]
        from = "nothing"
        to = "lan"
    "#;
    let (plan, warnings) = plan(text, &files);
    assert!(warnings.is_empty(), "{warnings}");
    assert_eq!(
        plan.to_string(),
        "edge office
port 1 wan: veth0, native, checksums complete > rules
port 2 lan: veth1, generic > rules
function 1 rules: middlebox > nothing
function 2 nothing: empty > lan
longest path: 2 functions
"
    );
}

#[test]
fn a_chain_of_forty_is_recirculated_once() {
    let (plan, warnings) = plan(&chain(40), &Given::new(&[]));
    assert!(warnings.is_empty(), "{warnings}");
    assert_eq!((plan.longest, plan.recirculations), (40, 1));
    assert_eq!(plan.instances.len(), 41);
    let last = &plan.instances[40];
    assert_eq!(
        (last.name.as_str(), last.kind.as_str()),
        ("recirculate to f33", "recirculate")
    );
    assert_eq!(plan.targets[40], [Target::Instance(32), Target::Pair]);
    // f32 leads away, nothing leads to f33 any more but what comes back.
    assert_eq!(plan.targets[31], [Target::Instance(40)]);
    assert_eq!(
        plan.notes,
        [
            "a packet may pass 40 functions (f1 > f2 > ... > f40), and the kernel calls 33 in a row: packets are sent round through a \
          veth pair in front of `f33`, at most once each, which costs about as much as receiving them again"
        ]
    );
    assert_eq!(plan.configured().count(), 40);
    let (whole, _) = common::plan(&chain(33), &Given::new(&[]));
    assert_eq!((whole.instances.len(), whole.recirculations), (33, 0));
}

#[test]
fn a_guarded_link_gets_a_function_that_counts() {
    let (plan, _) = plan(&format!("{}{LOOP}guard = 4\n", chain(3)), &Given::new(&[]));
    assert_eq!(plan.instances.len(), 4);
    let guard = &plan.instances[3];
    assert_eq!(guard.name, "guard behind f3");
    assert_eq!(plan.targets[3], [Target::Instance(0)]);
    let constant = |name: &str| {
        let constants = &guard.planned.instance.constants;
        let found = constants.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    };
    assert_eq!(constant("weir_guard_limit"), Some(vec![4, 0, 0, 0]));
    assert_eq!(constant("weir_guard_mask"), Some(vec![7, 0, 0, 0]));
    // Three functions, four times more.
    assert_eq!(plan.longest, 15);
}

#[test]
fn ports_on_interfaces_that_run_keep_their_numbers() {
    let text = "[[port]]\nname = 'new'\ndevice = 'b'\n[[port]]\nname = 'old'\ndevice = 'a'\n";
    let config = weir_graph::parse(text, "edge.toml").expect("right");
    let numbers = [("a".to_owned(), 1)].into();
    let (plan, _) = weir_graph::plan(&config, &Given::new(&[]), &numbers).expect("right");
    let ports: Vec<_> = plan
        .ports
        .iter()
        .map(|p| (p.number, p.name.as_str()))
        .collect();
    assert_eq!(ports, [(1, "old"), (2, "new")]);
    assert_eq!(plan.entries, [Target::Stack; 2]);
}

#[test]
fn what_is_odd_is_a_warning() {
    let text = r#"
        [[port]]
        name = "wan"
        device = "veth0"
        [[map]]
        name = "load"
        type = "array"
        key = 4
        value = 8
        entries = 1
        [[function]]
        name = "alone"
        kind = "empty"
    "#;
    let (_, warnings) = plan(text, &Given::new(&[]));
    let found: Vec<_> = warnings
        .iter()
        .map(|w| (w.line, w.message.as_str()))
        .collect();
    assert_eq!(
        found,
        [(6, "unused map `load`"), (12, "no packet comes to `alone`")]
    );
}

#[test]
fn half_of_tcp_connections_is_a_warning() {
    let edge = |links: &str| {
        format!(
            "[[port]]\nname = 'lan'\ndevice = 'veth0'\nhook = 'tc'\n\
             [[port]]\nname = 'wan'\ndevice = 'veth1'\n\
             [[function]]\nname = 'fw'\nkind = 'middlebox'\npolicy = 'p.weir'\n{links}"
        )
    };
    let link = |from: &str| format!("[[link]]\nfrom = '{from}'\nto = 'fw'\n");
    let back = "[[link]]\nfrom = 'fw'\nto = 'tx'\n";
    let (lan, out, wan) = (link("lan"), link("lan.transmit"), link("wan"));
    let tcp = "add-stateful tcp-dport 22 accept\nall drop";
    let any = "add-stateful ip-saddr 10.0.0.0/8 accept\nall drop";
    // What it sees, what to link, and whether the port has to be on tc for that.
    let received = Some(("are received by `lan`", "lan.transmit", false));
    let left = Some(("leave by `lan`", "lan", false));
    let on_xdp = Some(("are received by `wan`", "wan.transmit", true));
    let udp = "add-stateful udp-dport 53 accept\nall drop";
    let by_number = "add-stateful ip-proto udp accept\nall drop";
    let loose = "loose tcp\nadd-stateful tcp accept\nall drop";
    let cases = [
        (tcp, lan.clone(), received),
        (any, lan.clone(), received),
        (tcp, out.clone(), left),
        (tcp, wan.clone(), on_xdp),
        (tcp, format!("{lan}{out}"), None),
        (tcp, format!("{lan}{wan}"), None),
        (tcp, format!("{wan}{back}"), None),
        (udp, lan.clone(), None),
        (by_number, lan.clone(), None),
        (loose, lan.clone(), None),
        ("tcp-dport 22 accept\nall drop", lan, None),
    ];
    for (policy, links, wanted) in cases {
        let (_, warnings) = plan(&edge(&links), &Given::new(&[("p.weir", policy)]));
        let found: Vec<_> = warnings
            .iter()
            .filter(|one| one.message.contains("keeps TCP connections"))
            .collect();
        let Some((seen, from, on_tc)) = wanted else {
            assert!(found.is_empty(), "{policy}\n{links}\n{found:?}");
            continue;
        };
        let [one] = found[..] else {
            panic!("{policy}\n{links}\n{found:?}");
        };
        let help = one.help.as_deref().unwrap_or_default();
        assert!(one.message.contains(seen), "{}", one.message);
        assert!(help.contains(&format!("from = \"{from}\"")), "{help}");
        assert_eq!(help.contains("hook = \"tc\""), on_tc, "{help}");
    }
}

#[test]
fn a_plan_as_json_is_its_outline() {
    let (plan, _) = plan(&chain(2), &Given::new(&[]));
    let json = serde_json::to_value(&plan).expect("plain data");
    assert_eq!(json["edge"], "default");
    assert_eq!(json["ports"][0]["entry"], "f1");
    assert_eq!(json["functions"][0]["links"]["next"], "f2");
    assert_eq!(json["longest"], 2);
    let outline = plan.outline();
    let text = serde_json::to_string(&outline).expect("plain data");
    let back: weir_graph::Outline = serde_json::from_str(&text).expect("the same");
    assert_eq!(back, outline);
}

#[test]
fn a_difference_names_what_changes_and_only_that() {
    let policy = |rules: &str| {
        let files = Given::new(&[("p.weir", rules)]);
        let text = r#"
            [[port]]
            name = "wan"
            device = "veth0"
            [[function]]
            name = "rules"
            kind = "middlebox"
            policy = "p.weir"
            [[function]]
            name = "rest"
            kind = "empty"
            [[link]]
            from = "wan"
            to = "rules"
            [[link]]
            from = "rules"
            to = "rest"
        "#;
        plan(text, &files).0.outline()
    };
    let before = policy("tcp-dport 23 drop\n");
    let same = diff(&before, &before);
    assert!(same.is_empty());
    assert_eq!(same.to_string(), "nothing changes\n");
    let after = policy("tcp-dport 25 drop\n");
    let one = diff(&before, &after);
    assert_eq!(one.kept, ["rest"]);
    let text = one.to_string();
    assert!(text.starts_with("~ function rules: map "), "{text}");
    assert!(text.ends_with("  1 function unchanged\n"), "{text}");
    // Another graph: what is gone, what is new, what leads elsewhere.
    let other = plan(&chain(1), &Given::new(&[])).0.outline();
    assert_eq!(
        diff(&before, &other).to_string(),
        "+ function f1 (empty)
- function rules (middlebox)
- function rest (empty)
~ link wan: rules -> f1
+ link f1 > stack
- link rules > rest
- link rest > stack
"
    );
}

/// A port on tc shows both of its links; a link more or less of what leaves is a difference of links.
#[test]
fn a_port_on_tc_in_plans_and_differences() {
    let files = Given::new(&[("p.weir", "mine: add-stateful out wan accept\nin wan drop\n")]);
    let text = r#"
        edge = "host"
        [[port]]
        name = "wan"
        device = "veth0"
        hook = "tc"
        metadata = true
        [[function]]
        name = "wall"
        kind = "middlebox"
        policy = "p.weir"
        [[link]]
        from = "wan"
        to = "wall"
        [[link]]
        from = "wan.transmit"
        to = "wall"
    "#;
    let (both, _) = plan(text, &files);
    assert_eq!(
        both.to_string().lines().nth(1),
        Some("port 1 wan: veth0, tc > wall, transmit > wall")
    );
    let json = serde_json::to_value(&both).expect("serializes");
    assert_eq!(json["ports"][0]["mode"], "tc");
    assert_eq!(json["ports"][0]["transmit"], "wall");
    let files = Given::new(&[("p.weir", "in wan drop\n")]);
    let less = text.replace("from = \"wan.transmit\"", "from = \"wall\"");
    let less = less.replacen(
        "to = \"wall\"\n        [[link]]\n        from = \"wall\"\n        to = \"wall\"",
        "to = \"wall\"",
        1,
    );
    let (received, _) = plan(&less, &files);
    let text = diff(&both.outline(), &received.outline()).to_string();
    assert!(text.contains("- link wan.transmit > wall\n"), "{text}");
    // A record of an older weir has no word of it.
    let mut old = serde_json::to_value(received.outline()).expect("serializes");
    assert!(old["ports"][0].get("transmit").is_none());
    old["ports"][0]["mode"] = "native".into();
    let old: weir_graph::Outline = serde_json::from_value(old).expect("is read");
    let text = diff(&old, &received.outline()).to_string();
    assert!(text.contains("~ port wan: mode native -> tc"), "{text}");
}

const LOOP: &str = "[[link]]\nfrom = 'f3'\nto = 'f1'\n";

fn chain(functions: usize) -> String {
    let mut text = "[[port]]\nname = 'wan'\ndevice = 'veth0'\n".to_owned();
    for n in 1..=functions {
        let from = match n {
            1 => "wan".to_owned(),
            _ => format!("f{}", n - 1),
        };
        text += &format!("[[function]]\nname = 'f{n}'\nkind = 'empty'\n");
        text += &format!("[[link]]\nfrom = '{from}'\nto = 'f{n}'\n");
    }
    text
}
