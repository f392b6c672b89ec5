//! `bench`: measures time and memory of a training step on synthetic batches.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use graph_diffuser::bench::{Bench, Case};
use serde::Serialize;

use crate::args::{DeviceArgs, ThreadArgs};
use crate::error::Result;
use crate::printer::Printer;

/// Measure time and memory of a training step on synthetic batches
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser bench grid --threads 1 --json\n  \
    graph-diffuser bench zinc --profile\n  \
    graph-diffuser bench grid --forward --num-nodes 20000 --steps 1")]
pub(crate) struct BenchArgs {
    /// Model and dataset to benchmark
    #[arg(value_enum)]
    case: CaseName,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Number of measured steps, after a warm-up over all batches
    #[arg(long, value_name = "N", default_value_t = 20)]
    steps: usize,
    /// Measure only the forward pass, so that peak memory is that of evaluation
    #[arg(long)]
    forward: bool,
    /// Number of graphs per batch [default: that of CASE]
    #[arg(long, value_name = "N", conflicts_with = "num_nodes", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch_size: Option<u32>,
    /// Use one graph of about N nodes instead of batches of small graphs
    #[arg(long, value_name = "N", requires = "forward", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    num_nodes: Option<u32>,
    /// Print the time spent in each part of a step
    #[arg(long, conflicts_with = "num_nodes")]
    profile: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CaseName {
    /// 32 grids of 10 x 10..13 cells, hidden dimension 32, 3 layers, 16 diffusion steps
    Grid,
    /// 32 molecules of about 23 nodes, hidden dimension 64, 10 layers with GINE
    Zinc,
    /// 16 peptides of about 150 nodes, hidden dimension 112, 4 layers, CLS node
    Peptides,
}

/// Output of `bench --json`.
#[derive(Debug, Serialize)]
struct Measurement {
    case: &'static str,
    threads: usize,
    device: String,
    pairs: usize,
    params: usize,
    train_ms: Option<f64>,
    forward_ms: f64,
    peak_rss_mb: Option<u64>,
    /// Estimate of the memory check of `train`.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_mb: Option<u64>,
    graphs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_ms: Option<Vec<(String, f64)>>,
}

pub(crate) fn bench(args: BenchArgs, printer: &mut Printer) -> Result<ExitCode> {
    let threads = args.threads.apply();
    let device = args.device.open()?;
    let (name, case) = match args.case {
        CaseName::Grid => ("grid", Case::Grid),
        CaseName::Zinc => ("zinc", Case::Zinc),
        CaseName::Peptides => ("peptides", Case::Peptides),
    };
    let steps = args.steps.max(1);
    let mut bench = if let Some(nodes) = args.num_nodes {
        Bench::single_graph(case, nodes as usize, &device)
    } else {
        let graphs = args.batch_size.map_or_else(|| case.graphs(), |size| size as usize);
        Bench::new(case, graphs, &device)
    };
    let batches = bench.batches();
    let train = (!args.forward).then(|| median(batches, steps, |step| bench.train_step(step)));
    let peak_rss_mb = train.and_then(|_| peak_rss_mb());
    let forward = median(batches, steps, |step| bench.forward(step));
    let milliseconds = |time: Duration| (time.as_secs_f64() * 1e5).round() / 100.0;
    let profile = args.profile.then(|| bench.profile(steps));
    let measured = Measurement {
        case: name,
        threads,
        device: args.device.name().to_string(),
        pairs: bench.pairs(),
        params: bench.parameters(),
        train_ms: train.map(milliseconds),
        forward_ms: milliseconds(forward),
        peak_rss_mb: peak_rss_mb.or_else(self::peak_rss_mb),
        estimated_mb: bench
            .estimated_bytes()
            .filter(|_| train.is_some())
            .map(|bytes| bytes / (1 << 20)),
        graphs_per_s: train
            .map(|time| (bench.graphs() as f64 / time.as_secs_f64() * 10.0).round() / 10.0),
        profile_ms: profile.map(|timings| {
            timings.0.into_iter().map(|(part, time)| (part, milliseconds(time))).collect()
        }),
    };
    printer.data(&measured, || to_text(&measured));
    Ok(ExitCode::SUCCESS)
}

fn to_text(measured: &Measurement) -> String {
    let optional =
        |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"));
    let mut text = format!(
        "{}: {} threads, {} node pairs per batch, {} parameters\n  \
         train step {} ms ({} graphs/s), forward {:.1} ms, peak memory {} MB\n",
        measured.case,
        measured.threads,
        measured.pairs,
        measured.params,
        optional(measured.train_ms),
        optional(measured.graphs_per_s),
        measured.forward_ms,
        measured.peak_rss_mb.map_or_else(|| "–".to_owned(), |value| value.to_string()),
    );
    for (part, time) in measured.profile_ms.iter().flatten() {
        text.push_str(&format!("  {part:<28} {time:>9.2} ms\n"));
    }
    text
}

/// Returns the median time of a call, after a warm-up over all batches.
fn median(batches: usize, steps: usize, mut call: impl FnMut(usize)) -> Duration {
    (0..batches).for_each(&mut call);
    let mut times: Vec<Duration> = (0..steps)
        .map(|step| {
            let start = Instant::now();
            call(step);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// Returns the peak resident memory of this process, if the system reports it.
fn peak_rss_mb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes / 1024)
}
