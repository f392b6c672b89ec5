"""Uncertainty of predictions: an ensemble, and the similarity to the training molecules.

Usage: python ensemble_uncertainty.py [FILE.csv] [--epochs N] [--members N]
"""

# %% Train an ensemble of models with different seeds.
import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import graph_diffuser as gd

parser = argparse.ArgumentParser()
parser.add_argument("file", nargs="?")
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--members", type=int, default=5)
arguments = parser.parse_args()
folder = Path(tempfile.mkdtemp())
file = arguments.file or gd.write_example_data(folder / "boiling-points.csv")
model = gd.train(
    file, out=folder / "run", epochs=arguments.epochs, ensemble=arguments.members, progress=True
)

# %% Mean and standard deviation over the members.
new = ["CCCCO", "CCCCCCCCCCCCCCCCCCCCCC", "C1CC1C#N", "FC(F)(F)C(F)(F)C(F)(F)F"]
mean, std = model.predict(new, return_std=True)
similarity = model.similarity(new)
print(pd.DataFrame({"smiles": new, "mean": mean[:, 0], "std": std[:, 0], "similarity": similarity}))

# %% Do large deviations mean large errors?
calibration = model.evaluate()["ensemble"]["uncertainty"][0]
print({key: value for key, value in calibration.items() if isinstance(value, (int, float))})
assert np.isfinite(mean).all()
