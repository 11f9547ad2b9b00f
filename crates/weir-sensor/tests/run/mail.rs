//! Mails and their attachments: names and encodings as senders write them and as attackers bend them, and the events of what is bent.

use super::bed::{CLIENT, How, Left, SERVER, Tape, sense_tape};

/// A session that sends one message, as it stands behind DATA.
fn send(message: &[u8], how: &How) -> Left {
    let said: &[&[u8]] = &[
        b"EHLO me\r\n",
        b"220 here\r\n250 you\r\n",
        b"MAIL FROM:<a@b>\r\n",
        b"250 ok\r\n",
        b"RCPT TO:<c@d>\r\n",
        b"250 ok\r\n",
        b"DATA\r\n",
        b"354 go\r\n",
        message,
        b"250 done\r\n",
    ];
    let mut tape = Tape::default();
    tape.session((CLIENT, 41_000), (SERVER, 25), said);
    sense_tape(&tape, how)
}

/// A message with one part.
fn part(headers: &str, body: &str) -> Vec<u8> {
    format!("MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n{headers}\r\n{body}\r\n--b--\r\n.\r\n").into_bytes()
}

/// Events of records, without those of other layers, and without that the client of these tapes speaks first.
fn events(left: &Left) -> Vec<String> {
    let all = left.of("anomaly").into_iter();
    all.map(|a| a["anomaly"]["event"].as_str().expect("one").to_owned())
        .filter(|event| event != "NO_SERVER_WELCOME_MESSAGE")
        .collect()
}

/// A rule about a file's name and contents is about one file, in mails and in uploads of forms.
#[test]
fn names_and_contents_are_of_the_same_file() {
    let rules = |app: &str| {
        [
            r#"file.data; content:"evil"; fileext:"exe";"#,
            r#"file.data; content:"plain"; fileext:"exe";"#,
            r#"filename:"first"; file_data; content:"plain"; content:"words";"#,
            r#"file.name; content:"first"; file.data; content:"plain"; file.data; content:"evil";"#,
            r#"file.data; content:"evil"; file.name; content:!"second";"#,
            r#"file.data; content:"plain"; file.name; content:!"second";"#,
            // Without a name, of any.
            r#"file.data; content:"plain"; file.data; content:"evil";"#,
        ]
        .iter()
        .zip(1..)
        .map(|(o, n)| format!("alert {app} any any -> any any (msg:\"r\"; {o} sid:{n};)\n"))
        .collect::<String>()
    };
    let files = |disposition: &str| {
        let one = |name: &str, text: &str| {
            format!("--b\r\nContent-Disposition: {disposition}; filename={name}\r\n\r\n{text}\r\n")
        };
        let both = [
            one("first.txt", "plain words"),
            one("second.exe", "evil words"),
        ];
        both.concat() + "--b--\r\n"
    };
    let mail = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n";
    let mail = format!("{mail}{}.\r\n", files("attachment"));
    let left = send(mail.as_bytes(), &How::rules(&rules("smtp")));
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 3, 6, 7], "{}", left.text);
    let form = files("form-data; name=f");
    let upload = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    );
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let mut tape = Tape::default();
    tape.session((CLIENT, 41_000), (SERVER, 80), &[upload.as_bytes(), ok]);
    let left = sense_tape(&tape, &How::rules(&rules("http")));
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 3, 6, 7], "{}", left.text);
}

