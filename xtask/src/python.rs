//! The check `python`: builds the extension of the Python package and runs its tests.
//!
//! The extension is the one that `cargo build --workspace` compiles, so that dependencies are not
//! compiled again; it is copied into the source of the package, as `maturin develop` does.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX, EXE_SUFFIX};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// Directory of the package.
const PACKAGE: &str = "crates/graph-diffuser-python";
/// Packages that the tests use; tests of PyTorch Geometric are skipped where it is not installed.
const REQUIREMENTS: [&str; 8] = [
    "maturin>=1.9,<2",
    "mypy",
    "networkx",
    "numpy",
    "pandas",
    "pytest",
    "scikit-learn>=1.6",
    "scipy",
];
/// Builds the extension and the program. With a test, dependencies have the features that they have
/// in `cargo test --workspace`, and are not compiled again.
const BUILD: [&str; 6] = ["build", "--workspace", "--lib", "--bins", "--test", "documentation"];

/// Reason why the check cannot run, or none if it passed.
pub(crate) type Skipped = Option<&'static str>;

/// Builds and tests the Python package; `cargo` runs a cargo command.
///
/// # Errors
/// Returns an error if the extension cannot be built or a test fails.
pub(crate) fn python(
    root: &Path,
    cargo: impl Fn(&Path, &[&str]) -> anyhow::Result<()>,
) -> anyhow::Result<Skipped> {
    let Some(interpreter) = interpreter() else {
        return Ok(Some("Python 3.10 or newer is not installed"));
    };
    let Some(venv) = virtual_environment(root, interpreter) else {
        return Ok(Some("the packages of the tests cannot be installed"));
    };
    cargo(root, &BUILD)?;
    let package = root.join(PACKAGE);
    let source = package.join("python");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let built = target.join(format!("debug/{DLL_PREFIX}_native{DLL_SUFFIX}"));
    let name = if cfg!(windows) { "_native.pyd" } else { "_native.abi3.so" };
    let copy = source.join("graph_diffuser").join(name);
    // A file that is in use must not be overwritten in place.
    let _ = fs::remove_file(&copy);
    fs::copy(&built, &copy).with_context(|| format!("cannot copy `{}`", built.display()))?;
    let program = target.join(format!("debug/graph-diffuser{EXE_SUFFIX}"));
    for arguments in [
        &["-m", "pytest", "-q", "-rs", "--durations=5"][..],
        &["-m", "mypy"],
        &["-m", "mypy.stubtest", "graph_diffuser._native"],
        &["-m", "maturin", "sdist", "--out", "../../target/python/sdist"],
    ] {
        let line = format!("python {}", arguments.join(" "));
        eprintln!("{line}");
        let status = Command::new(&venv)
            .args(arguments)
            .current_dir(&package)
            .env("PYTHONPATH", &source)
            .env("MYPYPATH", &source)
            .env("GRAPH_DIFFUSER_PROGRAM", &program)
            .status()?;
        ensure!(status.success(), "`{line}` ended with {status}");
    }
    Ok(None)
}

/// Returns the name of an interpreter of a supported version.
fn interpreter() -> Option<&'static str> {
    let is_supported = |name: &&str| {
        let code = "import sys, venv; sys.exit(sys.version_info < (3, 10))";
        is_successful(Command::new(name).args(["-c", code]))
    };
    ["python3", "python"].into_iter().find(is_supported)
}

/// Creates a virtual environment with the required packages, unless it exists, and returns its
/// interpreter. Packages of the system are visible, so that an installed torch is used.
fn virtual_environment(root: &Path, interpreter: &str) -> Option<PathBuf> {
    let directory = root.join("target/python/venv");
    let python = directory.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let installed = directory.join("requirements.txt");
    let requirements = REQUIREMENTS.join("\n");
    if fs::read_to_string(&installed).is_ok_and(|found| found == requirements) {
        return Some(python);
    }
    let mut create = Command::new(interpreter);
    create.args(["-m", "venv", "--system-site-packages"]).arg(&directory);
    let mut install = Command::new(&python);
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
    ]);
    install.args(REQUIREMENTS);
    let is_ready = is_successful(&mut create) && is_successful(&mut install);
    (is_ready && fs::write(&installed, requirements).is_ok()).then_some(python)
}

fn is_successful(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}
