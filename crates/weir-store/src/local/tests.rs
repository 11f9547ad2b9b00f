//! What stays and what goes: readings of stores that are whole, empty, restored, and accepted.

use super::*;
use crate::entry::{ResultEntry, ResultState, StoreEntry, written};
use crate::etcd::Header;

const GRACE: Duration = Duration::from_secs(5);

fn network(generation: u64) -> Vec<u8> {
    let text = "[[network]]\nname = \"shop\"\ntenant = \"red\"\n".to_owned();
    written(&NetworkEntry {
        generation,
        tenant: "red".to_owned(),
        text,
        homes: vec![],
    })
}

fn workload(generation: u64, edge: &str) -> Vec<u8> {
    let text = format!("[[network.workload]]\nname = \"w\"\nedge = \"{edge}\"\n");
    let origin = crate::entry::Origin::Document;
    written(&WorkloadEntry {
        generation,
        edge: edge.to_owned(),
        text,
        origin,
    })
}

fn edge(name: &str) -> Vec<u8> {
    written(&EdgeEntry {
        generation: 1,
        text: format!("[[edge]]\nname = \"{name}\"\n"),
    })
}

/// A reading of edge e1 with network shop and some workloads: name, generation, edge.
fn reading(revision: i64, workloads: &[(&str, u64, &str)]) -> Reading {
    let mut entries = Entries::from([
        (layout::index("e1", "shop"), (b"{}".to_vec(), 3)),
        (layout::config("shop"), (network(1), 3)),
        (layout::edge("e1"), (edge("e1"), 2)),
        (layout::edge("e2"), (edge("e2"), 2)),
    ]);
    for (at, (name, generation, edge)) in workloads.iter().enumerate() {
        let value = workload(*generation, edge);
        entries.insert(layout::workload("shop", name), (value, 4 + at as i64));
    }
    Reading {
        header: Header {
            cluster: 7,
            revision,
        },
        store: Some(StoreEntry {
            format: 1,
            id: "s".to_owned(),
            accepted: 0,
        }),
        entries,
        result: None,
    }
}

fn has(local: &Local, workload: &str) -> bool {
    local
        .entries
        .contains_key(&layout::workload("shop", workload))
}

fn result(serial: u64) -> Option<(ResultEntry, i64)> {
    let result = ResultEntry {
        serial,
        revision: 1,
        digest: String::new(),
        version: 1,
        state: ResultState::Applied,
        error: None,
        held: 0,
        time: 0,
    };
    Some((result, 9))
}

#[test]
fn what_a_later_reading_lacks_goes_after_the_grace_period() {
    let now = Instant::now();
    let mut local = Local::new("e1");
    local.merge(&reading(10, &[("a", 1, "e1"), ("b", 1, "e2")]), now);
    assert!(has(&local, "a") && has(&local, "b"));
    local.merge(&reading(11, &[("a", 1, "e1")]), now);
    assert!(!local.expire(now + GRACE / 2, GRACE) && has(&local, "b"));
    assert_eq!(local.next_expiry(GRACE), Some(now + GRACE));
    // It is back: nothing was gone.
    local.merge(&reading(12, &[("a", 1, "e1"), ("b", 1, "e2")]), now);
    assert!(!local.expire(now + GRACE, GRACE));
    local.merge(&reading(13, &[("a", 1, "e1")]), now);
    assert!(local.expire(now + GRACE, GRACE) && !has(&local, "b") && has(&local, "a"));
}

#[test]
fn nothing_goes_with_a_store_that_is_empty_older_or_another() {
    let now = Instant::now();
    let full = reading(10, &[("a", 1, "e1"), ("b", 5, "e2")]);
    let less = |change: &dyn Fn(&mut Reading)| {
        let mut local = Local::new("e1");
        local.merge(&full, now);
        local.serial = 4;
        let mut other = reading(20, &[("a", 1, "e1")]);
        other.result = result(4);
        change(&mut other);
        let merged = local.merge(&other, now);
        local.expire(now + GRACE * 2, GRACE);
        (local, merged)
    };
    let (local, merged) = less(&|_| ());
    assert!(
        !has(&local, "b") && merged == Merged::default(),
        "an ordinary reading"
    );
    type Changed<'c> = (&'c str, &'c dyn Fn(&mut Reading));
    let changes: [Changed<'_>; 5] = [
        ("wiped", &|one| {
            one.store = None;
            one.entries.clear();
        }),
        ("another store", &|one| {
            one.store = Some(StoreEntry {
                format: 1,
                id: "t".to_owned(),
                accepted: 0,
            })
        }),
        ("another cluster", &|one| one.header.cluster = 8),
        ("an older revision", &|one| one.header.revision = 9),
        // The revision has passed the former one meanwhile; what this edge wrote is not there.
        ("without its result", &|one| one.result = result(3)),
    ];
    for (what, change) in changes {
        let (local, merged) = less(change);
        assert!(has(&local, "b"), "{what}");
        assert!(merged.restored || merged.empty, "{what}");
        let text = local.document().expect("readable").expect("declared");
        assert_eq!(
            text.matches("[[network.workload]]").count(),
            2,
            "{what}: {text}"
        );
    }
}

