//! HTTP from a capture to the records: which rules alert, how often, and what `http`, `fileinfo`, `anomaly` and `flow` say. The classes of disguises are in the parser's own tests.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::bed::{CLIENT, How, Left, SERVER, Tape, sense_tape};

/// One connection to port 80; the client speaks first.
fn talk(said: &[&[u8]], how: &How) -> Left {
    let mut tape = Tape::default();
    tape.session((CLIENT, 40_000), (SERVER, 80), said);
    sense_tape(&tape, how)
}

fn alerts(rules: &str, said: &[&[u8]]) -> Vec<u64> {
    let mut sids = talk(said, &How::rules(rules)).sids();
    sids.sort_unstable();
    sids
}

/// Rules `alert http any any -> any any (...)` of bodies, numbered from 1.
fn rules(bodies: &[&str]) -> String {
    let numbered = bodies.iter().enumerate();
    numbered
        .map(|(n, body)| {
            format!(
                "alert http any any -> any any (msg:\"r\"; {body} sid:{};)\n",
                n + 1
            )
        })
        .collect()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut e = GzEncoder::new(Vec::new(), Compression::default());
    e.write_all(text).expect("memory");
    e.finish().expect("memory")
}

const GET: &[u8] = b"GET /one HTTP/1.1\r\nHost: www.example\r\nUser-Agent: test\r\n\r\n";

/// The only record of a kind.
fn one<'a>(left: &'a Left, kind: &str) -> &'a Value {
    let found = left.of(kind);
    assert_eq!(found.len(), 1, "{kind}: {}", left.text);
    found[0]
}

