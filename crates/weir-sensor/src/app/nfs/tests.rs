//! Calls and answers by hand, over both carriers.

use super::*;
use crate::app::probe::Ports;
use crate::app::tests::{converse_all, wanted};

const PORTS: Ports = Ports {
    client: 700,
    server: 2049,
};

fn words(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|n| n.to_be_bytes()).collect()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut all = words(&[bytes.len() as u32]);
    all.extend_from_slice(bytes);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

fn call(number: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let credentials = [words(&[9]), opaque(b"box"), words(&[1000, 100, 0])].concat();
    [
        words(&[number, 0, 2, 100_003, version, procedure, 1]),
        opaque(&credentials),
        words(&[0, 0]),
        arguments.to_vec(),
    ]
    .concat()
}

fn answer(number: u32, result: &[u8]) -> Vec<u8> {
    [&words(&[number, 1, 0, 0, 0, 0])[..], result].concat()
}

fn marked(message: &[u8]) -> Vec<u8> {
    [
        &(0x8000_0000 | message.len() as u32).to_be_bytes()[..],
        message,
    ]
    .concat()
}

fn read_result(last: bool, data: &[u8]) -> Vec<u8> {
    let head = words(&[0, 0, data.len() as u32, last.into()]);
    [head, opaque(data)].concat()
}

/// A file is looked up, read in two pieces, and another one written and committed.
fn session() -> Vec<(Direction, Vec<u8>)> {
    let long = |n: u64| n.to_be_bytes().to_vec();
    let read = |at: u64| [opaque(b"HANDLE01"), long(at), words(&[4096])].concat();
    let write = [opaque(b"HANDLE02"), long(0), words(&[3, 0]), opaque(b"new")].concat();
    let big = vec![b'x'; 3000];
    vec![
        (
            ToServer,
            call(1, 3, 3, &[opaque(b"ROOT"), opaque(b"evil.exe")].concat()),
        ),
        (
            ToClient,
            answer(
                1,
                &[words(&[0]), opaque(b"HANDLE01"), words(&[0, 0])].concat(),
            ),
        ),
        (ToServer, call(2, 3, 6, &read(0))),
        (ToClient, answer(2, &read_result(false, &big))),
        (ToServer, call(3, 3, 6, &read(3000))),
        (ToClient, answer(3, &read_result(true, b"end"))),
        (ToServer, call(4, 3, 7, &write)),
        (ToClient, answer(4, &words(&[0]))),
        (
            ToServer,
            call(
                5,
                3,
                21,
                &[opaque(b"HANDLE02"), long(0), words(&[0])].concat(),
            ),
        ),
        (ToClient, answer(5, &words(&[0]))),
        (
            ToServer,
            call(6, 3, 12, &[opaque(b"ROOT"), opaque(b"none")].concat()),
        ),
        (ToClient, answer(6, &words(&[2]))),
    ]
}

fn check(all: &[&Transaction]) {
    let [lookup, read, write, commit, remove] = all else {
        panic!("{} transactions", all.len());
    };
    assert!(all.iter().all(|t| t.done));
    assert_eq!(lookup.record["filename"], "evil.exe");
    assert_eq!(lookup.record["status"], "OK");
    assert_eq!(lookup.beside["rpc"]["creds"]["machine_name"], "box");
    assert_eq!(read.record["read"]["chunks"], 2);
    let file = &read.files[0];
    assert_eq!(
        (file.name.as_slice(), file.size, file.whole),
        (&b"evil.exe"[..], 3003, true)
    );
    let data: Vec<_> = read.get(Buffer::FileData, ToClient).collect();
    assert!(data[0].ends_with(b"xend"));
    assert_eq!((write.files[0].size, write.files[0].whole), (3, true));
    assert_eq!(write.record["write"]["last"], true);
    assert_eq!(commit.record["procedure"], "COMMIT");
    assert_eq!(remove.record["status"], "ERR_NOENT");
    assert!(all.iter().all(|t| is_told(t)));
}

#[test]
fn calls_and_files_over_streams() {
    let parts: Vec<_> = session()
        .into_iter()
        .map(|(d, m)| (d, marked(&m)))
        .collect();
    let parts: Vec<_> = parts.iter().map(|(d, m)| (*d, m.as_slice())).collect();
    let c = converse_all(&parts, PORTS);
    assert_eq!(c.app(), App::Nfs);
    check(&c.transactions.live.iter().collect::<Vec<_>>());
}

#[test]
fn calls_and_files_over_datagrams() {
    let (mut nfs, mut out) = (Nfs::new(&wanted(), false), Transactions::default());
    for (d, message) in session() {
        nfs.data(d, &message, 1, &mut out);
    }
    check(&out.live.iter().collect::<Vec<_>>());
}

#[test]
fn the_other_versions() {
    let (mut nfs, mut out) = (Nfs::new(&wanted(), false), Transactions::default());
    let compound = [
        opaque(b""),
        words(&[0, 3, 22]),
        opaque(b"HANDLE01"),
        words(&[15]),
        opaque(b"sub"),
        words(&[28]),
        opaque(b"old"),
    ]
    .concat();
    nfs.data(ToServer, &call(1, 4, 1, &compound), 1, &mut out);
    nfs.data(ToClient, &answer(1, &words(&[0])), 1, &mut out);
    nfs.data(ToServer, &call(2, 2, 17, &[7; 32]), 1, &mut out);
    nfs.data(ToClient, &answer(2, &words(&[70])), 1, &mut out);
    nfs.data(ToServer, b"\0\0\0\x01\0\0\0\0\0", 1, &mut out);
    let facts: Vec<_> = out.live[0].facts(PROCEDURE).collect();
    assert_eq!(facts, [28, 15, 22]);
    assert_eq!(out.live[0].record["procedure"], "REMOVE");
    assert_eq!(out.live[1].record["procedure"], "STATFS");
    assert_eq!(out.live[1].record["status"], "ERR_STALE");
    assert_eq!(out.live[2].events, ["malformed_data"]);
}

#[test]
fn a_hole_and_the_bounds() {
    let (mut nfs, mut out) = (Nfs::new(&wanted(), false), Transactions::default());
    for n in 0..2000u32 {
        let handle = [&n.to_be_bytes()[..], &[1; 60]].concat();
        let arguments = [opaque(&handle), words(&[0, 5, 9])].concat();
        nfs.data(ToServer, &call(n, 3, 6, &arguments), 1, &mut out);
        nfs.data(
            ToClient,
            &answer(n, &read_result(true, b"part")),
            1,
            &mut out,
        );
        nfs.data(ToServer, &call(n, 3, 1, &opaque(&handle)), 1, &mut out);
        assert!(nfs.memory() < 256 << 10);
    }
    let files: Vec<_> = out.live.iter().filter_map(|t| t.files.first()).collect();
    assert!(!files.is_empty() && files.iter().all(|f| !f.whole));
}
