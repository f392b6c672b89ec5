"""Writes a table of ZINC molecules with RDKit descriptors as targets, on which an encoder can be pretrained.

    python pretraining_table.py ZINC OUT.csv [--molecules 160000] [--processes 1]

ZINC is a directory with `pool-250k.smi.gz` and `pool-valid-rows.csv.gz`. Molecules of the validation and test pools are
left out, and the given number is drawn from the remaining ones. Descriptors are standardized and clipped to six standard
deviations. The table does not depend on the number of processes.
"""

import argparse
import csv
import gzip
import multiprocessing
import random
from pathlib import Path

import numpy
from rdkit import Chem, RDLogger
from rdkit.Chem import Descriptors

TEST_POOL = range(5000)
# Slow to compute, with extreme values, or functions of others.
LEFT_OUT = ("BCUT", "Ipc", "AvgIpc", "SPS", "Phi", "qed", "MaxAbsEState", "MinAbsEState")
FUNCTIONS = {name: function for name, function in Descriptors.descList if not name.startswith(LEFT_OUT)}


def descriptors(smiles: str) -> list[float]:
    molecule = Chem.MolFromSmiles(smiles)
    return [float(function(molecule)) for function in FUNCTIONS.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("zinc", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--molecules", type=int, default=160_000)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    RDLogger.DisableLog("rdApp.*")
    root = arguments.zinc
    with gzip.open(root / "pool-250k.smi.gz", "rt") as file:
        pool = [line.split()[0] for line in file]
    with gzip.open(root / "pool-valid-rows.csv.gz", "rt") as file:
        held_out = {int(line) for line in file} | set(TEST_POOL)
    pool = [smiles for row, smiles in enumerate(pool) if row not in held_out]
    random.Random(0).shuffle(pool)
    pool = pool[: arguments.molecules]
    with multiprocessing.Pool(arguments.processes) as processes:
        values = numpy.array(processes.map(descriptors, pool, chunksize=500))
    finite = numpy.isfinite(values)
    values[~finite] = 0.0
    varies = (values != numpy.median(values, axis=0)).mean(axis=0) > 0.02
    kept = numpy.flatnonzero(varies & (finite.mean(axis=0) > 0.99))
    values = values[:, kept]
    values = numpy.clip((values - values.mean(axis=0)) / values.std(axis=0), -6, 6)
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", *(list(FUNCTIONS)[column] for column in kept)])
        for smiles, row in zip(pool, values):
            writer.writerow([smiles, *(f"{value:.5g}" for value in row)])


if __name__ == "__main__":
    main()