#[test]
fn every_keyword_of_a_request_and_its_answer() {
    let request = b"POST /a%20path/../Page.php?q=%41%2b HTTP/1.1\r\nHost: WWW.Example.COM:8080\r\nUser-Agent: agent/1.0\r\nAccept: text/*\r\nAccept-Encoding: gzip\r\nAccept-Language: de\r\nReferer: http://from.example/\r\nCookie: id=17\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 11\r\n\r\nuser=a&pw=b";
    let answer = b"HTTP/1.1 302 Found Elsewhere\r\nServer: test/2\r\nLocation: /there\r\nSet-Cookie: id=18\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 5\r\n\r\nhello";
    let matching = [
        "content:\"POST\"; http_method;",
        "http.method; content:\"POST\"; bsize:4;",
        "content:\"/Page.php?q=A+\"; http_uri;",
        "http.uri; content:\"/Page.php\"; startswith;",
        "http.uri; bsize:14;",
        "urilen:14;",
        "urilen:>20,raw;",
        "http.uri.raw; content:\"/a%20path/../Page.php?q=%41%2b\"; bsize:30;",
        "content:\"%20path\"; http_raw_uri;",
        "uricontent:\"Page\";",
        "http.request_line; content:\"POST /a%20path/../Page.php?q=%41%2b HTTP/1.1\"; bsize:44;",
        "http.protocol; content:\"HTTP/1.1\"; bsize:8; flow:to_server;",
        "http.host; content:\"www.example.com\"; bsize:15;",
        "http.host; content:\"example.com\"; endswith;",
        "http.host.raw; content:\"WWW.Example.COM:8080\"; bsize:20;",
        "content:\"agent/1.0\"; http_user_agent;",
        "http.user_agent; content:\"agent/1.0\"; startswith; endswith;",
        "http.accept; content:\"text/*\"; bsize:6;",
        "http.accept_enc; content:\"gzip\"; bsize:4;",
        "http.accept_lang; content:\"de\"; bsize:2;",
        "http.referer; content:\"from.example\";",
        "flow:to_server; http.cookie; content:\"id=17\"; bsize:5;",
        "flow:to_client; content:\"id=18\"; http_cookie;",
        "flow:to_server; http.connection; content:\"close\";",
        "flow:to_server; http.content_type; content:\"application/x-www-form-urlencoded\";",
        "flow:to_client; http.content_type; content:\"text/html\\; charset=utf-8\"; bsize:24;",
        "flow:to_server; http.content_len; content:\"11\"; bsize:2;",
        "flow:to_client; http.content_len; byte_test:0,=,5,0,string,dec;",
        "flow:to_server; http.header; content:\"Accept-Encoding: gzip|0d 0a|Accept-Language: de|0d 0a|\";",
        "flow:to_server; http.header; content:!\"Cookie\";",
        "flow:to_client; http.header; content:\"Server: test/2|0d 0a|\"; startswith;",
        "flow:to_server; http.header.raw; content:\"Host: WWW.Example.COM:8080|0d 0a|\"; startswith;",
        "flow:to_server; http.header_names; content:\"|0d 0a|Host|0d 0a|User-Agent|0d 0a|Accept|0d 0a|\"; startswith;",
        "flow:to_client; http.header_names; content:\"Content-Length|0d 0a 0d 0a|\"; endswith;",
        "flow:to_server; http.start; content:\"POST /a%20path\"; startswith;",
        "flow:to_client; http.start; content:\"HTTP/1.1 302 Found Elsewhere|0d 0a|Server: \"; startswith;",
        "http.request_body; content:\"pw=b\"; endswith;",
        "content:\"user=a\"; http_client_body; depth:6;",
        "http.stat_code; content:\"302\"; bsize:3;",
        "content:\"Found Elsewhere\"; http_stat_msg;",
        "http.response_line; content:\"HTTP/1.1 302 Found Elsewhere\"; bsize:28;",
        "http.server; content:\"test/2\"; bsize:6;",
        "http.location; content:\"/there\"; bsize:6;",
        "http.response_body; content:\"hello\"; bsize:5;",
        "content:\"ell\"; http_server_body;",
        "flow:to_client; file.data; content:\"hello\"; bsize:5;",
        "file_data; content:\"hello\";",
        "flow:to_server; file.data; content:\"user=a\"; startswith;",
        "http.request_header; content:\"User-Agent: agent/1.0\"; bsize:21;",
        "http.response_header; content:\"Location: /there\"; bsize:16;",
        "http.method; content:\"POST\"; http.uri; content:\"Page\"; http.host; content:\"example\"; http.request_body; content:\"user\";",
        "http.uri; pcre:\"/page\\.php\\?q=A/i\";",
        "pcre:\"/^POST$/M\";",
        "pcre:\"/Page\\.php/U\";",
        "http.header; isdataat:20;",
    ];
    let others = [
        "http.uri; content:\"page.php\";",
        "http.uri; content:\"path\";",
        "http.host; content:\"8080\";",
        "http.cookie; content:\"id=19\";",
        "http.response_body; content:\"hello\"; isdataat:!4;",
        "http.method; content:\"GET\";",
        "urilen:>14;",
        "urilen:<14;",
        "http.request_body; content:\"user\"; http.uri; content:\"nothere\";",
        "http.stat_code; content:\"200\";",
        "http.header; content:\"id=17\";",
        "flow:to_client; http.header; content:\"id=18\";",
        "http.content_len; content:\"7\";",
    ];
    let all: Vec<&str> = matching.iter().chain(&others).copied().collect();
    let left = talk(&[request, answer], &How::rules(&rules(&all)));
    let mut seen = left.sids();
    seen.sort_unstable();
    // A rule without a direction may hold in both.
    seen.dedup();
    let expected: Vec<u64> = (1..=matching.len() as u64).collect();
    let odd: Vec<&str> = (1..=all.len() as u64)
        .filter(|n| seen.contains(n) != expected.contains(n))
        .map(|n| all[n as usize - 1])
        .collect();
    assert!(odd.is_empty(), "{odd:#?}");

    let r = &one(&left, "http")["http"];
    for (key, value) in [
        ("hostname", Value::from("www.example.com")),
        ("http_port", 8080.into()),
        ("url", "/a%20path/../Page.php?q=%41%2b".into()),
        ("http_user_agent", "agent/1.0".into()),
        ("http_content_type", "text/html".into()),
        ("http_refer", "http://from.example/".into()),
        ("http_method", "POST".into()),
        ("protocol", "HTTP/1.1".into()),
        ("status", 302.into()),
        ("redirect", "/there".into()),
        ("length", 5.into()),
    ] {
        assert_eq!(r[key], value, "{key}");
    }
    assert!(r.get("xff").is_none() && r.get("request_headers").is_none());
    let files = left.of("fileinfo");
    assert_eq!(files.len(), 2, "{}", left.text);
    assert_eq!(files[0]["fileinfo"]["filename"], "/Page.php");
    assert_eq!(files[0]["src_ip"], "192.168.1.10");
    assert_eq!(files[1]["fileinfo"]["size"], 5);
    assert_eq!(files[1]["src_ip"], "198.51.100.80");
    assert_eq!(files[1]["fileinfo"]["state"], "CLOSED");
    assert_eq!(files[1]["fileinfo"]["gaps"], false);
    assert_eq!(files[1]["http"]["http_method"], "POST");
    assert_eq!(files[1]["app_proto"], "http");
    assert_eq!(one(&left, "flow")["app_proto"], "http");
    for alert in left.of("alert") {
        assert_eq!(alert["app_proto"], "http");
        assert_eq!(alert["tx_id"], 0);
        assert_eq!(alert["http"]["hostname"], "www.example.com");
    }
}

