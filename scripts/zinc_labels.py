"""Audit the ZINC-12k labels and build the `zinc-dev` screening dataset.

The target of ZINC-12k is a normalized penalized logP:

    y = 0.697631799 logP - 1.198167582 SA + 3.475139148 cycle + 2.111829927

where `cycle` is `-(longest ring - 6)` if the longest ring has more than six atoms, and 0 otherwise.
The longest ring is taken from a depth-first cycle basis. A graph with fused or bridged rings has many
cycle bases, and the one that the search returns depends on how the atoms are numbered. For some molecules
the label is therefore not a function of the graph: renumbering the atoms changes it.

Subcommands:

    audit  Check the label rule against the stored labels and list the molecules whose label depends on
           the atom order. Writes `order-dependent.csv` and `summary.json`.
    dev    Build `zinc-dev`: the training graphs of ZINC, its validation graphs without the order-dependent
           ones, and new molecules from the training pool as the test split. Use it to compare
           configurations without evaluating on the official test set.

Examples:

    python scripts/zinc_labels.py audit --zinc data/zinc --output docs/results/zinc-label-audit
    python scripts/zinc_labels.py dev --zinc data/zinc --output data/zinc-dev

Input directory (`--zinc`):

    smiles.csv.gz            `smiles,y,split`, one row per graph (both subcommands)
    known-targets.csv        `split,row,y`, published targets (audit, optional)
    raw/, split/             graphs in the raw csv layout of the Open Graph Benchmark (dev)
    pool-250k.smi.gz         all 249,455 SMILES of the pool (dev)
    pool-valid-rows.csv.gz   pool rows of the validation pool; pool rows 0..4999 are the test pool (dev)

Requires Python 3.10 or later and `pip install rdkit`. The results in this repository were computed with
RDKit 2026.9.1. All draws are seeded, and gzip files have no time stamps, so a second run writes the same
files.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import random
import statistics
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import rdkit
from rdkit import Chem, RDConfig
from rdkit.Chem import Crippen

# The SA score is part of the RDKit distribution, but not of its package.
sys.path.append(str(Path(RDConfig.RDContribDir) / "SA_Score"))
import sascorer

LOGP_WEIGHT = 0.697631799
SA_WEIGHT = -1.198167582
CYCLE_WEIGHT = 3.475139148
BIAS = 2.111829927

SPLITS = ("train", "valid", "test")
TEST_POOL_SIZE = 5_000

# fmt: off
ATOM_TYPES = [
    "C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +", "N -",
    "S -", "I", "P", "O H1 +", "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +", "S H1 +",
    "C H1 -", "P H1 +",
]
# fmt: on
ATOM_TYPE_INDEX = {name: index for index, name in enumerate(ATOM_TYPES)}
BOND_TYPE_INDEX = {Chem.BondType.SINGLE: 1, Chem.BondType.DOUBLE: 2, Chem.BondType.TRIPLE: 3}


# --- Labels -------------------------------------------------------------------------------------------


def parse(smiles: str) -> Chem.Mol:
    """Parse a SMILES string, raising `ValueError` if RDKit rejects it."""
    mol = Chem.MolFromSmiles(smiles)
    if mol is None:
        raise ValueError(f"RDKit cannot parse the SMILES string {smiles!r}")
    return mol


def to_float32(value: float) -> float:
    """Round to the nearest float32, the precision of the stored labels."""
    return struct.unpack("f", struct.pack("f", value))[0]


def adjacency(mol: Chem.Mol) -> list[list[int]]:
    """Neighbors of every atom, ascending."""
    return [sorted(n.GetIdx() for n in atom.GetNeighbors()) for atom in mol.GetAtoms()]


def renumber(neighbors: list[list[int]], rank: Sequence[int]) -> list[list[int]]:
    """Adjacency lists after atom `i` has been renumbered to `rank[i]`."""
    renumbered: list[list[int]] = [[] for _ in neighbors]
    for atom, adjacent in enumerate(neighbors):
        renumbered[rank[atom]] = sorted([rank[n] for n in adjacent])
    return renumbered


def longest_ring(neighbors: list[list[int]], highest_root: bool = False) -> int:
    """Length of the longest cycle in the depth-first cycle basis, or 0 for an acyclic graph.

    Same algorithm as `networkx.cycle_basis` (Paton, 1969). Neighbors are visited in ascending order. The
    search starts at the lowest atom index, which reproduces the stored labels, or at the highest one, as
    in recent releases of networkx.
    """
    longest = 0
    parent: dict[int, int] = {}
    roots = range(len(neighbors))
    for root in reversed(roots) if highest_root else roots:
        if root in parent:
            continue
        parent[root] = root
        used: dict[int, set[int]] = {root: set()}
        stack = [root]
        while stack:
            atom = stack.pop()
            for neighbor in neighbors[atom]:
                if neighbor not in used:
                    parent[neighbor] = atom
                    used[neighbor] = {atom}
                    stack.append(neighbor)
                elif neighbor not in used[atom]:
                    # The edge closes a cycle: walk up to the first ancestor adjacent to `neighbor`.
                    length = 3
                    ancestor = parent[atom]
                    while ancestor not in used[neighbor]:
                        ancestor = parent[ancestor]
                        length += 1
                    longest = max(longest, length)
                    used[neighbor].add(atom)
    return longest


def label(log_p: float, sa: float, ring: int) -> float:
    """Apply the label rule and round the result to float32."""
    cycle = -max(ring - 6, 0)
    return to_float32(LOGP_WEIGHT * log_p + SA_WEIGHT * sa + CYCLE_WEIGHT * cycle + BIAS)


@dataclass
class LabelStudy:
    """Label of one molecule as numbered in its SMILES string and under random renumberings."""

    ring: int
    highest_root_ring: int
    label: float
    renumbered_rings: list[int]
    renumbered_labels: list[float]

    @property
    def order_dependent(self) -> bool:
        """Whether any renumbering gives another label."""
        return any(value != self.label for value in self.renumbered_labels)

    @property
    def median(self) -> float:
        """Median label over the renumberings."""
        return statistics.median(self.renumbered_labels)

    @property
    def deviation(self) -> float:
        """Mean absolute deviation of the labels from their median."""
        median = self.median
        return statistics.fmean(abs(value - median) for value in self.renumbered_labels)

    @property
    def share_of_most_frequent(self) -> float:
        """Share of the renumberings that give the most frequent label."""
        counts = Counter(self.renumbered_labels)
        return counts.most_common(1)[0][1] / len(self.renumbered_labels)


def study_label(smiles: str, mol: Chem.Mol, renumberings: int, seed: int) -> LabelStudy:
    """Compute the label of a molecule under random renumberings of its atoms.

    Every molecule has its own random stream, so the result does not depend on which other molecules are
    studied.
    """
    log_p = Crippen.MolLogP(mol)
    sa = sascorer.calculateScore(mol)
    neighbors = adjacency(mol)
    ring = longest_ring(neighbors)
    rng = random.Random(f"{seed} {smiles}")
    rank = list(range(len(neighbors)))
    rings = []
    for _ in range(renumberings):
        rng.shuffle(rank)
        rings.append(longest_ring(renumber(neighbors, rank)))
    labels = {r: label(log_p, sa, r) for r in {ring, *rings}}
    return LabelStudy(
        ring,
        longest_ring(neighbors, highest_root=True),
        labels[ring],
        rings,
        [labels[r] for r in rings],
    )


def property_shift(smiles: str, mol: Chem.Mol, renumberings: int, seed: int) -> float:
    """Largest change of `0.70 logP - 1.20 SA`, the rest of the label, under random renumberings."""

    def rest(m: Chem.Mol) -> float:
        return LOGP_WEIGHT * Crippen.MolLogP(m) + SA_WEIGHT * sascorer.calculateScore(m)

    rng = random.Random(f"{seed} {smiles} properties")
    order = list(range(mol.GetNumAtoms()))
    reference = rest(mol)
    shift = 0.0
    for _ in range(renumberings):
        rng.shuffle(order)
        renumbered = Chem.RenumberAtoms(mol, order)
        renumbered.ClearComputedProps()  # perceive rings anew instead of inheriting them
        Chem.SanitizeMol(renumbered)
        shift = max(shift, abs(rest(renumbered) - reference))
    return shift


# --- Files --------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One row of `smiles.csv.gz`."""

    smiles: str
    y: str
    split: str


