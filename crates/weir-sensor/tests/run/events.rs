//! The list of events: its table in the documentation, its names, and that each event is raised somewhere.

use std::path::{Path, PathBuf};

use weir_sensor::event::{Event, Events};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `WEIR_UPDATE=1` rewrites the table.
#[test]
fn the_table_of_the_documentation_is_the_list() {
    let path = root().join("docs/design/reassembly.md");
    let text = std::fs::read_to_string(&path).expect("the design page");
    let mut table = String::from("| event | kind | what |\n|---|---|---|\n");
    for event in Event::ALL {
        let kind = if event.is_stream() {
            "stream"
        } else {
            "decode"
        };
        table += &format!("| `{}` | {kind} | {} |\n", event.name(), event.what());
    }
    let (head, found) = text
        .split_once("## Events\n")
        .expect("a section for events");
    if std::env::var_os("WEIR_UPDATE").is_some() {
        std::fs::write(&path, format!("{head}## Events\n{table}")).expect("written");
    } else {
        assert_eq!(found, table, "WEIR_UPDATE=1 rewrites it");
    }
}

#[test]
fn names_find_their_events() {
    for event in Event::ALL {
        let [found, other] = if event.is_stream() {
            [Event::stream(event.name()), Event::decode(event.name())]
        } else {
            [Event::decode(event.name()), Event::stream(event.name())]
        };
        assert_eq!((found, other), (Some(*event), None));
    }
    assert_eq!(
        Event::decode("ipv4.frag.overlap"),
        Some(Event::Ipv4FragmentOverlap)
    );
    assert_eq!(Event::stream("no_such_event"), None);
}

#[test]
fn a_set_holds_what_was_put_in() {
    for event in Event::ALL {
        let mut set = Events::default();
        assert!(set.is_empty());
        set.insert(*event);
        assert!(set.has(*event) && !set.is_empty());
        assert_eq!(set.iter().collect::<Vec<_>>(), [*event]);
    }
}

/// An event that no stage raises would be a rule that is accepted and never fires.
#[test]
fn every_event_is_raised_somewhere() {
    fn read(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                read(&path, text);
            } else if path.file_name().is_some_and(|n| n != "event.rs") {
                *text += &std::fs::read_to_string(&path).expect("a source");
            }
        }
    }
    let mut text = String::new();
    for part in [
        "app/conversation.rs",
        "decode",
        "defragment.rs",
        "flow",
        "stream",
        "worker",
    ] {
        let path = root().join("crates/weir-sensor/src").join(part);
        if path.is_dir() {
            read(&path, &mut text);
        } else {
            text += &std::fs::read_to_string(&path).expect("a source");
        }
    }
    let words: std::collections::HashSet<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != ':')
        .collect();
    for event in Event::ALL {
        assert!(
            words
                .iter()
                .any(|w| w.trim_end_matches(':') == format!("Event::{event:?}")),
            "{event:?} is never raised"
        );
    }
}
