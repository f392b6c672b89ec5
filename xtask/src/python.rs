//! The check `python`: builds the Python packages and runs their tests.
//!
//! The extension is the one that `cargo build --workspace` compiles, so that dependencies are not
//! compiled again; it is copied into the source of the package, as `maturin develop` does. Wheels
//! of the extension and of the program are packed from the same build, and tested as installed
//! packages.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX, EXE_SUFFIX};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::outcome::Outcome;
use crate::repository::without_package_variables;

/// Directory of the package of the extension.
const PACKAGE: &str = "crates/graph-diffuser-python";
/// Directory of the package of the program.
const PROGRAM_PACKAGE: &str = "crates/graph-diffuser-cli";
/// Cargo for maturin: builds the whole workspace, of which maturin finds its artifacts.
///
/// Maturin builds a single package, for which cargo selects other features of dependencies than for
/// the tests, and would compile them again. Its variables for pyo3 would do so, too. It takes the
/// last executable of a package for its program, so those of tests are not reported.
const CARGO_OF_MATURIN: &str = r#"#!/bin/sh
if [ "$1" = rustc ]; then
  for name in $(env | sed -n 's/^\(PYO3_[A-Z0-9_]*\)=.*/\1/p'); do unset "$name"; done
  messages=$("$WORKSPACE_CARGO" BUILD --message-format json-render-diagnostics) || exit
  printf '%s\n' "$messages" | grep -v '"kind":\["test"\]'
  exit 0
fi
exec "$WORKSPACE_CARGO" "$@"
"#;
/// Packages that the tests use; tests of PyTorch Geometric are skipped where it is not installed.
const REQUIREMENTS: [&str; 9] = [
    "maturin>=1.9,<2",
    "mypy",
    "networkx",
    "numpy",
    "pandas",
    "pytest",
    "safetensors",
    "scikit-learn>=1.6",
    "scipy",
];
/// Builds the extension and the program. With a test, dependencies have the features that they have
/// in `cargo test --workspace`, and are not compiled again.
const BUILD: [&str; 6] = ["build", "--workspace", "--lib", "--bins", "--test", "documentation"];

/// Builds and tests the Python package; `cargo` runs a cargo command.
///
/// # Errors
/// Returns an error if the extension cannot be built or a test fails.
pub(crate) fn python(
    root: &Path,
    cargo: impl Fn(&Path, &[&str]) -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    let Some(interpreter) = interpreter() else {
        return Ok(Outcome::Skipped("Python 3.10 or newer is not installed"));
    };
    if cfg!(windows) {
        return Ok(Outcome::Skipped("the check needs a Unix shell"));
    }
    let Some(venv) = virtual_environment(root, interpreter)? else {
        return Ok(Outcome::Skipped(
            "pip cannot reach a package index to install the tests' packages",
        ));
    };
    cargo(root, &BUILD)?;
    let package = root.join(PACKAGE);
    let source = package.join("python");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let built = target.join(format!("debug/{DLL_PREFIX}_native{DLL_SUFFIX}"));
    let copy = source.join("graph_diffuser/_native.abi3.so");
    // A file that is in use must not be overwritten in place.
    let _ = fs::remove_file(&copy);
    fs::copy(&built, &copy).with_context(|| format!("cannot copy `{}`", built.display()))?;
    let packages = root.join("target/python/packages");
    fs::create_dir_all(&packages).context("cannot create the directory of the packages")?;
    for old in fs::read_dir(&packages).into_iter().flatten().flatten() {
        fs::remove_file(old.path()).context("cannot remove an old package")?;
    }
    let maturin_cargo = root.join("target/python/cargo");
    write_script(&maturin_cargo, &CARGO_OF_MATURIN.replace("BUILD", &BUILD.join(" ")))?;
    let workspace_cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let run = |directory: &Path, arguments: &[&str]| {
        let line = format!("python {}", arguments.join(" "));
        eprintln!("{line}");
        let status = without_package_variables(&mut Command::new(&venv))
            .args(arguments)
            .current_dir(directory)
            .env(
                "CARGO",
                if arguments.contains(&"build") {
                    maturin_cargo.as_os_str()
                } else {
                    &workspace_cargo
                },
            )
            .env("WORKSPACE_CARGO", &workspace_cargo)
            .env("PYTHONPATH", &source)
            .env("MYPYPATH", &source)
            .env("GRAPH_DIFFUSER_PACKAGES", &packages)
            .env("GRAPH_DIFFUSER_PROGRAM", target.join(format!("debug/graph-diffuser{EXE_SUFFIX}")))
            .status()?;
        ensure!(status.success(), "`{line}` ended with {status}");
        anyhow::Ok(())
    };
    let out = packages.to_str().context("the path of the repository is not UTF-8")?;
    for directory in [PACKAGE, PROGRAM_PACKAGE].map(|directory| root.join(directory)) {
        let build = "-m maturin build --profile dev --auditwheel skip --compression-level 1 --out";
        run(&directory, &build.split(' ').chain([out]).collect::<Vec<_>>())?;
        run(&directory, &["-m", "maturin", "sdist", "--out", out])?;
    }
    run(&package, &["-m", "pytest", "-q", "-rs", "--durations=10"])?;
    run(&package, &["-m", "mypy"])?;
    run(&package, &["-m", "mypy.stubtest", "graph_diffuser._native"])?;
    let imports_pyg =
        Command::new(&venv).args(["-c", "import torch_geometric"]).stderr(Stdio::null()).status();
    Ok(if imports_pyg.is_ok_and(|status| status.success()) {
        Outcome::Passed
    } else {
        Outcome::Limited(
            "tests and example of PyTorch Geometric, which is not installed, were skipped",
        )
    })
}