def read_rows(zinc: Path) -> list[Row]:
    """Read `smiles.csv.gz`; the position in the list is the graph index."""
    with gzip.open(zinc / "smiles.csv.gz", "rt", newline="") as file:
        return [Row(row["smiles"], row["y"], row["split"]) for row in csv.DictReader(file)]


def read_lines(path: Path) -> list[str]:
    """Read the lines of a gzip file."""
    with gzip.open(path, "rt") as file:
        return file.read().splitlines()


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a gzip file without a time stamp or a file name in its header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(path, "wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as file,
        io.TextIOWrapper(file, encoding="utf-8", newline="\n") as text,
    ):
        for line in lines:
            text.write(line + "\n")


def write_json(path: Path, value: object) -> None:
    """Write indented JSON with a final newline."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def progress(items: Sequence, what: str) -> Iterator:
    """Iterate over `items`, reporting progress on standard error every 10 seconds."""
    start = last = time.monotonic()
    for index, item in enumerate(items):
        yield item
        now = time.monotonic()
        if now - last >= 10:
            last = now
            print(f"{what}: {index + 1}/{len(items)} ({now - start:.0f} s)", file=sys.stderr)


# --- Graphs -------------------------------------------------------------------------------------------


@dataclass
class Graph:
    """A graph as text rows of the raw csv layout."""

    nodes: list[str]
    edges: list[str]
    edge_types: list[str]


def to_graph(mol: Chem.Mol) -> Graph:
    """Convert a molecule to a ZINC graph; `KeyError` for an atom type outside the dictionary of 28.

    An atom type is the element, the hydrogens written in its bracket and the sign of its charge, all read
    after kekulization. Edges are stored in both directions, sorted by source and target.
    """
    mol = Chem.Mol(mol)
    Chem.Kekulize(mol, clearAromaticFlags=True)
    nodes = []
    for atom in mol.GetAtoms():
        name = atom.GetSymbol()
        if atom.GetNumExplicitHs() > 0:
            name += f" H{atom.GetNumExplicitHs()}"
        if atom.GetFormalCharge() != 0:
            name += " +" if atom.GetFormalCharge() > 0 else " -"
        nodes.append(str(ATOM_TYPE_INDEX[name]))
    bonds = []
    for bond in mol.GetBonds():
        source, target = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        bond_type = BOND_TYPE_INDEX[bond.GetBondType()]
        bonds += [(source, target, bond_type), (target, source, bond_type)]
    bonds.sort()
    return Graph(nodes, [f"{s},{t}" for s, t, _ in bonds], [str(b) for _, _, b in bonds])


def read_graphs(zinc: Path) -> list[Graph]:
    """Read all graphs of a raw directory."""
    raw = zinc / "raw"
    nodes = iter(read_lines(raw / "node-feat.csv.gz"))
    edges = iter(read_lines(raw / "edge.csv.gz"))
    edge_types = iter(read_lines(raw / "edge-feat.csv.gz"))
    node_counts = [int(n) for n in read_lines(raw / "num-node-list.csv.gz")]
    edge_counts = [int(n) for n in read_lines(raw / "num-edge-list.csv.gz")]
    graphs = []
    for n, m in zip(node_counts, edge_counts, strict=True):
        graphs.append(
            Graph(
                [next(nodes) for _ in range(n)],
                [next(edges) for _ in range(m)],
                [next(edge_types) for _ in range(m)],
            )
        )
    if any(next(rest, None) is not None for rest in (nodes, edges, edge_types)):
        raise ValueError(f"{raw}: the node or edge counts do not cover all rows")
    return graphs


def write_dataset(output: Path, rows: list[Row], graphs: list[Graph]) -> None:
    """Write the raw csv layout of the Open Graph Benchmark, the split files and `smiles.csv.gz`."""
    raw = output / "raw"
    write_lines(raw / "num-node-list.csv.gz", (str(len(g.nodes)) for g in graphs))
    write_lines(raw / "num-edge-list.csv.gz", (str(len(g.edges)) for g in graphs))
    write_lines(raw / "node-feat.csv.gz", (line for g in graphs for line in g.nodes))
    write_lines(raw / "edge.csv.gz", (line for g in graphs for line in g.edges))
    write_lines(raw / "edge-feat.csv.gz", (line for g in graphs for line in g.edge_types))
    write_lines(raw / "graph-label.csv.gz", (row.y for row in rows))
    for split in SPLITS:
        indices = (str(index) for index, row in enumerate(rows) if row.split == split)
        write_lines(output / "split" / f"{split}.csv.gz", indices)
    header = ["smiles,y,split"]
    write_lines(output / "smiles.csv.gz", header + [f"{r.smiles},{r.y},{r.split}" for r in rows])


# --- audit --------------------------------------------------------------------------------------------


def audit(args: argparse.Namespace) -> None:
    """Check the label rule and list the molecules whose label depends on the atom order."""
    rows = read_rows(args.zinc)
    published = read_published(args.zinc / "known-targets.csv")
    renumberings = {
        "train": args.train_renumberings,
        "valid": args.renumberings,
        "test": args.renumberings,
    }
    first = {split: next(i for i, r in enumerate(rows) if r.split == split) for split in SPLITS}
    counts = Counter(row.split for row in rows)

    rule_difference = 0.0
    published_difference = 0.0
    published_checked = 0
    property_change = 0.0
    affected: dict[str, list[Molecule]] = {split: [] for split in SPLITS}
    for graph, row in progress(list(enumerate(rows)), "audit"):
        mol = parse(row.smiles)
        study = study_label(row.smiles, mol, renumberings[row.split], args.seed)
        stored = float(row.y)
        rule_difference = max(rule_difference, abs(study.label - stored))
        key = (row.split, graph - first[row.split])
        # Published training targets refer to the official training rows, which are not those of `zinc`.
        is_published = row.split != "train" and key in published
        if is_published:
            published_checked += 1
            published_difference = max(published_difference, abs(published[key] - stored))
        shift = property_shift(row.smiles, mol, args.property_renumberings, args.seed)
        property_change = max(property_change, shift)
        if study.order_dependent:
            refined = study_label(row.smiles, mol, args.refine, args.seed)
            molecule = Molecule(row.split, key[1], graph, row.smiles, stored, is_published, study, refined)
            affected[row.split].append(molecule)

    args.output.mkdir(parents=True, exist_ok=True)
    write_molecules(args.output / "order-dependent.csv", affected, counts)
    splits = {split: summarize_split(affected[split], counts[split], args.renumberings) for split in SPLITS}
    summary = {
        "rdkit": rdkit.__version__,
        "seed": args.seed,
        "renumberings": {**renumberings, "refine": args.refine},
        "rule": {
            "graphs": len(rows),
            "largest_difference_from_stored": rule_difference,
            "published_targets_checked": published_checked,
            "largest_difference_from_published": published_difference,
        },
        "logp_and_sa": {
            "renumberings": args.property_renumberings,
            "largest_label_change": property_change,
        },
        "splits": splits,
    }
    write_json(args.output / "summary.json", summary)
    print(f"rule: largest difference from the stored labels {rule_difference:.2g}")
    for split, s in splits.items():
        print(
            f"{split}: {s['order_dependent']} of {s['graphs']} labels depend on the atom order, "
            f"MAE of the median {s['mae_of_median']:.4f}, at most {s['largest_mae']:.4f}"
        )


@dataclass
class Molecule:
    """A molecule whose label depends on the atom order."""

    split: str
    row: int
    graph: int
    smiles: str
    stored_label: float
    published: bool
    detected: LabelStudy
    refined: LabelStudy

    @property
    def error_of_median(self) -> float:
        """Distance from the stored label to the median label."""
        return abs(self.stored_label - self.refined.median)

    @property
    def largest_error(self) -> float:
        """Distance from the stored label to the farthest label."""
        return max(abs(self.stored_label - value) for value in self.refined.renumbered_labels)


def summarize_split(molecules: list[Molecule], graphs: int, renumberings: int) -> dict:
    """Summarize one split; every `mae` is a sum over its order-dependent molecules divided by its size."""

    def mae(errors: Iterable[float]) -> float:
        return round(sum(errors) / graphs, 6)

    # How much the figure varies if the median is taken over `renumberings` draws only.
    blocks = []
    draws = min((len(m.refined.renumbered_labels) for m in molecules), default=0)
    for start in range(0, draws - renumberings + 1, renumberings):
        block = slice(start, start + renumberings)
        medians = ((m, statistics.median(m.refined.renumbered_labels[block])) for m in molecules)
        blocks.append(mae(abs(m.stored_label - median) for m, median in medians))
    deciles = [round(q, 6) for q in statistics.quantiles(blocks, n=10)] if len(blocks) > 1 else []
    return {
        "graphs": graphs,
        "order_dependent": len(molecules),
        "order_dependent_graphs": [m.graph for m in molecules],
        "highest_root_changes": [m.graph for m in molecules if label_ring(m) != label_ring(m, True)],
        "mae_of_median": mae(m.error_of_median for m in molecules),
        "mae_of_median_detection_draws": mae(abs(m.stored_label - m.detected.median) for m in molecules),
        "mae_of_median_short_draws": {
            "renumberings": renumberings,
            "repeats": len(blocks),
            "p10": deciles[0] if deciles else None,
            "p50": deciles[4] if deciles else None,
            "p90": deciles[8] if deciles else None,
        },
        "mean_absolute_deviation": mae(m.refined.deviation for m in molecules),
        "largest_mae": mae(m.largest_error for m in molecules),
        "contributions": [
            {
                "row": m.row,
                "mae_of_median": mae([m.error_of_median]),
                "mean_absolute_deviation": mae([m.refined.deviation]),
                "largest_mae": mae([m.largest_error]),
            }
            for m in sorted(molecules, key=lambda m: -m.largest_error)
        ],
    }


def label_ring(molecule: Molecule, highest_root: bool = False) -> int:
    """Ring size as far as it affects the label."""
    study = molecule.refined
    return max(study.highest_root_ring if highest_root else study.ring, 6)


def write_molecules(path: Path, affected: dict[str, list[Molecule]], graphs: Counter[str]) -> None:
    """Write one line per order-dependent molecule."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer: csv.DictWriter[str] | None = None
        for m in (m for split in SPLITS for m in affected[split]):
            rings = Counter(m.refined.renumbered_rings)
            line = {
                "split": m.split,
                "row": m.row,
                "graph": m.graph,
                "smiles": m.smiles,
                "stored_label": f"{m.stored_label:.6f}",
                "stored_ring": m.refined.ring,
                "highest_root_ring": m.refined.highest_root_ring,
                "label_min": f"{min(m.refined.renumbered_labels):.6f}",
                "label_median": f"{m.refined.median:.6f}",
                "label_max": f"{max(m.refined.renumbered_labels):.6f}",
                "most_frequent_share": f"{m.refined.share_of_most_frequent:.4f}",
                "ring_counts": " ".join(f"{ring}:{count}" for ring, count in sorted(rings.items())),
                "published": "yes" if m.published else "no",
                "mae_of_median": f"{m.error_of_median / graphs[m.split]:.6f}",
                "largest_mae": f"{m.largest_error / graphs[m.split]:.6f}",
            }
            if writer is None:
                writer = csv.DictWriter(file, list(line), lineterminator="\n")
                writer.writeheader()
            writer.writerow(line)


