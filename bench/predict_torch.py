"""Measures the inference throughput of RDKit and PyTorch: reads a CSV file of SMILES, writes it with predictions.

  python predict_torch.py REFERENCE_DIRECTORY molecules.csv predicted.csv --threads 1

The model has the architecture of the recipe `zinc` and random weights, which do not affect the speed. Prints one JSON
line with the total time and the time spent in RDKit, collation and the model.
"""
import argparse, csv, json, sys, time

p = argparse.ArgumentParser()
p.add_argument('reference'); p.add_argument('table'); p.add_argument('output')
p.add_argument('--threads', type=int, default=1); p.add_argument('--batch', type=int, default=128)
a = p.parse_args()
sys.path.insert(0, a.reference)
import numpy as np
import torch
from rdkit import Chem, RDLogger
import gd_torch as G

RDLogger.DisableLog('rdApp.*')
ATOMS = ['C', 'O', 'N', 'F', 'C H1', 'S', 'Cl', 'O -', 'N H1 +', 'Br', 'N H3 +', 'N H2 +', 'N +', 'N -', 'S -', 'I', 'P', 'O H1 +', 'N H1 -', 'O +',
         'S +', 'P H1', 'P H2', 'C H2 -', 'P +', 'S H1 +', 'C H1 -', 'P H1 +']
ATOM = {name: index for index, name in enumerate(ATOMS)}
BOND = {Chem.BondType.SINGLE: 1, Chem.BondType.DOUBLE: 2, Chem.BondType.TRIPLE: 3}
NONE = np.zeros(1, np.float32)


def label(atom):
    """Returns the atom type: element, explicit hydrogens, sign of the formal charge."""
    charge, name = atom.GetFormalCharge(), atom.GetSymbol()
    hydrogens = 0 if name == 'N' and charge == 0 else atom.GetNumExplicitHs()
    return name + (f' H{hydrogens}' if hydrogens else '') + (' +' if charge > 0 else ' -' if charge < 0 else '')


def graph(smiles):
    molecule = Chem.MolFromSmiles(smiles)
    if molecule is None: return None
    Chem.Kekulize(molecule, clearAromaticFlags=True)
    x = np.array([ATOM[label(atom)] for atom in molecule.GetAtoms()])
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), BOND[bond.GetBondType()]) for bond in molecule.GetBonds()]
    ends = np.array(sorted(ends + [(v, u, kind) for u, v, kind in ends])).reshape(-1, 3).T
    return dict(n=len(x), x=x, ei=ends[:2], ea=ends[2], y=NONE, key=None)


torch.set_num_threads(a.threads)
torch.manual_seed(0)
model = G.Model(d=64, heads=4, n_in=28, n_edge=4, n_out=1, layers=10, local='gine', attn='gate', k=16, attn_drop=.5, pool='sum').eval()
spent = dict(rdkit=0., packing=0., model=0.)
rows = predicted = 0
start = time.perf_counter()
with open(a.table, newline='') as table, open(a.output, 'w', newline='') as output, torch.no_grad():
    reader, writer = csv.DictReader(table), csv.writer(output)
    writer.writerow(reader.fieldnames + ['y_pred'])
    block = []

    def flush():
        global predicted
        t0 = time.perf_counter(); graphs = []
        for row in block:
            try: graphs.append(graph(row['smiles']))
            except KeyError: graphs.append(None)  # atom type outside the ZINC vocabulary
        t1 = time.perf_counter(); known = [g for g in graphs if g is not None]
        batch = G.collate(known)
        t2 = time.perf_counter(); values = iter(model(batch).flatten().tolist())
        t3 = time.perf_counter()
        for row, g in zip(block, graphs): writer.writerow(list(row.values()) + ([f'{next(values):.6g}'] if g is not None else ['']))
        spent['rdkit'] += t1 - t0; spent['packing'] += t2 - t1; spent['model'] += t3 - t2
        predicted += len(known); block.clear()

    for row in reader:
        rows += 1; block.append(row)
        if len(block) == a.batch: flush()
    if block: flush()
seconds = time.perf_counter() - start
print(json.dumps(dict(rows=rows, predicted=predicted, threads=a.threads, seconds=round(seconds, 2), molecules_per_s=round(predicted / seconds, 1),
                      **{f'{name}_s': round(value, 2) for name, value in spent.items()})))
