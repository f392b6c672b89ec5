"""Trains one method on the splits of the molecule benchmark and records its test predictions.

    python run.py --out OUT --data DATA METHOD [--datasets esol ...] [--kinds scaffold ...] [--seeds 0 ...]
        [--program PATH] [--set KEY=VALUE ...] [--name NAME]

METHOD is `forest`, `chemprop`, `chemprop-rdkit` or `graph-diffuser`. Every model is trained in its own process with
one thread; `OUT/results/NAME/DATASET-KIND-SEED.json` holds the scores, CPU seconds, peak memory and the test predictions.
Finished cells are skipped, so that an interrupted benchmark continues.
"""

import argparse
import csv
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import splits

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
}


def read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        targets = [name for name in reader.fieldnames if name not in ("smiles", "split")]
        return targets, list(reader)


def number(text: str | None) -> float:
    return float(text) if text else math.nan


class Peer:
    """A method: trains on a split and returns predictions for the test rows."""

    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.seconds = 0.0
        self.memory = 0

    def process(self, command: list[str], log: Path) -> None:
        """Runs a process and adds its CPU seconds and peak memory."""
        with log.open("a") as file:
            file.write(" ".join(command) + "\n")
            file.flush()
            child = subprocess.Popen(
                command, stdout=file, stderr=file, env={**os.environ, **ENVIRONMENT}
            )
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise RuntimeError(f"{command[0]} exited with {child.returncode}, see {log}")
        self.seconds += usage.ru_utime + usage.ru_stime
        self.memory = max(self.memory, usage.ru_maxrss // 1024)

    def predict(self, table: Path, task: str, seed: int, directory: Path) -> list[list[float]]:
        raise NotImplementedError


class Forest(Peer):
    """Random forest of 500 trees on count Morgan fingerprints (radius 2, 2,048 bins), one per target."""

    def predict(self, table: Path, task: str, seed: int, directory: Path) -> list[list[float]]:
        output = directory / "forest.json"
        self.process(
            [sys.executable, __file__, "forest-worker", str(table), task, str(seed), str(output)],
            directory / "log.txt",
        )
        return json.loads(output.read_text())


def forest_worker(table: Path, task: str, seed: int, output: Path) -> None:
    import numpy
    from rdkit import Chem
    from rdkit.Chem import rdFingerprintGenerator
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    targets, rows = read_table(table)
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    molecules = (Chem.MolFromSmiles(row["smiles"]) for row in rows)
    features = numpy.array([generator.GetCountFingerprintAsNumPy(molecule) for molecule in molecules])
    parts = numpy.array([row["split"] for row in rows])
    columns = []
    for target in targets:
        values = numpy.array([number(row[target]) for row in rows])
        train = (parts == "train") & ~numpy.isnan(values)
        if task == "regression":
            forest = RandomForestRegressor(500, random_state=seed)
            columns.append(forest.fit(features[train], values[train]).predict(features[parts == "test"]))
        else:
            forest = RandomForestClassifier(500, random_state=seed).fit(features[train], values[train])
            probabilities = forest.predict_proba(features[parts == "test"])
            positive = list(forest.classes_).index(1.0) if 1.0 in forest.classes_ else None
            zeros = numpy.zeros(len(probabilities))
            columns.append(zeros if positive is None else probabilities[:, positive])
    output.write_text(json.dumps(numpy.array(columns).T.tolist()))


class Chemprop(Peer):
    """chemprop with its defaults, optionally with RDKit's 2D descriptors."""

    descriptors = False

    def predict(self, table: Path, task: str, seed: int, directory: Path) -> list[list[float]]:
        targets, rows = read_table(table)
        # chemprop calls the validation split `val`.
        renamed = directory / "table.csv"
        with table.open(newline="") as source, renamed.open("w", newline="") as file:
            reader, writer = csv.reader(source), csv.writer(file)
            for row in reader:
                writer.writerow([*row[:-1], "val" if row[-1] == "valid" else row[-1]])
        chemprop = Path(sys.executable).parent / "chemprop"
        command = [
            str(chemprop), "train", "--data-path", str(renamed), "--task-type", task,
            "--smiles-columns", "smiles", "--target-columns", *targets, "--splits-column", "split",
            "--output-dir", str(directory / "model"), "--pytorch-seed", str(seed),
            "--accelerator", "cpu", "--num-workers", "0",
        ]  # fmt: skip
        if self.descriptors:
            command += ["--molecule-featurizers", "rdkit_2d"]
        self.process(command, directory / "log.txt")
        _, predicted = read_table(next((directory / "model").rglob("test_predictions.csv")))
        by_smiles = [[number(row[target]) for target in targets] for row in predicted]
        test = [row["smiles"] for row in rows if row["split"] == "test"]
        assert [row["smiles"] for row in predicted] == test, "chemprop reordered the test rows"
        return by_smiles


class ChempropDescriptors(Chemprop):
    descriptors = True


class GraphDiffuser(Peer):
    """`graph-diffuser train TABLE`, with the settings given on the command line."""

    def predict(self, table: Path, task: str, seed: int, directory: Path) -> list[list[float]]:
        targets, rows = read_table(table)
        run, test = directory / "run", directory / "test.csv"
        program = str(self.arguments.program)
        settings = [part for setting in self.arguments.set for part in ("--set", setting)]
        command = [program, "train", str(table), "--seed", str(seed), "-o", str(run), "--threads", "1"]
        self.process([*command, *self.arguments.options.split(), *settings], directory / "log.txt")
        with test.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["smiles"])
            writer.writerows([row["smiles"]] for row in rows if row["split"] == "test")
        output = directory / "predictions.csv"
        predict = [program, "predict", str(run), "--input", str(test), "-o", str(output)]
        self.process([*predict, "--threads", "1"], directory / "log.txt")
        _, predicted = read_table(output)
        suffix = "pred" if task == "regression" else "prob"
        return [[number(row[f"{target}_{suffix}"]) for target in targets] for row in predicted]


