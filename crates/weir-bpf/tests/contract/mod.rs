//! What tests of the contract between C and Rust share: layouts by an object's BTF, numbers by a header's text.

use weir_bpf::{object, tool};
use weir_vm::{Btf, Object};

/// The types of an object.
pub(crate) fn btf_of(name: &str) -> Btf {
    let bytes = object(name).or_else(|| tool(name)).expect("compiled");
    let object = Object::parse(bytes).expect("the object is well formed");
    object.btf().expect("objects carry BTF").clone()
}

/// Compares a struct's size and every named member with its mirror.
macro_rules! same_layout {
    ($btf:expr, $c:literal, $rust:ty, $($member:ident),+) => {
        let layout = $btf.layout($c).unwrap_or_else(|e| panic!("{}: {e}", $c));
        assert_eq!(layout.size as usize, size_of::<$rust>(), "size of {}", $c);
        $(
            let member = layout.member(stringify!($member)).unwrap_or_else(|| panic!("{} has no {}", $c, stringify!($member)));
            assert_eq!(member.offset() as usize, std::mem::offset_of!($rust, $member), "{}.{}", $c, stringify!($member));
        )+
    };
}

pub(crate) use same_layout;

/// Compares numbers with those of a header: `#define NAME VALUE`, or `NAME = VALUE` of an enumeration. Values are decimal, hexadecimal, `1 << N`, or one less than that.
pub(crate) fn same_numbers(header: &str, numbers: &[(&str, u64)]) {
    for (name, rust) in numbers {
        assert_eq!(number(header, name), *rust, "{name}");
    }
}

fn number(header: &str, name: &str) -> u64 {
    let words = header
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let value = words
        .filter_map(|words| match words.as_slice() {
            ["#define", first, rest @ ..] | [first, "=", rest @ ..] if *first == name => {
                Some(rest.join(" "))
            }
            _ => None,
        })
        .next()
        .unwrap_or_else(|| panic!("the header has no {name}"));
    let value = value.split("/*").next().unwrap_or_default().trim();
    let less = u64::from(value.ends_with("- 1)"));
    let value = value
        .trim_end_matches("- 1)")
        .trim()
        .trim_matches(['(', ')', ',']);
    let number = match (value.split_once("<<"), value.strip_prefix("0x")) {
        (Some((_, shift)), _) => 1 << shift.trim().parse::<u32>().expect("a shift"),
        (None, Some(hex)) => u64::from_str_radix(hex, 16).expect("a number"),
        (None, None) => value
            .parse()
            .unwrap_or_else(|e| panic!("{name} = {value}: {e}")),
    };
    number - less
}
