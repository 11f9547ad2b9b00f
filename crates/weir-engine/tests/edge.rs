//! Edges on real devices: packets follow them, functions are replaced under a numbered stream, nothing of them is left.

#![allow(clippy::print_stderr, reason = "figures are said where the test runs")]

mod edge_bed;

use edge_bed::{Bed, Down, chain, edge_name, root};
use weir_engine::edge;

#[test]
fn packets_follow_a_chain_and_every_hop_counts_them() {
    if !root("packets_follow_a_chain_and_every_hop_counts_them") {
        return;
    }
    let bed = Bed::new();
    let name = edge_name("chain");
    let _down = Down {
        bed: &bed,
        name: name.clone(),
    };
    let plan = chain(&name, 5);
    let applied = bed.on_edge(|| edge::apply(&plan, "text")).expect("applies");
    assert_eq!(applied.added.len(), 5);
    bed.send(1000);
    let arrived = bed.arrived();
    assert!(arrived.is_whole(bed.sent()), "{arrived:?}");
    let status = bed.on_edge(|| edge::status(&name)).expect("runs");
    assert_eq!((status.generation, status.text.as_str()), (1, "text"));
    assert_eq!(status.ports[0].ledger.received, 1000);
    for instance in &status.instances {
        assert_eq!(instance.ledger.received, 1000, "{}", instance.name);
        assert_eq!(instance.reasons(), []);
    }
}
