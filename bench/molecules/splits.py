"""Datasets and splits of the molecule benchmark.

`python splits.py DATA OUT` writes one CSV per dataset, kind of split and seed, with the columns `smiles`, the targets and
`split` (train, valid, test: 80/10/10 %). Rows that RDKit cannot parse are dropped; every method gets the same files.
"""

import argparse
import csv
import gzip
import random
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

REPORT_SEEDS = range(5)
DEVELOPMENT_SEEDS = range(100, 105)
KINDS = ("random", "scaffold")


@dataclass(frozen=True)
class Dataset:
    """A MoleculeNet table: file name, target columns (all but `ignored` if empty) and task."""

    file: str
    task: str
    targets: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def metric(self) -> str:
        return "rmse" if self.task == "regression" else "roc_auc"


DATASETS = {
    "esol": Dataset(
        "delaney-processed.csv.gz", "regression", ("measured log solubility in mols per litre",)
    ),
    "freesolv": Dataset("freesolv.csv.gz", "regression"),
    "lipo": Dataset("lipo.csv.gz", "regression"),
    "bace": Dataset("bace.csv.gz", "classification"),
    "bbbp": Dataset("bbbp.csv.gz", "classification"),
    "clintox": Dataset("clintox.csv.gz", "classification"),
    "sider": Dataset("sider.csv.gz", "classification"),
    "tox21": Dataset("tox21.csv.gz", "classification", ignored=("mol_id",)),
    "hiv": Dataset("HIV.csv.gz", "classification", ("HIV_active",)),
}


def read(dataset: Dataset, data: Path) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Returns target names and the rows whose SMILES RDKit can parse."""
    from rdkit import Chem, RDLogger

    RDLogger.DisableLog("rdApp.*")
    with gzip.open(data / dataset.file, "rt", newline="") as file:
        reader = csv.DictReader(file)
        columns = [name for name in reader.fieldnames if name not in ("smiles", *dataset.ignored)]
        targets = list(dataset.targets) or columns
        rows = [
            (row["smiles"].strip(), [row[target] for target in targets])
            for row in reader
            if Chem.MolFromSmiles(row["smiles"].strip())
        ]
    return targets, rows


def random_split(smiles: list[str], seed: int) -> list[str]:
    order = list(range(len(smiles)))
    random.Random(seed).shuffle(order)
    parts = [""] * len(smiles)
    for place, row in enumerate(order):
        share = place / len(smiles)
        parts[row] = "train" if share < 0.8 else "valid" if share < 0.9 else "test"
    return parts


def scaffold_split(smiles: list[str], seed: int) -> list[str]:
    """Keeps every Bemis-Murcko scaffold in one part; scaffolds of more than half a part go first."""
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    scaffolds = defaultdict(list)
    for row, text in enumerate(smiles):
        scaffolds[MurckoScaffoldSmiles(smiles=text)].append(row)
    groups = [scaffolds[scaffold] for scaffold in sorted(scaffolds)]
    random.Random(seed).shuffle(groups)
    limit = len(smiles) * 0.1
    large = [group for group in groups if len(group) > limit / 2]
    small = [group for group in groups if len(group) <= limit / 2]
    parts = [""] * len(smiles)
    sizes = dict.fromkeys(("train", "valid", "test"), 0)
    capacity = {"train": len(smiles) * 0.8, "valid": limit, "test": len(smiles)}
    for group in large + small:
        part = next(name for name in sizes if sizes[name] + len(group) <= capacity[name])
        sizes[part] += len(group)
        for row in group:
            parts[row] = part
    return parts


def path(out: Path, name: str, kind: str, seed: int) -> Path:
    return out / f"{name}-{kind}-{seed}.csv"


def write(name: str, data: Path, out: Path, seeds: list[int]) -> None:
    missing = [
        (kind, seed) for kind in KINDS for seed in seeds if not path(out, name, kind, seed).exists()
    ]
    if not missing:
        return
    targets, rows = read(DATASETS[name], data)
    smiles = [row[0] for row in rows]
    out.mkdir(parents=True, exist_ok=True)
    for kind, seed in missing:
        split = random_split if kind == "random" else scaffold_split
        parts = split(smiles, seed)
        with path(out, name, kind, seed).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["smiles", *targets, "split"])
            for (text, values), part in zip(rows, parts):
                writer.writerow([text, *values, part])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="directory of the MoleculeNet CSV files")
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    for name in DATASETS:
        write(name, arguments.data, arguments.out, [*REPORT_SEEDS, *DEVELOPMENT_SEEDS])


if __name__ == "__main__":
    main()
