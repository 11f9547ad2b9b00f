//! Files and the connections that carry them: sums, data connections of FTP and their announcements, how far streams are followed.

use super::bed::{CLIENT, How, SERVER, Tape, counts, sense_tape};

#[test]
fn files_are_known_by_their_sums() {
    let rules = "alert http any any -> any any (msg:\"m\"; filemd5:md5; sid:1;)\n\
        alert http any any -> any any (msg:\"m\"; filesha1:sha1; sid:2;)\n\
        alert http any any -> any any (msg:\"m\"; filesha256:\"sha256\"; sid:3;)\n\
        alert http any any -> any any (msg:\"m\"; filemd5:!other; sid:4;)\n\
        alert http any any -> any any (msg:\"m\"; filemd5:other; sid:5;)\n\
        alert http any any -> any any (msg:\"m\"; filesha1:!sha1; sid:6;)\n";
    let how = || How {
        beside: vec![
            ("md5", "5d41402abc4b2a76b9719d911017c592  hello.txt\n"),
            ("sha1", "# sums\naaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d\n"),
            (
                "sha256",
                "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\n",
            ),
            ("other", "00000000000000000000000000000000\n"),
        ],
        ..How::rules(rules)
    };
    let mut tape = Tape::default();
    let get = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    tape.session((CLIENT, 41_003), (SERVER, 80), &[get, answer]);
    // Not less is known of a file whose body is longer than what is inspected.
    let limit = "app-layer.protocols.http.libhtp.default-config.response-body-limit=2";
    for how in [how(), how().set(limit)] {
        let left = sense_tape(&tape, &how);
        assert_eq!(left.sids(), [1, 2, 3, 4], "{}", left.text);
    }
}

/// A control connection and, after it has said so, the data connection; in time order, as a capture has them.
fn transfer(said: &[&[u8]], opener: [u8; 4], listener: ([u8; 4], u16), data: &[&[u8]]) -> Tape {
    let mut tape = Tape::default();
    tape.session((CLIENT, 41_000), (SERVER, 21), said);
    tape.session((opener, 20_020), listener, data);
    tape
}

const FTP_RULES: &str = "\
    alert ftp-data any any -> any any (msg:\"m\"; flow:established,to_client; ftpdata_command:retr; sid:1;)\n\
    alert ftp-data any any -> any any (msg:\"m\"; flow:to_client; file.data; content:\"root\"; sid:2;)\n\
    alert ftp-data any any -> any any (msg:\"m\"; flow:to_server; file.data; content:\"root\"; sid:3;)\n\
    alert ftp-data any any -> any any (msg:\"m\"; file.data; content:\"root\"; sid:4;)\n\
    alert ftp-data any any -> any any (msg:\"m\"; ftpdata_command:stor; flow:to_server; sid:5;)\n\
    alert ftp any any -> any any (msg:\"m\"; ftp.mode:passive; sid:6;)\n\
    alert ftp any any -> any any (msg:\"m\"; ftp.dynamic_port:2000; sid:7;)\n";

#[test]
fn data_connections_are_known_by_their_announcement() {
    // The client speaks first in a session of the bed: an empty line stands for waiting.
    let said: &[&[u8]] = &[
        b"\r\n",
        b"220 here\r\n",
        b"USER me\r\n",
        b"230 in\r\n",
        b"PASV\r\n",
        b"227 go (198,51,100,80,7,208)\r\n",
        b"RETR passwd\r\n",
        b"150 opening\r\n226 done\r\n",
    ];
    let tape = transfer(said, CLIENT, (SERVER, 2000), &[b"", b"root:x:0:0"]);
    let left = sense_tape(&tape, &How::rules(FTP_RULES));
    let found = counts(&left.of("alert"));
    assert_eq!(
        found.iter().map(|f| f.0).collect::<Vec<_>>(),
        [1, 2, 4, 6, 7],
        "{}",
        left.text
    );
    assert!(found.iter().filter(|f| f.0 < 6).all(|f| f.1 == 1));
    for alert in left
        .of("alert")
        .iter()
        .filter(|a| a["app_proto"] == "ftp-data")
    {
        assert_eq!(alert["ftp_data"]["command"], "RETR");
        assert_eq!(alert["ftp_data"]["filename"], "passwd");
    }
    let data = left.of("ftp_data");
    assert_eq!(data.len(), 1, "{}", left.text);
    assert_eq!(data[0]["src_ip"], "192.168.1.10");
    let file = left.of("fileinfo");
    assert_eq!(file.len(), 1);
    assert_eq!(file[0]["fileinfo"]["filename"], "passwd");
    assert_eq!(file[0]["fileinfo"]["state"], "CLOSED");
    assert_eq!(file[0]["app_proto"], "ftp-data");
    assert_eq!(left.summary.counters["app_layer.flow.ftp-data"], 1);
    let commands: Vec<_> = left.of("ftp").iter().map(|r| r["ftp"].clone()).collect();
    let of = |name: &str| commands.iter().find(|c| c["command"] == name).expect(name);
    assert_eq!(of("USER")["reply"][0], "in");
    assert_eq!(of("USER")["completion_code"][0], "230");
    assert_eq!(of("USER")["reply_received"], "yes");
    assert_eq!(of("USER")["command_truncated"], false);
    assert_eq!(of("PASV")["dynamic_port"], 2000);
}

