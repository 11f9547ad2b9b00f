//! Compiles every file of bpf/functions with clang, once for XDP (object NAME) and once for tc (NAME_tc), strips debug
//! sections (BTF stays), and writes the table of embedded objects.
//!
//! `WEIR_CLANG` names another compiler; `WEIR_PREBUILT_BPF_DIR` a folder of ready objects, for builders
//! without clang.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

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

    let mut names: Vec<String> = fs::read_dir(bpf.join("functions"))
        .expect("bpf/functions exists")
        .map(|entry| entry.expect("readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .map(|path| {
            path.file_stem()
                .expect("has a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();

    let mut table = String::from(
        "/// Name and ELF bytes of every object.\npub static OBJECTS: &[(&str, &[u8])] = &[\n",
    );
    let objects = names.iter().flat_map(|function| {
        [("", Hook::Xdp), ("_tc", Hook::Tc)]
            .map(|(suffix, hook)| (function, format!("{function}{suffix}"), hook))
    });
    for (function, name, hook) in objects {
        let object = out.join(format!("{name}.bpf.o"));
        match env::var_os("WEIR_PREBUILT_BPF_DIR") {
            Some(dir) => {
                let ready = Path::new(&dir).join(format!("{name}.bpf.o"));
                fs::copy(&ready, &object).unwrap_or_else(|e| panic!("{}: {e}", ready.display()));
            }
            None => compile(&bpf, function, hook, &object),
        }
        table.push_str(&format!(
            "    ({name:?}, include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.bpf.o\"))),\n"
        ));
    }
    table.push_str("];\n");
    fs::write(out.join("objects.rs"), table).expect("OUT_DIR is writable");
}

/// Which context API a function is compiled against (bpf/include/ctx.h).
#[derive(Clone, Copy)]
enum Hook {
    Xdp,
    Tc,
}

fn compile(bpf: &Path, function: &str, hook: Hook, object: &Path) {
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
        .args(match hook {
            Hook::Xdp => None,
            Hook::Tc => Some("-DWEIR_HOOK_TC"),
        })
        .current_dir(bpf)
        .args(["-I", "include", "-I"])
        .arg(&headers)
        .arg("-c")
        .arg(format!("functions/{function}.c"))
        .arg("-o")
        .arg(object));
    run(Command::new("llvm-strip").arg("-g").arg(object));
}
