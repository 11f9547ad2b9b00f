//! What a user meets on a host that refuses: no capability, no BTF. Each case
//! runs this test binary again in the crippled surroundings.

use std::process::{Command, Output};

use crate::common::{root, sample};
use weir_kernel::{KernelError, KernelObject};

/// Tells a process of this binary which case it is.
const CASE: &str = "WEIR_TEST_REFUSAL";

/// Runs this binary's `inner` behind a launcher such as `setpriv`.
fn again(case: &str, launcher: &[&str]) -> Output {
    let exe = std::env::current_exe().expect("own path");
    Command::new(launcher[0])
        .args(&launcher[1..])
        .arg(exe)
        .args(["--exact", "refusals::inner", "--nocapture"])
        .env(CASE, case)
        .output()
        .expect("the launcher is installed")
}

fn assert_passed(output: &Output) {
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // A name that no test has is a success for the test program, too.
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("1 passed"), "{stdout}");
    // libbpf's own complaints must not reach the terminal.
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("libbpf"), "{stderr}");
}

/// Not a test of its own: what the other tests start in changed surroundings.
#[test]
fn inner() {
    let load = || KernelObject::open(sample()).expect("opens").load("sample");
    match std::env::var(CASE).as_deref() {
        Ok("no-capability") => {
            let e = load().unwrap_err();
            assert!(matches!(e, KernelError::NoPermission { .. }), "{e:?}");
            assert!(
                e.to_string()
                    .contains("run as root or grant CAP_NET_ADMIN, CAP_BPF")
            );
            let permission = weir_kernel::probes::probe_all()
                .into_iter()
                .find(|p| p.name == "bpf-permission")
                .expect("a row of the table");
            assert!(permission.ok.is_err());
        }
        Ok("no-btf") => {
            let e = load().unwrap_err();
            assert!(matches!(e, KernelError::NoBtf { .. }), "{e:?}");
            assert!(e.to_string().contains("CONFIG_DEBUG_INFO_BTF=y"), "{e}");
        }
        _ => {}
    }
}

#[test]
fn without_capabilities_the_next_step_is_named() {
    if !root("without_capabilities_the_next_step_is_named") {
        return;
    }
    let none = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    assert_passed(&again("no-capability", &none));
}

#[test]
fn without_btf_the_next_step_is_named() {
    if !root("without_btf_the_next_step_is_named") {
        return;
    }
    let hide = "mount -t tmpfs none /sys/kernel/btf && exec \"$0\" \"$@\"";
    assert_passed(&again("no-btf", &["unshare", "-m", "sh", "-c", hide]));
}

/// libbpf follows a null pointer when it prepares such a map.
#[test]
fn a_struct_ops_map_among_ordinary_maps_is_named() {
    let machine = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let object = crate::common::compile("struct_ops", &["-idirafter", &machine]);
    let e = KernelObject::open(&object).unwrap_err();
    assert!(
        matches!(&e, KernelError::StructOpsMap { map } if map == "operations"),
        "{e:?}"
    );
    let text = e.to_string();
    assert!(
        text.contains("map operations") && text.contains(".struct_ops"),
        "{text}"
    );
}
