//! What code can do that takes over a confined process: nothing of what it tries, each of which works before.
//!
//! The code runs in this test binary, started again, with the confinement that sensors enter.
#![expect(unsafe_code, reason = "ptrace and process_vm_readv have no safe form")]

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use weir_kernel::confine::{Confinement, FileAccess, enter};
use weir_kernel::{KernelObject, Map, MapDefinition};

use crate::common::{root, sample};

/// Tells a process of this binary which folder it works in.
const FOLDER: &str = "WEIR_TEST_CONFINED";

/// An attempt, by its name.
type Attempt<'a> = (&'static str, Box<dyn Fn() -> io::Result<()> + 'a>);

/// What only Landlock refuses a process of root: a kernel without it is held to the rest.
const BY_LANDLOCK: &[&str] = &[
    "read the environment of a process",
    "read the command of a process",
    "write memory of a process",
    "write outside",
    "write a file of rules",
    "move a log out",
    "remove a file outside",
    "read a file that is not named",
];

/// What a host may refuse root as well, by its boot or its settings.
const BY_HOST: &[&str] = &["load a kernel module", "leave files by io_uring"];

fn checked(result: libc::c_long) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// What it tries, against a process of another domain.
fn attempts<'a>(folder: &'a Path, victim: u32) -> Vec<Attempt<'a>> {
    let process = libc::pid_t::try_from(victim).expect("a process");
    let other = move |name: &str| PathBuf::from(format!("/proc/{victim}/{name}"));
    let io = |e: rustix::io::Errno| io::Error::from(e);
    vec![
        (
            "make a map",
            Box::new(|| {
                let definition = MapDefinition {
                    kind: 1,
                    key: 4,
                    value: 8,
                    entries: 16,
                    flags: 0,
                };
                let map = Map::create("another", definition);
                map.map(drop).map_err(|e| io::Error::other(e.to_string()))
            }),
        ),
        (
            "load a program",
            Box::new(|| {
                let object = KernelObject::open(sample()).and_then(|o| o.load("sample"));
                object
                    .map(drop)
                    .map_err(|e| io::Error::other(e.to_string()))
            }),
        ),
        (
            "make a map",
            Box::new(|| {
                // `union bpf_attr` of BPF_MAP_CREATE: an array of one value of four bytes.
                let attr: [u32; 32] = std::array::from_fn(|at| match at {
                    0 => 2,
                    1 | 2 => 4,
                    3 => 1,
                    _ => 0,
                });
                // SAFETY: the kernel reads as many bytes as the array has.
                checked(unsafe {
                    libc::syscall(libc::SYS_bpf, 0, attr.as_ptr(), size_of_val(&attr))
                })
            }),
        ),
        (
            "open a packet socket",
            Box::new(move || {
                use rustix::net::{AddressFamily, SocketType, socket};
                socket(AddressFamily::PACKET, SocketType::RAW, None)
                    .map(drop)
                    .map_err(io)
            }),
        ),
        (
            "open a raw socket",
            Box::new(move || {
                use rustix::net::{AddressFamily, SocketType, ipproto, socket};
                socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP))
                    .map(drop)
                    .map_err(io)
            }),
        ),
        (
            "open a TCP socket",
            Box::new(move || {
                use rustix::net::{AddressFamily, SocketType, socket};
                socket(AddressFamily::INET, SocketType::STREAM, None)
                    .map(drop)
                    .map_err(io)
            }),
        ),
        (
            "listen",
            Box::new(|| TcpListener::bind("0.0.0.0:0").map(drop)),
        ),
        (
            "listen at a socket in its folder",
            Box::new(|| {
                let path = folder.join("logs/socket");
                let made = UnixListener::bind(&path).map(drop);
                let _ = fs::remove_file(path);
                made
            }),
        ),
        (
            "send a signal",
            Box::new(move || {
                let process = rustix::process::Pid::from_raw(process).expect("a process");
                rustix::process::kill_process(process, rustix::process::Signal::CONT).map_err(io)
            }),
        ),
        (
            "trace a process",
            Box::new(move || {
                // SAFETY: no pointer is passed; the victim is ours and goes on when it is detached.
                let result = checked(unsafe { libc::ptrace(libc::PTRACE_SEIZE, process, 0, 0) });
                if result.is_ok() {
                    // SAFETY: as above. Detaching takes a tracee that is stopped.
                    unsafe {
                        libc::ptrace(libc::PTRACE_INTERRUPT, process, 0, 0);
                        libc::waitpid(process, std::ptr::null_mut(), libc::__WALL);
                        libc::ptrace(libc::PTRACE_DETACH, process, 0, 0);
                    }
                }
                result
            }),
        ),
        (
            "read memory of a process",
            Box::new(move || {
                let maps = fs::read_to_string(other("maps"))?;
                let start = maps
                    .split('-')
                    .next()
                    .and_then(|text| usize::from_str_radix(text, 16).ok());
                let mut bytes = [0u8; 8];
                let local = libc::iovec {
                    iov_base: bytes.as_mut_ptr().cast(),
                    iov_len: bytes.len(),
                };
                let remote = libc::iovec {
                    iov_base: start.unwrap_or_default() as *mut libc::c_void,
                    iov_len: bytes.len(),
                };
                // SAFETY: the local vector is `bytes`; the kernel checks the remote one.
                let read = unsafe {
                    libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0)
                };
                checked(read as libc::c_long)
            }),
        ),
        (
            "read the environment of a process",
            Box::new(move || fs::read(other("environ")).map(drop)),
        ),
        (
            "read the command of a process",
            Box::new(move || fs::read(other("cmdline")).map(drop)),
        ),
        (
            "write memory of a process",
            Box::new(move || fs::File::options().write(true).open(other("mem")).map(drop)),
        ),
        (
            "write outside",
            Box::new(|| fs::write(folder.join("outside"), "x")),
        ),
        (
            "write a file of rules",
            Box::new(|| fs::write(folder.join("rules/a.rules"), "x")),
        ),
        (
            "truncate a file outside",
            Box::new(|| {
                let file = std::ffi::CString::new(
                    folder
                        .join("rules/a.rules")
                        .into_os_string()
                        .into_encoded_bytes(),
                )
                .expect("no zero");
                // SAFETY: a string with a final zero.
                checked(i64::from(unsafe { libc::truncate(file.as_ptr(), 0) }))
            }),
        ),
        (
            "move a log out",
            Box::new(|| {
                fs::write(folder.join("logs/moved"), "x")?;
                let moved = fs::rename(folder.join("logs/moved"), folder.join("moved"));
                let _ = fs::remove_file(folder.join("moved"));
                moved
            }),
        ),
        (
            "remove a file outside",
            Box::new(|| {
                let path = folder.join("removed");
                fs::remove_file(&path)?;
                fs::write(path, "x")
            }),
        ),
        (
            "read a file that is not named",
            Box::new(|| fs::read(folder.join("secret")).map(drop)),
        ),
        (
            "run a program",
            Box::new(|| Command::new("/bin/true").status().map(drop)),
        ),
        (
            "start a process",
            Box::new(|| {
                // SAFETY: the child ends at once, without running anything of this process.
                match unsafe { libc::fork() } {
                    // SAFETY: as above.
                    0 => unsafe { libc::_exit(0) },
                    child => {
                        checked(child.into())?;
                        // SAFETY: no pointer is followed.
                        checked(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }.into())
                    }
                }
            }),
        ),
        (
            "make a namespace",
            Box::new(|| {
                std::thread::scope(|scope| {
                    // SAFETY: only the new thread changes, and it ends.
                    let thread = scope
                        .spawn(|| checked(unsafe { libc::unshare(libc::CLONE_NEWUTS) }.into()));
                    thread.join().expect("no panic")
                })
            }),
        ),
        (
            "become root",
            Box::new(|| {
                // SAFETY: no pointer. Only this thread changes, to what it was as root.
                checked(unsafe { libc::syscall(libc::SYS_setresuid, 0, 0, 0) })
            }),
        ),
        (
            "load a kernel module",
            Box::new(|| {
                // SAFETY: an address that is no memory: a call that is allowed to go on answers EFAULT, ENOEXEC or ENOSYS.
                let result = checked(unsafe { libc::syscall(libc::SYS_init_module, 1, 1, 1) });
                match result.as_ref().err().and_then(io::Error::raw_os_error) {
                    Some(libc::EFAULT | libc::ENOEXEC | libc::ENOSYS | libc::EINVAL) => Ok(()),
                    _ => result,
                }
            }),
        ),
        (
            "leave files by io_uring",
            Box::new(|| {
                // SAFETY: no memory at that address either.
                let result = checked(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, 0) });
                match result.as_ref().err().and_then(io::Error::raw_os_error) {
                    Some(libc::EFAULT | libc::ENOSYS) => Ok(()),
                    _ => result,
                }
            }),
        ),
    ]
}

