//! Automata and PCRE2 agree: over the expressions of published rules and others, in texts sampled from the expressions themselves, changed, cut, and joined.

use super::super::{Condition, Expression, LoadSettings, Loader, NotFound};
use super::*;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % most.max(1) as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// Bytes that the expression takes, if what it asks around them holds.
fn sample(n: &mut Numbers, hir: &Hir, out: &mut Vec<u8>) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(l) => out.extend_from_slice(&l.0),
        HirKind::Class(Class::Bytes(c)) => {
            let ranges = c.ranges();
            if let Some(range) = ranges.get(n.below(ranges.len())) {
                let size = usize::from(range.end() - range.start()) + 1;
                out.push(range.start() + n.below(size) as u8);
            }
        }
        HirKind::Class(Class::Unicode(_)) => {}
        HirKind::Repetition(r) => {
            let most = r.max.unwrap_or(r.min + 3).min(r.min + 3);
            let times = r.min as usize + n.below((most - r.min) as usize + 1);
            for _ in 0..times.min(300) {
                sample(n, &r.sub, out);
            }
        }
        HirKind::Capture(c) => sample(n, &c.sub, out),
        HirKind::Concat(all) => all.iter().for_each(|h| sample(n, h, out)),
        HirKind::Alternation(all) => {
            let one = n.below(all.len());
            sample(n, &all[one], out);
        }
    }
}

fn text(n: &mut Numbers, hir: &Hir, pattern: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..n.below(4) {
        match n.below(5) {
            0 => out.push(b"\n\r \0aA0_="[n.below(9)]),
            1 => out.push(n.below(256) as u8),
            2 => {
                let from = n.below(pattern.len());
                let to = from + n.below(6);
                out.extend_from_slice(pattern.get(from..to).unwrap_or_default());
            }
            _ => {
                let from = out.len();
                sample(n, hir, &mut out);
                match n.below(6) {
                    0 if out.len() > from => {
                        let at = from + n.below(out.len() - from);
                        out[at] = n.below(256) as u8;
                    }
                    1 => out.truncate(from + n.below(out.len() - from + 1)),
                    2 => out[from..].make_ascii_uppercase(),
                    _ => {}
                }
            }
        }
    }
    if n.chance(4) {
        out.push(b'\n');
    }
    out
}

#[derive(Debug, Default)]
struct Counts {
    exact: usize,
    wider: usize,
    ends_only: usize,
    none: usize,
    bytes: usize,
    found: usize,
    ruled_out: usize,
    from: usize,
    perhaps: usize,
    given_up: usize,
}

fn compare(pcre: &Pcre, rounds: usize, n: &mut Numbers, counts: &mut Counts) {
    let Ok(expression) = Expression::new(pcre, 10_000_000) else {
        return;
    };
    let Some(linear) = Linear::new(pcre) else {
        counts.none += 1;
        return;
    };
    if !linear.finds_beginnings() {
        counts.ends_only += 1;
    }
    match linear.exact {
        true => counts.exact += 1,
        false => counts.wider += 1,
    }
    counts.bytes +=
        linear.forward.memory_usage() + linear.reverse.as_ref().map_or(0, |r| r.memory_usage());
    let hir = match exact(pcre) {
        Some((hir, _)) => hir,
        None => wider(pcre, OFTEN[0]).expect("there is an automaton of it"),
    };
    for _ in 0..rounds {
        let text = text(n, &hir, pcre.pattern.as_bytes());
        let start = match n.chance(3) {
            true => n.below(text.len() + 1),
            false => 0,
        };
        let wanted = expression.find_at(&text, start);
        let searched = linear.find_at(&text, start);
        assert!(searched.looked_at <= 4 * (text.len() + 1), "{searched:?}");
        match (searched.found, wanted) {
            (_, Err(NotFound::GivenUp)) => counts.given_up += 1,
            (Found::Perhaps, _) => counts.perhaps += 1,
            (Found::Nothing, Err(NotFound::None)) => counts.ruled_out += 1,
            (Found::From(_), _) => {
                // One place after the other, as detection does it.
                let mut on = start;
                let found = loop {
                    match linear.find_at(&text, on).found {
                        Found::From(at) => match expression.find_here(&text, at, usize::MAX) {
                            Err(NotFound::None) if pcre.anchored => break Err(NotFound::None),
                            Err(NotFound::None) => on = at + 1,
                            found => break found,
                        },
                        Found::Nothing => break Err(NotFound::None),
                        other => panic!("{pcre:?}: {other:?}"),
                    }
                    if on > text.len() {
                        break Err(NotFound::None);
                    }
                };
                assert_eq!(found, wanted, "{pcre:?} in {text:?} from {start}");
                counts.from += 1;
            }
            (Found::Match(from, to), Ok(found)) if (from, to) == found => counts.found += 1,
            (found, wanted) => panic!(
                "{pcre:?} in {:?} from {start}: {found:?}, PCRE2 {wanted:?}",
                String::from_utf8_lossy(&text)
            ),
        }
    }
}

