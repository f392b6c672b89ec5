//! `export`: the vectors that predictions are read off.

use std::process::ExitCode;

use clap::Args;
use graph_diffuser::predict::{AtomicFile, EmbeddingFormat, EmbeddingLevel, embed_rows};

use crate::printer::{Misuse, Printer};

use super::predict::{Invalid, RowArgs};

/// Write the vectors that a run makes of molecules or graphs
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    graph-diffuser export runs/molecules-s0 --input new.csv --output vectors.npy\n  \
    graph-diffuser export runs/graphs-s0 --input new.jsonl --output nodes.csv --nodes\n\n\
    The vector of a graph is what its prediction is read off; where nodes are predicted, it is the mean of theirs. \
    An .npy file holds an array of single precision, one row a graph, in the order of the input; a .csv file has line \
    and name of each row first. With `--on-invalid blank` a row without a vector is not a number.")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    rows: RowArgs,
    /// One row a node instead of one a graph
    #[arg(long)]
    nodes: bool,
}

pub(crate) fn export(args: ExportArgs, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    let ExportArgs { rows, nodes } = args;
    let format = match rows.output.extension().and_then(|extension| extension.to_str()) {
        Some("npy") => EmbeddingFormat::Npy,
        Some("csv") => EmbeddingFormat::Csv,
        _ => {
            let what = format!("`{}` is neither an .npy nor a .csv file", rows.output.display());
            return Err(Misuse { what, hint: "name it vectors.npy or vectors.csv" }.into());
        }
    };
    if nodes && rows.on_invalid == Invalid::Keep {
        let what = "a row that is no graph has no nodes to leave blank".to_owned();
        return Err(Misuse { what, hint: "use `--on-invalid skip` with `--nodes`" }.into());
    }
    let of = if nodes { EmbeddingLevel::Nodes } else { EmbeddingLevel::Graphs };
    let new = AtomicFile::create(&rows.output, rows.force)?;
    rows.through(printer, |predictor, reading, tell| {
        let (counts, vectors) = embed_rows(predictor, reading, &new, format, of, tell)?;
        new.keep()?;
        Ok((counts, format!(", {vectors} vectors of {}", predictor.width())))
    })
}
