//! Says how the program was built, for `weir --version`: the commit of release builds. Development builds have none, so that a commit
//! does not compile everything again.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WEIR_COMMIT");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let build = match (std::env::var("WEIR_COMMIT"), is_release) {
        // Of builds from an archive, which packagers name.
        (Ok(commit), _) => format!("commit {commit}"),
        (Err(_), false) => "development build".to_owned(),
        (Err(_), true) => {
            // Written whenever the commit that is checked out becomes another one.
            if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
                println!("cargo::rerun-if-changed={log}");
            }
            match git(&["describe", "--always", "--dirty", "--abbrev=12"]) {
                Some(commit) => format!("commit {commit}"),
                None => "unknown commit".to_owned(),
            }
        }
    };
    println!("cargo::rustc-env=WEIR_BUILD={build}");
}
