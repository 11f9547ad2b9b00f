//! Conversations by hand.

use super::message::second_version;
use super::names::{command_name, dialect};
use super::ntlm::Ntlm;
use super::*;
use crate::app::Ports;
use crate::app::tests::converse_all;
use crate::app::transaction::Transaction;

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn second(command: u16, response: bool, number: u64, tree: u32, body: &[u8]) -> Vec<u8> {
    let mut h = b"\xfeSMB\x40\0\0\0".to_vec();
    h.extend_from_slice(&0u32.to_le_bytes());
    h.extend_from_slice(&command.to_le_bytes());
    h.extend_from_slice(&[0, 0]);
    h.extend_from_slice(&u32::from(response).to_le_bytes());
    h.extend_from_slice(&[0; 4]);
    h.extend_from_slice(&number.to_le_bytes());
    h.extend_from_slice(&[0; 4]);
    h.extend_from_slice(&tree.to_le_bytes());
    h.extend_from_slice(&7u64.to_le_bytes());
    h.extend_from_slice(&[0; 16]);
    h.extend_from_slice(body);
    framed(&h)
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes()[..], message].concat()
}

fn connect(number: u64, path: &str) -> Vec<u8> {
    let path = wide(path);
    let body = [
        &[9, 0, 0, 0, 72, 0][..],
        &(path.len() as u16).to_le_bytes(),
        &path,
    ]
    .concat();
    second(3, false, number, 0, &body)
}

#[test]
fn what_has_no_name_is_a_number() {
    assert_eq!(dialect([0x11, 3]), "3.11");
    assert_eq!(dialect([0x99, 9]), "2457");
    let mut b = [0; 64];
    b[..4].copy_from_slice(b"\xfeSMB");
    for (command, name) in [(18, "SMB2_COMMAND_OPLOCK_BREAK"), (48, "48")] {
        b[12] = command;
        assert_eq!(command_name(&second_version(&b).unwrap()), name);
    }
}

#[test]
fn shares_pipes_and_calls() {
    let write = {
        let rpc = [
            &[5, 0, 0, 3, 0x10, 0, 0, 0, 24, 0, 0, 0, 9, 0, 0, 0][..],
            &[0, 0, 0, 0, 0, 0, 15, 0],
        ]
        .concat();
        let mut body = vec![49, 0, 64 + 48, 0];
        body.resize(48, 0);
        body.extend_from_slice(&rpc);
        second(9, false, 3, 5, &body)
    };
    let create = {
        let name = wide("srvsvc");
        let mut body = vec![57, 0];
        body.resize(44, 0);
        body.extend_from_slice(&[64 + 56, 0, name.len() as u8, 0]);
        body.resize(56, 0);
        body.extend_from_slice(&name);
        second(5, false, 4, 5, &body)
    };
    let client = [
        connect(1, "\\\\host\\IPC$"),
        connect(2, "\\\\host\\data"),
        write,
        create,
    ]
    .concat();
    let server = [
        second(3, true, 1, 5, &[16, 0, 2, 0]),
        second(3, true, 2, 6, &[16, 0, 1, 0]),
        second(9, true, 3, 5, &[0; 16]),
    ]
    .concat();
    let c = converse_all(
        &[(ToServer, &client), (ToClient, &server)],
        Ports::default(),
    );
    assert_eq!(c.app(), App::Smb);
    let t = &c.transactions.live;
    let one = |t: &Transaction, b| t.get(b, ToServer).next().map(<[u8]>::to_vec);
    assert_eq!(one(&t[0], Buffer::SmbNamedPipe).unwrap(), b"\\\\host\\IPC$");
    assert_eq!(one(&t[0], Buffer::SmbShare), None);
    assert_eq!(one(&t[1], Buffer::SmbShare).unwrap(), b"\\\\host\\data");
    assert_eq!(t[1].record["status"], "STATUS_SUCCESS");
    assert_eq!(t[1].record["command"], "SMB2_COMMAND_TREE_CONNECT");
    assert_eq!(t[2].facts("dcerpc.opnum").next(), Some(15));
    assert_eq!(t[2].record["dcerpc"]["request"], "REQUEST");
    // Opened is not transferred.
    assert_eq!(one(&t[3], Buffer::FileName), None);
    assert_eq!(t[3].record["filename"], "srvsvc");
    assert!(t.iter().all(|t| t.done));
}

