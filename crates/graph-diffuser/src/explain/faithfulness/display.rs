//! Faithfulness report as text.

use std::fmt;

use crate::statistics::MeanStd;

use super::{AttentionFractions, FaithfulnessReport, GridFaithfulness};

impl fmt::Display for FaithfulnessReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "Faithfulness over {} graphs, mean ± std\n", self.graphs)?;
        match &self.deletion {
            Some(deletion) => writeln!(
                formatter,
                "Deletion test: masking the top-k nodes (k = {:.1} on average), {}\n  \
                 top-k attended  {}\n  random nodes    {}\n  \
                 larger for the attended nodes in {:.0}% of the graphs",
                deletion.replaced_nodes,
                deletion.metric,
                deletion.top_attended,
                deletion.random,
                100.0 * deletion.fraction_top_larger,
            )?,
            None => writeln!(formatter, "Deletion test: not applicable, nodes have no features")?,
        }
        self.grid.as_ref().map_or(Ok(()), |grid| write!(formatter, "\n{grid}"))
    }
}

impl fmt::Display for GridFaithfulness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "Fraction on ground-truth cells, over {} nodes with at least one:\n\n\
             {:<14} {:>22} {:>20} {:>22}",
            self.nodes, "", "position: row, column", "content: color", "attention: cells"
        )?;
        let mut line = |name: String, fractions: &AttentionFractions| {
            let cell = |value: Option<MeanStd>| {
                value.map_or_else(|| "-".to_owned(), |value| value.to_string())
            };
            writeln!(
                formatter,
                "{name:<14} {:>22} {:>20} {:>22}",
                cell(fractions.position_on_row_and_column),
                cell(fractions.content_on_color),
                cell(Some(fractions.attention_on_ground_truth))
            )
        };
        for layer in &self.layers {
            let head = layer.head.map_or("mean".to_owned(), |head| format!("head {head}"));
            line(format!("layer {} {head}", layer.layer), &layer.fractions)?;
        }
        line("chance".to_owned(), &self.chance)
    }
}
