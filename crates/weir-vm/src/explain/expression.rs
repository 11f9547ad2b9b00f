//! C expressions as far as a source line shows them: what is accessed at a column, what is assigned, what is passed to a call.
//!
//! Not a parser: it follows names, `->`, `.`, `[]`, casts and parentheses on one line, and says nothing where that is not enough.
//! Invariant: every answer is a piece of the line.

/// An access to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access<'s> {
    /// `base->member`, also with more behind it.
    Member { base: &'s str },
    /// `base[index]`.
    Index { base: &'s str, index: &'s str },
    /// `*pointer`.
    Deref { pointer: &'s str },
}

/// Bytes of the word or operator at a position.
pub(super) fn word(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let name = rest.bytes().take_while(|b| is_name(*b)).count();
    if name > 0 {
        return name;
    }
    let operator = |b: &u8| b"+-*/%&|^<>=!~".contains(b);
    rest.bytes().take_while(operator).count().max(1)
}

/// The access at a position: at its member's name, its first word, its `*`, or the operator behind it.
pub(super) fn access(text: &str, at: usize) -> Option<Access<'_>> {
    let bytes = text.as_bytes();
    let first = *bytes.get(at)?;
    if first == b'*' && !before_is_value(text, at) {
        let (start, end) = deref_operand(text, at + 1)?;
        return Some(Access::Deref {
            pointer: text.get(start..end)?.trim(),
        });
    }
    let end = if is_name(first) {
        postfix_end(text, at)
    } else {
        // An assignment operator: the access is to its left.
        text.get(..at)?.trim_end().len()
    };
    let start = postfix_start(text, end)?;
    // An identifier at the column stands in a longer expression: subscripts behind it belong to it.
    let whole = text.get(start..end)?;
    classify(text, start, whole)
}

/// Where `name = ...` stands on the line (also `type *name = ...`): the first name assigned.
pub(super) fn assigned(text: &str) -> Option<&str> {
    assignments(text).next()
}

/// The name that gets what `function` returns: of several in a declaration, the last in front of the call.
pub(super) fn assigned_from<'s>(text: &'s str, function: &str) -> Option<&'s str> {
    let call = text.find(function).unwrap_or(text.len());
    assignments(text.get(..call)?).last()
}

fn assignments(text: &str) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let lonely = |at: &usize| {
        bytes.get(*at) == Some(&b'=')
            && bytes.get(at + 1) != Some(&b'=')
            && bytes
                .get(at - 1)
                .is_some_and(|before| !b"=!<>+-*/%&|^".contains(before))
    };
    (1..bytes.len()).filter(lonely).filter_map(|at| {
        let end = text.get(..at)?.trim_end().len();
        let start = postfix_start(text, end)?;
        text.get(start..end).filter(|t| !t.is_empty())
    })
}

