//! Bodies of the web, made by the project: pages, scripts, styles, data and images that vary as real ones do, so that a matcher meets the byte statistics, the keywords and the repetitions of
//! such text. Invariant: the same length and seed give the same bytes.

/// Numbers that look random and are the same each time.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % most.max(1) as u64) as usize
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list.get(self.below(list.len()))
            .copied()
            .unwrap_or_default()
    }
}

/// A kind of body, with its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Page,
    Script,
    Style,
    Data,
    Image,
}

impl Kind {
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Kind::Page => "text/html; charset=utf-8",
            Kind::Script => "application/javascript",
            Kind::Style => "text/css",
            Kind::Data => "application/json",
            Kind::Image => "image/png",
        }
    }

    pub(super) fn ending(self) -> &'static str {
        match self {
            Kind::Page => "html",
            Kind::Script => "js",
            Kind::Style => "css",
            Kind::Data => "json",
            Kind::Image => "png",
        }
    }

    /// About so many bytes of it.
    pub(super) fn body(self, length: usize, seed: u64) -> Vec<u8> {
        let mut n = Numbers(seed);
        let mut text = String::with_capacity(length + 512);
        match self {
            Kind::Page => {
                text.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>");
                words(&mut n, &mut text, 4);
                text.push_str("</title>\n<link rel=\"stylesheet\" href=\"/style/main.css\">\n<script src=\"/js/app.js\" defer></script>\n</head>\n<body class=\"light\">\n");
                while text.len() < length {
                    element(&mut n, &mut text);
                }
                text.push_str("</body>\n</html>\n");
            }
            Kind::Script => {
                text.push_str("(function(window,document){\"use strict\";\n");
                while text.len() < length {
                    statement(&mut n, &mut text);
                }
                text.push_str("})(window,document);\n");
            }
            Kind::Style => {
                while text.len() < length {
                    rule(&mut n, &mut text);
                }
            }
            Kind::Data => {
                text.push_str("{\"items\":[");
                while text.len() < length {
                    record(&mut n, &mut text);
                }
                text.push_str("{}]}");
            }
            Kind::Image => {
                let mut bytes =
                    b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x02\0\0\0"
                        .to_vec();
                // Compressed bytes are as good as random.
                while bytes.len() < length {
                    bytes.push(n.below(256) as u8);
                }
                return bytes;
            }
        }
        text.into_bytes()
    }
}

const WORDS: [&str; 48] = [
    "the", "of", "and", "to", "in", "is", "for", "with", "that", "this", "network", "packet",
    "window", "value", "return", "default", "request", "which", "when", "user", "account",
    "search", "result", "people", "company", "service", "online", "price", "order", "contact",
    "privacy", "settings", "language", "download", "version", "document", "about", "report",
    "article", "first", "between", "through", "number", "system", "example", "update", "read",
    "more",
];
const NAMES: [&str; 24] = [
    "i", "e", "t", "n", "data", "item", "node", "value", "options", "callback", "element", "index",
    "config", "result", "state", "props", "event", "target", "list", "key", "self", "url", "id",
    "name",
];
const TAGS: [&str; 8] = ["div", "p", "span", "li", "section", "td", "h2", "article"];
const CLASSES: [&str; 10] = [
    "container",
    "row",
    "col-md-6",
    "btn",
    "nav-item",
    "text-muted",
    "card-body",
    "icon",
    "active",
    "footer",
];

fn words(n: &mut Numbers, text: &mut String, count: usize) {
    for at in 0..count {
        if at > 0 {
            text.push(' ');
        }
        text.push_str(n.of(&WORDS));
    }
}

