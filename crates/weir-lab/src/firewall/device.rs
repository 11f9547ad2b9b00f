//! What stands on the box: weir on XDP, weir on tc, or nftables with its connection tracking, each with the same policy in its own words.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_kernel::NetNs;

use super::script::{Host, Policy, Side};
use super::segment::World;
use crate::LabError;
use crate::process::{Running, Scratch};

const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(20);

/// A device under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// `weir run --hook xdp`.
    WeirXdp,
    /// `weir run --hook tc`.
    WeirTc,
    /// nftables, hook forward, with nf_conntrack.
    Nftables,
}

impl Device {
    /// All of them, in the order of the table.
    pub const ALL: [Device; 3] = [Device::WeirXdp, Device::WeirTc, Device::Nftables];

    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Device::WeirXdp => "weir XDP",
            Device::WeirTc => "weir tc",
            Device::Nftables => "nftables",
        }
    }

    /// As options and JSON name it.
    pub fn key(self) -> &'static str {
        match self {
            Device::WeirXdp => "weir-xdp",
            Device::WeirTc => "weir-tc",
            Device::Nftables => "nftables",
        }
    }

    /// Whether it is weir.
    pub fn is_weir(self) -> bool {
        self != Device::Nftables
    }
}

/// A device that runs; ends with its value.
pub(crate) struct Standing {
    weir: Option<(Running, PathBuf)>,
}

impl Standing {
    /// Ends it; returns the report of weir.
    pub(crate) fn stop(mut self) -> Result<Option<Value>, LabError> {
        let Some((mut running, stdout)) = self.weir.take() else {
            return Ok(None);
        };
        running.signal(Signal::INT)?;
        let status = running.wait(STOP)?;
        if !status.success() {
            return Err(running.failed(&format!("ended with {status}")));
        }
        let text = fs::read_to_string(&stdout).map_err(LabError::io("read weir's report"))?;
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| LabError::Child {
                what: "weir run".to_owned(),
                why: format!("its report is not JSON: {error}"),
            })
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Some((weir, _)) = &mut self.weir {
            let _ = weir.signal(Signal::INT);
            let _ = weir.wait(STOP);
        }
    }
}

/// Puts a device with a policy for these blocks of addresses onto the box.
pub(crate) fn stand(
    device: Device,
    policy: &Policy,
    blocks: &[u8],
    ns: &NetNs,
    weir: &Path,
    scratch: &Scratch,
) -> Result<Standing, LabError> {
    let hook = match device {
        Device::WeirXdp => "xdp",
        Device::WeirTc => "tc",
        Device::Nftables => {
            for (name, value) in &policy.sysctls {
                ns.sysctl(name, value)?;
            }
            let path = scratch.fresh("rules", "nft");
            write(&path, &expand(&policy.nft, policy, blocks))?;
            ns.output("nft", &["-f", &path.to_string_lossy()])?;
            return Ok(Standing { weir: None });
        }
    };
    let path = scratch.fresh("policy", "weir");
    write(&path, &expand(&policy.weir, policy, blocks))?;
    let stdout = scratch.fresh("report", "json");
    let file = File::create(&stdout).map_err(LabError::io("create a file"))?;
    let mut command = ns.command(&weir.to_string_lossy())?;
    command
        .args(["run", "--json", "--hook", hook, "-i", "box0", "-i", "box1"])
        .args(&policy.arguments)
        .arg(&path)
        .stdout(Stdio::from(file));
    let mut running = Running::start(&mut command, "weir run", scratch)?;
    let attached = running.wait_until(START, |r| Ok(r.stderr().contains("attached to")));
    if let Err(error) = attached {
        // A refused policy says what is wrong with it first, and last how often.
        let words = running.stderr();
        let first = words.lines().find(|line| line.starts_with("error"));
        return Err(first.map_or(error, |line| LabError::Child {
            what: format!("weir run, policy {}", policy.name),
            why: line.to_owned(),
        }));
    }
    Ok(Standing {
        weir: Some((running, stdout)),
    })
}

/// Lines that begin with `each` once for each block, with its addresses.
fn expand(lines: &[String], policy: &Policy, blocks: &[u8]) -> String {
    let mut text = String::new();
    for line in lines {
        let Some(each) = line.strip_prefix("each ") else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        for &block in blocks {
            let world = World::new(policy, block, false);
            let mut line = each.replace("{inside}", &format!("10.1.{block}.0/24"));
            for (name, host) in [
                ("{c}", Host::C),
                ("{d}", Host::D),
                ("{s}", Host::S),
                ("{t}", Host::T),
                ("{p}", Host::P),
                ("{q}", Host::Q),
            ] {
                line = line.replace(name, &world.address(host, Side::Outside).to_string());
            }
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    fs::write(path, text).map_err(LabError::io(format!("write {}", path.display())))
}
