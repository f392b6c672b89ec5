import tempfile

import pandas as pd
import torch
from chemprop import data, models, nn
from lightning import pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

EPOCHS = 2
table = pd.read_csv("mine.csv")
rows = zip(table["smiles"], table["boiling_point"])
points = [data.MoleculeDatapoint.from_smi(smiles, [target]) for smiles, target in rows]
train, valid = train_test_split(points, test_size=0.2, random_state=0)
train, valid = data.MoleculeDataset(train), data.MoleculeDataset(valid)
scaler = train.normalize_targets()
valid.normalize_targets(scaler)
ffn = nn.RegressionFFN(output_transform=nn.UnscaleTransform.from_standard_scaler(scaler))
model = models.MPNN(nn.BondMessagePassing(), nn.MeanAggregation(), ffn, batch_norm=True)
best = ModelCheckpoint(tempfile.mkdtemp(), monitor="val_loss")
trainer = pl.Trainer(max_epochs=EPOCHS, logger=False, callbacks=[best])
trainer.fit(model, data.build_dataloader(train), data.build_dataloader(valid, shuffle=False))
model = models.MPNN.load_from_checkpoint(best.best_model_path).eval()
loader = data.build_dataloader(data.MoleculeDataset(points), shuffle=False)
with torch.no_grad():
    embeddings = torch.cat([model.encoding(batch.bmg, batch.V_d, batch.X_d, i=0) for batch in loader])
print(PCA(n_components=2).fit_transform(embeddings.numpy()).shape)
