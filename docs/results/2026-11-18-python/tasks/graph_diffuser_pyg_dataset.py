import graph_diffuser as gd
import torch
from torch_geometric.data import Data

EPOCHS = 2
torch.manual_seed(0)
dataset = []
for index in range(60):
    nodes = 4 + index % 7
    ring = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes])
    edges = torch.cat([ring, ring.flip(0)], dim=1)
    dataset.append(Data(x=torch.rand(nodes, 3), edge_index=edges, y=torch.tensor([nodes % 2])))
model = gd.train(data=dataset, out="runs/pyg", epochs=EPOCHS)
print(model.predict_proba(dataset[:3]))