#[test]
fn files_have_the_names_that_readers_of_mail_show() {
    for (headers, name) in [
        (
            "Content-Disposition: attachment; filename=f.exe\r\n",
            "f.exe",
        ),
        (
            "Content-Disposition: attachment; filename=f x.exe\r\n",
            "f x.exe",
        ),
        (
            "Content-Disposition: attachment; filename=f x.exe; size=3\r\n",
            "f x.exe",
        ),
        (
            "Content-Disposition: attachment; FILENAME=\"f.exe\"\r\n",
            "f.exe",
        ),
        (
            "Content-Disposition: attachment; filename=\"f;x.exe\"\r\n",
            "f;x.exe",
        ),
        (
            "Content-Disposition: attachment;\r\n\tfilename=\"f.exe\"\r\n",
            "f.exe",
        ),
        (
            "Content-Disposition: attachment; filename*0=\"f.\"; filename*1=exe\r\n",
            "f.exe",
        ),
        (
            "Content-Disposition: attachment; filename*=utf-8''f%2eexe\r\n",
            "f.exe",
        ),
        (
            "Content-Disposition: attachment; filename*0*=utf-8''f%2e; filename*1=\"e%xe\"\r\n",
            "f.e%xe",
        ),
        ("Content-Type: application/x; name=f.exe\r\n", "f.exe"),
        (
            "Content-Disposition: attachment; filename=\"=?utf-8?B?Zi5leGU=?=\"\r\n",
            "=?utf-8?B?Zi5leGU=?=",
        ),
    ] {
        let left = send(&part(headers, "abc"), &How::rules(""));
        let files = left.of("fileinfo");
        assert_eq!(files.len(), 1, "{headers}");
        assert_eq!(files[0]["fileinfo"]["filename"], name, "{headers}");
        assert_eq!(
            left.of("smtp")[0]["email"]["attachment"][0],
            name,
            "{headers}"
        );
    }
}

#[test]
fn what_encodings_hide_is_found_and_told() {
    let base =
        "Content-Disposition: attachment; filename=f\r\nContent-Transfer-Encoding: base64\r\n";
    let quoted = "Content-Disposition: attachment; filename=f\r\nContent-Transfer-Encoding: quoted-printable\r\n";
    let long = "ZXZpbA==".to_owned() + &" ".repeat(80);
    let rule = "alert smtp any any -> any any (msg:\"m\"; file.data; content:\"evil\"; sid:1;)\n";
    for (headers, body, told) in [
        (base, "ZXZpbA==", None),
        (base, "ZX\r\nZpbA\r\n==", None),
        (base, "ZX!.ZpbA==", None),
        (base, "ZXZpbA", None),
        (base, "eA==ZXZpbA==", Some("MIME_INVALID_BASE64")),
        (base, long.as_str(), Some("MIME_LONG_ENC_LINE")),
        (quoted, "e=76il", None),
        (quoted, "ev=\r\nil", None),
        (quoted, "e=76il=4a", Some("MIME_INVALID_QP")),
        (quoted, "evil=zz", Some("MIME_INVALID_QP")),
        (quoted, "ev= \r\nil", Some("MIME_INVALID_QP")),
    ] {
        let left = send(&part(headers, body), &How::rules(rule));
        assert_eq!(left.sids(), [1], "{body}");
        assert_eq!(events(&left), Vec::from_iter(told), "{body}");
        assert_eq!(
            left.of("smtp")[0]["email"]["status"],
            "PARSE_DONE",
            "{body}"
        );
    }
}

#[test]
fn what_is_too_long_is_told() {
    let name = |n: usize| {
        format!(
            "Content-Disposition: attachment; filename={}\r\n",
            "n".repeat(n)
        )
    };
    for (message, told) in [
        (part(&name(255), "x"), None),
        (part(&name(256), "x"), Some("MIME_LONG_FILENAME")),
        (part("", &"x".repeat(998)), None),
        // The last line ends where the message does.
        (
            format!("\r\n{}\r\n.\r\n", "x".repeat(999)).into_bytes(),
            Some("MIME_LONG_LINE"),
        ),
        (part("", &"x".repeat(999)), Some("MIME_LONG_LINE")),
        (
            part(&format!("{}: x\r\n", "N".repeat(76)), "x"),
            Some("MIME_LONG_HEADER_NAME"),
        ),
    ] {
        let left = send(&message, &How::rules(""));
        assert_eq!(events(&left), Vec::from_iter(told));
    }
    let boundary = "b".repeat(300);
    let message = format!(
        "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary={boundary}\r\n\r\n--{boundary}\r\n{}\r\nx\r\n--{boundary}--\r\n.\r\n",
        name(3)
    );
    let left = send(message.as_bytes(), &How::rules(""));
    assert_eq!(events(&left), ["MIME_LONG_BOUNDARY"]);
    assert_eq!(left.of("fileinfo").len(), 1);
}