#[test]
fn binds_controls_and_what_comes_later() {
    // An ioctl with data behind its fixed part.
    let control = |number, response, code: u32, data: &[u8]| {
        let mut body = vec![if response { 49 } else { 57 }, 0, 0, 0];
        body.extend_from_slice(&code.to_le_bytes());
        body.resize(24, 0);
        body.extend_from_slice(&120u32.to_le_bytes());
        body.resize(32, 0);
        body.extend_from_slice(&120u32.to_le_bytes());
        body.extend_from_slice(&(data.len() as u32).to_le_bytes());
        body.resize(56, 0);
        body.extend_from_slice(data);
        second(11, response, number, 5, &body)
    };
    let interface = [&[0, 0, 1, 0][..], &[7; 16], &[3, 0, 0, 0], &[8; 20]].concat();
    let head = |kind| [5, 0, kind, 3, 0x10, 0, 0, 0, 72, 0, 0, 0, 1, 0, 0, 0];
    let bind = [&head(11)[..], &[0; 8], &[1, 0, 0, 0], &interface].concat();
    let taken = [
        &head(12)[..],
        &[0; 8],
        &[3, 0, b'p', b'i', 0],
        &[0; 3],
        &[1, 0, 0, 0, 2, 0, 1, 0],
        &[8; 20],
    ]
    .concat();
    let mut later = second(15, true, 3, 5, &[0; 8]);
    // Its length, in front, and its identifier are before the status.
    later[4 + 8..4 + 12].copy_from_slice(&0x103u32.to_le_bytes());
    let client = [
        control(1, false, 0x0011_c017, &bind),
        control(2, false, 0x0011_0018, b""),
        second(15, false, 3, 5, &[0; 32]),
        second(16, false, 4, 5, &[0; 40]),
    ]
    .concat();
    let server = [
        control(1, true, 0x0011_c017, &taken),
        control(2, true, 0x0011_0018, b""),
        later,
    ]
    .concat();
    let c = converse_all(
        &[(ToServer, &client), (ToClient, &server)],
        Ports::default(),
    );
    let t = &c.transactions.live;
    let rpc = &t[0].record["dcerpc"];
    assert_eq!(rpc["response"], "BINDACK");
    assert_eq!(
        (
            &rpc["interfaces"][0]["ack_result"],
            &rpc["interfaces"][0]["ack_reason"]
        ),
        (&2.into(), &1.into())
    );
    assert_eq!(t[1].record["function"], "FSCTL_PIPE_WAIT");
    assert_eq!((t.len(), t[2].record.get("status")), (3, None));
}

/// A call of an accepted interface is written to a pipe; its answer is read in two pieces.
#[test]
fn calls_are_answered_by_what_is_read_of_their_pipe() {
    let pdu = |kind: u8, length: u8, rest: &[u8]| {
        let head = [5, 0, kind, 3, 0x10, 0, 0, 0, length, 0, 0, 0, 7, 0, 0, 0];
        [&head[..], rest].concat()
    };
    let offered = [&[2, 0, 1, 0][..], &[7; 16], &[3, 0, 0, 0], &[8; 20]].concat();
    let bind = pdu(11, 72, &[&[0; 8][..], &[1, 0, 0, 0], &offered].concat());
    let taken = [&[0; 8][..], &[3, 0, b'p', b'i', 0], &[0; 3], &[1, 0, 0, 0]].concat();
    let taken = pdu(12, 60, &[&taken[..], &[0; 24]].concat());
    let call = pdu(0, 28, &[0, 0, 0, 0, 2, 0, 15, 0, b'a', b's', b'k', b's']);
    let answer = pdu(2, 31, b"\0\0\0\0\0\0\0\0answers");
    let begin = [connect(1, "\\\\h\\IPC$"), create(2, "srvsvc")].concat();
    let begun = [second(3, true, 1, 5, &[16, 0, 2, 0]), created(2, ID)].concat();
    let parts = [
        (ToServer, begin),
        (ToClient, begun),
        (
            ToServer,
            [write(3, ID, 0, &bind), read(4, ID, 0, 99)].concat(),
        ),
        (
            ToClient,
            [second(9, true, 3, 5, &[0; 16]), told(4, &taken)].concat(),
        ),
        (
            ToServer,
            [write(5, ID, 0, &call), read(6, ID, 0, 26)].concat(),
        ),
        (
            ToClient,
            [second(9, true, 5, 5, &[0; 16]), told(6, &answer[..26])].concat(),
        ),
        (ToServer, read(7, ID, 0, 99)),
        (ToClient, told(7, &answer[26..])),
    ];
    let parts: Vec<_> = parts.iter().map(|(d, b)| (*d, &b[..])).collect();
    let c = converse_all(&parts, Ports::default());
    let live: Vec<_> = c.transactions.live.iter().collect();
    let [.., bound, called] = live[..] else {
        panic!("{} transactions", live.len());
    };
    assert_eq!(bound.record["dcerpc"]["response"], "BINDACK");
    assert_eq!(bound.record["dcerpc"]["interfaces"][0]["ack_result"], 0);
    let stub = |d| called.get(Buffer::DcerpcStub, d).next().map(<[u8]>::to_vec);
    assert_eq!(stub(ToServer).unwrap(), b"asks");
    assert_eq!(stub(ToClient).unwrap(), b"answers");
    assert_eq!(called.facts("dcerpc.iface.version").next(), Some(3));
    let rpc = &called.record["dcerpc"];
    assert_eq!(
        (&rpc["response"], &rpc["opnum"]),
        (&"RESPONSE".into(), &15.into())
    );
    assert_eq!(rpc["res"]["stub_data_size"], 7);
    assert_eq!(rpc["interfaces"][0]["version"], "3.0");
    assert!(called.done);
}

