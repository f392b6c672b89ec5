"""Packs the results of `run.py` into one small file, and unpacks it to continue a benchmark elsewhere.

    python archive.py pack OUT FILE.jsonl.gz
    python archive.py unpack FILE.jsonl.gz OUT --data DATA

A line holds one cell: method, dataset, kind of split, seed, hash of the split, score, cost and test predictions with
nine significant digits. `unpack` writes the splits again and skips cells whose split has another hash, for example
because another version of RDKit computes other scaffolds. Existing results are kept.
"""

import argparse
import gzip
import hashlib
import json
import sys
from pathlib import Path

import splits


def split_hash(out: Path, name: str, kind: str, seed: int) -> str:
    return hashlib.sha256(splits.path(out / "splits", name, kind, seed).read_bytes()).hexdigest()[:16]


def pack(out: Path, file: Path) -> None:
    lines = []
    for path in sorted((out / "results").glob("*/*.json")):
        name, kind, seed = path.stem.rsplit("-", 2)
        cell = json.loads(path.read_text())
        cell["predictions"] = [[float(f"{value:.9g}") for value in row] for row in cell["predictions"]]
        key = {"method": path.parent.name, "dataset": name, "kind": kind, "seed": int(seed)}
        lines.append(json.dumps({**key, "split": split_hash(out, name, kind, int(seed)), **cell}))
    # Without a time stamp, equal results give equal files.
    with file.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as compressed:
        compressed.write("".join(f"{line}\n" for line in lines).encode())
    print(f"{file}: {len(lines)} cells")


def unpack(file: Path, out: Path, data: Path) -> None:
    restored = 0
    for line in gzip.open(file, "rt"):
        cell = json.loads(line)
        method, name, kind, seed, expected = (
            cell.pop(key) for key in ("method", "dataset", "kind", "seed", "split")
        )
        splits.write(name, data, out / "splits", [seed])
        if split_hash(out, name, kind, seed) != expected:
            print(f"{method} {name} {kind} {seed}: the split differs, skipped", file=sys.stderr)
            continue
        path = out / "results" / method / f"{name}-{kind}-{seed}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(cell))
            restored += 1
    print(f"{out}: {restored} cells restored")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("out", type=Path)
    packing.add_argument("file", type=Path)
    unpacking = commands.add_parser("unpack")
    unpacking.add_argument("file", type=Path)
    unpacking.add_argument("out", type=Path)
    unpacking.add_argument("--data", type=Path, required=True, help="directory of the MoleculeNet CSV files")
    arguments = parser.parse_args()
    if arguments.command == "pack":
        pack(arguments.out, arguments.file)
    else:
        unpack(arguments.file, arguments.out, arguments.data)


if __name__ == "__main__":
    main()
