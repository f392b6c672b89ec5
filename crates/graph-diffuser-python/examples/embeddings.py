"""Embeddings of molecules in two dimensions, with UMAP if it is installed or PCA otherwise.

Usage: python embeddings.py [FILE.csv]
"""

# %% Embeddings of a pretrained model are features of molecules.
import argparse
import tempfile
from pathlib import Path

import pandas as pd
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import graph_diffuser as gd

parser = argparse.ArgumentParser()
parser.add_argument("file", nargs="?")
arguments = parser.parse_args()
file = arguments.file or gd.write_example_data(Path(tempfile.mkdtemp()) / "boiling-points.csv")
table = pd.read_csv(file)
model = gd.load("pretrained:zinc")
embeddings = model.embed(table["smiles"], on_invalid="nan")
known = ~pd.DataFrame(embeddings).isna().any(axis=1)
print(f"{known.sum()} of {len(table)} molecules have known atom types")
table, embeddings = table[known], embeddings[known]

# %% Two dimensions, to be plotted.
try:
    from umap import UMAP

    projection = UMAP(random_state=0)
except ImportError:
    projection = PCA(n_components=2)
points = projection.fit_transform(embeddings)
print(pd.DataFrame(points, columns=["x", "y"], index=table["name"]).round(2).head())

# %% A linear model of the embeddings.
linear = make_pipeline(StandardScaler(), RidgeCV([0.1, 1, 10, 100]))
scores = cross_val_score(linear, embeddings, table["boiling_point"], cv=5)
print(f"R² of a linear model of boiling points: {scores.mean():.2f} ± {scores.std(ddof=1):.2f}")
