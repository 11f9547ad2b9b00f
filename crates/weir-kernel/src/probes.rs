//! What the running kernel can do, found by doing it: each probe loads a tiny
//! program, creates a map, attaches a link in a throw-away namespace.
//!
//! The probes are data: a table of names, uses, first kernels and fallbacks.
//! Rendering belongs to the command line. Invariant: a probe leaves nothing
//! behind and touches no interface of the host.

#![expect(unsafe_code, reason = "raw programs are loaded through pointers")]

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::thread;

use crate::{Link, XdpMode, pins, sys};

/// One row of the table with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// Short stable name.
    pub name: &'static str,
    /// What weir uses the feature for.
    pub used_for: &'static str,
    /// Whether the kernel has it, or why not.
    pub ok: Result<(), String>,
    /// Whether the kernel engine cannot work without it.
    pub needed: bool,
    /// First kernel release with it.
    pub first_kernel: &'static str,
    /// What weir does instead.
    pub fallback: &'static str,
}

struct Probe {
    name: &'static str,
    used_for: &'static str,
    needed: bool,
    first_kernel: &'static str,
    fallback: &'static str,
    run: fn() -> io::Result<()>,
}

/// Runs every probe, once per process; later calls return the same answers.
pub fn probe_all() -> Vec<ProbeResult> {
    static ANSWERS: OnceLock<Vec<ProbeResult>> = OnceLock::new();
    ANSWERS
        .get_or_init(|| {
            sys::silence_libbpf();
            PROBES.iter().map(Probe::answer).collect()
        })
        .clone()
}

/// Release of the running kernel as `uname -r` prints it.
pub fn kernel_release() -> String {
    // SAFETY: `utsname` is plain data for which all zeroes are valid.
    let mut name: libc::utsname = unsafe { mem::zeroed() };
    // SAFETY: a valid buffer.
    if unsafe { libc::uname(&raw mut name) } != 0 {
        return "unknown".to_owned();
    }
    let bytes: Vec<u8> = name.release.iter().map(|c| *c as u8).collect();
    sys::text_until_nul(&bytes)
}

/// Whether a release is at least another: `("6.18.44-x", "6.6")` is true. An
/// unreadable release counts as new enough, so that a test on it may not skip.
pub fn release_at_least(release: &str, first: &str) -> bool {
    let numbers = |text: &str| -> Option<(u32, u32)> {
        let mut parts = text.split(|c: char| !c.is_ascii_digit());
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next().and_then(|p| p.parse().ok()).unwrap_or(0);
        Some((major, minor))
    };
    match (numbers(release), numbers(first)) {
        (Some(have), Some(want)) => have >= want,
        _ => true,
    }
}

impl Probe {
    fn answer(&self) -> ProbeResult {
        ProbeResult {
            name: self.name,
            used_for: self.used_for,
            ok: (self.run)().map_err(|e| e.to_string()),
            needed: self.needed,
            first_kernel: self.first_kernel,
            fallback: self.fallback,
        }
    }
}

/// Without the kernel engine, everything still runs in the user engine.
const USER_ENGINE: &str = "weir replay --engine user";
const NO_FALLBACK: &str = "none needed";

const fn needed(
    name: &'static str,
    first_kernel: &'static str,
    used_for: &'static str,
    run: fn() -> io::Result<()>,
) -> Probe {
    Probe {
        name,
        used_for,
        needed: true,
        first_kernel,
        fallback: USER_ENGINE,
        run,
    }
}

const fn optional(
    name: &'static str,
    first_kernel: &'static str,
    used_for: &'static str,
    fallback: &'static str,
    run: fn() -> io::Result<()>,
) -> Probe {
    Probe {
        name,
        used_for,
        needed: false,
        first_kernel,
        fallback,
        run,
    }
}

