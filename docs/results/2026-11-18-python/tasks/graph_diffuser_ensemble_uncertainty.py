import graph_diffuser as gd

EPOCHS = 2
model = gd.train("mine.csv", out="runs/ensemble", epochs=EPOCHS, ensemble=5)
mean, std = model.predict(["CCCCO", "C1CC1C#N"], return_std=True)
print(mean, std)
