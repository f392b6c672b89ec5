//! Data of a run: name, size, split and content fingerprint.

use graph_diffuser_data::{Dataset, Split};
use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;

/// Content of `data.json`, written when training starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataRecord {
    /// Name of the dataset, such as `ZINC-12k` or the name of a file.
    pub name: String,
    /// Hash of graphs, targets and splits ([`Dataset::fingerprint`]).
    pub fingerprint: String,
    /// Number of graphs.
    pub graphs: usize,
    /// Description of the split, such as `random, seed 0`; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Number of training graphs.
    pub train: usize,
    /// Number of validation graphs.
    pub valid: usize,
    /// Number of test graphs.
    pub test: usize,
}

impl DataRecord {
    /// Describes the dataset of a recipe; `split` describes the split if the recipe does not.
    pub fn new(recipe: &Recipe, dataset: &Dataset, split: Option<&str>) -> Self {
        let [train, valid, test] =
            [Split::Train, Split::Valid, Split::Test].map(|split| dataset.split(split).len());
        Self {
            name: recipe.data.name(),
            fingerprint: dataset.fingerprint(),
            graphs: dataset.graphs.len(),
            split: split.map(str::to_owned).or_else(|| recipe.data.split_description()),
            train,
            valid,
            test,
        }
    }
}
