//! A prediction for every graph.

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::batch::GraphBatch;
use crate::nn::{ForwardContext, Mlp, MlpConfig, ParamInit};
use crate::ops::scatter_sum;

/// How nodes become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// A learned node that has attended to all of them.
    Cls,
}

impl Pooling {
    /// # Shapes
    /// - `x`: `[r, d]`, CLS nodes among them where the model has any
    /// - returns `[b, d]`
    pub fn pool(self, x: Tensor<2>, batch: &GraphBatch) -> Tensor<2> {
        let layout = &batch.topology.layout;
        let sum = |x| scatter_sum(x, batch.graph_index.clone(), layout.graphs());
        match self {
            Self::Sum => sum(x),
            Self::Mean => {
                let sizes: Vec<f32> = layout.sizes.iter().map(|&size| size as f32).collect();
                let sizes = TensorData::new(sizes, [layout.graphs(), 1]);
                let sizes = Tensor::from_data(sizes, (&x.device(), x.dtype()));
                sum(x) / sizes
            }
            Self::Cls => {
                let cls =
                    batch.with_cls.as_ref().expect("a batch for a model with CLS has the nodes");
                x.select(0, cls.rows.clone())
            }
        }
    }
}

/// Pooling, then an MLP.
#[derive(Module, Debug)]
pub struct GraphHead {
    mlp: Mlp,
    #[module(skip)]
    pooling: Pooling,
}

impl GraphHead {
    /// Draws the parameters.
    pub fn new(
        width: usize,
        outputs: usize,
        pooling: Pooling,
        shape: MlpConfig,
        dropout: f64,
        init: &mut ParamInit,
    ) -> Self {
        Self { mlp: Mlp::new(width, outputs, shape, dropout, init), pooling }
    }

    /// How nodes become one vector.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// # Shapes
    /// - `pooled`: `[b, d]`
    /// - returns `[b, outputs]`
    pub fn forward(&self, pooled: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.mlp.forward(pooled, ctx)
    }
}
