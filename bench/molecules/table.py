"""Summarizes the results of `run.py` as Markdown tables.

    python table.py OUT [--ours graph-diffuser] [--peers chemprop chemprop-rdkit forest] [--seeds 0 1 2 3 4]

Scores are means ± standard deviations over seeds. A difference is that of the mean scores over the seeds that both methods
have, with a nominal 95 % percentile bootstrap interval over seeds and test molecules; with few seeds, its coverage is
lower, because resampling n seeds underestimates their variance by (n - 1) / n. Positive differences favor `--ours`. A
dataset is lost if the interval of one of its splits is below zero.
"""

import argparse
import json
from pathlib import Path

import numpy

import run
import splits

SAMPLES = 1000


def load(out: Path, method: str, name: str, kind: str, seeds: list[int]) -> dict[int, dict]:
    results = {}
    for seed in seeds:
        path = out / "results" / method / f"{name}-{kind}-{seed}.json"
        if path.exists():
            results[seed] = json.loads(path.read_text())
    return results


def truth(out: Path, name: str, kind: str, seed: int) -> numpy.ndarray:
    targets, rows = run.read_table(splits.path(out / "splits", name, kind, seed))
    test = [row for row in rows if row["split"] == "test"]
    return numpy.array([[run.number(row[target]) for target in targets] for row in test])


def roc_auc(labels: numpy.ndarray, scores: numpy.ndarray) -> float:
    """ROC-AUC as the Mann-Whitney statistic; ties share their mean rank."""
    _, inverse, counts = numpy.unique(scores, return_inverse=True, return_counts=True)
    ranks = (numpy.cumsum(counts) - (counts - 1) / 2)[inverse]
    positives = labels == 1
    count = positives.sum()
    return (ranks[positives].sum() - count * (count + 1) / 2) / (count * (len(labels) - count))


def metric(task: str, values: numpy.ndarray, predicted: numpy.ndarray) -> float:
    scores = []
    for target, prediction in zip(values.T, predicted.T):
        known = ~numpy.isnan(target)
        target, prediction = target[known], prediction[known]
        if task == "regression":
            scores.append(numpy.sqrt(numpy.mean((target - prediction) ** 2)))
        elif 0 < (target == 1).sum() < len(target):
            scores.append(roc_auc(target, prediction))
    return float(numpy.mean(scores)) if scores else numpy.nan


def difference(task: str, cells: list[tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]]) -> tuple[float, float, float]:
    """Returns the mean advantage of the first predictions and its interval."""
    sign = -1.0 if task == "regression" else 1.0

    def advantage(cell: tuple, rows: numpy.ndarray) -> float:
        values, ours, theirs = (array[rows] for array in cell)
        return sign * (metric(task, values, ours) - metric(task, values, theirs))

    mean = float(numpy.mean([advantage(cell, numpy.arange(len(cell[0]))) for cell in cells]))
    generator = numpy.random.default_rng(0)
    samples = []
    for _ in range(SAMPLES):
        chosen = generator.integers(len(cells), size=len(cells))
        parts = (cells[index] for index in chosen)
        samples.append(
            numpy.nanmean([advantage(cell, generator.integers(len(cell[0]), size=len(cell[0]))) for cell in parts])
        )
    low, high = numpy.nanquantile(samples, [0.025, 0.975])
    return mean, float(low), float(high)


def summary(results: dict[int, dict]) -> str:
    scores = [result["score"] for result in results.values()]
    if not scores:
        return "–"
    spread = f" ± {numpy.std(scores, ddof=1):.3f}" if len(scores) > 1 else ""
    return f"{numpy.mean(scores):.3f}{spread} ({len(scores)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ours", default="graph-diffuser")
    parser.add_argument("--peers", nargs="+", default=["chemprop", "chemprop-rdkit", "forest"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(splits.REPORT_SEEDS))
    arguments = parser.parse_args()
    methods = [arguments.ours, *arguments.peers]
    print("| dataset | split | metric |", " | ".join(methods), "|", " | ".join(f"vs {peer}" for peer in arguments.peers), "|")
    print("| --- | --- | --- |" + " ---: |" * (len(methods) + len(arguments.peers)))
    outcomes = {peer: [0, 0, 0] for peer in arguments.peers}
    compared = {peer: set() for peer in arguments.peers}
    lost = {peer: set() for peer in arguments.peers}
    cost = {method: [] for method in methods}
    for name, dataset in splits.DATASETS.items():
        for kind in splits.KINDS:
            results = {method: load(arguments.out, method, name, kind, arguments.seeds) for method in methods}
            if not any(results.values()):
                continue
            for method in methods:
                cost[method] += [(cell["cpu_seconds"], cell["peak_mb"]) for cell in results[method].values()]
            cells = [name, kind, "RMSE ↓" if dataset.task == "regression" else "ROC-AUC ↑"]
            cells += [summary(results[method]) for method in methods]
            for peer in arguments.peers:
                shared = sorted(results[arguments.ours].keys() & results[peer].keys())
                if not shared:
                    cells.append("–")
                    continue
                paired = [
                    (
                        truth(arguments.out, name, kind, seed),
                        numpy.array(results[arguments.ours][seed]["predictions"]),
                        numpy.array(results[peer][seed]["predictions"]),
                    )
                    for seed in shared
                ]
                mean, low, high = difference(dataset.task, paired)
                outcomes[peer][0 if low > 0 else 2 if high < 0 else 1] += 1
                compared[peer].add(name)
                if high < 0:
                    lost[peer].add(name)
                cells.append(f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]")
            print("| " + " | ".join(cells) + " |")
    print()
    for peer, (wins, ties, losses) in outcomes.items():
        won = f"{len(compared[peer] - lost[peer])} of {len(compared[peer])} datasets without a loss"
        print(f"- against `{peer}`: {wins} wins, {ties} ties, {losses} losses (95 % intervals); {won}")
    for method, cells in cost.items():
        if cells:
            seconds, memory = zip(*cells)
            print(f"- `{method}`: {sum(seconds):.0f} CPU seconds for {len(cells)} models, at most {max(memory)} MB")


if __name__ == "__main__":
    main()
