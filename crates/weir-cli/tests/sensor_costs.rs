//! What rules cost: `weir sensor --profile-rules`, rules that are given up in `lost` and the counters, and `weir sensor rules analyse`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use weir_packet::build::Frame;
use weir_packet::pcap::Writer;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("weir-sensor-costs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("written");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn weir(args: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .output()
        .expect("it runs");
    (
        output.status.code().expect("a status"),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

const RULES: &str = r#"
alert udp any any -> any any (msg:"plain"; content:"needle"; sid:1;)
alert udp any any -> any any (msg:"far"; content:"start"; content:"a"; distance:0; pcre:"/^[a-z]+=/R"; sid:2;)
alert udp any any -> any any (msg:"never asked"; content:"absent"; sid:3;)
alert udp any any -> any any (msg:"short"; content:"ab"; sid:4;)
alert udp any any -> any any (msg:"none"; dsize:>60000; sid:5;)
"#;

fn capture() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    let hostile = [&b"start"[..], &b"a".repeat(8000)].concat();
    let payloads: [&[u8]; 3] = [b"find the needle here", &hostile, b"the start of a needle"];
    for (n, payload) in payloads.iter().enumerate() {
        let frame = Frame::new()
            .ip4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(4000 + n as u16, 4001)
            .payload(payload)
            .build();
        writer
            .write(1_704_067_200_000_000_000, &frame, frame.len() as u32)
            .expect("memory");
    }
    writer.finish().expect("memory")
}

#[test]
fn what_rules_cost_is_told_by_rule() {
    let folder = Folder::new("profile");
    let rules = folder.file("a.rules", RULES);
    let capture = folder.file("a.pcap", capture());
    let logs = folder.0.display().to_string();
    let run = ["sensor", "-r", &capture, "-S", &rules, "-l", &logs];
    let told = |more: &[&str]| {
        let (status, text) = weir(&[&run[..], more].concat());
        assert_eq!(status, 0, "{text}");
        serde_json::from_str::<Value>(&text).expect("JSON")
    };
    assert_eq!(told(&["--json"])["costs"], Value::Array(Vec::new()));
    let one = told(&["--json", "--profile-rules"]);
    let costs = one["costs"].as_array().expect("a list");
    let sids: Vec<u64> = costs.iter().filter_map(|c| c["sid"].as_u64()).collect();
    // The most costly first, and none that nothing led to.
    assert_eq!(sids.first(), Some(&2), "{costs:?}");
    assert!(sids.contains(&1) && !sids.contains(&3), "{costs:?}");
    let far = &costs[0];
    assert_eq!(far["given_up"], 1);
    assert_eq!(far["held"], 0);
    assert_eq!(far["worst"]["bytes"], 8005);
    assert_eq!(far["worst"]["packet"], 2);
    assert!(far["work"].as_u64() >= far["worst"]["work"].as_u64());
    let plain = costs.iter().find(|c| c["sid"] == 1).expect("is there");
    assert_eq!((&plain["checks"], &plain["held"]), (&2.into(), &2.into()));
    assert_eq!(one["counters"]["detect.limited.rule.1:2"], 1);
    assert_eq!(one["counters"]["detect.limited.buffers"], 1);
    let lost = one["lost"].as_array().expect("a list");
    let given_up = |l: &&Value| l["what"] == "buffers given up by rules, for their work";
    assert_eq!(lost.iter().find(given_up).expect("named")["count"], 1);
    // The same for any number of workers, and from the configuration.
    let spread = told(&[
        "--json",
        "--workers",
        "3",
        "--set",
        "profiling.rules.enabled=yes",
    ]);
    assert_eq!(spread["costs"], one["costs"]);
    let (_, table) = weir(&[&run[..], &["--profile-rules"]].concat());
    let row = table.lines().find(|l| l.contains(" 1:2 ")).expect(&table);
    assert!(row.contains("(packet 2)"), "{table}");
}

#[test]
fn rules_without_a_good_lead_are_named() {
    let folder = Folder::new("analyse");
    let rules = folder.file("a.rules", RULES);
    let (status, text) = weir(&["sensor", "rules", "analyse", &rules, "--json"]);
    assert_eq!(status, 0, "{text}");
    let told: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(told["leads"]["none"], 1);
    assert_eq!(told["leads"]["short"], 1);
    assert_eq!(told["leads"]["good"], 3);
    assert_eq!(told["rules"][0]["sid"], 5);
    assert_eq!(told["rules"][1]["pattern"], "pkt_data \"ab\"");
    let far = told["rules"].as_array().expect("a list");
    let far = far.iter().find(|r| r["sid"] == 2).expect("is there");
    assert_eq!(
        (&far["contents"], &far["expressions"]),
        (&2.into(), &1.into())
    );
    let (status, text) = weir(&["sensor", "rules", "analyse", &rules]);
    assert_eq!(status, 0);
    assert!(text.contains("1:5 "), "{text}");
    assert!(!text.contains("1:3 "), "{text}");
}
