//! Compiles every file of bpf/functions with clang for what the line "Hooks: ..." of its head says: `xdp` by itself (object NAME), in a graph
//! (NAME_graph) and in one that is watched (NAME_watched); `graph` these two alone; `graph on tc` the same two for ports on tc (NAME_graph_tc,
//! NAME_watched_tc); `tc` by itself (NAME_tc); `networks` in virtual networks (NAME_net, and NAME_net_watched for networks that are watched). Files of bpf/graph are for graphs, or for tc alone; those of bpf/network for tc (net_NAME, net_NAME_watched) and XDP (net_NAME_xdp). Then every file of
//! bpf/baselines, bpf/monitor and bpf/tools once, strips debug sections (BTF stays), compresses each with another form of it as the dictionary, and writes the tables of embedded objects.
//! As many compilers run at a time as cargo allows jobs.
//!
//! `WEIR_CLANG` names another compiler; `WEIR_PREBUILT_BPF_DIR` a folder of ready objects, for builders
//! without clang; objects that belong to no function lie in its folders `baselines`, `monitor` and `tools`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, io, thread};

use brotli::enc::{BrotliEncoderParams, StandardAlloc};
use brotli::{IoReaderWrapper, IoWriterWrapper};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let bpf = root
        .join("../../bpf")
        .canonicalize()
        .expect("bpf/ stands beside crates/");
    println!("cargo::rerun-if-changed={}", bpf.display());
    println!("cargo::rerun-if-env-changed=WEIR_CLANG");
    println!("cargo::rerun-if-env-changed=WEIR_PREBUILT_BPF_DIR");

    for folder in ["baselines", "monitor", "tools"] {
        fs::create_dir_all(out.join(folder)).expect("OUT_DIR is writable");
    }
    let in_folder = |folder: &str, prefix: &str, forms: fn(&str) -> Vec<Form>| -> Vec<Object> {
        let files = sources(&bpf, folder).into_iter();
        files
            .flat_map(|name| {
                let source = format!("{folder}/{name}.c");
                let text = fs::read_to_string(bpf.join(&source)).expect("sources are readable");
                let forms: Vec<Form> = hooks(&text).into_iter().flat_map(forms).collect();
                objects(&format!("{prefix}{name}"), &source, &forms)
            })
            .collect()
    };
    let functions = in_folder("functions", "", |hook| match hook {
        "xdp" => vec![Form::Xdp, Form::Graph, Form::Watched],
        "graph" => vec![Form::Graph, Form::Watched],
        "tc" => vec![Form::Tc],
        "graph on tc" => vec![Form::GraphTc, Form::WatchedTc],
        "networks" => vec![Form::Private, Form::PrivateWatched],
        _ => unreachable!("hooks() knows all"),
    });
    let graph = in_folder("graph", "", |hook| match hook {
        "tc" => vec![Form::Tc],
        "graph on tc" => vec![Form::GraphTc, Form::WatchedTc],
        _ => vec![Form::Graph, Form::Watched],
    });
    let network = in_folder("network", "net_", |hook| match hook {
        "tc" => vec![Form::Network, Form::NetworkWatched],
        _ => vec![Form::NetworkXdp],
    });
    let others = |folder: &'static str| {
        sources(&bpf, folder).into_iter().map(move |name| Object {
            source: format!("{folder}/{name}.c"),
            file: format!("{folder}/{name}.bpf.o"),
            name,
            form: Form::Xdp,
        })
    };
    let tables = [
        (
            "OBJECTS",
            "Every function's objects.",
            [functions, graph, network].concat(),
        ),
        (
            "BASELINES",
            "What benchmarks compare functions with, and their test beds.",
            others("baselines").collect(),
        ),
        (
            "MONITORS",
            "The programs on tracepoints.",
            others("monitor").collect(),
        ),
        (
            "TOOLS",
            "What commands use by themselves: the generator and its counting sink, and what puts a frame into a device.",
            others("tools").collect(),
        ),
    ];
    let prebuilt = env::var_os("WEIR_PREBUILT_BPF_DIR").map(PathBuf::from);
    if let Some(folder) = &prebuilt {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
    let all: Vec<&Object> = tables.iter().flat_map(|(_, _, objects)| objects).collect();
    side_by_side(&all, |object| {
        let made = out.join(&object.file);
        match &prebuilt {
            Some(folder) => {
                let ready = folder.join(&object.file);
                fs::copy(&ready, &made).unwrap_or_else(|e| panic!("{}: {e}", ready.display()));
            }
            None => compile(&bpf, &object.source, object.form, &made),
        }
    });
    let bases: Vec<Vec<Option<usize>>> = (tables.iter())
        .map(|(_, _, objects)| (0..objects.len()).map(|at| base(objects, at)).collect())
        .collect();
    let with_bases: Vec<(&Object, Option<&Object>)> = (tables.iter().zip(&bases))
        .flat_map(|((_, _, objects), bases)| {
            let bases = bases.iter().map(|at| at.map(|at| &objects[at]));
            objects.iter().zip(bases)
        })
        .collect();
    side_by_side(&with_bases, |(object, base)| {
        let read = |one: &Object| fs::read(out.join(&one.file)).expect("it was just written");
        let packed = packed(&read(object), &base.map(read).unwrap_or_default());
        let file = out.join(&object.file).with_extension("packed");
        fs::write(file, packed).expect("OUT_DIR is writable");
    });
    let mut text = String::new();
    for ((table, doc, objects), bases) in tables.iter().zip(&bases) {
        text.push_str(&format!(
            "/// {doc}\npub static {table}: [Embedded; {}] = [\n",
            objects.len()
        ));
        for (object, base) in objects.iter().zip(bases) {
            let packed = Path::new(&object.file).with_extension("packed");
            let base = match base {
                Some(at) => format!("Some(&{table}[{at}])"),
                None => "None".to_owned(),
            };
            text.push_str(&format!(
                "    Embedded::new({:?}, include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{}\")), {base}),\n",
                object.name,
                packed.display()
            ));
        }
        text.push_str("];\n");
    }
    fs::write(out.join("objects.rs"), text).expect("OUT_DIR is writable");
}

