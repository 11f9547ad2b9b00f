//! The program `weir-lab`: test beds and benchmarks, which hosts in production do without.

fn main() -> std::process::ExitCode {
    weir_cli::weir_lab()
}