#[test]
fn active_data_connections_come_from_the_server() {
    let said: &[&[u8]] = &[
        b"\r\n",
        b"220 here\r\n",
        b"PORT 192,168,1,10,7,208\r\n",
        b"200 ok\r\n",
        b"STOR up\r\n",
        b"150 send\r\n226 done\r\n",
    ];
    // Who opens the data connection is its client: what the user sends goes to that client.
    let tape = transfer(said, SERVER, (CLIENT, 2000), &[b"", b"root:x:0:0"]);
    let left = sense_tape(&tape, &How::rules(FTP_RULES));
    let found: Vec<u64> = counts(&left.of("alert")).iter().map(|f| f.0).collect();
    assert_eq!(found, [2, 4, 5, 7], "{}", left.text);
    let data = left.of("ftp_data");
    assert_eq!(data.len(), 1);
    assert_eq!(data[0]["src_ip"], "198.51.100.80");
    assert_eq!(data[0]["ftp_data"]["command"], "STOR");
    // An address of a third host is not believed.
    let said: &[&[u8]] = &[
        b"\r\n",
        b"220 here\r\n",
        b"PORT 203,0,113,9,7,208\r\n",
        b"200 ok\r\n",
        b"STOR up\r\n",
        b"150 send\r\n",
    ];
    let tape = transfer(said, SERVER, (CLIENT, 2000), &[b"", b"root:x:0:0"]);
    let left = sense_tape(&tape, &How::rules(FTP_RULES));
    assert!(left.of("ftp_data").is_empty());
}

#[test]
fn a_client_that_has_data_sent_to_others() {
    for (port, expected) in [("9,9,9,9,0,80", &[1, 2][..]), ("192,168,1,10,0,80", &[])] {
        let port = format!("PORT {port}\r\n");
        let said: &[&[u8]] = &[b"", b"220 hi\r\n", port.as_bytes(), b"200 ok\r\n"];
        let mut tape = Tape::default();
        tape.session((CLIENT, 40_021), (SERVER, 21), said);
        let rules = "alert tcp any any -> any any (msg:\"m\"; ftpbounce; sid:1;)\n\
            alert ftp any any -> any any (msg:\"m\"; flow:to_server; ftpbounce; sid:2;)\n";
        let left = sense_tape(&tape, &How::rules(rules));
        assert_eq!(left.sids(), expected, "{}", left.text);
    }
}

#[test]
fn commands_that_are_too_long() {
    let mut long = b"RETR ".to_vec();
    long.resize(5000, b'a');
    long.extend_from_slice(b"\r\n");
    let said: &[&[u8]] = &[
        b"\r\n",
        b"220 here\r\n",
        &long,
        b"500 no\r\n",
        b"RETR index.html\r\n",
        b"550 no\r\n",
    ];
    let mut tape = Tape::default();
    tape.session((CLIENT, 41_000), (SERVER, 21), said);
    let rules = "alert ftp any any -> any any (msg:\"m\"; flow:to_server; app-layer-event:ftp.request_command_too_long; sid:1;)\n";
    let left = sense_tape(&tape, &How::rules(rules));
    assert_eq!(left.sids(), [1], "{}", left.text);
    let retr: Vec<_> = left
        .of("ftp")
        .iter()
        .map(|r| r["ftp"].clone())
        .filter(|f| f["command"] == "RETR")
        .collect();
    assert_eq!(retr.len(), 2);
    assert_eq!(retr[0]["command_truncated"], true);
    assert_eq!(retr[0]["command_data"].as_str().map(str::len), Some(4091));
    assert_eq!(retr[1]["command_truncated"], false);
    let anomalies = left.of("anomaly");
    assert_eq!(anomalies.len(), 1);
    assert_eq!(anomalies[0]["anomaly"]["event"], "request_command_too_long");
}

