//! How far a regular expression looks, by its text: whether what is before a match matters, and how many bytes an attempt at one place may look at. It is what the work of an attempt is
//! charged by, and when an attempt need not be made again. In doubt it looks at everything.

use super::model::Pcre;

/// How far an expression looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) place: Anchoring,
    first: First,
    /// Behind the first, the bytes that may be repeated without an end.
    repeated: Set,
    /// How many others there may be.
    others: usize,
    /// There are many ways to match the same bytes, and a search may try them all.
    pub(crate) goes_back: bool,
}

/// Where an expression is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchoring {
    /// At one place.
    Here,
    /// At every place from there on; what is before a match makes no difference.
    Ahead,
    /// At every place, and perhaps what is before it is looked at.
    Around,
}

/// What an expression begins with: bytes one after another, each of a set, followed as bits of a word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct First {
    /// Of each byte, the atoms that take it. Empty if there are no atoms.
    takes: Box<[u64]>,
    /// Atoms that may lack, and that may go on without an end.
    may_lack: u64,
    endless: u64,
    /// The bit behind the last.
    all: u64,
}

/// One byte of a set, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Atom {
    set: Set,
    may_lack: bool,
    endless: bool,
}

/// What is behind the first bytes of an expression may look at more than it does: it counts as so many bytes, or as this part of the buffer.
const MOST: usize = 4096;
const SHARE: usize = 16;
/// Atoms at the beginning that are followed, one for each bit of a word but the last.
const ATOMS: usize = 63;
/// Shorter buffers are not worth an estimate.
const SHORT: usize = 1024;
/// An expression with more alternatives, parts that may lack, or repetitions, goes back.
const ALTERNATIVES: usize = 8;
const LACKING: usize = 3;
const REPEATED: usize = 16;
/// If an expression may begin with any byte, one in so many places is followed.
const SAMPLE: usize = 16;
/// A byte that an expression passes costs so much less than one that rules are asked about.
const CHEAPER: usize = 8;

impl First {
    fn new(atoms: &[Atom]) -> First {
        let bits = |is: &dyn Fn(&Atom) -> bool| {
            let set = atoms.iter().zip(0..).filter(|(a, _)| is(a));
            set.fold(0_u64, |bits, (_, i)| bits | 1 << i)
        };
        let takes = |byte| bits(&|a| a.set.has(byte));
        First {
            takes: match atoms {
                [] => Box::default(),
                _ => (0..=u8::MAX).map(takes).collect(),
            },
            may_lack: bits(&|a| a.may_lack),
            endless: bits(&|a| a.endless),
            all: 1 << atoms.len(),
        }
    }

    /// How many bytes were looked at until nothing fits any more; or (`Err`) until all of it is behind.
    fn fails_at(&self, bytes: &[u8]) -> Result<usize, usize> {
        // Bit i: what is before atom i has been found.
        let mut reached = self.skip(1);
        for (at, byte) in bytes.iter().enumerate() {
            if reached & self.all != 0 {
                return Err(at);
            }
            let taken = reached & self.takes.get(usize::from(*byte)).copied().unwrap_or(0);
            if taken == 0 {
                return Ok(at + 1);
            }
            reached = self.skip(taken << 1 | taken & self.endless);
        }
        Err(bytes.len())
    }

    /// With what may lack passed over.
    fn skip(&self, mut reached: u64) -> u64 {
        loop {
            let more = reached | (reached & self.may_lack) << 1;
            if more == reached {
                return reached;
            }
            reached = more;
        }
    }
}

impl Reach {
    /// How many bytes say that there is no match at their start, if the first of the expression say so.
    pub(crate) fn fails_within(&self, bytes: &[u8]) -> Option<usize> {
        self.first.fails_at(bytes).ok()
    }

    /// Bytes that an attempt at the start of these may look at, at most, but for what is far behind.
    pub(crate) fn from(&self, bytes: &[u8]) -> usize {
        let through = match self.first.fails_at(bytes) {
            Ok(at) => return at,
            Err(at) => at,
        };
        let rest = bytes.get(through..).unwrap_or_default();
        let most = MOST.max(bytes.len() / SHARE);
        let mut others = 0;
        let stop = rest.iter().take(most).position(|b| {
            others += usize::from(!self.repeated.has(*b));
            others > self.others
        });
        through + stop.map_or(rest.len().min(most), |at| at + 1)
    }