/// Writes an executable script.
fn write_script(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Returns the name of an interpreter of a supported version.
fn interpreter() -> Option<&'static str> {
    let is_supported = |name: &&str| {
        let code = "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))";
        is_successful(Command::new(name).args(["-c", code]))
    };
    ["python3", "python"].into_iter().find(is_supported)
}

/// Creates a virtual environment with the required packages, unless it exists, and returns its
/// interpreter; `None` without a network connection. Packages of the system are visible, so that an
/// installed torch is used.
///
/// # Errors
/// Returns an error if a requirement cannot be installed although pip reaches its index.
fn virtual_environment(root: &Path, interpreter: &str) -> anyhow::Result<Option<PathBuf>> {
    let directory = root.join("target/python/venv");
    let python = directory.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let installed = directory.join("requirements.txt");
    let requirements = REQUIREMENTS.join("\n");
    if fs::read_to_string(&installed).is_ok_and(|found| found == requirements) {
        return Ok(Some(python));
    }
    let mut create = Command::new(interpreter);
    create.args(["-m", "venv", "--system-site-packages"]).arg(&directory);
    ensure!(is_successful(&mut create), "`{interpreter} -m venv` failed");
    let pip = |arguments: &[&str]| {
        let mut command = Command::new(&python);
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        command.args(arguments);
        command
    };
    let install = [&["--no-compile"], &REQUIREMENTS[..]].concat();
    // A package that needs nothing: if pip cannot find it, it can find none.
    let probe = ["--dry-run", "--ignore-installed", "--no-deps", "--retries", "1", "pip"];
    if !install_or_probe(&mut pip(&install), pip(&probe).stderr(Stdio::null()))? {
        return Ok(None);
    }
    fs::write(&installed, requirements).context("cannot write the installed requirements")?;
    Ok(Some(python))
}

/// Runs the installation of the requirements; returns `false` if `probe` fails, too, because there
/// is no network connection.
///
/// # Errors
/// Returns an error if only the installation fails.
fn install_or_probe(install: &mut Command, probe: &mut Command) -> anyhow::Result<bool> {
    if is_successful(install) {
        return Ok(true);
    }
    ensure!(
        !is_successful(probe),
        "pip reaches its index, but cannot install the packages of the tests: {}",
        REQUIREMENTS.join(", ")
    );
    Ok(false)
}

fn is_successful(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn broken_requirement_is_an_error_and_a_missing_network_is_not() {
        let run = |install: &str, probe: &str| {
            install_or_probe(&mut Command::new(install), &mut Command::new(probe))
        };
        assert!(run("true", "false").expect("installed"));
        assert!(!run("false", "false").expect("no network"));
        assert!(run("false", "true").expect_err("broken").to_string().contains("scikit-learn"));
    }
}