fn element(n: &mut Numbers, text: &mut String) {
    let tag = n.of(&TAGS);
    match n.below(8) {
        0 => {
            text.push_str(&format!(
                "<a href=\"/{}/{}-{}.html\" title=\"",
                n.of(&WORDS),
                n.of(&WORDS),
                n.below(9999)
            ));
            words(n, text, 3);
            text.push_str("\">");
            words(n, text, 2);
            text.push_str("</a>\n");
        }
        1 => text.push_str(&format!(
            "<img src=\"/img/{}{}.png\" width=\"{}\" height=\"{}\" alt=\"{}\">\n",
            n.of(&WORDS),
            n.below(500),
            n.below(800),
            n.below(600),
            n.of(&WORDS)
        )),
        2 if n.below(3) == 0 => {
            text.push_str("<script>\n");
            for _ in 0..1 + n.below(4) {
                statement(n, text);
            }
            text.push_str("</script>\n");
        }
        _ => {
            text.push_str(&format!(
                "  <{tag} class=\"{} {}\" id=\"{}{}\">",
                n.of(&CLASSES),
                n.of(&CLASSES),
                n.of(&NAMES),
                n.below(300)
            ));
            let count = 3 + n.below(30);
            words(n, text, count);
            text.push_str(&format!(".</{tag}>\n"));
        }
    }
}

fn statement(n: &mut Numbers, text: &mut String) {
    let (a, b, c) = (n.of(&NAMES), n.of(&NAMES), n.of(&NAMES));
    let number = n.below(1000);
    text.push_str(&match n.below(9) {
        0 => format!("function {a}{number}({b},{c}){{return {b}.{c}!==undefined?{b}[{c}]:null}}\n"),
        1 => format!("var {a}=document.createElement(\"{}\");{a}.className=\"{}\";", n.of(&TAGS), n.of(&CLASSES)),
        2 => format!("for(var {a}=0;{a}<{b}.length;{a}++){{{c}.push({b}[{a}])}}\n"),
        3 => format!("if(typeof {a}===\"function\"){{{a}.call(this,{b},{number})}}else{{{c}={{}}}}\n"),
        4 => format!("window.addEventListener(\"{}\",function({a}){{{a}.preventDefault();{b}({c})}});\n", n.of(&WORDS)),
        5 => format!("{a}.{b}=\"{} {}\"+{c}.toString();", n.of(&WORDS), n.of(&WORDS)),
        6 => format!("/* {} {} {} */\n", n.of(&WORDS), n.of(&WORDS), n.of(&WORDS)),
        7 => format!("const {a}{number}=({b})=>{{try{{return JSON.parse({b})}}catch({c}){{console.error({c})}}}};\n"),
        _ => format!("{a}[\"{}\"]={b}.{c}({number},!0)||{{}};", n.of(&WORDS)),
    });
}

fn rule(n: &mut Numbers, text: &mut String) {
    const PROPERTIES: [&str; 8] = [
        "margin",
        "padding",
        "font-size",
        "width",
        "border-radius",
        "line-height",
        "top",
        "opacity",
    ];
    text.push_str(&format!(".{} .{}:hover{{", n.of(&CLASSES), n.of(&CLASSES)));
    for _ in 0..1 + n.below(5) {
        text.push_str(&format!("{}:{}px;", n.of(&PROPERTIES), n.below(64)));
    }
    text.push_str(&format!("color:#{:06x}}}\n", n.below(1 << 24)));
}

fn record(n: &mut Numbers, text: &mut String) {
    text.push_str(&format!(
        "{{\"id\":{},\"{}\":\"{} {}\",\"active\":{},\"url\":\"https:\\/\\/www.example.org\\/{}\\/{}\",\"tags\":[\"{}\",\"{}\"]}},",
        n.below(1_000_000),
        n.of(&NAMES),
        n.of(&WORDS),
        n.of(&WORDS),
        n.below(2) == 0,
        n.of(&WORDS),
        n.below(9999),
        n.of(&WORDS),
        n.of(&WORDS)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_as_long_as_asked_differ_and_stay_the_same() {
        for kind in [
            Kind::Page,
            Kind::Script,
            Kind::Style,
            Kind::Data,
            Kind::Image,
        ] {
            let body = kind.body(20_000, 7);
            assert!(
                (20_000..21_500).contains(&body.len()),
                "{kind:?}: {}",
                body.len()
            );
            assert_eq!(body, kind.body(20_000, 7));
            assert_ne!(body, kind.body(20_000, 8), "{kind:?}");
            // Text repeats words, not whole parts.
            let parts: std::collections::HashSet<&[u8]> = body.chunks(64).collect();
            assert!(
                parts.len() > body.len() / 64 * 9 / 10,
                "{kind:?}: {}",
                parts.len()
            );
        }
    }
}
