//! `weir history`, `weir rollback` and `weir apply --check-with` with real edges: what is recorded of which change, that going back changes what
//! packets meet, and that a change of verdicts is found before it is applied.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use weir_kernel::NetNs;
use weir_kernel::bed::{self, End};

use crate::live_bed::{file, listen, pinned, root, stderr};

/// Two hosts, an edge on the second, and a state folder of their own.
struct Bed {
    left: NetNs,
    right: NetNs,
    edge: String,
    state: PathBuf,
    config: PathBuf,
}

impl Bed {
    fn new(name: &str) -> Bed {
        let ns = |part: &str| NetNs::create(&format!("weirh-{name}-{part}")).expect("namespace");
        let (left, right) = (ns("l"), ns("r"));
        let end = |ns, name, addresses| End {
            ns,
            name,
            addresses,
        };
        bed::veth(
            end(&left, "left0", &["10.78.0.1/24"]),
            end(&right, "right0", &["10.78.0.2/24"]),
        )
        .expect("veth");
        let config = file("edge.toml", "");
        let state = config.with_extension("state");
        fs::create_dir_all(&state).expect("cargo's folder is writable");
        Bed {
            left,
            right,
            edge: format!("h{}-{name}", std::process::id()),
            state,
            config,
        }
    }

    /// Writes the configuration of a filter with these rules.
    fn write(&self, rules: &str) {
        let text = format!(
            "edge = \"{}\"\n[[port]]\nname = \"in\"\ndevice = \"right0\"\n[[function]]\nname = \"shield\"\nkind = \"filter\"\n\
             rules = [{rules}]\n[[link]]\nfrom = \"in\"\nto = \"shield\"\n",
            self.edge
        );
        fs::write(&self.config, text).expect("cargo's folder is writable");
    }

    fn weir(&self, args: &[&str]) -> Output {
        let mut command = self
            .right
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        let command = command.args(args).env("STATE_DIRECTORY", &self.state);
        command
            .env("SUDO_USER", "kim")
            .output()
            .expect("weir starts")
    }

