"""Training on a dataset of PyTorch Geometric.

Usage: python pyg_dataset.py [--epochs N]

Needs torch and torch_geometric. Use any dataset in place of the generated one, such as
torch_geometric.datasets.TUDataset("data", "MUTAG").
"""

# %% A dataset of generated graphs, whose class is the majority type of their nodes.
import argparse
import sys
import tempfile
from pathlib import Path

try:
    import torch
    from torch_geometric.data import Data
except ImportError:
    print("skipped: torch or torch_geometric is not installed")
    sys.exit()

import graph_diffuser as gd

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=30)
arguments = parser.parse_args()
torch.manual_seed(0)


def generated() -> Data:
    nodes = int(torch.randint(5, 15, (1,)))
    edges = torch.randint(nodes, (2, 2 * nodes))
    types = torch.randint(2, (nodes, 1))
    # Edges of PyTorch Geometric are directed: both directions are listed.
    return Data(
        x=types,
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        y=torch.tensor([int(types.float().mean() > 0.5)]),
        num_nodes=nodes,
    )


dataset = [generated() for _ in range(200)]

# %% Integer features are categories, float features are real-valued.
out = Path(tempfile.mkdtemp()) / "run"
model = gd.train(data=dataset, out=out, epochs=arguments.epochs, progress=True)
print(model, model.result["test"])

# %% Predictions of new graphs.
print(model.predict_proba(dataset[:3]))