/// Which object of a table another one is compressed with: that of the longest name which its own begins with, as
/// `middlebox_net` of `middlebox_net_watched`. Forms of one source have two thirds of their bytes in common.
fn base(objects: &[Object], at: usize) -> Option<usize> {
    let name = &objects[at].name;
    let begins = |other: &Object| {
        let rest = name.strip_prefix(&other.name);
        rest.is_some_and(|rest| rest.starts_with('_'))
    };
    let found = (0..objects.len()).filter(|one| begins(&objects[*one]));
    found.max_by_key(|one| objects[*one].name.len())
}

/// Bytes compressed by Brotli with a dictionary. What is shipped takes minutes of a processor for the last sixth; other builds do not.
fn packed(bytes: &[u8], dictionary: &[u8]) -> Vec<u8> {
    let is_shipped = env::var("PROFILE").as_deref() == Ok("release");
    let params = BrotliEncoderParams {
        quality: if is_shipped { 11 } else { 4 },
        size_hint: bytes.len(),
        ..BrotliEncoderParams::default()
    };
    let mut packed = Vec::new();
    let (mut read, mut written) = ([0; BUFFER], [0; BUFFER]);
    brotli::BrotliCompressCustomIoCustomDict(
        &mut IoReaderWrapper(&mut &bytes[..]),
        &mut IoWriterWrapper(&mut packed),
        &mut read,
        &mut written,
        &params,
        StandardAlloc::default(),
        &mut |_, _, _, _| (),
        dictionary,
        io::ErrorKind::UnexpectedEof.into(),
    )
    .expect("memory takes it");
    packed
}

/// Bytes that are read and written at a time.
const BUFFER: usize = 1 << 14;

/// Calls `work` for each object, as many at a time as cargo allows this build.
fn side_by_side<O: Sync>(objects: &[O], work: impl Fn(&O) + Sync) {
    let jobs = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..jobs.unwrap_or(1) {
            scope.spawn(|| {
                while let Some(object) = objects.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(object);
                }
            });
        }
    });
}

/// What a file is built for, from the line "Hooks: a, b." of its head.
fn hooks(text: &str) -> Vec<&str> {
    let (_, rest) = text.split_once("Hooks: ").expect("a head says what for");
    let line = rest.split_once('.').map_or(rest, |(line, _)| line);
    let hooks: Vec<&str> = line.split(", ").collect();
    let known = ["xdp", "tc", "graph", "graph on tc", "networks"];
    assert!(
        hooks.iter().all(|hook| known.contains(hook)),
        "hooks are {known:?}, not {hooks:?}"
    );
    hooks
}

/// One object to build.
#[derive(Clone)]
struct Object {
    /// C file below bpf/.
    source: String,
    /// Object file below OUT_DIR.
    file: String,
    /// Its name in the table.
    name: String,
    form: Form,
}

