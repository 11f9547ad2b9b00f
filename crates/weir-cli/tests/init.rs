//! `weir init`: what it writes for each job is a valid configuration, with every value where it belongs; what cannot be known is asked for by name.

use std::fs;
use std::path::Path;

use crate::common::{Folder, weir};

/// Options of each job with which nothing needs to be found on the host, and what the text must contain.
const JOBS: &[(&str, &[&str], &[&str])] = &[
    (
        "firewall",
        &[
            "-i",
            "up0",
            "--tcp",
            "http,8000-8010",
            "--udp",
            "51820",
            "--ssh-from",
            "192.0.2.0/24,2001:db8::/32",
        ],
        &[
            "device = \"up0\"",
            "ssh:  add-stateful in wan ip-saddr in { 192.0.2.0/24 } tcp-dport ssh accept",
            "ssh6: add-stateful in wan ip6-saddr in { 2001:db8::/32 } tcp-dport ssh accept",
            "tcp:  add-stateful in wan tcp-dport in { 80, 8000-8010 } accept",
            "udp:  add-stateful in wan udp-dport in { 51820 } accept",
        ],
    ),
    (
        "gateway",
        &[
            "--wan",
            "up0",
            "--lan",
            "in0",
            "--address",
            "203.0.113.5",
            "--inside",
            "10.1.0.0/24",
            "--forward",
            "8080=10.1.0.5:http",
        ],
        &[
            "device = \"in0\"",
            "map ip-saddr 203.0.113.5 accept",
            "set inside = { 10.1.0.0/24 }",
            "tcp-8080: add-stateful ip-daddr 203.0.113.5 tcp-dport 8080 map ip-daddr 10.1.0.5 map tcp-dport 80 accept",
        ],
    ),
    (
        "guard",
        &["-i", "up0", "--friends", "198.51.100.0/24"],
        &["allow from 198.51.100.0/24"],
    ),
    (
        "balancer",
        &[
            "-i",
            "up0",
            "-i",
            "in0",
            "--address",
            "203.0.113.5",
            "--port",
            "https",
            "--server",
            "10.1.0.5,10.1.0.6",
        ],
        &[
            "device = \"in0\"",
            "port = 443",
            "{ address = \"10.1.0.6\" },",
            "check = { kind = \"tcp\"",
        ],
    ),
    (
        "balancer",
        &[
            "-i",
            "up0",
            "--udp",
            "--address",
            "2001:db8::5",
            "--port",
            "53",
            "--server",
            "2001:db8:1::1",
        ],
        &["protocol = \"udp\"", "# check = "],
    ),
    (
        "networks",
        &["--devices", "tap1,tap2"],
        &["device = \"tap1\"", "device = \"tap2\""],
    ),
];

