//! Profiles: written, read, used under flags, and found.

use std::path::Path;

use weir_lab::afxdp::judgement::{Options, judge};
use weir_lab::afxdp::profile;
use weir_lab::afxdp::profile::{Given, Profile, ProfileError, Role};
use weir_lab::afxdp::recommend::Goal;
use weir_lab::xsk::Setup;
use weir_xsk::{Mode, Wait};

use super::made_up::sweep;

#[test]
fn profiles_are_written_read_and_used_under_flags() {
    let judgement = judge(&sweep(8), &Options::default());
    let profile = Profile::of(&judgement).expect("choices");
    let folder = std::env::temp_dir().join(format!("weir-profile-{}", std::process::id()));
    let path = folder.join("weir").join("afxdp.toml");
    profile.write(&path).expect("written");
    let read = Profile::read(&path).expect("read");
    assert_eq!(read, profile);
    assert_eq!(read.machine["CPU"], "made up <&> \"quoted\"");
    assert_eq!(read.date.as_deref(), Some("2026-11-23"));
    let (found, _) = Profile::measured(&[folder.join("none.toml"), path.clone()]).expect("there");
    assert_eq!(found, path);
    assert!(matches!(
        Profile::measured(&[folder.join("none.toml")]),
        Err(ProfileError::None { .. })
    ));
    for (text, words) in [
        ("version = 2\nkernel = \"\"\ndriver = \"\"\n", "version"),
        ("version = 1\nkernel = 6\ndriver = \"\"\n", "kernel"),
        (
            "version = 1\nkernel = \"\"\ndriver = \"\"\nsetings = 1\n",
            "setings",
        ),
    ] {
        std::fs::write(&path, text).expect("written");
        let error = Profile::read(&path).expect_err("refused").to_string();
        assert!(
            error.contains(words) && error.contains("not a profile"),
            "{error}"
        );
    }
    std::fs::remove_dir_all(&folder).expect("removed");

    let mut entry = read.entry(Goal::Cpu).expect("for CPU").clone();
    for (knob, value) in [
        ("mode", "generic"),
        ("need_wakeup", "off"),
        ("busy_poll", "20us/8"),
        ("ring", "64"),
        ("frame_size", "2048"),
        ("priority", "5"),
        ("threaded", "on"),
        ("queues", "1"),
        ("prober_wait", "call"),
    ] {
        entry.settings.insert(knob.to_owned(), value.to_owned());
    }
    let mut setup = Setup::new("x");
    let left = entry
        .apply(Role::Forwarder, Given::default(), &mut setup)
        .expect("applied");
    assert_eq!(left, ["threaded on"]);
    assert!(setup.generic && !setup.socket.need_wakeup);
    assert_eq!((setup.wait, setup.priority), (Wait::Poll, Some(5)));
    let busy = setup.socket.busy_poll.expect("busy polling");
    assert_eq!((busy.micros, busy.budget, busy.prefer), (20, 8, true));
    let rings = |s: &Setup| [s.socket.rx, s.socket.tx, s.socket.fill, s.socket.completion];
    assert_eq!((rings(&setup), setup.umem.frame_size), ([64; 4], 2048));
    // The prober's own wait; and flags win.
    let mut setup = Setup::new("x");
    setup.socket.mode = Mode::ZeroCopy;
    setup.socket.tx = 512;
    let given = Given {
        mode: true,
        busy_poll: true,
        rings: [false, true, false, false],
        need_wakeup: true,
        frame_size: true,
        priority: true,
        wait: false,
    };
    entry
        .apply(Role::Prober, given, &mut setup)
        .expect("applied");
    assert_eq!(
        (setup.wait, setup.socket.mode),
        (Wait::SpinCalling, Mode::ZeroCopy)
    );
    assert_eq!(rings(&setup), [64, 512, 64, 64]);
    assert!(!setup.generic && setup.socket.need_wakeup && setup.socket.busy_poll.is_none());
    assert_eq!((setup.umem.frame_size, setup.priority), (4096, None));
    entry.settings.insert("mode".to_owned(), "magic".to_owned());
    let error = entry
        .apply(Role::Prober, given, &mut setup)
        .expect_err("unknown");
    assert!(error.to_string().contains("mode = \"magic\""), "{error}");
}

#[test]
fn profiles_that_may_not_hold_any_more_say_so() {
    let profile = Profile::of(&judge(&sweep(8), &Options::default())).expect("choices");
    let veth = [("v0".to_owned(), "veth".to_owned())];
    assert!(profile.doubts("6.18.2", &veth).is_empty());
    assert!(profile.doubts("6.18.2", &[]).is_empty());
    for (kernel, words) in [
        ("6.18.10", "older than"),
        ("7.0.1", "older than"),
        ("6.6.100", "newer than"),
        ("6.18.2-cloud", "a different build from"),
    ] {
        let doubts = profile.doubts(kernel, &veth);
        assert_eq!(doubts.len(), 1);
        assert!(
            doubts[0].contains(words) && doubts[0].contains(kernel),
            "{doubts:?}"
        );
        assert!(doubts[0].contains("weir lab afxdp --recommend"));
    }
    let others = [
        ("e0".to_owned(), "virtio_net".to_owned()),
        ("lo".to_owned(), String::new()),
    ];
    let doubts = profile.doubts("6.18.2", &others);
    assert_eq!(doubts.len(), 1);
    assert!(doubts[0].contains("driver veth") && doubts[0].contains("e0: virtio_net"));
}

#[test]
fn profiles_are_looked_for_where_they_are_written() {
    let set = |pairs: &'static [(&str, &str)]| {
        move |name: &str| {
            let found = pairs.iter().find(|(n, _)| *n == name);
            found.map(|(_, v)| std::ffi::OsString::from(*v))
        }
    };
    let own = Path::new("/x/weir/afxdp.toml");
    assert_eq!(
        profile::places(set(&[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")]))[0],
        own
    );
    let home = Path::new("/h/.config/weir/afxdp.toml");
    assert_eq!(
        profile::places(set(&[("XDG_CONFIG_HOME", "x"), ("HOME", "/h")]))[0],
        home
    );
    assert_eq!(profile::places(set(&[])), [Path::new(profile::MACHINE)]);
    let write = |root, pairs| profile::place_to_write(root, set(pairs));
    assert_eq!(
        write(true, &[]).expect("root's"),
        Path::new(profile::MACHINE)
    );
    assert_eq!(write(false, &[("HOME", "/h")]).expect("own"), home);
    assert!(matches!(write(false, &[]), Err(ProfileError::Nowhere)));
}
