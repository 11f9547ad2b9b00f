//! What the stack of a host drops of what a policy hands to it: `weir run` says so, and with the command that it names packets arrive. The tour has
//! the same for the settings that beginners meet; here is the one that its pages already set.

use crate::live_bed::{Bed, Run, root};

#[test]
fn a_source_of_the_host_itself_is_said_with_its_cure() {
    if !root("a_source_of_the_host_itself_is_said_with_its_cure") {
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
    // The address of the box towards the server.
    let policy = "add-stateful in box0 ip-saddr 10.0.1.0/24 map ip-saddr 10.0.2.1\n";
    let run = Run::start(&bed.middle, policy, &["box0", "box1"], &[]);
    let words = run.words();
    assert!(!arrives(), "{words}");
    let cure = "net.ipv4.conf.box0.accept_local=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.box0.rp_filter=0";
    let said = format!(
        "line 1: the stack drops packets that get the source 10.0.2.1 and came in by box0: that is an address of this host, and its reverse \
         path filter is on: `sysctl {cure}`"
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
