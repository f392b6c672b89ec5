//! Fingerprints and descriptors of the molecules of a batch.

use burn::tensor::{DType, Device, Tensor, TensorData};
use graph_diffuser_data::Graph;
use graph_diffuser_data::chem::{
    DESCRIPTOR_MEANS, DESCRIPTOR_STDS, Fingerprint, MoleculeFeatures, NUM_DESCRIPTORS,
};

/// Standardized descriptors are clamped to `±MAX_Z_SCORE`, so that unusual molecules do not
/// dominate.
const MAX_Z_SCORE: f64 = 6.0;

/// Features of whole molecules.
#[derive(Debug, Clone)]
pub struct MoleculeFeatureTensor {
    /// `ln(1 + count)` of each fingerprint bin, `[b, Fingerprint::BINS]`.
    pub fingerprints: Tensor<2>,
    /// Descriptors, standardized with the statistics of drug-like molecules,
    /// `[b, NUM_DESCRIPTORS]`.
    pub descriptors: Tensor<2>,
}

impl MoleculeFeatureTensor {
    /// Computes the features of molecules with OGB features.
    ///
    /// # Panics
    /// Panics if a graph does not have the OGB features of molecules.
    pub(super) fn new(graphs: &[&Graph], device: &Device, dtype: DType) -> Self {
        let mut bins = vec![0.0_f32; graphs.len() * Fingerprint::BINS];
        let mut values = Vec::with_capacity(graphs.len() * NUM_DESCRIPTORS);
        for (row, graph) in bins.chunks_mut(Fingerprint::BINS).zip(graphs) {
            let features = MoleculeFeatures::of(graph);
            let features = features.expect("the schema of the dataset has OGB features");
            for &(bin, count) in features.fingerprint.counts() {
                row[usize::from(bin)] = f32::from(count).ln_1p();
            }
            let statistics = DESCRIPTOR_MEANS.iter().zip(&DESCRIPTOR_STDS);
            values.extend(features.descriptors.iter().zip(statistics).map(
                |(value, (mean, std))| {
                    ((value - mean) / std).clamp(-MAX_Z_SCORE, MAX_Z_SCORE) as f32
                },
            ));
        }
        let tensor = |values, columns| {
            let data = TensorData::new(values, [graphs.len(), columns]);
            Tensor::from_data(data, (device, dtype))
        };
        Self {
            fingerprints: tensor(bins, Fingerprint::BINS),
            descriptors: tensor(values, NUM_DESCRIPTORS),
        }
    }
}
