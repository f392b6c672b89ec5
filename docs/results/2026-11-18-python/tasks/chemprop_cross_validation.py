import tempfile

import numpy as np
import pandas as pd
import torch
from chemprop import data, models, nn
from lightning import pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.model_selection import KFold, train_test_split

EPOCHS = 2


def fit(points):
    train, valid = train_test_split(points, test_size=0.1, random_state=0)
    train, valid = data.MoleculeDataset(train), data.MoleculeDataset(valid)
    scaler = train.normalize_targets()
    valid.normalize_targets(scaler)
    transform = nn.UnscaleTransform.from_standard_scaler(scaler)
    ffn = nn.RegressionFFN(output_transform=transform)
    model = models.MPNN(nn.BondMessagePassing(), nn.MeanAggregation(), ffn, batch_norm=True)
    best = ModelCheckpoint(tempfile.mkdtemp(), monitor="val_loss")
    trainer = pl.Trainer(max_epochs=EPOCHS, logger=False, callbacks=[best])
    loaders = data.build_dataloader(train), data.build_dataloader(valid, shuffle=False)
    trainer.fit(model, *loaders)
    return models.MPNN.load_from_checkpoint(best.best_model_path)


def predict(model, points):
    loader = data.build_dataloader(data.MoleculeDataset(points), shuffle=False)
    return torch.cat(pl.Trainer(logger=False).predict(model, loader)).numpy()[:, 0]


table = pd.read_csv("mine.csv")
rows = zip(table["smiles"], table["boiling_point"])
points = [data.MoleculeDatapoint.from_smi(smiles, [target]) for smiles, target in rows]
errors = []
for train, test in KFold(5).split(points):
    model = fit([points[row] for row in train])
    predicted = predict(model, [points[row] for row in test])
    errors.append(np.abs(predicted - table["boiling_point"].iloc[test]).mean())
print(np.mean(errors), np.std(errors, ddof=1))
