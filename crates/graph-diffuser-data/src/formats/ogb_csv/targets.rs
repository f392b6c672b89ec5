//! Reads the targets from `graph-label`, `node-label` or `contact`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::Scope;

use super::{
    ColumnReader, FeatureStream, OgbCsvError, csv_file, csv_file_or_default, infer,
    with_reverse_edges,
};
use crate::error::LocatedError;
use crate::graph::{Features, Targets};
use crate::io::numeric_csv::{NumericCsvError, NumericCsvReader, parse_f32_or_nan, parse_u32};
use crate::schema::{FeatureSchema, TargetKind, TargetSchema};

/// Reader of the targets.
pub(super) enum TargetStream {
    Graph {
        schema: TargetSchema,
        values: ColumnReader<f32>,
    },
    Nodes {
        classes: FeatureStream,
    },
    Links {
        counts: ColumnReader<u32>,
        pairs: ColumnReader<u32>,
    },
    /// No files; every graph gets placeholder targets.
    Placeholder(TargetSchema),
}

impl TargetStream {
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        raw: &Path,
        schema: Option<TargetSchema>,
        read: &Arc<AtomicU64>,
    ) -> Result<Self, LocatedError> {
        let open = |name| NumericCsvReader::open(&csv_file_or_default(raw, name), read);
        let schema = match schema {
            Some(schema) => schema,
            None => match csv_file(raw, "graph-label") {
                Some(path) => infer::graph_targets(&path, read)?,
                // The number of classes is determined while reading.
                None if csv_file(raw, "node-label").is_some() => TargetSchema::NodeMulticlass(0),
                None if csv_file(raw, "contact").is_some() => TargetSchema::LinkPrediction,
                None => return Err(LocatedError::new(raw, OgbCsvError::NoTargets)),
            },
        };
        let kinds = match &schema {
            TargetSchema::Graph(kinds) => kinds.clone(),
            TargetSchema::NodeMulticlass(count) => {
                let sizes = [*count];
                let sizes = (*count > 0).then_some(sizes.as_slice());
                let classes =
                    FeatureStream::categories(scope, open("node-label")?, "num-node-list", sizes)?;
                let path = csv_file_or_default(raw, "node-label");
                return match classes {
                    FeatureStream::Categories { columns: 1, .. } => Ok(Self::Nodes { classes }),
                    FeatureStream::Categories { columns: found, .. } => Err(LocatedError::new(
                        &path,
                        NumericCsvError::Columns { expected: 1, found },
                    )
                    .at_line(1)),
                    _ => Err(LocatedError::new(
                        &path,
                        OgbCsvError::TooFewRows { found: 0, counts: "num-node-list" },
                    )),
                };
            }
            TargetSchema::LinkPrediction => {
                let counts = ColumnReader::start(
                    scope,
                    open("num-contact-list")?,
                    "num-node-list",
                    Some(1),
                    |_, cell| parse_u32(cell),
                )?;
                let pairs = ColumnReader::start(
                    scope,
                    open("contact")?,
                    "num-contact-list",
                    Some(2),
                    |_, cell| parse_u32(cell),
                )?;
                return Ok(Self::Links { counts, pairs });
            }
            TargetSchema::SubTokens(_) => {
                return Err(LocatedError::new(raw, OgbCsvError::UnsupportedSubTokens));
            }
        };
        let columns = kinds.len();
        let cell = move |column: usize, bytes: &[u8]| {
            let value = parse_f32_or_nan(bytes)?;
            match kinds[column] {
                kind if kind.accepts(value) => Ok(value),
                TargetKind::Multiclass(classes) => {
                    Err(NumericCsvError::NotAClass { value, classes })
                }
                _ => Err(NumericCsvError::NotALabel { value }),
            }
        };
        Ok(Self::Graph {
            schema,
            values: ColumnReader::start(
                scope,
                open("graph-label")?,
                "num-node-list",
                Some(columns),
                cell,
            )?,
        })
    }

    pub(super) fn take(&mut self, graph: usize, nodes: usize) -> Result<Targets, LocatedError> {
        match self {
            Self::Graph { values, .. } => {
                let mut row = vec![];
                values.take(1, &mut row)?;
                Ok(Targets::GraphValues(row))
            }
            Self::Nodes { classes } => Ok(match classes.take(nodes, false)? {
                Features::Categorical { values, .. } => Targets::NodeClasses(values),
                _ => unreachable!("node classes are categorical"),
            }),
            Self::Links { counts, pairs } => {
                let rows = counts.count()? as usize;
                Ok(Targets::Links(with_reverse_edges(&pairs.pairs(rows, graph, nodes)?)))
            }
            Self::Placeholder(schema) => Ok(schema.placeholder(nodes)),
        }
    }

    pub(super) fn finish(&mut self) -> Result<TargetSchema, LocatedError> {
        match self {
            Self::Graph { schema, values } => values.finish().map(|()| schema.clone()),
            Self::Nodes { classes } => {
                classes.finish()?;
                Ok(match classes.schema() {
                    FeatureSchema::Categorical(sizes) => TargetSchema::NodeMulticlass(sizes[0]),
                    _ => unreachable!("node classes are categorical"),
                })
            }
            Self::Links { counts, pairs } => {
                counts.finish()?;
                pairs.finish().map(|()| TargetSchema::LinkPrediction)
            }
            Self::Placeholder(schema) => Ok(schema.clone()),
        }
    }
}