    /// About how many units of work it is to try it at every place of these bytes, by what its first bytes take; not much more than `most`.
    pub(crate) fn everywhere(&self, bytes: &[u8], most: usize) -> usize {
        let first = &self.first;
        if bytes.len() < SHORT || first.endless == 0 {
            return bytes.len();
        }
        let begins = first.skip(1);
        let anywhere = begins & (first.endless | first.all) != 0;
        let step = if anywhere { SAMPLE } else { 1 };
        let most = most.saturating_sub(bytes.len()).saturating_mul(CHEAPER) / step;
        let mut looked_at = 0;
        for (at, byte) in bytes.iter().enumerate().step_by(step) {
            let takes = first.takes.get(usize::from(*byte)).copied().unwrap_or(0);
            if takes & begins == 0 {
                continue;
            }
            let (Ok(far) | Err(far)) = first.fails_at(&bytes[at..]);
            looked_at += far;
            if looked_at > most {
                break;
            }
        }
        bytes.len() + looked_at * step / CHEAPER
    }
}

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set([u64; 4]);

impl Set {
    const ALL: Set = Set([u64::MAX; 4]);

    fn of(is: impl Fn(u8) -> bool) -> Set {
        let mut set = Set::default();
        for byte in (0..=u8::MAX).filter(|b| is(*b)) {
            set.insert(byte);
        }
        set
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn join(&mut self, other: &Set) {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a |= b;
        }
    }
}

/// Of one expression.
pub(super) fn of(pcre: &Pcre) -> Reach {
    let mut scan = Scan {
        text: pcre.pattern.as_bytes(),
        caseless: pcre.caseless,
        looks_back: pcre.extended && pcre.pattern.contains('#'),
        alternatives: false,
        repeated: Set::default(),
        most: 1,
        endless: false,
        lacking: 0,
        branches: 0,
        first: Vec::new(),
        // Blanks mean nothing there.
        follows: !pcre.extended,
    };
    let begins = pcre.pattern.starts_with('^') && !pcre.multiline;
    scan.scan(usize::from(begins));
    let one_place = pcre.anchored || begins && !scan.alternatives;
    Reach {
        place: match (one_place, scan.looks_back || begins) {
            (true, _) => Anchoring::Here,
            (false, false) => Anchoring::Ahead,
            (false, true) => Anchoring::Around,
        },
        first: First::new(&scan.first),
        repeated: scan.repeated,
        others: pcre.pattern.len().saturating_mul(scan.most),
        goes_back: scan.endless
            || scan.most > REPEATED
            || scan.lacking > LACKING
            || scan.branches > ALTERNATIVES,
    }
}

struct Scan<'a> {
    text: &'a [u8],
    caseless: bool,
    looks_back: bool,
    /// There are alternatives outside of parentheses.
    alternatives: bool,
    repeated: Set,
    /// How often something may be repeated that is not without an end.
    most: usize,
    /// Something is repeated without an end.
    endless: bool,
    /// Parts with `?`, and bars between alternatives.
    lacking: usize,
    branches: usize,
    first: Vec<Atom>,
    /// What comes next still belongs to the first.
    follows: bool,
}

