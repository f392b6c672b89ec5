//! What the model of a run is given and what it predicts: all that is needed beside its weights.

use graph_diffuser_data::Schema;
use graph_diffuser_data::inference_input::Featurizer;
use serde::{Deserialize, Serialize};

/// Kept in `schema.json` from the moment that training begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSchema {
    /// How a row becomes a graph.
    pub input: Featurizer,
    /// What the numbers of the graphs mean.
    pub schema: Schema,
}