/// A message of the first version: words, then bytes. Its status is one of DOS, its text of one-byte characters.
fn first(
    command: u8,
    response: bool,
    number: u16,
    status: u32,
    words: &[u16],
    bytes: &[u8],
) -> Vec<u8> {
    let mut h = vec![0xff, b'S', b'M', b'B', command];
    h.extend_from_slice(&status.to_le_bytes());
    h.extend_from_slice(&[if response { 0x80 } else { 0 }, 0, 0]);
    h.resize(30, 0);
    h.extend_from_slice(&number.to_le_bytes());
    h.push(words.len() as u8);
    h.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    h.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    h.extend_from_slice(bytes);
    framed(&h)
}

#[test]
fn ends_of_the_first_version_say_what_they_are() {
    let setup = [0xff, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0];
    let client = [
        first(0x72, false, 1, 0, &[], b"\x02OLD 1.0\0\x02NT LM 0.12\0"),
        first(0x73, false, 2, 0, &setup, b"PPQuser\0DOM\0Sys 1\0Prog 2\0"),
        first(0x75, false, 3, 0, &[0xff, 0, 0, 1], b"\0\\\\h\\IPC$\0IPC\0"),
        first(0x74, false, 4, 0, &[0xff, 0], b""),
    ]
    .concat();
    let mut chosen = [0; 17];
    chosen[0] = 1;
    let server = [
        first(0x72, true, 1, 0, &chosen, b"0123456789abcdef"),
        first(0x73, true, 2, 0, &[0xff, 0, 0], b"Sys 3\0Prog 4\0DOM\0"),
        first(0x75, true, 3, 0, &[0xff, 0, 0], b"IPC\0\0"),
        first(0x74, true, 4, 0x005b_0002, &[0xff, 0], b""),
    ]
    .concat();
    let c = converse_all(
        &[(ToServer, &client), (ToClient, &server)],
        Ports::default(),
    );
    let t = &c.transactions.live;
    assert_eq!(t.len(), 4);
    assert_eq!(t[0].record["dialect"], "NT LM 0.12");
    assert_eq!(
        t[0].record["server_guid"],
        "33323130-3534-3736-3938-626166656463"
    );
    for (side, system, program) in [
        ("request", "Sys 1", "Prog 2"),
        ("response", "Sys 3", "Prog 4"),
    ] {
        let said = &t[1].record[side];
        assert_eq!(
            (&said["native_os"], &said["native_lm"]),
            (&system.into(), &program.into())
        );
    }
    let service = serde_json::json!({"request": "IPC", "response": "IPC"});
    assert_eq!(t[2].record["service"], service);
    assert_eq!(
        (&t[3].record["status"], &t[3].record["status_code"]),
        (&"SRV_BADUID".into(), &"0x005b".into())
    );
    assert_eq!(t[2].record["status"], "STATUS_SUCCESS");
}

#[test]
fn the_first_version_and_its_names() {
    let mut h = b"\xffSMB\x75\0\0\0\0\0\0\x80".to_vec();
    h.resize(32, 0);
    h.extend_from_slice(&[4, 0xff, 0, 0, 0, 0, 0, 1, 0]);
    let bytes = [&[0][..], &wide("\\\\h\\C$\0"), b"?????\0"].concat();
    h.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    h.extend_from_slice(&bytes);
    let c = converse_all(&[(ToServer, &framed(&h))], Ports::default());
    let t = &c.transactions.live[0];
    let share: Vec<_> = t.get(Buffer::SmbShare, ToServer).collect();
    assert_eq!(share, [b"\\\\h\\C$"]);
    let mut auth = b"NTLMSSP\0\x03\0\0\0".to_vec();
    auth.resize(64, 0);
    for (at, text) in [(28, "DOM"), (36, "user"), (44, "HOST")] {
        let w = wide(text);
        auth[at] = w.len() as u8;
        auth[at + 4] = auth.len() as u8;
        auth.extend_from_slice(&w);
    }
    auth[60] = 1;
    let n = Ntlm::find(&auth).unwrap();
    assert_eq!(
        (n.domain, n.user, n.host),
        (b"DOM".to_vec(), b"user".to_vec(), b"HOST".to_vec())
    );
}

/// The handle that most tests use.
const ID: [u8; 16] = [0x46; 16];
/// That of the file that the same compound opens.
const SAME: [u8; 16] = [0xff; 16];

fn create(number: u64, name: &str) -> Vec<u8> {
    let name = wide(name);
    let mut body = vec![57, 0];
    body.resize(44, 0);
    body.extend_from_slice(&[64 + 56, 0, name.len() as u8, 0]);
    body.resize(56, 0);
    body.extend_from_slice(&name);
    second(5, false, number, 5, &body)
}

