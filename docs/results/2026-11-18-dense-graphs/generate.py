"""Generates the Erdős–Rényi graphs of this record: uniform.jsonl, rare.jsonl and rare-features.jsonl."""

import json
import random
import statistics


def graph(nodes, probability):
    pairs = [[a, b] for a in range(nodes) for b in range(a + 1, nodes)]
    return nodes, [pair for pair in pairs if random.random() < probability]


def density(nodes, edges):
    return 2 * len(edges) / (nodes * (nodes - 1))


def uniform():
    random.seed(7)
    graphs = [graph(random.randint(6, 20), random.uniform(0.05, 0.95)) for _ in range(300)]
    return [{"nodes": n, "edges": e, "target": round(10 * density(n, e), 5)} for n, e in graphs]


def rare(seed, first, features):
    """Five of 300 graphs are dense."""
    random.seed(seed)
    graphs = []
    for index in range(300):
        dense = index % 60 == first
        nodes = random.randint(16, 20) if dense else random.randint(6, 20)
        graphs.append(graph(nodes, random.uniform(0.8, 0.95) if dense else random.uniform(0.05, 0.25)))
    values = [density(*found) for found in graphs]
    mean, std = statistics.mean(values), statistics.stdev(values)
    for (nodes, edges), value in zip(graphs, values):
        row = {"nodes": nodes, "edges": edges, "target": round((value - mean) / std, 5)}
        if features:
            row["node_features"] = [random.gauss(0, 1) for _ in range(nodes)]
        yield row


def write(path, rows):
    with open(path, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    write("uniform.jsonl", uniform())
    write("rare.jsonl", rare(11, 7, features=False))
    write("rare-features.jsonl", rare(4, 3, features=True))
