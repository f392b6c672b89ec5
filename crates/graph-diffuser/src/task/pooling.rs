//! Pooling of node states into one vector per graph.

use burn::tensor::{Tensor, TensorData};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;
use crate::ops::scatter_sum;

/// Divisor of [`Pooling::Norm`]: about the mean number of heavy atoms of a drug-like molecule.
const NORM_SIZE: f64 = 25.0;

/// Pooling of node states into one vector per graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// Sum of the node states.
    Sum,
    /// Mean of the node states.
    Mean,
    /// Sum of the node states divided by a constant, 25: keeps the size of a molecule, on the
    /// scale of a mean.
    Norm,
    /// State of the CLS node.
    Cls,
}

impl Pooling {
    /// Pools the node states of every graph.
    ///
    /// # Shapes
    /// - `x`: `[r, d]`, including CLS nodes if the model has a CLS token
    /// - returns `[b, d]`
    pub fn pool(self, x: Tensor<2>, batch: &GraphBatch) -> Tensor<2> {
        let layout = &batch.topology.layout;
        let sum = |x| scatter_sum(x, batch.graph_index.clone(), layout.graphs());
        match self {
            Self::Sum => sum(x),
            Self::Norm => sum(x) / NORM_SIZE,
            Self::Mean => {
                let sizes: Vec<f32> = layout.sizes.iter().map(|&size| size as f32).collect();
                let sizes = TensorData::new(sizes, [layout.graphs(), 1]);
                let sizes = Tensor::from_data(sizes, (&x.device(), x.dtype()));
                sum(x) / sizes
            }
            Self::Cls => {
                let cls =
                    batch.with_cls.as_ref().expect("the batcher of a CLS model adds CLS nodes");
                x.select(0, cls.rows.clone())
            }
        }
    }
}