fn created(number: u64, id: [u8; 16]) -> Vec<u8> {
    let mut body = vec![89, 0];
    body.resize(64, 0);
    body.extend_from_slice(&id);
    body.resize(88, 0);
    second(5, true, number, 5, &body)
}

fn read(number: u64, id: [u8; 16], offset: u64, length: u32) -> Vec<u8> {
    let mut body = vec![49, 0, 80, 0];
    body.extend_from_slice(&length.to_le_bytes());
    body.extend_from_slice(&offset.to_le_bytes());
    body.extend_from_slice(&id);
    body.resize(49, 0);
    second(8, false, number, 5, &body)
}

fn told(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut body = vec![17, 0, 80, 0];
    body.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    body.resize(16, 0);
    body.extend_from_slice(bytes);
    second(8, true, number, 5, &body)
}

fn write(number: u64, id: [u8; 16], offset: u64, bytes: &[u8]) -> Vec<u8> {
    let mut body = vec![49, 0, 112, 0];
    body.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    body.extend_from_slice(&offset.to_le_bytes());
    body.extend_from_slice(&id);
    body.resize(48, 0);
    body.extend_from_slice(bytes);
    second(9, false, number, 5, &body)
}

fn close(number: u64, id: [u8; 16]) -> Vec<u8> {
    let mut body = vec![24, 0, 0, 0, 0, 0, 0, 0];
    body.extend_from_slice(&id);
    second(6, false, number, 5, &body)
}

/// Messages as one compound.
fn compound(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for (n, message) in messages.iter().enumerate() {
        let mut message = message[4..].to_vec();
        if n + 1 < messages.len() {
            message.resize(message.len().next_multiple_of(8), 0);
            let length = message.len() as u32;
            message[20..24].copy_from_slice(&length.to_le_bytes());
        }
        all.extend_from_slice(&message);
    }
    framed(&all)
}

/// A conversation in turns, the client's first, on a share with files; what each of its files says: name, direction, contents, size, and whether it is whole.
fn files(turns: &[Vec<u8>]) -> Vec<(String, Direction, String, u64, bool)> {
    let share = [
        connect(1, "\\\\host\\data"),
        second(3, true, 1, 5, &[16, 0, 1, 0]),
    ];
    let turns = share.iter().chain(turns).enumerate();
    let parts: Vec<(Direction, &[u8])> = turns
        .map(|(n, bytes)| ([ToServer, ToClient][n % 2], bytes.as_slice()))
        .collect();
    let c = converse_all(&parts, Ports::default());
    let live = c.transactions.live.iter();
    live.flat_map(|t| t.files.iter().map(move |f| (t, f)))
        .map(|(t, f)| {
            let contents: Vec<_> = t.get(Buffer::FileData, f.direction).collect();
            assert_eq!(t.record["share"], "\\\\host\\data");
            assert_eq!(
                t.record["filename"],
                String::from_utf8_lossy(&f.name).into_owned()
            );
            (
                String::from_utf8_lossy(&f.name).into_owned(),
                f.direction,
                String::from_utf8_lossy(&contents.concat()).into_owned(),
                f.size,
                f.whole,
            )
        })
        .collect()
}

fn file(d: Direction, contents: &str, whole: bool) -> (String, Direction, String, u64, bool) {
    let size = contents.len() as u64;
    ("f.exe".to_owned(), d, contents.to_owned(), size, whole)
}

#[test]
fn files_are_put_together_in_their_order() {
    let open = [create(2, "f.exe"), created(2, ID)];
    // Written from its end; read in answers that are out of order, the last of them after the request to close.
    let turns = [
        [
            write(3, ID, 6, b"world"),
            write(4, ID, 0, b"hello "),
            read(5, ID, 0, 4),
            read(6, ID, 4, 4),
            close(7, ID),
        ]
        .concat(),
        [told(6, b"4567"), told(5, b"0123")].concat(),
    ];
    assert_eq!(
        files(&[&open[..], &turns].concat()),
        [
            file(ToServer, "hello world", true),
            file(ToClient, "01234567", true)
        ]
    );
    // As long as it is open, its end is not known; an error is no part of it.
    let failed = {
        let mut answer = second(8, true, 4, 5, &[9, 0, 0, 0, 0, 0, 0, 0, 0]);
        answer[4 + 8..4 + 12].copy_from_slice(&0xc000_0011_u32.to_le_bytes());
        answer
    };
    let turns = [
        [read(3, ID, 0, 9), read(4, ID, 3, 9)].concat(),
        [told(3, b"abc"), failed].concat(),
    ];
    let left = files(&[&open[..], &turns].concat());
    assert_eq!(left, [file(ToClient, "abc", false)]);
}