#[test]
fn lines_of_ftp_as_long_as_is_set() {
    let said: &[&[u8]] = &[
        b"",
        b"220 here\r\n",
        b"RETR aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
        b"550 no\r\n",
    ];
    let mut tape = Tape::default();
    tape.session((CLIENT, 41_000), (SERVER, 21), said);
    let how = How::rules("").set("app-layer.protocols.ftp.max-line-length=20");
    let left = sense_tape(&tape, &how);
    let (greeting, retr) = (left.of("ftp")[0], left.of("ftp")[1]);
    // The greeting is logged with the packet that takes it, not with the first command.
    assert_eq!(
        (&greeting["pcap_cnt"], &greeting["ftp"]["reply"][0]),
        (&6.into(), &"here".into())
    );
    assert_eq!(retr["ftp"]["command_truncated"], true);
    assert_eq!(retr["ftp"]["command_data"], "aaaaaaaaaaaaaaa");
}

/// The state that the only file ends in, by the log.
fn state_of_file(tape: &Tape, depth: &str) -> (String, u64) {
    let how = How::rules("").set(&format!("stream.reassembly.depth={depth}"));
    let left = sense_tape(tape, &how);
    let files = left.of("fileinfo");
    assert_eq!(files.len(), 1, "{}", left.text);
    let file = &files[0]["fileinfo"];
    let state = file["state"].as_str().expect("a state").to_owned();
    (state, file["size"].as_u64().expect("a size"))
}

#[test]
fn a_file_beyond_the_depth_of_its_stream_is_truncated() {
    let said: &[&[u8]] = &[
        b"\r\n",
        b"220 here\r\n",
        b"PASV\r\n",
        b"227 go (198,51,100,80,7,208)\r\n",
        b"RETR all\r\n",
        b"150 opening\r\n226 done\r\n",
    ];
    let data = [b'x'; 1000];
    let turns: Vec<&[u8]> = [&b""[..], &data].repeat(8);
    let tape = transfer(said, CLIENT, (SERVER, 2000), &turns);
    assert_eq!(state_of_file(&tape, "1mb"), ("CLOSED".into(), 8000));
    assert_eq!(state_of_file(&tape, "4000"), ("TRUNCATED".into(), 4000));
}

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// A message of SMB 2 about the tree 5.
fn smb(command: u8, response: bool, number: u64, body: &[u8]) -> Vec<u8> {
    let mut message = b"\xfeSMB\x40\0\0\0\0\0\0\0".to_vec();
    message.extend_from_slice(&[command, 0, 1, 0, u8::from(response), 0, 0, 0, 0, 0, 0, 0]);
    message.extend_from_slice(&number.to_le_bytes());
    message.extend_from_slice(&[0, 0, 0, 0, 5, 0, 0, 0]);
    message.resize(64, 0);
    message.extend_from_slice(body);
    [&(message.len() as u32).to_be_bytes()[..], &message].concat()
}