/// Arguments of the call of `function` on the line.
pub(super) fn arguments<'s>(text: &'s str, function: &str) -> Option<Vec<&'s str>> {
    let name = text.find(function)?;
    let open = name + function.len();
    let gap = text.get(open..)?.find('(')?;
    let gap_is_blank = text.get(open..open + gap)?.trim().is_empty();
    let open = open + gap;
    let close = matching(text, open).filter(|_| gap_is_blank)?;
    let mut found = Vec::new();
    let (mut depth, mut start) = (0, open + 1);
    for (at, b) in text.bytes().enumerate().take(close).skip(open + 1) {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                found.push(text.get(start..at)?.trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(text.get(start..close)?.trim());
    Some(found)
}

/// The innermost subscript of an expression that starts at or covers the position.
pub(super) fn subscript(text: &str, at: usize) -> Option<(&str, &str)> {
    match access(text, at)? {
        Access::Index { base, index } => Some((base, index)),
        Access::Member { .. } | Access::Deref { .. } => {
            // `base->array[index]`: the subscript is the last part of the expression.
            let first = *text.as_bytes().get(at)?;
            let end = if is_name(first) {
                postfix_end(text, at)
            } else {
                text.get(..at)?.trim_end().len()
            };
            let open = opening(text, end.checked_sub(1)?)?;
            (text.as_bytes().get(open) == Some(&b'[')).then_some(())?;
            let start = postfix_start(text, end)?;
            Some((
                text.get(start..open)?.trim(),
                text.get(open + 1..end - 1)?.trim(),
            ))
        }
    }
}

fn classify<'s>(text: &'s str, start: usize, whole: &'s str) -> Option<Access<'s>> {
    // The last `->` outside brackets: what stands before it points at the memory.
    let mut depth = 0;
    let mut arrow = None;
    for (at, b) in whole.bytes().enumerate() {
        match b {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'-' if depth == 0 && whole.as_bytes().get(at + 1) == Some(&b'>') => arrow = Some(at),
            _ => {}
        }
    }
    if let Some(at) = arrow {
        return Some(Access::Member {
            base: whole.get(..at)?.trim(),
        });
    }
    if whole.ends_with(']') {
        let open = opening(text, start + whole.len() - 1)?;
        return Some(Access::Index {
            base: text.get(start..open)?.trim(),
            index: text.get(open + 1..start + whole.len() - 1)?.trim(),
        });
    }
    // `*name` with the column at the operator behind the name.
    let before = text.get(..start)?.trim_end();
    if before.ends_with('*') && !before_is_value(text, before.len() - 1) {
        return Some(Access::Deref { pointer: whole });
    }
    None
}

/// Whether something stands before the position that `*` would multiply.
fn before_is_value(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default().trim_end();
    if before.ends_with("return") {
        return false;
    }
    before
        .bytes()
        .last()
        .is_some_and(|b| is_name(b) || b == b')' || b == b']')
}

/// What `*` before `from` applies to: casts and one postfix expression.
fn deref_operand(text: &str, from: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let skip = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        at
    };
    let start = skip(from);
    let mut at = start;
    loop {
        match *bytes.get(at)? {
            b'(' => {
                let close = matching(text, at)?;
                let next = skip(close + 1);
                let operand_follows = bytes
                    .get(next)
                    .is_some_and(|b| is_name(*b) || *b == b'(' || *b == b'&');
                let end = postfix_tail(text, close + 1);
                if !operand_follows {
                    return Some((start, end));
                }
                at = next;
            }
            b'*' | b'&' => at = skip(at + 1),
            b if is_name(b) => return Some((start, postfix_end(text, at))),
            _ => return None,
        }
    }
}

/// End of the word at `at` and of the subscripts, calls and members behind it.
fn postfix_end(text: &str, at: usize) -> usize {
    let end = at + word(text, at);
    postfix_tail(text, end)
}

fn postfix_tail(text: &str, from: usize) -> usize {
    let bytes = text.as_bytes();
    let mut end = from;
    loop {
        match bytes.get(end) {
            Some(b'[') => match matching(text, end) {
                Some(close) => end = close + 1,
                None => return end,
            },
            Some(b'.') if bytes.get(end + 1).is_some_and(|b| is_name(*b)) => {
                end += 1 + word(text, end + 1);
            }
            Some(b'-')
                if bytes.get(end + 1) == Some(&b'>')
                    && bytes.get(end + 2).is_some_and(|b| is_name(*b)) =>
            {
                end += 2 + word(text, end + 2);
            }
            _ => return end,
        }
    }
}

/// Start of the postfix expression that ends at `end`.
fn postfix_start(text: &str, end: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = end;
    loop {
        // One primary: brackets, then a name before them.
        while at > 0 && matches!(bytes.get(at - 1), Some(b']' | b')')) {
            at = opening(text, at - 1)?;
        }
        while at > 0 && is_name(*bytes.get(at - 1)?) {
            at -= 1;
        }
        let before = text.get(..at)?.trim_end();
        if let Some(rest) = before.strip_suffix("->") {
            at = rest.trim_end().len();
        } else if let Some(rest) = before.strip_suffix('.') {
            at = rest.trim_end().len();
        } else {
            return (at < end).then_some(at);
        }
    }
}