#[test]
fn a_compound_opens_and_reads_its_file() {
    let big = "0123456789abcdef".repeat(4096);
    let turns = [
        compound(&[
            create(2, "f.exe"),
            read(3, SAME, 0, 1 << 20),
            close(4, SAME),
        ]),
        compound(&[
            created(2, ID),
            told(3, big.as_bytes()),
            second(6, true, 4, 5, &[60, 0]),
        ]),
        compound(&[
            create(5, "f.exe"),
            write(6, SAME, 0, b"new"),
            close(7, SAME),
        ]),
    ];
    let left = files(&turns);
    assert_eq!(
        left,
        [file(ToClient, &big, true), file(ToServer, "new", true)]
    );
}

#[test]
fn what_is_missing_of_a_file_is_said() {
    let open = [create(2, "f.exe"), created(2, ID)];
    let of = |writes: &[Vec<u8>]| {
        let turn = [&writes.concat()[..], &close(9, ID)].concat();
        files(&[&open[..], &[turn]].concat())
    };
    // A hole; only what is behind one; what was there before; what would end behind every end.
    let hole = of(&[write(3, ID, 0, b"abc"), write(4, ID, 9, b"xyz")]);
    assert_eq!(hole, [file(ToServer, "abc", false)]);
    assert_eq!(of(&[write(3, ID, 9, b"xyz")]), [file(ToServer, "", false)]);
    let again = of(&[
        write(3, ID, 3, b"def"),
        write(4, ID, 4, b"XXgh"),
        write(5, ID, 0, b"abcYY"),
    ]);
    assert_eq!(again, [file(ToServer, "abcdefgh", true)]);
    // Contents that would begin in the header, or go on behind their message, are none.
    for (at, value) in [(66, 0), (66, 60), (68, 200)] {
        let mut lie = write(3, ID, 0, b"abc");
        lie[4 + at] = value;
        assert_eq!(of(&[lie]), [], "{at}");
    }
    let far = of(&[write(3, ID, 0, b"abc"), write(4, ID, u64::MAX - 1, b"xyz")]);
    assert_eq!(far, [file(ToServer, "abc", false)]);
}

#[test]
fn bytes_that_the_stream_lost_are_gaps_of_the_file() {
    let w = crate::app::tests::wanted();
    let mut smb = Smb::new(&w);
    let mut out = Transactions::default();
    smb.data(ToServer, &create(2, "f.exe"), 0, &mut out);
    smb.data(ToClient, &created(2, ID), 0, &mut out);
    let message = write(3, ID, 0, &[b'x'; 1000]);
    smb.data(ToServer, &message[..500], 0, &mut out);
    smb.gap(ToServer, 100, &mut out);
    smb.data(ToServer, &message[600..], 0, &mut out);
    smb.data(ToServer, &close(4, ID), 0, &mut out);
    assert!(!out.failed);
    let t = &out.live[1];
    let file = &t.files[0];
    assert_eq!((file.size, file.gaps, file.whole), (1000, true, false));
    assert_eq!(
        t.get(Buffer::FileData, ToServer).next().map(<[u8]>::len),
        Some(900)
    );
    assert!(t.done);
}

#[test]
fn pipes_have_no_files() {
    let rpc = [
        &[5, 0, 0, 3, 0x10, 0, 0, 0, 24, 0, 0, 0, 9, 0, 0, 0][..],
        &[0, 0, 0, 0, 0, 0, 15, 0],
    ]
    .concat();
    let count = |path: &str, bytes: &[u8]| {
        let client = [connect(1, path), create(2, "srvsvc")].concat();
        let server = [second(3, true, 1, 5, &[16, 0, 1, 0]), created(2, ID)].concat();
        let more = [write(3, ID, 0, bytes), read(4, ID, 0, 99), close(5, ID)].concat();
        let answer = told(4, b"anything that is an answer");
        let parts = [
            (ToServer, &client[..]),
            (ToClient, &server),
            (ToServer, &more),
            (ToClient, &answer),
        ];
        let c = converse_all(&parts, Ports::default());
        let live = c.transactions.live.iter();
        let calls = live.clone().filter(|t| t.record.contains_key("dcerpc"));
        (live.map(|t| t.files.len()).sum::<usize>(), calls.count())
    };
    assert_eq!(count("\\\\h\\IPC$", &rpc), (0, 1));
    assert_eq!(
        count("\\\\h\\ipc$", b"no call, but long enough for one"),
        (0, 0)
    );
    // Where the beginning was not seen, what looks like a call or its answer is one.
    let answer = [&[5, 0, 2][..], &rpc[3..]].concat();
    let read = [read(4, ID, 0, 99), told(4, &answer)];
    let parts = [(ToServer, &read[0][..]), (ToClient, &read[1])];
    let c = converse_all(&parts, Ports::default());
    assert!(c.transactions.live.is_empty());
    // A file may begin as calls do.
    assert_eq!(count("\\\\h\\d", &rpc), (2, 0));
}

