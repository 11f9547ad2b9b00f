//! The client against a real member: ranges, transactions, watches of many ranges, compaction, leases, users, and pushes that do not fit one transaction.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weir_store::catalogue::{Catalogue, Refused};
use weir_store::{Client, Compare, Event, Op, Range, Settings, StoreError, layout, split, write};
use weir_testdata::etcd::{Cluster, has_etcd};

/// A folder for a cluster.
pub(crate) fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("etcd-{}-{n}", std::process::id()))
}

/// A cluster on loopback, which runs.
pub(crate) fn cluster(members: usize) -> Cluster {
    // Below the ports that the kernel gives to clients; other processes and other tests of this one have others.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id() * 200 + NEXT.fetch_add(1, Ordering::Relaxed) * 50;
    let is_free =
        |port: &u16| (*port..port + 30).all(|one| TcpListener::bind(("127.0.0.1", one)).is_ok());
    let mut ports = (0..50).map(|n| (20_000 + (begin + n * 1000) % 12_000) as u16);
    let port = ports.find(is_free);
    let mut cluster = Cluster::new(
        &folder(),
        "127.0.0.1",
        port.expect("a free port"),
        members,
        |program| Command::new(program),
    );
    cluster.start_all();
    cluster
}

/// How a cluster is reached.
pub(crate) fn settings(cluster: &Cluster, members: usize) -> Settings {
    let endpoints: Vec<String> = (0..members)
        .map(|member| cluster.endpoint(member))
        .collect();
    let path = |name: &str| cluster.authority.path(name);
    serde_json::from_value(serde_json::json!({
        "endpoints": endpoints, "ca": path("ca.pem"), "cert": path("client.pem"), "key": path("client.key"), "grace": 1
    }))
    .expect("settings")
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(work)
}

fn put(key: &str, value: &str) -> Op {
    Op::Put(key.to_owned(), value.as_bytes().to_vec())
}

/// A document of one tenant with so many workloads on two edges.
pub(crate) fn document(version: u32, workloads: usize) -> String {
    let mut text = format!(
        "version = {version}\n[[edge]]\nname = \"e1\"\n[[edge]]\nname = \"e2\"\n[[tenant]]\nname = \"red\"\n[[network]]\nname = \"n\"\ntenant = \"red\"\n\
         [[network.subnet]]\nname = \"web\"\nprefix = \"10.0.0.0/16\"\n"
    );
    for n in 0..workloads {
        text.push_str(&format!(
            "[[network.workload]]\nname = \"w{n}\"\nsubnet = \"web\"\nedge = \"e{}\"\ndevice = \"t{n}\"\naddress = \"10.0.{}.{}\"\n",
            n % 2 + 1, n / 200, n % 200 + 1
        ));
    }
    text
}

async fn push(
    client: &mut Client,
    text: &str,
    force: bool,
) -> Result<Result<usize, Refused>, StoreError> {
    let catalogue = Catalogue::read(client).await?;
    let mut parts = split(text).expect("a document");
    let links: Vec<Vec<bool>> = parts.networks.iter().map(|_| Vec::new()).collect();
    if let Err(refused) = catalogue.identify(&mut parts.networks, &links) {
        return Ok(Err(refused));
    }
    match catalogue.push(&parts, "kim", force)? {
        Err(refused) => Ok(Err(refused)),
        Ok(plan) if plan.is_empty() => Ok(Ok(0)),
        Ok(plan) => Ok(Ok(write(client, &plan).await?.transactions)),
    }
}