/// Kills the victim when the test ends, also by a panic.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn code_that_takes_over_a_confined_process_is_refused_everything() {
    if !root("code_that_takes_over_a_confined_process_is_refused_everything") {
        return;
    }
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("confined-{}", std::process::id()));
    for part in ["logs", "rules"] {
        fs::create_dir_all(folder.join(part)).expect("writable");
    }
    for part in ["rules/a.rules", "removed", "secret"] {
        fs::write(folder.join(part), "x").expect("writable");
    }
    let exe = std::env::current_exe().expect("own path");
    let output = Command::new(exe)
        .args(["--exact", "confine::taken_over", "--nocapture"])
        .env(FOLDER, &folder)
        .output()
        .expect("starts");
    let _ = fs::remove_dir_all(&folder);
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("1 passed"), "{out}");
}

/// A map of the kernel.
fn hash() -> Map {
    let definition = MapDefinition {
        kind: 1,
        key: 4,
        value: 8,
        entries: 16,
        flags: 0,
    };
    Map::create("confined", definition).expect("made")
}

/// Not a test of its own: the code that runs in the confined process.
#[test]
fn taken_over() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let victim = Command::new("sleep").arg("600").spawn().expect("starts");
    let victim = Victim(victim);
    // Compiled before: a compiler cannot be started afterwards.
    sample();
    let attempts = attempts(&folder, victim.0.id());
    for (what, attempt) in &attempts {
        if let Err(error) = attempt()
            && !BY_HOST.contains(what)
        {
            panic!("{what}: refused before: {error}");
        }
    }
    fs::write(folder.join("rules/a.rules"), "rule").expect("not confined yet");
    // A thread, for this one has yet to end the victim.
    let process = victim.0.id();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| confined(&folder, &self::attempts(&folder, process)));
        thread.join().expect("no panic");
    });
}

