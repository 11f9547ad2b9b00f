//! Sweeps without a kernel: what is wrong with documents, which combinations are left out and why, and the order of runs.

use weir_lab::afxdp::run::order;
use weir_lab::afxdp::space::{Capabilities, prune};
use weir_lab::afxdp::sweep::Combination;
use weir_lab::afxdp::{PRESETS, Sweep};

fn veth() -> Capabilities {
    Capabilities {
        native: Ok(()),
        zero_copy: Err("no zero-copy here".to_owned()),
        napi: [0, 0],
        deferral: Ok(()),
        threaded: Ok(()),
        coalescing: Err("no coalescing here".to_owned()),
        c_states: Err("no C-states here".to_owned()),
        queues: 4,
        cpus: vec![0, 1],
        longest: 1514,
    }
}

fn mistakes(text: &str) -> Vec<String> {
    match Sweep::parse(text, "s.toml") {
        Ok(sweep) => panic!("read: {sweep:?}"),
        Err(mistakes) => mistakes.0,
    }
}

#[test]
fn mistakes_are_told_with_their_lines_and_what_there_is() {
    let text = "blocks = 0\n\
                count = 1\n\
                sed = 3\n\
                [base]\n\
                ring = 1000\n\
                size = [60, 512]\n\
                [[product]]\n\
                mood = [\"copy\"]\n\
                mode = [\"copy\", \"fast\"]\n\
                busy_poll = \"20us\"\n\
                deferral = \"2\"\n\
                forwarder_wait = []\n";
    let told = mistakes(text);
    for (line, words) in [
        (1, "blocks: 1 to 1000"),
        (2, "count: 10 to"),
        (3, "unknown key `sed`: name, seed, blocks"),
        (5, "invalid value `1000` for ring: a power of two"),
        (6, "size: one value in [base]"),
        (8, "unknown parameter `mood`: mode, forwarder_wait"),
        (9, "invalid value `fast` for mode: \"generic\""),
        (10, "invalid value `20us` for busy_poll"),
        (11, "invalid value `2` for deferral"),
        (12, "forwarder_wait: an empty list"),
    ] {
        let start = format!("s.toml:{line}: ");
        assert!(
            told.iter()
                .any(|t| t.starts_with(&start) && t.contains(words)),
            "no `{words}` in line {line}: {told:#?}"
        );
    }
    assert_eq!(told.len(), 10, "{told:#?}");
    assert!(mistakes("blocks = 2\n")[0].contains("no [[product]]"));
    assert!(mistakes("[[product\n")[0].starts_with("s.toml:1: "));
    assert!(mistakes("[product]\n")[0].contains("two brackets"));
    assert!(mistakes("duration = \"0\"\n[[product]]\n")[0].contains("a time as in"));
}

#[test]
fn products_are_combined_and_each_combination_is_there_once() {
    let text = "[base]\nring = 64\n\
                [[product]]\nneed_wakeup = [true, false]\nforwarder_wait = [\"spin\", \"poll\"]\n\
                [[product]]\nforwarder_wait = [\"poll\", \"call\"]\n\
                [[product]]\n";
    let sweep = Sweep::parse(text, "s").expect("a document");
    let ids: Vec<String> = sweep.combinations.iter().map(Combination::id).collect();
    assert_eq!(
        ids,
        [
            "copy,fwd=spin,rx=spin,nw=on,ring=64",
            "copy,fwd=spin,rx=spin,nw=off,ring=64",
            "copy,fwd=poll,rx=spin,nw=on,ring=64",
            "copy,fwd=poll,rx=spin,nw=off,ring=64",
            "copy,fwd=call,rx=spin,nw=on,ring=64",
        ]
    );
    for one in &sweep.combinations {
        let knobs = one.knobs();
        let again = Combination::from_knobs(knobs.iter().map(|(k, v)| (k.as_str(), v.as_str())));
        assert_eq!(again.as_ref(), Ok(one), "knobs name all of a combination");
        assert_eq!(knobs["ring"], "64");
    }
}

