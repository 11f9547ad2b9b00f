//! Many edges without data plane against a real cluster: how long a change takes to all of them, and what it costs etcd.
//!
//! In CI a few; `WEIR_LONG=1`: 100 and 1,000, with figures.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use weir_store::catalogue::Catalogue;
use weir_store::{Applied, Client, Follower, Options, Report, ResultState, split, write};
use weir_testdata::etcd::has_etcd;

use crate::etcd::{block_on, cluster, folder, settings};

/// How long a change may take to all.
const PATIENCE: Duration = Duration::from_secs(120);

/// Edges in one network each with four others: what one edge costs does not follow from how many there are.
const TOGETHER: usize = 5;

fn document(version: u64, edges: usize, more: &str) -> String {
    let mut text = format!("version = {version}\n");
    for n in 0..edges {
        text.push_str(&format!(
            "[[edge]]\nname = \"e{n}\"\nunderlay = \"10.{}.{}.1\"\n",
            n / 250,
            n % 250
        ));
    }
    text.push_str("[[tenant]]\nname = \"red\"\n");
    for network in 0..edges.div_ceil(TOGETHER) {
        text.push_str(&format!(
            "[[network]]\nname = \"n{network}\"\ntenant = \"red\"\n[[network.subnet]]\nname = \"web\"\nprefix = \"10.0.0.0/16\"\n"
        ));
        let own = (network * TOGETHER..edges).take(TOGETHER);
        for edge in own {
            text.push_str(&format!(
                "[[network.workload]]\nname = \"w{edge}\"\nsubnet = \"web\"\nedge = \"e{edge}\"\ndevice = \"t\"\naddress = \"10.0.0.{}\"\n", edge % TOGETHER + 1
            ));
        }
        if network == 0 {
            text.push_str(more);
        }
    }
    text
}

fn push(client: &mut Client, text: &str) {
    block_on(async {
        let catalogue = Catalogue::read(client).await.expect("reachable");
        let mut parts = split(text).expect("a document");
        let links: Vec<Vec<bool>> = parts.networks.iter().map(|_| Vec::new()).collect();
        catalogue
            .identify(&mut parts.networks, &links)
            .expect("free");
        let plan = catalogue
            .push(&parts, "test", false)
            .expect("readable")
            .expect("accepted");
        write(client, &plan).await.expect("written");
        client.leave();
    });
}

/// Edges that apply everything at once.
struct Edges {
    all: Vec<Arc<Follower>>,
    woken: Receiver<usize>,
}

impl Edges {
    fn start(settings: &weir_store::Settings, edges: usize) -> Edges {
        let home = folder();
        std::fs::create_dir_all(&home).expect("writable");
        let (sender, woken): (Sender<usize>, _) = channel();
        let all = (0..edges).map(|n| {
            let options = Options {
                settings: settings.clone(),
                edge: format!("e{n}"),
                folder: home.clone(),
                host: format!("h{n}"),
                boot: "b".to_owned(),
                weir: "test".to_owned(),
            };
            let sender = sender.clone();
            let wake = move || {
                let _ = sender.send(n);
            };
            Arc::new(Follower::start(options, wake).expect("starts"))
        });
        Edges {
            all: all.collect(),
            woken,
        }
    }

    /// Waits until so many documents were written, and says that they are applied.
    fn apply(&self, documents: usize) {
        let until = Instant::now() + PATIENCE;
        let mut seen = 0;
        while seen < documents {
            let left = until.saturating_duration_since(Instant::now());
            let n = self
                .woken
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("{seen} of {documents} in time"));
            for report in self.all[n].reports() {
                if let Report::Published(one) = report {
                    seen += 1;
                    self.all[n].tell(Applied {
                        version: one.version,
                        state: ResultState::Applied,
                        error: None,
                    });
                }
            }
        }
    }
}

fn converge(client: &mut Client, edges: usize) -> Duration {
    let begun = Instant::now();
    loop {
        let catalogue = block_on(async {
            let catalogue = Catalogue::read(client).await.expect("reachable");
            client.leave();
            catalogue
        });
        let standing = catalogue.standing().expect("readable");
        if standing.len() == edges && standing.iter().all(|one| one.converged && one.alive) {
            return begun.elapsed();
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{:?}",
            standing.iter().find(|one| !one.converged)
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn simulate(edges: usize) {
    let cluster = cluster(3);
    let settings = settings(&cluster, 3);
    let mut client = Client::new(&settings).expect("certificates");
    let requests = || cluster.metric("grpc_server_handled_total");
    push(&mut client, &document(1, edges, ""));
    let (begun, before) = (Instant::now(), requests());
    let all = Edges::start(&settings, edges);
    all.apply(edges);
    converge(&mut client, edges);
    let start = (begun.elapsed(), requests() - before);

    // One workload more in one network: its five edges learn of it, and no other.
    let more = "[[network.workload]]\nname = \"x\"\nsubnet = \"web\"\nedge = \"e0\"\ndevice = \"tx\"\naddress = \"10.0.9.1\"\n";
    let before = requests();
    push(&mut client, &document(2, edges, more));
    let begun = Instant::now();
    all.apply(edges.min(TOGETHER));
    let one = (begun.elapsed(), requests() - before);
    converge(&mut client, edges);
    while let Ok(n) = all.woken.recv_timeout(Duration::from_millis(300)) {
        assert!(n < TOGETHER, "edge e{n} has nothing to do with it");
    }

    // A second of quiet.
    let before = requests();
    std::thread::sleep(Duration::from_secs(3));
    let idle = (requests() - before) / 3.0 / edges as f64;

    // A member dies: its edges come back through others.
    let mut cluster = cluster;
    let leader = cluster.leader();
    cluster.kill(leader);
    cluster.wait();
    let begun = Instant::now();
    push(&mut client, &document(3, edges, ""));
    all.apply(edges.min(TOGETHER));
    converge(&mut client, edges);
    let back = begun.elapsed();
    let line = format!(
        "{edges} edges: start to converged {:.1} s with {:.0} requests an edge; a workload {:.0} ms to its five edges with {:.0} requests; idle {idle:.2} requests a second an edge; after the leader's death {:.1} s\n",
        start.0.as_secs_f64(),
        start.1 / edges as f64,
        one.0.as_secs_f64() * 1000.0,
        one.1,
        back.as_secs_f64()
    );
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[test]
fn many_edges_converge_and_only_those_concerned_are_told() {
    if !has_etcd() {
        return;
    }
    match std::env::var_os("WEIR_LONG") {
        None => simulate(10),
        Some(_) => [100, 1000].into_iter().for_each(simulate),
    }
}
