//! `weir doctor`: what this kernel can do, probed by doing it, and what weir does where it cannot.
//!
//! Also whether the devices of running edges take the packets that are sent to them, and whether the measured AF_XDP settings are still of
//! this kernel and driver. Exit status 1 if the kernel engine cannot work here. `--report` writes all of that and the shape of what runs to a
//! file.

mod report;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use weir_engine::{edge, monitor};
use weir_kernel::iface;
use weir_kernel::probes::{self, ProbeResult};
use weir_lab::afxdp::profile::{self, Profile, ProfileError};

use super::lab_afxdp_judge::environment;
use crate::args::DoctorArgs;
use crate::failure::Failure;
use crate::output;

#[derive(Serialize)]
struct Row {
    name: &'static str,
    ok: bool,
    why_not: Option<String>,
    needed: bool,
    used_for: &'static str,
    first_kernel: &'static str,
    fallback: &'static str,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let mut results = probes::probe_all();
    results.extend(monitor::probe());
    let missing = results.iter().filter(|r| r.ok.is_err()).count();
    let fatal = results.iter().any(|r| r.ok.is_err() && r.needed);
    let measured = measured();
    if let Some(path) = &args.report {
        let settings = measured.as_ref().map(|measured| report::Settings {
            kernel: measured.kernel.as_deref(),
            driver: measured.driver.as_deref(),
            doubts: &measured.doubts,
        });
        report::write(path, &results, settings)?;
        output::out(&format!(
            "wrote {}: versions, features, devices, and the shape of what runs, without names, addresses, values or payloads; \
             read it before you pass it on\n",
            path.display()
        ))?;
        return Ok(ExitCode::from(u8::from(fatal)));
    }
    let edges = edges();
    if args.json {
        let rows: Vec<Row> = results.iter().map(row).collect();
        output::json(&serde_json::json!({
            "kernel": probes::kernel_release(),
            "kernel_engine": !fatal,
            "features": rows,
            "afxdp_profile": measured,
            "edges": edges,
        }))?;
    } else {
        output::out(
            &(table(&results, missing, fatal, output::columns())
                + &profile_lines(measured.as_ref())
                + &edge_lines(&edges)),
        )?;
    }
    Ok(ExitCode::from(u8::from(fatal)))
}

/// A running edge of this namespace, and what its devices lack.
#[derive(Serialize)]
struct RunningEdge {
    edge: String,
    /// Devices that it sends packets to and that take none now, with the cure.
    warnings: Vec<String>,
}

/// What cannot be read is a warning, too: other users may not look into edges.
fn edges() -> Vec<RunningEdge> {
    let names = edge::list().unwrap_or_default();
    let of = |edge: String| {
        let warnings = match edge::status(&edge) {
            Ok(status) => status.second.map_or(Vec::new(), |second| second.warnings),
            Err(error) => vec![format!("its devices were not checked: {error}")],
        };
        RunningEdge { edge, warnings }
    };
    names.into_iter().map(of).collect()
}

fn edge_lines(edges: &[RunningEdge]) -> String {
    let mut text = String::new();
    for one in edges {
        match one.warnings.is_empty() {
            true => {
                let _ = writeln!(
                    text,
                    "edge {}: its devices take redirected packets",
                    one.edge
                );
            }
            false => {
                for warning in &one.warnings {
                    let _ = writeln!(text, "edge {}: {warning}", one.edge);
                }
            }
        }
    }
    text
}

/// The profile of AF_XDP settings, where one was measured.
#[derive(Serialize)]
struct Measured {
    path: PathBuf,
    kernel: Option<String>,
    driver: Option<String>,
    /// Why it may not hold any more.
    doubts: Vec<String>,
}

fn measured() -> Option<Measured> {
    match Profile::measured(&profile::places(environment)) {
        Ok((path, profile)) => {
            // Without the list only the driver cannot be compared.
            let devices: Vec<(String, String)> = iface::list()
                .unwrap_or_default()
                .into_iter()
                .map(|device| (device.name, device.driver))
                .collect();
            Some(Measured {
                path,
                doubts: profile.doubts(&probes::kernel_release(), &devices),
                kernel: Some(profile.kernel),
                driver: Some(profile.driver),
            })
        }
        Err(ProfileError::None { .. }) => None,
        Err(error) => {
            let path = match &error {
                ProfileError::Read { path, .. } | ProfileError::Malformed { path, .. } => {
                    path.clone()
                }
                _ => PathBuf::new(),
            };
            Some(Measured {
                path,
                kernel: None,
                driver: None,
                doubts: vec![error.to_string()],
            })
        }
    }
}

