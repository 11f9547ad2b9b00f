//! `weir prog run`, `maps` and `disasm` on a small object: verdicts, maps in and out, in the interpreter and in the kernel alike.

use crate::common;
use crate::common::{Folder, Run, root_for, weir};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_packet::build::Frame;

/// An object of tests/objects, compiled into `folder`.
fn compile(folder: &Folder, name: &str) -> PathBuf {
    compile_of(folder, "weir-cli", name)
}

/// As [`compile`], of the objects of another crate.
fn compile_of(folder: &Folder, owner: &str, name: &str) -> PathBuf {
    let crates = env!("CARGO_MANIFEST_DIR");
    let source = format!("{crates}/../{owner}/tests/objects/{name}.c");
    let object = folder.path().join(format!("{name}.o"));
    let clang = std::env::var_os("WEIR_CLANG").unwrap_or_else(|| "clang".into());
    let run = common::run(
        Command::new(clang)
            .args([
                "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c", &source, "-o",
            ])
            .arg(&object),
    );
    assert_eq!(run.status, 0, "{run:?}");
    object
}

fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// `weir prog run` of an object over a capture.
fn over(object: &Path, capture: &Path, more: &[&str]) -> Run {
    let mut args = vec!["prog", "run", text(object), "--in", text(capture)];
    args.extend(more);
    weir(args)
}

/// Engines that can run here.
fn engines() -> Vec<&'static str> {
    let mut engines = vec!["interpreter"];
    if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        engines.push("jit");
    }
    if root_for("weir prog run --engine kernel") {
        engines.push("kernel");
    }
    engines
}

fn frames(n: usize) -> Vec<Vec<u8>> {
    let frame = Frame::new().ip4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2);
    (0..n)
        .map(|i| frame.clone().payload(&vec![0; i]).build())
        .collect()
}

#[test]
fn maps_go_in_and_come_out() {
    let folder = Folder::new();
    let object = compile(&folder, "types");
    let capture = folder.capture("in.pcap", &frames(7));
    for engine in engines() {
        let run = |extra: &[&str]| -> Run {
            let mut args = vec![
                "prog",
                "run",
                text(&object),
                "--prog",
                "count",
                "--in",
                text(&capture),
            ];
            args.extend(["--engine", engine, "--json", "--dump-maps", "-"]);
            args.extend(extra);
            weir(args)
        };
        let first = run(&[]).succeeded().json();
        assert_eq!(first["verdicts"]["pass"], 5, "{first}");
        assert_eq!(first["verdicts"]["tx"], 2, "{first}");
        let variables = &first["maps"][".bss"]["variables"];
        assert_eq!(variables["frames"], 7, "{first}");
        let bytes: usize = frames(7).iter().map(Vec::len).sum();
        assert_eq!(
            first["maps"][".data"]["variables"]["last"],
            json!({"a": 1, "b": bytes + 2})
        );
        let seen = &first["maps"]["percpu"]["elements"];
        let total: u64 = seen[0]["values"]
            .as_array()
            .expect("a value for each CPU")
            .iter()
            .filter_map(Value::as_u64)
            .sum();
        assert_eq!((total, &seen[1]), (7, &Value::Null));
        let untyped = first["maps"]["untyped"]["elements"]
            .as_array()
            .expect("elements");
        assert_eq!(untyped.len(), 4, "four fit, the rest was refused");
        assert_eq!(
            untyped[0],
            json!({"key": "01000000", "value": format!("{:02x}00000000000000", frames(1)[0].len())})
        );
        assert_eq!(first["records"]["events"].as_array().map(Vec::len), Some(7));
        // What came out goes in again: counting goes on.
        let dump = json!({ "maps": first["maps"] });
        let setup = folder.write("setup.json", dump.to_string());
        let second = run(&["--maps", text(&setup)]).succeeded().json();
        assert_eq!(
            second["maps"][".bss"]["variables"]["frames"], 14,
            "{second}"
        );
        assert_eq!(second["verdicts"]["tx"], 7, "{second}");
        assert_eq!(second["maps"]["untyped"], first["maps"]["untyped"]);
        // Elements, constants and single variables by name.
        let setup = folder.write(
            "some.json",
            r#"{"maps": {"flows": {"elements": [{"key": {"proto": 6}, "value": {"name": "x", "port": 80}}]},
                ".bss": {"variables": {"frames": 100}}}}"#,
        );
        let third = run(&["--maps", text(&setup)]).succeeded().json();
        assert_eq!(third["verdicts"]["drop"], 7, "{third}");
        assert_eq!(third["maps"][".bss"]["variables"]["frames"], 107);
        let flow = &third["maps"]["flows"]["elements"][0];
        assert_eq!(
            (
                &flow["key"]["proto"],
                &flow["value"]["port"],
                &flow["value"]["name"]
            ),
            (&json!(6), &json!(80), &json!("x"))
        );
    }
}

