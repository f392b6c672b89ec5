//! Split of a dataset into training, validation and test graphs.

use std::fmt;
use std::path::PathBuf;

use graph_diffuser_data::{Dataset, Graph, Splits, TargetKind, Targets};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DataError;

/// Split into training, validation and test graphs, selected by `kind`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SplitConfig {
    /// Random split, stratified by the class of a single classification target.
    Random {
        /// Seed of the split, independent of the recipe's seed; default 0.
        #[serde(default)]
        seed: u64,
        /// Fractions of training, validation and test graphs; default `[0.8, 0.1, 0.1]`.
        #[serde(default = "default_fractions")]
        fractions: [f64; 3],
    },
    /// Scaffold split: molecules with the same Bemis–Murcko scaffold share a split, and the most
    /// frequent scaffolds are training data.
    Scaffold {
        /// Fractions of training, validation and test graphs; default `[0.8, 0.1, 0.1]`.
        #[serde(default = "default_fractions")]
        fractions: [f64; 3],
    },
    /// K-fold split, stratified by the class of a single classification target: `fold` is the test
    /// set, the next fold the validation set.
    KFold {
        /// Number of folds.
        k: usize,
        /// Index of the test fold, from 0.
        fold: usize,
        /// Seed of the assignment to folds; default 0.
        #[serde(default)]
        seed: u64,
    },
    /// Split read from a JSON file with the lists of graph indices `train`, `valid` and `test`.
    File {
        /// Path of the file.
        path: PathBuf,
    },
}

impl fmt::Display for SplitConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random { seed, .. } => write!(formatter, "random, seed {seed}"),
            Self::Scaffold { .. } => write!(formatter, "scaffold"),
            Self::KFold { k, fold, seed } => write!(formatter, "fold {fold} of {k}, seed {seed}"),
            Self::File { path } => write!(formatter, "file `{}`", path.display()),
        }
    }
}

fn default_fractions() -> [f64; 3] {
    Splits::DEFAULT_FRACTIONS
}

impl Default for SplitConfig {
    fn default() -> Self {
        Self::Random { seed: 0, fractions: Splits::DEFAULT_FRACTIONS }
    }
}

impl SplitConfig {
    /// Splits the graphs of `dataset`, whose scaffolds are `scaffolds` if they are molecules.
    pub(super) fn apply(
        &self,
        dataset: &Dataset,
        scaffolds: Option<&[String]>,
    ) -> Result<Splits, DataError> {
        let count = dataset.graphs.len();
        Ok(match self {
            Self::Random { seed, fractions } => {
                Splits::stratified(&strata(dataset), *fractions, *seed)?
            }
            Self::Scaffold { fractions } => {
                Splits::by_group(scaffolds.ok_or(DataError::NoScaffolds)?, *fractions)?
            }
            Self::KFold { k, fold, seed } => Splits::k_fold(&strata(dataset), *k, *fold, *seed)?,
            Self::File { path } => Splits::from_json(path, count)?,
        })
    }

    /// Splits the labeled nodes of a single graph, stratified by class; returns positions among
    /// them.
    pub(super) fn apply_to_nodes(&self, classes: &[u32]) -> Result<Splits, DataError> {
        Ok(match self {
            Self::Random { seed, fractions } => Splits::stratified(classes, *fractions, *seed)?,
            Self::KFold { k, fold, seed } => Splits::k_fold(classes, *k, *fold, *seed)?,
            Self::Scaffold { .. } => return Err(DataError::NoScaffolds),
            Self::File { path } => Splits::from_json(path, classes.len())?,
        })
    }
}

/// Returns the class of each graph if there is a single classification target, otherwise 0.
fn strata(dataset: &Dataset) -> Vec<u32> {
    let is_stratified = matches!(
        dataset.schema.targets.graph_targets(),
        [TargetKind::Binary | TargetKind::Multiclass(_)]
    );
    let class = |graph: &Graph| match &graph.targets {
        // A missing class is a stratum of its own.
        Targets::GraphValues(values) if is_stratified && values[0].is_nan() => u32::MAX,
        Targets::GraphValues(values) if is_stratified => values[0] as u32,
        _ => 0,
    };
    dataset.graphs.iter().map(|graph| class(&graph)).collect()
}