/// A request for a share, and its answer.
fn share(number: u64) -> [Vec<u8>; 2] {
    let path = wide("\\\\a\\b");
    let body = [&[9, 0, 0, 0, 72, 0, path.len() as u8, 0][..], &path].concat();
    let answer = [16, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    [smb(3, false, number, &body), smb(3, true, number, &answer)]
}

#[test]
fn streams_of_smb_are_followed_farther_than_others() {
    let turns: Vec<Vec<u8>> = (0..30).flat_map(share).collect();
    let turns: Vec<&[u8]> = turns.iter().map(Vec::as_slice).collect();
    let mut tape = Tape::default();
    tape.session((CLIENT, 41_000), (SERVER, 445), &turns);
    let records = |settings: &[&str]| {
        let how = settings.iter().fold(How::rules(""), |how, s| how.set(s));
        sense_tape(&tape, &how).of("smb").len()
    };
    let short = "stream.reassembly.depth=1000";
    assert_eq!(records(&[short]), 30);
    let limited = records(&[short, "app-layer.protocols.smb.stream-depth=2000"]);
    assert!((15..30).contains(&limited), "{limited}");
}

#[test]
fn records_of_smb_are_of_the_types_that_are_asked_for() {
    let echo = [
        smb(13, false, 9, &[4, 0, 0, 0]),
        smb(13, true, 9, &[4, 0, 0, 0]),
    ];
    let logoff = [
        smb(2, false, 10, &[4, 0, 0, 0]),
        smb(2, true, 10, &[4, 0, 0, 0]),
    ];
    let turns: Vec<Vec<u8>> = [share(1), echo, logoff].into_iter().flatten().collect();
    let turns: Vec<&[u8]> = turns.iter().map(Vec::as_slice).collect();
    let mut tape = Tape::default();
    tape.session((CLIENT, 41_000), (SERVER, 445), &turns);
    let records = |types: &str| {
        let how = How::rules("").set("outputs.1.fast.enabled=yes");
        let how = how.set(&format!("outputs.0.eve-log.types.smb.{types}"));
        let left = sense_tape(&tape, &how);
        let all = left.of("smb").into_iter();
        all.map(|r| r["smb"]["command"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    let (connect, logoff) = ("SMB2_COMMAND_TREE_CONNECT", "SMB2_COMMAND_SESSION_LOGOFF");
    assert_eq!(records("enabled=yes"), [connect, logoff]);
    assert_eq!(records("types=[tree_connect, negotiate]"), [connect]);
    assert_eq!(records("types=[generic]"), [logoff]);
    assert!(records("types=[file]").is_empty());
}

#[test]
fn files_over_smb_are_files() {
    let id = [7; 16];
    let open = |number, name: &str| {
        let name = wide(name);
        let mut body = vec![57, 0];
        body.resize(44, 0);
        body.extend_from_slice(&[64 + 56, 0, name.len() as u8, 0]);
        body.resize(56, 0);
        body.extend_from_slice(&name);
        let mut answer = vec![89, 0];
        answer.resize(64, 0);
        answer.extend_from_slice(&id);
        answer.resize(88, 0);
        [smb(5, false, number, &body), smb(5, true, number, &answer)]
    };
    let write = |number, offset: u64, bytes: &[u8]| {
        let mut body = vec![49, 0, 112, 0, bytes.len() as u8, 0, 0, 0];
        body.extend_from_slice(&offset.to_le_bytes());
        body.extend_from_slice(&id);
        body.resize(48, 0);
        body.extend_from_slice(bytes);
        let answer = [17, 0, 0, 0, bytes.len() as u8, 0, 0, 0];
        [smb(9, false, number, &body), smb(9, true, number, &answer)]
    };
    let read = |number, bytes: &[u8]| {
        let mut body = vec![49, 0, 80, 0, 0, 1, 0, 0];
        body.resize(16, 0);
        body.extend_from_slice(&id);
        body.resize(49, 0);
        let mut answer = vec![17, 0, 80, 0, bytes.len() as u8, 0, 0, 0];
        answer.resize(16, 0);
        answer.extend_from_slice(bytes);
        [smb(8, false, number, &body), smb(8, true, number, &answer)]
    };
    let close = |number| {
        let body = [&[24, 0, 0, 0, 0, 0, 0, 0][..], &id].concat();
        [smb(6, false, number, &body), smb(6, true, number, &[60, 0])]
    };
    let turns = [
        share(1),
        open(2, "d\\up.exe"),
        write(3, 6, b"world"),
        write(4, 0, b"hello "),
        close(5),
        open(6, "down.txt"),
        read(7, b"hello"),
        close(8),
        // Opened, and nothing more.
        open(9, "other.exe"),
        close(10),
    ];
    let turns: Vec<&[u8]> = turns.iter().flatten().map(Vec::as_slice).collect();
    let mut tape = Tape::default();
    tape.session((CLIENT, 41_000), (SERVER, 445), &turns);
    let rules = "\
        alert smb any any -> any any (msg:\"m\"; flow:to_server; file.data; content:\"hello world\"; startswith; endswith; sid:1;)\n\
        alert smb any any -> any any (msg:\"m\"; flow:to_client; file.data; content:\"hello\"; bsize:5; sid:2;)\n\
        alert smb any any -> any any (msg:\"m\"; file.name; content:\".exe\"; endswith; sid:3;)\n\
        alert smb any any -> any any (msg:\"m\"; filemd5:md5; sid:4;)\n\
        alert smb any any -> any any (msg:\"m\"; file.name; content:\"down\"; file.data; content:\"world\"; sid:5;)\n\
        alert smb any any -> any any (msg:\"m\"; flow:to_client; file.data; content:!\"world\"; sid:6;)\n\
        alert tcp any any -> any any (msg:\"m\"; filesize:11; sid:7;)\n\
        alert smb any any -> any any (msg:\"m\"; app-layer-event:smb.file_overlap; sid:8;)\n";
    for workers in [1, 3] {
        let how = How {
            beside: vec![("md5", "5d41402abc4b2a76b9719d911017c592\n")],
            ..How::rules(rules).workers(workers)
        };
        let left = sense_tape(
            &tape,
            &how.set("outputs.0.eve-log.types.files.force-hash=[md5]")
                .set("outputs.0.eve-log.types.alert.enabled=yes")
                .set("outputs.1.fast.enabled=yes"),
        );
        assert_eq!(
            counts(&left.of("alert")),
            [(1, 1), (2, 1), (3, 1), (4, 1), (6, 1), (7, 1)],
            "{}",
            left.text
        );
        let files = left.of("fileinfo");
        let said: Vec<_> = files
            .iter()
            .map(|f| {
                assert_eq!(
                    (&f["app_proto"], &f["smb"]["share"]),
                    (&"smb".into(), &r"\\a\b".into())
                );
                let of = &f["fileinfo"];
                let text = |key: &str| of[key].as_str().unwrap_or_default().to_owned();
                (
                    text("filename"),
                    of["size"].as_u64(),
                    text("state"),
                    text("md5"),
                    f["src_port"].as_u64(),
                )
            })
            .collect();
        let file = |name: &str, size, md5: &str, port| {
            (
                name.to_owned(),
                Some(size),
                "CLOSED".to_owned(),
                md5.to_owned(),
                Some(port),
            )
        };
        assert_eq!(
            said,
            [
                file("d\\up.exe", 11, "5eb63bbbe01eeed093cb22bb8f5acdc3", 41_000),
                file("down.txt", 5, "5d41402abc4b2a76b9719d911017c592", 445)
            ]
        );
    }
}

/// Parts of files that the server calls so, over one connection or several, are put together: sums are those of the whole file.
#[test]
fn parts_of_a_file_are_put_together() {
    let file: Vec<u8> = (0..90_000_u32).map(|n| (n * 7 + n / 251) as u8).collect();
    let part = |first: usize, end: usize| {
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {first}-{}/{}\r\n\r\n",
            end - first,
            end - 1,
            file.len()
        );
        [head.as_bytes(), &file[first..end]].concat()
    };
    let ask = b"GET /f.bin HTTP/1.1\r\nHost: a\r\n\r\n";
    let other = b"GET /g.bin HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut tape = Tape::default();
    let two = [part(60_000, 90_000), part(0, 20_000)];
    tape.session(
        (CLIENT, 40_000),
        (SERVER, 80),
        &[ask, &two[0], ask, &two[1]],
    );
    // The same place of another file is none of this one.
    tape.session(
        (CLIENT, 40_001),
        (SERVER, 80),
        &[other, &part(10_000, 70_000)],
    );
    tape.session(
        (CLIENT, 40_002),
        (SERVER, 8080),
        &[ask, &part(10_000, 70_000)],
    );
    let how = How::rules("")
        .set("outputs.0.eve-log.types.0.files.force-hash.0=md5")
        .set("outputs.1.fast.enabled=yes");
    let left = sense_tape(&tape, &how);
    let files: Vec<_> = left.of("fileinfo");
    let whole: Vec<_> = files
        .iter()
        .filter(|f| f["fileinfo"]["size"] == 90_000)
        .collect();
    assert_eq!((files.len(), whole.len()), (5, 1), "{}", left.text);
    let f = &whole[0]["fileinfo"];
    assert_eq!(f["filename"], "/f.bin");
    assert_eq!(f["state"], "CLOSED");
    assert!(f.get("start").is_none() && f.get("end").is_none(), "{f}");
    let mut sum = String::new();
    for byte in <md5::Md5 as md5::Digest>::digest(&file) {
        sum += &format!("{byte:02x}");
    }
    assert_eq!(f["md5"], sum.as_str());
    assert_eq!(whole[0]["src_port"], 8080);
    super::schema::hold(left.eve.iter());
    for workers in [2, 4] {
        let many = sense_tape(&tape, &how.clone().workers(workers));
        assert_eq!(left.text, many.text, "{workers} workers");
    }
    // With no room for what waits, there is no whole file.
    let none = sense_tape(
        &tape,
        &how.set("app-layer.protocols.http.byterange.memcap=0"),
    );
    assert_eq!(none.of("fileinfo").len(), 4, "{}", none.text);
}