#[test]
fn presets_are_documents() {
    for (name, text) in PRESETS {
        let sweep = Sweep::parse(text, name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(sweep.name, name);
        let space = prune(&sweep.combinations, &veth());
        let out: u64 = space.pruned.iter().map(|p| p.count).sum();
        assert_eq!(
            space.cells.len() as u64 + out,
            sweep.combinations.len() as u64,
            "{name}: every combination runs or is counted"
        );
        if name == "default" {
            assert!(space.cells.len() >= 100, "{} cells", space.cells.len());
        }
    }
    let paper =
        Sweep::parse(Sweep::preset("paper").expect("a preset"), "paper").expect("a document");
    assert_eq!(paper.pings(&paper.combinations[0]), (30, 1));
    assert_eq!(paper.blocks, 3);
    assert!(
        paper
            .combinations
            .iter()
            .all(|c| c.size == 60 && c.batch == 1)
    );
}

#[test]
fn what_cannot_be_is_counted_with_its_reason() {
    let text = "[[product]]\n\
                mode = [\"copy\", \"zero-copy\"]\n\
                placement = [\"split\", \"same\"]\n\
                forwarder_wait = [\"spin\", \"call\", \"poll\"]\n\
                prober_wait = [\"spin\", \"call\", \"poll\"]\n\
                [[product]]\n\
                queues = [2, 8]\n\
                [[product]]\n\
                size = [1514, 1515]\n\
                [[product]]\n\
                batch = 128\nring = 64\n\
                [[product]]\n\
                coalescing = [\"0\", \"unchanged\"]\n";
    let sweep = Sweep::parse(text, "s").expect("a document");
    let space = prune(&sweep.combinations, &veth());
    let count = |words: &str| -> u64 {
        let found = space.pruned.iter().filter(|p| p.reason.contains(words));
        found.map(|p| p.count).sum()
    };
    assert_eq!(count("no zero-copy here"), 18);
    assert_eq!(count("two spinning programs on one CPU"), 4);
    assert_eq!(count("more queues than the interfaces have (4)"), 1);
    assert_eq!(
        count("longer than the MTU of the interfaces (1514 bytes)"),
        1
    );
    assert_eq!(count("batches larger than a ring"), 1);
    assert_eq!(count("no coalescing here"), 1);
    assert_eq!(space.cells.len(), 9 + 5 + 1 + 1, "{:?}", space.pruned);
    // One CPU only.
    let space = prune(
        &sweep.combinations,
        &Capabilities {
            cpus: vec![3],
            ..veth()
        },
    );
    assert!(
        space
            .cells
            .iter()
            .all(|c| c.forwarder_wait != c.prober_wait || !c.forwarder_wait.spins())
    );
}

#[test]
fn of_each_trap_one_runs_where_busy_polling_has_nothing_to_poll() {
    let text = "[[product]]\n\
                busy_poll = [\"off\", \"20us/8\", \"20us/64\"]\n\
                deferral = [\"0/0\", \"2/200us\"]\n\
                forwarder_wait = [\"spin\", \"call\", \"poll\"]\n\
                prober_wait = [\"spin\", \"call\", \"poll\"]\n";
    let sweep = Sweep::parse(text, "s").expect("a document");
    let space = prune(&sweep.combinations, &veth());
    let traps: Vec<_> = space
        .cells
        .iter()
        .filter(|c| c.busy_poll.is_some() || c.deferral.irqs > 0)
        .map(|c| (c.busy_poll.is_some(), c.deferral.irqs > 0))
        .collect();
    assert_eq!(traps.len(), 3, "{traps:?}");
    assert_eq!(space.cells.len(), 9 + 3);
    // 2 budgets x 2 deferrals x the pairs in which one of both spins.
    let spins = space
        .pruned
        .iter()
        .find(|p| p.reason.contains("spins makes none"))
        .expect("a class");
    assert_eq!(spins.count, 2 * 2 * 5);
    // Where a driver names its NAPI instances they run, but for interrupts put off with nothing in their place.
    let space = prune(
        &sweep.combinations,
        &Capabilities {
            napi: [7, 8],
            ..veth()
        },
    );
    assert_eq!(space.cells.len(), 9 + 2 * 2 * 4 + 1);
}

#[test]
fn the_order_of_a_block_is_a_permutation_and_follows_from_the_seed() {
    for count in [1, 2, 7, 128] {
        for block in 0..4 {
            let one = order(42, block, count);
            let mut sorted = one.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count).collect::<Vec<_>>());
            assert_eq!(one, order(42, block, count));
        }
    }
    assert_ne!(order(42, 0, 128), order(42, 1, 128));
    assert_ne!(order(42, 0, 128), order(43, 0, 128));
    // Each place is about as likely: 2,400 orders of 4, of which 600 begin with each.
    let mut first = [0; 4];
    for seed in 0..2400 {
        first[order(seed, 0, 4)[0]] += 1;
    }
    assert!(first.iter().all(|n| (480..720).contains(n)), "{first:?}");
}
