//! The agent's page in a real Chromium, inside the namespace of a running edge: views, roles, actions, keys, accessibility, and a large graph.
//!
//! `live_page/axe.min.js.gz` is axe-core 4.14.1 of npm (MPL-2.0), unchanged but compressed; tests alone use it.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_agent::api::{AgentClient, Target};
use weir_testdata::browser::{self, Browser};

use crate::live_agent::{Bed, Running};
use crate::live_bed::{root, stderr};

/// A group that exists nowhere.
const READERS: u32 = 67_004;

/// A phone and a desktop, in pixels.
const SIZES: [(&str, u32, u32); 2] = [("phone", 390, 844), ("desktop", 1280, 800)];

/// An edge with an agent, its page, and a browser that looks at it.
struct Page {
    browser: Browser,
    agent: Running,
    address: SocketAddr,
    socket: PathBuf,
    bed: Bed,
}

impl Page {
    fn new(name: &str) -> Page {
        let bed = Bed::new(name);
        bed.right
            .ip(&["link", "set", "lo", "up"])
            .expect("loopback");
        bed.write("\"deny tcp to-port 7001\"");
        let bound = bed.right.run(|| TcpListener::bind("127.0.0.1:0"));
        let bound = bound.expect("namespace").expect("a free port");
        let address = bound.local_addr().expect("an address");
        drop(bound);
        // Other users cannot see into the state folder.
        let socket = std::env::temp_dir().join(&bed.edge).join("agent.sock");
        let text = format!(
            "[api]\nsocket = \"{}\"\nread-group = {READERS}\npage = \"{address}\"\nalerts = \"{}\"\n",
            socket.display(),
            bed.state.join("logs").display()
        );
        fs::write(bed.folder.join("agent.toml"), text).expect("writable");
        let agent = bed.agent();
        agent.event("applied");
        agent.event("serving");
        assert_eq!(agent.event("serving")["at"], format!("http://{address}/"));
        let shell = bed.right.command("sh").expect("namespace");
        Page {
            browser: Browser::start(shell, &bed.state),
            agent,
            address,
            socket,
            bed,
        }
    }

    /// A login link, asked for by root.
    fn link(&self) -> String {
        let socket = self.socket.to_str().expect("UTF-8");
        let output = self.bed.weir(&["page", "--socket", socket]);
        assert!(output.status.success(), "{}", stderr(&output));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.trim().to_owned()
    }

    fn log_in(&mut self) {
        let link = self.link();
        self.browser.open(&link);
        self.browser.shows("root, operate");
    }

    /// Opens a view of the edge.
    fn view(&mut self, view: &str) {
        let hash = format!("#/{}/{view}", self.bed.edge);
        self.browser
            .evaluate(&format!("location.hash = {}", json!(hash)));
    }

    fn text(&mut self) -> String {
        let text = self.browser.evaluate("document.body.innerText");
        text.as_str().expect("text").to_owned()
    }