#[test]
fn a_rule_alerts_once_for_each_transaction() {
    let requests = [GET, GET, b"GET /two HTTP/1.1\r\nHost: www.example\r\n\r\n"].concat();
    let answers = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\noneHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwoHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    let text = rules(&[
        "http.uri; content:\"/one\";",
        "http.uri; content:\"/two\";",
        "http.stat_code; content:\"200\";",
        "file.data; content:\"two\";",
        "flow:to_client; http.stat_code; content:\"404\";",
        "http.uri; content:\"/one\"; http.method; content:\"GET\";",
        "flow:to_server,established; http.host; content:\"www.example\";",
    ]);
    let how = How::rules(&text);
    let left = talk(&[&requests, answers], &how);
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 1, 2, 3, 3, 4, 5, 6, 6, 7, 7, 7], "{}", left.text);
    let numbers: Vec<u64> = left
        .of("http")
        .iter()
        .map(|r| r["tx_id"].as_u64().expect("one"))
        .collect();
    assert_eq!(numbers, [0, 1, 2]);
    let of = |sid: u64| -> Vec<u64> {
        let alerts = left.of("alert");
        let of = alerts.iter().filter(|a| a["alert"]["signature_id"] == sid);
        of.map(|a| a["tx_id"].as_u64().expect("one")).collect()
    };
    assert_eq!((of(2), of(4), of(5)), (vec![2], vec![1], vec![2]));
    // No body, no file.
    assert_eq!(left.of("fileinfo").len(), 2);
}

#[test]
fn a_buffer_as_it_is_and_then_changed() {
    let get: &[u8] = b"GET /?arg=Rk9PQkFS HTTP/1.1\r\nHost: a\r\n\r\n";
    let rules = rules(&[
        "http.uri; content:\"/?arg=\"; from_base64: offset 6; content:\"FOOBAR\"; bsize:6;",
        "http.uri; content:\"/?arg=\"; from_base64: offset 6; to_lowercase; content:\"foobar\";",
        "http.uri; from_base64: offset 6; content:\"FOO\"; to_lowercase; content:\"foobar\";",
        "http.uri; content:\"FOOBAR\"; from_base64: offset 6; content:\"FOOBAR\";",
        "http.uri; content:\"/?arg=\"; from_base64: offset 6; content:\"/?arg=\";",
    ]);
    assert_eq!(
        alerts(&rules, &[get, super::bed::ANSWER.as_bytes()]),
        [1, 2, 3]
    );
}

#[test]
fn a_line_before_the_answer_is_passed_over() {
    let how = How::rules(&rules(&[
        "http.stat_code; content:\"200\";",
        "file.data; content:\"payload\";",
        "app-layer-event:applayer_detect_protocol_only_one_direction;",
    ]));
    let answer = b"foo\r\nHTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\npayload";
    let mut sids = talk(&[GET, answer], &how).sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 2, 3]);
    // Without a head behind it, it is all a body.
    let mut sids = talk(&[GET, b"foo\r\npayload"], &how).sids();
    sids.sort_unstable();
    assert_eq!(sids, [2, 3]);
}

#[test]
fn of_requests_only_uploads_are_files() {
    let how = How::rules(&rules(&[
        "http.request_body; content:\"payload\";",
        "file.data; content:\"payload\";",
    ]));
    for (method, sids) in [
        ("POST", &[1, 2][..]),
        ("PUT", &[1, 2]),
        ("PATCH", &[1]),
        ("GET", &[1]),
    ] {
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\npayload");
        let left = talk(
            &[request.as_bytes(), b"HTTP/1.1 204 No Content\r\n\r\n"],
            &how,
        );
        assert_eq!(left.sids(), sids, "{method}");
    }
}

#[test]
fn events_have_the_names_of_older_rules_too_and_others_are_refused() {
    let how = How::rules(&rules(&[
        "app-layer-event:http1.response_line_invalid_protocol;",
        "app-layer-event:http.response_invalid_protocol;",
    ]));
    assert_eq!(
        talk(&[GET, b"HTTP/7.0 200 OK\r\n\r\n"], &how).sids(),
        [1, 2]
    );
}