/// The bracket that closes the one at `open`.
fn matching(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, b) in text.bytes().enumerate().skip(open) {
        match b {
            b'(' | b'[' => depth += 1,
            b')' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The bracket that opens what the one at `close` closes.
fn opening(text: &str, close: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut depth = 0;
    for at in (0..=close).rev() {
        match bytes.get(at)? {
            b')' | b']' => depth += 1,
            b'(' | b'[' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn is_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The access at the mark `@` in a line.
    fn at(line: &str) -> Option<Access<'static>> {
        let position = line.find('@').expect("the line has a mark");
        let text: &'static str = line.replacen('@', "", 1).leak();
        access(text, position)
    }

    #[test]
    fn accesses_at_the_columns_compilers_give() {
        let member = |base| Some(Access::Member { base });
        let index = |base, index| Some(Access::Index { base, index });
        let deref = |pointer| Some(Access::Deref { pointer });
        assert_eq!(at("if (eth->@h_proto == 8)"), member("eth"));
        assert_eq!(at("ip->ttl @= 64;"), member("ip"));
        assert_eq!(
            at("total->bytes @+= ctx->data_end - ctx->data;"),
            member("total")
        );
        assert_eq!(at("if (hdr->@eth.h_dest[0] & 1)"), member("hdr"));
        assert_eq!(at("if (eth->@h_dest[0] & 1)"), member("eth"));
        assert_eq!(
            at("x = ((struct iphdr *)p)->@ttl;"),
            member("((struct iphdr *)p)")
        );
        assert_eq!(at("return @bytes[13] == 6 ? 1 : 2;"), index("bytes", "13"));
        assert_eq!(at("seen[index] @= 1;"), index("seen", "index"));
        assert_eq!(at("return @data_end[-1] ? 1 : 2;"), index("data_end", "-1"));
        assert_eq!(
            at("index = @*(u16 *)(data + 14);"),
            deref("(u16 *)(data + 14)")
        );
        assert_eq!(at("*count @+= 1;"), deref("count"));
        assert_eq!(at("return @*address ? 1 : 2;"), deref("address"));
        assert_eq!(at("sum += @*byte++;"), deref("byte"));
        assert_eq!(at("return @action;"), None);
        assert_eq!(at("if (data @+ 13 > data_end)"), None);
        assert_eq!(at("@}"), None);
    }

    #[test]
    fn assignments_arguments_and_subscripts() {
        assert_eq!(
            assigned("u64 *count = bpf_map_lookup_elem(&m, &key);"),
            Some("count")
        );
        assert_eq!(assigned("state->slot = f(a == b);"), Some("state->slot"));
        let two = "u64 one = 1, *count = bpf_map_lookup_elem(&m, &key);";
        assert_eq!(assigned(two), Some("one"));
        assert_eq!(assigned_from(two, "bpf_map_lookup_elem("), Some("count"));
        assert_eq!(assigned("if (a == b || c != d)"), None);
        assert_eq!(assigned("x += 1;"), None);
        assert_eq!(
            arguments(
                "if (bpf_xdp_load_bytes(ctx, 0, buf[f(1, 2)], length))",
                "bpf_xdp_load_bytes"
            ),
            Some(vec!["ctx", "0", "buf[f(1, 2)]", "length"])
        );
        assert_eq!(arguments("f(ctx", "f"), None);
        assert_eq!(arguments("g(ctx)", "f"), None);
        let line = "counters->seen[index]++;";
        assert_eq!(subscript(line, 21), Some(("counters->seen", "index")));
        assert_eq!(subscript(line, 0), Some(("counters->seen", "index")));
        assert_eq!(subscript("seen[i] = 1;", 8), Some(("seen", "i")));
        assert_eq!(subscript("ip->ttl = 1;", 8), None);
    }

    #[test]
    fn nothing_on_a_line_panics() {
        let pieces = [
            "*", "(", ")", "[", "]", "->", ".", "a", "é", " ", "=", "+", "1", ",",
        ];
        let mut seed: u64 = 1;
        for _ in 0..20_000 {
            let mut line = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                line.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
            }
            for position in 0..=line.len() {
                access(&line, position);
                subscript(&line, position);
                word(&line, position);
            }
            assigned(&line);
            arguments(&line, "a");
        }
    }
}
