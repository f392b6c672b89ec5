//! Virtual edges computed one chunk of rows at a time, for the evaluation of large graphs.
//!
//! In evaluation, batch norm is an affine map, so that a virtual edge depends only on its own
//! diffusion features, and the rows of the diffusion stack are independent. Peak memory is
//! therefore that of one chunk instead of all pairs. Every layer recomputes the virtual edges and
//! keeps only its own position scores. Unreachable pairs have equal virtual edges, which are
//! computed once.

use std::sync::Arc;

use burn::tensor::Tensor;
use graph_diffuser_kernels::diffusion_rows::{RowBlock, RowGroup};

use crate::batch::{ChunkedEval, GraphBatch, index_tensor};
use crate::nn::ForwardContext;
use crate::ops;

use super::{PositionScores, SelfEdges, VirtualEdges};

/// Position scores of one layer in chunked evaluation.
#[derive(Debug)]
pub struct ChunkedScores<'a> {
    edges: &'a VirtualEdges,
    /// Edge weights, `[m]`.
    weights: Tensor<1>,
    layer: usize,
    batch: &'a GraphBatch,
    ctx: &'a ForwardContext,
    /// Score of pairs with a CLS node, `[h, 1]`.
    pub(super) cls: Option<Tensor<2>>,
}

impl ChunkedScores<'_> {
    /// Returns the number of diffusion steps, beyond which nodes are unreachable.
    pub(crate) fn num_steps(&self) -> usize {
        self.edges.num_steps
    }

    /// Computes the position scores of the pairs of a chunk (Eq. 1–3, 6).
    ///
    /// # Shapes
    /// - returns `[h, pairs]`, followed by one column for pairs with a CLS node, if there is one
    pub(crate) fn of_chunk(&self, chunk: &Arc<RowBlock>) -> Tensor<2> {
        let Self { edges, layer, .. } = *self;
        self.ctx.check_cancel();
        let stack = edges.stack_rows(self.weights.clone(), chunk, self.batch);
        let position = &edges.positions[layer..=layer];
        let scores = edges.forward_stack(stack, position, None, None, self.ctx).scores.remove(0); // Eq. 2–3, 6
        Tensor::cat(std::iter::once(scores).chain(self.cls.clone()).collect(), 1)
    }
}

impl VirtualEdges {
    /// Prepares the position scores of each layer, and computes the diagonal.
    pub(super) fn chunked<'a>(
        &'a self,
        weights: Tensor<1>,
        chunks: ChunkedEval,
        batch: &'a GraphBatch,
        ctx: &'a ForwardContext,
    ) -> (Vec<PositionScores<'a>>, Option<Tensor<2>>) {
        assert!(!ctx.uses_batch_statistics(), "chunked evaluation requires running statistics");
        let scores = (0..self.positions.len()).map(|layer| {
            PositionScores::Chunked(ChunkedScores {
                edges: self,
                weights: weights.clone(),
                layer,
                batch,
                ctx,
                cls: self.cls_scores(layer),
            })
        });
        (scores.collect(), self.chunked_diagonal(&weights, chunks, batch, ctx))
    }

    /// Returns the diagonal of the virtual edges, `[c, r]`, if it is encoded (Eq. 9).
    fn chunked_diagonal(
        &self,
        weights: &Tensor<1>,
        chunks: ChunkedEval,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> Option<Tensor<2>> {
        if self.self_edges == SelfEdges::Off {
            return None;
        }
        let device = weights.device();
        let chunks = ops::row_chunks(&batch.topology, Some(self.num_steps), chunks.pairs_per_chunk);
        let diagonals = chunks.map(|chunk| {
            ctx.check_cancel();
            let self_pairs = chunk.groups.iter().flat_map(RowGroup::self_pairs).collect();
            let stack = self.stack_rows(weights.clone(), &Arc::new(chunk), batch);
            stack.select(1, index_tensor(self_pairs, &device))
        });
        let raw = self.transform.apply(Tensor::cat(diagonals.collect(), 1));
        Some(match (&self.ffn, self.self_edges) {
            (Some(ffn), SelfEdges::AfterFfn) => ffn.forward(raw, None, ctx),
            _ => raw,
        })
    }

    /// Computes the diffusion stack of the pairs of a chunk (Eq. 1).
    fn stack_rows(
        &self,
        weights: Tensor<1>,
        chunk: &Arc<RowBlock>,
        batch: &GraphBatch,
    ) -> Tensor<2> {
        ops::diffusion_rows(weights, &batch.topology, chunk, self.num_steps)
    }
}
