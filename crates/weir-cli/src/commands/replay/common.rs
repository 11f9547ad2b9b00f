//! What replays of policies and graphs share: the engine and its options, the capture that is written, and how a command ends.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use weir_engine::{EngineError, EngineKind, ReplayOptions};
use weir_functions::plan::ChecksumMode;
use weir_packet::pcap::{CaptureError, Frame, Writer};

use super::super::capture;
use crate::args::{Checksums, EngineName, ReplayArgs};
use crate::failure::Failure;

pub(super) fn kind(engine: EngineName) -> EngineKind {
    match engine {
        EngineName::User => EngineKind::User,
        EngineName::UserJit => EngineKind::UserJit,
        EngineName::Kernel => EngineKind::Kernel,
        EngineName::Reference => EngineKind::Reference,
    }
}

pub(super) fn checksums(given: Checksums) -> ChecksumMode {
    match given {
        Checksums::Complete => ChecksumMode::Complete,
        Checksums::Offloaded => ChecksumMode::Offloaded,
    }
}

pub(super) fn options(args: &ReplayArgs, survey: &capture::Survey) -> ReplayOptions {
    ReplayOptions {
        checksums: checksums(args.checksums),
        mtu: args.mtu,
        seed: args.seed,
        ports: survey.ports.clone(),
    }
}

/// The capture that is written, and where.
pub(super) type Output<'a> = Option<(Writer<BufWriter<File>>, &'a Path)>;

pub(super) fn writer(args: &ReplayArgs) -> Result<Output<'_>, Failure> {
    match &args.output {
        Some(path) => Ok(Some((capture::create(path)?, path))),
        None => Ok(None),
    }
}

/// Writes a packet as it left; what the capture had lost of it is still lost.
pub(super) fn write<W: Write>(
    writer: &mut Writer<W>,
    packet: &Frame<'_>,
    out: &[u8],
) -> Result<(), Failure> {
    let lost = (packet.original_len as usize).saturating_sub(packet.data.len());
    writer
        .write(packet.timestamp_ns, out, (out.len() + lost) as u32)
        .map_err(|e| Failure::failed(format!("cannot write the output capture: {e}")))
}

pub(super) fn finish(output: Output<'_>) -> Result<(), Failure> {
    let Some((writer, path)) = output else {
        return Ok(());
    };
    let finished = writer.finish().map(drop);
    finished.map_err(|e| Failure::failed(format!("cannot write {}: {e}", path.display())))
}

pub(super) fn refuse_own_input(args: &ReplayArgs) -> Result<(), Failure> {
    let output = args.output.as_deref();
    if output.is_some_and(|out| capture::same_file(out, &args.input)) {
        return Err(Failure::usage(
            "--output names the capture that --in reads; choose another file",
        ));
    }
    Ok(())
}

/// Success, unless the capture ended before its end.
pub(super) fn end(args: &ReplayArgs, cut_off: Option<CaptureError>) -> Result<ExitCode, Failure> {
    match cut_off {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Err(Failure::failed(format!(
            "{}: {error}; the packets before it were replayed",
            args.input.display()
        ))),
    }
}

pub(super) fn engine_failure(error: EngineError, policy: &Path) -> Failure {
    if error.is_configuration() {
        return Failure::Usage(format!("{}: {error}", policy.display()));
    }
    Failure::failed(error)
}
