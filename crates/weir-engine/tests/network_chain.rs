//! Service chains on real devices: what is selected passes the chain's functions in both directions, and nothing else does.

use std::collections::BTreeMap;

use crate::network_bed::{Bed, checked, root};

/// A chain in front of a router: one function, then one of two.
const TEXT: &str = r#"
version = 1

[[edge]]
name = "e1"

[[tenant]]
name = "red"

[[network]]
name = "shop"
tenant = "red"

[[network.subnet]]
name = "web"
prefix = "10.1.0.0/24"

[[network.subnet]]
name = "db"
prefix = "10.2.0.0/24"

[[network.function]]
name = "gw"
kind = "router"
interface = [{ name = "web", address = "10.1.0.1/24" }, { name = "db", address = "10.2.0.1/24" }]

[[network.function]]
name = "first"
kind = "empty"

[[network.function]]
name = "one"
kind = "empty"

[[network.function]]
name = "two"
kind = "empty"

[[network.link]]
from = "web"
to = "gw.web"

[[network.link]]
from = "db"
to = "gw.db"

[[network.chain]]
name = "look"
at = "gw.web"
through = ["first", ["one", "two"]]
select = [{ protocol = "tcp", from = "10.1.0.0/24", port = "7000" }]

[[network.workload]]
name = "a"
subnet = "web"
edge = "e1"
device = "wa"
address = "10.1.0.7"

[[network.workload]]
name = "store"
subnet = "db"
edge = "e1"
device = "wd"
address = "10.2.0.2"
"#;

/// Packets that came in by interfaces of the chain's functions.
fn passed(bed: &Bed) -> BTreeMap<String, u64> {
    let look = bed.look("e1");
    let names = look.numbers.interfaces.names.iter();
    let of = |name: &str| {
        ["first.", "one.", "two."]
            .iter()
            .any(|one| name.starts_with(&format!("shop/{one}")))
    };
    names
        .filter(|(name, _)| of(name))
        .map(|(name, vid)| {
            (
                name.trim_start_matches("shop/").to_owned(),
                look.set.count(*vid).expect("read").packets,
            )
        })
        .collect()
}

/// The same, when the last acknowledgements of closed connections have passed: their ends return before those do.
fn settled(bed: &Bed) -> BTreeMap<String, u64> {
    let mut before = passed(bed);
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = passed(bed);
        if now == before {
            return now;
        }
        before = now;
    }
    panic!("packets go on passing: {before:?}");
}

#[test]
fn selected_connections_pass_the_chain_in_both_directions() {
    if !root("selected_connections_pass_the_chain_in_both_directions") {
        return;
    }
    let bed = Bed::new(&checked(TEXT).document);
    bed.apply(TEXT);
    // Echo is not selected.
    let said = bed.ping("shop/a", &["10.2.0.2"]);
    assert!(said.contains(" 2 received"), "{said} {:?}", bed.drops("e1"));
    assert!(
        passed(&bed).values().all(|packets| *packets == 0),
        "{:?}",
        passed(&bed)
    );
    for _ in 0..40 {
        assert!(
            bed.reaches("shop/a", "10.2.0.2".parse().expect("address")),
            "{:?}",
            bed.drops("e1")
        );
    }
    let passed = settled(&bed);
    // Both directions, whole in front, and parted behind: each flow by one of both, its answers by the same.
    assert_eq!(
        passed["first.a"],
        passed["one.a"] + passed["two.a"],
        "{passed:?}"
    );
    assert_eq!(
        passed["first.b"],
        passed["one.b"] + passed["two.b"],
        "{passed:?}"
    );
    assert!(passed.values().all(|packets| *packets > 20), "{passed:?}");
    // The other way round it is not selected: port 7000 of the web is nobody's answer.
    assert!(bed.reaches("shop/store", "10.1.0.7".parse().expect("address")));
    assert_eq!(settled(&bed), passed);
}
