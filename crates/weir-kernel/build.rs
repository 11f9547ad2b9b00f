//! Hands the directory of libbpf's own headers to the tests, which compile
//! small XDP programs against them. libbpf-sys bundles newer headers than the
//! distribution, and only a direct dependant is told where they are.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let include = std::env::var("DEP_BPF_INCLUDE")
        .expect("libbpf-sys did not tell its include directory: depend on it directly");
    println!("cargo:rustc-env=WEIR_LIBBPF_INCLUDE={include}");
}
