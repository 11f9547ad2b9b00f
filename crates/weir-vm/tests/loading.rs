//! Objects of others: retired map sections, kinds of programs, data sections, symbols of the kernel, source lines.

use crate::object::{compile, compile_with, machine};
use weir_vm::jit::{self, CompileError};
use weir_vm::verify::{Rule, VerifyOptions, verify};
use weir_vm::{
    ElfError, Env, FaultKind, Frame, LoadError, MapKind, Object, ProgramKind, XdpAttach,
};

fn value(machine: &weir_vm::Machine, map: &str, key: u32) -> Vec<u8> {
    let map = machine.map(map).expect("the map is there");
    map.value(&key.to_le_bytes()).expect("has a value").to_vec()
}

#[test]
fn the_retired_maps_section_with_and_without_type_information() {
    for flags in [&["-g"][..], &[]] {
        let elf = compile_with("legacy", flags);
        let object = Object::parse(&elf).expect("parses");
        assert_eq!(object.btf().is_some(), !flags.is_empty());
        let names = object.map_definition("names").expect("is a map");
        assert_eq!(
            (names.kind, names.key_size, names.max_entries, names.flags),
            (MapKind::Hash, 4, 8, 1)
        );
        let programs: Vec<&str> = object.programs().collect();
        assert_eq!(programs, ["first", "second", "third", "fourth"]);
        let kinds: Vec<_> = programs
            .iter()
            .map(|p| object.program_kind(p).expect("is there").to_string())
            .collect();
        assert_eq!(
            kinds,
            ["xdp", "xdp", "tc", "tracepoint/net/netif_rx (not XDP)"]
        );
        let mut m = object.load("first").expect("loads");
        let mut frame = Frame::new(&[0; 60]);
        assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(1));
        m.set_tail_call("progs", 1, "second").expect("same kind");
        assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(3));
        assert_eq!(value(&m, "counts", 0)[0], 2);
        assert_eq!(value(&m, "counts", 1)[0], 1);
        assert_eq!(value(&m, "names", 7)[0], 9);
        let wrong = m.set_tail_call("progs", 0, "third").unwrap_err();
        assert!(wrong.to_string().contains("tc"), "{wrong}");
    }
}

#[test]
fn maps_of_iproute2() {
    let elf = compile_with("iproute", &[]);
    let mut m = machine(&elf, "nested");
    assert_eq!(m.run_xdp(&mut Frame::new(&[0; 60]), &Env::default()), Ok(2));
    assert_eq!(value(&m, "inner", 0), [5, 0, 0, 0]);
}

#[test]
fn kinds_of_programs() {
    let object = Object::parse(&compile("kinds")).expect("parses");
    let kind = |name| object.program_kind(name).cloned().expect("is a program");
    let xdp = |frags, attach| ProgramKind::Xdp { frags, attach };
    assert_eq!(kind("device"), ProgramKind::XDP);
    assert_eq!(kind("frags"), xdp(true, XdpAttach::Device));
    assert_eq!(kind("devmap_program"), xdp(false, XdpAttach::Devmap));
    assert_eq!(kind("cpumap_program"), xdp(true, XdpAttach::Cpumap));
    assert_eq!(kind("traced"), ProgramKind::Other("fentry/func".into()));
    let refused = object.clone().load("traced").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "program traced is in section fentry/func, which is not XDP; these can run: device, device_too, \
         frags, devmap_program, cpumap_program, weak_symbols, strong_symbol, sends"
    );
    let mut frame = Frame::new(&[0; 60]);
    let env = Env {
        egress_ifindex: 3,
        ..Env::default()
    };
    let mut m = object.load("devmap_program").expect("loads");
    assert_eq!(m.run_xdp(&mut frame, &env), Ok(3));
    m.select("device_too").expect("is a program");
    assert_eq!(m.run_xdp(&mut frame, &env), Ok(1));
    m.select("frags").expect("is a program");
    assert_eq!(m.run_xdp(&mut frame, &env), Ok(4));
    assert!(matches!(
        m.select("traced"),
        Err(LoadError::NoProgram { .. })
    ));
}

#[test]
fn second_programs_run_behind_device_and_cpu_maps() {
    let mut m = machine(&compile("kinds"), "sends");
    let (one, mut frame) = (1u32.to_le_bytes(), Frame::new(&[0; 60]));
    let env = Env {
        egress_ifindex: 7,
        ..Env::default()
    };
    assert_eq!(m.run_xdp(&mut frame, &env), Ok(1));
    m.set_second_program("devices", &one, 3, "devmap_program")
        .expect("fits");
    assert_eq!(m.run_xdp(&mut frame, &env), Ok(4));
    assert_eq!(m.second_program("devices", &one), Some("devmap_program"));
    let second = m.run_second("devices", &one, &mut frame, &env);
    assert_eq!(second, Some(Ok(7)));
    // The first program is the one that runs again.
    assert_eq!(m.run_xdp(&mut frame, &env), Ok(4));
    assert!(m.run_second("devices", &[0; 4], &mut frame, &env).is_none());
    m.set_second_program("cpus", &one, 192, "cpumap_program")
        .expect("fits");
    for (map, program, text) in [
        (
            "devices",
            "cpumap_program",
            "its section must be xdp/devmap",
        ),
        ("cpus", "device", "its section must be xdp/cpumap"),
        (".bss", "device", "not a device or CPU map"),
    ] {
        let refused = m.set_second_program(map, &one, 3, program).unwrap_err();
        assert!(refused.to_string().contains(text), "{refused}");
    }
}