#[test]
fn every_job_gives_a_configuration_that_is_valid() {
    for (job, options, wanted) in JOBS {
        let folder = Folder::new();
        let path = folder.join("made.toml");
        let name = path.to_str().expect("a name");
        let fixed = ["init", job, "--edge", "mine", "-o", name];
        let said = weir([&fixed[..], options].concat()).succeeded().stdout;
        for step in ["weir check", "--dry-run", "--confirm 60s", "weir-agent"] {
            assert!(said.contains(step), "{job}: {step}: {said}");
        }
        let text = fs::read_to_string(&path).expect("written");
        assert!(text.contains("edge = \"mine\""), "{job}: {text}");
        // A place that nothing was put into.
        let open = text.split('@').skip(1).step_by(2);
        let open: Vec<&str> = open
            .filter(|part| part.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
            .collect();
        assert_eq!(open, Vec::<&str>::new(), "{job}: {text}");
        for line in *wanted {
            assert!(text.contains(line), "{job}: {line}: {text}");
        }
        let checked = weir(["check", name]).succeeded();
        assert!(
            checked.stdout.contains(": ok, "),
            "{job}: {}",
            checked.stdout
        );
        assert_eq!(checked.stderr, "", "{job}");
    }
}

#[test]
fn a_sensor_gets_rules_networks_and_an_interface() {
    let folder = Folder::new();
    let rules = folder.join("rules");
    fs::create_dir(&rules).expect("a folder");
    fs::write(
        rules.join("one.rules"),
        "alert icmp any any -> $HOME_NET any (msg:\"ping\"; sid:1;)\n",
    )
    .expect("written");
    let path = folder.join("sensor.yaml");
    let name = path.to_str().expect("a name");
    let rules = rules.to_str().expect("a name");
    let args = [
        "init",
        "sensor",
        "-i",
        "up0",
        "--home",
        "10.1.0.0/24,2001:db8::/32",
        "--rules",
        rules,
        "-o",
        name,
    ];
    weir(args).succeeded();
    let text = fs::read_to_string(&path).expect("written");
    assert!(
        text.contains("HOME_NET: \"[10.1.0.0/24,2001:db8::/32]\""),
        "{text}"
    );
    assert!(text.contains("- interface: up0"), "{text}");
    let tested = weir(["sensor", "-T", "-c", name]).succeeded();
    assert!(
        tested.stdout.contains("1 rules loaded, 0 rejected"),
        "{}",
        tested.stdout
    );
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let folder = Folder::new();
    let path = folder.join("made.toml");
    let name = path.to_str().expect("a name");
    let refused = |args: &[&str], why: &str| {
        let run = weir([&["init"], args, &["-o", name]].concat());
        assert_eq!(run.status, 2, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(why), "{args:?}: {}", run.stderr);
    };
    refused(
        &["balancer", "-i", "up0", "--server", "10.0.0.1"],
        "--address",
    );
    refused(
        &["balancer", "-i", "up0", "--address", "10.0.0.1"],
        "--server",
    );
    refused(
        &["gateway", "--wan", "up0", "--lan", "up0"],
        "--wan and --lan",
    );
    let fixed = ["gateway", "--wan", "up0", "--lan", "in0", "--address"];
    refused(
        &[&fixed[..], &["2001:db8::1", "--inside", "10.0.0.0/8"]].concat(),
        "IPv4",
    );
    refused(
        &[&fixed[..], &["192.0.2.1", "--inside", "2001:db8::/32"]].concat(),
        "NAT is for IPv4",
    );
    refused(&[&fixed[..], &["192.0.2.1"]].concat(), "--inside");
    refused(
        &[&fixed[..], &["192.0.2.1", "--forward", "80:10.0.0.1"]].concat(),
        "PORT=ADDRESS:PORT",
    );
    refused(&["firewall", "-i", "up0", "--tcp", "htpt"], "htpt");
    refused(&["networks", "--devices", "one"], "--devices takes two");
    refused(
        &["sensor", "-i", "up0", "--edge", "x"],
        "a sensor has no name",
    );
    assert!(!Path::new(name).exists(), "nothing was written");

    // A value that only the whole configuration shows to be wrong leaves no file, and the old one where there was one.
    let wrong = ["--edge", "no name"];
    refused(&[&["guard", "-i", "up0"][..], &wrong].concat(), "no name");
    assert!(!Path::new(name).exists(), "an invalid file was left");
    fs::write(name, "# mine\n").expect("written");
    let forced = [&["guard", "-i", "up0", "--force"][..], &wrong].concat();
    refused(&forced, "no name");
    let left = fs::read_to_string(name).expect("it is there");
    assert_eq!(left, "# mine\n");
    fs::remove_file(name).expect("it is there");

    let guard = ["init", "guard", "-i", "up0", "-o", name];
    weir(guard).succeeded();
    let again = weir(guard);
    assert_eq!(again.status, 2, "{}", again.stderr);
    assert!(again.stderr.contains("--force"), "{}", again.stderr);
    weir([&guard[..], &["--force"]].concat()).succeeded();
    let shown = weir(["init", "guard", "-i", "up0", "-o", "-"]).succeeded();
    assert!(
        shown.stdout.contains("weir apply guard.toml"),
        "{}",
        shown.stdout
    );
}