fn confined(folder: &Path, attempts: &[Attempt<'_>]) {
    let confinement = Confinement {
        write: vec![folder.join("logs")],
        read: vec![folder.join("rules"), folder.join("missing")],
        map_elements: true,
    };
    let map = hash();
    let files = enter(&confinement).expect("the kernel has all of it");
    let is_judged = |what: &str| files != FileAccess::Unavailable || !BY_LANDLOCK.contains(&what);
    let done: Vec<&str> = (attempts.iter())
        .filter(|(what, attempt)| is_judged(what) && attempt().is_ok())
        .map(|(what, _)| *what)
        .collect();
    assert_eq!(done, [""; 0], "not refused");
    // What a sensor needs goes on.
    let rules = fs::read_to_string(folder.join("rules/a.rules")).expect("readable");
    assert_eq!(rules, "rule");
    let log = folder.join("logs/eve.json");
    fs::write(&log, "{}").expect("writable");
    fs::rename(&log, folder.join("logs/eve.json.1")).expect("rotated");
    fs::create_dir(folder.join("logs/files")).expect("made");
    fs::remove_file(folder.join("logs/eve.json.1")).expect("removed");
    let thread = std::thread::Builder::new().name("another".to_owned());
    let thread = thread.spawn({
        let outside = folder.join("outside");
        move || fs::write(outside, "x").is_err()
    });
    let is_refused = thread.expect("threads start").join().expect("no panic");
    assert!(
        is_refused || !is_judged("write outside"),
        "threads are confined as well"
    );
    // Elements of a map that is open change; nothing else of it.
    let key = 7u32.to_ne_bytes();
    map.update(&key, &[1; 8]).expect("stored");
    assert!(map.delete(&key).expect("deleted"), "it was there");
    for refused in [map.lookup(&key).map(drop), map.keys().map(drop)] {
        assert!(refused.is_err(), "read by a system call");
    }
    // An allocation that the allocator asks the kernel for.
    let large = vec![1u8; 64 << 20];
    assert_eq!(
        large.iter().map(|byte| usize::from(*byte)).sum::<usize>(),
        64 << 20
    );
}