#[test]
fn what_was_restored_governs_from_then_on() {
    let now = Instant::now();
    let mut local = Local::new("e1");
    local.merge(
        &reading(10, &[("a", 9, "e2"), ("b", 1, "e2"), ("c", 1, "e1")]),
        now,
    );
    // Older: `a` was on e1 then, and `c` was not there.
    assert!(
        local
            .merge(&reading(8, &[("a", 3, "e1"), ("b", 1, "e2")]), now)
            .restored
    );
    assert_eq!(
        local.held(),
        [layout::workload("shop", "a"), layout::workload("shop", "c")]
    );
    assert!(
        local
            .document()
            .expect("readable")
            .expect("declared")
            .contains("edge = \"e2\"")
    );
    // Written after it: above what was lost.
    local.merge(&reading(9, &[("a", 12, "e1"), ("b", 1, "e2")]), now);
    assert_eq!(local.held(), [layout::workload("shop", "c")]);
    // Deleted after it: seen in this lineage, so it goes.
    local.merge(&reading(11, &[("a", 12, "e1")]), now);
    assert!(local.expire(now + GRACE, GRACE) && !has(&local, "b") && has(&local, "c"));
    // The operator accepts what the store lacks.
    let mut accepted = reading(12, &[("a", 12, "e1")]);
    accepted.store = Some(StoreEntry {
        format: 1,
        id: "s".to_owned(),
        accepted: 77,
    });
    local.merge(&accepted, now);
    assert!(local.held().is_empty());
    assert!(local.expire(now + GRACE, GRACE) && !has(&local, "c"));
}

#[test]
fn a_network_without_index_goes_whole_with_edges_that_only_it_named() {
    let now = Instant::now();
    let mut local = Local::new("e1");
    local.merge(&reading(10, &[("a", 1, "e1"), ("b", 1, "e2")]), now);
    let mut later = reading(11, &[]);
    later
        .entries
        .retain(|key, _| key.starts_with(layout::EDGES));
    local.merge(&later, now);
    assert_eq!(local.networks().len(), 1, "until the grace period ends");
    assert!(local.expire(now + GRACE, GRACE));
    assert!(local.networks().is_empty() && !has(&local, "a"));
    let text = local.document().expect("readable").expect("declared");
    assert!(
        !text.contains("e2") && !text.contains("[[network]]"),
        "{text}"
    );
}

#[test]
fn the_digest_is_that_of_the_store() {
    let now = Instant::now();
    let mut local = Local::new("e1");
    let whole = reading(10, &[("a", 1, "e1"), ("b", 1, "e2")]);
    local.merge(&whole, now);
    assert_eq!(local.digest(), digest(&whole.entries, "e1"));
    // What does not concern the edge does not change it.
    let mut more = whole.entries.clone();
    more.insert(layout::config("other"), (network(1), 3));
    more.insert(layout::edge("e9"), (edge("e9"), 2));
    assert_eq!(digest(&more, "e1"), local.digest());
    let later = reading(11, &[("a", 1, "e1")]);
    assert_ne!(digest(&later.entries, "e1"), local.digest());
    local.merge(&later, now);
    assert_eq!(digest(&later.entries, "e1"), local.digest());
}

#[test]
fn it_is_kept_in_its_file() {
    let path = std::env::temp_dir().join(format!("weir-local-{}.json", std::process::id()));
    let mut local = Local::new("e1");
    local.merge(&reading(10, &[("a", 1, "e1")]), Instant::now());
    local.write(&path).expect("writable");
    assert_eq!(Local::read(&path, "e1").expect("readable"), local);
    let refused = Local::read(&path, "e2").expect_err("another edge");
    assert!(refused.to_string().contains("edge e1"), "{refused}");
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(Local::read(&path, "e2").expect("none"), Local::new("e2"));
}
