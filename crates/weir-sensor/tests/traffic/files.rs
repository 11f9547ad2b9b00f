//! Capture files as a source: held to the streaming reader of weir-packet, packet by packet; cut, grown and missing files.

use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use weir_packet::build::Frame;
use weir_packet::pcap::{Capture, Writer};
use weir_sensor::source::{Batch, FileOptions, Files, Filled, Source};

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("weir-files-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder");
    path
}

fn capture(frames: u8) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    for n in 0..frames {
        let frame = Frame::new()
            .ip4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(1, 2)
            .payload(&vec![n; usize::from(n) * 40])
            .build();
        writer
            .write(
                1_700_000_000_000_000_000 + u64::from(n),
                &frame,
                frame.len() as u32,
            )
            .expect("memory");
    }
    writer.finish().expect("memory")
}

/// Time, bytes, length on the wire, link type.
type Seen = (u64, Vec<u8>, u32, u16);

fn read(files: &mut Files) -> Vec<Seen> {
    let (mut batch, mut seen) = (Batch::default(), Vec::new());
    loop {
        batch.clear();
        match files.fill(&mut batch).expect("a source") {
            Filled::Frames => {}
            Filled::Idle | Filled::End => return seen,
        }
        seen.extend(
            batch
                .frames
                .iter()
                .map(|f| (f.time, batch.bytes(f).to_vec(), f.wire, f.link)),
        );
    }
}

fn reference(path: &Path) -> (Vec<Seen>, bool) {
    let mut seen = Vec::new();
    let Ok(mut capture) = Capture::open(BufReader::new(File::open(path).expect("there"))) else {
        return (seen, false);
    };
    loop {
        match capture.next_packet() {
            Ok(Some(p)) => seen.push((
                p.timestamp_ns,
                p.data.to_vec(),
                p.original_len.max(p.data.len() as u32),
                p.interface.link_type.0,
            )),
            Ok(None) => return (seen, true),
            Err(_) => return (seen, false),
        }
    }
}

fn captures(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            captures(&path, found);
        } else if path
            .extension()
            .is_some_and(|e| e == "pcap" || e == "pcapng" || e == "cap" || e == "trace")
        {
            found.push(path);
        }
    }
}

#[test]
fn every_capture_reads_as_the_streaming_reader_reads_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    if let Some(data) = weir_testdata::find("") {
        captures(&data, &mut found);
    }
    captures(&root.join("tests"), &mut found);
    captures(&root.join("fuzz/corpus/pcap_reader"), &mut found);
    let (mut packets, mut broken) = (0, 0);
    for path in &found {
        let mut files =
            Files::open(std::slice::from_ref(path), FileOptions::default()).expect("there");
        let seen = read(&mut files);
        let whole = files.problems().is_empty();
        let (expected, whole_expected) = reference(path);
        assert!(
            seen == expected,
            "{}: {} packets, {} expected",
            path.display(),
            seen.len(),
            expected.len()
        );
        assert_eq!(whole, whole_expected, "{}", path.display());
        packets += seen.len();
        broken += usize::from(!whole);
    }
    println!(
        "{} captures, {packets} packets, {broken} broken",
        found.len()
    );
}

#[test]
fn several_files_and_directories_are_read_in_order() {
    let folder = folder("order");
    for (name, frames) in [("b.pcap", 2), ("a.pcap", 3), (".hidden", 9)] {
        fs::write(folder.join(name), capture(frames)).expect("written");
    }
    fs::create_dir(folder.join("deep")).expect("made");
    fs::write(folder.join("deep/c.pcap"), capture(4)).expect("written");
    let count = |recursive| {
        let options = FileOptions {
            recursive,
            follow: false,
        };
        read(&mut Files::open(std::slice::from_ref(&folder), options).expect("there")).len()
    };
    assert_eq!((count(false), count(true)), (5, 9));
    let twice = [folder.join("a.pcap"), folder.join("a.pcap")];
    assert_eq!(
        read(&mut Files::open(&twice, FileOptions::default()).expect("there")).len(),
        6
    );
    assert!(Files::open(&[folder.join("none.pcap")], FileOptions::default()).is_err());
    fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_file_may_grow_byte_by_byte_and_be_cut_anywhere() {
    let folder = folder("grow");
    let (path, bytes) = (folder.join("x.pcap"), capture(4));
    let mut file = File::create(&path).expect("made");
    let mut files = Files::open(
        std::slice::from_ref(&path),
        FileOptions {
            recursive: false,
            follow: true,
        },
    )
    .expect("there");
    let mut seen = Vec::new();
    for byte in &bytes {
        file.write_all(&[*byte]).expect("written");
        seen.extend(read(&mut files));
    }
    assert_eq!(seen, reference(&path).0);
    assert!(files.problems().is_empty());
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).expect("written");
        let mut files =
            Files::open(std::slice::from_ref(&path), FileOptions::default()).expect("there");
        let seen = read(&mut files);
        let (expected, whole) = reference(&path);
        assert_eq!(seen, expected);
        assert_eq!(files.problems().is_empty(), whole, "cut at {cut}");
    }
    fs::remove_dir_all(folder).expect("removed");
}
