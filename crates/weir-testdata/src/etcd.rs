//! A cluster of etcd for tests, with TLS and certificates of its own: members are started, killed, wiped and restored from a snapshot.
//!
//! It needs `etcd`, `etcdctl` and `openssl`, which scripts/setup installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long a cluster may take to choose a leader.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether what a cluster needs is installed. Without it the test is listed as not run, and in CI it fails.
///
/// # Panics
/// With `CI=true`, when a program is missing.
#[must_use]
#[track_caller]
pub fn has_etcd() -> bool {
    has(&["etcd", "etcdctl", "openssl"])
}

/// Whether certificates can be made, as of [`has_etcd`].
///
/// # Panics
/// With `CI=true`, when a program is missing.
#[must_use]
#[track_caller]
pub fn has_openssl() -> bool {
    has(&["openssl"])
}

#[track_caller]
fn has(programs: &[&'static str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_missing =
        |program: &&str| !std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let missing: Vec<&str> = programs.iter().copied().filter(is_missing).collect();
    if missing.is_empty() {
        return true;
    }
    let text = format!(
        "no {} here: scripts/setup installs them",
        missing.join(", ")
    );
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{text}");
    crate::not_run(&text);
    false
}

/// Runs a command that is to succeed, and returns its output.
///
/// # Panics
/// It fails.
pub fn done(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A folder with a certificate authority: `ca.pem`, `ca.key`.
#[derive(Debug)]
pub struct Authority {
    /// The folder.
    pub folder: PathBuf,
}

/// A key of its own for each certificate.
const CURVE: [&str; 5] = [
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-nodes",
];

impl Authority {
    /// Makes the folder and the authority.
    ///
    /// # Panics
    /// openssl fails.
    #[must_use]
    pub fn new(folder: &Path) -> Authority {
        fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let authority = Authority {
            folder: folder.to_owned(),
        };
        let subject = ["req", "-x509", "-days", "30", "-subj", "/CN=weir test"];
        done(
            authority
                .openssl(&subject)
                .args(CURVE)
                .args(["-keyout", "ca.key", "-out", "ca.pem"]),
        );
        authority
    }

    fn openssl(&self, args: &[&str]) -> Command {
        let mut command = Command::new("openssl");
        command.current_dir(&self.folder).args(args);
        command
    }

    /// Makes `NAME.pem` and `NAME.key`. `names`: alternative names, as openssl has them; `days`: how long it is valid, 0 or less: it has expired.
    ///
    /// # Panics
    /// openssl fails.
    pub fn issue(&self, name: &str, subject: &str, names: &str, days: i32) {
        let [key, request, certificate, extensions] =
            ["key", "csr", "pem", "ext"].map(|end| format!("{name}.{end}"));
        let output = ["-keyout", &key, "-out", &request];
        done(
            self.openssl(&["req", "-subj", subject])
                .args(CURVE)
                .args(output),
        );
        let text = format!(
            "subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=CA:FALSE\n"
        );
        let written = fs::write(self.folder.join(&extensions), text);
        written.unwrap_or_else(|error| panic!("{extensions}: {error}"));
        let sign = [
            "x509",
            "-req",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
        ];
        let days = days.to_string();
        let what = [
            "-in",
            &request,
            "-days",
            &days,
            "-extfile",
            &extensions,
            "-out",
            &certificate,
        ];
        done(self.openssl(&sign).args(what));
    }

    /// Path of a file of it.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

/// How a program is started: in a namespace, for example.
type Within = Box<dyn Fn(&str) -> Command>;

/// A cluster; its members are killed when it is dropped.
pub struct Cluster {
    /// Certificates: `member`, and `client` for those who connect.
    pub authority: Authority,
    address: String,
    port: u16,
    within: Within,
    members: Vec<Option<Child>>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Of so many members on one address: each has the next ten ports. None runs yet.
    ///
    /// # Panics
    /// openssl fails.
    #[must_use]
    pub fn new(
        folder: &Path,
        address: &str,
        port: u16,
        members: usize,
        within: impl Fn(&str) -> Command + 'static,
    ) -> Cluster {
        let authority = Authority::new(folder);
        authority.issue(
            "member",
            "/CN=member",
            &format!("IP:{address},IP:127.0.0.1"),
            30,
        );
        // Where etcd has users, its gateway refuses certificates with a common name.
        authority.issue("client", "/O=weir", "DNS:client", 30);
        Cluster {
            authority,
            address: address.to_owned(),
            port,
            within: Box::new(within),
            members: (0..members).map(|_| None).collect(),
        }
    }

    fn port(&self, member: usize) -> u16 {
        self.port + 10 * member as u16
    }

    /// Where clients reach a member.
    #[must_use]
    pub fn endpoint(&self, member: usize) -> String {
        format!("https://{}:{}", self.address, self.port(member))
    }

    fn peer(&self, member: usize) -> String {
        format!("https://127.0.0.1:{}", self.port(member) + 1)
    }

    fn data(&self, member: usize) -> String {
        self.authority.path(&format!("data{member}"))
    }

    fn peers(&self) -> String {
        let peers =
            (0..self.members.len()).map(|member| format!("m{member}={}", self.peer(member)));
        peers.collect::<Vec<_>>().join(",")
    }

    /// Starts a member.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start(&mut self, member: usize) {
        let mut command = (self.within)("etcd");
        let log = self.authority.path(&format!("log{member}"));
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .expect("a log");
        let (endpoint, peer) = (self.endpoint(member), self.peer(member));
        command
            .args([
                "--name",
                &format!("m{member}"),
                "--data-dir",
                &self.data(member),
            ])
            .args([
                "--listen-client-urls",
                &endpoint,
                "--advertise-client-urls",
                &endpoint,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &self.peers()])
            .args(["--client-cert-auth", "--peer-client-cert-auth"]);
        for kind in ["", "peer-"] {
            for (option, name) in [
                ("cert-file", "member.pem"),
                ("key-file", "member.key"),
                ("trusted-ca-file", "ca.pem"),
            ] {
                command
                    .arg(format!("--{kind}{option}"))
                    .arg(self.authority.path(name));
            }
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log);
        self.members[member] = Some(command.spawn().expect("etcd starts"));
    }

    /// Starts all members, and waits until they have a leader.
    ///
    /// # Panics
    /// They have none for long.
    pub fn start_all(&mut self) {
        (0..self.members.len()).for_each(|member| self.start(member));
        self.wait();
    }

    /// Kills a member.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.members[member].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills all members.
    pub fn kill_all(&mut self) {
        (0..self.members.len()).for_each(|member| self.kill(member));
    }

    /// Runs etcdctl with the members that run.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    pub fn etcdctl(&self, args: &[&str]) -> Output {
        let living = (0..self.members.len()).filter(|&member| self.members[member].is_some());
        let endpoints: Vec<String> = living.map(|member| self.endpoint(member)).collect();
        self.etcdctl_at(&endpoints.join(","), args)
    }

    fn etcdctl_at(&self, endpoints: &str, args: &[&str]) -> Output {
        let mut command = (self.within)("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .args(args)
            .args(["--endpoints", endpoints]);
        for (option, name) in [
            ("--cacert", "ca.pem"),
            ("--cert", "client.pem"),
            ("--key", "client.key"),
        ] {
            command.arg(option).arg(self.authority.path(name));
        }
        command.output().expect("etcdctl starts")
    }

    /// Waits until a leader writes.
    ///
    /// # Panics
    /// There is none for long.
    pub fn wait(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.etcdctl(&["put", "ready", "1"]).status.success() {
            assert!(Instant::now() < until, "the cluster has no leader");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The member that leads.
    ///
    /// # Panics
    /// None does.
    #[must_use]
    pub fn leader(&self) -> usize {
        let status = self.etcdctl(&["endpoint", "status", "--write-out", "json"]);
        let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
        let all = status.as_array().expect("a list");
        let leads = |one: &&Value| one["Status"]["leader"] == one["Status"]["header"]["member_id"];
        let endpoint = all
            .iter()
            .find(leads)
            .and_then(|one| one["Endpoint"].as_str());
        let endpoint = endpoint.expect("one leads").to_owned();
        let is_it = |&member: &usize| self.endpoint(member) == endpoint;
        (0..self.members.len()).find(is_it).expect("a member")
    }

    /// Saves a snapshot, of the first member.
    ///
    /// # Panics
    /// etcdctl fails.
    pub fn save(&self, snapshot: &str) {
        let saved = self.etcdctl_at(&self.endpoint(0), &["snapshot", "save", snapshot]);
        assert!(
            saved.status.success(),
            "{}",
            String::from_utf8_lossy(&saved.stderr)
        );
    }

    /// Removes the data of all members, which do not run.
    pub fn wipe(&self) {
        (0..self.members.len()).for_each(|member| {
            let _ = fs::remove_dir_all(self.data(member));
        });
    }

    /// Makes the data of all members from a snapshot.
    ///
    /// # Panics
    /// etcdctl fails.
    pub fn restore(&self, snapshot: &str) {
        for member in 0..self.members.len() {
            let mut command = (self.within)("etcdctl");
            command
                .env("ETCDCTL_API", "3")
                .args(["snapshot", "restore", snapshot]);
            command.args([
                "--name",
                &format!("m{member}"),
                "--data-dir",
                &self.data(member),
            ]);
            command.args(["--initial-cluster", &self.peers()]);
            command.args(["--initial-advertise-peer-urls", &self.peer(member)]);
            done(&mut command);
        }
    }

    /// A counter or gauge of all members together, from their metrics.
    ///
    /// # Panics
    /// A member does not answer.
    #[must_use]
    pub fn metric(&self, name: &str) -> f64 {
        let living = (0..self.members.len()).filter(|&member| self.members[member].is_some());
        let values = living.map(|member| {
            let mut command = (self.within)("curl");
            command.args(["-sS", "--cacert", &self.authority.path("ca.pem")]);
            command.args([
                "--cert",
                &self.authority.path("client.pem"),
                "--key",
                &self.authority.path("client.key"),
            ]);
            let text = done(command.arg(format!("{}/metrics", self.endpoint(member))));
            let of = text.lines().filter(|line| {
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with([' ', '{']))
            });
            let values = of.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            values.sum::<f64>()
        });
        values.sum()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_all();
        // Each member takes more than 100 MB of disk before its first key. What a failed test leaves can be looked at.
        if !std::thread::panicking() {
            for member in 0..self.members.len() {
                let _ = fs::remove_dir_all(self.data(member));
            }
        }
    }
}
