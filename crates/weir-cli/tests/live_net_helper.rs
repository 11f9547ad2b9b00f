//! `weir net helper` as a process: started before there are networks, answers a DHCP client after `weir net apply`, ends on a signal with its
//! counts.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::live_bed::{file, root, stderr, weir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_kernel::bed::{self, End};
use weir_kernel::{FrameSocket, NetNs};
use weir_packet::build::Frame;

/// Ends with the test; its networks, too.
struct Helper<'b> {
    child: Option<Child>,
    host: &'b NetNs,
    edge: String,
}

impl Drop for Helper<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        weir(self.host, &["net", "delete", "--edge", &self.edge]);
    }
}

/// What a client asks first.
fn discover(mac: [u8; 6]) -> Vec<u8> {
    let mut message = vec![1, 1, 6, 0, 1, 2, 3, 4];
    message.resize(28, 0);
    message.extend(mac);
    message.resize(236, 0);
    message.extend([99, 130, 83, 99, 53, 1, 1, 255]);
    let mut frame = Frame::new()
        .ip4([0; 4], [255; 4])
        .udp(68, 67)
        .payload(&message)
        .build();
    frame[..6].copy_from_slice(&[0xff; 6]);
    frame[6..12].copy_from_slice(&mac);
    frame
}

#[test]
fn a_helper_answers_a_client_and_ends_in_order() {
    if !root("a_helper_answers_a_client_and_ends_in_order") {
        return;
    }
    let host = NetNs::create("wnh").expect("a namespace");
    let client = NetNs::create("wnc").expect("a namespace");
    let end = |ns, name| End {
        ns,
        name,
        addresses: &[],
    };
    bed::veth(end(&host, "w0"), end(&client, "eth0")).expect("a pair");
    let edge = format!("cli{}", std::process::id());
    let mac = [2, 0, 0, 0, 0, 9];
    let document = file(
        "net.toml",
        &format!(
            "version = 1\n[[edge]]\nname = \"{edge}\"\n[[tenant]]\nname = \"t\"\n[[network]]\nname = \"n\"\ntenant = \"t\"\n\
             [[network.subnet]]\nname = \"s\"\nprefix = \"10.1.0.0/24\"\ndhcp = true\n\
             [[network.workload]]\nname = \"w\"\nsubnet = \"s\"\nedge = \"{edge}\"\ndevice = \"w0\"\nmac = \"02:00:00:00:00:09\"\naddress = \"10.1.0.9\"\n"
        ),
    );
    let socket = document.with_extension("sock");
    let said = file("stderr", "");
    let child = host
        .command(env!("CARGO_BIN_EXE_weir"))
        .expect("namespace")
        .args(["net", "helper", "--json", "--edge", &edge, "--socket"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&said).expect("a file"))
        .spawn()
        .expect("starts");
    let id = child.id();
    let mut helper = Helper {
        child: Some(child),
        host: &host,
        edge,
    };
    let applied = weir(&host, &["apply", document.to_str().expect("a path")]);
    assert!(applied.status.success(), "{}", stderr(&applied));
    let patience = Duration::from_millis(50);
    let station = FrameSocket::open(&client, "eth0", 1 << 16, patience).expect("a socket");
    let mut buffer = vec![0; 2048];
    let begun = Instant::now();
    // Until the helper has seen that networks run.
    let offer = loop {
        let words = std::fs::read_to_string(&said).unwrap_or_default();
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "no offer: {words}"
        );
        station.send(&discover(mac)).expect("sent");
        let deadline = Instant::now() + Duration::from_millis(300);
        let mut found = None;
        while found.is_none() && Instant::now() < deadline {
            let frame = station.receive(&mut buffer).expect("read");
            found = frame
                .filter(|frame| frame.len() > 62 && frame[34..38] == [0, 67, 0, 68])
                .map(<[u8]>::to_vec);
        }
        if let Some(offer) = found {
            break offer;
        }
    };
    assert_eq!(offer[58..62], [10, 1, 0, 9]);
    assert!(socket.exists());
    let second = weir(&host, &["net", "helper"]);
    assert_eq!(second.status.code(), Some(1), "{}", stderr(&second));
    assert!(
        stderr(&second).contains("runs already"),
        "{}",
        stderr(&second)
    );
    let pid = Pid::from_raw(id as i32).expect("a process");
    kill_process(pid, Signal::TERM).expect("it runs");
    let child = helper.child.take().expect("it runs");
    let output = child.wait_with_output().expect("ends");
    let words = std::fs::read_to_string(&said).unwrap_or_default();
    assert!(output.status.success(), "{words}");
    let counts: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(
        counts["offered"].as_u64().expect("a number") >= 1,
        "{counts}"
    );
    assert!(!socket.exists());
}
