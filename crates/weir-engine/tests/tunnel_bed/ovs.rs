//! Open vSwitch in user space as the far site: its own database and daemon in the site's namespace, in a folder that goes with the value.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{HostId, IDENTIFIER, Site, eventually, say, scratch};

/// Open vSwitch in user space at a site; ends with the value.
pub(crate) struct Ovs {
    pub(crate) site: Site,
    folder: PathBuf,
    children: Vec<Child>,
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Ovs {
    /// `None` where it is not installed. `kind`: its name of the tunnel.
    pub(crate) fn start(site: Site, kind: &str, v6: bool) -> Option<Ovs> {
        let schema = "/usr/share/openvswitch/vswitch.ovsschema";
        if !std::path::Path::new(schema).exists()
            || Command::new("ovs-vswitchd")
                .arg("--version")
                .output()
                .is_err()
        {
            say("no Open vSwitch here: its part is skipped");
            return None;
        }
        let folder = scratch("ovs");
        let mut ovs = Ovs {
            site,
            folder,
            children: Vec::new(),
        };
        let folder = ovs.folder.clone();
        let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let (database, socket, control) = (path("conf.db"), path("db.sock"), path("vswitchd.ctl"));
        ovs.run("ovsdb-tool", &["create", &database, schema]);
        let (remote, server_control) = (format!("--remote=punix:{socket}"), path("server.ctl"));
        let control_option = format!("--unixctl={server_control}");
        let pid = format!("--pidfile={}", path("server.pid"));
        ovs.child("ovsdb-server", &[&database, &remote, &control_option, &pid]);
        assert!(
            eventually(|| std::path::Path::new(&socket).exists()),
            "the database does not start"
        );
        let db = format!("--db=unix:{socket}");
        ovs.run("ovs-vsctl", &[&db, "--no-wait", "init"]);
        let control_option = format!("--unixctl={control}");
        let pid = format!("--pidfile={}", path("vswitchd.pid"));
        let server = format!("unix:{socket}");
        ovs.child("ovs-vswitchd", &[&server, &control_option, &pid]);
        let remote = format!(
            "options:remote_ip={}",
            HostId(3 - ovs.site.place.0).underlay(v6)
        );
        let kind = format!("type={kind}");
        let id = format!("options:key={IDENTIFIER}");
        let netdev = "datapath_type=netdev";
        for (bridge, rest) in [
            ("br-phy", vec!["add-port", "br-phy", "ul"]),
            (
                "br-int",
                vec![
                    "add-port",
                    "br-int",
                    "t0",
                    "--",
                    "set",
                    "interface",
                    "t0",
                    &kind,
                    &remote,
                    &id,
                ],
            ),
        ] {
            let mut args = vec![
                &db, "-t", "10", "add-br", bridge, "--", "set", "bridge", bridge, netdev, "--",
            ];
            args.extend(rest);
            ovs.run("ovs-vsctl", &args);
        }
        // The underlay's addresses move to the bridge that has its device.
        ovs.site
            .ns
            .ip(&["address", "flush", "dev", "ul"])
            .expect("flushed");
        let of = [
            ("br-phy", ovs.site.underlay_addresses()),
            ("br-int", ovs.site.inner_addresses()),
        ];
        for (bridge, addresses) in &of {
            for address in addresses {
                let mut args = vec!["address", "add", address, "dev", bridge];
                if address.contains(':') {
                    args.push("nodad");
                }
                ovs.site.ns.ip(&args).expect("an address");
            }
            ovs.site.ns.ip(&["link", "set", bridge, "up"]).expect("up");
        }
        Some(ovs)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.site.ns.command(program).expect("a command");
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(variable, &self.folder);
        }
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, args: &[&str]) {
        let said = self.command(program).args(args).output().expect("runs");
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.status.success(), "{program} {args:?}: {error}");
    }

    fn child(&mut self, program: &str, args: &[&str]) {
        let mut command = self.command(program);
        command
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.children.push(command.spawn().expect("starts"));
    }
}
