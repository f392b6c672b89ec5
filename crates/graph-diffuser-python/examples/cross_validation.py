"""Cross-validation on a CSV file of molecules.

Usage: python cross_validation.py [FILE.csv] [--epochs N] [--folds K]

Without a file, uses approximate boiling points of 234 compounds.
"""

# %% Data: any table with a SMILES column and a target.
import argparse
import tempfile
from pathlib import Path

import pandas as pd
from sklearn.model_selection import KFold, cross_val_score

import graph_diffuser as gd
from graph_diffuser.sklearn import GraphDiffuserRegressor

parser = argparse.ArgumentParser()
parser.add_argument("file", nargs="?")
parser.add_argument("--target", default="boiling_point")
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--folds", type=int, default=5)
arguments = parser.parse_args()
file = arguments.file or gd.write_example_data(Path(tempfile.mkdtemp()) / "boiling-points.csv")
table = pd.read_csv(file)
print(table.head())

# %% Mean absolute error in each fold.
model = GraphDiffuserRegressor(epochs=arguments.epochs)
errors = -cross_val_score(
    model,
    table["smiles"],
    table[arguments.target],
    cv=KFold(arguments.folds, shuffle=True, random_state=0),
    scoring="neg_mean_absolute_error",
)
print(f"MAE {errors.mean():.2f} ± {errors.std(ddof=1):.2f} over {len(errors)} folds")

# %% A model of all molecules.
model.fit(table["smiles"], table[arguments.target])
print("ethanol, phenol:", model.predict(["CCO", "c1ccccc1O"]).round(1))