#[test]
fn what_waits_is_bounded() {
    let w = crate::app::tests::wanted();
    let mut smb = Smb::new(&w);
    let mut out = Transactions::default();
    for n in 0..200_u64 {
        let id = [n as u8; 16];
        smb.data(ToServer, &create(n, "f"), 0, &mut out);
        smb.data(ToClient, &created(n, id), 0, &mut out);
        for place in 0..20 {
            smb.data(
                ToServer,
                &write(n, id, 1 + 9000 * place, &[b'x'; 4096]),
                0,
                &mut out,
            );
            smb.data(ToServer, &read(n, id, 0, 9), 0, &mut out);
        }
    }
    assert!(smb.memory() < 3 << 19, "{}", smb.memory());
    let open = out.live.iter().filter(|t| !t.files.is_empty() && !t.done);
    assert_eq!(open.count(), 64);
    smb.end(ToServer, &mut out);
    smb.end(ToClient, &mut out);
    assert!(out.live.iter().all(|t| t.done));
    assert!(smb.memory() < 1 << 17, "{}", smb.memory());
}

#[test]
fn files_of_the_first_version() {
    let first = |command: u8, response: bool, number: u16, words: &[u8], bytes: &[u8]| {
        let mut m = b"\xffSMB".to_vec();
        m.push(command);
        m.extend_from_slice(&[0; 4]);
        m.push(if response { 0x80 } else { 0 });
        m.extend_from_slice(&[0, 0x80]);
        m.resize(24, 0);
        m.extend_from_slice(&[16, 0, 1, 0, 0, 8]);
        m.extend_from_slice(&number.to_le_bytes());
        m.push((words.len() / 2) as u8);
        m.extend_from_slice(words);
        m.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        m.extend_from_slice(bytes);
        framed(&m)
    };
    let connect = first(
        0x75,
        false,
        1,
        &[255, 0, 0, 0, 0, 0, 0, 0],
        &[&[0][..], &wide("\\\\h\\d\0")].concat(),
    );
    let connected = first(0x75, true, 1, &[255, 0, 0, 0, 0, 0], b"A:\0");
    let mut words = [0; 48];
    let name = wide("f.exe");
    words[5] = name.len() as u8;
    let create = first(0xa2, false, 2, &words, &[&[0][..], &name].concat());
    let created = first(0xa2, true, 2, &[255, 0, 0, 0, 0, 7, 0, 0], b"");
    let write = {
        let mut words = [0; 28];
        words[4] = 7;
        // Its length, and where it begins: behind a byte that aligns it.
        words[20] = 5;
        words[22] = 32 + 1 + 28 + 2 + 1;
        first(0x2f, false, 3, &words, b"\0hello")
    };
    let older = first(
        0x0b,
        false,
        4,
        &[7, 0, 6, 0, 5, 0, 0, 0, 0, 0],
        b"\x01\x06\0 world",
    );
    let read = {
        let mut words = [0; 24];
        words[4] = 7;
        first(0x2e, false, 5, &words, b"")
    };
    let told = {
        let mut words = [0; 24];
        words[10] = 3;
        words[12] = 32 + 1 + 24 + 2 + 1;
        first(0x2e, true, 5, &words, b"\0abc")
    };
    let close = first(4, false, 6, &[7, 0, 0, 0, 0, 0], b"");
    let c = converse_all(
        &[
            (ToServer, &[connect, create].concat()),
            (ToClient, &[connected, created].concat()),
            (ToServer, &[write, older, read].concat()),
            (ToClient, &told),
            (ToServer, &close),
        ],
        Ports::default(),
    );
    let live = c.transactions.live.iter().filter(|t| !t.files.is_empty());
    let left: Vec<_> = live
        .map(|t| {
            let f = &t.files[0];
            let data = t
                .get(Buffer::FileData, f.direction)
                .next()
                .unwrap_or_default();
            assert_eq!(
                (&f.name[..], &t.record["fuid"], f.whole),
                (&b"f.exe"[..], &"0007".into(), true)
            );
            (t.record["command"].clone(), data)
        })
        .collect();
    assert_eq!(
        left,
        [
            ("SMB1_COMMAND_WRITE_ANDX".into(), &b"hello world"[..]),
            ("SMB1_COMMAND_READ_ANDX".into(), b"abc")
        ]
    );
}

