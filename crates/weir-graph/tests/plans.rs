//! Configurations that are right: their plans, printed.

mod common;

use common::{Given, plan};

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
