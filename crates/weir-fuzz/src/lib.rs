//! The fuzz targets: one function per kind of foreign input, each a full use of
//! the code that reads it, with assertions about what must hold afterwards.
//!
//! The functions do not depend on a fuzzer. libFuzzer (`fuzz/fuzz_targets/any.rs`),
//! the program `mutate` and the corpus test find them by their names ([`target`]).
//! A panic is a finding, whatever the input was.

pub mod graph;
pub mod import;
pub mod sensor;
pub mod sensor_input;
pub mod sensor_rules;
pub mod sensor_stages;

use std::ops::Range;
use std::sync::Arc;

use weir_packet::parse::{Layout, MAX_FRAME};
use weir_packet::pcap::{Capture, CaptureError, MAX_PACKET};
use weir_policy::model::Policy;
use weir_policy::reference::{Input, Options, Reference};
use weir_policy::{NoFiles, Source};
use weir_vm::verify::{VerifyOptions, verify, verify_recording};
use weir_vm::{Env, FaultKind, Frame, Machine, MapDefinition, MapKind, Object, ProgramKind, Skb};

/// A function that must return for every input.
pub type Target = fn(&[u8]);

/// A target by its name: it must return for every input.
pub type BoxedTarget = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A target by its name; a corpus folder has the same name. The sensor's parsers are `sensor_` and the protocol, from the sensor's table.
pub fn target(name: &str) -> Option<BoxedTarget> {
    if let Some((_, target)) = TARGETS.iter().find(|(known, _)| *known == name) {
        return Some(Box::new(target));
    }
    let row = sensor::protocol(name.strip_prefix("sensor_")?)?;
    Some(Box::new(|data| sensor::parse(row, data)))
}

/// The names of all targets.
pub fn targets() -> Vec<String> {
    let fixed = TARGETS.iter().map(|(name, _)| (*name).to_owned());
    fixed.chain(sensor::targets()).collect()
}

/// The targets by name, apart from the sensor's parsers.
const TARGETS: &[(&str, Target)] = &[
    ("elf_loader", elf_loader),
    ("filter_list", graph::filter_list),
    ("graph_config", graph::graph_config),
    ("import_iptables", import::iptables),
    ("import_nft", import::nft),
    ("import_pf", import::pf),
    ("import_xdp_filter", import::xdp_filter),
    ("jit", jit),
    ("object_chain", graph::object_chain),
    ("packet_parser", packet_parser),
    ("pcap_reader", pcap_reader),
    ("policy_parser", policy_parser),
    ("routes", graph::routes),
    ("sensor_decode", sensor_stages::decode),
    ("sensor_defragment", sensor_stages::defragment),
    ("sensor_filter", sensor_input::filter),
    ("sensor_framer", sensor_input::framer),
    ("sensor_recognize", sensor::recognize),
    ("sensor_rules", sensor_rules::sensor_rules),
    ("sensor_settings", sensor_input::settings),
    ("sensor_stream", sensor_stages::stream),
    ("verifier", verifier),
    ("x509_names", x509_names),
];

/// Reads the common names of a distinguished name: each is text that the name contains.
pub fn x509_names(name: &[u8]) {
    for common in weir_packet::x509::common_names(name).unwrap_or_default() {
        assert!(!common.is_empty() && !common.contains('\0'));
        assert!(
            name.windows(common.len())
                .any(|part| part == common.as_bytes())
        );
    }
}

/// A TCP SYN with four options, for targets whose input is not the packet.
const SYN: &[u8] = include_bytes!("../../../fuzz/corpus/packet_parser/tcp_syn");

