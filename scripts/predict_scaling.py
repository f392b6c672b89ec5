"""Predicts the step time of distributed training from measurements on one machine.

    python scripts/predict_scaling.py --compute 0.026 --messages 72 --parameters 452160 --small-bytes 79900

Model of a step on P processes, each with one shard:

    time(P) = compute + rounds(P) * latency + bytes(P) / bandwidth

`compute` is the time of one shard of the batch that P processes share, so the batch grows with P (weak scaling).
Every message of a run on two processes becomes log2(P) messages: a batch norm is exchanged with partners at distance
1, 2, 4, ..., and the gradient of N parameters, 8 N (P - 1) / P bytes per process, with twice as many. Messages are not
overlapped with computation, as in the program. `--messages` is the number of messages per step of rank 0 in a run on
two processes, `--small-bytes` their bytes without the gradient; a run prints totals at its end.
"""

import argparse
import math

# Latency of a message in seconds and bandwidth in bytes per second; assumptions, not measurements.
NETWORKS = {
    "100 Gbit/s InfiniBand": (2e-6, 12e9),
    "25 Gbit/s Ethernet": (20e-6, 3e9),
    "10 Gbit/s Ethernet": (50e-6, 1.2e9),
}


def step_time(ranks, compute, messages, small_bytes, parameters, latency, bandwidth):
    """Returns the predicted time of a step in seconds."""
    if ranks == 1:
        return compute
    levels = math.log2(ranks)
    rounds = messages * levels
    sent = small_bytes * levels + 8 * parameters * (ranks - 1) / ranks
    return compute + rounds * latency + sent / bandwidth


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compute", type=float, required=True, help="seconds of a step of one shard")
    parser.add_argument("--messages", type=float, required=True, help="messages per step on two processes")
    parser.add_argument("--small-bytes", type=float, required=True, help="bytes per step without the gradient")
    parser.add_argument("--parameters", type=int, required=True, help="number of parameters")
    parser.add_argument("--latency", type=float, help="seconds per message, instead of the networks listed")
    parser.add_argument("--bandwidth", type=float, default=12e9, help="bytes per second with --latency")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512])
    args = parser.parse_args()
    networks = NETWORKS if args.latency is None else {"given": (args.latency, args.bandwidth)}
    print(f"{'network':<24}" + "".join(f"{ranks:>6} ranks" for ranks in args.ranks))
    for name, (latency, bandwidth) in networks.items():
        cells = []
        for ranks in args.ranks:
            time = step_time(
                ranks, args.compute, args.messages, args.small_bytes, args.parameters, latency, bandwidth
            )
            cells.append(f"{1e3 * time:>6.1f} ms {args.compute / time:4.0%}")
        print(f"{name:<24}" + "".join(cells))


if __name__ == "__main__":
    main()
