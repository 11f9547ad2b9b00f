//! Loads every program of the given eBPF objects into the running kernel, in
//! each specialisation that shows the verifier other code, runs it on one
//! packet, and prints a line per load:
//!
//! ```text
//! middlebox.bpf.o middlebox default ok verified_insns=1697 jited_bytes=8123 verdict=pass
//! middlebox.bpf.o middlebox features ok verified_insns=4711 jited_bytes=18020 verdict=pass
//! ```
//!
//! The tests of older kernels and of other compilers read these lines. A
//! refused program is a line with FAILED and the verifier's reason; the exit
//! status is then 1, and 2 where an object cannot be read. Nothing stays loaded.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_kernel::{Hook, KernelError, KernelObject, TestCtx};

/// Settings of the load-time constants that all functions share. What a constant
/// switches off the verifier never sees, so an object that loads as compiled has
/// shown it almost nothing. Constants that an object lacks are left out.
const SPECIALISATIONS: &[(&str, &[(&str, u32)])] = &[
    ("default", &[]),
    (
        "features",
        &[
            ("weir_features", u32::MAX),
            ("weir_mtu", 1500),
            ("weir_dims", 8),
        ],
    ),
    (
        "offloaded",
        &[
            ("weir_features", u32::MAX),
            ("weir_mtu", 1500),
            ("weir_csum_mode", 1),
            ("weir_dims", 8),
        ],
    ),
    (
        "egress",
        &[
            ("weir_features", u32::MAX),
            ("weir_mtu", 1500),
            ("weir_egress", 1),
        ],
    ),
    ("replay", &[("weir_features", u32::MAX), ("weir_replay", 1)]),
    // What completes checksums of packets that leave by another way than the stack.
    ("finish", &[("weir_csum_mode", 1)]),
    // Function filter: rows of 16 words, and all features but that there is no row (WEIR_FF_ONE).
    (
        "filter",
        &[
            ("weir_csum_mode", 1),
            ("weir_words", 16),
            ("weir_row_shift", 11),
            ("weir_row_mask", 2047),
            ("weir_slow_rules", 1040),
            ("weir_filter_features", (1 << 20) - 1),
        ],
    ),
    // Function router: by the kernel's tables, and by its own, with everything else on.
    (
        "router-kernel",
        &[("weir_csum_mode", 1), ("weir_router_features", 0x56)],
    ),
    (
        "router-own",
        &[("weir_csum_mode", 1), ("weir_router_features", 0x1d7)],
    ),
    // Functions balancer and decapsulate with everything on.
    (
        "balancer",
        &[
            ("weir_csum_mode", 1),
            ("weir_mtu", 1500),
            ("weir_lb_features", u32::MAX),
        ],
    ),
    (
        "decapsulate",
        &[("weir_csum_mode", 1), ("weir_dc_features", u32::MAX)],
    ),
];

/// Objects with a hole where a program of others goes; alone nobody can load them. weir-engine's test `objects_chained` fills it.
const WRAPPERS: [&str; 3] = ["object.bpf.o", "object_graph.bpf.o", "object_watched.bpf.o"];

/// Lines of a verifier log that are shown below a refusal: its end holds the cause.
const LOG_TAIL: usize = 12;

fn main() -> ExitCode {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        let _ = writeln!(io::stderr(), "load_objects: name at least one object (*.o)");
        return ExitCode::from(2);
    }
    let mut out = io::stdout().lock();
    let mut refused = 0;
    for path in &paths {
        let report = match load_all(path) {
            Ok(report) => report,
            Err(why) => {
                let _ = writeln!(io::stderr(), "load_objects: {}: {why}", path.display());
                return ExitCode::from(2);
            }
        };
        refused += report.refused;
        if out.write_all(report.text.as_bytes()).is_err() {
            return ExitCode::from(2);
        }
    }
    if refused == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    }
}

