"""Forked processes, joblib workers and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graph_diffuser as gd

SMILES = ["CCO", "c1ccccc1O", "CC(=O)Nc1ccc(O)cc1"] * 10


def predict_in_child(model: gd.Model, expected: Any, seconds: float = 60) -> None:
    """Predicts in a forked process, which must end in time with the expected values."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if np.array_equal(model.predict(SMILES), expected) else 2
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the forked process hangs")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_process_predicts_while_the_parent_is_idle_or_busy(zinc: gd.Model) -> None:
    expected = zinc.predict(SMILES)
    for _ in range(5):
        predict_in_child(zinc, expected)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            zinc.predict(SMILES)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(5):
            predict_in_child(zinc, expected)
    finally:
        stop.set()
        thread.join()
    assert np.array_equal(zinc.predict(SMILES), expected)


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_joblib_workers_give_the_same_predictions(trained: gd.Model, backend: str) -> None:
    joblib = pytest.importorskip("joblib")
    parts = [SMILES[:10], SMILES[10:20], SMILES[20:]]
    parallel = joblib.Parallel(n_jobs=2, backend=backend)
    found = parallel(joblib.delayed(trained.predict)(part) for part in parts)
    assert np.array_equal(np.concatenate(found), trained.predict(SMILES))


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_number_of_threads_follows_the_environment() -> None:
    code = "import graph_diffuser as gd; print(gd.num_threads())"
    assert run_python(code, OMP_NUM_THREADS="3") == "3"
    assert run_python(code, OMP_NUM_THREADS="") == str(len(os.sched_getaffinity(0)))


def test_import_needs_numpy_only() -> None:
    code = """
import sys
import graph_diffuser as gd
heavy = {"torch", "sklearn", "pandas", "networkx", "scipy"} & set(sys.modules)
assert not heavy, heavy
try:
    gd.nothing
except AttributeError:
    print("ok")
"""
    assert run_python(code) == "ok"


def test_signal_from_outside_saves_the_run(tmp_path: Path, small: dict[str, Any]) -> None:
    code = f"""
import graph_diffuser as gd
smiles = [("C" * size) + end for size in range(1, 13) for end in ("", "O", "N", "Cl")]
print("start", flush=True)
try:
    gd.train(data=smiles, y=range(48), out={str(tmp_path / "run")!r}, epochs=100000,
             settings={small!r}, progress=lambda event: print(event["event"], flush=True))
except KeyboardInterrupt as error:
    print("saved", "resume" in str(error), flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "epoch":
            break
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(60) == 0
    assert "saved True" in rest
    assert (tmp_path / "run/checkpoints/last/manifest.json").is_file()


def test_other_threads_run_while_a_model_trains(
    tmp_path: Path, molecules: Any, small: dict[str, Any]
) -> None:
    ticks, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    gd.train(data=molecules[0], y=molecules[1], out=tmp_path / "run", epochs=2, settings=small)
    seconds = time.monotonic() - start
    stop.set()
    thread.join()
    assert ticks[0] > 20 * seconds
