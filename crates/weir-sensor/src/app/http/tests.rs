//! Messages by hand: what the buffers must be, whatever the segments.

use std::io::Write;

use super::*;
use crate::app::tests::{dump, wanted};
use crate::app::{App, Change, Transaction};
use crate::buffer::Buffer;

pub(super) fn run(w: &Asked, parts: &[(Direction, &[u8])], step: usize) -> Transactions {
    let mut p = Http1::new(w);
    let mut out = Transactions::default();
    for (d, bytes) in parts {
        for piece in bytes.chunks(step) {
            if out.change.is_some() {
                break;
            }
            p.data(*d, piece, 7, &mut out);
        }
    }
    p.end(ToServer, &mut out);
    p.end(ToClient, &mut out);
    out
}

/// Runs whole and in pieces of every small size: all must agree.
pub(super) fn all(parts: &[(Direction, &[u8])]) -> Transactions {
    let w = wanted();
    let whole = run(&w, parts, usize::MAX);
    for step in [1, 2, 3, 5, 7, 11, 64] {
        assert_eq!(
            dump(&run(&w, parts, step)),
            dump(&whole),
            "pieces of {step}"
        );
    }
    whole
}

fn get(t: &Transaction, b: Buffer, d: Direction) -> Option<String> {
    let found: Vec<&[u8]> = t.get(b, d).collect();
    assert!(found.len() <= 1, "{b:?} twice");
    found
        .first()
        .map(|f| String::from_utf8_lossy(f).into_owned())
}

fn request(bytes: &[u8]) -> Transactions {
    all(&[(ToServer, bytes)])
}

