//! Rules about DNP3, and its records.

use weir_sensor::matcher;

use super::bed::{CLIENT, How, SERVER, Tape, counts, sense_tape};
use super::schema::hold;

fn sum(bytes: &[u8]) -> [u8; 2] {
    let mut crc = 0u16;
    for byte in bytes {
        crc ^= u16::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 {
                crc >> 1 ^ 0xa6bc
            } else {
                crc >> 1
            };
        }
    }
    (!crc).to_le_bytes()
}

/// A message in one frame.
fn message(control: u8, bytes: &[u8]) -> Vec<u8> {
    let data = [&[0xc0][..], bytes].concat();
    let mut frame = vec![5, 0x64, data.len() as u8 + 5, control, 2, 0, 3, 0];
    let head = sum(&frame);
    frame.extend_from_slice(&head);
    for block in data.chunks(16) {
        frame.extend_from_slice(block);
        frame.extend_from_slice(&sum(block));
    }
    frame
}

/// A read of all classes with its answer, and a relay that is operated at once, in a frame that was changed on its way at first.
fn session() -> Tape {
    let read = message(0xc4, &[0xc0, 1, 60, 2, 6, 60, 3, 6]);
    let answer = message(0x44, &[0xc0, 129, 0x80, 0, 1, 2, 0, 0, 0, 1]);
    let relay = [12, 1, 0x28, 1, 0, 1, 0, 3, 1, 100, 0, 0, 0, 100, 0, 0, 0, 0];
    let operate = message(0xc4, &[&[0xc1, 5][..], &relay].concat());
    let mut changed = operate.clone();
    changed[20] ^= 1;
    let both = [changed, operate].concat();
    let said: &[&[u8]] = &[&read, &answer, &both];
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 20_000), said);
    tape
}

const RULES: &str = r#"
alert dnp3 any any -> any any (msg:"function"; dnp3_func:read; sid:1;)
alert tcp any any -> any any (msg:"by number"; dnp3_func:5; sid:2;)
alert dnp3 any any -> any any (msg:"relay"; flow:to_server; dnp3_obj:12,1; sid:3;)
alert dnp3 any any -> any any (msg:"answer"; flow:to_client; dnp3_func:response; dnp3_obj:1,2; sid:4;)
alert dnp3 any any -> any any (msg:"sum"; app-layer-event:dnp3.bad_transport_crc; sid:5;)
alert dnp3 any any -> any any (msg:"one of two indications"; dnp3_ind:need_time,device_restart; sid:6;)
alert dnp3 any any -> any any (msg:"a relay's command"; flow:to_server; dnp3_data; content:"|c1 05 0c 01|"; startswith; bsize:20; sid:7;)
alert dnp3 any any -> any any (msg:"another indication"; dnp3_ind:all_stations, reserved_1; sid:23;)
alert dnp3 any any -> any any (msg:"another function"; dnp3_func:cold_restart; sid:20;)
alert dnp3 any any -> any any (msg:"another object"; dnp3_obj:12,2; sid:21;)
alert dnp3 any any -> any any (msg:"event"; app-layer-event:dnp3.flooded; sid:22;)
"#;

#[test]
fn functions_and_objects_are_told() {
    let tape = session();
    let how = || How::rules(RULES);
    let left = sense_tape(&tape, &how());
    let found = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1)];
    assert_eq!(counts(&left.of("alert")), found, "{}", left.text);
    for workers in [2, 4] {
        assert_eq!(sense_tape(&tape, &how().workers(workers)).text, left.text);
    }
    let how = How {
        matcher: matcher::Engine::AhoCorasick,
        ..how()
    };
    assert_eq!(sense_tape(&tape, &how).text, left.text);
}

#[test]
fn each_message_is_a_record() {
    let left = sense_tape(&session(), &How::rules(""));
    hold(left.eve.iter());
    let [read, answer, operate] = left.of("dnp3")[..] else {
        panic!("three records: {}", left.text);
    };
    assert_eq!(read["dnp3"]["application"]["objects"][1]["variation"], 3);
    assert_eq!(answer["dnp3"]["type"], "response");
    assert_eq!(
        (&answer["dnp3"]["src"], &answer["dest_port"]),
        (&3.into(), &20_000.into())
    );
    assert_eq!(answer["dnp3"]["iin"]["indicators"][0], "device_restart");
    assert_eq!(operate["dnp3"]["application"]["function_code"], 5);
}