#[test]
fn the_client_does_what_the_store_needs() {
    if !has_etcd() {
        return;
    }
    let cluster = cluster(1);
    let settings = settings(&cluster, 1);
    block_on(async {
        let mut client = Client::new(&settings).expect("certificates");
        let all = Range::Prefix("/t/".to_owned());
        let (first, found) = client.range(&all, 0).await.expect("reachable");
        assert!(found.is_empty() && first.cluster != 0);

        // More ranges than fit the first buffer of the server: each is watched.
        let ranges: Vec<Range> = (0..300)
            .map(|n| Range::Prefix(format!("/t/{n:03}/")))
            .collect();
        for _ in 0..5 {
            let (at, _) = client.range(&all, 0).await.expect("reachable");
            let mut watch = client
                .watch(&ranges, at.revision + 1)
                .await
                .expect("watched");
            let ops: Vec<Op> = [0, 7, 150, 299]
                .map(|n| put(&format!("/t/{n:03}/a"), "x"))
                .into();
            client.transact(&[], &ops).await.expect("written");
            let mut seen = 0;
            while seen < ops.len() {
                let next = tokio::time::timeout(Duration::from_secs(5), watch.next()).await;
                let (_, events) = next.expect("all events come").expect("watched");
                assert!(
                    events
                        .iter()
                        .all(|one| matches!(one, Event::Put(kv) if kv.revision == at.revision + 1))
                );
                seen += events.len();
            }
        }

        // Comparisons, deletions, values of any bytes.
        let key = "/t/one".to_owned();
        let (written, done) = client
            .transact(
                &[Compare::Revision(key.clone(), 0)],
                &[Op::Put(key.clone(), vec![0, 255, 10])],
            )
            .await
            .expect("asked");
        assert!(done);
        let (_, again) = client
            .transact(&[Compare::Revision(key.clone(), 0)], &[put(&key, "y")])
            .await
            .expect("asked");
        assert!(!again, "it is there");
        let (_, found) = client
            .range(&Range::Key(key.clone()), 0)
            .await
            .expect("reachable");
        assert_eq!(
            (found[0].value.as_slice(), found[0].revision),
            ([0, 255, 10].as_slice(), written.revision)
        );
        let mut watch = client
            .watch(&[Range::Key(key.clone())], written.revision + 1)
            .await
            .expect("watched");
        let (gone, _) = client
            .transact(&[], &[Op::Delete(key.clone())])
            .await
            .expect("asked");
        let (_, events) = watch.next().await.expect("watched");
        assert_eq!(events, [Event::Delete(key.clone(), gone.revision)]);
        let (_, before) = client
            .range(&Range::Key(key.clone()), written.revision)
            .await
            .expect("a former revision");
        assert_eq!(before.len(), 1);

        // Compacted revisions can be neither read nor watched.
        let compacted = cluster.etcdctl(&["compaction", &gone.revision.to_string()]);
        assert!(compacted.status.success());
        let read = client
            .range(&Range::Key(key.clone()), written.revision)
            .await;
        assert!(
            matches!(read, Err(StoreError::Compacted { .. })),
            "{read:?}"
        );
        let mut watch = client
            .watch(&[Range::Key(key.clone())], written.revision)
            .await
            .expect("watched");
        assert!(matches!(
            watch.next().await,
            Err(StoreError::Compacted { .. })
        ));

        // Leases.
        let lease = client.grant(5).await.expect("granted");
        client
            .transact(
                &[],
                &[Op::PutLeased("/t/leased".to_owned(), b"x".to_vec(), lease)],
            )
            .await
            .expect("written");
        assert!(client.keep_alive(lease).await.expect("asked"));
        assert!(
            !client.keep_alive(12_345).await.expect("asked"),
            "no such lease"
        );
        let revoked = cluster.etcdctl(&["lease", "revoke", &format!("{lease:x}")]);
        assert!(revoked.status.success(), "{revoked:?}");
        assert!(
            client
                .range(&Range::Key("/t/leased".to_owned()), 0)
                .await
                .expect("asked")
                .1
                .is_empty()
        );
    });
}