def read_published(path: Path) -> dict[tuple[str, int], float]:
    """Read published targets by split and row; empty if the file does not exist."""
    if not path.exists():
        return {}
    with open(path, newline="") as file:
        return {(r["split"], int(r["row"])): float(r["y"]) for r in csv.DictReader(file)}


# --- dev ----------------------------------------------------------------------------------------------


def dev(args: argparse.Namespace) -> None:
    """Build the `zinc-dev` dataset."""
    rows = read_rows(args.zinc)
    graphs = read_graphs(args.zinc)
    labels = read_lines(args.zinc / "raw" / "graph-label.csv.gz")
    if labels != [row.y for row in rows]:
        raise ValueError("graph-label.csv.gz and smiles.csv.gz do not have the same labels")

    conversion = verify_conversion(rows, graphs)
    if conversion["other"]:
        raise ValueError(f"the conversion does not reproduce the stored graphs: {conversion}")

    kept_rows: list[Row] = []
    kept_graphs: list[Graph] = []
    removed_valid: list[int] = []
    for index, (row, graph) in enumerate(zip(rows, graphs, strict=True)):
        if row.split == "test":
            continue
        if row.split == "valid":
            mol = parse(row.smiles)
            if study_label(row.smiles, mol, args.renumberings, args.seed).order_dependent:
                removed_valid.append(index)
                continue
        kept_rows.append(row)
        kept_graphs.append(graph)

    dev_rows, dev_graphs, draw = draw_molecules(args, rows)
    write_dataset(args.output, kept_rows + dev_rows, kept_graphs + dev_graphs)
    counts = Counter(row.split for row in kept_rows + dev_rows)
    summary = {
        "rdkit": rdkit.__version__,
        "seed": args.seed,
        "renumberings": args.renumberings,
        "graphs": {split: counts[split] for split in SPLITS},
        "conversion": conversion,
        "removed_validation_graphs": removed_valid,
        "draw": draw,
    }
    write_json(args.output / "summary.json", summary)
    print(json.dumps(summary, indent=2))


