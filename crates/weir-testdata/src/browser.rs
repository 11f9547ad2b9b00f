//! A real Chromium without a window, for tests of the page: the DevTools protocol over a pipe, so neither a port nor another program is needed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde_json::{Value, json};

/// Long enough for a host that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Names of the program.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Whether this host has a browser. Without one the calling test is listed as not run.
#[track_caller]
pub fn is_here() -> bool {
    let found = program().is_some();
    if !found {
        super::not_run("no Chromium: install the package chromium");
    }
    found
}

fn program() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let all = NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.into_iter().find(|file| file.is_file())
}

/// A browser with one page; ends when dropped.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<Value>,
    session: String,
    number: u64,
    profile: PathBuf,
    /// Exceptions and errors that the page logged.
    logged: Vec<String>,
}

impl Browser {
    /// Starts it by a command that runs a shell script given as its last argument, as `sh -c`, in the network namespace that is meant. `folder` is
    /// for its profile.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(mut shell: Command, folder: &Path) -> Browser {
        let program = program().expect("asked for before");
        let profile = folder.join("browser");
        fs::create_dir_all(&profile).expect("writable");
        // The pipe is at descriptors 3 and 4; without a sandbox, because tests run as root.
        let script = format!(
            "exec '{}' --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars --disable-background-networking \
             --disable-component-update --user-data-dir='{}' --remote-debugging-pipe about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1",
            program.display(),
            profile.display()
        );
        shell.args(["-c", &script]);
        shell.env("HOME", &profile);
        let mut child = shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let requests = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, answers) = channel();
        thread::spawn(move || {
            let mut bytes = Vec::new();
            while output
                .read_until(0, &mut bytes)
                .is_ok_and(|count| count > 0)
            {
                bytes.pop();
                let Ok(value) = serde_json::from_slice(&bytes) else {
                    return;
                };
                bytes.clear();
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            child,
            requests,
            answers,
            session: String::new(),
            number: 0,
            profile,
            logged: Vec::new(),
        };
        let page = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", target);
        session["sessionId"]
            .as_str()
            .expect("a session")
            .clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// A command of the DevTools protocol, and its result.
    ///
    /// # Panics
    /// The browser refuses it, or does not answer.
    #[track_caller]
    pub fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut request = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            request["sessionId"] = json!(self.session);
        }
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        let pipe = self.requests.as_mut().expect("it lives");
        pipe.write_all(&bytes).expect("the browser takes it");
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let answer = self.answers.recv_timeout(left);
            let answer = answer.unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == self.number {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let is_wrong = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => parameters["entry"]["level"] == "error",
            _ => false,
        };
        if is_wrong {
            self.logged.push(parameters.to_string());
        }
    }

    /// What went wrong in the page since the last call, by its log.
    #[track_caller]
    pub fn errors(&mut self) -> Vec<String> {
        // What is under way comes before this answer.
        self.evaluate("1");
        std::mem::take(&mut self.logged)
    }

    /// Opens an address.
    #[track_caller]
    pub fn open(&mut self, address: &str) {
        self.ask("Page.navigate", json!({ "url": address }));
    }

    /// The value of a JavaScript expression; promises are waited for.
    ///
    /// # Panics
    /// It throws.
    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.ask("Runtime.evaluate", parameters);
        let thrown = result.get("exceptionDetails");
        assert!(
            thrown.is_none(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    /// Waits until an expression holds.
    ///
    /// # Panics
    /// It never does; the text of the page is shown.
    #[track_caller]
    pub fn until(&mut self, expression: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            self.load_again();
            let value = self.evaluate(expression);
            let is_so = !matches!(value, Value::Null | Value::Bool(false)) && value != "";
            if is_so {
                return value;
            }
            if Instant::now() > until {
                let text = self.evaluate("document.body.innerText");
                panic!(
                    "never: {expression}\nthe page: {text}\nerrors: {:?}",
                    self.logged
                );
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Chromium gives up what it is loading when an address of its namespace changes, as that of a new interface does after a second.
    /// Nothing of the page has run then, and a person would load it again.
    fn load_again(&mut self) {
        let all = self.logged.len();
        self.logged
            .retain(|line| !line.contains("ERR_NETWORK_CHANGED"));
        if self.logged.len() < all {
            self.ask("Page.reload", json!({}));
        }
    }

    /// Waits until the page shows a text.
    #[track_caller]
    pub fn shows(&mut self, text: &str) {
        self.until(&format!(
            "document.body?.innerText.includes({})",
            json!(text)
        ));
    }

    /// Clicks what a person would find by its text or its label: a button or a link.
    #[track_caller]
    pub fn click(&mut self, name: &str) {
        let find = format!(
            "[...document.querySelectorAll('button, a')].find(one => !one.disabled && (one.getAttribute('aria-label') ?? one.textContent).trim() === {})",
            json!(name)
        );
        self.until(&format!("!!{find}"));
        self.evaluate(&format!("{find}.click()"));
    }

    /// Presses and releases a key, as `Enter` or `Tab`.
    #[track_caller]
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        let text = match key {
            "Enter" => "\r",
            one if one.len() == 1 => one,
            _ => "",
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let parameters = json!({ "type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code });
            self.ask("Input.dispatchKeyEvent", parameters);
        }
    }

    /// Moves the mouse, or presses and releases its button there.
    #[track_caller]
    pub fn mouse(&mut self, kind: &str, x: f64, y: f64) {
        let is_pressed = kind != "mouseReleased";
        let parameters = json!({
            "type": kind, "x": x, "y": y, "button": "left", "buttons": u8::from(is_pressed), "clickCount": 1,
        });
        self.ask("Input.dispatchMouseEvent", parameters);
    }

    /// The size of its window, and the colours that the user prefers.
    #[track_caller]
    pub fn look(&mut self, width: u32, height: u32, is_dark: bool) {
        let is_phone = width < 600;
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone });
        self.ask("Emulation.setDeviceMetricsOverride", size);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.ask(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    /// A picture of the page as PNG.
    #[track_caller]
    pub fn picture(&mut self) -> Vec<u8> {
        let shot = self.ask("Page.captureScreenshot", json!({ "format": "png" }));
        decoded(shot["data"].as_str().expect("data"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of its pipe ends it, with its processes.
        drop(self.requests.take());
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}

/// Of base64.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn base64_is_decoded() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("TQ==", b"M"),
            ("TWE=", b"Ma"),
            ("TWFu", b"Man"),
            ("//79", b"\xff\xfe\xfd"),
        ] {
            assert_eq!(decoded(text), bytes, "{text}");
        }
    }
}