fn profile_lines(measured: Option<&Measured>) -> String {
    let Some(measured) = measured else {
        return "AF_XDP settings were not measured here: `weir lab afxdp --recommend` does\n"
            .to_owned();
    };
    let path = measured.path.display();
    let mut text = String::new();
    if measured.doubts.is_empty() {
        let _ = writeln!(
            text,
            "AF_XDP settings: {path}, measured under this kernel and driver"
        );
    }
    for doubt in &measured.doubts {
        let _ = writeln!(text, "AF_XDP settings: {path}: {doubt}");
    }
    text
}

fn row(result: &ProbeResult) -> Row {
    Row {
        name: result.name,
        ok: result.ok.is_ok(),
        why_not: result.ok.as_ref().err().cloned(),
        needed: result.needed,
        used_for: result.used_for,
        first_kernel: result.first_kernel,
        fallback: result.fallback,
    }
}

/// `columns`: those of the terminal; `None`: lines are as long as they are.
fn table(results: &[ProbeResult], missing: usize, fatal: bool, columns: Option<usize>) -> String {
    let width =
        |of: fn(&ProbeResult) -> &str| results.iter().map(|r| of(r).len()).max().unwrap_or(0);
    let (name, used) = (width(|r| r.name), width(|r| r.used_for));
    let whole = name + 2 + 7 + 2 + used + 2 + 6 + 2 + width(|r| r.fallback);
    let is_narrow = columns.is_some_and(|columns| columns < whole);
    let mut text = format!("kernel {}\n\n", probes::kernel_release());
    match is_narrow {
        true => {
            let _ = writeln!(text, "{:name$}  state    since", "feature");
        }
        false => {
            let _ = writeln!(
                text,
                "{:name$}  state    {:used$}  since   without it",
                "feature", "used for"
            );
        }
    }
    for result in results {
        let state = match (&result.ok, result.needed) {
            (Ok(()), _) => "ok",
            (Err(_), true) => "MISSING",
            (Err(_), false) => "missing",
        };
        if is_narrow {
            let _ = writeln!(
                text,
                "{:name$}  {state:7}  {}",
                result.name, result.first_kernel
            );
            let what = format!("{}; without it: {}", result.used_for, result.fallback);
            wrap(&mut text, &what, columns);
        } else {
            let _ = writeln!(
                text,
                "{:name$}  {state:7}  {:used$}  {:6}  {}",
                result.name, result.used_for, result.first_kernel, result.fallback
            );
        }
        match &result.ok {
            Err(why) if is_narrow => wrap(&mut text, why, columns),
            Err(why) => {
                let _ = writeln!(text, "{:name$}  {why}", "");
            }
            Ok(()) => {}
        }
    }
    text.push('\n');
    text.push_str(&match (missing, fatal) {
        (0, _) => "all features are available: `weir run` and every engine work\n".to_owned(),
        (n, false) => format!("{n} missing, none that `weir run` needs: see the last column\n"),
        (n, true) => format!(
            "{n} missing, some of them needed (MISSING): `weir run` does not work here as this user; \
             `weir replay` with the user engine does\n"
        ),
    });
    text
}

/// Writes words in lines of so many columns, four from the left.
fn wrap(text: &mut String, words: &str, columns: Option<usize>) {
    let most = columns.unwrap_or(usize::MAX).max(20);
    let mut at = 0;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if at > 0 && at + 1 + length > most {
            text.push('\n');
            at = 0;
        }
        let before = if at == 0 { "    " } else { " " };
        let _ = write!(text, "{before}{word}");
        at += before.len() + length;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_keeps_to_the_width_of_a_terminal() {
        let row = |name, ok| ProbeResult {
            name,
            ok,
            needed: false,
            used_for: "a use that takes some words to be told",
            first_kernel: "5.18",
            fallback: "another way, which is slower, and which takes even more words than what it replaces",
        };
        let why = "BPF_PROG_LOAD: Operation not permitted, as long as nobody grants the capability";
        let rows = [row("live-frames", Ok(())), row("tcx", Err(why.to_owned()))];
        let lines = |columns| table(&rows, 1, false, columns);
        for columns in [60, 80, 100] {
            let text = lines(Some(columns));
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(columns), "{columns}:\n{text}");
            assert!(
                text.contains("capability") && text.contains("replaces"),
                "{text}"
            );
        }
        assert_eq!(lines(None), lines(Some(1000)));
        assert!(lines(None).contains("without it"));
    }
}