def verify_conversion(rows: list[Row], graphs: list[Graph]) -> dict[str, int]:
    """Convert all SMILES strings again and count the graphs that differ from the stored ones."""
    result = {"graphs": len(rows), "equal": 0, "kekule_form_only": 0, "other": 0}
    for row, stored in progress(list(zip(rows, graphs, strict=True)), "conversion"):
        graph = to_graph(parse(row.smiles))
        if graph == stored:
            result["equal"] += 1
        elif graph.nodes == stored.nodes and graph.edges == stored.edges:
            result["kekule_form_only"] += 1
        else:
            result["other"] += 1
    return result


def draw_molecules(args: argparse.Namespace, rows: list[Row]) -> tuple[list[Row], list[Graph], dict]:
    """Draw molecules of the training pool that are in no split and have an order-independent label."""
    pool = read_lines(args.zinc / "pool-250k.smi.gz")
    excluded_rows = set(range(TEST_POOL_SIZE))
    excluded_rows.update(int(r) for r in read_lines(args.zinc / "pool-valid-rows.csv.gz"))
    used = {row.smiles for row in rows}
    excluded_rows.update(index for index, smiles in enumerate(pool) if smiles in used)

    # A molecule may occur twice in the pool under different SMILES strings.
    excluded = used | {pool[index] for index in sorted(excluded_rows)}
    taken = {Chem.MolToSmiles(parse(s)) for s in progress(sorted(excluded), "canonical SMILES")}
    without_stereo = {
        split: {canonical_without_stereo(parse(row.smiles)) for row in rows if row.split == split}
        for split in SPLITS
    }

    candidates = [index for index in range(len(pool)) if index not in excluded_rows]
    result: tuple[list[Row], list[Graph]] = ([], [])
    draw = {
        "candidates": len(candidates),
        "duplicate_molecule": 0,
        "unknown_atom_type": 0,
        "order_dependent": 0,
        "stereoisomer_of_train": 0,
        "official_test_stereoisomer_of_train": sum(
            canonical_without_stereo(parse(row.smiles)) in without_stereo["train"]
            for row in rows
            if row.split == "test"
        ),
    }
    random.Random(f"{args.seed} zinc-dev").shuffle(candidates)
    for index in progress(candidates, "draw"):
        if len(result[0]) == args.size:
            break
        smiles = pool[index]
        mol = parse(smiles)
        canonical = Chem.MolToSmiles(mol)
        if canonical in taken:
            draw["duplicate_molecule"] += 1
            continue
        try:
            graph = to_graph(mol)
        except KeyError:
            draw["unknown_atom_type"] += 1
            continue
        study = study_label(smiles, mol, args.renumberings, args.seed)
        if study.order_dependent:
            draw["order_dependent"] += 1
            continue
        taken.add(canonical)
        draw["stereoisomer_of_train"] += canonical_without_stereo(mol) in without_stereo["train"]
        result[0].append(Row(smiles, repr(study.label), "test"))
        result[1].append(graph)
    if len(result[0]) < args.size:
        raise ValueError(f"the pool has only {len(result[0])} suitable molecules, {args.size} requested")
    return *result, draw


