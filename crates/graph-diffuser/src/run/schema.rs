//! Schema of a run's inputs and targets, saved beside its weights.

use graph_diffuser_data::Schema;
use graph_diffuser_data::formats::Featurizer;
use serde::{Deserialize, Serialize};

/// Content of `schema.json`, written when training starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSchema {
    /// Featurizer that converts an input row into a graph.
    pub input: Featurizer,
    /// Features and targets of the graphs.
    pub schema: Schema,
}
