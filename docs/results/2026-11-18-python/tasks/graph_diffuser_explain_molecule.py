import graph_diffuser as gd

model = gd.load("pretrained:zinc")
explanation = model.explain("CC(=O)Nc1ccc(O)cc1", node=4)
print(explanation.attention.shape)
explanation.save("attention.svg")