#[test]
fn several_data_sections_of_each_kind() {
    let mut m = machine(&compile("kinds"), "device");
    assert_eq!(m.run_xdp(&mut Frame::new(&[0; 60]), &Env::default()), Ok(2));
    for (map, expected) in [
        (".bss", 1),
        (".bss.own", 2),
        (".data.own", 9),
        (".data", 3),
        (".rodata.own", 5),
    ] {
        assert_eq!(value(&m, map, 0)[..4], u32::to_le_bytes(expected), "{map}");
    }
}

#[test]
fn symbols_of_the_kernel_are_zero_when_weak_and_named_when_not() {
    let mut m = machine(&compile("kinds"), "weak_symbols");
    let mut frame = Frame::new(&[0; 60]);
    assert_eq!(m.run_xdp(&mut frame, &Env::default()), Ok(3));
    m.select("strong_symbol").expect("is a program");
    let fault = m.run_xdp(&mut frame, &Env::default()).unwrap_err();
    assert_eq!(
        fault.kind,
        FaultKind::External {
            name: "CONFIG_STRONG".into()
        }
    );
    let place = m.place(fault.op);
    let source = place.source.expect("compiled with -g");
    assert_eq!(
        (place.function.as_str(), place.section.as_str()),
        ("strong_symbol", "xdp")
    );
    assert!(source.file.ends_with("kinds.c"), "{source:?}");
    assert_eq!(source.text, "return CONFIG_STRONG ? XDP_PASS : XDP_DROP;");
    assert_eq!((source.line, source.column), (71, 9));
}

/// Programs of one section: what one of them has that is not understood rejects that one, also where no path leads to it.
#[test]
fn a_bad_program_spoils_itself_only() {
    let object = Object::parse(&compile("spoiled")).expect("parses");
    let unusable: Vec<&str> = object.unusable_maps().map(|(name, _)| name).collect();
    assert_eq!(unusable, ["timers", "sockets"]);
    let expected = [
        ("counts", None),
        (
            "has_timer",
            Some("map timers: member timer is a struct bpf_timer"),
        ),
        (
            "has_sockets",
            Some("map sockets: map type 20 is not available"),
        ),
        ("opcode", Some("unknown opcode 0xff")),
        ("opcode_on_no_path", Some("unknown opcode 0xff")),
        ("register_12", Some("register r12 cannot be used here")),
        ("classic_load", Some("legacy packet access")),
        ("jumps_out", Some("is not an instruction of this section")),
        ("half_a_load", Some("16-byte load without its second half")),
        ("no_map", Some("16-byte load of kind 1 needs a relocation")),
        ("calls_bad", Some("unknown opcode 0xff")),
        ("adds", None),
    ];
    let programs: Vec<&str> = object.programs().collect();
    assert_eq!(programs, expected.map(|(program, _)| program));
    for (program, reason) in expected {
        let mut machine = object.clone().load(program).expect("the object loads");
        let judged = verify(&machine, program, &VerifyOptions::default());
        let ran = machine.run_xdp(&mut Frame::new(&[0; 60]), &Env::default());
        match (reason, judged) {
            (None, Ok(_)) => assert_eq!(ran, Ok(2), "{program}"),
            (Some(reason), Err(rejection)) => {
                assert!(
                    matches!(rejection.rule, Rule::Invalid { .. }),
                    "{program}: {rejection}"
                );
                assert!(rejection.to_string().contains(reason), "{rejection}");
                let compiled = machine.verify_and_compile(&VerifyOptions::default());
                assert!(compiled.is_err(), "{program}");
                // On no path nothing is met.
                match (program, ran) {
                    ("opcode_on_no_path", ran) => assert_eq!(ran, Ok(2)),
                    (_, Err(fault)) => assert!(fault.to_string().contains(reason), "{fault}"),
                    (_, Ok(action)) => panic!("{program} returned {action}"),
                }
            }
            (_, judged) => panic!("{program}: {judged:?}"),
        }
    }
}

#[test]
fn files_of_other_machines() {
    let elf = compile("tiny");
    let mut big = elf.clone();
    big[5] = 2;
    big[18..20].copy_from_slice(&247u16.to_be_bytes());
    assert_eq!(
        Object::parse(&big).unwrap_err(),
        LoadError::Elf(ElfError::BigEndian)
    );
    let mut arm = elf.clone();
    arm[18..20].copy_from_slice(&183u16.to_le_bytes());
    assert_eq!(
        Object::parse(&arm).unwrap_err(),
        LoadError::Elf(ElfError::Machine(183))
    );
    let mut narrow = elf;
    narrow[4] = 1;
    assert_eq!(
        Object::parse(&narrow).unwrap_err(),
        LoadError::Elf(ElfError::Class)
    );
}

/// Objects of a production balancer as they are, with tables of more than a hundred million elements: they load, the verifier accepts
/// them, and they become native code.
#[test]
fn objects_of_a_production_balancer() {
    let Some(folder) = weir_testdata::find("katran") else {
        return;
    };
    for name in ["balancer.bpf.o", "balancer.bpf.full.o", "decap.bpf.o"] {
        let elf = std::fs::read(folder.join(name)).expect("it is there");
        let object = Object::parse(&elf).expect("parses");
        let programs: Vec<String> = object.programs().map(str::to_owned).collect();
        for program in programs {
            let mut machine = object.clone().load(&program).expect("loads");
            let compiled = machine.verify_and_compile(&VerifyOptions::default());
            // Native code is for x86-64 alone; the verifier's answer comes first.
            let accepted = matches!(compiled, Ok(()) | Err(CompileError::Jit(_)));
            assert!(accepted, "{name}: {program}: {compiled:?}");
            assert!(
                compiled.is_ok() || !jit::available(),
                "{name}: {compiled:?}"
            );
        }
    }
}