fn body(bytes: &[u8]) -> String {
    let out = all(&[
        (ToServer, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        (ToClient, bytes),
    ]);
    let b = get(&out.live[0], Buffer::FileData, ToClient).unwrap_or_default();
    assert_eq!(
        get(&out.live[0], Buffer::HttpResponseBody, ToClient).unwrap_or_default(),
        b
    );
    b
}

#[test]
fn buffers_of_a_request() {
    let out = request(
        b"GET /a%20b//c?x=%41 HTTP/1.1\r\nHost: WWW.Example.com:8080\r\nUser-Agent:  curl \r\nCookie: a=b\r\nAccept: x\r\nAccept: y\r\nReferer: r\r\n\r\n",
    );
    let t = &out.live[0];
    let g = |b| get(t, b, ToServer).unwrap_or_else(|| format!("no {b:?}"));
    assert_eq!(g(Buffer::HttpMethod), "GET");
    assert_eq!(g(Buffer::HttpUri), "/a b/c?x=A");
    assert_eq!(g(Buffer::HttpUriRaw), "/a%20b//c?x=%41");
    assert_eq!(g(Buffer::HttpProtocol), "HTTP/1.1");
    assert_eq!(g(Buffer::HttpRequestLine), "GET /a%20b//c?x=%41 HTTP/1.1");
    assert_eq!(g(Buffer::HttpHost), "www.example.com");
    assert_eq!(g(Buffer::HttpHostRaw), "WWW.Example.com:8080");
    assert_eq!(g(Buffer::HttpUserAgent), "curl");
    assert_eq!(g(Buffer::HttpCookie), "a=b");
    assert_eq!(g(Buffer::HttpAccept), "x, y");
    assert_eq!(g(Buffer::HttpReferer), "r");
    assert_eq!(
        g(Buffer::HttpHeader),
        "Host: WWW.Example.com:8080\r\nUser-Agent: curl\r\nAccept: x, y\r\nReferer: r\r\n"
    );
    assert_eq!(
        g(Buffer::HttpHeaderNames),
        "\r\nHost\r\nUser-Agent\r\nCookie\r\nAccept\r\nReferer\r\n\r\n"
    );
    assert_eq!(
        g(Buffer::HttpHeaderRaw),
        "Host: WWW.Example.com:8080\r\nUser-Agent:  curl \r\nCookie: a=b\r\nAccept: x\r\nAccept: y\r\nReferer: r\r\n\r\n"
    );
    assert!(g(Buffer::HttpStart).starts_with("GET /a%20b//c?x=%41 HTTP/1.1\r\nHost: WWW"));
    assert!(g(Buffer::HttpStart).ends_with("Referer: r\r\n\r\n"));
    assert_eq!(t.get(Buffer::HttpRequestHeader, ToServer).count(), 5);
    assert_eq!(t.record["hostname"], "www.example.com");
    assert_eq!(t.record["http_port"], 8080);
    assert_eq!(t.record["url"], "/a%20b//c?x=%41");
    assert_eq!(t.record["http_user_agent"], "curl");
    assert_eq!(t.record["http_refer"], "r");
}

#[test]
fn a_response_and_pipelining() {
    let out = all(&[
        (
            ToServer,
            b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /2 HTTP/1.1\r\nHost: a\r\n\r\nPOST /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /4 HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (
            ToClient,
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/html; charset=x\r\nServer: s\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nHTTP/1.0 404 Not here\r\nLocation: /x\r\nSet-Cookie: q\r\n\r\nrest",
        ),
    ]);
    assert_eq!(out.live.len(), 4);
    assert!(out.live.iter().all(|t| t.done));
    let t = &out.live[0];
    assert_eq!(get(t, Buffer::HttpStatusCode, ToClient).unwrap(), "200");
    assert_eq!(get(t, Buffer::HttpStatusMessage, ToClient).unwrap(), "OK");
    assert_eq!(
        get(t, Buffer::HttpResponseLine, ToClient).unwrap(),
        "HTTP/1.1 200 OK"
    );
    assert_eq!(get(t, Buffer::HttpServer, ToClient).unwrap(), "s");
    assert_eq!(get(t, Buffer::FileData, ToClient).unwrap(), "hi");
    assert_eq!(get(t, Buffer::FileName, ToClient).unwrap(), "/1");
    assert_eq!(t.record["http_content_type"], "text/html");
    assert_eq!(t.record["status"], 200);
    assert_eq!(t.record["length"], 2);
    assert_eq!(get(&out.live[1], Buffer::FileData, ToClient), None);
    assert_eq!(
        get(&out.live[2], Buffer::HttpRequestBody, ToServer).unwrap(),
        "abc"
    );
    let t = &out.live[3];
    assert_eq!(
        get(t, Buffer::HttpStatusMessage, ToClient).unwrap(),
        "Not here"
    );
    assert_eq!(get(t, Buffer::HttpLocation, ToClient).unwrap(), "/x");
    assert_eq!(get(t, Buffer::HttpCookie, ToClient).unwrap(), "q");
    assert_eq!(get(t, Buffer::HttpResponseBody, ToClient).unwrap(), "rest");
    assert_eq!(t.record["redirect"], "/x");
}

#[test]
fn tricks_with_chunks() {
    let chunked =
        |te: &str, b: &str| body(format!("HTTP/1.1 200 OK\r\n{te}\r\n\r\n{b}").as_bytes());
    let te = "Transfer-Encoding: chunked";
    for (te, b) in [
        (te, "3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"),
        (
            te,
            "0003\r\nabc\r\n3;name=\"v\"\r\ndef\r\n0\r\nTrailer: x\r\n\r\n",
        ),
        (te, " 3\r\nabc\r\n\t3 \r\ndef\r\n0\r\n\r\n"),
        (te, "3\nabc\n3\ndef\n0\n\n"),
        (te, "3\r\nabc\r\n\r\n3\r\ndef\r\n0\r\n\r\n"),
        ("transfer-encoding:chunked", "6\r\nabcdef\r\n0\r\n\r\n"),
        ("Transfer-Encoding:\x0bchunked", "6\r\nabcdef\r\n0\r\n\r\n"),
        ("Transfer-Encoding: xchunked", "6\r\nabcdef\r\n0\r\n\r\n"),
        ("Transfer-Encoding: x, CHUNKED", "6\r\nabcdef\r\n0\r\n\r\n"),
        ("Transfer-Encoding:\r\n chunked", "6\r\nabcdef\r\n0\r\n\r\n"),
        ("Transfer-Encoding : chunked", "6\r\nabcdef\r\n0\r\n\r\n"),
        (
            "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
            "6\r\nabcdef\r\n0\r\n\r\n",
        ),
        (
            "Content-Length: 2\r\nTransfer-Encoding: chunked",
            "6\r\nabcdef\r\n0\r\n\r\n",
        ),
        // Without the last chunk, and with no chunk at all.
        (te, "6\r\nabcdef\r\n"),
        (te, "6\r\nabcdefgarbage"),
        ("Transfer-Encoding: identity", "abcdef"),
        ("Content-Length: +6", "abcdef"),
        ("Content-Length: 6\r\nContent-Length: 2", "abcdef"),
        ("Content-Length: none", "abcdef"),
    ] {
        assert_eq!(chunked(te, b), "abcdef", "{te:?} {b:?}");
    }
    assert_eq!(chunked(te, "hello\r\nworld"), "hello\r\nworld");
    // More than was promised, and no message: browsers differ, so all of it is looked at.
    assert_eq!(chunked("Content-Length: 6", "abcdefgh"), "abcdefgh");
}

fn gzip(b: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    e.write_all(b).unwrap();
    e.finish().unwrap()
}

fn zlib(b: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    e.write_all(b).unwrap();
    e.finish().unwrap()
}

fn deflate(b: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    e.write_all(b).unwrap();
    e.finish().unwrap()
}

#[test]
fn tricks_with_encodings() {
    let text = b"a body that compresses, a body that compresses, a body that compresses";
    let encoded = |ce: &str, b: &[u8]| {
        let mut all = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: {ce}\r\nContent-Length: {}\r\n\r\n",
            b.len()
        )
        .into_bytes();
        all.extend_from_slice(b);
        body(&all)
    };
    let brotli: Vec<u8> = {
        // Stored: a window, one meta-block of bytes as they are, an empty last one.
        let n = text.len() as u32 - 1;
        // WBITS 0 (1 bit), ISLAST 0, MNIBBLES 0 (2 bits), MLEN-1 (16 bits), ISUNCOMPRESSED 1.
        let bits = n << 4 | 1 << 20;
        let mut b = bits.to_le_bytes()[..3].to_vec();
        b.extend_from_slice(text);
        b.push(3);
        b
    };
    let mut with_name = gzip(text);
    with_name[3] = 8 | 4;
    with_name.splice(10..10, *b"\x03\x00abcname\0");
    let mut tail = gzip(text);
    tail.extend_from_slice(b"garbage after it");
    let two = [gzip(&text[..20]), gzip(&text[20..])].concat();
    for (ce, b) in [
        ("gzip", gzip(text)),
        ("GZIP", gzip(text)),
        ("x-gzip", gzip(text)),
        ("gzip", with_name),
        ("gzip", tail),
        ("gzip", two),
        ("deflate", zlib(text)),
        ("deflate", deflate(text)),
        ("gzip", zlib(text)),
        ("deflate", gzip(text)),
        ("gzip, gzip", gzip(&gzip(text))),
        ("deflate, gzip", gzip(&zlib(text))),
        ("gzip deflate", deflate(&gzip(text))),
        ("br", brotli.clone()),
        ("br, gzip", gzip(&brotli)),
        ("identity", text.to_vec()),
        ("foo", text.to_vec()),
        // A lie is passed on as it is.
        ("gzip", text.to_vec()),
        ("deflate", text.to_vec()),
    ] {
        assert_eq!(encoded(ce, &b).as_bytes(), text, "{ce} {b:02x?}");
    }
    // Cut short: what is there is inspected.
    let cut = gzip(text);
    let part = encoded("gzip", &cut[..cut.len() - 12]);
    assert!(text.starts_with(part.as_bytes()) && !part.is_empty());
}

#[test]
fn bombs_are_bounded() {
    let zeros = vec![0; 50 << 20];
    let bomb = gzip(&gzip(&zeros));
    let mut all = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\n\r\n".to_vec();
    all.extend_from_slice(&bomb);
    let mut w = wanted();
    w.wanted.decompressed = 1 << 20;
    w.wanted.response_body = 100 << 20;
    let out = run(&w, &[(ToClient, &all)], 1000);
    assert!(out.live[0].events.contains(&"compression_bomb"));
    assert!(out.live[0].memory() <= 3 << 20);
    w.wanted.response_body = 1000;
    let out = run(&w, &[(ToClient, &all)], 1000);
    assert!(out.live[0].memory() < 10_000);
}

#[test]
fn tricks_with_heads() {
    let ua = |head: &[u8]| {
        let out = request(head);
        get(&out.live[0], Buffer::HttpUserAgent, ToServer)
    };
    for head in [
        &b"GET / HTTP/1.1\nUser-Agent: x y\n\n"[..],
        b"GET / HTTP/1.1\r\nUser-Agent : x y\r\n\r\n",
        b"GET / HTTP/1.1\r\nuser-AGENT:\tx y\t\r\n\r\n",
        b"GET / HTTP/1.1\r\nUser-Agent: x\r\n y\r\n\r\n",
        b"GET / HTTP/1.1\r\nUser-Agent:\r\n x y\r\n\r\n",
        b"GET / HTTP/1.1\r\nnonsense\r\nUser-Agent: x y\r\n\r\n",
        b"GET / HTTP/1.1\r\n: empty\r\nUser-Agent: x y\r\n\r\n",
        b"\r\n\r\nGET / HTTP/1.1\r\nUser-Agent: x y\r\n\r\n",
        b"GET  \t /  HTTP/1.1  \r\nUser-Agent: x y\r\n\r\n",
        b"GET / HTTP/1.1\r\r\nUser-Agent: x y\r\r\n\r\r\n",
        b"GET / HTTP/1.1\r\nUser-Agent: x y",
        b"get / http/1.1\r\nUser-Agent: x y\r\n\r\n",
    ] {
        assert_eq!(
            ua(head).as_deref(),
            Some("x y"),
            "{:?}",
            String::from_utf8_lossy(head)
        );
    }
    let out = request(b"GET /a b c HTTP/1.1\r\nX: \0y\r\nHost: A.\r\n\r\n");
    assert_eq!(
        get(&out.live[0], Buffer::HttpUri, ToServer).unwrap(),
        "/a b c"
    );
    assert_eq!(get(&out.live[0], Buffer::HttpHost, ToServer).unwrap(), "a");
    let out = request(b"GET http://Other.example/p HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        get(&out.live[0], Buffer::HttpHost, ToServer).unwrap(),
        "other.example"
    );
    assert_eq!(get(&out.live[0], Buffer::HttpUri, ToServer).unwrap(), "/p");
    assert!(out.live[0].events.contains(&"host_header_ambiguous"));
    // HTTP/0.9, and a method without anything.
    let out = request(b"GET /old\r\n");
    assert_eq!(
        get(&out.live[0], Buffer::HttpUri, ToServer).unwrap(),
        "/old"
    );

    let server = |head: &[u8]| {
        let out = all(&[(ToServer, b"GET / HTTP/1.1\r\n\r\n"), (ToClient, head)]);
        let t = &out.live[0];
        (
            get(t, Buffer::HttpServer, ToClient).unwrap_or_default(),
            get(t, Buffer::HttpResponseBody, ToClient).unwrap_or_default(),
        )
    };
    for head in [
        &b"HTTP/1.1 200 OK\nServer: s\n\nbody"[..],
        b"HTTP/1.1 200 OK\rServer: s\r\rbody",
        b"HTTP/1.1 200 OK\r\nServer: s\n\r\nbody",
        b"HTTP/1.1 200 OK\r\n Server: s\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nX: y\r\n Server: s\r\n\r\nbody",
        b"\r\nHTTP/1.1 200 OK\r\nServer: s\r\n\r\nbody",
        b" \tHTTP/1.1 200 OK\r\nServer: s\r\n\r\nbody",
        b"hTTp/1.1 200\r\nServer: s\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 2\r\n\r\nbody",
    ] {
        assert_eq!(
            server(head),
            ("s".to_string(), "body".to_string()),
            "{:?}",
            String::from_utf8_lossy(head)
        );
    }
    assert_eq!(
        server(b"<html>no head"),
        (String::new(), "<html>no head".into())
    );
}

#[test]
fn halves_without_the_other() {
    let out = all(&[(ToClient, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")]);
    assert_eq!(out.live.len(), 1);
    assert!(out.live[0].done);
    assert!(
        out.live[0]
            .events
            .contains(&"unable_to_match_response_to_request")
    );
    let out = request(b"GET / HTTP/1.1\r\n\r\n");
    assert!(out.live[0].done);
}

#[test]
fn junk_after_a_response_is_passed_over() {
    let out = all(&[
        (ToServer, b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n"),
        (
            ToClient,
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxyz\r\nmore\r\nHTTP/1.1 201 Two\r\nContent-Length: 1\r\n\r\nb",
        ),
    ]);
    assert_eq!(out.live.len(), 2);
    assert_eq!(
        get(&out.live[1], Buffer::HttpStatusCode, ToClient).unwrap(),
        "201"
    );
}

#[test]
fn connect_and_upgrades_change_the_protocol() {
    let out = all(&[
        (ToServer, b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n"),
        (ToClient, b"HTTP/1.0 200 Connection established\r\n\r\n"),
    ]);
    assert!(out.live[0].done);
    assert_eq!(out.change, Some(Change::default()));
    let refused = all(&[
        (
            ToServer,
            b"CONNECT h:443 HTTP/1.1\r\n\r\nGET /next HTTP/1.1\r\n\r\n",
        ),
        (ToClient, b"HTTP/1.0 403 No\r\nContent-Length: 0\r\n\r\n"),
    ]);
    assert_eq!(refused.change, None);
    assert_eq!(
        get(&refused.live[1], Buffer::HttpUri, ToServer).unwrap(),
        "/next"
    );
    let out = all(&[
        (ToServer, b"GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n"),
        (ToClient, b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n"),
    ]);
    assert_eq!(out.change.unwrap().to, Some(App::Http2));
}

#[test]
fn uploads_are_files() {
    let form = b"--xYz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nvalue\r\n--xYz\r\nContent-Disposition: form-data; name=\"f\"; filename=\"evil.exe\"\r\nContent-Type: x/y\r\n\r\nMZ\r\n--xY--binary\r\n--xYz--\r\n";
    let mut all_bytes = format!(
        "POST /up HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=\"xYz\"\r\nContent-Length: {}\r\n\r\n",
        form.len()
    )
    .into_bytes();
    all_bytes.extend_from_slice(form);
    let out = request(&all_bytes);
    let t = &out.live[0];
    assert_eq!(
        get(t, Buffer::FileData, ToServer).unwrap(),
        "MZ\r\n--xY--binary"
    );
    assert_eq!(get(t, Buffer::FileName, ToServer).unwrap(), "evil.exe");
    assert_eq!(
        get(t, Buffer::HttpRequestBody, ToServer)
            .unwrap()
            .as_bytes(),
        form
    );
    assert!(t.files[0].whole);
    let out = request(b"PUT /dir/x.bin HTTP/1.1\r\nContent-Length: 4\r\n\r\ndata");
    assert_eq!(
        get(&out.live[0], Buffer::FileData, ToServer).unwrap(),
        "data"
    );
    assert_eq!(
        get(&out.live[0], Buffer::FileName, ToServer).unwrap(),
        "/dir/x.bin"
    );
}

#[test]
fn limits_hold() {
    let mut w = wanted();
    w.wanted.response_body = 10;
    let mut p = Http1::new(&w);
    let mut out = Transactions::default();
    p.data(ToClient, b"HTTP/1.1 200 OK\r\n\r\n", 0, &mut out);
    for _ in 0..1000 {
        p.data(ToClient, &[b'x'; 1000], 0, &mut out);
    }
    // Rules may decide, the message goes on.
    assert_eq!(out.live[0].complete, [true, true]);
    assert!(!out.live[0].done);
    assert_eq!(
        get(&out.live[0], Buffer::FileData, ToClient).unwrap().len(),
        10
    );
    p.end(ToClient, &mut out);
    assert_eq!(out.live[0].record["length"], 1_000_000);

    // Headers and chunk lines without an end.
    for start in [
        &b"GET / HTTP/1.1\r\nX: "[..],
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let mut p = Http1::new(&w);
        let mut out = Transactions::default();
        p.data(ToServer, start, 0, &mut out);
        for _ in 0..2000 {
            p.data(ToServer, &[b'1'; 1000], 0, &mut out);
        }
        assert!(p.memory() < 500_000, "{}", p.memory());
        assert_eq!(out.live.len(), 1);
    }
    // Requests that nobody answers.
    let mut p = Http1::new(&w);
    let mut out = Transactions::default();
    for _ in 0..10_000 {
        p.data(ToServer, b"GET / HTTP/1.1\r\n\r\n", 0, &mut out);
        out.live.retain(|t| !t.done);
    }
    assert!(out.live.len() <= super::super::MOST_LIVE);
    assert!(out.overflowed > 9000);
}

#[test]
fn gaps_in_bodies_are_bridged() {
    let w = wanted();
    let mut p = Http1::new(&w);
    let mut out = Transactions::default();
    p.data(
        ToClient,
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab",
        0,
        &mut out,
    );
    p.gap(ToClient, 5, &mut out);
    p.data(
        ToClient,
        b"xyzHTTP/1.1 201 Next\r\nContent-Length: 0\r\n\r\n",
        0,
        &mut out,
    );
    assert_eq!(
        get(&out.live[0], Buffer::FileData, ToClient).unwrap(),
        "abxyz"
    );
    assert_eq!(
        get(&out.live[1], Buffer::HttpStatusCode, ToClient).unwrap(),
        "201"
    );
    // In a head: the next line that begins a message.
    p.data(ToServer, b"GET /lost HTTP/1.1\r\nHo", 0, &mut out);
    p.gap(ToServer, 100, &mut out);
    p.data(
        ToServer,
        b"rest: of it\r\n\r\nGET /found HTTP/1.1\r\n\r\n",
        0,
        &mut out,
    );
    let last = out.live.back().unwrap();
    assert_eq!(get(last, Buffer::HttpUri, ToServer).unwrap(), "/found");
}

/// A head may end in a line of nothing but white space, for some ends; for all if nothing of a head follows.
#[test]
fn heads_that_end_in_white_space() {
    for end in ["\r\n \n", "\n \n", "\n\t\n", "\n \r\n", "\n  \n"] {
        for cr in ["\n", "\r\n"] {
            let head =
                format!("HTTP/1.1 200 OK{cr}Content-Type: text/html{cr}Content-Length: 6{end}");
            let seen = body(&[head.as_bytes(), b"<html>"].concat());
            assert_eq!(seen, "<html>", "{head:?}");
            let head = format!("POST / HTTP/1.1{cr}Host: a{cr}Content-Length: 6{end}");
            let out = request(&[head.as_bytes(), b"<evil>"].concat());
            let seen = get(&out.live[0], Buffer::HttpRequestBody, ToServer);
            assert_eq!(seen.as_deref(), Some("<evil>"), "{head:?}");
        }
    }
    // The empty line comes behind it, or the head goes on: it was no end.
    for (rest, expected) in [
        ("\n \n\n<html>", "<html>"),
        ("\r\n \r\n\r\n<html>", "<html>"),
        ("\n \nX-Other: yes\n\n<html>", "<html>"),
        ("\n \n more\n\n<html>", "<html>"),
    ] {
        let head = format!("HTTP/1.1 200 OK\nContent-Length: 6{rest}");
        assert_eq!(body(head.as_bytes()), expected, "{rest:?}");
    }
}

/// Who is promised an encoding and gets none reads what there is; a beginning that happens to decode does not hide the rest.
#[test]
fn bodies_that_are_not_encoded_as_promised() {
    let long = "<script>evil()</script> ".repeat(1000);
    let zip = [
        b"PK\x03\x04".as_slice(),
        &[0x14, 0, 0, 0, 8, 0],
        &[7; 400],
        b"evil()",
    ]
    .concat();
    let program = [b"MZ\x90\0\x03\0\0\0".as_slice(), &[0; 300], b"evil()"].concat();
    // An empty block of deflate, stored; then what the client shows.
    let empty = [&[1, 0, 0, 0xff, 0xff][..], b"then <script>evil()</script>"].concat();
    let short = [
        &[0x4b, 0x04, 0x00][..],
        &b"<script>evil()</script>".repeat(3),
    ]
    .concat();
    for plain in [
        b"x".as_slice(),
        b"<html>evil()",
        long.as_bytes(),
        b"Hello, evil()",
        b"{\"a\": \"evil()\"}",
        b"\xef\xbb\xbf<html>evil()</html>",
        &zip,
        &program,
        &empty,
        &short,
    ] {
        for encoding in ["gzip", "x-gzip", "br", "gzip, gzip", "br, gzip"] {
            // Brotli's own way of storing is believed.
            if encoding.starts_with("br")
                && (plain == program || plain == zip || plain == empty || plain == short)
            {
                continue;
            }
            for framing in ["Content-Length", "close", "chunked"] {
                let mut all =
                    format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\n").into_bytes();
                match framing {
                    "Content-Length" => {
                        all.extend(format!("Content-Length: {}\r\n\r\n", plain.len()).bytes())
                    }
                    "chunked" => all.extend(
                        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", plain.len()).bytes(),
                    ),
                    _ => all.extend(b"\r\n"),
                }
                all.extend_from_slice(plain);
                if framing == "chunked" {
                    all.extend_from_slice(b"\r\n0\r\n\r\n");
                }
                let seen = body(&all);
                let expected = String::from_utf8_lossy(plain);
                assert_eq!(seen, expected, "{encoding}, {framing}");
            }
        }
    }
}

/// What is in doubt is decided alike however it is cut, also where it breaks.
#[test]
fn doubts_are_decided_by_bytes_not_by_segments() {
    let noise: Vec<u8> = (0..30_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    for whole in [
        deflate(&noise),
        zlib(&noise),
        deflate(b"short"),
        zlib(b"short"),
        noise.clone(),
    ] {
        for at in [
            usize::MAX,
            1,
            3,
            5,
            9,
            15,
            40,
            8_190,
            8_192,
            8_193,
            8_194,
            9_000,
        ] {
            let mut bytes = whole.clone();
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 0xff;
            }
            for encoding in ["deflate", "gzip", "br"] {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n",
                    bytes.len()
                );
                let parts: [(Direction, &[u8]); 2] = [
                    (ToServer, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
                    (ToClient, &[head.as_bytes(), &bytes].concat()),
                ];
                let w = wanted();
                let once = dump(&run(&w, &parts, usize::MAX));
                for step in [1, 7, 1000, 8_192] {
                    assert!(
                        dump(&run(&w, &parts, step)) == once,
                        "{encoding}, {} bytes, broken at {at}, pieces of {step}",
                        bytes.len()
                    );
                }
            }
        }
    }
}

/// Lengths of chunks from 2^31 on are none, for every end; of those beyond 32 bits the lower ones count.
#[test]
fn lengths_of_chunks_that_no_end_takes() {
    let answer = |length: &str| {
        let all = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{length}\r\nhello\r\n0\r\n\r\n"
        );
        all_of(all.as_bytes())
    };
    fn all_of(bytes: &[u8]) -> (String, bool) {
        let out = all(&[
            (ToServer, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
            (ToClient, bytes),
        ]);
        let t = &out.live[0];
        let odd = t.events.contains(&"invalid_response_chunk_len");
        (get(t, Buffer::FileData, ToClient).unwrap_or_default(), odd)
    }
    assert_eq!(answer("5"), ("hello".into(), false));
    assert_eq!(answer("100000005"), ("hello".into(), false));
    assert_eq!(answer("00000000000005"), ("hello".into(), false));
    // As long as what is there, and more promised.
    assert_eq!(answer("7fffffff"), ("hello\r\n0\r\n\r\n".into(), false));
    for length in ["80000000", "ffffffff", "80000005", "180000005"] {
        let (seen, odd) = answer(length);
        assert!(odd, "{length}");
        assert!(seen.starts_with(length), "{length}: {seen:?}");
    }
}

/// The other end of a tunnel, whole.
#[test]
fn hosts_of_tunnels() {
    for (target, host) in [
        ("www.Example.com:443", "www.example.com"),
        ("www.example.com", "www.example.com"),
        ("www.example.com.:443", "www.example.com"),
        ("user@evil.example:443", "user@evil.example"),
        ("[2001:db8::1]:443", "[2001:db8::1]"),
        ("2001:db8::1:443", "2001:db8::1"),
        ("http://www.example.com:443/", "www.example.com"),
        ("192.0.2.1:8443", "192.0.2.1"),
    ] {
        let out =
            request(format!("CONNECT {target} HTTP/1.1\r\nHost: other.example\r\n\r\n").as_bytes());
        let seen = get(&out.live[0], Buffer::HttpHost, ToServer);
        assert_eq!(seen.as_deref(), Some(host), "{target}");
        assert_eq!(out.live[0].record["hostname"], host, "{target}");
    }
}

/// Header lines are read whether or not the first line has a version.
#[test]
fn headers_without_a_version() {
    for line in ["GET /", "GET / ", "GET / HTTP/0.9", "GET /a b"] {
        for cr in ["\n", "\r\n"] {
            for first in ["", "Host: a", "Cookie"] {
                let first = if first.is_empty() {
                    String::new()
                } else {
                    format!("{first}{cr}")
                };
                let head = format!("{line}{cr}{first}User-Agent: evil{cr}{cr}");
                let out = request(head.as_bytes());
                let seen = get(&out.live[0], Buffer::HttpUserAgent, ToServer);
                assert_eq!(seen.as_deref(), Some("evil"), "{head:?}");
            }
        }
    }
}
