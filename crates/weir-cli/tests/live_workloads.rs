//! `weir net workload`: workloads that come, move and go in networks that run, with packets between them, and an open connection of others that
//! goes on.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weir_kernel::NetNs;

use crate::live_agent::Running;
use crate::live_bed::{file, root, stderr, weir};

struct Bed {
    host: NetNs,
    edge: String,
}

impl Bed {
    fn new() -> Bed {
        static BEDS: AtomicU32 = AtomicU32::new(0);
        let number = BEDS.fetch_add(1, Ordering::Relaxed);
        let bed = Bed {
            host: NetNs::create("wlh").expect("a namespace"),
            edge: format!("workloads-{}-{number}", std::process::id()),
        };
        let edge = &bed.edge;
        let document = format!(
            "version = 1\n[[edge]]\nname = \"{edge}\"\n[[tenant]]\nname = \"red\"\n[[network]]\nname = \"n\"\ntenant = \"red\"\n\
             [[network.subnet]]\nname = \"web\"\nprefix = \"10.1.0.0/24\"\n"
        );
        let path = file("workloads.toml", &document);
        bed.done(&["apply", path.to_str().expect("UTF-8")]);
        bed
    }

    fn weir(&self, args: &[&str]) -> Output {
        weir(&self.host, args)
    }