/// Runs instructions in the interpreter and as checked native code: result, memory, cost and fault must be equal.
///
/// The first byte is the length of the memory (at most 64), its bytes follow, the rest is code.
pub fn jit(data: &[u8]) {
    let Some((length, rest)) = data.split_first() else {
        return;
    };
    let Some((memory, code)) = rest.split_at_checked(usize::from(length % 65)) else {
        return;
    };
    let Ok(mut machine) = Machine::from_instructions(code) else {
        return;
    };
    let env = Env {
        instruction_budget: 5_000,
        random_seed: 1,
        ..Env::default()
    };
    let mut interpreted = memory.to_vec();
    let expected = machine.run_raw_with(&mut interpreted, &env);
    let cost = machine.instructions_run();
    if !weir_vm::jit::available() {
        return;
    }
    let mut native = memory.to_vec();
    let result = match weir_vm::jit::Raw::compile(&mut machine) {
        Ok(mut code) => code.run_with(&mut native, &env),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(result, expected);
    assert_eq!(native, interpreted, "memory");
    assert_eq!(machine.instructions_run(), 2 * cost, "cost");
}

/// Parses a policy, renders its errors or formats it, and runs it over a packet.
///
/// Formatted text must read as the same policy, and must not change when it is
/// formatted again.
pub fn policy_parser(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let parsed = match weir_policy::parse(&Source::new("fuzz.weir", text), &NoFiles) {
        Ok(parsed) => parsed,
        Err(errors) => {
            assert!(!errors.is_empty(), "a policy was refused without an error");
            let _ = errors.render(false);
            return;
        }
    };
    let _ = parsed.warnings.render(true);

    let formatted = weir_policy::format(&parsed.ast);
    let again = weir_policy::parse(&Source::new("fuzz.weir", formatted.as_str()), &NoFiles)
        .unwrap_or_else(|e| {
            panic!(
                "formatting broke the policy:\n{formatted}\n{}",
                e.render(false)
            )
        });
    assert_eq!(
        weir_policy::format(&again.ast),
        formatted,
        "formatting is not idempotent"
    );
    assert_eq!(
        without_lines(&parsed.policy),
        without_lines(&again.policy),
        "formatting changed the policy:\n{formatted}"
    );
    Reference::new(parsed.policy, Options::default()).run(Input::new(SYN));
}

/// Formatting may move a rule to another line; nothing else may differ.
fn without_lines(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    policy.rules.iter_mut().for_each(|rule| rule.line = 0);
    policy
}

/// Loads an object, relocated against its own types, and runs each of its programs over a packet for at most
/// 10,000 instructions. A program may fault; it may not do anything else wrong.
pub fn elf_loader(elf: &[u8]) {
    let Ok(mut object) = Object::parse(elf) else {
        return;
    };
    // An object may ask for gigabytes, which is allowed and of no use here.
    let maps: Vec<String> = object.map_names().map(str::to_owned).collect();
    for map in &maps {
        let Some(definition) = object.map_definition(map) else {
            continue;
        };
        if u64::from(definition.max_entries) * u64::from(definition.value_size) > 1 << 20 {
            return;
        }
    }
    object.set_cpus(2);
    if let Some(types) = object.btf().cloned() {
        object.relocate_against(Arc::new(types));
    }
    let programs: Vec<String> = object.programs().take(8).map(str::to_owned).collect();
    let env = Env {
        instruction_budget: 10_000,
        ..Env::default()
    };
    for program in &programs {
        let Ok(mut machine) = object.clone().load(program) else {
            continue;
        };
        for data in [SYN, &SYN[..20]] {
            let ran = match machine.program_kind() {
                ProgramKind::SchedCls => machine.run_tc(&mut Skb::new(data), &env),
                _ => machine.run_xdp(&mut Frame::new(data), &env),
            };
            if let Err(fault) = ran {
                let _ = machine.place(fault.op);
            }
            let _ = machine.take_trace();
        }
    }
}

/// Verifies bare instructions, and runs what was accepted: it may use up its budget or need a helper that this engine lacks,
/// but may not fault otherwise, and every register must be what the verifier foresaw.
pub fn verifier(code: &[u8]) {
    let map = |name, kind, key, value, entries| MapDefinition::new(name, kind, key, value, entries);
    let maps = vec![
        map("array", MapKind::Array, 4, 64, 4),
        map("hash", MapKind::Hash, 4, 16, 8),
        map("percpu", MapKind::PercpuArray, 4, 32, 2),
        map("one", MapKind::Array, 4, 24, 1),
        map("ring", MapKind::RingBuf, 0, 0, 4096),
        map("programs", MapKind::ProgArray, 4, 4, 2),
        map("devices", MapKind::DevMap, 4, 4, 4),
    ];
    let Ok(mut machine) = Machine::from_program(code, maps, 2) else {
        return;
    };
    let options = VerifyOptions {
        budget: 20_000,
        ..VerifyOptions::default()
    };
    if verify(&machine, "code", &options).is_err() {
        return;
    }
    if let Ok((_, recording)) = verify_recording(&machine, "code", &options) {
        machine.watch(Arc::new(recording));
    }
    let env = Env {
        instruction_budget: 100_000,
        ..Env::default()
    };
    for data in [SYN, &SYN[..14], &[0xff; 60]] {
        let mut frame = Frame::new(data);
        if let Err(fault) = machine.run_xdp(&mut frame, &env) {
            let allowed = matches!(
                fault.kind,
                FaultKind::Budget { .. } | FaultKind::UnknownHelper { .. }
            );
            assert!(allowed, "a verified program faults: {fault}");
        }
        assert_eq!(machine.misfit(), None, "a run in no foreseen state");
        let _ = machine.take_trace();
    }
}

/// Parses a frame; every offset and range found must lie inside it.
pub fn packet_parser(frame: &[u8]) {
    let _ = weir_packet::summary(frame);
    let Ok(layout) = weir_packet::parse::parse(frame) else {
        return;
    };
    assert!(
        frame.len() <= MAX_FRAME,
        "a frame of {} bytes was accepted",
        frame.len()
    );
    assert_inside(&layout, frame.len());
}

/// Reads a capture to its end or first error, as packets and as Ethernet frames, and parses every frame in it.
pub fn pcap_reader(file: &[u8]) {
    let Ok(mut capture) = Capture::open(file) else {
        return;
    };
    let mut packets = 0;
    while let Ok(Some(packet)) = capture.next_packet() {
        assert_eq!(packet.number, packets, "packets are numbered without gaps");
        assert!(
            packet.data.len() <= file.len(),
            "a packet is longer than the file"
        );
        packets += 1;
    }
    // A packet takes at least the 12 bytes of a pcapng block.
    assert!(
        packets <= file.len() as u64 / 12,
        "{packets} packets out of {} bytes",
        file.len()
    );
    let Ok(mut capture) = Capture::open(file) else {
        return;
    };
    let mut frames = 0;
    loop {
        match capture.next_frame() {
            Ok(Some(frame)) => {
                assert_eq!(frame.number, frames, "frames are numbered without gaps");
                assert!(frame.original_len as usize >= frame.data.len());
                assert!(frame.data.len() <= (file.len() + 14).min(MAX_PACKET as usize));
                assert!(!frame.cut_in_link_header || frame.data.len() < 14);
                packet_parser(frame.data);
                frames += 1;
            }
            Err(CaptureError::UnsupportedLinkType { .. }) => frames += 1,
            _ => break,
        }
    }
    assert_eq!(frames, packets, "each packet is a frame or refused");
}

fn assert_inside(layout: &Layout, len: usize) {
    let inside = |range: Range<usize>| {
        assert!(
            range.start <= range.end && range.end <= len,
            "{range:?} in a frame of {len} bytes"
        );
    };
    for &tag in &layout.tags {
        inside(tag..tag + 4);
    }
    inside(0..layout.network);
    if let Some(ip) = &layout.ip {
        inside(ip.at..ip.at + ip.header_len);
        inside(ip.payload.clone());
        ip.options
            .iter()
            .for_each(|option| inside(option.at..option.at + option.len));
        ip.extensions
            .iter()
            .for_each(|header| inside(header.at..header.at + header.len));
    }
    if let Some(l4) = &layout.l4 {
        inside(l4.at..l4.at + l4.header_len);
        inside(l4.payload.clone());
        inside(l4.checksum_at()..l4.checksum_at() + 2);
        l4.options
            .iter()
            .for_each(|option| inside(option.at..option.at + option.len));
    }
}
