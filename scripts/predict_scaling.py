"""Predicts the step time of distributed training from measurements on one machine.

    python scripts/predict_scaling.py --compute 0.026 --messages 72 --parameters 452160 --small-bytes 79900

Model of a step on P processes, each with one shard:

    time(P) = compute + rounds(P) * latency + bytes(P) / bandwidth

`compute` is the time of one shard of the batch that P processes share, so the batch grows with P (weak scaling).
Every message of a run on two processes becomes log2(P) messages: a batch norm is exchanged with partners at distance
1, 2, 4, ..., and the gradient of N parameters, 8 N (P - 1) / P bytes per process, with twice as many. Messages are not
overlapped with computation, as in the program. `--messages` is the number of messages per step of rank 0 in a run on
two processes, `--small-bytes` their bytes without the gradient; a run prints totals at its end.

    python scripts/predict_scaling.py --measure target/release/graph-diffuser --recipe grid-quick --set data.valid=50

trains two short runs with two shards, on one process with one and two threads and on two processes, and compares the
step time of two processes with that of the model, for the latency and bandwidth of a memory bus. The program must be
built with the feature `mpi`.
"""

import argparse
import json
import math
import re
import subprocess
import tempfile
from pathlib import Path

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


# Latency and bandwidth between processes of one machine; assumptions, too.
SHARED_MEMORY = (2e-6, 5e9)


def train(program, recipe, settings, processes, threads, epochs):
    """Trains a run with two shards; returns seconds and steps of its last epoch, and the output."""
    launcher = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(processes)]
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        arguments = [str(program), "train", recipe, "-o", str(run), "--threads", str(threads)]
        for setting in [*settings, "train.shards=2", f"train.epochs={epochs}"]:
            arguments += ["--set", setting]
        command = arguments if processes == 1 else launcher + arguments
        output = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = (run / "metrics.jsonl").read_text().splitlines()
        first, last = json.loads(lines[-2]), json.loads(lines[-1])
        # The time in `metrics.jsonl` includes validation.
        graphs = int(re.search(r"parameters on ([\d,]+) graphs", output.stderr)[1].replace(",", ""))
        rate = float(re.findall(r"([\d.]+) graphs/s", output.stderr)[-1])
        return graphs / rate, last["step"] - first["step"], output.stderr


def measure(args):
    """Prints measured step times and the prediction for two processes."""
    times, traffic = {}, None
    for processes, threads in [(1, 1), (1, 2), (2, 1)]:
        # Alternating repetitions: the best one is the least disturbed.
        seconds = []
        for _ in range(args.repeat):
            epoch, steps, output = train(
                args.measure, args.recipe, args.set, processes, threads, args.epochs
            )
            seconds.append(epoch / steps)
            if processes == 2:
                sent = re.search(r"rank 0 sent (\d+) messages with ([\d.]+) MB", output)
                total = steps * args.epochs
                traffic = int(sent[1]) / total, float(sent[2]) * 1e6 / total
        times[processes, threads] = min(seconds)
    messages, sent = traffic
    latency, bandwidth = SHARED_MEMORY
    predicted = times[1, 1] / 2 + messages * latency + sent / bandwidth
    print(f"{args.recipe}: {messages:.0f} messages and {sent / 1e3:.1f} kB per step")
    for (processes, threads), time in times.items():
        speedup = times[1, 1] / time
        print(f"{processes} process(es) x {threads} thread(s): {1e3 * time:.1f} ms, {speedup:.2f}x")
    print(f"predicted for 2 processes: {1e3 * predicted:.1f} ms, {times[1, 1] / predicted:.2f}x")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", type=Path, help="the program: measure instead of predicting")
    parser.add_argument("--recipe", default="grid-quick", help="recipe of the measurement")
    parser.add_argument("--set", action="append", default=[], help="setting of the measurement")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of the measurement")
    parser.add_argument("--repeat", type=int, default=2, help="runs per number of processes")
    parser.add_argument("--compute", type=float, help="seconds of a step of one shard")
    parser.add_argument("--messages", type=float, help="messages per step on two processes")
    parser.add_argument("--small-bytes", type=float, help="bytes per step without the gradient")
    parser.add_argument("--parameters", type=int, help="number of parameters")
    parser.add_argument("--latency", type=float, help="seconds per message, instead of the networks listed")
    parser.add_argument("--bandwidth", type=float, default=12e9, help="bytes per second with --latency")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512])
    args = parser.parse_args()
    if args.measure:
        measure(args)
        return
    if None in (args.compute, args.messages, args.small_bytes, args.parameters):
        parser.error("--compute, --messages, --small-bytes and --parameters are required")
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
