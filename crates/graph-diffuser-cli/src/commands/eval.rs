//! `eval`: score a run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use graph_diffuser::Device;
use graph_diffuser::run::Run;
use graph_diffuser::task::Metric;
use graph_diffuser_data::Split;
use serde::Serialize;

use crate::args::use_threads;
use crate::printer::Printer;
use crate::progress::read_dataset;

/// Score the best weights of a run on one split
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  graph-diffuser eval runs/grid-quick-s0 --split test")]
pub(crate) struct EvalArgs {
    /// Directory written by `graph-diffuser train`
    run: PathBuf,
    /// Which part of the dataset to score
    #[arg(long, value_enum, default_value_t = Part::Test)]
    split: Part,
    /// Threads to compute with; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Part {
    Train,
    Valid,
    Test,
}

#[derive(Debug, Serialize)]
struct Evaluation {
    run: PathBuf,
    split: Split,
    metric: &'static str,
    value: f64,
    metrics: BTreeMap<Metric, f64>,
    loss: f64,
    samples: usize,
}

pub(crate) fn eval(args: EvalArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    use_threads(args.threads);
    let split = match args.split {
        Part::Train => Split::Train,
        Part::Valid => Split::Valid,
        Part::Test => Split::Test,
    };
    let run = Run::open(&args.run)?;
    let dataset = read_dataset(run.recipe())?;
    let (metric, scores) = run.evaluate(&dataset, &Device::flex(), split)?;
    let evaluation = Evaluation {
        run: args.run,
        split,
        metric: metric.name(),
        value: scores.metric,
        metrics: scores.metrics.clone(),
        loss: scores.loss,
        samples: scores.samples,
    };
    printer.data(&evaluation, || {
        let mut values = vec![format!("{} {:.4}", metric.name(), scores.metric)];
        let others = scores.metrics.iter().filter(|(other, _)| **other != metric);
        values.extend(others.map(|(other, value)| format!("{} {value:.4}", other.name())));
        format!("{}  loss {:.4}  over {} samples", values.join("  "), scores.loss, scores.samples)
    });
    Ok(ExitCode::SUCCESS)
}