    #[track_caller]
    fn done(&self, args: &[&str]) -> String {
        let output = self.weir(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[track_caller]
    fn refused(&self, args: &[&str], why: &str) {
        let output = self.weir(args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
    }

    /// A namespace behind a device, with the MAC address that is made of the workload's name.
    fn station(&self, device: &str, workload: &str, host: u8) -> NetNs {
        let ns = NetNs::create("wlw").expect("a namespace");
        let pair = [
            "link", "add", device, "type", "veth", "peer", "name", "eth0",
        ];
        let pair = [&pair[..], &["netns", ns.name()]].concat();
        self.host.ip(&pair).expect("a pair");
        self.host.ip(&["link", "set", device, "up"]).expect("up");
        let mac = weir_network::values::mac_of_name(&format!("n/{workload}")).to_string();
        ns.ip(&["link", "set", "eth0", "address", &mac, "up"])
            .expect("its address");
        let address = format!("10.1.0.{host}/24");
        ns.ip(&["address", "add", &address, "dev", "eth0"])
            .expect("an address");
        ns
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.weir(&["net", "delete", "--edge", &self.edge]);
    }
}

/// Whether a datagram of one station reaches another.
fn reaches(from: &NetNs, to: &NetNs, host: u8) -> bool {
    let bind = |ns: &NetNs| {
        let socket = ns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
        socket.expect("namespace").expect("binds")
    };
    let (sender, receiver) = (bind(from), bind(to));
    let patience = Some(Duration::from_millis(700));
    receiver.set_read_timeout(patience).expect("a socket");
    let port = receiver.local_addr().expect("bound").port();
    let to = SocketAddr::from(([10, 1, 0, host], port));
    sender.send_to(b"weir", to).is_ok() && receiver.recv(&mut [0; 8]).is_ok()
}

#[test]
fn workloads_come_move_and_go() {
    if !root("workloads_come_move_and_go") {
        return;
    }
    let bed = Bed::new();
    let one = bed.station("tap1", "w1", 7);
    let two = bed.station("tap2", "w2", 8);
    let three = bed.station("tap3", "w3", 9);
    let add = |name: &str, device: &str, address: &str, more: &[&str]| {
        let fixed = [
            "net", "workload", "add", name, "--subnet", "web", "--device", device,
        ];
        let all = [&fixed[..], &["--address", address], more].concat();
        all.iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let words = |words: &[String]| bed.done(&words.iter().map(String::as_str).collect::<Vec<_>>());
    words(&add("n/w1", "tap1", "10.1.0.7", &[]));
    words(&add("n/w2", "tap2", "10.1.0.8", &[]));
    assert!(reaches(&one, &two, 8) && reaches(&two, &one, 7));
    assert!(!reaches(&one, &three, 9), "it is not there yet");

    let address = SocketAddr::from(([10, 1, 0, 8], 80));
    let listener = two.run(|| TcpListener::bind(address)).expect("namespace");
    let listener = listener.expect("binds");
    let stream = one.run(|| TcpStream::connect(address)).expect("namespace");
    let mut stream = stream.expect("connects");
    let (mut accepted, _) = listener.accept().expect("it connected");
    let mut goes_on = || {
        stream.write_all(b"?").expect("open");
        accepted.read_exact(&mut [0; 1]).expect("it goes on");
    };

    let third = add("n/w3", "tap3", "10.1.0.9", &[]);
    words(&third);
    goes_on();
    assert!(reaches(&one, &three, 9) && reaches(&three, &two, 8));
    let again = words(&third);
    assert!(again.contains("nothing to change"), "{again}");
    // What makes no valid document changes nothing.
    let wrong = add("n/w4", "tap4", "10.9.0.9", &[]);
    let wrong: Vec<&str> = wrong.iter().map(String::as_str).collect();
    bed.refused(&wrong, "10.9.0.9");
    let other = add("n/w3", "tap3", "10.1.0.10", &[]);
    let other: Vec<&str> = other.iter().map(String::as_str).collect();
    bed.refused(&other, "with other values");
    bed.refused(
        &["net", "workload", "delete", "n/w9"],
        "available: w1, w2, w3",
    );
    bed.refused(&["net", "workload", "move", "n/w3"], "--device");

    // Behind another device, with the same addresses.
    let moved = bed.station("tap5", "w3", 9);
    bed.done(&["net", "workload", "move", "n/w3", "--device", "tap5"]);
    assert!(reaches(&one, &moved, 9) && !reaches(&one, &three, 9));
    goes_on();
    bed.done(&["net", "workload", "delete", "n/w3"]);
    assert!(!reaches(&one, &moved, 9));
    assert!(reaches(&one, &two, 8));
    goes_on();
    let shown = bed.done(&["net", "show", "--edge", &bed.edge]);
    assert!(
        shown.contains("w1") && shown.contains("w2") && !shown.contains("w3"),
        "{shown}"
    );
    let document = bed.done(&["net", "export", "--edge", &bed.edge]);
    assert!(
        document.contains("w2") && !document.contains("w3"),
        "{document}"
    );
}

/// Devices of workloads come after the agent, go, and come back as other devices: after a boot, or with virtual machines that restart.
#[test]
fn the_agent_attaches_devices_when_they_appear() {
    if !root("the_agent_attaches_devices_when_they_appear") {
        return;
    }
    let bed = Bed::new();
    let agent_folder = file("workloads-agent", "").with_extension("d");
    std::fs::create_dir_all(&agent_folder).expect("writable");
    let state = agent_folder.with_extension("state");
    let workload = |n: u8| {
        format!(
            "[[network.workload]]\nname = \"w{n}\"\nsubnet = \"web\"\ndevice = \"tap{n}\"\naddress = \"10.1.0.{n}\"\n"
        )
    };
    let document = format!(
        "version = 2\n[[edge]]\nname = \"{}\"\n[[tenant]]\nname = \"red\"\n[[network]]\nname = \"n\"\ntenant = \"red\"\n\
         [[network.subnet]]\nname = \"web\"\nprefix = \"10.1.0.0/24\"\n{}{}{}",
        bed.edge,
        workload(1),
        workload(2),
        workload(3)
    );
    let path = agent_folder.join("networks.toml");
    std::fs::write(&path, document).expect("writable");
    let one = bed.station("tap1", "w1", 1);
    let two = bed.station("tap2", "w2", 2);
    // A command of a user is told what is missing; it changes nothing.
    bed.refused(
        &["apply", path.to_str().expect("UTF-8")],
        "no device named `tap3`",
    );
    let agent = Running::start(&bed.host, &agent_folder, &state);
    let missing = agent.event("warning");
    let text = missing["text"].as_str().unwrap_or_default();
    assert!(text.contains("tap3"), "{missing}");
    assert!(
        reaches(&one, &two, 2),
        "what is there does not wait for what is not"
    );

    let applied = |why: &str| {
        loop {
            let event = agent.event("applied");
            if event["why"] == why {
                return;
            }
        }
    };
    let appeared = "a workload's device appeared";
    let three = bed.station("tap3", "w3", 3);
    applied(appeared);
    assert!(reaches(&one, &three, 3) && reaches(&three, &two, 2));

    // A virtual machine restarts: the name is that of another device.
    bed.host.ip(&["link", "delete", "tap3"]).expect("deleted");
    let gone = agent.event("warning");
    assert!(
        gone["text"]
            .as_str()
            .is_some_and(|text| text.contains("tap3")),
        "{gone}"
    );
    assert!(reaches(&one, &two, 2));
    let shown = bed.done(&["net", "show", "--edge", &bed.edge]);
    assert!(shown.contains("no such device: tap3;"), "{shown}");
    // While one is missing, workloads are added.
    let four = bed.station("tap4", "w4", 4);
    drop(agent);
    bed.done(&[
        "net",
        "workload",
        "add",
        "n/w4",
        "--subnet",
        "web",
        "--device",
        "tap4",
        "--address",
        "10.1.0.4",
    ]);
    assert!(reaches(&one, &four, 4));
    bed.done(&["net", "workload", "delete", "n/w4"]);
    let agent = Running::start(&bed.host, &agent_folder, &state);
    agent.event("adopted");
    let again = bed.station("tap3", "w3", 3);
    let event = agent.event("applied");
    assert_eq!(event["why"], appeared);
    assert!(reaches(&one, &again, 3));
    drop(agent);
    let _ = std::fs::remove_dir_all(&agent_folder);
    let _ = std::fs::remove_dir_all(&state);
}
