//! `embed`: writes graph or node embeddings for the rows of a file.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use graph_diffuser::predict::{EmbeddingFormat, EmbeddingLevel, embed_rows};

use crate::error::{Result, UsageError};
use crate::output::{Destination, extension};
use crate::printer::Printer;
use crate::session::Session;

use super::predict::{InvalidRows, JobOutput, RowArgs};

/// Write graph or node embeddings for the rows of a file
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser embed runs/molecules-s0 --input new.csv -o embeddings.npy\n  \
    graph-diffuser embed runs/graphs-s0 --input new.jsonl -o nodes.csv --nodes\n  \
    cat new.csv | graph-diffuser embed runs/molecules-s0 --input - -o - --format npy > v.npy\n\n\
    The embedding of a graph is the input of the prediction head; for node-level tasks it is the \
    mean over nodes. The embeddings of the members of an ensemble are concatenated. An .npy file holds a float32 array with one row per graph or node in input \
    order; a .csv or .csv.gz file starts each row with the line number and the name. With \
    `--on-invalid keep` the embedding of an invalid row is NaN. Running an interrupted command \
    again continues it.")]
pub(crate) struct EmbedArgs {
    #[command(flatten)]
    rows: RowArgs,
    /// Write one row per node instead of one per graph
    #[arg(long)]
    nodes: bool,
    /// Format of the output [default: from its extension, `csv` on standard output]
    #[arg(long, value_enum)]
    format: Option<FormatName>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormatName {
    Csv,
    Npy,
}

impl EmbedArgs {
    /// Returns the format of the output, from `--format` or the extension.
    fn format(&self, destination: Destination) -> Result<EmbeddingFormat, UsageError> {
        let path = self.rows.output.path();
        let is_file = destination == Destination::File;
        let named = match (self.format, extension(path)) {
            (Some(FormatName::Csv), _) | (None, (Some("csv"), _)) => Some(EmbeddingFormat::Csv),
            (Some(FormatName::Npy), (_, false)) | (None, (Some("npy"), false)) => {
                Some(EmbeddingFormat::Npy)
            }
            _ => (!is_file).then_some(EmbeddingFormat::Csv),
        };
        named.ok_or_else(|| UsageError {
            message: format!("unknown embedding format of `{}`", path.display()),
            hint: "use a name that ends in .npy, .csv or .csv.gz, or `--format`".into(),
        })
    }
}

pub(crate) fn embed(args: EmbedArgs, printer: &mut Printer) -> Result<ExitCode> {
    Session::start().run(|session| {
        let destination = args.rows.destination(session, printer)?;
        let format = args.format(destination)?;
        if format == EmbeddingFormat::Npy {
            args.rows.output.check_binary(destination)?;
        }
        let EmbedArgs { rows, nodes, .. } = &args;
        if *nodes && rows.on_invalid == InvalidRows::Keep {
            let message = "`--on-invalid keep` cannot be used with `--nodes`: an invalid row has \
                           no nodes"
                .to_owned();
            return Err(UsageError { message, hint: "use `--on-invalid skip`".to_owned() }.into());
        }
        let level = if *nodes { EmbeddingLevel::Nodes } else { EmbeddingLevel::Graphs };
        let content = &format!("{level:?} embeddings as {format:?}");
        let job = JobOutput { content, destination, similarity: false, session };
        rows.run_job(job, printer, |predictor, job, output, on_event| {
            let (counts, written) = embed_rows(predictor, job, output, format, level, on_event)?;
            let dimension = predictor.embedding_dim();
            Ok((counts, format!(", {written} embeddings of dimension {dimension}")))
        })
    })
}
