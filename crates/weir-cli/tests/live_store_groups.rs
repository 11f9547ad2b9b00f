//! Security groups over edges that follow one store: members on other edges than the policy, changed by commands of several hosts at a time, under a
//! numbered stream.
//!
//! ```text
//! w1 [e1]   w2 w4 [e2]   -- web -- wall (only @shops may send to port 7) -- db -- w3 [e3]
//! ```

use std::fs;

use weir_kernel::NetNs;
use weir_testdata::etcd::has_etcd;

use crate::live_bed::{root, stderr};
use crate::live_store_bed::{ANSWER, Bed, SILENCE, Station, Stream, cluster_in, report};

/// The document; `home`: the one edge of the wall, or each has it.
fn document(bed: &Bed, version: u32, home: Option<usize>) -> String {
    let mut text = format!("version = {version}\n");
    for (n, edge) in bed.edges.iter().enumerate() {
        text.push_str(&format!(
            "[[edge]]\nname = \"{}\"\nunderlay = \"10.9.0.{}\"\ndevice = \"eth0\"\nmtu = 1600\n",
            edge.name,
            n + 1
        ));
    }
    let home = home.map_or(String::new(), |at| {
        format!("home = \"{}\"\n", bed.edges[at].name)
    });
    text.push_str(&format!(
        "[[tenant]]\nname = \"red\"\n[[network]]\nname = \"red-net\"\ntenant = \"red\"\n\
         [[network.subnet]]\nname = \"web\"\nprefix = \"10.1.0.0/24\"\n[[network.subnet]]\nname = \"db\"\nprefix = \"10.1.0.0/24\"\n\
         [[network.group]]\nname = \"shops\"\n[[network.group]]\nname = \"empty\"\n\
         [[network.function]]\nname = \"wall\"\nkind = \"middlebox\"\n{home}rules = \"\"\"\n\
         in a udp-dport 7 ! ip-saddr in @shops drop\nin a udp-dport 7 ip-saddr in @empty drop\n\"\"\"\n\
         [[network.link]]\nfrom = \"web\"\nto = \"wall\"\n[[network.link]]\nfrom = \"wall\"\nto = \"db\"\n"
    ));
    for (n, subnet, groups) in [(1, "web", "\"shops\""), (2, "web", ""), (3, "db", "")] {
        text.push_str(&format!(
            "[[network.workload]]\nname = \"w{n}\"\nsubnet = \"{subnet}\"\nedge = \"{}\"\ndevice = \"red-w{n}\"\naddress = \"10.1.0.{n}\"\ngroups = [{groups}]\n",
            bed.edges[n - 1].name
        ));
    }
    let path = bed.folder.join(format!("groups-{version}.toml"));
    fs::write(&path, text).expect("writable");
    path.display().to_string()
}

#[test]
fn members_on_other_edges_come_and_go() {
    if !root("members_on_other_edges_come_and_go") || !has_etcd() {
        return;
    }
    let core = NetNs::create("wsg").expect("a namespace");
    let mut bed = Bed::new(&core, 3);
    let mut cluster = cluster_in(&core, &bed.folder.join("etcd"));
    cluster.start_all();
    bed.configure(&cluster);
    for edge in &mut bed.edges {
        edge.start();
    }
    let station =
        |edge: usize, n: u8| Station::new(&bed.edges[edge], "red-net", &format!("w{n}"), n);
    let [one, two, _three, four] = [station(0, 1), station(1, 2), station(2, 3), station(1, 4)];
    let may = |from: &Station, wanted: bool, why: &str| {
        let patience = if wanted { ANSWER } else { SILENCE };
        let answer = from.asks(3, patience);
        assert_eq!(answer.is_some(), wanted, "{why}");
    };
    let change = |at: usize, words: &str| {
        let words = [
            &["net", "store", "workload"],
            &*words.split(' ').collect::<Vec<_>>(),
        ]
        .concat();
        bed.edges[at].done(&words);
    };
    for (version, home) in [(1, Some(2)), (2, None)] {
        let push = [
            "net",
            "store",
            "push",
            &document(&bed, version, home),
            "--wait",
            "30s",
        ];
        bed.edges[0].done(&push);
        may(&one, true, "a member on another edge than the policy");
        may(&two, false, "no member");
        let stream = Stream::start(&one, 3);
        for _ in 0..3 {
            change(0, "groups red-net/w2 shops");
            bed.edges[0].status("20s");
            may(&two, true, "a member that joined");
            change(2, "groups red-net/w2");
            bed.edges[0].status("20s");
            may(&two, false, "a member that left");
        }
        // Two hosts change members of one group at the same time.
        let on = &bed.edges[1].name;
        let add = format!(
            "add red-net/w4 --subnet web --on {on} --device red-w4 --address 10.1.0.4 --group shops"
        );
        let first = &bed.edges[0];
        let mut command = first
            .ns
            .command(env!("CARGO_BIN_EXE_weir"))
            .expect("namespace");
        command
            .args(["net", "store", "workload"])
            .args(add.split(' '));
        let adding = command.arg("--config").arg(&first.folder).spawn();
        change(2, "groups red-net/w2 shops");
        let added = adding.expect("weir starts").wait().expect("it ends");
        assert!(added.success(), "{added}");
        bed.edges[0].status("20s");
        may(&two, true, "a member that joined with another");
        may(&four, true, "a workload that was added as a member");
        change(1, "delete red-net/w4");
        change(1, "groups red-net/w2");
        bed.edges[0].status("20s");
        may(&two, false, "all left but one");
        let (sent, received, _) = stream.end();
        report(&format!(
            "members came and went: {sent} sent by another, {} lost",
            sent - received
        ));
        assert_eq!((sent, received), (sent, sent));
    }
    let refused = bed.edges[0].weir(&["net", "store", "workload", "groups", "red-net/w2", "shop"]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("no group is named `shop`") && said.contains("shops"),
        "{said}"
    );
}