fn objects(name: &str, source: &str, forms: &[Form]) -> Vec<Object> {
    let object = |form: &Form| {
        let name = format!("{name}{}", form.suffix());
        Object {
            source: source.to_owned(),
            file: format!("{name}.bpf.o"),
            name,
            form: *form,
        }
    };
    forms.iter().map(object).collect()
}

/// Names of the C files of a folder, sorted.
fn sources(bpf: &Path, folder: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(bpf.join(folder))
        .unwrap_or_else(|e| panic!("bpf/{folder}: {e}"))
        .map(|entry| entry.expect("readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

/// What a function is compiled for: the context API of bpf/include/ctx.h, and the patch panel of bpf/include/panel.h.
#[derive(Clone, Copy)]
enum Form {
    /// XDP, by itself.
    Xdp,
    /// tc, by itself.
    Tc,
    /// XDP, an instance of a graph.
    Graph,
    /// XDP, an instance of a graph that is watched.
    Watched,
    /// tc, an instance of a graph.
    GraphTc,
    /// tc, an instance of a graph that is watched.
    WatchedTc,
    /// tc, in virtual networks, with a program for each instance.
    Private,
    /// tc, in virtual networks.
    Network,
    /// The two in virtual networks that are watched.
    PrivateWatched,
    NetworkWatched,
    /// XDP, in virtual networks: what tests and replays compare.
    NetworkXdp,
}

impl Form {
    fn suffix(self) -> &'static str {
        match self {
            Form::Xdp => "",
            Form::Tc => "_tc",
            Form::Graph => "_graph",
            Form::Watched => "_watched",
            Form::GraphTc => "_graph_tc",
            Form::WatchedTc => "_watched_tc",
            Form::Private => "_net",
            Form::PrivateWatched => "_net_watched",
            Form::Network => "",
            Form::NetworkWatched => "_watched",
            Form::NetworkXdp => "_xdp",
        }
    }

    fn defines(self) -> &'static [&'static str] {
        match self {
            Form::Xdp => &[],
            Form::Tc => &["-DWEIR_HOOK_TC"],
            Form::Graph => &["-DWEIR_PANEL"],
            Form::Watched => &["-DWEIR_PANEL", "-DWEIR_WATCH"],
            Form::GraphTc => &["-DWEIR_PANEL", "-DWEIR_HOOK_TC"],
            Form::WatchedTc => &["-DWEIR_PANEL", "-DWEIR_WATCH", "-DWEIR_HOOK_TC"],
            Form::Private | Form::Network => &["-DWEIR_HOOK_TC", "-DWEIR_NETWORK"],
            Form::PrivateWatched | Form::NetworkWatched => {
                &["-DWEIR_HOOK_TC", "-DWEIR_NETWORK", "-DWEIR_WATCH"]
            }
            Form::NetworkXdp => &["-DWEIR_NETWORK"],
        }
    }
}

fn compile(bpf: &Path, source: &str, form: Form, object: &Path) {
    let clang = env::var_os("WEIR_CLANG").unwrap_or_else(|| "clang".into());
    let headers = env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys tells where its headers are");
    let run = |command: &mut Command| {
        let shown = format!("{command:?}");
        let status = command.status().unwrap_or_else(|e| {
            panic!(
                "{shown}: {e}; install clang and llvm (`make setup`) or set WEIR_PREBUILT_BPF_DIR"
            )
        });
        assert!(status.success(), "{shown} failed");
    };
    run(Command::new(clang)
        .args([
            "-g",
            "-O2",
            "-target",
            "bpf",
            "-mcpu=v3",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Wno-sign-compare",
            "-Werror",
        ])
        // Line information must not name the builder's folders.
        .arg("-ffile-compilation-dir=.")
        .arg(format!(
            "-ffile-prefix-map={}=libbpf",
            headers.to_string_lossy()
        ))
        .args(form.defines())
        .current_dir(bpf)
        .args(["-I", "include", "-I"])
        .arg(&headers)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object));
    // Relocations of type information are for linkers, and so are the labels of blocks that they name; loaders read neither. They were a fifth of
    // what a program embeds.
    run(Command::new("llvm-objcopy")
        .args(["--strip-debug", "-R", ".rel.BTF", "-R", ".rel.BTF.ext"])
        .args(["--wildcard", "--strip-symbol", "LBB*"])
        .arg(object));
}
