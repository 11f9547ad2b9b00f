//! Bad input through the real program: exit status 2 or 1 as documented, one clear line with the next step, and
//! nothing on standard output that is not what was asked for.
//!
//! Diagnostics of a policy may take several lines, with file, line and caret; everything else is one line.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Folder, Run, WEIR, examples, read_capture, root_for, run, weir};
use weir_packet::build::Frame;

/// Runs `weir` and holds it to a status and one line that contains all of the texts.
#[track_caller]
fn one_line(args: &[&str], status: i32, texts: &[&str]) -> Run {
    let run = weir(args);
    is_one_line(&run, status, texts);
    run
}

#[track_caller]
fn is_one_line(run: &Run, status: i32, texts: &[&str]) {
    assert_eq!(run.status, status, "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "not one line: {run:?}");
    for text in texts {
        assert!(run.stderr.contains(text), "no `{text}`: {run:?}");
    }
}

/// Holds a refused policy to status 2, its place and caret, and the texts.
#[track_caller]
fn diagnosed(run: &Run, file: &Path, line: u32, texts: &[&str]) {
    assert_eq!(run.status, 2, "{run:?}");
    let place = format!("{}:{line}:", file.display());
    for text in [place.as_str(), "^"].iter().chain(texts) {
        assert!(run.stderr.contains(text), "no `{text}`: {run:?}");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

fn frames(n: u16) -> Vec<Vec<u8>> {
    (0..n)
        .map(|i| {
            Frame::new()
                .ip4([10, 0, 0, 1], [10, 0, 0, 2])
                .tcp(1024 + i, 80)
                .build()
        })
        .collect()
}

fn good_policy() -> String {
    let all = examples();
    let firewall = all
        .iter()
        .find(|path| path.ends_with("firewall.weir"))
        .expect("examples/firewall.weir exists");
    text(firewall).to_owned()
}

#[test]
fn mistakes_in_a_policy_show_their_place_with_every_command() {
    let folder = Folder::new();
    let capture = folder.capture("in.pcap", &frames(1));
    let cases = [
        (
            "all accept\ntcp-dprot 80 drop\n",
            2,
            &["did you mean `tcp-dport`"][..],
        ),
        (
            "ip-ttl 300 drop\n",
            1,
            &["too large for a field of 8 bits", "255"],
        ),
        (
            "all accept\n\nip-ttl 3 ip6-hop-limit 3 drop\n",
            3,
            &["IPv4 and IPv6"],
        ),
        ("tcp-dport 80\n", 1, &[]),
        (
            "set a = file \"absent.txt\"\ntcp-dport in @a drop\n",
            1,
            &["absent.txt"],
        ),
        ("tcp-dport in @nobody drop\n", 1, &["nobody"]),
    ];
    for (n, (policy, line, texts)) in cases.into_iter().enumerate() {
        let file = folder.write(&format!("{n}.weir"), policy);
        let name = text(&file);
        diagnosed(&weir(["check", name]), &file, line, texts);
        diagnosed(&weir(["explain", name]), &file, line, texts);
        let replay = ["replay", name, "--in", text(&capture)];
        for engine in ["reference", "user", "kernel"] {
            let run = weir(replay.iter().copied().chain(["--json", "--engine", engine]));
            diagnosed(&run, &file, line, texts);
            assert_eq!(run.stdout, "", "{engine}: nothing was replayed");
        }
        let json = weir(["check", "--json", name]);
        let report = json.json();
        assert_eq!(json.status, 2, "{json:?}");
        assert_eq!(
            json.stderr, "",
            "with --json the diagnostics are in the object"
        );
        let found = &report["policies"][0]["diagnostics"][0];
        assert_eq!(
            (&report["ok"], &found["severity"], &found["line"]),
            (&false.into(), &"error".into(), &line.into()),
            "{report}"
        );
    }
}

#[test]
fn all_mistakes_of_a_file_are_shown_at_once() {
    let folder = Folder::new();
    let file = folder.write(
        "p.weir",
        "tcp-dprot 1 drop\nall drop\nip-ttl 999 drop\nudp-dport drop 5 5\n",
    );
    let run = weir(["check", text(&file)]);
    for line in [1, 3, 4] {
        diagnosed(&run, &file, line, &[]);
    }
    assert!(!run.stderr.contains("p.weir:2:"), "{run:?}");
}

#[test]
fn mistakes_of_included_files_name_the_file() {
    let folder = Folder::new();
    let main = folder.write("p.weir", "include \"part.weir\"\ntcp drop\n");
    let part = folder.join("part.weir");
    // What the text alone shows.
    folder.write("part.weir", "\ntcp-dprot 1 drop\n");
    diagnosed(&weir(["check", text(&main)]), &part, 2, &["tcp-dport"]);
    // What the data plane cannot hold.
    let options: Vec<String> = (200..220)
        .map(|kind| format!("tcp-opt {kind} == 5 log"))
        .collect();
    folder.write("part.weir", options.join("\n"));
    let run = weir(["check", text(&main)]);
    assert_eq!(run.status, 2, "{run:?}");
    assert!(run.stderr.contains("part.weir:17:1"), "{run:?}");
    let report: serde_json::Value =
        serde_json::from_str(&weir(["check", "--json", text(&main)]).stdout).expect("JSON");
    let found = &report["policies"][0]["diagnostics"][0];
    assert_eq!(found["file"], text(&part), "{report}");
    let capture = folder.write("none.pcap", EMPTY_CAPTURE);
    let run = weir(["replay", text(&main), "--in", text(&capture)]);
    assert_eq!(run.status, 2, "{run:?}");
    assert!(run.stderr.contains("part.weir:17: "), "{run:?}");
    // And a hint.
    folder.write("part.weir", "udp log\nout eth0 tcp log\n");
    let run = weir(["check", text(&main)]);
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.stderr.contains("part.weir:2:1"), "{run:?}");
    let words = weir(["explain", text(&main)]).stdout;
    assert!(
        words.starts_with(&format!("{}:1: ", text(&part))),
        "{words}"
    );
    assert!(words.contains("\nline 2: "), "{words}");
}

/// A capture without packets.
const EMPTY_CAPTURE: [u8; 24] = [
    0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0,
];

#[test]
fn a_policy_that_cannot_be_read_is_one_line() {
    let folder = Folder::new();
    let capture = folder.capture("in.pcap", &frames(1));
    let absent = folder.join("absent.weir");
    let binary = folder.write("binary.weir", [0xff, 0xfe, 0x00, 0x80]);
    for (file, texts) in [
        (&absent, &["absent.weir", "check the path"][..]),
        (
            &folder.path().to_owned(),
            &["is a folder", "name a policy file"],
        ),
        (&binary, &["binary.weir", "UTF-8"]),
    ] {
        let name = text(file);
        for args in [
            vec!["explain", name],
            vec!["explain", "--json", name],
            vec!["replay", name, "--in", text(&capture), "--json"],
        ] {
            let run = one_line(&args, 2, texts);
            assert_eq!(run.stdout, "", "{args:?}");
        }
        one_line(&["fmt", name], 2, texts);
        let checked = one_line(&["check", name], 2, texts);
        assert_eq!(checked.stderr.matches(name).count(), 1, "{checked:?}");
        let json = weir(["check", "--json", name]);
        assert_eq!(
            (json.status, json.json()["ok"].as_bool()),
            (2, Some(false)),
            "{json:?}"
        );
    }
}

#[test]
fn a_capture_that_cannot_be_read_is_one_line() {
    let folder = Folder::new();
    let policy = good_policy();
    let whole = std::fs::read(folder.capture("whole.pcap", &frames(1))).expect("just written");
    let mut radio = whole.clone();
    radio[20] = 105;
    let cases = [
        (
            folder.join("absent.pcap"),
            &["absent.pcap", "check the path"][..],
        ),
        (
            folder.path().to_owned(),
            &["is a folder", "name a capture file"],
        ),
        (
            folder.write("empty.pcap", ""),
            &["not a capture file", "empty"],
        ),
        (
            folder.write("text.pcap", "hello, this is no capture\n"),
            &["not a capture file", "neither pcap nor pcapng"],
        ),
        (
            folder.write("header.pcap", &whole[..10]),
            &["cut off", "inside its file header"],
        ),
        (
            folder.write("radio.pcap", radio),
            &["105", "ETHERNET, LINUX_SLL"],
        ),
    ];
    for (file, texts) in cases {
        for engine in ["reference", "user", "kernel"] {
            let args = [
                "replay",
                &policy,
                "--in",
                text(&file),
                "--json",
                "--engine",
                engine,
            ];
            let run = one_line(&args, 2, texts);
            assert_eq!(run.stdout, "", "{args:?}");
        }
        let run = one_line(&["explain", &policy, "--in", text(&file)], 2, texts);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn a_capture_that_is_cut_off_is_replayed_up_to_the_cut() {
    let folder = Folder::new();
    let policy = folder.write("p.weir", "tcp-dport 80 mod tcp-dport 443\n");
    let whole = std::fs::read(folder.capture("whole.pcap", &frames(3))).expect("just written");
    // The third record lacks its last byte, all its bytes, half its header.
    let record = 16 + 54;
    for end in [whole.len() - 1, 24 + 2 * record + 16, 24 + 2 * record + 8] {
        let cut = folder.write("cut.pcap", &whole[..end]);
        for engine in ["reference", "user"] {
            let out = folder.join("out.pcap");
            let args = [
                "replay",
                text(&policy),
                "--in",
                text(&cut),
                "--out",
                text(&out),
                "--json",
                "--engine",
                engine,
            ];
            let run = one_line(&args, 1, &["cut off", "packet 2", "were replayed"]);
            assert_eq!(run.json()["packets"]["received"], 2, "{run:?}");
            let found = read_capture(&out);
            assert_eq!(found.len(), 2);
            assert!(
                found
                    .iter()
                    .all(|(_, frame)| frame[36..38] == 443_u16.to_be_bytes())
            );
        }
    }
}

#[test]
fn a_capture_without_packets_is_no_mistake() {
    let folder = Folder::new();
    let capture = folder.capture("none.pcap", &[]);
    let out = folder.join("out.pcap");
    let run = weir([
        "replay",
        &good_policy(),
        "--in",
        text(&capture),
        "--json",
        "--out",
        text(&out),
    ])
    .succeeded();
    assert_eq!(run.stderr, "");
    assert_eq!(run.json()["packets"]["received"], 0);
    assert_eq!(run.json()["reasons"], serde_json::json!({}));
    assert!(read_capture(&out).is_empty());
    // A policy without rules passes everything.
    let nothing = folder.write("nothing.weir", "# no rule\n");
    let some = folder.capture("some.pcap", &frames(2));
    let run = weir(["replay", text(&nothing), "--in", text(&some), "--json"]).succeeded();
    assert_eq!(run.json()["packets"]["pass"], 2, "{run:?}");
}

#[test]
fn the_output_never_replaces_the_input() {
    let folder = Folder::new();
    let input = folder.capture("in.pcap", &frames(2));
    let before = std::fs::read(&input).expect("just written");
    let soft = folder.join("soft.pcap");
    std::os::unix::fs::symlink(&input, &soft).expect("links can be made");
    let hard = folder.join("hard.pcap");
    std::fs::hard_link(&input, &hard).expect("links can be made");
    let dotted = folder.path().join(".").join("in.pcap");
    for out in [&input, &soft, &dotted, &hard] {
        let policy = good_policy();
        let args = ["replay", &policy, "--in", text(&input), "--out", text(out)];
        one_line(&args, 2, &["--out", "choose another file"]);
        assert_eq!(
            std::fs::read(&input).expect("still there"),
            before,
            "{}",
            out.display()
        );
    }
}

#[test]
fn an_output_that_cannot_be_written_is_one_line() {
    let folder = Folder::new();
    let input = folder.capture("in.pcap", &frames(2));
    let policy = good_policy();
    let nowhere = folder.join("absent/out.pcap");
    for (out, what) in [
        (text(&nowhere), "No such file"),
        (text(folder.path()), "directory"),
        ("/dev/full", "No space left"),
    ] {
        let args = [
            "replay",
            &policy,
            "--in",
            text(&input),
            "--out",
            out,
            "--json",
        ];
        let run = one_line(&args, 1, &["cannot write", out, what]);
        assert_eq!(run.stdout, "");
    }
    // The same for standard output.
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full exists");
    let run = run(Command::new(WEIR).args(["explain", &policy]).stdout(full));
    is_one_line(&run, 1, &["cannot write output"]);
}

#[test]
fn the_kernel_engine_without_permission_is_one_line() {
    if !root_for("what a user without permission sees") {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let copy = folder.join("weir");
    // Not by this process: a child that another test starts meanwhile would have the file open for writing, and nobody could execute it.
    let copied = Command::new("cp").arg(WEIR).arg(&copy).status();
    assert!(
        copied.expect("cp runs").success(),
        "the binary can be copied"
    );
    for (path, mode) in [(folder.path(), 0o777), (copy.as_path(), 0o755)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("own files");
    }
    let input = folder.capture("in.pcap", &frames(2));
    let policy = folder.write("p.weir", "all accept\n");
    let out = folder.join("out.pcap");
    let nobody = |args: &[&str]| {
        let ids = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        run(Command::new("setpriv").args(ids).arg(&copy).args(args))
    };
    let args = ["replay", text(&policy), "--in", text(&input), "--json"];
    let kernel: Vec<&str> = args
        .iter()
        .copied()
        .chain(["--engine", "kernel", "--out", text(&out)])
        .collect();
    let refused = nobody(&kernel);
    is_one_line(&refused, 1, &["root"]);
    assert_eq!(refused.stdout, "");
    assert!(!out.exists(), "nothing was replayed, so there is no output");
    // The other engines need nothing.
    for engine in ["user", "reference"] {
        let run = nobody(&[&args[..], &["--engine", engine]].concat()).succeeded();
        assert_eq!(run.json()["packets"]["pass"], 2, "{run:?}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    let policy = good_policy();
    for (args, texts) in [
        (
            &["replay", &policy, "--in", "x.pcap", "--bogus"][..],
            &["--bogus"][..],
        ),
        (&["frobnicate"], &["frobnicate"]),
        (&["replay", &policy], &["--in <CAPTURE>"]),
        (&["replay", "--in", "x.pcap"], &["<POLICY>"]),
        (&["check"], &["<FILE>"]),
        (
            &["replay", &policy, "--in", "x.pcap", "--engine", "fpga"],
            &["fpga", "user, user-jit, kernel, reference"],
        ),
        (
            &["replay", &policy, "--in", "x.pcap", "--queue", "70000"],
            &["70000", "65535"],
        ),
        (
            &["replay", &policy, "--in", "x.pcap", "--seed", "-1"],
            &["-1"],
        ),
        (
            &["replay", &policy, "--in", "x.pcap", "--checksums", "maybe"],
            &["maybe", "complete, offloaded"],
        ),
        (
            &["replay", &policy, "--in", "x.pcap", "--mtu", "big"],
            &["big"],
        ),
    ] {
        let run = weir(args);
        assert_eq!(
            (run.status, run.stdout.as_str()),
            (2, ""),
            "{args:?}: {run:?}"
        );
        for text in texts.iter().chain(&["--help"]) {
            assert!(run.stderr.contains(text), "{args:?}: no `{text}`: {run:?}");
        }
    }
}

#[test]
fn what_is_not_there_is_counted_for_the_reader() {
    let folder = Folder::new();
    let capture = folder.capture("in.pcap", &frames(2));
    let policy = good_policy();
    one_line(
        &["explain", &policy, "--rule", "99"],
        2,
        &["no rule 99", "11 rules"],
    );
    let args = ["explain", &policy, "--in", text(&capture), "--packet", "3"];
    one_line(&args, 2, &["no packet 3", "2 packets"]);
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let folder = Folder::new();
    let capture = folder.capture("in.pcap", &frames(3000));
    let policy = good_policy();
    for args in [
        &["explain", &policy][..],
        &["explain", &policy, "--in", text(&capture)],
        &["explain", &policy, "--in", text(&capture), "--json"],
        &["replay", &policy, "--in", text(&capture)],
        &["check", &policy],
        &["--help"],
    ] {
        // The pipe has no reader before the program writes.
        let (reader, writer) = std::io::pipe().expect("pipes can be made");
        drop(reader);
        let child = Command::new(WEIR)
            .args(args)
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .expect("weir starts");
        let run = Run::from(child.wait_with_output().expect("weir ends"));
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{args:?}");
    }
    let shell = format!("{WEIR} explain {policy} --in {} | head -1", text(&capture));
    let run = run(Command::new("sh").args(["-c", &shell]));
    assert_eq!((run.stdout.lines().count(), run.stderr.as_str()), (1, ""));
}
