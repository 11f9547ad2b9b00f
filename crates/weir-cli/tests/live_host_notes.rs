//! What the stack of a host drops of what a policy hands to it: `weir run` and `weir apply` say so, and with the command that they name packets
//! arrive. The tour has the same for the settings that beginners meet; here are those that its pages already set.

use crate::live_bed::{Bed, Run, file, root, stderr, weir};

#[test]
fn a_source_that_the_reverse_path_filter_drops_is_said_with_its_cure() {
    if !root("a_source_that_the_reverse_path_filter_drops_is_said_with_its_cure") {
        return;
    }
    let bed = Bed::build("weir-notes");
    for which in ["all", "box0", "box1"] {
        let name = format!("net.ipv4.conf.{which}.rp_filter");
        bed.middle.sysctl(&name, "1").expect("sysctl");
    }
    let arrives = || {
        let ping = ["-c", "3", "-i", "0.1", "-W", "1", "10.0.2.2"];
        let output = bed.client.output("ping", &ping).unwrap_or_default();
        output.contains(" 3 received")
    };
    assert!(arrives(), "without weir");
    // An address that is routed to the box and belongs to none of its interfaces.
    let policy =
        "add-stateful in box0 ip-saddr 10.0.1.0/24 ! ip-daddr 10.0.1.0/24 map ip-saddr 10.9.9.1\n";
    let run = Run::start(&bed.middle, policy, &["box0", "box1"], &[]);
    let words = run.words();
    assert!(!arrives(), "{words}");
    let cure = "net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.box0.rp_filter=0";
    let said = format!(
        "line 1: the stack drops packets that get the source 10.9.9.1 and came in by box0: its reverse path filter is on: `sysctl {cure}`"
    );
    assert!(words.contains(&said), "{words}");
    let cure: Vec<&str> = cure.split(' ').collect();
    bed.middle.output("sysctl", &cure).expect("the cure");
    assert!(arrives(), "{words}");
    run.stop();
    // Nothing is left to say.
    let run = Run::start(&bed.middle, policy, &["box0", "box1"], &[]);
    assert!(!run.words().contains("the stack drops"), "{}", run.words());
    run.stop();
}

#[test]
fn an_edge_says_what_its_host_does_not_send_on() {
    if !root("an_edge_says_what_its_host_does_not_send_on") {
        return;
    }
    let bed = Bed::build("weir-notes");
    let edge = format!("notes-{}", std::process::id());
    let config = |out: &str| {
        let mut text = format!(
            "edge = \"{edge}\"\n[[function]]\nname = \"nat\"\nkind = \"middlebox\"\n\
             rules = \"add-stateful in inside ip-saddr 10.0.1.0/24 ! ip-daddr 10.0.1.0/24 map ip-saddr 10.0.2.1\"\n"
        );
        for (port, device) in [("inside", "box0"), ("outside", "box1")] {
            text.push_str(&format!(
                "[[port]]\nname = \"{port}\"\ndevice = \"{device}\"\n[[link]]\nfrom = \"{port}\"\nto = \"nat\"\n"
            ));
        }
        text.push_str(&format!("[[link]]\nfrom = \"nat\"\nto = \"{out}\"\n"));
        file("notes.toml", &text)
    };
    let apply = |config: &std::path::Path| {
        let output = weir(&bed.middle, &["apply", config.to_str().expect("UTF-8")]);
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    let said = |what: &str, words: &str| {
        let line = format!("weir: function nat: line 1: {what}\n");
        assert!(words.contains(&line), "{words}");
    };
    bed.middle
        .sysctl("net.ipv4.ip_forward", "0")
        .expect("sysctl");
    let words = apply(&config("stack"));
    said(
        "this host does not forward IPv4 that comes in by box0, box1, so translated packets are lost in its stack: \
         `sysctl net.ipv4.ip_forward=1`",
        &words,
    );
    said(
        "packets that come in by box0 get 10.0.2.1 as source, an address of this host: set net.ipv4.conf.box0.accept_local=1; \
         the old value is restored when weir stops",
        &words,
    );
    // Only one interface is meant, and the stack is not asked where packets do not go there.
    assert!(!words.contains("in by box1 get"), "{words}");
    let words = apply(&config("drop"));
    assert!(!words.contains("sysctl"), "{words}");
    bed.middle
        .sysctl("net.ipv4.ip_forward", "1")
        .expect("sysctl");
    let words = apply(&config("stack"));
    assert!(!words.contains("sysctl"), "{words}");
    let ping = ["-c", "3", "-i", "0.1", "-W", "1", "10.0.2.2"];
    let pinged = bed.client.output("ping", &ping).unwrap_or_default();
    assert!(pinged.contains(" 3 received"), "{pinged}");
    let down = weir(&bed.middle, &["down", "--edge", &edge]);
    assert!(down.status.success(), "{}", stderr(&down));
}
