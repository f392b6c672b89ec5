//! Schema of a run's inputs and targets, saved beside its weights.

use graph_diffuser_data::Schema;
use graph_diffuser_data::formats::Featurizer;
use serde::{Deserialize, Serialize};

use crate::recipe::Recipe;

/// Content of `schema.json`, written when training starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSchema {
    /// Featurizer that converts an input row into a graph.
    pub input: Featurizer,
    /// Features and targets of the graphs.
    pub schema: Schema,
}

impl RunSchema {
    /// Describes the inputs of a recipe and the graphs of its dataset.
    pub fn new(recipe: &Recipe, schema: &Schema) -> Self {
        Self { input: recipe.data.featurizer(), schema: schema.clone() }
    }

    /// Returns the content of `schema.json`.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("plain data can be serialized")
    }
}