static PROBES: &[Probe] = &[
    needed(
        "bpf-permission",
        "5.8",
        "loading anything (CAP_BPF with CAP_NET_ADMIN, or CAP_SYS_ADMIN)",
        || load(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, &RETURN_TWO, 0).map(drop),
    ),
    needed("btf", "5.4", "type information of the kernel", || {
        std::fs::metadata(Path::new(sys::KERNEL_BTF)).map(drop)
    }),
    optional(
        "jit",
        "3.16",
        "speed",
        "the kernel's interpreter, several times slower; `sysctl net.core.bpf_jit_enable=1`",
        jit,
    ),
    needed("xdp", "4.8", "every device port", || {
        load_xdp(&RETURN_TWO, 0).map(drop)
    }),
    needed(
        "xdp-frags",
        "5.18",
        "frames over one page; one program array takes one kind",
        || load_xdp(&RETURN_TWO, libbpf_sys::BPF_F_XDP_HAS_FRAGS).map(drop),
    ),
    needed(
        "xdp-link",
        "5.9",
        "attachments that end with the process",
        xdp_link,
    ),
    needed("bpf-loop", "5.17", "TCP options, rule lists", || {
        helper(libbpf_sys::BPF_FUNC_loop)
    }),
    needed(
        "xdp-load-bytes",
        "5.18",
        "payload matches, moving headers",
        || helper(libbpf_sys::BPF_FUNC_xdp_load_bytes),
    ),
    needed(
        "coarse-clock",
        "5.11",
        "time-outs at 1-2 ns a reading",
        || helper(libbpf_sys::BPF_FUNC_ktime_get_coarse_ns),
    ),
    needed(
        "atomic-cmpxchg",
        "5.12",
        "rate limits, connection slots",
        || load_xdp(&CMPXCHG, 0).map(drop),
    ),
    needed("map-array", "3.19", "tables", || {
        map(libbpf_sys::BPF_MAP_TYPE_ARRAY)
    }),
    needed("map-percpu-array", "4.6", "counters, scratch", || {
        map(libbpf_sys::BPF_MAP_TYPE_PERCPU_ARRAY)
    }),
    needed("map-hash", "3.19", "classifier tables", || {
        map(libbpf_sys::BPF_MAP_TYPE_HASH)
    }),
    needed("map-prog-array", "4.2", "the patch panel", || {
        map(libbpf_sys::BPF_MAP_TYPE_PROG_ARRAY)
    }),
    optional(
        "map-ringbuf",
        "5.8",
        "the log target, weir trace",
        "counters only",
        || map(libbpf_sys::BPF_MAP_TYPE_RINGBUF),
    ),
    optional("map-lpm-trie", "4.11", "routes", "tables of arrays", || {
        map(libbpf_sys::BPF_MAP_TYPE_LPM_TRIE)
    }),
    optional(
        "map-devmap",
        "4.14",
        "redirecting between devices",
        "pass to the kernel's stack",
        || map(libbpf_sys::BPF_MAP_TYPE_DEVMAP),
    ),
    optional(
        "map-cpumap",
        "4.15",
        "spreading over CPUs",
        "the device's own queues",
        || map(libbpf_sys::BPF_MAP_TYPE_CPUMAP),
    ),
    optional("map-xskmap", "4.18", "AF_XDP sockets", "AF_PACKET", || {
        map(libbpf_sys::BPF_MAP_TYPE_XSKMAP)
    }),
    optional(
        "xsk-socket",
        "4.18",
        "AF_XDP sockets (`weir xsk`, `weir run --engine user`)",
        "packet sockets: `weir xsk --packet`, `weir prog serve`",
        || xsk_socket().map(drop),
    ),
    optional(
        "xsk-multi-buffer",
        "6.6",
        "packets of several frames on AF_XDP sockets (--multi-buffer)",
        "an MTU that fits a frame; longer packets are dropped and counted",
        xsk_multi_buffer,
    ),
    optional(
        "xsk-tx-budget",
        "6.17",
        "more than 32 frames in a send call of an AF_XDP socket in copy mode (--tx-budget)",
        "32 frames a call",
        xsk_tx_budget,
    ),
    optional(
        "map-batch",
        "5.6",
        "loading large tables",
        "one call per entry, slower",
        map_batch,
    ),
    optional(
        "map-mmap",
        "5.5",
        "replay time without a system call",
        "one map update per packet",
        map_mmap,
    ),
    optional(
        "xdp-test-run",
        "4.12",
        "weir replay --engine kernel",
        USER_ENGINE,
        test_run,
    ),
    optional("tcx", "6.6", "weir run on tc", "clsact filters", tcx),
    optional(
        "bpffs",
        "4.4",
        "removing what a killed weir left",
        "weir mounts it when it may, or `mount -t bpf bpf /sys/fs/bpf`",
        || {
            if pins::is_bpffs_mounted() {
                return Ok(());
            }
            Err(io::Error::other("not mounted at /sys/fs/bpf"))
        },
    ),
    optional(
        "af-xdp",
        "4.18",
        "packets in user space at speed",
        "AF_PACKET",
        af_xdp,
    ),
    optional(
        "netns",
        "3.0",
        "test beds, make run",
        "replay of the committed capture",
        || in_new_namespace(|| Ok(())),
    ),
    optional(
        "freplace",
        "5.6",
        "nothing: functions are chained by tail calls",
        NO_FALLBACK,
        freplace,
    ),
    optional(
        "fentry",
        "5.5",
        "nothing: tracing hooks are compiled into the data plane",
        NO_FALLBACK,
        fentry,
    ),
];

