//! Virtual edges of some rows of one graph, for explanations.

use burn::tensor::{Tensor, TensorData};

use crate::batch::{GraphBatch, Topology};
use crate::nn::{ForwardContext, VirtualEdgeTrace};
use crate::ops;

use super::VirtualEdges;

impl VirtualEdges {
    /// Computes the virtual edges of some rows of a batch with one graph, in evaluation.
    ///
    /// Only the given rows of the diffusion stack are computed and stored; a CLS node is ignored.
    pub(super) fn trace_rows(
        &self,
        weights: Tensor<1>,
        rows: &[usize],
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> VirtualEdgeTrace {
        assert!(!ctx.uses_batch_statistics(), "tracing requires running statistics");
        let Topology { layout, sources, targets, .. } = &batch.topology;
        let n = layout.nodes();
        let rows: Vec<usize> = rows.iter().copied().filter(|&row| row < n).collect();
        let count = rows.len();
        let mut start = vec![0.0_f32; n * count];
        for (index, &row) in rows.iter().enumerate() {
            start[row * count + index] = 1.0;
        }
        let options = (&weights.device(), weights.dtype());
        let mut step = Tensor::<2>::from_data(TensorData::new(start, [n, count]), options);
        let mut walks = Vec::with_capacity(self.num_steps + 1);
        for power in 0..=self.num_steps {
            if power > 0 && batch.topology.edges() == 0 {
                step = step * 0.0;
            } else if power > 0 {
                let along = ops::gather(step, sources.clone()) * weights.clone().unsqueeze_dim(1);
                step = ops::scatter_sum(along, targets.clone(), n); // next power of A, [n, rows]
            }
            walks.push(step.clone().transpose().reshape([1, count * n]));
        }
        let walks = Tensor::cat(walks, 0); // Eq. 1
        let output = self.forward_stack(walks.clone(), &self.positions, None, None, ctx); // Eq. 2–3, 6
        VirtualEdgeTrace { weights, walks, scores: output.scores }
    }
}
