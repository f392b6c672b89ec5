//! Split of a dataset into training, validation and test graphs.

use std::path::PathBuf;

use graph_diffuser_data::{Dataset, Splits, Targets};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DataError;

/// Split into training, validation and test graphs, selected by `kind`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SplitConfig {
    /// Random split.
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
    /// Stratified k-fold split: `fold` is the test set, the next fold the validation set.
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
            Self::Random { seed, fractions } => Splits::random(count, *fractions, *seed)?,
            Self::Scaffold { fractions } => {
                Splits::by_group(scaffolds.ok_or(DataError::NoScaffolds)?, *fractions)?
            }
            Self::KFold { k, fold, seed } => {
                let classes = dataset.graphs.iter().map(|graph| match &graph.targets {
                    Targets::GraphClass(class) => Some(*class),
                    Targets::GraphValues(values) => match values[..] {
                        [value] if value == 0.0 || value == 1.0 => Some(value as u32),
                        _ => None,
                    },
                    _ => None,
                });
                let classes: Option<Vec<u32>> = classes.collect();
                Splits::k_fold(&classes.ok_or(DataError::NoClasses)?, *k, *fold, *seed)?
            }
            Self::File { path } => Splits::from_json(path, count)?,
        })
    }
}
