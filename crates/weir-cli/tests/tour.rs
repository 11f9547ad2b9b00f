//! The tour: each tutorial of the documents, from the page's own text, on hosts as beginners have them.
//!
//! A test walks through a page of `docs/tutorials` or the section `## Try it` of the README: it saves the files, types the commands in, and compares what
//! comes out with what the page shows (`tour/page.rs`). Then it does so again with the usual traps (`tour/traps.rs`): each walk works, or what weir printed named the cure and with it
//! it works (`tour/walk.rs`). Every walk has a sandbox of its own (`tour/sandbox.rs`). Which walks ran, and how they ended, is printed.

mod page;
mod sandbox;
mod traps;
mod walk;

use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::Instant;

use crate::common::{root_for, say};
use page::{FOLDER, Section, Step, Tutorial, What, is_shown};
use traps::Trap;
use walk::walk;

/// Walks at the same time: most of one is waiting, and more than this make each other late.
const AT_ONCE: usize = 6;

/// Pages with a tutorial; each has a test below.
const PAGES: [&str; 12] = [
    "README.md",
    "docs/tutorials/afxdp-settings.md",
    "docs/tutorials/capture-rules.md",
    "docs/tutorials/dos-guard.md",
    "docs/tutorials/first-steps.md",
    "docs/tutorials/function-chain.md",
    "docs/tutorials/load-balancer.md",
    "docs/tutorials/nat-gateway.md",
    "docs/tutorials/router.md",
    "docs/tutorials/server-firewall.md",
    "docs/tutorials/tenants.md",
    "docs/tutorials/third-party-xdp.md",
];

