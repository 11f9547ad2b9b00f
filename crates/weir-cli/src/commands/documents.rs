//! `weir completions` and `weir man`: what shells and `man` know of the commands, made from the one table of them.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap_complete::Shell;

use crate::args::{ShellName, table};
use crate::failure::Failure;
use crate::output;

/// Prints the completions of a shell.
pub(super) fn completions(shell: ShellName) -> Result<ExitCode, Failure> {
    let shell = match shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut table::whole(), "weir", &mut script);
    output::out(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a man page for each command.
pub(super) fn man(folder: &Path) -> Result<ExitCode, Failure> {
    let wrong = |error: std::io::Error| {
        Failure::Failed(format!("cannot write to {}: {error}", folder.display()))
    };
    fs::create_dir_all(folder).map_err(wrong)?;
    clap_mangen::generate_to(table::whole(), folder).map_err(wrong)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Command;

    use super::*;

    /// Names of the pages that commands have: `weir`, `weir-rule`, `weir-rule-add`.
    fn pages(command: &Command, name: &str, found: &mut BTreeSet<String>) {
        found.insert(format!("{name}.1"));
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            pages(sub, &format!("{name}-{}", sub.get_name()), found);
        }
    }

    #[test]
    fn there_is_a_page_for_every_command_and_no_other() {
        let folder = std::env::temp_dir().join(format!("weir-man-{}", std::process::id()));
        man(&folder).expect("written");
        let written: BTreeSet<String> = fs::read_dir(&folder)
            .expect("a folder")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        let page = fs::read_to_string(folder.join("weir-run.1")).expect("a page");
        fs::remove_dir_all(&folder).expect("removed");
        let mut known = BTreeSet::new();
        pages(&table::whole(), "weir", &mut known);
        assert_eq!(written, known);
        assert!(page.contains("weir run policy.weir \\-i eth0"), "{page}");
    }

    #[test]
    fn completions_know_every_command() {
        let mut names = BTreeSet::new();
        pages(&table::whole(), "weir", &mut names);
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut table::whole(), "weir", &mut script);
            let script = String::from_utf8(script).expect("UTF-8");
            for path in &names {
                let last = path
                    .trim_end_matches(".1")
                    .rsplit('-')
                    .next()
                    .expect("a word");
                assert!(script.contains(last), "{shell}: {path}");
            }
        }
    }
}