#[test]
fn tail_calls_are_set_up_by_name() {
    let folder = Folder::new();
    let object = compile(&folder, "types");
    let capture = folder.capture("in.pcap", &frames(3));
    let setup = folder.write(
        "setup.json",
        r#"{"maps": {"programs": {"elements": [{"key": "00000000", "value": "drop"}]}}}"#,
    );
    for engine in engines().into_iter().filter(|e| *e != "kernel") {
        let run = over(
            &object,
            &capture,
            &[
                "--prog",
                "count",
                "--maps",
                text(&setup),
                "--json",
                "--dump-maps",
                "-",
                "--engine",
                engine,
            ],
        );
        let report = run.succeeded().json();
        assert_eq!(report["engine"], engine);
        assert_eq!(report["verdicts"]["drop"], 3, "{report}");
        assert_eq!(report["maps"]["programs"]["elements"][0]["value"], "drop");
    }
}

#[test]
fn tc_programs_run_with_their_own_verdicts() {
    let folder = Folder::new();
    let object = compile(&folder, "types");
    let capture = folder.capture("in.pcap", &frames(5));
    for engine in engines().into_iter().filter(|e| *e != "jit") {
        let out = folder.join("out.pcap");
        let run = over(
            &object,
            &capture,
            &[
                "--prog",
                "longer",
                "--engine",
                engine,
                "--out",
                text(&out),
                "--json",
            ],
        );
        let report = run.succeeded().json();
        assert_eq!(
            report["verdicts"],
            json!({"ok": 2, "unspec": 1, "shot": 2}),
            "{report}"
        );
        let written: Vec<_> = common::read_capture(&out)
            .into_iter()
            .map(|(_, f)| f)
            .collect();
        assert_eq!(written, frames(3));
    }
}

