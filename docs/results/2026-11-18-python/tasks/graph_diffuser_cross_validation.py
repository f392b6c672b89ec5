import pandas as pd
from graph_diffuser.sklearn import GraphDiffuserRegressor
from sklearn.model_selection import cross_val_score

EPOCHS = 2
table = pd.read_csv("mine.csv")
model = GraphDiffuserRegressor(epochs=EPOCHS)
errors = -cross_val_score(
    model, table["smiles"], table["boiling_point"], cv=5, scoring="neg_mean_absolute_error"
)
print(errors.mean(), errors.std(ddof=1))
