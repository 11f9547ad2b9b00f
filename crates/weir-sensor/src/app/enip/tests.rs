//! Messages by hand.

use super::*;
use crate::app::probe::Ports;
use crate::app::tests::converse_all;

const PORTS: Ports = Ports {
    client: 40_000,
    server: PORT,
};

fn message(command: u16, status: u32, body: &[u8]) -> Vec<u8> {
    let mut m = command.to_le_bytes().to_vec();
    m.extend_from_slice(&(body.len() as u16).to_le_bytes());
    m.extend_from_slice(&[0; 4]);
    m.extend_from_slice(&status.to_le_bytes());
    m.extend_from_slice(&[7; 8]);
    m.extend_from_slice(&[0; 4]);
    m.extend_from_slice(body);
    m
}

fn item(kind: u16, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u16;
    [&kind.to_le_bytes()[..], &length.to_le_bytes(), data].concat()
}

/// Connected data with its number.
fn unit(sequence: u8, cip: &[u8]) -> Vec<u8> {
    let data = [&[sequence, 0][..], cip].concat();
    let items = [item(0xa1, &[0; 4]), item(0xb1, &data)].concat();
    message(0x70, 0, &[&[0, 0, 0, 0, 1, 0, 2, 0][..], &items].concat())
}

fn device() -> Vec<u8> {
    let mut d = vec![1, 0];
    d.extend_from_slice(&[0; 16]);
    d.extend_from_slice(&[1, 0, 0x0c, 0, 58, 0, 4, 3, 48, 0, 0x8e, 0x4d, 0x52, 0]);
    d.extend_from_slice(b"\x041756\x03");
    [&[1, 0][..], &item(0x0c, &d)].concat()
}

#[test]
fn devices_services_and_paths_are_told() {
    let list = [3, 2, 0x20, 1, 0x24, 1, 1, 0, 5, 0];
    let several = [&[0x0a, 2, 0x20, 2, 0x24, 1, 1, 0, 4, 0][..], &list].concat();
    let answers = [0x8a, 0, 0x1e, 0, 1, 0, 4, 0, 0x83, 0, 8, 1, 0x34, 0x12];
    let service = [&[1, 0, 0x20, 1][..], b"Communications\0\0"].concat();
    let services = [&[1, 0][..], &item(0x100, &service)].concat();
    let parts: &[(Direction, &[u8])] = &[
        (ToServer, &message(0x63, 0, &[])),
        (ToClient, &message(0x63, 0, &device())),
        (ToServer, &message(4, 0, &[])),
        (ToClient, &message(4, 0, &services)),
        (
            ToServer,
            &[
                unit(1, &several),
                unit(2, &[0x10, 3, 0x20, 0xf6, 0x24, 1, 0x30, 6]),
            ]
            .concat(),
        ),
        (ToClient, &unit(2, &[0x90, 0, 0, 0])),
        (ToClient, &unit(1, &answers)),
        (ToServer, &message(0x65, 0, &[1])),
        (ToClient, &message(0x65, 3, &[])),
    ];
    let c = converse_all(parts, PORTS);
    assert_eq!(c.app(), App::Enip);
    let all: Vec<_> = c.transactions.live.iter().collect();
    let [identity, listed, first, second, session] = all[..] else {
        panic!("{} transactions", all.len());
    };
    let facts = |t: &Transaction, name| t.facts(name).collect::<Vec<_>>();
    let found = &identity.record["response"]["identity"];
    assert_eq!(
        (&found["product_name"], &found["revision"]),
        (&"1756".into(), &"4.3".into())
    );
    assert_eq!(facts(identity, SERIAL), [0x0052_4d8e]);
    let services = &listed.record["response"]["list_services"];
    assert_eq!(services["service_name"], "Communications");
    let cip = &first.record["request"]["cip"];
    assert_eq!(cip["class_name"], "Message Router");
    assert_eq!(cip["multiple"][0]["path"][0]["segment_type"], "class");
    assert_eq!(facts(first, SERVICE), [10, 3, 10, 3]);
    assert_eq!(facts(first, SERVICE_ATTRIBUTE), [3 << 48 | 1 << 16 | 5]);
    assert_eq!(facts(first, cip::STATUS), [0x1e, 8]);
    assert_eq!(facts(first, EXTENDED), [0x1234]);
    assert_eq!(facts(second, SERVICE_ATTRIBUTE), [16 << 48 | 246 << 16 | 6]);
    assert_eq!(second.record["response"]["cip"]["status"], "Success");
    assert_eq!(session.events, ["invalid_pdu"]);
    assert_eq!(session.record["response"]["status"], "incorrect_data");
}

#[test]
fn what_is_wrong_ends_it_and_memory_has_a_bound() {
    let mut enip = Enip::new(&crate::app::tests::wanted(), true);
    let mut out = Transactions::default();
    for _ in 0..2000 {
        enip.data(ToServer, &message(0x63, 0, &[]), 1, &mut out);
        assert!(enip.memory() < 256 << 10);
    }
    enip.data(ToServer, &message(0x99, 0, &[]), 1, &mut out);
    assert!(out.failed && out.live.iter().all(|t| t.done));
    assert!(out.live.iter().any(|t| t.events == ["invalid_pdu"]));
}