/// `return 2`: XDP_PASS, and for tc a verdict that is never used.
const RETURN_TWO: [u64; 2] = [insn(0xb7, 0, 0, 0, 2), EXIT];
/// `return 0`, the only value that fentry may return.
const RETURN_ZERO: [u64; 2] = [insn(0xb7, 0, 0, 0, 0), EXIT];
/// A 64-bit compare-and-exchange on the stack.
const CMPXCHG: [u64; 5] = [
    insn(0xb7, 0, 0, 0, 0),      // r0 = 0
    insn(0x7b, 10, 0, -8, 0),    // *(u64 *)(r10 - 8) = r0
    insn(0xb7, 1, 0, 0, 2),      // r1 = 2
    insn(0xdb, 10, 1, -8, 0xf1), // r0 = cmpxchg_64(r10 - 8, r0, r1)
    EXIT,
];
const EXIT: u64 = insn(0x95, 0, 0, 0, 0);

/// One instruction in the layout of RFC 9669 on a little-endian machine.
const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    let regs = if cfg!(target_endian = "little") {
        src << 4 | dst
    } else {
        dst << 4 | src
    };
    let o = off.to_ne_bytes();
    let i = imm.to_ne_bytes();
    u64::from_ne_bytes([code, regs, o[0], o[1], i[0], i[1], i[2], i[3]])
}

fn load_xdp(insns: &[u64], flags: u32) -> io::Result<OwnedFd> {
    load(libbpf_sys::BPF_PROG_TYPE_XDP, insns, flags)
}

fn load(kind: u32, insns: &[u64], flags: u32) -> io::Result<OwnedFd> {
    load_with(kind, insns, |opts| opts.prog_flags = flags)
}

/// Loads a raw program; `set` fills the options that differ from none.
fn load_with(
    kind: u32,
    insns: &[u64],
    set: impl FnOnce(&mut libbpf_sys::bpf_prog_load_opts),
) -> io::Result<OwnedFd> {
    let mut opts = libbpf_sys::bpf_prog_load_opts {
        sz: mem::size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    set(&mut opts);
    // SAFETY: `insns` is an array of 8-byte instructions; the strings are literals; callers keep
    // what `opts` points at alive for the call.
    let ret = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            c"weir_probe".as_ptr(),
            c"GPL".as_ptr(),
            insns.as_ptr().cast(),
            insns.len() as libbpf_sys::size_t,
            &mut opts,
        )
    };
    sys::own_fd(ret)
}

fn jit() -> io::Result<()> {
    let program = load_xdp(&RETURN_TWO, 0)?;
    if sys::program_info(program.as_fd())?.jited_prog_len == 0 {
        return Err(io::Error::other("programs are interpreted"));
    }
    Ok(())
}

fn helper(id: u32) -> io::Result<()> {
    // SAFETY: no pointers but a null options argument.
    let ret = unsafe {
        libbpf_sys::libbpf_probe_bpf_helper(libbpf_sys::BPF_PROG_TYPE_XDP, id, ptr::null())
    };
    supported(ret)
}

fn map(kind: u32) -> io::Result<()> {
    // SAFETY: no pointers but a null options argument.
    supported(unsafe { libbpf_sys::libbpf_probe_bpf_map_type(kind, ptr::null()) })
}

/// libbpf's probes answer 1 for yes, 0 for no.
fn supported(ret: i32) -> io::Result<()> {
    match sys::check(ret)? {
        // A kernel that permits nothing looks like one that knows nothing.
        0 => load(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, &RETURN_TWO, 0)
            .and(Err(io::Error::other("not in this kernel"))),
        _ => Ok(()),
    }
}

