//! `cargo xtask ci`: the list of checks. Runs all of them, even after a failure.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::outcome::Outcome;
use crate::python;
use crate::repository::without_package_variables;
use crate::tidy::tidy;

/// A check of the workspace.
struct Check {
    name: &'static str,
    run: fn(&Path) -> anyhow::Result<Outcome>,
}

/// All checks: first the fast ones, then those that compile the dependencies. `python`
/// uses what `tests` compiled, `clippy` and `docs` share compiled metadata.
const CHECKS: [Check; 12] = [
    Check { name: "format", run: format },
    Check { name: "tidy", run: |root| tidy(root).map(|()| Outcome::Passed) },
    Check { name: "packages", run: packages },
    Check { name: "deny", run: deny },
    Check { name: "fuzz", run: fuzz },
    Check { name: "tests", run: |root| cargo(root, &["test", "--workspace"]) },
    Check { name: "mpi", run: mpi },
    Check { name: "python", run: python },
    Check { name: "gpu", run: gpu },
    Check { name: "clippy", run: clippy },
    Check { name: "docs", run: |root| cargo(root, &["doc", "--workspace", "--no-deps"]) },
    Check { name: "sanitize", run: sanitize },
];

/// Time after which fetching the advisory database is given up.
const FETCH_TIMEOUT: Duration = Duration::from_mins(1);

/// Environment variable with further checks of `scripts/sanitize.sh`, such as `thread miri`.
const FURTHER_SANITIZERS: &str = "GRAPH_DIFFUSER_SANITIZE";

/// Runs all checks on the workspace at `root` and prints a summary.
///
/// # Errors
/// Returns an error that lists the failed checks.
pub(crate) fn ci(root: &Path) -> anyhow::Result<()> {
    let mut summary = String::new();
    let mut failed = Vec::new();
    for Check { name, run } in CHECKS {
        eprintln!("\n== {name}");
        let start = Instant::now();
        let result = run(root);
        let seconds = start.elapsed().as_secs_f64();
        let status = match result {
            Ok(Outcome::Passed) => "passed".to_owned(),
            Ok(Outcome::Limited(reason)) => format!("passed in part: {reason}"),
            Ok(Outcome::Skipped(reason)) => format!("skipped: {reason}"),
            Err(error) => {
                failed.push(name);
                format!("failed: {error:#}")
            }
        };
        eprintln!("{name} {status}");
        summary += &format!("{name:<10}{seconds:>7.1} s  {status}\n");
    }
    eprint!("\n== summary\n{summary}");
    ensure!(failed.is_empty(), "{} checks failed: {}", failed.len(), failed.join(", "));
    Ok(())
}

/// Runs one check.
///
/// # Errors
/// Returns an error if there is no such check or it fails.
pub(crate) fn one(root: &Path, name: &str) -> anyhow::Result<()> {
    let check = CHECKS.iter().find(|check| check.name == name);
    let check = check.with_context(|| format!("no check `{name}`"))?;
    match (check.run)(root)? {
        Outcome::Passed => {}
        Outcome::Limited(reason) | Outcome::Skipped(reason) => eprintln!("{name}: {reason}"),
    }
    Ok(())
}

fn format(root: &Path) -> anyhow::Result<Outcome> {
    if !is_installed("fmt") {
        return Ok(Outcome::Skipped("install rustfmt with `rustup component add rustfmt`"));
    }
    cargo(root, &["fmt", "--all", "--check"])
}