#[test]
fn wrong_setups_say_what_is_wrong() {
    let folder = Folder::new();
    let object = compile(&folder, "types");
    let capture = folder.capture("in.pcap", &frames(1));
    for (setup, expected) in [
        (r#"{"maps": {"flow": {}}}"#, "no map \"flow\"; it has .bss"),
        (
            r#"{"maps": {"flows": {"elements": [{"key": {"proto": 300}, "value": {}}]}}}"#,
            "map flows: key {\"proto\":300}: proto: 300 does not fit type",
        ),
        (
            r#"{"maps": {"flows": {"type": "array"}}}"#,
            "map flows: it is a hash in the object",
        ),
        (
            r#"{"maps": {".bss": {"variables": {"frame": 1}}}}"#,
            "no variable \"frame\"",
        ),
        (
            r#"{"maps": {"untyped": {"elements": [{"key": "00", "value": "00"}]}}}"#,
            "2 hexadecimal digits are not 4 bytes",
        ),
        (
            r#"{"maps": {"programs": {"elements": [{"key": "00000000", "value": "none"}]}}}"#,
            "no program \"none\"",
        ),
        (r#"{"map": {}}"#, "unknown field `map`"),
    ] {
        let path = folder.write("setup.json", setup);
        let run = over(
            &object,
            &capture,
            &["--prog", "count", "--maps", text(&path)],
        );
        assert_eq!(run.status, 2, "{setup}: {run:?}");
        assert!(run.stderr.contains(expected), "{setup}: {run:?}");
    }
}

#[test]
fn the_program_is_chosen_by_name_where_there_are_several() {
    let folder = Folder::new();
    let object = compile(&folder, "types");
    let capture = folder.capture("in.pcap", &frames(2));
    let run = over(&object, &capture, &[]);
    assert_eq!(run.status, 2);
    assert!(
        run.stderr.contains("choose one with --prog: count, drop"),
        "{run:?}"
    );
    let run = over(&object, &capture, &["--prog", "dorp"]);
    assert!(
        run.stderr
            .contains("no program \"dorp\"; it has count, drop"),
        "{run:?}"
    );
    let out = folder.path().join("out.pcap");
    let run = over(
        &object,
        &capture,
        &["--prog", "count", "--out", text(&out), "-v"],
    );
    let run = run.succeeded();
    assert!(
        run.stdout.starts_with("packets  2 run = 2 pass\n"),
        "{run:?}"
    );
    assert_eq!(
        run.stderr.matches("pass; IP 10.0.0.1").count(),
        2,
        "{run:?}"
    );
    let written: Vec<_> = common::read_capture(&out)
        .into_iter()
        .map(|(_, f)| f)
        .collect();
    assert_eq!(written, frames(2));
}

#[test]
fn instructions_are_limited_and_faults_fail_the_run() {
    let folder = Folder::new();
    let object = compile(&folder, "types");
    let capture = folder.capture("in.pcap", &frames(2));
    let run = over(
        &object,
        &capture,
        &["--prog", "count", "--limit-insns", "3"],
    );
    assert_eq!(run.status, 1, "{run:?}");
    assert!(run.stdout.contains("2 faulted"), "{run:?}");
    assert!(run.stderr.contains("budget of 3 instructions"), "{run:?}");
}

#[test]
fn maps_and_code_are_shown_with_names() {
    let folder = Folder::new();
    let object = compile(&folder, "types");
    let maps = weir(["prog", "maps", text(&object)]).succeeded().stdout;
    for expected in [
        "flows: hash, 16 entries",
        "key    struct flow, 16 bytes",
        "value  struct everything,",
        "char name[13]",
        "u32 mid : 20 (from bit",
        "events: ringbuf, 4,096 bytes",
        ".rodata: data, 4 bytes, flags rdonly_prog",
        "u32 limit",
    ] {
        assert!(maps.contains(expected), "{expected}: {maps}");
    }
    let all = weir(["prog", "maps", text(&object), "--json"])
        .succeeded()
        .json();
    let named: Vec<&str> = all["maps"]
        .as_array()
        .expect("maps")
        .iter()
        .filter_map(|m| m["name"].as_str())
        .collect();
    assert!(
        ["flows", "percpu", "untyped", "events", "programs", ".bss"]
            .iter()
            .all(|n| named.contains(n)),
        "{named:?}"
    );

    let code = weir(["prog", "disasm", text(&object), "--prog", "count"])
        .succeeded()
        .stdout;
    for expected in [
        "program count (section xdp,",
        "= map percpu",
        "call bpf_map_lookup_elem#1",
        "value of .bss",
        "types.c:",
        "  frames++;",
    ] {
        assert!(code.contains(expected), "{expected}: {code}");
    }
    assert!(!code.contains("program drop"), "{code}");
    let listing = weir(["prog", "disasm", text(&object), "--json"])
        .succeeded()
        .json();
    let functions = listing["functions"].as_array().expect("functions");
    assert_eq!(functions.len(), 3);
    let helpers = functions[0]["instructions"]
        .as_array()
        .expect("instructions")
        .iter()
        .filter_map(|i| i["helper"].as_str());
    assert_eq!(helpers.filter(|h| *h == "bpf_tail_call").count(), 1);
}

/// Something unknown in one program rejects that program only: the others get their verdicts, and those that are accepted run.
#[test]
fn one_bad_program_spoils_one_program() {
    let folder = Folder::new();
    let object = compile_of(&folder, "weir-vm", "spoiled");
    let object = object.display().to_string();
    let report = weir(["prog", "verify", &object, "--json"]);
    assert_eq!(report.status, 1, "{report:?}");
    let report: Value = serde_json::from_str(&report.stdout).expect("JSON");
    let judged = report["programs"].as_array().expect("programs");
    assert_eq!(judged.len(), 12);
    let accepted: Vec<&str> = judged
        .iter()
        .filter(|p| p["accepted"] == true)
        .filter_map(|p| p["program"].as_str())
        .collect();
    assert_eq!(accepted, ["counts", "adds"]);
    let text = weir(["prog", "verify", &object, "--prog", "opcode"]);
    assert_eq!(text.status, 1, "{text:?}");
    assert!(
        text.stdout
            .contains("opcode: rejected: unknown opcode 0xff"),
        "{text:?}"
    );
    let text = weir(["prog", "verify", &object, "--prog", "counts"]);
    assert_eq!(text.status, 0, "{text:?}");
    let maps = weir(["prog", "maps", &object]);
    assert_eq!(maps.status, 0, "{maps:?}");
    let line = "not available: map sockets: map type 20 is not available in the user engine";
    assert!(maps.stdout.contains(line), "{maps:?}");
    let capture = folder.capture("in.pcap", &frames(2));
    for engine in engines() {
        for (program, status) in [("counts", 0), ("opcode", 1)] {
            let ran = over(
                Path::new(&object),
                &capture,
                &["--prog", program, "--engine", engine],
            );
            assert_eq!(ran.status, status, "{engine}: {ran:?}");
        }
    }
}

/// A map has as many entries as `--map-size` says, in every engine, and those of a huge one cost nothing.
#[test]
fn maps_have_the_size_asked_for() {
    let folder = Folder::new();
    let object = compile_of(&folder, "weir-vm", "spoiled");
    let capture = folder.capture("in.pcap", &frames(2));
    let contents = json!({"maps": {"counters": {"elements": [{"key": 99_999, "value": 5}]}}});
    let maps = folder.join("maps.json");
    std::fs::write(&maps, contents.to_string()).expect("written");
    for engine in engines() {
        let run = |more: &[&str]| {
            let all = [
                "--prog",
                "counts",
                "--engine",
                engine,
                "--maps",
                text(&maps),
            ];
            over(&object, &capture, &[&all[..], more].concat())
        };
        // The object declares one entry.
        assert_ne!(run(&[]).status, 0, "{engine}");
        let sized = run(&[
            "--map-size",
            "counters=100000",
            "--json",
            "--dump-maps",
            "-",
        ]);
        assert_eq!(sized.status, 0, "{engine}: {sized:?}");
        let report: Value = serde_json::from_str(&sized.stdout).expect("JSON");
        let elements = json!([{"key": 0, "value": 2}, {"key": 99_999, "value": 5}]);
        assert_eq!(report["maps"]["counters"]["elements"], elements, "{engine}");
    }
    let verify = |size: &str| {
        let object = text(&object);
        weir([
            "prog",
            "verify",
            object,
            "--prog",
            "counts",
            "--map-size",
            size,
        ])
    };
    assert_eq!(verify("counters=500000000").status, 0);
    for (size, reason) in [
        ("counters=0", "one entry at least"),
        ("counters", "NAME=N"),
        ("counters=many", "not a number"),
        ("absent=1", "no map"),
    ] {
        let refused = verify(size);
        assert_eq!(refused.status, 2, "{refused:?}");
        assert!(refused.stderr.contains(reason), "{refused:?}");
    }
}