/// Each event where it is due, and once; and not elsewhere.
#[test]
fn events_have_their_names() {
    let ok: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let get = |head: &str| format!("GET / HTTP/1.1\r\nHost: a.example\r\n{head}\r\n").into_bytes();
    let answer =
        |head: &str, body: &str| format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}").into_bytes();
    // Deflated text, then a block of a type that does not exist.
    let mut broken = answer("Content-Encoding: gzip\r\n", "");
    broken.extend_from_slice(b"\x1f\x8b\x08\0\0\0\0\0\0\x03\0\x03\0\xfc\xffabc\x07\xff");
    let cases: Vec<(&str, Vec<u8>, Vec<u8>)> = vec![
        ("request_field_missing_colon", get("no colon\r\n"), ok.to_vec()),
        ("response_field_missing_colon", get(""), answer("no colon\r\nContent-Length: 0\r\n", "")),
        ("invalid_request_chunk_len", b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_vec(), ok.to_vec()),
        ("invalid_response_chunk_len", get(""), answer("Transfer-Encoding: chunked\r\n", "zz\r\n")),
        ("invalid_transfer_encoding_value_in_request", get("Transfer-Encoding: foo\r\n"), ok.to_vec()),
        ("response_abnormal_transfer_encoding", get(""), answer("Transfer-Encoding: x chunked\r\n", "0\r\n\r\n")),
        ("response_chunked_old_proto", get(""), b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec()),
        ("invalid_content_length_field_in_request", get("Content-Length: x\r\n"), ok.to_vec()),
        ("invalid_content_length_field_in_response", get(""), answer("Content-Length: x\r\n", "")),
        ("duplicate_content_length_field_in_request", b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx".to_vec(), ok.to_vec()),
        ("duplicate_content_length_field_in_response", get(""), answer("Content-Length: 0\r\nContent-Length: 2\r\n", "")),
        ("100_continue_already_seen", get(""), [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", ok].concat()),
        ("request_header_invalid", get("X Y: z\r\n"), ok.to_vec()),
        ("request_field_missing_colon", get(": z\r\n"), ok.to_vec()),
        ("request_invalid_lws_after_name", get("X : z\r\n"), ok.to_vec()),
        ("response_invalid_lws_after_name", get(""), answer("X : z\r\nContent-Length: 0\r\n", "")),
        ("response_header_name_not_token", get(""), answer("X Y: z\r\nContent-Length: 0\r\n", "")),
        ("response_field_missing_colon", get(""), answer(" \r\nContent-Length: 0\r\n", "")),
        ("content_length_extra_data_start", get(""), answer("Content-Length: +0\r\n", "")),
        ("content_length_extra_data_end", get(""), answer("Content-Length: 0, 5\r\n", "")),
        ("response_body_unexpected", get(""), b"HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\n".to_vec()),
        ("switching_proto_with_content_length", get(""), b"HTTP/1.1 101 Go on\r\nContent-Length: 1\r\n\r\nx".to_vec()),
        ("missing_host_header", b"GET / HTTP/1.1\r\nAccept: *\r\n\r\n".to_vec(), ok.to_vec()),
        ("host_header_ambiguous", b"GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n".to_vec(), ok.to_vec()),
        ("invalid_request_field_folding", b"GET / HTTP/1.1\r\n X: y\r\nHost: a.example\r\n\r\n".to_vec(), ok.to_vec()),
        ("invalid_response_field_folding", get(""), answer(" X: y\r\nContent-Length: 0\r\n", "")),
        ("request_field_too_long", get(&format!("X: {}\r\n", "x".repeat(20_000))), ok.to_vec()),
        ("response_field_too_long", get(""), answer(&format!("X: {}\r\nContent-Length: 0\r\n", "x".repeat(20_000)), "")),
        ("multipart_invalid_header", form("B", &format!("--B\r\n{}", "x".repeat(9_000))), ok.to_vec()),
        ("multipart_no_filedata", form("B", "--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"e.txt\"\r\n\r\n--B--\r\n"), ok.to_vec()),
        ("multipart_invalid_header", form("B", "--B\r\nno colon\r\n\r\nx\r\n--B--\r\n"), ok.to_vec()),
        ("request_uri_host_invalid", b"GET http://a..b/ HTTP/1.1\r\n\r\n".to_vec(), ok.to_vec()),
        ("request_header_host_invalid", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n".to_vec(), ok.to_vec()),
        ("uri_delim_non_compliant", b"GET /\tHTTP/1.1\r\nHost: a.example\r\n\r\n".to_vec(), ok.to_vec()),
        ("method_delim_non_compliant", b"GET\t/ HTTP/1.1\r\nHost: a.example\r\n\r\n".to_vec(), ok.to_vec()),
        ("too_many_encoding_layers", get(""), answer("Content-Encoding: gzip, gzip, gzip\r\nContent-Length: 1\r\n", "x")),
        ("abnormal_ce_header", get(""), answer("Content-Encoding: foo\r\nContent-Length: 1\r\n", "x")),
        ("gzip_decompression_failed", get(""), broken),
        ("request_auth_unrecognized", get("Authorization: Own nothing\r\n"), ok.to_vec()),
        ("request_header_repetition", get("X: y\r\nX: z\r\n"), ok.to_vec()),
        ("response_header_repetition", get(""), answer("X: y\r\nX: z\r\nContent-Length: 0\r\n", "")),
        ("response_line_invalid_protocol", get(""), b"HTTP/7.0 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ("response_line_invalid_response_status", get(""), b"HTTP/1.1 xyz OK\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ("request_body_unexpected", [GET, b"login=foo&password=bar"].concat(), ok.to_vec()),
        ("range_invalid", get(""), answer("Content-Range: bytes nonsense\r\nContent-Length: 0\r\n", "")),
        ("request_chunk_extension", b"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n1;x\r\na\r\n0\r\n\r\n".to_vec(), ok.to_vec()),
        ("response_chunk_extension", get(""), answer("Transfer-Encoding: chunked\r\n", "1;x\r\na\r\n0\r\n\r\n")),
        ("request_line_missing_protocol", b"GET /x\r\nHost: a.example\r\n\r\n".to_vec(), ok.to_vec()),
        ("request_too_many_headers", get(&(0..1100).map(|n| format!("X{n}: y\r\n")).collect::<String>()), ok.to_vec()),
        ("response_too_many_headers", get(""), answer(&((0..1100).map(|n| format!("X{n}: y\r\n")).collect::<String>() + "Content-Length: 0\r\n"), "")),
        ("file_name_too_long", get(""), answer(&format!("Content-Disposition: attachment; filename={}\r\nContent-Length: 1\r\n", "n".repeat(5000)), "x")),
    ];
    let mut names: Vec<&str> = cases.iter().map(|c| c.0).collect();
    names.sort_unstable();
    names.dedup();
    let bodies: Vec<String> = names
        .iter()
        .map(|n| format!("flow:established; app-layer-event:http.{n};"))
        .collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    let how = How::rules(&rules(&bodies));
    for (name, request, answer) in &cases {
        let left = talk(&[request, answer], &how);
        let mine = names.iter().position(|n| n == name).expect("listed") as u64 + 1;
        let sids = left.sids();
        let times = sids.iter().filter(|s| **s == mine).count();
        assert_eq!(times, 1, "{name}: {sids:?} {}", left.text);
    }
    // What everybody sends has none.
    let plain = talk(
        &[
            b"GET / HTTP/1.1\r\nHost: a.example:80\r\nAuthorization: Basic YTpi\r\nAccept: a,\r\n b\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nDate: x\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ],
        &how,
    );
    assert!(plain.sids().is_empty(), "{}", plain.text);
    assert!(plain.of("anomaly").is_empty(), "{}", plain.text);
    // Which way a rule looks does not hide an event of the answer.
    let text = rules(&[
        "flow:to_server,established; app-layer-event:http.too_many_encoding_layers;",
        "flow:to_client,established; app-layer-event:http.too_many_encoding_layers;",
    ]);
    let many = answer(
        "Content-Encoding: gzip, gzip, gzip\r\nContent-Length: 1\r\n",
        "x",
    );
    assert_eq!(alerts(&text, &[GET, &many]), [1, 2]);
}

fn form(boundary: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /up HTTP/1.1\r\nHost: a.example\r\nContent-Type: multipart/form-data; boundary={boundary}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[test]
fn forms_carry_files() {
    let body = "--B\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\njust a value\r\n--B\r\nContent-Disposition: form-data; name=\"a\"; filename=\"first.txt\"\r\nContent-Type: text/plain\r\n\r\nthe boat and the cat\r\n--B\r\nContent-Disposition: form-data; name=\"b\"; filename=\"second.bin\"\r\n\r\nthe boat\r\n--B--\r\n";
    let text = rules(&[
        "file.data; content:\"boat\"; file.name; content:\"first.txt\";",
        "file.data; content:\"boat\"; file.name; content:\"second.bin\";",
        "file.data; content:\"cat\";",
        "file.data; content:\"boat\"; file.data; content:\"cat\";",
        "filename:\"second\";",
        "fileext:\"txt\";",
        "http.request_body; content:\"just a value\";",
        // Not in one file.
        "file.data; content:\"cat\"; content:\"just\";",
        "fileext:\"exe\";",
        "file.data; content:\"--B\";",
    ]);
    let request = form("B", body);
    let left = talk(
        &[&request, b"HTTP/1.1 204 No Content\r\n\r\n"],
        &How::rules(&text),
    );
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 2, 3, 4, 5, 6, 7], "{}", left.text);
    // A rule about names alerts for each file that has one of them, and shows that file.
    let each = rules(&["http.method; content:\"POST\"; file.name; content:\"s\";"]);
    let each = talk(
        &[&request, b"HTTP/1.1 204 No Content\r\n\r\n"],
        &How::rules(&each),
    );
    let shown: Vec<&Value> = (each.of("alert").iter())
        .map(|a| &a["files"][0]["filename"])
        .collect();
    assert_eq!(shown, ["first.txt", "second.bin"], "{}", each.text);
    assert!(each.of("alert").iter().all(|a| a["files"][1].is_null()));
    let files: Vec<(String, u64, String)> = left
        .of("fileinfo")
        .iter()
        .map(|f| {
            let f = &f["fileinfo"];
            let text = |k: &str| f[k].as_str().expect("text").to_owned();
            (
                text("filename"),
                f["size"].as_u64().expect("one"),
                text("state"),
            )
        })
        .collect();
    let file = |n: &str, size| (n.to_owned(), size, "CLOSED".to_owned());
    assert_eq!(files, [file("first.txt", 20), file("second.bin", 8)]);
}

#[test]
fn a_tunnel_begins_its_transactions_anew() {
    let connect = b"CONNECT abc:443 HTTP/1.1\r\nUser-Agent: u\r\n\r\n";
    let yes = b"HTTP/1.1 200 OK\r\nServer: s\r\n\r\n";
    let left = talk(
        &[
            connect,
            yes,
            b"GE",
            b"",
            b"T / HTTP/1.1\r\nUser-Agent: u\r\n\r\n",
            yes,
        ],
        &How::rules(""),
    );
    let http = left.of("http");
    assert_eq!(http.len(), 2, "{}", left.text);
    assert_eq!(
        (&http[0]["tx_id"], &http[0]["http"]["http_method"]),
        (&0.into(), &"CONNECT".into())
    );
    assert_eq!(
        (&http[1]["tx_id"], &http[1]["http"]["http_method"]),
        (&0.into(), &"GET".into())
    );
    assert_eq!(http[0]["http"]["status"], 200);
    let odd = talk(
        &[connect, &[&yes[..], b"\x05\x00\x00\x05\x00"].concat()],
        &How::rules(""),
    );
    assert_eq!(one(&odd, "flow")["app_proto_orig"], "http");
    assert_eq!(odd.of("dcerpc").len(), 0);
    // Refused: HTTP goes on.
    let left = talk(
        &[
            connect,
            b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n",
            GET,
            yes,
        ],
        &How::rules(""),
    );
    let ids: Vec<&Value> = left.of("http").iter().map(|h| &h["tx_id"]).collect();
    assert_eq!(ids, [0, 1]);
}

#[test]
fn limits_of_bodies_are_those_of_files() {
    let key = "app-layer.protocols.http.libhtp.default-config.response-body-limit";
    let body = [
        &b"begin"[..],
        &[b'a'; 3000],
        b"middle",
        &[b'b'; 3000],
        b"end",
    ]
    .concat();
    let answer = [
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(),
        &body,
    ]
    .concat();
    let text = rules(&[
        "file.data; content:\"begin\";",
        "file.data; content:\"middle\";",
        "file.data; content:\"end\"; endswith;",
        "http.response_body; bsize:1000;",
    ]);
    let run = |limit: &str| {
        talk(
            &[GET, &answer],
            &How::rules(&text).set(&format!("{key}={limit}")),
        )
    };
    let whole = run("100kb");
    assert_eq!(whole.sids(), [1, 2, 3]);
    let f = &one(&whole, "fileinfo")["fileinfo"];
    assert_eq!(
        (&f["size"], &f["state"]),
        (&body.len().into(), &"CLOSED".into())
    );
    let cut = run("1000");
    assert_eq!(cut.sids(), [1, 4]);
    let f = &one(&cut, "fileinfo")["fileinfo"];
    assert_eq!(
        (&f["size"], &f["state"], &f["gaps"]),
        (&1000.into(), &"TRUNCATED".into(), &false.into())
    );
    assert_eq!(run("0").sids(), [1, 2, 3]);
}

#[test]
fn what_libhtp_is_told_is_followed() {
    let key = |k: &str| format!("app-layer.protocols.http.libhtp.default-config.{k}");
    let get = |uri: &str| format!("GET {uri} HTTP/1.1\r\nHost: a.example\r\n\r\n").into_bytes();
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let with = |setting: &str, rule: &str, uri: &str| {
        let how = How::rules(&rules(&[rule]));
        let how = if setting.is_empty() {
            how
        } else {
            how.set(&key(setting))
        };
        talk(&[&get(uri), ok], &how).sids().len()
    };
    let seen = "http.uri; content:\"/abc\"; bsize:4;";
    assert_eq!(with("", seen, "/a%2562c"), 0);
    assert_eq!(with("double-decode-path=yes", seen, "/a%2562c"), 1);
    assert_eq!(
        with(
            "double-decode-path=yes",
            "app-layer-event:http.double_encoded_uri;",
            "/a%2562c"
        ),
        1
    );
    assert_eq!(with("path-convert-lowercase=yes", seen, "/ABC"), 1);
    assert_eq!(
        with(
            "uri-include-all=yes",
            "http.uri; content:\"http://a.example/abc\";",
            "http://a.example/abc"
        ),
        1
    );
    assert_eq!(
        with(
            "query-plusspace-decode=yes",
            "http.uri; content:\"?a b\";",
            "/?a+b"
        ),
        1
    );
    let thrice = gzip(&gzip(&gzip(b"a hidden text")));
    let answer = [
        format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip, gzip\r\nContent-Length: {}\r\n\r\n",
            thrice.len()
        )
        .as_bytes(),
        &thrice,
    ]
    .concat();
    let layers = |limit: &str| {
        let how = How::rules(&rules(&["file.data; content:\"hidden\";"]));
        talk(
            &[GET, &answer],
            &how.set(&key(&format!(
                "response-body-decompress-layer-limit={limit}"
            ))),
        )
        .sids()
    };
    assert_eq!((layers("2"), layers("3")), (vec![], vec![1]));
}

/// What `xz --format=lzma` made of "a text of many words, and words again, and words again and again".
const LZMA: &[u8] = &[
    0x5d, 0x00, 0x00, 0x80, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x30, 0x88,
    0x0a, 0x86, 0x94, 0x88, 0x13, 0xdb, 0x20, 0xfb, 0x68, 0x12, 0x6a, 0x81, 0x96, 0xae, 0x4a, 0x20,
    0x85, 0x0f, 0xc2, 0x42, 0x16, 0xbf, 0x53, 0x19, 0x3c, 0x41, 0xdc, 0x6b, 0x4e, 0x60, 0x0e, 0xe9,
    0xcf, 0x39, 0x54, 0x81, 0x58, 0x51, 0xa3, 0xff, 0xff, 0xb3, 0x67, 0x00, 0x00,
];

#[test]
fn lzma_is_undone_if_that_is_wanted() {
    let answer = [
        format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: lzma\r\nContent-Length: {}\r\n\r\n",
            LZMA.len()
        )
        .as_bytes(),
        LZMA,
    ]
    .concat();
    let text = rules(&[
        "file.data; content:\"words again and again\"; endswith;",
        "app-layer-event:http.lzma_memlimit_reached;",
    ]);
    let how = How::rules(&text);
    assert!(talk(&[GET, &answer], &how).sids().is_empty());
    let key = "app-layer.protocols.http.libhtp.default-config.lzma-enabled=yes";
    assert_eq!(talk(&[GET, &answer], &how.set(key)).sids(), [1]);
}

#[test]
fn halves_and_gaps() {
    // An answer without its request.
    let left = talk(
        &[b"", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"],
        &How::rules(&rules(&[
            "file.data; content:\"hello\";",
            "app-layer-event:http.unable_to_match_response_to_request;",
        ])),
    );
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 2]);
    assert_eq!(
        one(&left, "http")["http"]["url"],
        "/libhtp::request_uri_not_seen"
    );
    // A request without an answer.
    let left = talk(
        &[GET],
        &How::rules(&rules(&["http.uri; content:\"/one\";"])),
    );
    assert_eq!(left.sids(), [1]);
    assert_eq!(one(&left, "http")["http"]["url"], "/one");
    assert!(one(&left, "http")["http"].get("status").is_none());
    // HTTP/0.9.
    let left = talk(
        &[b"GET /old\r\n", b"old text"],
        &How::rules(&rules(&[
            "http.uri; content:\"/old\"; bsize:4;",
            "file.data; content:\"old text\";",
        ])),
    );
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 2], "{}", left.text);
    // Line ends behind a body count for the file, as everywhere.
    let left = talk(
        &[
            b"GET /1 HTTP/1.0\r\n\r\n",
            b"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Length: 12\r\n\r\nHello World!\r\n",
        ],
        &How::rules(""),
    );
    assert_eq!(one(&left, "fileinfo")["fileinfo"]["size"], 14);
}