fn create_array(flags: u32) -> io::Result<OwnedFd> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: mem::size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: flags,
        ..Default::default()
    };
    // SAFETY: a string literal and options that state their size.
    sys::own_fd(unsafe {
        libbpf_sys::bpf_map_create(
            libbpf_sys::BPF_MAP_TYPE_ARRAY,
            c"weir_probe".as_ptr(),
            4,
            8,
            2,
            &opts,
        )
    })
}

fn map_batch() -> io::Result<()> {
    let array = create_array(0)?;
    let (keys, values, mut count) = ([0u32, 1], [7u64, 8], 2u32);
    // SAFETY: two keys and two values of the sizes given at creation.
    let ret = unsafe {
        libbpf_sys::bpf_map_update_batch(
            array.as_raw_fd(),
            keys.as_ptr().cast(),
            values.as_ptr().cast(),
            &mut count,
            ptr::null(),
        )
    };
    sys::check(ret).map(drop)
}

fn map_mmap() -> io::Result<()> {
    let array = create_array(libbpf_sys::BPF_F_MMAPABLE)?;
    crate::MmapArray::new(array.as_fd(), 16).map(drop)
}

fn test_run() -> io::Result<()> {
    let program = load_xdp(&RETURN_TWO, 0)?;
    let frame = [0u8; 64];
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: mem::size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: the frame is valid for its length; no output buffer is given.
    sys::check(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) })?;
    if opts.retval != 2 {
        return Err(io::Error::other(format!("answered {}, not 2", opts.retval)));
    }
    Ok(())
}

/// Runs `f` on a thread in a fresh network namespace, which ends with it.
fn in_new_namespace(f: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            // SAFETY: no pointers; only this thread changes its namespace.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => f(),
                _ => Err(io::Error::last_os_error()),
            }
        });
        inside
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the probe panicked")))
    })
}

/// Loopback's index in every namespace.
const LOOPBACK: u32 = 1;

fn xdp_link() -> io::Result<()> {
    let program = load_xdp(&RETURN_TWO, 0)?;
    in_new_namespace(|| {
        Link::attach(program.as_fd(), LOOPBACK, XdpMode::Generic)
            .map(drop)
            .map_err(|e| io::Error::other(e.to_string()))
    })
}

fn tcx() -> io::Result<()> {
    let program = load(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, &RETURN_TWO, 0)?;
    in_new_namespace(|| {
        // SAFETY: no pointers but a null options argument.
        let ret = unsafe {
            libbpf_sys::bpf_link_create(
                program.as_raw_fd(),
                LOOPBACK as i32,
                libbpf_sys::BPF_TCX_INGRESS,
                ptr::null(),
            )
        };
        sys::own_fd(ret).map(drop)
    })
}

fn af_xdp() -> io::Result<()> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

fn fentry() -> io::Result<()> {
    // A function that exists only to be traced.
    // SAFETY: a string literal.
    let id = sys::check(unsafe {
        libbpf_sys::libbpf_find_vmlinux_btf_id(
            c"bpf_fentry_test1".as_ptr(),
            libbpf_sys::BPF_TRACE_FENTRY,
        )
    })?;
    load_with(libbpf_sys::BPF_PROG_TYPE_TRACING, &RETURN_ZERO, |opts| {
        opts.expected_attach_type = libbpf_sys::BPF_TRACE_FENTRY;
        opts.attach_btf_id = id as u32;
    })
    .map(drop)
}

fn freplace() -> io::Result<()> {
    let (btf, function) = function_btf()?;
    let info = libbpf_sys::bpf_func_info {
        insn_off: 0,
        type_id: function,
    };
    let describe = |opts: &mut libbpf_sys::bpf_prog_load_opts| {
        opts.prog_btf_fd = btf.as_raw_fd() as u32;
        opts.func_info = ptr::from_ref(&info).cast();
        opts.func_info_cnt = 1;
        opts.func_info_rec_size = mem::size_of_val(&info) as u32;
    };
    let target = load_with(libbpf_sys::BPF_PROG_TYPE_XDP, &RETURN_TWO, describe)?;
    load_with(libbpf_sys::BPF_PROG_TYPE_EXT, &RETURN_TWO, |opts| {
        describe(opts);
        opts.attach_prog_fd = target.as_raw_fd() as u32;
        opts.attach_btf_id = function;
    })
    .map(drop)
}