METHODS = {
    "forest": Forest,
    "chemprop": Chemprop,
    "chemprop-rdkit": ChempropDescriptors,
    "graph-diffuser": GraphDiffuser,
}


def score(task: str, truth: list[list[float]], predicted: list[list[float]]) -> float:
    """RMSE or ROC-AUC, averaged over the targets for which it is defined."""
    import numpy
    from sklearn.metrics import roc_auc_score

    scores = []
    for target, prediction in zip(zip(*truth), zip(*predicted)):
        known = ~numpy.isnan(target)
        values, estimates = numpy.array(target)[known], numpy.array(prediction)[known]
        if task == "regression":
            scores.append(float(numpy.sqrt(numpy.mean((values - estimates) ** 2))))
        elif len(set(values)) == 2:
            scores.append(float(roc_auc_score(values, estimates)))
    return sum(scores) / len(scores)


def run_cell(peer: Peer, table: Path, task: str, seed: int, work: Path) -> dict:
    start = time.time()
    if work.exists():
        shutil.rmtree(work)
    work.mkdir(parents=True)
    predicted = peer.predict(table, task, seed, work)
    targets, rows = read_table(table)
    truth = [[number(row[target]) for target in targets] for row in rows if row["split"] == "test"]
    return {
        "score": score(task, truth, predicted),
        "cpu_seconds": round(peer.seconds, 1),
        "wall_seconds": round(time.time() - start, 1),
        "peak_mb": peer.memory,
        # Nine digits keep the order of single-precision probabilities.
        "predictions": [[float(f"{value:.9g}") for value in row] for row in predicted],
    }


def main() -> None:
    if sys.argv[1:2] == ["forest-worker"]:
        table, task, seed, output = sys.argv[2:]
        forest_worker(Path(table), task, int(seed), Path(output))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--data", type=Path, required=True, help="directory of the MoleculeNet CSV files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=list(splits.DATASETS), choices=splits.DATASETS)
    parser.add_argument("--kinds", nargs="+", default=list(splits.KINDS), choices=splits.KINDS)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(splits.REPORT_SEEDS))
    parser.add_argument("--name", help="name of the results, by default that of the method")
    parser.add_argument("--program", type=Path, help="the graph-diffuser binary")
    parser.add_argument("--set", action="append", default=[], help="setting of graph-diffuser")
    parser.add_argument("--options", default="", help="further arguments of `graph-diffuser train`")
    arguments = parser.parse_args()
    results = arguments.out / "results" / (arguments.name or arguments.method)
    results.mkdir(parents=True, exist_ok=True)
    for name in arguments.datasets:
        splits.write(name, arguments.data, arguments.out / "splits", arguments.seeds)
    for seed in arguments.seeds:
        for name in arguments.datasets:
            for kind in arguments.kinds:
                output = results / f"{name}-{kind}-{seed}.json"
                if output.exists():
                    continue
                with tempfile.TemporaryDirectory(dir=arguments.out) as directory:
                    table = splits.path(arguments.out / "splits", name, kind, seed)
                    task = splits.DATASETS[name].task
                    peer = METHODS[arguments.method](arguments)
                    try:
                        result = run_cell(peer, table, task, seed, Path(directory) / "cell")
                    except (RuntimeError, StopIteration) as error:
                        log = Path(directory) / "cell" / "log.txt"
                        shutil.copy(log, results / f"{name}-{kind}-{seed}.log")
                        print(f"{name} {kind} {seed}: {error}", file=sys.stderr)
                        continue
                partial = output.with_suffix(".part")
                partial.write_text(json.dumps(result))
                partial.rename(output)
                print(f"{results.name} {name} {kind} {seed}: {result['score']:.4f}", flush=True)


if __name__ == "__main__":
    main()