fn clippy(root: &Path) -> anyhow::Result<Outcome> {
    if !is_installed("clippy") {
        return Ok(Outcome::Skipped("install clippy with `rustup component add clippy`"));
    }
    cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

/// Lints the connection to MPI and tests distributed training under its launcher.
fn mpi(root: &Path) -> anyhow::Result<Outcome> {
    let is_installed = |program: &str| succeeds(Command::new(program).arg("--version"));
    if !is_installed("mpicc") || !is_installed("mpirun") || !has_libclang() {
        return Ok(Outcome::Skipped("install MPI and libclang, see docs/guide/cluster.md"));
    }
    let arguments = "test --workspace --features graph-diffuser-cli/mpi --test mpi";
    cargo(root, &arguments.split(' ').collect::<Vec<_>>())?;
    if self::is_installed("clippy") {
        let arguments =
            "clippy --workspace --features graph-diffuser-cli/mpi --bins -- -D warnings";
        cargo(root, &arguments.split(' ').collect::<Vec<_>>())?;
    }
    Ok(Outcome::Passed)
}

/// Returns whether libclang, which generates the bindings to MPI, is where its loader looks.
fn has_libclang() -> bool {
    let contains = |directory: &Path| {
        std::fs::read_dir(directory).into_iter().flatten().flatten().any(|file| {
            let name = file.file_name();
            name.to_string_lossy().starts_with("libclang") && name.to_string_lossy().contains("so")
        })
    };
    let versions = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let versions = versions.filter(|entry| entry.file_name().to_string_lossy().contains("llvm"));
    let linked = Command::new("ldconfig").arg("-p").output();
    std::env::var_os("LIBCLANG_PATH").is_some()
        || versions.map(|entry| entry.path().join("lib")).any(|lib| contains(&lib))
        || linked.is_ok_and(|found| String::from_utf8_lossy(&found.stdout).contains("libclang"))
}

/// Tests the GPU kernels, and models on a GPU, and type-checks the CUDA backend, if that is asked
/// for and there is a driver.
///
/// CubeCL and wgpu take about ten CPU minutes to compile, and CUDA five, which the other checks do
/// not need.
fn gpu(root: &Path) -> anyhow::Result<Outcome> {
    if std::env::var_os("GRAPH_DIFFUSER_REQUIRE_GPU").is_none() {
        return Ok(Outcome::Skipped("set GRAPH_DIFFUSER_REQUIRE_GPU=1, see docs/guide/gpu.md"));
    }
    let arguments = "test --profile gpu -p graph-diffuser -p graph-diffuser-cube \
                   --features graph-diffuser/gpu,graph-diffuser-cube/wgpu --lib --test gpu";
    cargo(root, &arguments.split_whitespace().collect::<Vec<_>>())?;
    check_cuda(root)
}

/// Type-checks the library with the feature `cuda`.
fn check_cuda(root: &Path) -> anyhow::Result<Outcome> {
    let arguments = ["check", "--profile", "gpu", "-p", "graph-diffuser", "--features", "cuda"];
    eprintln!("DOCS_RS=1 cargo {}", arguments.join(" "));
    // With this variable, the build scripts of two dependencies do not download LLVM, which only
    // linking needs.
    let status = command(root, &arguments).env("DOCS_RS", "1").status();
    let status = status.context("cannot start cargo")?;
    ensure!(status.success(), "the check of the feature `cuda` ended with {status}");
    Ok(Outcome::Passed)
}

/// Builds and tests the Python package.
fn python(root: &Path) -> anyhow::Result<Outcome> {
    python::python(root, |root, arguments| cargo(root, arguments).map(|_| ()))
}

/// Packs every crate that can be published; the compiler has seen the sources already.
fn packages(root: &Path) -> anyhow::Result<Outcome> {
    let arguments = "package --workspace --exclude xtask --exclude graph-diffuser-python \
                     --no-verify --allow-dirty --quiet";
    cargo(root, &arguments.split(' ').collect::<Vec<_>>())
}

/// Checks licenses, sources and banned crates, and advisories if their database can be fetched.
fn deny(root: &Path) -> anyhow::Result<Outcome> {
    if !is_installed("deny") {
        let hint = "install cargo-deny with `cargo install cargo-deny --locked`";
        return Ok(Outcome::Skipped(hint));
    }
    let mut fetch = command(root, &["deny", "fetch", "db"]);
    if wait(fetch.spawn()?, FETCH_TIMEOUT).is_ok_and(|status| status.success()) {
        return cargo(root, &["deny", "check"]);
    }
    cargo(root, &["deny", "check", "bans", "licenses", "sources"])?;
    Ok(Outcome::Limited("advisories were not checked, because their database cannot be fetched"))
}

/// Compiles the fuzz targets that do not depend on Burn; running them needs a nightly compiler.
fn fuzz(root: &Path) -> anyhow::Result<Outcome> {
    cargo(root, &["check", "--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target/fuzz"])
}

/// Checks unsafe code with loom and, if there is a nightly compiler, the address sanitizer; the
/// thread sanitizer and Miri take ten minutes, and run on request only.
fn sanitize(root: &Path) -> anyhow::Result<Outcome> {
    const SOME_SKIPPED: i32 = 3;
    if !succeeds(Command::new("bash").arg("--version")) {
        return Ok(Outcome::Skipped("`scripts/sanitize.sh` needs bash"));
    }
    let has_nightly =
        succeeds(Command::new("rustup").args(["run", "nightly", "cargo", "--version"]));
    let requested = std::env::var(FURTHER_SANITIZERS).unwrap_or_default();
    // Without these variables, which refer to the compiler of this program, `cargo +nightly` works.
    let mut script = Command::new("bash");
    script.args(["scripts/sanitize.sh", "loom"]).args(has_nightly.then_some("address"));
    script.args(requested.split_whitespace()).current_dir(root);
    script.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    let status = script.status().context("cannot start `scripts/sanitize.sh`")?;
    if status.code() == Some(SOME_SKIPPED) {
        return Ok(Outcome::Limited("a tool is missing, see above"));
    }
    ensure!(status.success(), "`scripts/sanitize.sh` ended with {status}");
    Ok(if has_nightly {
        Outcome::Passed
    } else {
        Outcome::Limited(
            "only loom; for the address sanitizer, install the nightly compiler with \
             `rustup toolchain install nightly`",
        )
    })
}

/// Waits for a process and ends it after `timeout`.
fn wait(mut process: Child, timeout: Duration) -> anyhow::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > timeout {
            process.kill()?;
            process.wait()?;
            bail!("no result after {timeout:?}");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<Outcome> {
    let line = format!("cargo {}", arguments.join(" "));
    eprintln!("{line}");
    let status = command(root, arguments).status();
    let status = status.with_context(|| format!("cannot start `{line}`"))?;
    ensure!(status.success(), "`{line}` ended with {status}");
    Ok(Outcome::Passed)
}

/// Returns a cargo command in which warnings of rustdoc are errors.
fn command(root: &Path, arguments: &[&str]) -> Command {
    // The cargo that runs this program, so that every check uses the same toolchain.
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    without_package_variables(&mut command)
        .args(arguments)
        .current_dir(root)
        .env("RUSTDOCFLAGS", "-D warnings");
    command
}

fn is_installed(subcommand: &str) -> bool {
    succeeds(&mut command(Path::new("."), &[subcommand, "--version"]))
}

/// Runs a command without output.
fn succeeds(command: &mut Command) -> bool {
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}
