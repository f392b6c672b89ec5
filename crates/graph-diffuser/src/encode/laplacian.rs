//! Laplacian encoding: what a network makes of each eigenvector's entry and eigenvalue, added up.
//!
//! The sum does not know an order, but the network sees signs: in training they are drawn anew for every graph.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::batch::GraphBatch;
use crate::nn::{Init, Linear, Pass};

use super::Eigenvectors;

/// A network on each eigenvector, a sum over them, and a linear layer.
#[derive(Module, Debug)]
pub struct LaplacianEncoding {
    first: Linear,
    second: Linear,
    output: Linear,
}

impl LaplacianEncoding {
    /// To vectors of `width` through networks as wide as `hidden`.
    pub fn new(hidden: usize, width: usize, init: &mut Init) -> Self {
        Self {
            first: Linear::new(2, hidden, init),
            second: Linear::new(hidden, hidden, init),
            output: Linear::new(hidden, width, init),
        }
    }

    /// # Shapes
    /// - returns `[r, width]`
    pub fn forward(&self, eigenvectors: Eigenvectors, batch: &GraphBatch, pass: &Pass) -> Tensor<2> {
        let Eigenvectors { entries, values, present } = eigenvectors;
        let [r, count] = entries.dims();
        let entries = match pass.dropout_site(0.5) {
            Some(site) => {
                let graphs = batch.topology.layout.graphs();
                // A mask is 0 or 2: one less is a sign.
                let signs = site.mask([graphs, count], &entries.device()).cast(entries.dtype()) - 1.0;
                entries * signs.select(0, batch.graph_of_node.clone())
            }
            None => entries,
        };
        let pairs = Tensor::stack::<3>(vec![entries, values], 2).reshape([r * count, 2]);
        let seen = self.second.forward_relu(self.first.forward_relu(pairs, None), None);
        let hidden = seen.dims()[1];
        let seen = seen * present.reshape([r * count, 1]);
        self.output.forward(seen.reshape([r, count, hidden]).sum_dim(1).reshape([r, hidden]))
    }
}
