//! Open vSwitch with its user-space datapath, in a namespace: a bridge for each function, joined by patch ports. Every other bridge is a router: it counts
//! a hop and writes both MAC addresses, by OpenFlow.
//!
//! Its database, sockets and log are in scratch files; nothing of the system's own Open vSwitch is touched, and both processes end with their value.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use weir_kernel::NetNs;

use super::document::{device, workload_mac};
use crate::LabError;
use crate::process::{Running, Scratch, missing};

/// Program and package that it needs.
pub(super) const NEEDS: (&str, &str) = ("ovs-vswitchd", "openvswitch-switch");

/// A running switch.
pub(super) struct Switch {
    ns: Arc<NetNs>,
    folder: PathBuf,
    _switch: Running,
    _database: Running,
}

/// Whether it is installed.
pub(super) fn is_there() -> bool {
    missing(&[
        "ovs-vswitchd",
        "ovsdb-server",
        "ovsdb-tool",
        "ovs-vsctl",
        "ovs-ofctl",
        "ovs-appctl",
    ])
    .is_empty()
}

/// Whether both processes are so far that they answer.
const PATIENCE: Duration = Duration::from_secs(10);

impl Switch {
    /// A row of so many bridges between the devices of the first pair. The switch runs on one CPU with those whom it serves.
    pub(super) fn start(
        ns: &Arc<NetNs>,
        functions: usize,
        scratch: &Scratch,
        cpu: usize,
    ) -> Result<Switch, LabError> {
        let folder = scratch.fresh("ovs", "d");
        std::fs::create_dir(&folder).map_err(LabError::io("create a folder for Open vSwitch"))?;
        let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let database = path("conf.db");
        let schema = "/usr/share/openvswitch/vswitch.ovsschema";
        run(Command::new("ovsdb-tool").args(["create", &database, schema]))?;
        let socket = path("db.sock");
        let mut command = ns.command("ovsdb-server")?;
        command.env("OVS_RUNDIR", &folder).args([
            database.as_str(),
            &format!("--remote=punix:{socket}"),
            &format!("--unixctl={}", path("database.ctl")),
            "--verbose=off",
        ]);
        let mut database = Running::start(&mut command, "ovsdb-server", scratch)?;
        database.wait_until(PATIENCE, |_| Ok(folder.join("db.sock").exists()))?;
        // As a process with the precedence of those who talk through it: the best that it can have.
        let mut command = ns.command("chrt")?;
        command.env("OVS_RUNDIR", &folder).args([
            "-f",
            "10",
            "taskset",
            "-c",
            &cpu.to_string(),
            "ovs-vswitchd",
            &format!("unix:{socket}"),
            &format!("--unixctl={}", path("switch.ctl")),
            "--verbose=off",
        ]);
        let mut running = Running::start(&mut command, "ovs-vswitchd", scratch)?;
        running.wait_until(PATIENCE, |_| Ok(folder.join("switch.ctl").exists()))?;
        let switch = Switch {
            ns: Arc::clone(ns),
            folder,
            _switch: running,
            _database: database,
        };
        switch.bridges(functions)?;
        Ok(switch)
    }

    fn bridges(&self, functions: usize) -> Result<(), LabError> {
        let mut args: Vec<String> = Vec::new();
        let mut say = |line: String| {
            args.push("--".to_owned());
            args.extend(line.split_whitespace().map(str::to_owned));
        };
        for at in 0..functions {
            say(format!(
                "add-br o{at} -- set bridge o{at} datapath_type=netdev fail-mode=secure"
            ));
        }
        let port = |bridge: usize, name: String, number: u32, more: String| {
            format!(
                "add-port o{bridge} {name} -- set interface {name} ofport_request={number} {more}"
            )
        };
        for at in 0..functions {
            let (before, after) = (at.checked_sub(1), at + 1);
            say(match before {
                None => port(at, device('a', 0), 1, String::new()),
                Some(_) => port(
                    at,
                    format!("pl{at}"),
                    1,
                    format!("type=patch options:peer=pr{}", at - 1),
                ),
            });
            say(match after == functions {
                true => port(at, device('b', 0), 2, String::new()),
                false => port(
                    at,
                    format!("pr{at}"),
                    2,
                    format!("type=patch options:peer=pl{after}"),
                ),
            });
        }
        let socket = format!("--db=unix:{}", self.folder.join("db.sock").display());
        let args = args.iter().map(String::as_str);
        run(self
            .command("ovs-vsctl")?
            .arg(socket)
            .arg("--timeout=20")
            .args(args.skip(1)))?;
        for at in 0..functions {
            for (from, to, end) in [(1, 2, 'b'), (2, 1, 'a')] {
                // Its neighbours are what a row of switches would have: the routers' MAC addresses change nothing here.
                let actions = match at % 2 {
                    0 => format!("output:{to}"),
                    _ => format!(
                        "dec_ttl,mod_dl_src:{},mod_dl_dst:{},output:{to}",
                        workload_mac(if end == 'b' { 'a' } else { 'b' }, 0),
                        workload_mac(end, 0)
                    ),
                };
                let flow = format!("in_port={from},ip,actions={actions}");
                let bridge = format!("unix:{}", self.folder.join(format!("o{at}.mgmt")).display());
                run(self
                    .command("ovs-ofctl")?
                    .args(["add-flow", &bridge, &flow]))?;
            }
        }
        Ok(())
    }

    fn command(&self, program: &str) -> Result<Command, LabError> {
        let mut command = self.ns.command(program)?;
        command.env("OVS_RUNDIR", &self.folder);
        Ok(command)
    }

    /// Lets the datapath forget its flows, as it does with those that are idle for ten seconds: the next packet asks all tables.
    pub(super) fn forget(&self) -> Result<(), LabError> {
        let control = self.folder.join("switch.ctl");
        run(self
            .command("ovs-appctl")?
            .args(["-t", &control.to_string_lossy(), "dpctl/del-flows"]))
    }
}

fn run(command: &mut Command) -> Result<(), LabError> {
    Ok(weir_kernel::netns::run_command(command).map(drop)?)
}