/// The whole page in one go as it is, and each of its parts alone with each of the traps.
fn tour(page: &str) {
    if !root_for(&format!("the tour of {page}")) {
        return;
    }
    let tutorial = &Tutorial::of(page);
    let mut walks: Vec<(String, &[Section], Trap)> = vec![(
        "the whole page".to_owned(),
        tutorial.sections.as_slice(),
        Trap::None,
    )];
    for section in tutorial.sections.chunks(1) {
        let title = &section[0].title;
        // Traps are set on the hosts of a bed, where the whole page has one.
        let mut traps = match tutorial.has_hosts() {
            true => Trap::USUAL.to_vec(),
            false => Vec::new(),
        };
        if title.contains("cookies") {
            traps.push(Trap::FewCookies);
        }
        walks.extend(traps.into_iter().map(|trap| (title.clone(), section, trap)));
    }
    let wanted = std::env::var("WEIR_TOUR").unwrap_or_default();
    walks.retain(|(title, _, trap)| format!("{title}, {trap}").contains(&wanted));
    assert!(!walks.is_empty(), "{page} has no walk `{wanted}`");
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (title, sections, trap) in &walks {
            let failures = &failures;
            scope.spawn(move || {
                let _turn = Turn::take();
                let started = Instant::now();
                let ended = walk(tutorial, sections, *trap);
                let took = started.elapsed().as_secs_f64();
                match ended {
                    Ok(verdict) => {
                        say(&format!("{page}, {title}, {trap}: {verdict} ({took:.1} s)"))
                    }
                    Err(why) => {
                        say(&format!("{page}, {title}, {trap}: LOST ({took:.1} s)"));
                        let mut failures = failures.lock().unwrap_or_else(|e| e.into_inner());
                        failures.push(format!("{page}, {title}, {trap}: {why}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(|e| e.into_inner());
    assert!(
        failures.is_empty(),
        "{} of {} walks end in silence:\n\n{}",
        failures.len(),
        walks.len(),
        failures.join("\n")
    );
}

/// One of the places for walks of all tests of this process.
struct Turn;

static TAKEN: Mutex<usize> = Mutex::new(0);
static LEFT: Condvar = Condvar::new();

impl Turn {
    fn take() -> Turn {
        let taken = TAKEN.lock().unwrap_or_else(|e| e.into_inner());
        let mut taken = LEFT
            .wait_while(taken, |taken| *taken >= AT_ONCE)
            .unwrap_or_else(|e| e.into_inner());
        *taken += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(|e| e.into_inner()) -= 1;
        LEFT.notify_one();
    }
}

#[test]
fn tour_of_the_readme() {
    tour("README.md");
}

#[test]
fn tour_of_afxdp_settings() {
    tour("docs/tutorials/afxdp-settings.md");
}

#[test]
fn tour_of_capture_rules() {
    tour("docs/tutorials/capture-rules.md");
}

#[test]
fn tour_of_the_dos_guard() {
    tour("docs/tutorials/dos-guard.md");
}

#[test]
fn tour_of_the_first_steps() {
    tour("docs/tutorials/first-steps.md");
}

#[test]
fn tour_of_a_function_chain() {
    tour("docs/tutorials/function-chain.md");
}

#[test]
fn tour_of_the_load_balancer() {
    tour("docs/tutorials/load-balancer.md");
}

#[test]
fn tour_of_the_nat_gateway() {
    tour("docs/tutorials/nat-gateway.md");
}

#[test]
fn tour_of_the_router() {
    tour("docs/tutorials/router.md");
}

#[test]
fn tour_of_the_server_firewall() {
    tour("docs/tutorials/server-firewall.md");
}

#[test]
fn tour_of_tenants_networks() {
    tour("docs/tutorials/tenants.md");
}

#[test]
fn tour_of_third_party_xdp() {
    tour("docs/tutorials/third-party-xdp.md");
}

/// Also where the tour itself cannot run: no page is left out, and its text is in order.
#[test]
fn every_page_has_a_tutorial_that_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(FOLDER);
    let files = std::fs::read_dir(folder).expect("docs/tutorials is there");
    for file in files.map(|file| file.expect("can be listed").file_name()) {
        let page = format!("{FOLDER}{}", file.to_string_lossy());
        assert!(PAGES.contains(&page.as_str()), "no test walks {page}");
    }
    for page in PAGES {
        let tutorial = Tutorial::of(page);
        let steps = || tutorial.sections.iter().flat_map(|section| &section.steps);
        assert!(steps().any(Step::is_weir), "{page} runs no weir");
        say(&format!(
            "{page}: {} and {} steps in {} parts",
            tutorial.setup.len(),
            steps().count(),
            tutorial.sections.len()
        ));
    }
}

#[test]
fn a_page_is_read_as_it_is_seen() {
    let text = "# P\n```sh\n## Try it\n```\n## Try it\nSave as `a.toml`:\n```toml\nx = 1\n```\n```sh\nfor a in b; do\n  c\ndone\n# why\nd \\\ne &\n```\n### Example: One\n```console\n$ ip netns exec lb weir status\n... packets\n```\n## Next\n```\n";
    let read = Tutorial::parse("p.md", text).expect("in order");
    let commands = |steps: &[Step]| -> Vec<(usize, String)> {
        let text = |step: &Step| match &step.what {
            What::File { name, text } => format!("{name}: {text}"),
            What::Command { text, shows } => format!("{text}{}", shows.concat()),
        };
        steps.iter().map(|s| (s.line, text(s))).collect()
    };
    assert_eq!(
        commands(&read.setup),
        [
            (8, "a.toml: x = 1\n".to_owned()),
            (11, "for a in b; do\n  c\ndone".to_owned()),
            (15, "d \\\ne &".to_owned()),
        ]
    );
    assert!(read.setup[2].stays() && !read.setup[1].stays());
    let [part] = read.sections.as_slice() else {
        panic!("{read:?}")
    };
    assert_eq!(
        commands(&part.steps),
        [(20, "ip netns exec lb weir status... packets".to_owned())]
    );
    assert!(part.steps[0].is_weir() && part.steps[0].asks_weir());
    let text =
        "# T\n```sh\nweir a\n```\n## Example: One\n```console\n$ b\nc\n```\n## Next\nMore.\n";
    let read = Tutorial::parse("docs/tutorials/t.md", text).expect("in order");
    assert_eq!((read.setup.len(), read.sections.len()), (1, 1), "{read:?}");
    assert!(!read.has_hosts());
    for (wrong, why) in [
        ("# P\n", "no section `## Try it`"),
        ("## Try it\n```\n```\n", "no language"),
        ("## Try it\n```sh\n", "not closed"),
        (
            "## Try it\nThis:\n```toml\n```\n",
            "does not end with its name",
        ),
        ("## Try it\n```sh\na\n```\n", "shows no result"),
        ("## Try it\n```console\na\n```\n", "begins with `$ COMMAND`"),
    ] {
        let error = Tutorial::parse("p.md", wrong).expect_err(why);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn what_a_page_shows_is_what_comes_out() {
    let shows = |lines: &[&str], printed: &str| {
        let lines: Vec<String> = lines.iter().map(|l| (*l).to_owned()).collect();
        is_shown(&lines, printed)
    };
    assert!(shows(&["one", "two"], "one\ntwo\n"));
    assert!(!shows(&["one"], "one\ntwo\n"));
    assert!(!shows(&["one", "two"], "one\n"));
    assert!(shows(&["  a   1"], "a 1"));
    assert!(shows(&["3 sent, ... ms"], "3 sent, 2.5 ms"));
    assert!(!shows(&["3 sent, ... ms"], "2 sent, 2.5 ms"));
    assert!(shows(&["a", "...", "d"], "a\nb\nc\nd\n"));
    assert!(shows(&["...", "d"], "d\n"));
    assert!(!shows(&["a", "..."], "b\nc\n"));
}
