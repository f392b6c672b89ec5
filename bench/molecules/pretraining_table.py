"""Writes a table of ZINC molecules with RDKit descriptors as targets, on which an encoder can be pretrained.

    python pretraining_table.py ZINC OUT.csv

ZINC is a directory with `pool-250k.smi.gz` and `pool-valid-rows.csv.gz`. Molecules of the validation and test pools are
left out. Of the remaining ones, 120,000 are drawn. Descriptors are standardized and clipped to six standard deviations.
"""

import csv
import gzip
import random
import sys
from pathlib import Path

import numpy
from rdkit import Chem, RDLogger
from rdkit.Chem import Descriptors

MOLECULES = 120_000
TEST_POOL = range(5000)
# Slow to compute, or with extreme values.
LEFT_OUT = ("BCUT", "Ipc", "AvgIpc", "SPS", "Phi")


def main() -> None:
    RDLogger.DisableLog("rdApp.*")
    root, out = Path(sys.argv[1]), Path(sys.argv[2])
    with gzip.open(root / "pool-250k.smi.gz", "rt") as file:
        pool = [line.split()[0] for line in file]
    with gzip.open(root / "pool-valid-rows.csv.gz", "rt") as file:
        held_out = {int(line) for line in file} | set(TEST_POOL)
    pool = [smiles for row, smiles in enumerate(pool) if row not in held_out]
    random.Random(0).shuffle(pool)
    functions = {name: function for name, function in Descriptors.descList if not name.startswith(LEFT_OUT)}
    rows = []
    for smiles in pool[:MOLECULES]:
        molecule = Chem.MolFromSmiles(smiles)
        rows.append([float(function(molecule)) for function in functions.values()])
    values = numpy.array(rows)
    finite = numpy.isfinite(values)
    values[~finite] = 0.0
    varies = (values != numpy.median(values, axis=0)).mean(axis=0) > 0.02
    kept = numpy.flatnonzero(varies & (finite.mean(axis=0) > 0.99))
    values = values[:, kept]
    values = numpy.clip((values - values.mean(axis=0)) / values.std(axis=0), -6, 6)
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", *(list(functions)[column] for column in kept)])
        for smiles, row in zip(pool, values):
            writer.writerow([smiles, *(f"{value:.5g}" for value in row)])


if __name__ == "__main__":
    main()