def canonical_without_stereo(mol: Chem.Mol) -> str:
    """Canonical SMILES without stereochemistry."""
    return Chem.MolToSmiles(mol, isomericSmiles=False)


# --- Command line -------------------------------------------------------------------------------------


def main() -> None:
    """Run a subcommand."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--zinc", type=Path, required=True, metavar="DIR", help="ZINC directory")
    shared.add_argument("--output", type=Path, required=True, metavar="DIR", help="output directory")
    shared.add_argument("--seed", type=int, default=0, help="seed of all draws (default: 0)")
    shared.add_argument(
        "--renumberings", type=int, default=30, metavar="N", help="renumberings per molecule (default: 30)"
    )

    command = commands.add_parser("audit", parents=[shared], help="list order-dependent labels")
    command.add_argument(
        "--train-renumberings", type=int, default=30, metavar="N", help="for the train split (default: 30)"
    )
    command.add_argument(
        "--refine",
        type=int,
        default=10_000,
        metavar="N",
        help="renumberings of the molecules found, for their label distribution (default: 10000)",
    )
    command.add_argument(
        "--property-renumberings",
        type=int,
        default=2,
        metavar="N",
        help="renumberings to check that logP and SA do not depend on the order (default: 2)",
    )
    command.set_defaults(run=audit)

    command = commands.add_parser("dev", parents=[shared], help="build the zinc-dev dataset")
    command.add_argument(
        "--size", type=int, default=10_000, metavar="N", help="molecules in the test split (default: 10000)"
    )
    command.set_defaults(run=dev)

    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