#[test]
fn a_comma_in_quotes_parts_no_receivers() {
    let left = send(
        b"To: \"X, Y\" <x@y>, q@r\r\n\r\nx\r\n.\r\n",
        &How::rules(""),
    );
    let to = &left.of("smtp")[0]["email"]["to"];
    assert_eq!(*to, serde_json::json!(["\"X, Y\" <x@y>", "q@r"]));
}

#[test]
fn a_mail_that_breaks_off_leaves_a_truncated_file() {
    let message = part("Content-Disposition: attachment; filename=a\r\n", "abc");
    let state = |message: &[u8]| {
        let mut tape = Tape::default();
        let said: &[&[u8]] = &[
            b"EHLO me\r\n",
            b"220 here\r\n250 you\r\n",
            b"MAIL FROM:<a@b>\r\n",
            b"250 ok\r\n",
            b"DATA\r\n",
            b"354 go\r\n",
            message,
        ];
        tape.session((CLIENT, 41_000), (SERVER, 25), said);
        let left = sense_tape(&tape, &How::rules(""));
        left.of("fileinfo")[0]["fileinfo"]["state"].clone()
    };
    assert_eq!(state(&message), "CLOSED");
    let cut = message.len() - b"\r\n--b--\r\n.\r\n".len();
    assert_eq!(state(&message[..cut]), "TRUNCATED");
}

#[test]
fn commands_that_go_wrong_are_told() {
    let mut tape = Tape::default();
    let said: &[&[u8]] = &[
        b"EHLO me\r\n",
        b"220 here\r\n250 you\r\n",
        b"STARTTLS\r\n",
        b"454 no\r\n",
        b"MAIL FROM:<a@b>\r\n",
        b"250 ok\r\n",
        b"BDAT many\r\n",
        b"500 what\r\n",
    ];
    tape.session((CLIENT, 41_000), (SERVER, 25), said);
    let left = sense_tape(&tape, &How::rules(""));
    let mut told = events(&left);
    told.sort_unstable();
    assert_eq!(told, ["INVALID_BDAT", "TLS_REJECTED"]);
}

/// Records have the addresses whose schemes are asked for; rules ask for those of the web.
#[test]
fn addresses_in_texts_by_their_schemes() {
    let message = b"Subject: s\r\n\r\nSee http://one.example/a, https://two.example or\r\nftp://three.example http://four.example now. xhttp://five.example\r\n.\r\n";
    let mime = "app-layer.protocols.smtp.mime";
    let rules = r#"alert smtp any any -> any any (email.url; content:"two.example"; sid:1;)
alert smtp any any -> any any (email.url; content:"four.example"; sid:2;)
"#;
    let urls = |how: &How| {
        let how = how.clone().set("outputs.0.eve-log.types.smtp.enabled=yes");
        let left = send(message, &how.set("outputs.1.fast.enabled=yes"));
        assert_eq!(left.sids(), [2]);
        left.of("smtp")[0]["email"]["url"].clone()
    };
    let how = How::rules(rules).set("outputs.0.eve-log.types.alert.enabled=yes");
    assert_eq!(
        urls(&how),
        serde_json::json!(["four.example", "one.example/a,"])
    );
    let mut all = how.set(&format!("{mime}.log-url-scheme=yes"));
    for (n, scheme) in ["http", "https", "ftp"].iter().enumerate() {
        all = all.set(&format!("{mime}.extract-urls-schemes.{n}={scheme}"));
    }
    assert_eq!(
        urls(&all),
        serde_json::json!([
            "ftp://three.example",
            "http://four.example",
            "https://two.example",
            "http://one.example/a,"
        ])
    );
    let mut settings = weir_sensor::settings::Settings::default();
    for one in [
        "outputs.0.eve-log.types.smtp.enabled=yes",
        &format!("{mime}.extract-urls-schemes.0=gopher"),
    ] {
        settings.set(one).expect(one);
    }
    let error = weir_sensor::config::SensorConfig::from_settings(&settings).expect_err("refused");
    assert!(error.to_string().contains("mailto"), "{error}");
}
