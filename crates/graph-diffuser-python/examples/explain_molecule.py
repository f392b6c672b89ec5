"""Attention of a pretrained model on a molecule, as arrays and as a figure.

Usage: python explain_molecule.py [SMILES] [--output FILE.svg]
"""

# %% Paracetamol, and a model of penalized logP.
import argparse
import tempfile
from pathlib import Path

import numpy as np

import graph_diffuser as gd

parser = argparse.ArgumentParser()
parser.add_argument("smiles", nargs="?", default="CC(=O)Nc1ccc(O)cc1")
parser.add_argument("--output", default=str(Path(tempfile.mkdtemp()) / "attention.svg"))
arguments = parser.parse_args()
model = gd.load("pretrained:zinc")
trace = model.explain(arguments.smiles)
print(trace.headline)

# %% In a notebook, the explanation itself is a figure.
trace

# %% Which atoms does the query node attend to in the last layer, on average over heads?
attention = trace.attention[-1].mean(axis=0)
row = list(trace.rows).index(trace.node)
for atom in np.argsort(-attention[row])[:5]:
    label = trace.labels[atom] if atom < len(trace.labels) else "CLS"
    print(f"{label}{atom}: {attention[row, atom]:.2f}")

# %% Learned edge weights.
for (source, target), weight in zip(trace.edges[:6], trace.edge_weights[:6]):
    print(f"{trace.labels[source]}{source} → {trace.labels[target]}{target}: {weight:.3f}")
trace.save(arguments.output)
print("wrote", arguments.output)
