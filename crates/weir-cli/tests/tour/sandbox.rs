//! A machine of its own for a reader: a shell in fresh network, process and mount namespaces, with its own /run (so `ip netns add lb` meets
//! nobody's `lb`) and its own bpffs. Everything in it, programs on devices included, ends with the value, also after a panic.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::common::Folder;

/// What the shell does first.
const PREPARE: &str = "set -e
mount -t tmpfs tmpfs /run
mkdir /run/netns
mount -t bpf bpf /sys/fs/bpf
ip link set lo up
set +e
";

/// The shell, and a folder of files that vanishes with it.
pub(crate) struct Sandbox {
    shell: Child,
    stdin: Option<ChildStdin>,
    replies: Receiver<String>,
    folder: Folder,
    steps: usize,
}

/// A command that was typed in.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// Exit status; `None` if it did not end in time.
    pub(crate) status: Option<i32>,
    /// Where its output is, both kinds in one; what stays in the background may add to it.
    output: PathBuf,
}

impl Done {
    pub(crate) fn output(&self) -> String {
        let bytes = fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Sandbox {
    pub(crate) fn start() -> Sandbox {
        let folder = Folder::new();
        let home = folder.join("home");
        fs::create_dir(&home).expect("temporary folders can be written");
        let program = Path::new(crate::common::WEIR);
        let bin = program.parent().expect("a program is in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--mount-proc"])
            .args(["--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"])
            .args(["bash", "--norc", "--noprofile"])
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("LC_ALL", "C")
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start unshare: {e}"));
        let stdout = shell.stdout.take().expect("piped");
        let (send, replies) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let mut sandbox = Sandbox {
            stdin: shell.stdin.take(),
            shell,
            replies,
            folder,
            steps: 0,
        };
        // A namespace takes seconds where many come and go at the same time.
        let done = sandbox.run(PREPARE, Duration::from_secs(120));
        assert_eq!(done.status, Some(0), "no sandbox: {}", done.output());
        sandbox
    }

    /// Types a command in and waits for its end.
    pub(crate) fn run(&mut self, command: &str, patience: Duration) -> Done {
        self.steps += 1;
        let n = self.steps;
        let script = self.folder.write(&format!("{n}.sh"), command);
        let output = self.folder.join(&format!("{n}.out"));
        let line = format!(
            ". {} >{} 2>&1 </dev/null; echo $?\n",
            script.display(),
            output.display()
        );
        let stdin = self.stdin.as_mut().expect("open until it is dropped");
        let typed = stdin.write_all(line.as_bytes());
        let reply = match typed {
            Ok(()) => self.replies.recv_timeout(patience),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        };
        let status = reply.ok().and_then(|line| line.trim().parse().ok());
        Done { status, output }
    }

    /// Saves a file where the shell is.
    pub(crate) fn save(&self, name: &str, text: &str) {
        self.folder.write(&format!("home/{name}"), text);
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // `--kill-child`: the shell is the first process of its namespace, and takes all others with it.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        // It closes its end when it is gone.
        while self.replies.recv_timeout(Duration::from_secs(10)).is_ok() {}
    }
}
