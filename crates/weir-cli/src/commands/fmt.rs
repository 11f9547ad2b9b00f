//! `weir fmt`: the one way to write a policy.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use weir_policy::{Source, format_source, read_source};

use super::policy::count;
use crate::args::FmtArgs;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &FmtArgs) -> Result<ExitCode, Failure> {
    let mut unformatted = 0;
    let mut broken = 0;
    for path in &args.policies {
        let from_stdin = path == Path::new("-");
        let source = if from_stdin {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|e| Failure::usage(format!("standard input: {e}")))?;
            Source::new("<stdin>", text)
        } else {
            read_source(path).map_err(Failure::usage)?
        };
        let formatted = match format_source(&source) {
            Ok(formatted) => formatted,
            Err(diagnostics) => {
                output::tell(&diagnostics.render(output::stderr_has_color()));
                broken += 1;
                continue;
            }
        };
        if formatted != source.text {
            unformatted += 1;
        }
        if args.check {
            if formatted != source.text {
                output::out(&format!("{} is not formatted\n", source.name))?;
            }
        } else if from_stdin {
            output::out(&formatted)?;
        } else if formatted != source.text {
            replace(path, &formatted)?;
            output::out(&format!("formatted {}\n", source.name))?;
        }
    }
    if broken > 0 {
        return Err(Failure::Usage(format!(
            "{} skipped: they have errors",
            count(broken, "policy file")
        )));
    }
    Ok(if args.check && unformatted > 0 {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

/// Replaces a file in one step, so that a crash leaves the old or the new text.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let failed =
        |e: std::io::Error| Failure::failed(format!("cannot write {}: {e}", path.display()));
    // A link stays a link: its target is replaced.
    let path = &path.canonicalize().map_err(failed)?;
    let mut temporary = path.clone().into_os_string();
    temporary.push(format!(".weir-{}", std::process::id()));
    let temporary = std::path::PathBuf::from(temporary);
    let written = std::fs::File::create(&temporary).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_permissions(std::fs::metadata(path)?.permissions())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    });
    written.map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        failed(e)
    })
}