    #[track_caller]
    fn has_no_errors(&mut self) {
        assert_eq!(self.browser.errors(), Vec::<String>::new());
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(folder) = self.socket.parent() {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Traffic from the first host to the edge, until dropped.
struct Traffic {
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

impl Traffic {
    fn start(bed: &Bed) -> Traffic {
        let socket = bed.left.run(|| UdpSocket::bind("10.79.0.1:0"));
        let socket = socket.expect("namespace").expect("binds");
        let stop = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&stop);
        let sender = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                // The answer may be that nothing listens.
                let _ = socket.send_to(b"x", "10.79.0.2:9");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Traffic {
            stop,
            sender: Some(sender),
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
    }
}

/// The number in a column of the table of nodes.
fn cell(name: &str, column: usize) -> String {
    format!(
        "[...document.querySelectorAll('.picture tbody tr')].find(row => row.querySelector('button').textContent === '{name}')?.children[{column}].textContent"
    )
}

#[test]
fn an_operator_sees_a_bad_change_and_rolls_it_back() {
    if !root("an_operator_sees_a_bad_change_and_rolls_it_back") || !browser::is_here() {
        return;
    }
    let mut page = Page::new("page");
    let edge = page.bed.edge.clone();
    // Nothing without a link, and a link opens one session.
    page.browser.open(&format!("http://{}/", page.address));
    page.browser.shows("weir page");
    assert!(!page.text().contains(&edge), "{}", page.text());
    let link = page.link();
    page.browser.open(&link);
    page.browser.shows("root, operate");
    let address = page.browser.evaluate("location.href");
    assert!(
        !address.as_str().expect("text").contains("login"),
        "{address}"
    );
    // Rates move under traffic.
    let traffic = Traffic::start(&page.bed);
    page.browser.click("Table");
    let rate = format!("parseFloat({}) > 20", cell("in", 2));
    page.browser.until(&rate);
    page.browser
        .until(&format!("parseFloat({}) > 20", cell("shield", 2)));
    assert_eq!(page.browser.evaluate(&cell("shield", 4)), "0");
    // Broken: the file drops what comes.
    page.bed.write("\"deny udp\"");
    page.agent.event("applied");
    page.browser
        .until(&format!("parseFloat({}) > 20", cell("shield", 4)));
    page.browser.click("shield");
    page.browser.shows("Reasons");
    page.browser.shows("deny udp");
    page.browser.until("[...document.querySelectorAll('.details td.bad')].some(one => parseInt(one.textContent.replace(/,/g, '')) > 20)");
    page.browser.click("Watch for 5 s");
    page.browser
        .shows("denied: a deny rule of a filter matches");
    page.browser.shows("first: in: IP 10.79.0.1");
    // Back by a click.
    page.view("history");
    page.browser.shows("2. weir agent: file changed");
    page.browser.click("Roll back to the state after change 1");
    page.browser.until("document.querySelector('dialog')?.open");
    page.browser.shows("~ function shield: object");
    page.browser.click("Roll back");
    page.browser.shows("is in the state after change 1");
    page.browser.shows("3. POST /v1/edges/");
    page.agent.event("requested");
    assert!(page.bed.generation() > 2);
    page.view("graph");
    page.browser.click("Table");
    page.browser
        .until(&format!("{} === '0'", cell("shield", 4)));
    page.browser.until(&rate);
    drop(traffic);
    // The edge runs something else than its file: it says so, and applies the file again.
    page.browser.shows("runs something else than");
    page.browser.click("Show history");
    page.browser.click("Compare with its file");
    page.browser.shows("Applying the file would change");
    page.browser.shows("shield");
    page.browser.click("Cancel");
    page.browser.until("!document.querySelector('dialog')");
    page.browser.click("Compare with its file");
    page.browser.click("Apply the file");
    page.browser.shows("waits for confirmation");
    page.browser.click("Keep the change");
    page.browser.shows("Confirmed: the change stays");
    page.browser
        .until("!document.body.innerText.includes('runs something else than')");
    page.browser.click("Compare with its file");
    page.browser.shows("The edge runs what its file says");
    page.browser.press("Escape");
    page.browser.until("!document.querySelector('dialog')");
    confirms_a_change(&mut page);
    // A mistake, with its place.
    page.bed.write("\"deny tpc\"");
    page.agent.event("failed");
    page.browser.shows("cannot be applied");
    page.browser.click("Show the error");
    page.browser.shows("deny tpc");
    page.browser.shows("login link for the page, role operate");
    page.has_no_errors();
    // The session ends.
    page.browser.click("Log out");
    page.browser.shows("Or paste the link here");
    page.browser.open(&link);
    page.browser
        .shows("the login link was used, or has expired");
}

/// A change of `weir apply --confirm`, which the page shows and keeps.
fn confirms_a_change(page: &mut Page) {
    let by_hand = page.bed.state.join("by-hand.toml");
    let text = fs::read_to_string(page.bed.file()).expect("readable");
    fs::write(&by_hand, text.replace("deny udp", "deny udp to-port 7003")).expect("writable");
    let mut command = page
        .bed
        .right
        .command(env!("CARGO_BIN_EXE_weir"))
        .expect("namespace");
    command.args(["apply", "--confirm", "120s"]).arg(&by_hand);
    command
        .env("STATE_DIRECTORY", &page.bed.state)
        .stdin(Stdio::null());
    let mut child = command.spawn().expect("weir starts");
    page.browser.shows("waits for confirmation");
    let left = page
        .browser
        .evaluate("parseInt(document.querySelector('.banner .count').textContent)");
    let left = left.as_i64().expect("seconds");
    assert!((1..=120).contains(&left), "{left} s");
    page.browser.click("Keep the change");
    page.browser.shows("Confirmed: the change stays");
    assert!(child.wait().expect("it ends").success(), "confirmed");
    page.browser
        .until("!document.body.innerText.includes('waits for confirmation')");
}

#[test]
fn what_weir_init_writes_is_shown_with_its_connections() {
    if !root("what_weir_init_writes_is_shown_with_its_connections") || !browser::is_here() {
        return;
    }
    let mut page = Page::new("init");
    apply_a_firewall(&page);
    let edge = page.bed.edge.clone();
    // What the host begins is a connection, what others begin is dropped.
    let socket = page.bed.right.run(|| UdpSocket::bind("10.79.0.2:7007"));
    let socket = socket.expect("namespace").expect("binds");
    socket.send_to(b"x", "10.79.0.1:7008").expect("sent");
    let _traffic = Traffic::start(&page.bed);
    page.log_in();
    page.view("graph/function%3Afirewall");
    page.browser.shows("rule_drop");
    page.browser.shows("10.79.0.2:7007");
    page.browser.shows("→ 10.79.0.1:7008");
    page.browser.click("Table");
    page.browser
        .until(&format!("parseFloat({}) > 20", cell("firewall", 4)));
    for (node, kind) in [
        ("wan", "port"),
        ("wan.transmit", "port, outgoing"),
        ("firewall", "function"),
        ("stack", "end"),
    ] {
        assert_eq!(page.browser.evaluate(&cell(node, 1)), kind, "{node}");
    }
    // Links lead where the file says.
    let graph = format!(
        "fetch('/v1/edges/{edge}/graph', {{ headers: {{ Authorization: 'Bearer ' + sessionStorage.getItem('weir-session') }} }}).then(one => one.json()).then(one => one.links.map(link => `${{link.from}} > ${{link.to}}`).sort())"
    );
    let links = page.browser.evaluate(&graph);
    let links: Vec<&str> = (links.as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    for link in [
        "port:wan > function:firewall",
        "transmit:wan > function:firewall",
        "function:firewall > end:stack",
    ] {
        assert!(links.contains(&link), "{link}: {links:?}");
    }
    page.has_no_errors();
}

/// The edge as `weir init firewall` writes it.
fn apply_a_firewall(page: &Page) {
    // Its port changes hooks, which takes an edge without it.
    let file = page.bed.file();
    fs::remove_file(&file).expect("removed");
    page.agent.event("removed");
    let file = file.to_str().expect("UTF-8");
    let edge = &page.bed.edge;
    let init = [
        "init",
        "firewall",
        "--interface",
        "right0",
        "--defaults",
        "--force",
        "--edge",
        edge,
        "-o",
        file,
    ];
    let output = page.bed.weir(&init);
    assert!(output.status.success(), "{}", stderr(&output));
    page.agent.event("applied");
}

/// What a sensor appends to its log, for an alert of a flow.
fn append_alert(page: &Page, sid: u32, message: &str, severity: u32, ends: [(&str, u16); 2]) {
    let folder = page.bed.state.join("logs/lan");
    fs::create_dir_all(&folder).expect("writable");
    let [(source, source_port), (destination, destination_port)] = ends;
    let record = json!({
        "event_type": "alert", "flow_id": 1_000 + u64::from(source_port), "proto": "UDP", "src_ip": source, "src_port": source_port,
        "dest_ip": destination, "dest_port": destination_port,
        "alert": { "gid": 1, "signature_id": sid, "rev": 1, "signature": message, "severity": severity },
    });
    let path = folder.join("eve.json");
    let file = fs::File::options().create(true).append(true).open(path);
    let mut file = file.expect("writable");
    writeln!(file, "{record}").expect("written");
}

/// Appends alerts until the agent reports one: what was written before it looked for the first time is old.
fn first_alert(page: &Page) {
    let target = Target::Socket(page.socket.clone());
    let mut agent = AgentClient::new(target).expect("a client");
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        append_alert(page, 1, "an alert", 3, [("10.79.0.9", 9), ("10.79.0.2", 9)]);
        std::thread::sleep(Duration::from_secs(1));
        let kept = agent.get("/v1/logs").expect("an answer");
        let events = kept["events"].as_array().expect("a list");
        if events.iter().any(|event| event["event"] == "alert") {
            return;
        }
        assert!(Instant::now() < until, "{kept}");
    }
}

#[test]
fn alerts_of_sensors_are_shown_with_their_flow() {
    if !root("alerts_of_sensors_are_shown_with_their_flow") || !browser::is_here() {
        return;
    }
    let mut page = Page::new("alerts");
    let edge = page.bed.edge.clone();
    apply_a_firewall(&page);
    let socket = page.bed.right.run(|| UdpSocket::bind("10.79.0.2:7007"));
    let socket = socket.expect("namespace").expect("binds");
    socket.send_to(b"x", "10.79.0.1:7008").expect("sent");
    page.log_in();
    page.view("alerts");
    page.browser.shows("No alerts since the agent started");
    first_alert(&page);
    let tracked = [("10.79.0.2", 7007), ("10.79.0.1", 7008)];
    append_alert(&page, 77, "known by its name", 1, tracked);
    append_alert(&page, 78, "<b>a script</b>", 2, tracked);
    append_alert(
        &page,
        79,
        "an address",
        2,
        [("2001:db8::1", 443), ("2001:db8::2", 5)],
    );
    let rows = "[...document.querySelectorAll('.view tbody tr')]";
    let rules = format!("{rows}.map(row => row.children[2].textContent).join(' ')");
    page.browser
        .until(&format!("{rules}.startsWith('1:79:1 1:78:1 1:77:1 1:1:1')"));
    page.browser
        .shows("UDP [2001:db8::1]:443 > [2001:db8::2]:5");
    page.browser.shows("<b>a script</b>");
    // Sorted by severity, the worst first, and with the other end first.
    page.browser.click("Severity");
    page.browser
        .until(&format!("{rules}.startsWith('1:77:1 1:79:1 1:78:1')"));
    page.browser.click("Severity");
    page.browser.until(&format!("{rules}.startsWith('1:1:1')"));
    // Fewer of them: by severity, by text, by rule.
    let choose = |value: &str| {
        format!(
            "(() => {{ const field = document.querySelector('.view select'); field.value = '{value}'; field.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()"
        )
    };
    page.browser.evaluate(&choose("1"));
    page.browser.until(&format!("{rules} === '1:77:1'"));
    page.browser.evaluate(&choose("0"));
    page.browser.click("Only rule 1:78:1");
    page.browser.until(&format!("{rules} === '1:78:1'"));
    page.browser.evaluate("(() => { const field = document.querySelector('.view input[type=search]'); field.value = '10.79.0.1:7008'; field.dispatchEvent(new Event('input', { bubbles: true })); })()");
    page.browser.until(&format!("{rules} === '1:78:1 1:77:1'"));
    // The flow: its alerts, and the connection, from where the graph is a click away.
    page.browser
        .click("Flow UDP 10.79.0.2:7007 > 10.79.0.1:7008");
    page.browser
        .until("document.activeElement.id === 'flow-name'");
    page.browser
        .until("document.querySelectorAll('.flow .events li').length === 2");
    page.browser.shows(&format!("firewall of edge {edge}"));
    page.browser.evaluate(&axe());
    is_accessible(&mut page, "alerts with a flow");
    page.browser.press("Tab");
    let focused = "document.activeElement.getAttribute('aria-label')";
    assert_eq!(page.browser.evaluate(focused), "Close flow");
    page.browser.press("Enter");
    page.browser.until("!document.querySelector('.flow')");
    page.browser
        .click("Flow UDP 10.79.0.2:7007 > 10.79.0.1:7008");
    page.browser.click(&format!("firewall of edge {edge}"));
    page.browser
        .until("document.querySelector('#details-name')?.textContent === 'firewall'");
    page.browser.shows("→ 10.79.0.1:7008");
    page.has_no_errors();
}

#[test]
fn readers_look_and_change_nothing() {
    if !root("readers_look_and_change_nothing") || !browser::is_here() {
        return;
    }
    let mut page = Page::new("reader");
    // The program is where only root looks: curl asks for the link.
    let mut command = Command::new("setpriv");
    let groups = READERS.to_string();
    command.args(["--reuid", "65534", "--regid", "65534", "--groups", &groups]);
    command.args([
        "--",
        "curl",
        "-s",
        "-m",
        "30",
        "-X",
        "POST",
        "--unix-socket",
    ]);
    command.arg(&page.socket).arg("http://weir/v1/session/link");
    let output = command.output().expect("setpriv and curl");
    let link: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(link["role"], "read", "{link}");
    let requested = page.agent.event("requested");
    assert_eq!(requested["what"], "login link for the page, role read");
    page.browser.open(link["url"].as_str().expect("a link"));
    page.browser.shows(", read");
    page.bed.write("\"deny udp\"");
    page.agent.event("applied");
    page.view("history");
    page.browser.shows("2. weir agent");
    let text = page.text();
    for action in ["Roll back", "Compare", "Apply", "Keep"] {
        assert!(!text.contains(action), "{action}: {text}");
    }
    // Neither does a script of the page.
    let edge = &page.bed.edge;
    for path in [
        format!("/v1/edges/{edge}/rollback"),
        format!("/v1/edges/{edge}/confirm"),
        format!("/v1/edges/{edge}/plan"),
        "/v1/apply".to_owned(),
        "/v1/session/link".to_owned(),
    ] {
        let ask = format!(
            "fetch('{path}', {{ method: 'POST', headers: {{ Authorization: 'Bearer ' + sessionStorage.getItem('weir-session') }} }}).then(one => one.status)"
        );
        assert_eq!(page.browser.evaluate(&ask), 403, "{path}");
    }
    assert_eq!(page.bed.generation(), 2);
    // The token is not where other ports could read it.
    assert_eq!(page.browser.evaluate("document.cookie"), "");
}

#[test]
fn every_view_is_for_everybody() {
    if !root("every_view_is_for_everybody") || !browser::is_here() {
        return;
    }
    let mut page = Page::new("views");
    let axe = axe();
    let pictures = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
    fs::create_dir_all(&pictures).expect("writable");
    let _traffic = Traffic::start(&page.bed);
    first_alert(&page);
    // Before anybody is logged in, too.
    page.browser.open(&format!("http://{}/", page.address));
    page.browser.shows("weir page");
    page.browser.evaluate(&axe);
    is_accessible(&mut page, "login");
    page.log_in();
    page.browser.evaluate(&axe);
    for (size, width, height) in SIZES {
        for is_dark in [false, true] {
            page.browser.look(width, height, is_dark);
            let colours = if is_dark { "dark" } else { "light" };
            for (name, view, text) in [
                ("graph", "graph", "Search"),
                ("details", "graph/function%3Ashield", "Rules"),
                ("alerts", "alerts", "an alert"),
                ("history", "history", "History of"),
                ("agent", "agent", "Children"),
            ] {
                page.view(view);
                page.browser
                    .until("document.querySelector('main')?.innerText.length > 20");
                if text != "Search" {
                    page.browser.shows(text);
                }
                let what = format!("{name}-{size}-{colours}");
                is_accessible(&mut page, &what);
                // Nothing is wider than the screen.
                let wide = "document.documentElement.scrollWidth <= innerWidth";
                assert_eq!(page.browser.evaluate(wide), true, "{what}");
                let picture = page.browser.picture();
                fs::write(pictures.join(format!("{what}.png")), picture).expect("writable");
            }
        }
    }
    page.view("history");
    page.browser.click("Compare with its file");
    page.browser.until("document.querySelector('dialog')?.open");
    is_accessible(&mut page, "dialog");
    page.browser.click("Close");
    page.view("graph");
    page.browser.click("Table");
    page.browser.shows("Drops/s");
    is_accessible(&mut page, "table");
    page.browser.click("Picture");
    keys_go_everywhere(&mut page);
    page.has_no_errors();
}

/// The picture by keys alone: focus, neighbours, details, and back.
fn keys_go_everywhere(page: &mut Page) {
    page.browser.until("!!document.querySelector('canvas')");
    page.browser
        .evaluate("document.querySelector('.skip').focus()");
    let at_canvas = "document.activeElement.tagName === 'CANVAS'";
    let mut count = 0;
    while page.browser.evaluate(at_canvas) != true {
        page.browser.press("Tab");
        count += 1;
        assert!(count < 30, "Tab never comes to the graph");
    }
    page.browser.press("ArrowRight");
    let spoken = "document.querySelector('[aria-live=polite]').innerText";
    page.browser
        .until(&format!("{spoken}.startsWith('port in')"));
    page.browser.press("ArrowRight");
    page.browser
        .until(&format!("{spoken}.startsWith('function shield, filter')"));
    page.browser.press("Enter");
    page.browser
        .until("document.querySelector('#details-name')?.textContent === 'shield'");
    // The focus is where the news are.
    page.browser
        .until("document.activeElement.id === 'details-name'");
    page.browser.click("Close details");
    page.browser
        .until("!document.querySelector('#details-name')");
}

/// The source of axe-core.
fn axe() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live_page/axe.min.js.gz");
    let output = Command::new("gzip").args(["-dc", path]).output();
    String::from_utf8(output.expect("gzip runs").stdout).expect("UTF-8")
}

/// No violation of what axe-core checks, contrast included.
#[track_caller]
fn is_accessible(page: &mut Page, what: &str) {
    let found = page.browser.evaluate(
        "axe.run(document, { resultTypes: ['violations'] }).then(found => found.violations.map(one => one.id + ': ' + one.nodes.map(node => node.html.slice(0, 200) + ' ' + node.failureSummary).join('; ')))",
    );
    assert_eq!(found, json!([]), "{what}");
}

#[test]
fn a_thousand_nodes_are_laid_out_and_move() {
    if !root("a_thousand_nodes_are_laid_out_and_move") || !browser::is_here() {
        return;
    }
    let mut page = Page::new("large");
    let script = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/live_page/large.js"
    ));
    let parameters = json!({ "source": script.expect("readable") });
    page.browser
        .ask("Page.addScriptToEvaluateOnNewDocument", parameters);
    page.log_in();
    page.browser.until(
        "document.querySelector('canvas')?.getAttribute('aria-label').startsWith('1,000 nodes')",
    );
    let paint = page.browser.evaluate(
        "Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1)",
    );
    let loaded = page.browser.evaluate(
        "performance.getEntriesByType('resource').filter(one => !one.name.includes('/v1/')).reduce((sum, one) => sum + one.decodedBodySize, 0)",
    );
    assert!(
        loaded.as_u64().is_some_and(|bytes| bytes < 500_000),
        "{loaded}"
    );
    // Places: no two overlap, and packets go on, but for links that close a loop.
    let wrong = page.browser.evaluate("checkLayouts()");
    assert_eq!(wrong, json!([]));
    page.browser.evaluate("measureFrames()");
    page.browser.mouse("mousePressed", 400.0, 400.0);
    for step in 0..150 {
        let (x, y) = (
            400.0 + f64::from(step * 7 % 300),
            400.0 + f64::from(step * 3 % 200),
        );
        page.browser.mouse("mouseMoved", x, y);
    }
    page.browser.mouse("mouseReleased", 400.0, 400.0);
    let frames = page.browser.evaluate("measuredFrames()");
    let line = format!(
        "1,000 nodes: first paint after {paint} ms, {loaded} bytes of files, frames while dragged: {frames}\n"
    );
    let _ = std::io::stderr().write_all(line.as_bytes());
    assert!(
        frames["count"].as_u64().is_some_and(|count| count > 10),
        "{frames}"
    );
    // Found by its name, and the table has all.
    page.browser.evaluate("const field = document.querySelector('input[type=search]'); field.value = 'f777'; field.dispatchEvent(new Event('input', { bubbles: true }))");
    page.browser.shows("1 match");
    page.browser.click("Table");
    page.browser
        .until("document.querySelectorAll('.picture tbody tr').length === 1");
    page.browser.click("f777");
    page.browser
        .until("document.querySelector('#details-name')?.textContent === 'f777'");
    page.has_no_errors();
}