    #[track_caller]
    fn done(&self, args: &[&str]) -> Output {
        let output = self.weir(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        output
    }

    #[track_caller]
    fn apply(&self, rules: &str) {
        self.write(rules);
        self.done(&["apply", self.config.to_str().expect("UTF-8")]);
    }

    #[track_caller]
    fn history(&self) -> Value {
        let output = self.done(&["history", "--edge", &self.edge, "--json"]);
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Whether a port of the second host can be connected to.
    fn connects(&self, port: u16) -> bool {
        let address = SocketAddr::from(([10, 78, 0, 2], port));
        let _listener = listen(&self.right, address);
        let patience = Duration::from_millis(700);
        let connect = || TcpStream::connect_timeout(&address, patience).is_ok();
        self.left.run(connect).expect("namespace")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.weir(&["down", "--edge", &self.edge]);
        let _ = fs::remove_dir_all(&self.state);
    }
}

#[test]
fn changes_are_recorded_and_gone_back_to() {
    if !root("changes_are_recorded_and_gone_back_to") {
        return;
    }
    let bed = Bed::new("back");
    bed.apply("\"deny tcp to-port 7001\"");
    assert!(!bed.connects(7001) && bed.connects(7002), "the first rules");
    bed.apply("\"deny tcp to-port 7002\"");
    assert!(
        bed.connects(7001) && !bed.connects(7002),
        "the second rules"
    );
    // An apply without a difference adds no entry.
    bed.apply("\"deny tcp to-port 7002\"");
    let history = bed.history();
    let changes = history["changes"].as_array().expect("a list");
    assert_eq!(changes.len(), 2, "{history}");
    assert_eq!(history["newest_runs"], true);
    assert_eq!(changes[1]["user"], "kim");
    let command = changes[1]["command"].as_str().expect("text");
    assert!(command.starts_with("weir apply "), "{command}");
    let lines = changes[1]["changes"].to_string();
    assert!(lines.contains("shield"), "{lines}");

    // A look changes nothing.
    let output = bed.done(&["rollback", "--dry-run", "--edge", &bed.edge]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("shield"));
    assert!(!bed.connects(7002), "still the second rules");
    bed.done(&["rollback", "--edge", &bed.edge]);
    assert!(!bed.connects(7001) && bed.connects(7002), "the first rules");
    assert_eq!(
        bed.history()["changes"][2]["command"],
        format!("weir rollback --edge {}", bed.edge)
    );

    // Down is a change, too, and the way back from it needs no file.
    fs::remove_file(&bed.config).expect("it is there");
    bed.done(&["down", "--edge", &bed.edge]);
    assert!(bed.connects(7001), "no edge any more");
    assert_eq!(bed.history()["changes"][3]["runs"], false);
    bed.done(&["rollback", "2", "--edge", &bed.edge]);
    assert!(
        bed.connects(7001) && !bed.connects(7002),
        "the second rules"
    );
    bed.done(&["rollback", "4", "--edge", &bed.edge]);
    assert_eq!(pinned(&bed.right), 0, "change 4 took it down");
    let output = bed.weir(&["rollback", "17", "--edge", &bed.edge]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("no change 17"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_change_that_was_not_recorded_is_told() {
    if !root("a_change_that_was_not_recorded_is_told") {
        return;
    }
    let bed = Bed::new("told");
    bed.apply("\"deny tcp to-port 7001\"");
    // As a command that is killed between the change and its entry.
    let away = bed.state.with_extension("away");
    fs::rename(&bed.state, &away).expect("renamed");
    bed.apply("\"deny tcp to-port 7002\"");
    let output = bed.weir(&["history", "--edge", &bed.edge]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("keeps no history"),
        "{}",
        stderr(&output)
    );
    fs::rename(&away, &bed.state).expect("renamed");
    assert_eq!(bed.history()["newest_runs"], false);
    // Without a number: to the newest that is known.
    bed.done(&["rollback", "--edge", &bed.edge]);
    assert!(!bed.connects(7001) && bed.connects(7002), "the first rules");
}

#[test]
fn a_change_of_verdicts_is_found_before_it_is_applied() {
    if !root("a_change_of_verdicts_is_found_before_it_is_applied") {
        return;
    }
    let bed = Bed::new("check");
    // UDP to port 53 from the first host, as the second receives it.
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend_from_slice(&[
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x65, 0xa3, 10, 78, 0, 1, 10, 78, 0, 2,
    ]);
    frame.extend_from_slice(&[0x9c, 0x40, 0, 53, 0, 8, 0, 0]);
    let capture = bed.config.with_extension("pcap");
    let file = fs::File::create(&capture).expect("cargo's folder is writable");
    let mut writer = weir_packet::pcap::Writer::new(file).expect("written");
    for second in 1..=3u64 {
        let time = second * 1_000_000_000;
        writer
            .write(time, &frame, frame.len() as u32)
            .expect("written");
    }
    writer.finish().expect("written");
    let config = bed.config.to_str().expect("UTF-8").to_owned();
    let capture = capture.to_str().expect("UTF-8").to_owned();
    let check = ["apply", &config, "--check-with", &capture];

    bed.apply("\"deny tcp to-port 7081\"");
    // What is the same for these packets is applied.
    bed.write("\"deny tcp to-port 7082\"");
    let output = bed.done(&check);
    assert!(
        stderr(&output).contains("3 packets: 3 the same"),
        "{}",
        stderr(&output)
    );
    assert!(bed.connects(7081) && !bed.connects(7082));

    // What drops them is not, and says why.
    bed.write("\"deny udp to-port 53\"");
    let refused = bed.weir(&check);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("pass -> drop: 3 packets"), "{said}");
    assert!(said.contains("`--max-changes 3` accepts that"), "{said}");
    assert!(!bed.connects(7082), "the former edge runs on");
    let dry = bed.done(&[&check[..], &["--dry-run", "--json"]].concat());
    let dry: Value = serde_json::from_slice(&dry.stdout).expect("JSON");
    assert_eq!(dry["replay"]["changed"], 3, "{dry}");
    assert!(!bed.connects(7082), "a dry run changes nothing");
    bed.done(&[&check[..], &["--max-changes", "3"]].concat());
    assert!(bed.connects(7082));
}
