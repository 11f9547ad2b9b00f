//! An edge whose state cannot be read: `weir status` and `weir down --all` name it, go on with the others, and say so by their exit status.

use crate::live_bed::{file, root, stderr};
use serde_json::Value;
use weir_kernel::NetNs;

fn document(edge: &str) -> String {
    format!(
        r#"
version = 1
[[edge]]
name = "{edge}"
[[tenant]]
name = "red"
[[network]]
name = "n"
tenant = "red"
[[network.subnet]]
name = "web"
prefix = "10.1.0.0/24"
[[network.workload]]
name = "client"
subnet = "web"
edge = "{edge}"
device = "{edge}0"
address = "10.1.0.7"
"#
    )
}

#[test]
fn an_unreadable_edge_is_named_and_hides_no_other() {
    if !root("an_unreadable_edge_is_named_and_hides_no_other") {
        return;
    }
    let ns = NetNs::create("weiru").expect("a namespace");
    let documents = ["good", "bad"].map(|edge| {
        ns.ip(&["link", "add", &format!("{edge}0"), "type", "veth"])
            .expect("a pair");
        file(&format!("{edge}.toml"), &document(edge))
    });
    // Private mounts, because other tests run at the same time. The state of `bad` becomes another object.
    let script = r#"mount -t tmpfs none /run && mount -t bpf none /sys/fs/bpf || exit 9
        "$1" apply "$2" > /dev/null || exit 8
        "$1" apply "$3" > /dev/null || exit 7
        cd /sys/fs/bpf/weir/net/bad && rm state-1 && mv "$(ls | grep -m1 -v -e state -e text -e document)" state-1 || exit 6
        "$1" status --json; echo "exit $?"
        "$1" down --all; echo "exit $?"
        ls /sys/fs/bpf/weir/net
        "$1" status; echo "exit $?"
        "$1" status --edge bad; echo "exit $?""#;
    let output = ns
        .command("unshare")
        .expect("namespace")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_weir"))
        .args(&documents)
        .output()
        .expect("starts");
    let (told, said) = (String::from_utf8_lossy(&output.stdout), stderr(&output));
    let parts: Vec<&str> = told.split("exit ").collect();
    let [status, down, left, named, _] = parts.as_slice() else {
        panic!("{told}\n{said}");
    };
    let status: Value = serde_json::from_str(status).expect("JSON");
    assert_eq!(status["networks"][0]["edge"], "good", "{status}");
    assert_eq!(status["unreadable"][0]["edge"], "bad", "{status}");
    assert_eq!(*down, "1\nedge good: down\n", "{said}");
    assert_eq!(*left, "1\nbad\n", "{said}");
    assert_eq!(*named, "1\n", "{said}");
    assert!(told.ends_with("exit 1\n"), "{told}");
    for line in ["edge bad cannot be read: ", "edge bad stays: "] {
        assert!(said.contains(line), "{said}");
    }
}