fn published() -> Vec<Pcre> {
    let mut out: Vec<Pcre> = Vec::new();
    for name in ["rules/et-open-half.tar.gz", "rules/snort3-community.tar.gz"] {
        let Some(path) = weir_testdata::find(name) else {
            continue;
        };
        let output = std::process::Command::new("tar")
            .args(["-xzOf"])
            .arg(&path)
            .args(["--wildcards", "*.rules"])
            .output()
            .expect("tar runs");
        assert!(output.status.success(), "{}", path.display());
        let mut settings = LoadSettings::default();
        if name.contains("snort3") {
            settings.dialect = super::super::Dialect::Snort;
        }
        let mut loader = Loader::new(&settings);
        loader.text(name, &output.stdout);
        for rule in loader.finish().rules {
            for condition in rule.groups.into_iter().flat_map(|g| g.conditions) {
                if let Condition::Pcre(p) = condition
                    && !out.contains(&p)
                {
                    out.push(p);
                }
            }
        }
    }
    out
}

#[test]
fn automata_find_what_pcre2_finds_of_published_expressions() {
    let all = published();
    let rounds = match std::env::var_os("WEIR_LONG") {
        Some(_) => 5_000,
        None => 60,
    };
    let (mut n, mut counts) = (Numbers(1), Counts::default());
    for pcre in &all {
        compare(pcre, rounds, &mut n, &mut counts);
    }
    eprintln!("{} expressions: {counts:?}", all.len());
    if !all.is_empty() {
        assert!(counts.exact > all.len() * 3 / 4, "{counts:?}");
        // Nearly all of the others are tried only where a wider one may begin.
        assert!(counts.none < 10 && counts.ends_only == 0, "{counts:?}");
        assert_eq!(counts.perhaps, 0, "{counts:?}");
        assert!(counts.found > 10 * counts.exact, "{counts:?}");
        assert!(counts.ruled_out > 5 * counts.exact, "{counts:?}");
        assert!(counts.bytes < 64 << 20, "{counts:?}");
    }
}

#[test]
fn automata_find_what_pcre2_finds_of_others() {
    const PATTERNS: [&str; 64] = [
        "a*b",
        "^a+$",
        "a$",
        "^$",
        "$",
        "a|b$",
        "(a|ab)(c|bcd)*",
        "(?:a|b$)+",
        "a\\s*$",
        "[^a]*b",
        "(?i)ab+",
        "(?m)^a+",
        "(?s)a.*b",
        "a.*b",
        "(?i:a)b*",
        "a(?i)b*|c",
        "\\bab*",
        "a*\\B",
        "a??b*",
        "a{2,}",
        "a{2,3}?b*",
        "a{,3}",
        "a++b",
        "(?>a+)b",
        "(?=a)b*",
        "(?!a).*",
        "(?<=a)b*",
        "(a+)\\1",
        "\\x41*",
        "\\x{41}*",
        "\\x{141}*",
        "\\va*",
        "[\\v]*a",
        "[[:alpha:]]+",
        "[[:upper:]]+",
        "[]a]+",
        "[^]a]+",
        "[a[b]+",
        "[a&&b]+",
        "[\\w-]+",
        "[a-]+",
        "\\d+\\D*",
        "\\S+\\s?",
        "\\W*a",
        "\\h*a",
        "\\R*a",
        "a\\Z|b*",
        "a\\z|b*",
        "\\Aa*",
        "a*(?:)*",
        "(a*)*b",
        "(?:a|b*)*c",
        "(|a)+b",
        "\u{e9}*a",
        "[\\x80-\\xff]+",
        "(?U)a+b",
        "a{0}b*",
        "\\Qa*\\E",
        "a# b*",
        "\\/a*",
        "\\<a*",
        "(?#c)a*",
        "a\\n*$",
        "(?:^a|b)*$",
    ];
    let (mut n, mut counts) = (Numbers(2), Counts::default());
    for pattern in PATTERNS {
        for flags in 0..64 {
            let on = |bit: u32| flags >> bit & 1 == 1;
            let mut pcre = Pcre::new(pattern.into());
            (pcre.caseless, pcre.multiline, pcre.dotall) = (on(0), on(1), on(2));
            (pcre.anchored, pcre.dollar_end_only, pcre.ungreedy) = (on(3), on(4), on(5));
            compare(&pcre, 60, &mut n, &mut counts);
        }
    }
    eprintln!("{counts:?}");
    assert!(counts.exact > 1500 && counts.wider > 300, "{counts:?}");
    assert!(
        counts.found > 20_000 && counts.ruled_out > 10_000,
        "{counts:?}"
    );
}

#[test]
fn what_means_something_else_is_left_to_pcre2() {
    let translated = |pattern: &str| exact(&Pcre::new(pattern.into())).is_some();
    for pattern in [
        "a+b",
        "a$",
        "(?i)a",
        "[^\\d_]+",
        "\\x41",
        "(?:a|b)$",
        "\\bA",
        "\\b{start}a",
        "\\<a",
    ] {
        assert!(translated(pattern), "{pattern}");
    }
    for pattern in [
        "a++", "(?=a)b", "(a)\\1", "\\va", "[a[b]]", "[a&&b]", "a$b", "(?x)a", "\u{e9}", "a(?i)b",
        "(a*)*", "(?m)^", "a$|\\z",
    ] {
        assert!(!translated(pattern), "{pattern}");
    }
}
