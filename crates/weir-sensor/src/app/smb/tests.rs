//! Conversations by hand.

use super::message::second_version;
use super::names::{command_name, dialect};
use super::ntlm::Ntlm;
use super::*;
use crate::app::Ports;
use crate::app::tests::converse_all;

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
        assert_eq!(command_name(&second_version(&b).unwrap().0), name);
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
    assert_eq!(one(&t[3], Buffer::FileName).unwrap(), b"srvsvc");
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
