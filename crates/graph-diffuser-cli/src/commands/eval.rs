//! `eval`: evaluates a run on one split.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use graph_diffuser::run::{EnsembleEvaluation, Evaluation};
use graph_diffuser::statistics::{MeanStd, format_score};
use graph_diffuser::task::{Metric, TargetScores};
use graph_diffuser_data::Split;
use serde::Serialize;

use crate::args::{ChangedDataArgs, DeviceArgs, RunArgs, SplitArgs, ThreadArgs};
use crate::error::Result;
use crate::printer::{Printer, path_text, thousands};
use crate::progress::read_run_dataset;
use crate::scores::score_table;
use crate::session::{Completion, Session};

/// Evaluate a run on one split
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser eval runs/grid-quick-s0 --split test\n  \
    graph-diffuser eval --pretrained grid\n\n\
    Uses the checkpoint with the best validation score; of an ensemble, the average of all \
    members.")]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    split: SplitArgs,
    #[command(flatten)]
    changed_data: ChangedDataArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Output of `eval --json`.
#[derive(Debug, Serialize)]
struct EvaluationJson {
    #[serde(serialize_with = "path_text")]
    run: PathBuf,
    split: Split,
    metric: &'static str,
    value: f64,
    metrics: BTreeMap<Metric, f64>,
    loss: f64,
    samples: usize,
    targets: Vec<TargetScores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ensemble: Option<EnsembleEvaluation>,
}

pub(crate) fn eval(args: EvalArgs, printer: &mut Printer) -> Result<ExitCode> {
    Session::start().run(|session| {
        evaluate(&args, session, printer)?;
        Ok(Completion::Complete)
    })
}

fn evaluate(args: &EvalArgs, session: &Session, printer: &mut Printer) -> Result<()> {
    args.threads.apply();
    let device = args.device.open()?;
    let split = args.split.split();
    let run = session.first_alone(|| args.run.open())?.with_group(session.group().clone());
    let dataset = session.first_alone(|| read_run_dataset(&run))?;
    args.changed_data.check(&run, &dataset, printer)?;
    let Evaluation { metric, scores, targets, ensemble } =
        run.evaluate(&dataset, &device, split)?;
    let evaluation = EvaluationJson {
        run: run.directory().to_owned(),
        split,
        metric: metric.name(),
        value: scores.metric,
        metrics: scores.metrics.clone(),
        loss: scores.loss,
        samples: scores.samples,
        targets,
        ensemble,
    };
    printer.data(&evaluation, || {
        let mut values = vec![format!("{} {}", metric.name(), format_score(scores.metric))];
        let others = scores.metrics.iter().filter(|(other, _)| **other != metric);
        values.extend(
            others.map(|(other, &value)| format!("{} {}", other.name(), format_score(value))),
        );
        let samples = thousands(scores.samples);
        let loss = if metric == Metric::Loss {
            String::new()
        } else {
            format!("  loss {}", format_score(scores.loss))
        };
        let table = score_table(&evaluation.targets);
        let members = evaluation.ensemble.as_ref().map_or(String::new(), |ensemble| {
            let scores: Vec<f64> = ensemble.members.iter().map(|member| member.metric).collect();
            MeanStd::new(&scores).map_or(String::new(), |stats| {
                let name = metric.name();
                format!("\nensemble of {} members, {name} of a member {stats}", scores.len())
            })
        });
        format!("{}{loss}  ({samples} samples){members}\n\n{table}", values.join("  "))
    });
    Ok(())
}
