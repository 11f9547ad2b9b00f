//! The user engine's verifier over the compiled data plane: every set of features is accepted, within the kernel's work.
//!
//! The kernel's counts are those of benches/record/verified-insns.tsv. Times are printed, never asserted.

use std::time::Instant;

use weir_bpf::abi::{DIMS, feature};
use weir_vm::Object;
use weir_vm::verify::{Verified, VerifyOptions, verify};

const RECORD: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../benches/record/verified-insns.tsv"
);

const SETS: &[(&str, u32)] = &[
    ("none", 0),
    ("option-tests", feature::TCPOPT | feature::SLOTS),
    ("header-rewrites", feature::REWRITE),
    ("option-rewrites", feature::REWRITE | feature::OPTION_OPS),
    ("payload-rewrites", feature::REWRITE | feature::PAYLOAD_OPS),
    ("log", feature::LOG),
    ("connections", feature::STATE),
    ("nat", feature::STATE | feature::TRANSLATE | feature::NAT),
    (
        "all",
        feature::TCPOPT
            | feature::SLOTS
            | feature::REWRITE
            | feature::OPTION_OPS
            | feature::PAYLOAD_OPS
            | feature::LOG
            | feature::STATE
            | feature::TRANSLATE
            | feature::NAT
            | feature::SEQUENCE,
    ),
];

#[test]
fn the_middlebox_is_accepted_with_every_set_of_features() {
    let record = std::fs::read_to_string(RECORD).expect("the record is in the tree");
    for (name, features) in SETS {
        for mode in [0u32, 1] {
            let label = format!("{name}{}", if mode == 1 { "+offloaded" } else { "" });
            let kernel: u64 = record
                .lines()
                .find_map(|line| {
                    let mut cells = line.split('\t');
                    (cells.next() == Some(&label)).then(|| cells.next())?
                })
                .and_then(|n| n.parse().ok())
                .expect("the record has every set");
            let begun = Instant::now();
            let verified = middlebox(*features, mode);
            eprintln!(
                "{label}: {} walked, the kernel {kernel}; {} states, at most {}; {:.1?}",
                verified.processed,
                verified.states,
                verified.peak_states,
                begun.elapsed()
            );
            assert!(
                2 * verified.processed <= 3 * kernel,
                "{label}: far more work than the kernel's"
            );
        }
    }
}

fn middlebox(features: u32, mode: u32) -> Verified {
    let mut object =
        Object::parse(weir_bpf::object("middlebox").expect("compiled")).expect("parses");
    let constants = [
        ("weir_features", features),
        ("weir_csum_mode", mode),
        ("weir_dims", DIMS as u32),
    ];
    for (symbol, value) in constants {
        object
            .set_rodata(symbol, &value.to_ne_bytes())
            .expect("constant");
    }
    let machine = object.load("middlebox").expect("loads");
    verify(&machine, "middlebox", &VerifyOptions::default()).unwrap_or_else(|rejection| {
        for seen in &rejection.state {
            eprintln!("  {} = {}", seen.name, seen.text);
        }
        panic!(
            "{rejection} {:?} path {:?}",
            rejection.register, rejection.path
        )
    })
}
