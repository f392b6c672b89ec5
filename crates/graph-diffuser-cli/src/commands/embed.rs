//! `embed`: writes graph or node embeddings for the rows of a file.

use std::process::ExitCode;

use clap::Args;
use graph_diffuser::predict::{EmbeddingFormat, EmbeddingLevel, embed_rows};

use crate::error::{Result, UsageError};
use crate::printer::Printer;

use super::predict::{InvalidRows, RowArgs};

/// Write graph or node embeddings for the rows of a file
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser embed runs/molecules-s0 --input new.csv -o embeddings.npy\n  \
    graph-diffuser embed runs/graphs-s0 --input new.jsonl -o nodes.csv --nodes\n\n\
    The embedding of a graph is the input of the prediction head; for node-level tasks it is the \
    mean over nodes. An .npy file holds a float32 array with one row per graph or node in input \
    order; a .csv file starts each row with the line number and the name. With `--on-invalid \
    keep` the embedding of an invalid row is NaN.")]
pub(crate) struct EmbedArgs {
    #[command(flatten)]
    rows: RowArgs,
    /// Write one row per node instead of one per graph
    #[arg(long)]
    nodes: bool,
}

pub(crate) fn embed(args: EmbedArgs, printer: &mut Printer) -> Result<ExitCode> {
    let EmbedArgs { rows, nodes } = args;
    let format = match rows.output().extension().and_then(|extension| extension.to_str()) {
        Some("npy") => EmbeddingFormat::Npy,
        Some("csv") => EmbeddingFormat::Csv,
        _ => {
            let message = format!(
                "`{}` must end in .npy or .csv to hold embeddings",
                rows.output().display()
            );
            let hint = "use `--output embeddings.npy` or `--output embeddings.csv`".to_owned();
            return Err(UsageError { message, hint }.into());
        }
    };
    if nodes && rows.on_invalid == InvalidRows::Keep {
        let message = "`--on-invalid keep` cannot be used with `--nodes`: an invalid row has no \
                       nodes"
            .to_owned();
        return Err(UsageError { message, hint: "use `--on-invalid skip`".to_owned() }.into());
    }
    let level = if nodes { EmbeddingLevel::Nodes } else { EmbeddingLevel::Graphs };
    let file = rows.create_output()?;
    rows.run_job(printer, |predictor, job, on_event| {
        let (counts, written) = embed_rows(predictor, job, &file, format, level, on_event)?;
        file.persist()?;
        let dimension = predictor.embedding_dim();
        Ok((counts, format!(", {written} embeddings of dimension {dimension}")))
    })
}