#[test]
fn a_part_of_a_file_says_which() {
    let answer = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 500-504/1000\r\nContent-Length: 5\r\n\r\nhello";
    let mut tape = Tape::default();
    super::bed::web(
        &mut tape,
        40_000,
        "GET /one HTTP/1.1\r\nHost: a\r\nRange: bytes=500-504\r\n\r\n",
        answer,
    );
    let left = sense_tape(
        &tape,
        &How::rules(&rules(&["http.stat_code; content:\"206\";"])),
    );
    let files = [
        &one(&left, "fileinfo")["fileinfo"],
        &one(&left, "alert")["files"][0],
    ];
    for file in files {
        let range = (file["start"].as_u64(), file["end"].as_u64());
        assert_eq!(range, (Some(500), Some(504)), "{file}");
    }
}

#[test]
fn records_say_what_they_are_asked_for() {
    let folder = super::bed::Folder::new();
    let path = folder.0.join("c.yaml");
    std::fs::write(&path, "outputs:\n  - eve-log:\n      enabled: yes\n      filename: eve.json\n      types:\n        - alert:\n            http-body: yes\n            http-body-printable: yes\n        - http:\n            extended: yes\n            custom: [Accept-Encoding, Server, X-Forwarded-For]\n            dump-all-headers: both\n        - files:\n            force-hash: [md5, sha1, sha256]\n  - fast:\n      enabled: yes\n").expect("written");
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 40_000),
        (SERVER, 80),
        &[
            b"GET /one HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nX-Forwarded-For: 10.1.2.3\r\nA: 1\r\nA: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 5\r\n\r\nhello",
        ],
    );
    let left = sense_tape(
        &tape,
        &How {
            config: Some(path),
            ..How::rules(&rules(&["http.stat_code; content:\"200\";"]))
        },
    );
    let h = &one(&left, "http")["http"];
    assert!(h.get("accept_encoding").is_none() && h.get("server").is_none());
    assert_eq!(h["xff"], "10.1.2.3");
    assert_eq!(h["request_headers"].as_array().expect("a list").len(), 4);
    assert_eq!(h["request_headers"][0]["name"], "Host");
    assert_eq!(h["response_headers"][1]["value"], "5");
    let f = &one(&left, "fileinfo")["fileinfo"];
    assert_eq!(f["md5"], "5d41402abc4b2a76b9719d911017c592");
    assert_eq!(f["sha1"], "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d");
    assert_eq!(
        f["sha256"],
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    );
    let a = one(&left, "alert");
    assert_eq!(a["http"]["http_response_body_printable"], "hello");
    // Lists of all header lines are for the record of the transaction.
    assert_eq!(a["http"].get("request_headers"), None);
    assert_eq!(a["http"]["http_response_body"], "aGVsbG8=");
    assert_eq!(a["files"][0]["filename"], "/one");
    assert_eq!(a["files"][0]["size"], 5);
    assert_eq!(a["files"][0]["state"], "CLOSED");
    assert_eq!(a["files"][0]["stored"], false);
}

