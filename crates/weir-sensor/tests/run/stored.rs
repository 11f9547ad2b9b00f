//! Files that are written out: by rules or all of them, by their sums, with their records beside them.

use std::fs;
use std::path::{Path, PathBuf};

use super::bed::{Folder, How, Left, Tape, sense_within, web};
use super::schema::hold;

/// SHA-256 of `hello`, and of `other`.
const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
const OTHER: &str = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa";

fn answer(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// Two downloads, of which one was asked for twice.
fn tape() -> Tape {
    let mut tape = Tape::default();
    for (port, name, body) in [
        (1, "a.exe", "hello"),
        (2, "b.txt", "other"),
        (3, "a.exe", "hello"),
    ] {
        let request = format!("GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n");
        web(&mut tape, port, &request, &answer(body));
    }
    tape
}

fn how(rules: &str) -> How {
    How::rules(rules)
        .set("outputs.0.eve-log.enabled=yes")
        .set("outputs.1.fast.enabled=yes")
        .set("outputs.2.file-store.enabled=yes")
}

/// What was stored: names below the store, sorted.
fn stored(folder: &Folder) -> Vec<String> {
    let root = folder.0.join("filestore");
    let mut all = Vec::new();
    gather(&root, &root, &mut all);
    all.sort();
    all
}

fn gather(root: &Path, folder: &Path, all: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(root, &path, all);
        } else if let Ok(name) = path.strip_prefix(root) {
            all.push(name.display().to_string());
        }
    }
}

fn sense(tape: &Tape, how: &How) -> (Folder, Left) {
    let folder = Folder::new();
    let capture: PathBuf = folder.0.join("tape.pcap");
    fs::write(&capture, tape.pcap()).expect("written");
    let left = sense_within(&folder, &[capture], how);
    hold(left.eve.iter());
    (folder, left)
}

/// Which files records say are stored.
fn told(left: &Left) -> Vec<bool> {
    let files = left.of("fileinfo").into_iter();
    files.map(|r| r["fileinfo"]["stored"] == true).collect()
}

#[test]
fn rules_choose_files() {
    let rule = "alert http any any -> any any (msg:\"m\"; file.name; content:\".exe\"; filestore; sid:1;)\n";
    let name = format!("2c/{HELLO}");
    for workers in [1, 4] {
        let (folder, left) = sense(&tape(), &how(rule).workers(workers));
        assert_eq!(stored(&folder), [name.as_str()], "{}", left.text);
        assert_eq!(told(&left), [true, false, true]);
        let bytes = fs::read(folder.0.join("filestore").join(&name)).expect("there");
        assert_eq!(bytes, b"hello");
        assert_eq!(left.summary.counters["file_store.fs_errors"], 0);
    }
    // Without the store the rule holds of the same files.
    let (folder, left) = sense(&tape(), &how(rule).set("outputs.2.file-store.enabled=no"));
    assert!(stored(&folder).is_empty());
    assert_eq!((told(&left), left.sids().len()), (vec![false; 3], 2));
}

#[test]
fn all_files_and_their_records() {
    let how = how("")
        .set("outputs.2.file-store.force-filestore=yes")
        .set("outputs.2.file-store.write-fileinfo=yes")
        .set("outputs.2.file-store.force-hash=[md5]");
    let (folder, left) = sense(&tape(), &how);
    let time = 1_704_067_200;
    let expected = [
        format!("2c/{HELLO}"),
        format!("2c/{HELLO}.{time}.1.json"),
        format!("2c/{HELLO}.{time}.3.json"),
        format!("d9/{OTHER}"),
        format!("d9/{OTHER}.{time}.2.json"),
    ];
    assert_eq!(stored(&folder), expected, "{}", left.text);
    let beside = folder.0.join("filestore").join(&expected[1]);
    let beside: serde_json::Value =
        serde_json::from_slice(&fs::read(beside).expect("there")).expect("JSON");
    assert_eq!(beside["fileinfo"]["sha256"], HELLO);
    assert!(beside["fileinfo"]["md5"].is_string());
    assert_eq!(beside["fileinfo"]["filename"], "/a.exe");
}

#[test]
fn directions_and_scopes() {
    let mut tape = Tape::default();
    let request = |name: &str, body: &str| {
        let length = body.len();
        format!("POST /{name} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let said = [
        request("first", "one"),
        answer("hello"),
        request("second", "two"),
        answer("other"),
        request("third", "three"),
        answer("last"),
    ];
    let said: Vec<&[u8]> = said.iter().map(String::as_bytes).collect();
    tape.session(([192, 0, 2, 1], 9), ([192, 0, 2, 2], 80), &said);
    for (option, count) in [
        ("filestore", 1),
        ("filestore:request", 1),
        ("filestore:both", 2),
        ("filestore:to_client,tx", 1),
        ("filestore:both,flow", 4),
        ("filestore:response,ssn", 2),
    ] {
        let rule = format!(
            "alert http any any -> any any (msg:\"m\"; http.uri; content:\"second\"; {option}; sid:1;)\n"
        );
        let (folder, left) = sense(&tape, &how(&rule));
        assert_eq!(stored(&folder).len(), count, "{option}: {}", left.text);
    }
}

#[test]
fn long_files_and_files_that_break_off() {
    let mut tape = Tape::default();
    let body = "x".repeat(600_000);
    let whole = answer(&body);
    for (port, said) in [(1, whole.clone()), (2, whole.replace("600000", "700000"))] {
        let mut turns: Vec<&[u8]> = vec![b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n"];
        // What does not fit into a window waits for an acknowledgement.
        for part in said.as_bytes().chunks(40_000) {
            turns.extend([part, b""]);
        }
        tape.session(([192, 0, 2, 1], port), ([192, 0, 2, 2], 80), &turns);
    }
    let how = how("").set("outputs.2.file-store.force-filestore=yes");
    let (folder, left) = sense(&tape, &how);
    let files = left.of("fileinfo");
    assert_eq!(files[0]["fileinfo"]["state"], "CLOSED");
    assert_eq!(files[1]["fileinfo"]["state"], "TRUNCATED");
    // Both are the same bytes.
    let [name] = &stored(&folder)[..] else {
        panic!("one file: {}", left.text);
    };
    assert_eq!(files[1]["fileinfo"]["sha256"], name[3..]);
    let bytes = fs::read(folder.0.join("filestore").join(name)).expect("there");
    assert_eq!(bytes.len(), 600_000);
}