#[test]
fn users_of_etcd_have_their_roles_and_foreign_authorities_none() {
    if !has_etcd() {
        return;
    }
    let cluster = cluster(1);
    for args in [
        ["user", "add", "root:secret"].as_slice(),
        &["user", "grant-role", "root", "root"],
        &["role", "add", "reader"],
        &[
            "role",
            "grant-permission",
            "reader",
            "--prefix=true",
            "read",
            "/weir/v1/",
        ],
        &["user", "add", "kim:word"],
        &["user", "grant-role", "kim", "reader"],
        &["auth", "enable"],
    ] {
        let output = cluster.etcdctl(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
    let mut settings = settings(&cluster, 1);
    let password = cluster.authority.folder.join("password");
    block_on(async {
        let mut nobody = Client::new(&settings).expect("certificates");
        let refused = nobody.range(&Range::Key(layout::STORE.to_owned()), 0).await;
        assert!(
            matches!(refused, Err(StoreError::Refused { .. })),
            "{refused:?}"
        );
        settings.user = Some("kim".to_owned());
        settings.password_file = Some(password.clone());
        std::fs::write(&password, "wrong\n").expect("writable");
        let mut kim = Client::new(&settings).expect("certificates");
        let refused = kim
            .range(&Range::Key(layout::STORE.to_owned()), 0)
            .await
            .expect_err("a wrong password");
        assert!(refused.to_string().contains("user kim"), "{refused}");
        std::fs::write(&password, "word\n").expect("writable");
        kim.range(&Range::Key(layout::STORE.to_owned()), 0)
            .await
            .expect("may read");
        let refused = kim
            .transact(&[], &[put(layout::STORE, "{}")])
            .await
            .expect_err("may not write");
        assert!(
            refused.to_string().contains("permission denied"),
            "{refused}"
        );
        // A member whose certificate is not of the authority that is named.
        let other = weir_testdata::etcd::Authority::new(&folder());
        settings.ca = other.folder.join("ca.pem");
        let mut foreign = Client::new(&settings).expect("certificates");
        let refused = foreign
            .range(&Range::Key(layout::STORE.to_owned()), 0)
            .await
            .expect_err("foreign");
        assert!(
            matches!(refused, StoreError::Unreachable { .. })
                && refused.to_string().contains("certificate"),
            "{refused}"
        );
    });
}

#[test]
fn documents_are_pushed_whole_and_crossing_changes_are_refused() {
    if !has_etcd() {
        return;
    }
    let cluster = cluster(1);
    let settings = settings(&cluster, 1);
    block_on(async {
        let mut client = Client::new(&settings).expect("certificates");
        let pushed = push(&mut client, &document(1, 3), false)
            .await
            .expect("asked");
        assert_eq!(pushed, Ok(1), "one transaction");
        assert_eq!(
            push(&mut client, &document(1, 3), false)
                .await
                .expect("asked"),
            Ok(0),
            "nothing new"
        );
        let refused = push(&mut client, &document(1, 4), false)
            .await
            .expect("asked");
        assert!(
            matches!(
                refused,
                Err(Refused::Version {
                    stored: 1,
                    given: 1,
                    ..
                })
            ),
            "{refused:?}"
        );
        let many = push(&mut client, &document(2, 700), false)
            .await
            .expect("asked")
            .expect("accepted");
        assert!(many > 5, "{many} transactions");
        let stored = Catalogue::read(&mut client).await.expect("readable");
        assert_eq!(stored.workloads("n").len(), 700);
        assert!(stored.tenants().expect("readable")["red"].complete);
        let same = |text: &str| split(text).expect("a document").networks[0].workloads.len();
        assert_eq!(same(&stored.document().expect("readable")), 700);

        // What a command added stays when its document is pushed again; what the document no longer lists goes.
        let text = "[[network.workload]]\nname = \"x\"\nsubnet = \"web\"\nedge = \"e2\"\ndevice = \"tx\"\naddress = \"10.0.200.1\"\n";
        let plan = stored
            .change("n", "x", Some((text.to_owned(), "e2".to_owned())))
            .expect("readable");
        write(&mut client, &plan).await.expect("written");
        let crossed = write(&mut client, &plan)
            .await
            .expect_err("its head was changed");
        assert!(matches!(crossed, StoreError::Conflict { .. }), "{crossed}");
        push(&mut client, &document(3, 1), false)
            .await
            .expect("asked")
            .expect("accepted");
        let stored = Catalogue::read(&mut client).await.expect("readable");
        assert_eq!(stored.workloads("n"), ["w0", "x"]);
        assert!(stored.indexed("e1").contains("n") && stored.indexed("e2").contains("n"));
        // The last one of an edge takes its network along.
        let plan = stored.change("n", "x", None).expect("readable");
        write(&mut client, &plan).await.expect("written");
        let stored = Catalogue::read(&mut client).await.expect("readable");
        assert!(stored.indexed("e1").contains("n") && stored.indexed("e2").is_empty());
        let numbers = |stored: &Catalogue| {
            stored
                .entries
                .keys()
                .filter(|key| key.starts_with(layout::IDENTIFIERS))
                .count()
        };
        assert_eq!(numbers(&stored), 1);

        // Another tenant cannot take name or number.
        let blue = document(1, 1).replace("red", "blue");
        let refused = push(&mut client, &blue, true).await.expect("asked");
        assert!(
            matches!(refused, Err(Refused::Network { .. })),
            "{refused:?}"
        );
        let blue = blue
            .replace("name = \"n\"", "name = \"m\"")
            .replace("name = \"web\"", "name = \"web\"\nidentifier = 4096");
        let refused = push(&mut client, &blue, true).await.expect("asked");
        assert!(
            matches!(
                refused,
                Err(Refused::Identifier {
                    identifier: 4096,
                    ..
                })
            ),
            "{refused:?}"
        );
        let blue = blue.replace("identifier = 4096\n", "");
        push(&mut client, &blue, false)
            .await
            .expect("asked")
            .expect("accepted");
        // A tenant without networks leaves nothing of them.
        let none = "version = 4\n[[tenant]]\nname = \"red\"\n";
        push(&mut client, none, false)
            .await
            .expect("asked")
            .expect("accepted");
        let stored = Catalogue::read(&mut client).await.expect("readable");
        assert_eq!(stored.networks().into_iter().collect::<Vec<_>>(), ["m"]);
        assert_eq!(numbers(&stored), 1);
        let left = stored
            .entries
            .keys()
            .filter(|key| key.starts_with(&layout::network("n")) || key.contains("/e2/"))
            .count();
        assert_eq!(left, 0);
    });
}

#[test]
fn files_are_entries_of_their_own_and_no_request_is_too_large() {
    if !has_etcd() {
        return;
    }
    let cluster = cluster(1);
    let settings = settings(&cluster, 1);
    let with = |version: u32, files: &[(&str, usize)]| {
        let mut text = document(version, 2);
        for (name, size) in files {
            // Each line is one byte longer in an entry, where its end is escaped.
            let content = "x".repeat(79) + "\\n";
            let content = content.repeat(size / 80);
            text.push_str(&format!(
                "[[network.file]]\nname = \"{name}\"\ntext = \"{content}\"\n"
            ));
        }
        text
    };
    block_on(async {
        let mut client = Client::new(&settings).expect("certificates");
        let small = with(1, &[("lib/a.weir", 800), ("workloads/b", 80)]);
        let pushed = push(&mut client, &small, false).await.expect("asked");
        assert_eq!(pushed, Ok(1), "one transaction");
        let stored = Catalogue::read(&mut client).await.expect("readable");
        assert_eq!(stored.files("n"), ["lib/a.weir", "workloads/b"]);
        assert_eq!(stored.workloads("n"), ["w0", "w1"]);
        let written = |stored: &Catalogue, key: &str| stored.entries[key].1;
        let config = layout::config("n");
        let first = written(&stored, &config);

        // Another text is another document, and writes this file only.
        let other = with(1, &[("lib/a.weir", 1600), ("workloads/b", 80)]);
        let refused = push(&mut client, &other, false).await.expect("asked");
        assert!(
            matches!(refused, Err(Refused::Version { .. })),
            "{refused:?}"
        );
        let other = other.replace("version = 1", "version = 2");
        let pushed = push(&mut client, &other, false).await.expect("asked");
        assert_eq!(pushed, Ok(1));
        let stored = Catalogue::read(&mut client).await.expect("readable");
        assert_eq!(written(&stored, &config), first);
        let file = |name: &str| layout::file("n", name);
        assert!(written(&stored, &file("lib/a.weir")) > first);
        assert_eq!(written(&stored, &file("workloads/b")), first);
        // Whoever watches the network is told of it.
        assert!(file("lib/a.weir").starts_with(&layout::network("n")));

        // Three files that fit no transaction together, and one that fits none.
        let large = [("1", 900_000), ("2", 900_000), ("3", 900_000)];
        let pushed = push(&mut client, &with(3, &large), false).await;
        let transactions = pushed.expect("asked").expect("accepted");
        assert!(transactions >= 4, "{transactions}");
        let stored = Catalogue::read(&mut client).await.expect("readable");
        assert_eq!(stored.files("n"), ["1", "2", "3"], "the others are gone");
        let text = stored.document().expect("readable");
        let again = split(&text).expect("a document");
        assert_eq!(again.networks[0].files.len(), 3);
        let refused = push(&mut client, &with(4, &[("4", 1_600_000)]), false).await;
        let refused = refused.expect("asked").expect_err("too large");
        let said = refused.to_string();
        assert!(
            said.starts_with("file `4` of network n takes 16") && said.contains("holds 1400000"),
            "{said}"
        );
        let after = Catalogue::read(&mut client).await.expect("readable");
        assert_eq!(
            after.header.revision, stored.header.revision,
            "nothing is written"
        );
    });
}
