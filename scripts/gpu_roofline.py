#!/usr/bin/env python3
"""Print bytes, flops and roofline times of a training step on GPUs, as Markdown.

Counts float32 values that each operation reads and writes once, forward and backward, and the multiply-adds that it
executes, recomputation included. The time of an operation is the larger of bytes / bandwidth and flops / peak, plus the
latency of its launches. Nothing here was measured. Batch shapes are round averages of the datasets.
"""

# Name: graphs per batch, nodes and edges per graph, hidden dimension, layers, heads, steps, MPNN, parameters in millions.
RECIPES = {
    "grid-diffuser": (16, 120, 440, 32, 3, 4, 16, None, 0.033),
    "zinc": (32, 23, 50, 64, 10, 4, 16, "gine", 0.443),
    "peptides-func": (128, 151, 307, 112, 4, 4, 16, None, 0.5),
    "pcqm-contact": (128, 30, 61, 92, 4, 4, 16, "gated_gcn", 0.5),
    "pcqm4mv2": (16, 14, 29, 384, 10, 16, 16, "gated_gcn", 20.3),
    "ogbg-molpcba": (512, 26, 56, 384, 5, 4, 16, "gated_gcn", 10.0),
    "ogbg-ppa": (32, 243, 4532, 256, 3, 8, 10, "gated_gcn", 3.0),
    "ogbg-code2": (32, 125, 248, 256, 4, 4, 20, "gated_gcn", 13.9),
}

# Name: bandwidth in bytes/s, float32 peak in flops/s, of the vendors' data sheets.
DEVICES = {"A10G": (600e9, 31.2e12), "laptop (RTX 4050)": (192e9, 9.0e12)}
LAUNCH_SECONDS = 5e-6


def operations(recipe):
    """Yield name, bytes, flops and launches of a step; launches are `None` for operations of Burn."""
    b, n, m, d, layers, h, k, mpnn, millions = recipe
    r, p, edges, c = b * n, b * n * n, b * m, k + 1
    # Forward: content scores twice and values once. Backward: five products, three of them recomputed.
    yield (
        "attention",
        4 * layers * (r * 3 * d + 2 * h * p + r * d + 2 * (r * 3 * d + 3 * h * p + 2 * r * d)),
        2 * layers * p * d * (3 + 8),
        layers * (1 + 3),
    )
    degree = m / n
    yield "diffusion stack", 4 * p * c * (2 + 5), 2 * p * k * degree * 3, 1 + 2
    # Two layers of c x c twice and the position scores of all layers, which every pass computes again up to its layer.
    # Forward: three passes for statistics, one for scores. Backward: copies of the gradients, one pass for the
    # projections, two for the layers, one for the stack. Chunks of pairs write partial sums for all parameters.
    scores = layers * h
    parts = min(1024, p // 64) * (2 * c + 2 * (2 * c * c + 4 * c) + scores * (c + 1))
    yield (
        "edge FFN",
        4 * (p * (15 * c + 4 * scores + 2) + 2 * parts),
        2 * p * (26 * c * c + 3 * scores * c),
        8 + 8 + layers,
    )
    linear = 2 * r * d * d * (4 + 4) + (2 * (edges + 4 * r) * d * d if mpnn else 0)
    yield "linear layers (Burn)", 4 * layers * 3 * r * d * 16, 3 * layers * linear, None
    if mpnn == "gine":
        yield "GINE", 4 * layers * d * (3 * edges + 3 * r) * 3, layers * d * edges * 6, layers * (1 + 2)
    if mpnn == "gated_gcn":
        yield "GatedGCN", 4 * layers * d * (16 * edges + 6 * r), layers * d * edges * 60, layers * (1 + 2)
    # Two or three residual norms of nodes; GatedGCN normalizes its nodes and edges, too.
    norms = 2 if mpnn is None else 3
    residual, rows = norms * r, r + edges if mpnn == "gated_gcn" else 0
    yield (
        "batch norms",
        4 * layers * d * (10 * residual + 8 * rows),
        20 * layers * d * (residual + rows),
        layers * 6 * (norms + 2 if mpnn == "gated_gcn" else norms),
    )
    yield "AdamW", 4 * millions * 1e6 * 8, millions * 1e6 * 16, 3


def main():
    header = ["recipe", "operation", "MB", "MFLOP", "launches"] + [f"{name}, µs" for name in DEVICES]
    print("| " + " | ".join(header) + " |")
    print("|---|---|" + "---:|" * (len(header) - 2))
    for name, recipe in RECIPES.items():
        for operation, size, flops, launches in operations(recipe):
            row = [name, operation, f"{size / 1e6:.1f}", f"{flops / 1e6:.0f}", "–" if launches is None else str(launches)]
            for bandwidth, peak in DEVICES.values():
                seconds = max(size / bandwidth, flops / peak) + (launches or 0) * LAUNCH_SECONDS
                row.append(f"{seconds * 1e6:.0f}")
            print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
