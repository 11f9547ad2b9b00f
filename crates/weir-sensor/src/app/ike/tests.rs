//! Messages of both versions by hand.

use super::*;
use crate::app::tests::wanted;

fn message(version: u8, exchange: u8, flags: u8, next: u8, payloads: &[u8]) -> Vec<u8> {
    let mut m = vec![0x11; 8];
    m.extend_from_slice(&[0x22; 8]);
    m.extend_from_slice(&[next, version << 4, exchange, flags, 0, 0, 0, 7]);
    m.extend_from_slice(&(payloads.len() as u32 + 28).to_be_bytes());
    m.extend_from_slice(payloads);
    m
}

fn payload(next: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u16 + 4).to_be_bytes();
    [&[next, 0], &length[..], content].concat()
}

/// A proposal with transforms of the second version.
fn offer(protocol: u8, transforms: &[(u8, u16)]) -> Vec<u8> {
    let all: Vec<u8> = transforms
        .iter()
        .flat_map(|(kind, id)| [0, 0, 0, 8, *kind, 0, (id >> 8) as u8, *id as u8])
        .collect();
    let length = (all.len() as u16 + 8).to_be_bytes();
    let count = transforms.len() as u8;
    [&[0, 0], &length[..], &[1, protocol, 0, count], &all].concat()
}

fn read(parts: &[(Direction, Vec<u8>)]) -> Transactions {
    let (mut ike, mut out) = (Ike::new(&wanted()), Transactions::default());
    for (d, bytes) in parts {
        ike.data(*d, bytes, 1, &mut out);
        assert!(ike.memory() < 1 << 20);
    }
    out
}

#[test]
fn the_first_version() {
    // AES with keys of 128 bits, SHA, 1,024 bits, a shared key, 86,400 seconds.
    let attributes = [
        &[
            0x80, 1, 0, 7, 0x80, 14, 0, 128, 0x80, 2, 0, 2, 0x80, 4, 0, 2,
        ][..],
        &[0x80, 3, 0, 1, 0x80, 11, 0, 1, 0, 12, 0, 4, 0, 1, 0x51, 0x80],
    ]
    .concat();
    let transform = [&[0, 0, 0, 40, 1, 1, 0, 0][..], &attributes].concat();
    let proposal = [&[0, 0, 0, 48, 1, 1, 0, 1][..], &transform].concat();
    let sa = [&[0, 0, 0, 1, 0, 0, 0, 1][..], &proposal].concat();
    let first = [payload(13, &sa), payload(0, b"vendor-id")].concat();
    let keys = [payload(10, &[9; 128]), payload(0, &[8; 20])].concat();
    let out = read(&[
        (ToServer, message(1, 2, 0, 1, &first)),
        (ToClient, message(1, 2, 0, 1, &payload(0, &sa))),
        (ToServer, message(1, 2, 0, 4, &keys)),
        (ToClient, message(1, 32, 1, 8, &[0xee; 32])),
    ]);
    let [asked, chosen, key, hidden] = &out.live.iter().collect::<Vec<_>>()[..] else {
        panic!("four messages");
    };
    let spi: Vec<_> = asked.get(Buffer::IkeInitiator, ToServer).collect();
    assert_eq!(spi, [b"1111111111111111"]);
    assert!(asked.facts(CHOSEN).next().is_none());
    let facts: Vec<_> = chosen.facts(CHOSEN).collect();
    assert!(facts.contains(&(12 << 32 | 86_400)) && facts.contains(&(14 << 32 | 128)));
    assert_eq!(chosen.record["alg_enc"], "EncAesCbc");
    assert_eq!(chosen.record["sa_life_duration_raw"], 86_400);
    let proposals = &asked.record["ikev1"]["client"]["proposals"];
    assert_eq!(proposals[0]["alg_auth"], "AuthPreSharedKey");
    assert_eq!(asked.record["payload"][1], "VendorID");
    assert_eq!(key.facts(KEY_LENGTH).collect::<Vec<_>>(), [128]);
    assert_eq!(key.facts(NONCE_LENGTH).collect::<Vec<_>>(), [20]);
    assert_eq!(hidden.record["ikev1"]["encrypted_payloads"], true);
    assert_eq!(hidden.record["exchange_type_verbose"], "Quick Mode");
    let nonce = &hidden.record["ikev1"]["client"]["nonce_payload"];
    assert_eq!(nonce, &"08".repeat(20));
}

#[test]
fn the_second_version() {
    let strong = offer(1, &[(1, 20), (2, 5), (4, 19)]);
    let weak = offer(1, &[(1, 3), (2, 1), (3, 1), (4, 2)]);
    let none = offer(2, &[(9, 1)]);
    let sa = |offer: &[u8]| message(2, 34, 8, 33, &payload(0, offer));
    let out = read(&[
        (ToClient, sa(&strong)),
        (ToServer, sa(&weak)),
        (ToServer, sa(&none)),
        (ToClient, sa(&[&strong[..], &strong].concat())),
        (ToServer, sa(&[1, 2, 3])),
        (ToServer, message(2, 34, 8, 33, &[0, 0, 9, 9])),
        (
            ToServer,
            message(2, 34, 8, 33, &payload(0, &strong))[..40].to_vec(),
        ),
    ]);
    let events: Vec<_> = out.live.iter().map(|t| t.events.clone()).collect();
    assert_eq!(events[0], <[&str; 0]>::default());
    assert_eq!(out.live[0].record["alg_enc"], "ENCR_AES_GCM_16");
    assert_eq!(out.live[0].record["role"], "initiator");
    let weak = ["enc", "prf", "auth", "dh"].map(|w| format!("weak_crypto_{w}"));
    assert_eq!(events[1], weak);
    assert_eq!(out.live[1].record["ikev2"]["errors"], 0);
    assert_eq!(events[2], ["no_encryption", "unknown_proposal"]);
    assert_eq!(events[3], ["multiple_server_proposal"]);
    assert_eq!(events[4], ["invalid_proposal"]);
    assert_eq!(events[5], ["malformed_data"]);
    assert_eq!(events[6], ["malformed_data"]);
    let facts: Vec<_> = out.live[0].facts(CHOSEN).collect();
    assert_eq!(facts, [1 << 32 | 20, 13 << 32 | 5, 4 << 32 | 19]);
}