/// What happened to the programs of one object.
struct Report {
    /// One line per program, and the end of the log below each refusal.
    text: String,
    /// Programs that did not load or did not run.
    refused: usize,
}

fn load_all(path: &Path) -> Result<Report, String> {
    let elf = std::fs::read(path).map_err(|e| e.to_string())?;
    let file = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    if WRAPPERS.iter().any(|wrapper| file == *wrapper) {
        return Ok(Report {
            text: format!("{file} waits for somebody's program: loaded by objects_chained\n"),
            refused: 0,
        });
    }
    let programs = KernelObject::open(&elf)
        .map_err(|e| e.to_string())?
        .programs();
    if programs.is_empty() {
        return Err("it holds no program".to_owned());
    }
    let mut report = Report {
        text: String::new(),
        refused: 0,
    };
    for program in programs {
        for (name, constants) in SPECIALISATIONS {
            let line = format!("{file} {program} {name}");
            match load_one(&elf, &program, constants) {
                Ok(Some(facts)) => {
                    let _ = writeln!(report.text, "{line} ok {facts}");
                }
                Ok(None) => {}
                Err(e) => {
                    report.refused += 1;
                    let _ = writeln!(report.text, "{line} FAILED {e}");
                    let log: Vec<&str> = e.log().unwrap_or_default().lines().collect();
                    for line in &log[log.len().saturating_sub(LOG_TAIL)..] {
                        let _ = writeln!(report.text, "    {line}");
                    }
                }
            }
        }
    }
    Ok(report)
}

/// Loads and runs one program; `None` if the object lacks what the specialisation is about,
/// so that this would be another one again.
fn load_one(
    elf: &[u8],
    program: &str,
    constants: &[(&str, u32)],
) -> Result<Option<String>, KernelError> {
    let mut object = KernelObject::open(elf)?;
    let known: Vec<String> = object.constants().map(str::to_owned).collect();
    let is_known = |symbol: &str| known.iter().any(|k| k == symbol);
    // The last constant is the one that a specialisation is about.
    if constants
        .last()
        .is_some_and(|(symbol, _)| !is_known(symbol))
    {
        return Ok(None);
    }
    for (symbol, value) in constants.iter().filter(|(symbol, _)| is_known(symbol)) {
        object.set_rodata(symbol, &value.to_ne_bytes())?;
    }
    let mut loaded = object.load(program)?;
    let info = loaded.info()?;
    let outcome = loaded.test_run(&udp_packet(), &mut Vec::new(), TestCtx::default())?;
    Ok(Some(format!(
        "verified_insns={} jited_bytes={} verdict={}",
        info.verified_insns,
        info.jited_len,
        verdict(loaded.hook(), outcome.retval)
    )))
}

fn verdict(hook: Hook, action: u32) -> String {
    match (hook, action) {
        (Hook::Tc, u32::MAX) => return "pass".to_owned(),
        (Hook::Tc, 2) => return "drop".to_owned(),
        (Hook::Tc, other) => return format!("unknown({other})"),
        (Hook::Xdp, _) => {}
    }
    match action {
        0 => "aborted".to_owned(),
        1 => "drop".to_owned(),
        2 => "pass".to_owned(),
        3 => "tx".to_owned(),
        4 => "redirect".to_owned(),
        other => format!("unknown({other})"),
    }
}

/// A 64-byte frame: IPv4, UDP 198.51.100.1:4660 to 203.0.113.2:53 without a
/// UDP checksum, 22 zero bytes as payload.
fn udp_packet() -> [u8; 64] {
    let mut frame = [0u8; 64];
    frame[..42].copy_from_slice(&[
        0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00, // Ethernet
        0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0, // IPv4 up to its checksum
        198, 51, 100, 1, 203, 0, 113, 2, // addresses
        0x12, 0x34, 0, 53, 0, 30, 0, 0, // UDP
    ]);
    let sum: u32 = frame[14..34]
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}
