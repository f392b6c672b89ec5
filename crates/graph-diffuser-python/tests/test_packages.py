"""Wheels and source distributions: contents, version, and use after `pip install`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

import graph_diffuser as gd

DIRECTORY = os.environ.get("GRAPH_DIFFUSER_PACKAGES")
if DIRECTORY is None:
    reason = "there are no packages to test; `cargo xtask ci python` builds them"
    pytest.skip(reason, allow_module_level=True)
VERSION = gd.__version__
MODULES = {"__init__", "_errors", "convert", "files", "graph", "model", "sklearn", "training"}


def package(pattern: str) -> Path:
    (found,) = Path(str(DIRECTORY)).glob(pattern)
    return found


def metadata(wheel: zipfile.ZipFile) -> Any:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def install(wheel: Path, target: Path) -> None:
    """Installs a wheel with pip, without its dependencies, which are in this environment."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*command, "--target", str(target), str(wheel)], check=True)


@pytest.fixture(scope="module")
def installed_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("program")
    install(package("graph_diffuser_cli-*.whl"), target)
    return target / "bin/graph-diffuser"


def test_wheel_of_the_package_has_the_modules_stubs_and_licenses() -> None:
    path = package("graph_diffuser-*.whl")
    assert path.name.startswith(f"graph_diffuser-{VERSION}-cp310-abi3-")
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        fields = metadata(wheel)
    files = {f"graph_diffuser/{module}.py" for module in MODULES}
    files |= {f"graph_diffuser/{name}" for name in ("_native.abi3.so", "_native.pyi", "py.typed")}
    dist_info = f"graph_diffuser-{VERSION}.dist-info/"
    assert {name for name in names if not name.startswith(dist_info)} == files
    for name in ("RECORD", "WHEEL", "licenses/LICENSE-APACHE", "licenses/LICENSE-MIT"):
        assert dist_info + name in names
    assert (fields["Name"], fields["Version"]) == ("graph-diffuser", VERSION)
    assert fields["Requires-Python"] == ">=3.10"
    required = [text for text in fields.get_all("Requires-Dist") if "extra" not in text]
    assert required == ["numpy>=1.23"]
    assert "gd.load" in fields.get_payload()


def test_version_is_that_of_the_workspace() -> None:
    manifest = Path(__file__).resolve().parents[3] / "Cargo.toml"
    found = re.search(r'\[workspace\.package\]\nversion = "(.*)"', manifest.read_text())
    assert found is not None and found[1] == VERSION


def test_installed_package_predicts(tmp_path: Path) -> None:
    install(package("graph_diffuser-*.whl"), tmp_path / "site")
    code = "import graph_diffuser as gd; print(gd.__file__, gd.load('pretrained:zinc').predict(['CCO'])[0, 0])"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    file, value = done.stdout.split()
    assert Path(file).is_relative_to(tmp_path / "site")
    assert value == str(gd.load("pretrained:zinc").predict(["CCO"])[0, 0])


def test_wheel_of_the_program_has_only_the_program() -> None:
    path = package("graph_diffuser_cli-*.whl")
    assert path.name.startswith(f"graph_diffuser_cli-{VERSION}-py3-none-")
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        fields = metadata(wheel)
    assert names == [f"graph_diffuser_cli-{VERSION}.data/scripts/graph-diffuser"]
    assert (fields["Name"], fields["Version"]) == ("graph-diffuser-cli", VERSION)
    assert fields.get_all("Requires-Dist") is None


def test_installed_program_has_the_output_and_exit_codes_of_the_program(
    installed_program: Path, tmp_path: Path
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        command = [str(installed_program), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stdout

    assert run("--version") == (0, f"graph-diffuser {VERSION}\n")
    assert run("eval", "missing")[0] == 2
    assert run("recipe", "show", "grid-quick", "--json")[0] == 0
    head = f"'{installed_program}' recipe reference | head -1"
    assert subprocess.run(["sh", "-c", head], capture_output=True, text=True).stderr == ""


def test_installed_program_saves_an_interrupted_run(
    installed_program: Path, tmp_path: Path
) -> None:
    settings = ["data.rows=3", "data.train=200", "data.valid=10", "data.test=10", "train.epochs=5000"]
    command = [str(installed_program), "train", "grid-quick", "-o", "run"]
    command += [argument for setting in settings for argument in ("--set", setting)]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    for _ in range(600):
        metrics = tmp_path / "run/metrics.jsonl"
        if metrics.is_file() and metrics.read_text():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert (tmp_path / "run/checkpoints/last/manifest.json").is_file()


@pytest.mark.parametrize("name", ["graph_diffuser", "graph_diffuser_cli"])
def test_source_distribution_is_a_complete_workspace(name: str, tmp_path: Path) -> None:
    with tarfile.open(package(f"{name}-{VERSION}.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    root = tmp_path / f"{name}-{VERSION}"
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert {"Cargo.lock", "PKG-INFO", "pyproject.toml"} <= files
    for file in ("recipes/molecules.toml", "pretrained/zinc/weights.safetensors", "src/lib.rs"):
        assert f"crates/graph-diffuser/{file}" in files
    assert any(file.startswith("crates/graph-diffuser-viz/fonts/") for file in files)
    # Files that are included by name must be there to compile; fixtures of tests are not packed.
    for source in root.rglob("*.rs"):
        for included in re.findall(r'include_(?:bytes|str)!\(\s*"([^"]+)"', source.read_text()):
            if "/tests/" in included:
                continue
            assert (source.parent / included).is_file(), (source, included)
    cargo = os.environ.get("CARGO") or shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is not installed")
    command = [cargo, "metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
