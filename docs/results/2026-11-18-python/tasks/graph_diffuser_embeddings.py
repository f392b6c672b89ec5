import graph_diffuser as gd
import pandas as pd
from sklearn.decomposition import PCA

EPOCHS = 2
model = gd.train("mine.csv", out="runs/embeddings", epochs=EPOCHS)
table = pd.read_csv("mine.csv")
points = PCA(n_components=2).fit_transform(model.embed(table["smiles"]))
print(points.shape)
