//! `eval`: score a run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use graph_diffuser::Device;
use graph_diffuser::task::Metric;
use graph_diffuser_data::Split;
use serde::Serialize;

use crate::args::{Part, RunArgs, use_threads};
use crate::printer::Printer;
use crate::progress::read_dataset;

/// Score the best weights of a run on one split
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser eval runs/grid-quick-s0 --split test\n  \
    graph-diffuser eval --pretrained grid")]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Which part of the dataset to score
    #[arg(long, value_enum, default_value_t = Part::Test)]
    split: Part,
    /// Threads to compute with; results do not depend on it [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
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
    let split = Split::from(args.split);
    let run = args.run.open()?;
    let dataset = read_dataset(run.recipe())?;
    let (metric, scores) = run.evaluate(&dataset, &Device::flex(), split)?;
    let evaluation = Evaluation {
        run: run.directory().to_owned(),
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