/// BTF that describes `int weir_probe(struct xdp_md *)`, in the kernel, and the
/// id of that function in it.
fn function_btf() -> io::Result<(OwnedFd, u32)> {
    let name = |text: &str| CString::new(text).map_err(io::Error::from);
    let (int, md, data, ctx, probe) = (
        name("int")?,
        name("xdp_md")?,
        name("data")?,
        name("ctx")?,
        name("weir_probe")?,
    );
    // SAFETY: `btf` is checked for null and freed once; all names outlive the calls; ids passed
    // on are those just returned, or negative, which libbpf and the kernel refuse.
    unsafe {
        let btf = libbpf_sys::btf__new_empty();
        if btf.is_null() {
            return Err(io::Error::last_os_error());
        }
        let signed = libbpf_sys::BTF_INT_SIGNED as i32;
        let int_id = libbpf_sys::btf__add_int(btf, int.as_ptr(), 4, signed);
        let md_id = libbpf_sys::btf__add_struct(btf, md.as_ptr(), 4);
        libbpf_sys::btf__add_field(btf, data.as_ptr(), int_id, 0, 0);
        let pointer = libbpf_sys::btf__add_ptr(btf, md_id);
        let proto = libbpf_sys::btf__add_func_proto(btf, int_id);
        libbpf_sys::btf__add_func_param(btf, ctx.as_ptr(), pointer);
        let function =
            libbpf_sys::btf__add_func(btf, probe.as_ptr(), libbpf_sys::BTF_FUNC_GLOBAL, proto);
        let loaded = sys::check(function).and_then(|function| {
            let mut size = 0;
            let raw = libbpf_sys::btf__raw_data(btf, &mut size);
            if raw.is_null() {
                return Err(io::Error::last_os_error());
            }
            let fd = libbpf_sys::bpf_btf_load(raw, u64::from(size), ptr::null_mut());
            Ok((sys::own_fd(fd)?, function as u32))
        });
        libbpf_sys::btf__free(btf);
        loaded
    }
}

fn xsk_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    sys::own_fd(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })
}

/// Binds to an interface that cannot be: flags are looked at before it is looked for.
fn xsk_multi_buffer() -> io::Result<()> {
    /// `XDP_USE_SG`.
    const USE_SG: u16 = 1 << 4;
    let socket = xsk_socket()?;
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: USE_SG,
        sxdp_ifindex: i32::MAX as u32,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: the address is valid for the call and as long as is said.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            mem::size_of_val(&address) as libc::socklen_t,
        )
    };
    match io::Error::last_os_error() {
        _ if bound == 0 => Ok(()),
        e if e.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        e => Err(e),
    }
}

/// Sets the budget too early: a kernel that knows it refuses that, and not the option.
fn xsk_tx_budget() -> io::Result<()> {
    /// `XDP_MAX_TX_SKB_BUDGET`.
    const MAX_TX_SKB_BUDGET: libc::c_int = 9;
    let socket = xsk_socket()?;
    let budget = 64u32;
    // SAFETY: the value is valid for the call and as long as is said.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            MAX_TX_SKB_BUDGET,
            (&raw const budget).cast(),
            mem::size_of_val(&budget) as libc::socklen_t,
        )
    };
    match io::Error::last_os_error() {
        _ if set == 0 => Ok(()),
        e if e.raw_os_error() == Some(libc::EACCES) => Ok(()),
        e => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_by_number() {
        assert!(release_at_least("6.18.44-fc", "6.6"));
        assert!(release_at_least("6.1.0-9-amd64", "6.1"));
        assert!(!release_at_least("5.15.0", "5.18"));
        assert!(!release_at_least("6.1", "6.6"));
        assert!(release_at_least("unknown", "6.6"));
    }

    #[test]
    fn names_are_unique_and_every_probe_answers() {
        let answers = probe_all();
        let mut names: Vec<_> = answers.iter().map(|a| a.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), answers.len());
        assert!(answers.iter().all(|a| !a.fallback.is_empty()));
        assert_eq!(answers, probe_all());
    }

    #[test]
    fn the_release_is_readable() {
        assert!(kernel_release().starts_with(|c: char| c.is_ascii_digit()));
    }
}
