//! Fingerprints and descriptors of whole molecules, concatenated to the pooled node states.

use burn::module::Module;
use burn::tensor::Tensor;
use graph_diffuser_data::chem::{Fingerprint, NUM_DESCRIPTORS};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;
use crate::nn::{ForwardContext, Linear, ParamInit};

/// Configuration of [`MoleculeFeatureEncoder`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoleculeFeaturesConfig {
    /// Dimension to which count-based Morgan fingerprints are projected; 0 omits them.
    #[serde(default)]
    pub fingerprint_dim: usize,
    /// If `true`, two-dimensional descriptors are used, such as logP and polar surface area.
    #[serde(default)]
    pub descriptors: bool,
    /// Dropout on the bins of the fingerprint.
    #[serde(default)]
    pub dropout: f64,
}

impl MoleculeFeaturesConfig {
    /// Returns the dimension of the concatenated vector.
    pub fn dim(self) -> usize {
        self.fingerprint_dim + if self.descriptors { NUM_DESCRIPTORS } else { 0 }
    }

    /// Initializes the features.
    pub fn init(self, init: &mut ParamInit) -> MoleculeFeatureEncoder {
        MoleculeFeatureEncoder {
            fingerprint: (self.fingerprint_dim > 0)
                .then(|| Linear::new(Fingerprint::BINS, self.fingerprint_dim, init)),
            descriptors: self.descriptors,
            dropout: self.dropout,
        }
    }
}

/// Projected fingerprints and descriptors of molecules.
#[derive(Module, Debug)]
pub struct MoleculeFeatureEncoder {
    fingerprint: Option<Linear>,
    #[module(skip)]
    descriptors: bool,
    #[module(skip)]
    dropout: f64,
}

impl MoleculeFeatureEncoder {
    /// Concatenates the features to a vector of each graph.
    ///
    /// # Shapes
    /// - `x`: `[b, d]`
    /// - returns `[b, d + MoleculeFeaturesConfig::dim]`
    pub fn append(&self, x: Tensor<2>, batch: &GraphBatch, ctx: &ForwardContext) -> Tensor<2> {
        let features = batch.molecule_features.as_ref();
        let features = features.expect("the batcher of the model computes molecule features");
        let mut parts = vec![x];
        if let Some(fingerprint) = &self.fingerprint {
            let bins = ctx.dropout(features.fingerprints.clone(), self.dropout);
            parts.push(fingerprint.forward_relu(bins, None)); // [b, fingerprint_dim]
        }
        if self.descriptors {
            parts.push(features.descriptors.clone()); // [b, NUM_DESCRIPTORS]
        }
        Tensor::cat(parts, 1)
    }
}
