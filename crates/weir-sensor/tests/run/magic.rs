//! Types of files by their content: as a buffer, in records, and what is written out for it.

use super::bed::{How, Left, Tape, counts, sense_tape, web};
use super::schema::hold;

const PDF: &str = "%PDF-1.5\n1 0 obj\n";
const PAGE: &str = "<html>\n<p>text</p>\n";

fn tape() -> Tape {
    let mut tape = Tape::default();
    for (port, body) in [(1, PDF), (2, PAGE), (3, "")] {
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        web(
            &mut tape,
            port,
            "GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
            &answer,
        );
    }
    // Of a form, each file is what it is.
    let form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"x\"; filename=\"one.pdf\"\r\n\r\n{PDF}\r\n--b\r\n\
         Content-Disposition: form-data; name=\"y\"; filename=\"two.pdf\"\r\n\r\n{PAGE}\r\n--b--\r\n"
    );
    let request = format!(
        "POST /f HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    );
    web(
        &mut tape,
        4,
        &request,
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    );
    tape
}

fn sense(how: &How) -> Left {
    let left = sense_tape(&tape(), how);
    hold(left.eve.iter());
    for workers in [2, 4] {
        let other = sense_tape(&tape(), &how.clone().workers(workers));
        assert_eq!(other.text, left.text, "{workers} workers");
    }
    left
}

#[test]
fn rules_ask_what_a_file_is() {
    let rules = "\
alert http any any -> any any (msg:\"m\"; file.magic; content:\"PDF document, version 1.5\"; sid:1;)
alert http any any -> any any (msg:\"m\"; filemagic:\"pdf\"; sid:2;)
alert http any any -> any any (msg:\"m\"; filemagic:!\"pdf\"; flow:to_client; sid:3;)
alert http any any -> any any (msg:\"m\"; file.name; content:\"two.pdf\"; file.magic; content:\"HTML\"; sid:4;)
alert http any any -> any any (msg:\"m\"; file.name; content:\"one.pdf\"; file.magic; content:\"HTML\"; sid:5;)
";
    let left = sense(&How::rules(rules));
    let alerts = left.of("alert");
    let expected = [(1, 2), (2, 2), (3, 1), (4, 1)];
    assert_eq!(counts(&alerts), expected, "{}", left.text);
    let files = left.of("fileinfo");
    let kinds: Vec<_> = files
        .iter()
        .map(|f| f["fileinfo"]["magic"].clone())
        .collect();
    let (pdf, page) = ("PDF document, version 1.5", "HTML document, ASCII text");
    assert_eq!(kinds, [pdf, page, pdf, page]);
}

#[test]
fn records_say_it_where_it_is_wanted() {
    let left = sense(&How::rules(""));
    assert!(
        left.of("fileinfo")
            .iter()
            .all(|f| f["fileinfo"]["magic"].is_null())
    );
    let how = How::rules("")
        .set("outputs.0.eve-log.types.0.files.force-magic=yes")
        .set("outputs.1.fast.enabled=yes");
    let files = sense(&how);
    assert!(
        files
            .of("fileinfo")
            .iter()
            .all(|f| f["fileinfo"]["magic"].is_string())
    );
}