impl Scan<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn scan(&mut self, mut at: usize) {
        // Of each parenthesis that is open, the atoms before it.
        let mut open: Vec<usize> = Vec::new();
        while at < self.text.len() {
            let (set, length) = match self.byte(at) {
                b'\\' => self.escape(at),
                b'[' => self.class(at),
                b'.' => (Set::ALL, 1),
                b'(' => {
                    open.push(self.first.len());
                    let ahead = self.text.get(at..).unwrap_or_default();
                    // Of what stands behind `(?` the usual kinds are known.
                    let plain = !ahead.starts_with(b"(?") && !ahead.starts_with(b"(*");
                    let is = |kinds: &[&[u8]]| kinds.iter().any(|k| ahead.starts_with(k));
                    let group = is(&[b"(?:"]);
                    let named_old = is(&[b"(?P<"]);
                    let known = group || named_old || is(&[b"(?=", b"(?!", b"(?>"]);
                    let named = ahead.starts_with(b"(?<")
                        && !ahead.starts_with(b"(?<=")
                        && !ahead.starts_with(b"(?<!");
                    self.looks_back |= !(plain || known || named);
                    if !(plain || known || named) {
                        self.repeated = Set::ALL;
                    }
                    self.follows &= plain || group || named || named_old;
                    at += match (group, named || named_old) {
                        (true, _) => 3,
                        (_, true) => ahead.iter().position(|b| *b == b'>').map_or(1, |e| e + 1),
                        _ => 1,
                    };
                    continue;
                }
                b')' => {
                    let before = open.pop().unwrap_or(0);
                    at += 1;
                    // What may be there several times, or not at all, is not followed.
                    if matches!(self.byte(at), b'*' | b'+' | b'?' | b'{')
                        && before < self.first.len()
                    {
                        self.first.truncate(before);
                        self.follows = false;
                    }
                    let followed = std::mem::replace(&mut self.follows, false);
                    at += self.quantifier(at, &Set::ALL);
                    self.follows = followed;
                    continue;
                }
                b'|' => {
                    self.follows = false;
                    self.branches += 1;
                    self.alternatives |= open.is_empty();
                    self.first.truncate(open.last().copied().unwrap_or(0));
                    // Those around it are behind what is not followed.
                    at += 1;
                    continue;
                }
                b'^' => {
                    self.follows = false;
                    self.looks_back = true;
                    at += 1;
                    continue;
                }
                byte => {
                    self.follows &= !matches!(byte, b'$' | b'#');
                    (self.one(byte), 1)
                }
            };
            at += length;
            self.follows &= self.first.len() < ATOMS;
            if self.follows {
                // A bounded repetition is taken for an end of what is followed, when it is read.
                self.first.push(Atom {
                    set,
                    may_lack: false,
                    endless: false,
                });
            }
            at += self.quantifier(at, &set);
        }
    }

    /// What a quantifier says of the bytes before it; its length.
    fn quantifier(&mut self, at: usize, set: &Set) -> usize {
        let rest = self.text.get(at..).unwrap_or_default();
        let mark = rest.first().copied().unwrap_or(0);
        // How often at least and at most what is followed stands there.
        let mut times = None;
        let mut length = match mark {
            b'*' | b'+' => {
                self.repeated.join(set);
                self.endless = true;
                1
            }
            b'?' => {
                self.lacking += 1;
                1
            }
            b'{' => {
                let end = rest.iter().position(|b| *b == b'}').unwrap_or(0);
                let inside = rest.get(1..end).unwrap_or_default();
                let numbers = |b: &u8| b.is_ascii_digit() || *b == b',' || *b == b' ';
                if inside.is_empty() || !inside.iter().all(numbers) {
                    return 0;
                }
                let text = String::from_utf8_lossy(inside);
                let last = text.rsplit(',').next().unwrap_or_default().trim();
                let most = last.parse::<usize>().ok();
                match most {
                    Some(most) => self.most = self.most.saturating_mul(most.max(1)),
                    None => {
                        self.repeated.join(set);
                        self.endless = true;
                    }
                }
                // Without a least number, or with blanks, versions of the library differ.
                let least = text.split(',').next().and_then(|n| n.parse().ok());
                let plain = !text.contains(' ') && (most.is_some() || text.ends_with(','));
                times = least.filter(|_| plain).map(|least| (least, most));
                end + 1
            }
            _ => return 0,
        };
        match (self.follows, mark, times) {
            (false, _, _) => {}
            (true, b'{', Some((least, most))) => self.follow(least, most),
            (true, b'{', None) => {
                self.first.pop();
                self.follows = false;
            }
            (true, _, _) => match self.first.last_mut() {
                Some(atom) => {
                    atom.may_lack = mark != b'+';
                    atom.endless = mark != b'?';
                }
                None => self.follows = false,
            },
        }
        // Lazy, or possessive.
        if matches!(rest.get(length), Some(b'?' | b'+')) {
            length += 1;
        }
        length
    }

    /// The last of the first stands there several times: as often as there are bits for.
    fn follow(&mut self, least: usize, most: Option<usize>) {
        let Some(atom) = self.first.pop() else {
            self.follows = false;
            return;
        };
        let copies = most.unwrap_or(least.max(1)).max(least);
        for copy in 0..copies {
            if self.first.len() == ATOMS {
                self.follows = false;
                return;
            }
            self.first.push(Atom {
                may_lack: copy >= least,
                endless: most.is_none() && copy + 1 == copies,
                ..atom.clone()
            });
        }
    }

    fn one(&self, byte: u8) -> Set {
        let mut set = Set::default();
        self.add(&mut set, byte);
        set
    }

    fn add(&self, set: &mut Set, byte: u8) {
        set.insert(byte);
        if self.caseless {
            set.insert(byte.to_ascii_lowercase());
            set.insert(byte.to_ascii_uppercase());
        }
    }

    /// The bytes that an escape stands for, all of them in doubt, and its length.
    fn escape(&mut self, at: usize) -> (Set, usize) {
        let space = |b: u8| b.is_ascii_whitespace() || b == 0x0b;
        let set = match self.byte(at + 1) {
            b's' => Set::of(space),
            b'd' => Set::of(|b| b.is_ascii_digit()),
            b'w' => Set::of(|b| b.is_ascii_alphanumeric() || b == b'_'),
            b'n' => self.one(b'\n'),
            b'r' => self.one(b'\r'),
            b't' => self.one(b'\t'),
            b'x' => {
                let digits = self.text.get(at + 2..at + 4).unwrap_or_default();
                let digits = std::str::from_utf8(digits).unwrap_or_default();
                match u8::from_str_radix(digits, 16) {
                    Ok(byte) => return (self.one(byte), 4),
                    Err(_) => {
                        self.follows = false;
                        Set::ALL
                    }
                }
            }
            b'b' | b'B' | b'A' | b'G' | b'K' => {
                self.looks_back = true;
                self.follows = false;
                Set::ALL
            }
            byte if !byte.is_ascii_alphanumeric() => self.one(byte),
            b'S' => Set::of(|b| !space(b)),
            b'D' => Set::of(|b| !b.is_ascii_digit()),
            b'W' => Set::of(|b| !(b.is_ascii_alphanumeric() || b == b'_')),
            b'h' | b'v' | b'H' | b'V' | b'N' | b'f' | b'e' | b'a' => Set::ALL,
            // Nothing is looked at, or of unknown length.
            b'z' | b'Z' | b'0' => {
                self.follows = false;
                Set::ALL
            }
            // References and what else there is may look anywhere.
            _ => {
                self.looks_back = true;
                self.follows = false;
                self.repeated = Set::ALL;
                Set::ALL
            }
        };
        (set, 2)
    }

    /// The bytes of a class, more of them in doubt, and its length.
    fn class(&mut self, at: usize) -> (Set, usize) {
        let negated = self.byte(at + 1) == b'^';
        let mut i = at + 1 + usize::from(negated);
        let mut set = Set::default();
        let mut surely = Set::default();
        let mut first = true;
        let mut doubt = false;
        while i < self.text.len() {
            match self.byte(i) {
                b']' if !first => {
                    i += 1;
                    break;
                }
                b'[' if matches!(self.byte(i + 1), b':' | b'.' | b'=') => {
                    doubt = true;
                    let rest = self.text.get(i..).unwrap_or_default();
                    let end = rest.iter().position(|b| *b == b']').unwrap_or(rest.len());
                    i += end + 1;
                }
                b'\\' => {
                    // In a class `\b` is a backspace, and digits are octal.
                    if matches!(self.byte(i + 1), b'b' | b'0'..=b'9') {
                        doubt = true;
                        i += 2;
                        continue;
                    }
                    let (there, length) = self.escape(i);
                    set.join(&there);
                    // All bytes are said in doubt only.
                    if there != Set::ALL {
                        surely.join(&there);
                    }
                    i += length;
                }
                byte if self.byte(i + 1) == b'-' && self.byte(i + 2) != b']' => {
                    if self.byte(i + 2) == b'\\' {
                        doubt = true;
                    }
                    for one in byte..=self.byte(i + 2) {
                        self.add(&mut set, one);
                    }
                    i += 3;
                }
                byte => {
                    self.add(&mut set, byte);
                    surely.insert(byte);
                    i += 1;
                }
            }
            first = false;
        }
        let set = match (negated, doubt) {
            (false, false) => set,
            (false, true) => Set::ALL,
            // What is named for sure is not in it.
            (true, _) => Set(surely.0.map(|named| !named)),
        };
        (set, i - at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(pattern: &str, bytes: &[u8]) -> Option<usize> {
        let reach = of(&Pcre::new(pattern.into()));
        (reach.place == Anchoring::Here).then(|| reach.from(bytes))
    }

    #[test]
    fn an_attempt_at_one_place_looks_as_far_as_its_text_says() {
        let other = [b'x'; 100];
        assert_eq!(far("^abc", &other), Some(1));
        assert_eq!(far("^xxc", &other), Some(3));
        assert_eq!(far("^(?:abc)", &other), Some(1));
        assert_eq!(far("^(?:abc)?d", &other), Some(11));
        assert_eq!(far("^ {4}", &other), Some(1));
        assert_eq!(far("^x{2,3}\\.", &other), Some(4));
        assert_eq!(far("^x{2,}\\.", &other), Some(100));
        assert_eq!(far("^(?:xx){4}", &other), Some(41));
        // Blanks may go on, anything else not.
        let mut text = vec![b' '; 500];
        text.extend([b'x'; 100]);
        assert_eq!(far("^\\s*=", &text), Some(501));
        assert_eq!(far("^\\s*?=", &text[490..]), Some(11));
        assert_eq!(far("^\\s?=", &text), Some(2));
        assert_eq!(far("^[^>]+>", &text), Some(600));
        assert_eq!(far("^[^x]+>", &text), Some(501));
        assert_eq!(far("^[ a]{3,}>", &text), Some(501));
        assert_eq!(far("^(?:a|b)*>", &text), Some(600));
        assert_eq!(far("^\\)(?:a|b)*>", &text), Some(1));
        assert_eq!(far("^.*", &text), Some(600));
        // What may be far behind counts as a part of it.
        assert_eq!(far("^(?:a|b)*>", &[b' '; 100_000]), Some(6250));
    }

    #[test]
    fn what_the_first_bytes_rule_out_is_no_match() {
        let patterns = [
            "^\\s*?\\)\\s*?\\{",
            "^a?b*c+",
            "^[^a]b",
            "^[a-c]+?x",
            "^a{2}b",
            "^a{1,2}b",
            "^a{0,2}b",
            "^a{0}b",
            "^a{2,}?b",
            "^a{0,}b+c",
            "^[ab]{1,3}+c",
            "^a{,2}b",
            "^a{70}b",
            "^a{1,70}b",
            "^a.c",
            "^A\\x62?c",
            "^\\w+\\d",
            "^[]a]+b",
            "^[^]a]b",
            "^a$",
            "^(a|b)c",
            "^a|b",
            "^\\S[\\s\\w]*c",
            "^a*?$",
            "^[[:alpha:]]b",
            "^a\\b",
        ];
        let (mut ruled_out, mut found) = (0, 0);
        let mut number = 1_u64;
        for pattern in patterns {
            for caseless in [false, true] {
                let mut pcre = Pcre::new(pattern.into());
                pcre.caseless = caseless;
                let expression =
                    super::super::Expression::new(&pcre, 3500).expect("a good expression");
                let far = of(&pcre);
                if far.place != Anchoring::Here {
                    assert_eq!(pattern, "^a|b");
                    continue;
                }
                for _ in 0..400 {
                    let bytes: Vec<u8> = (0..number % 7)
                        .map(|_| {
                            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d) | 1;
                            b"aabbccxA ]){1"[(number >> 33) as usize % 13]
                        })
                        .collect();
                    number = number.wrapping_add(0x1405_7b7e);
                    let matched = expression.find(&bytes).is_ok();
                    let out = far.fails_within(&bytes).is_some();
                    assert!(!(matched && out), "{pattern} in {bytes:?}");
                    ruled_out += usize::from(out);
                    found += usize::from(matched);
                }
            }
        }
        assert!(ruled_out > 3000 && found > 300, "{ruled_out}, {found}");
    }

    #[test]
    fn what_is_before_a_match_matters_to_some() {
        let of = |pattern: &str| of(&Pcre::new(pattern.into()));
        for pattern in ["a+b", "[^a]b", "(?:a|b)", "(?=a)b", "\\x5eb", "a\\^"] {
            assert_eq!(of(pattern).place, Anchoring::Ahead, "{pattern}");
        }
        for pattern in [
            "\\bab", "(?<=a)b", "(?<!a)b", "a|^b", "^a|b", "(?:^|a)b", "(a)\\1", "(?m)^a", "(?i)a",
            "a\\Kb",
        ] {
            assert_eq!(of(pattern).place, Anchoring::Around, "{pattern}");
        }
        let mut lines = Pcre::new("^a".into());
        lines.multiline = true;
        assert_eq!(super::of(&lines).place, Anchoring::Around);
        assert_eq!(of("^a[|]b").place, Anchoring::Here);
    }

    #[test]
    fn what_is_tried_everywhere_is_estimated() {
        let of = |pattern: &str| of(&Pcre::new(pattern.into()));
        let long = [b'a'; 10_000];
        assert_eq!(of("abc").everywhere(&long, 1 << 30), 10_000);
        assert_eq!(of("[bc]+d").everywhere(&long, 1 << 30), 10_000);
        // Each place looks at all that is behind it.
        let all = of("(?<v>[^=\\s]*)\\s*=(?P=v)").everywhere(&long, 1 << 30);
        assert!((6_000_000..6_500_000).contains(&all), "{all}");
        let all = of("a[^=]*=").everywhere(&long, 1 << 30);
        assert!((6_000_000..6_500_000).contains(&all), "{all}");
        assert!(of("a[^=]*=").everywhere(&long, 100_000) < 120_000);
    }
}
