//! Rule sets of other firewalls: whatever the text is, it is read, and what is written is a policy.

use weir_import::{Format, Options, import};
use weir_policy::{NoFiles, Source};

/// `iptables-save`, of either family.
pub fn iptables(data: &[u8]) {
    translate(data, Format::IptablesSave);
    translate(data, Format::Ip6tablesSave);
}

/// `nft list ruleset`.
pub fn nft(data: &[u8]) {
    translate(data, Format::Nft);
}

/// pf.conf.
pub fn pf(data: &[u8]) {
    translate(data, Format::Pf);
}

/// `xdp-filter status`.
pub fn xdp_filter(data: &[u8]) {
    translate(data, Format::XdpFilter);
}

fn translate(data: &[u8], format: Format) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // What takes seconds in all is for the limits of the importer, not for one input.
    if text.len() > 1 << 16 {
        return;
    }
    let prefix = |text: &str| text.parse().map(|prefix| ("eth0".to_owned(), prefix)).ok();
    let routes = ["0.0.0.0/0", "::/0"]
        .into_iter()
        .filter_map(prefix)
        .collect();
    let local = ["192.0.2.1/32", "2001:db8::1/128"]
        .into_iter()
        .filter_map(prefix);
    let known = Options {
        chain: None,
        local: local.map(|(name, prefix)| (Some(name), prefix)).collect(),
        routes,
        mtu: Some(1492),
    };
    let forward = Options {
        chain: Some("forward".to_owned()),
        ..Options::default()
    };
    for options in [known, forward] {
        let Ok(made) = import(format, text, "fuzz", &options) else {
            continue;
        };
        let read = weir_policy::parse(&Source::new("made.weir", made.policy.as_str()), &NoFiles);
        if let Err(errors) = read {
            let first = errors.iter().next();
            panic!("{first:?} in the policy made of {text:?}");
        }
        for finding in &made.findings {
            assert!(!finding.to_string().contains('\n'), "a finding is one line");
        }
    }
}