/// Headers that are asked for by name stand in the lists of header lines, and no other does.
#[test]
fn headers_that_are_asked_for_by_name() {
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 40_000),
        (SERVER, 80),
        &[
            b"GET /one HTTP/1.1\r\nHost: a\r\nACCEPT-Encoding: gzip\r\nTrue-Client-IP: 10.1.2.3\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nServer: s\r\nServer: t\r\nContent-Length: 5\r\n\r\nhello",
        ],
    );
    let custom = "outputs.0.eve-log.types.0.http.custom=[accept_encoding, Server, true-client-ip]";
    let how = How::rules("").set("outputs.1.fast.enabled=yes").set(custom);
    let left = sense_tape(&tape, &how);
    let h = &one(&left, "http")["http"];
    let line = |name: &str, value: &str| serde_json::json!([{"name": name, "value": value}]);
    assert_eq!(h["request_headers"], line("ACCEPT-Encoding", "gzip"));
    assert_eq!(h["response_headers"], line("Server", "s, t"));
    assert_eq!(h["true_client_ip"], "10.1.2.3");
    super::schema::hold(left.eve.iter());
}

/// A record of HTTP is brief unless `extended` asks for more; alerts always show all of it.
#[test]
fn records_are_brief_unless_more_is_asked_for() {
    let mut tape = Tape::default();
    tape.session(
        (CLIENT, 40_000),
        (SERVER, 80),
        &[
            b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello",
        ],
    );
    let rules = rules(&["http.stat_code; content:\"200\";"]);
    for (settings, extended) in [
        (&["outputs.0.eve-log.types.1=http"][..], false),
        (&["outputs.0.eve-log.types.1.http.extended=no"], false),
        (&["outputs.0.eve-log.types.1.http.extended=yes"], true),
    ] {
        let mut how = How::rules(&rules)
            .set("outputs.1.fast.enabled=yes")
            .set("outputs.0.eve-log.types.0=alert");
        for one in settings {
            how = how.set(one);
        }
        let left = sense_tape(&tape, &how);
        let record = &one(&left, "http")["http"];
        assert_eq!(record["http_content_type"], "text/html");
        for field in ["http_method", "protocol", "status", "length"] {
            assert_eq!(
                record.get(field).is_some(),
                extended,
                "{field} {settings:?}"
            );
        }
        assert_eq!(one(&left, "alert")["http"]["status"], 200, "{settings:?}");
    }
}

#[test]
fn a_line_of_blanks_ends_no_head() {
    let rules = rules(&["app-layer-event:http.request_line_missing_protocol;"]);
    for (request, odd) in [
        (&b"GET / \n \n \n\n"[..], true),
        (b"GET /\r\n\t\r\n\r\n", true),
        (b"GET /\r\n\r\n", false),
    ] {
        let sids = alerts(&rules, &[request, b"<html>"]);
        assert_eq!(!sids.is_empty(), odd, "{request:?}");
    }
}

/// RFC 9110, section 8.6.
#[test]
fn an_answer_without_content_names_no_length() {
    let rules = rules(&["app-layer-event:http.response_body_unexpected;"]);
    for (answer, odd) in [
        (
            &b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"[..],
            true,
        ),
        (b"HTTP/1.1 204 No Content\r\nServer: a\r\n\r\n", false),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false),
    ] {
        let sids = alerts(&rules, &[GET, answer]);
        assert_eq!(!sids.is_empty(), odd, "{answer:?}");
    }
}