/// A message of version 1: commands with their words and bytes, each but the last with room for where the next one stands.
fn chain(response: bool, number: u16, tree: u16, commands: &[(u8, Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut m = b"\xffSMB".to_vec();
    m.push(commands[0].0);
    m.extend_from_slice(&[0; 4]);
    m.push(if response { 0x80 } else { 0 });
    // No DOS codes, no wide characters.
    m.extend_from_slice(&0x4000_u16.to_le_bytes());
    m.resize(24, 0);
    m.extend_from_slice(&tree.to_le_bytes());
    m.extend_from_slice(&[0; 2]);
    m.extend_from_slice(&7_u16.to_le_bytes());
    m.extend_from_slice(&number.to_le_bytes());
    for (at, (_, words, bytes)) in commands.iter().enumerate() {
        let mut words = words.clone();
        let end = m.len() + 1 + words.len() + 2 + bytes.len();
        if words.len() >= 4 {
            match commands.get(at + 1) {
                Some((next, ..)) => {
                    words[0] = *next;
                    words[2..4].copy_from_slice(&(end as u16).to_le_bytes());
                }
                None => words[0] = 0xff,
            }
        }
        m.push((words.len() / 2) as u8);
        m.extend_from_slice(&words);
        m.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        m.extend_from_slice(bytes);
    }
    framed(&m)
}

/// Setting up a session and connecting in one message, opening a file and reading it in the next.
#[test]
fn commands_that_are_chained() {
    let setup = (0x73, vec![0; 26], b"\0\0\0\0".to_vec());
    let connect = (0x75, vec![0; 8], b"\\\\host\\data\0?????\0".to_vec());
    let open = |name: &[u8]| {
        let mut words = vec![0; 48];
        words[5..7].copy_from_slice(&(name.len() as u16).to_le_bytes());
        (0xa2, words, name.to_vec())
    };
    let read = (0x2e, vec![0; 20], Vec::new());
    let close = (0x04, vec![0; 6], Vec::new());
    let client = [
        chain(false, 1, 0, &[setup.clone(), connect.clone()]),
        chain(false, 2, 9, &[open(b"evil.exe"), read.clone()]),
        chain(
            false,
            3,
            9,
            &[(0x04, vec![0x21, 0x40, 0, 0, 0, 0], Vec::new())],
        ),
    ];
    let opened = {
        let mut words = vec![0; 68];
        words[5..7].copy_from_slice(&0x4021_u16.to_le_bytes());
        (0xa2, words, Vec::new())
    };
    let text = b"MZ and more";
    let answer = {
        let mut words = vec![0; 24];
        words[10..12].copy_from_slice(&(text.len() as u16).to_le_bytes());
        // From the header on: both commands' words and lengths, and this one's.
        let at = 32 + 1 + 68 + 2 + 1 + 24 + 2;
        words[12..14].copy_from_slice(&(at as u16).to_le_bytes());
        (0x2e, words, text.to_vec())
    };
    let server = [
        chain(
            true,
            1,
            9,
            &[
                (0x73, vec![0; 6], Vec::new()),
                (0x75, vec![0; 6], b"A:\0".to_vec()),
            ],
        ),
        chain(true, 2, 9, &[opened, answer]),
        chain(true, 3, 9, &[close]),
    ];
    let turns: Vec<(Direction, &[u8])> = client
        .iter()
        .zip(&server)
        .flat_map(|(c, s)| [(ToServer, c.as_slice()), (ToClient, s.as_slice())])
        .collect();
    let c = converse_all(&turns, Ports::default());
    let t = &c.transactions.live;
    let commands: Vec<_> = t
        .iter()
        .filter_map(|t| t.record["command"].as_str())
        .collect();
    assert!(
        commands.contains(&"SMB1_COMMAND_TREE_CONNECT_ANDX"),
        "{commands:?}"
    );
    let share = t
        .iter()
        .find_map(|t| t.get(Buffer::SmbShare, ToServer).next());
    assert_eq!(share, Some(&b"\\\\host\\data"[..]));
    let file = t
        .iter()
        .find_map(|t| t.get(Buffer::FileData, ToClient).next());
    assert_eq!(file, Some(&text[..]));
    let name = t
        .iter()
        .find_map(|t| t.get(Buffer::FileName, ToClient).next());
    assert_eq!(name, Some(&b"evil.exe"[..]));
    assert!(t.iter().all(|t| t.done));
    // A chain that turns back, or leads outside, ends there.
    for at in [0_u16, 32, 33, 0xffff] {
        let mut bytes = chain(false, 1, 0, &[setup.clone(), connect.clone()]);
        bytes[4 + 32 + 3..4 + 32 + 5].copy_from_slice(&at.to_le_bytes());
        let c = converse_all(&[(ToServer, &bytes)], Ports::default());
        assert_eq!(c.transactions.live.len(), 1, "{at}");
    }
}

/// The records of a conversation.
fn records(client: &[u8], server: &[u8]) -> Vec<Record> {
    let parts = [(ToServer, client), (ToClient, server)];
    let c = converse_all(&parts, Ports::default());
    c.transactions
        .live
        .iter()
        .map(|t| t.record.clone())
        .collect()
}

#[test]
fn names_and_ends_of_files_are_told() {
    let id = [3; 16];
    let set = |number, level: u8, data: &[u8]| {
        let mut body = vec![33, 0, 1, level];
        body.extend_from_slice(&(data.len() as u32).to_le_bytes());
        body.extend_from_slice(&[96, 0, 0, 0, 0, 0, 0, 0]);
        body.extend_from_slice(&id);
        body.extend_from_slice(data);
        second(17, false, number, 6, &body)
    };
    let to = wide("new.txt");
    let name = [&[0; 16][..], &(to.len() as u32).to_le_bytes(), &to].concat();
    let mut folder = create(4, "folder");
    folder[4 + 64 + 40] |= 1;
    let opening = [connect(1, "\\\\host\\data"), create(2, "old.txt")].concat();
    let opened = [second(3, true, 1, 6, &[16, 0, 1, 0]), created(2, id)].concat();
    let rest = [set(3, 10, &name), folder, set(5, 13, &[1])].concat();
    let parts = [
        (ToServer, &opening[..]),
        (ToClient, &opened),
        (ToServer, &rest),
    ];
    let c = converse_all(&parts, Ports::default());
    let t: Vec<_> = c.transactions.live.iter().map(|t| &t.record).collect();
    let known = identifier(&id);
    assert_eq!(t[2]["rename"]["from"], "old.txt");
    assert_eq!(t[2]["rename"]["to"], "new.txt");
    assert_eq!(t[2]["set_info"]["info_level"], "SMB2_FILE_RENAME_INFO");
    assert_eq!(t[2]["fuid"], known);
    assert_eq!(t[3]["directory"], "folder");
    assert!(!t[3].contains_key("filename"));
    assert_eq!(t[4]["filename"], "old.txt");
    assert_eq!(t[4]["access"], "delete on close");
    assert_eq!(t[4]["fuid"], known);
    // What is cut off says nothing, and breaks nothing.
    for length in 0..name.len() {
        let cut = set(3, 10, &name[..length]);
        let said = records(&cut, &[]);
        assert!(!said[0].contains_key("rename"), "{length}");
    }
}

#[test]
fn names_and_ends_of_files_of_the_first_version() {
    // Words of TRANS2: its parameters and its data stand behind the words, at their offsets from the header.
    let trans = |number, subcommand: u16, parameters: &[u8], data: &[u8]| {
        let mut words = [0u16; 15];
        let at = 32 + 1 + 30 + 2;
        words[9] = parameters.len() as u16;
        words[10] = at;
        words[11] = data.len() as u16;
        words[12] = at + parameters.len() as u16;
        words[13] = 1;
        words[14] = subcommand;
        let bytes = [parameters, data].concat();
        first(0x32, false, number, 0, &words, &bytes)
    };
    let path = [&1013u16.to_le_bytes()[..], &[0; 4], b"a.txt\0"].concat();
    let file = [&9u16.to_le_bytes()[..], &1010u16.to_le_bytes(), &[0; 2]].concat();
    let name = [&[0; 8][..], &5u32.to_le_bytes(), b"b.txt"].concat();
    let client = [
        first(7, false, 1, 0, &[0], b"\x04old\0\x04new\0"),
        trans(2, 6, &path, &[1]),
        trans(3, 8, &file, &name),
    ]
    .concat();
    let t = records(&client, &[]);
    assert_eq!(t[0]["command"], "SMB1_COMMAND_RENAME");
    assert_eq!(t[0]["rename"]["from"], "old");
    assert_eq!(t[0]["rename"]["to"], "new");
    assert_eq!(t[1]["filename"], "a.txt");
    assert_eq!(t[1]["subcmd"], "SET_PATH_INFO");
    assert_eq!(t[1]["level_of_interest"], "Set Disposition Information");
    assert_eq!(t[1]["access"], "delete on close");
    assert_eq!(t[2]["rename"]["to"], "b.txt");
    assert_eq!(t[2]["fuid"], "0009");
}

#[test]
fn tickets_of_kerberos_say_for_whom_they_are() {
    let der = |tag: u8, inside: &[u8]| [&[tag, inside.len() as u8][..], inside].concat();
    let text = |s: &str| der(0x1b, s.as_bytes());
    let number = |n: u8| der(2, &[n]);
    let parts = [text("cifs"), text("host")].concat();
    let name = der(
        0x30,
        &[der(0xa0, &number(2)), der(0xa1, &der(0x30, &parts))].concat(),
    );
    let ticket = [
        der(0xa0, &number(5)),
        der(0xa1, &text("EXAMPLE.ORG")),
        der(0xa2, &name),
    ]
    .concat();
    let ticket = der(0x61, &der(0x30, &ticket));
    let request = [
        der(0xa0, &number(5)),
        der(0xa1, &number(14)),
        der(0xa3, &ticket),
    ]
    .concat();
    let request = der(0x6e, &der(0x30, &request));
    let token = [
        &b"\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00"[..],
        &request,
    ]
    .concat();
    let body = [&[25, 0][..], &[0; 22], &token].concat();
    let said = records(&second(1, false, 1, 0, &body), &[]);
    assert_eq!(said[0]["kerberos"]["realm"], "EXAMPLE.ORG");
    let names = serde_json::json!(["cifs", "host"]);
    assert_eq!(said[0]["kerberos"]["snames"], names);
    for length in 0..token.len() {
        let body = [&[25, 0][..], &[0; 22], &token[..length]].concat();
        records(&second(1, false, 1, 0, &body), &[]);
    }
}
