//! Virtual edges computed one chunk of rows at a time, for the evaluation of large graphs.
//!
//! In evaluation, batch norm is an affine map, so that a virtual edge depends only on its own
//! diffusion features, and the rows of the diffusion stack are independent. Peak memory is
//! therefore that of one chunk instead of all pairs. Every layer recomputes the virtual edges and
//! keeps only its own position scores. Unreachable pairs have equal virtual edges, which are
//! computed once.

use std::sync::Arc;

use burn::tensor::Tensor;
use graph_diffuser_kernels::diffusion_rows::RowGroup;

use crate::batch::{ChunkedEval, EdgeEmbeddings, GraphBatch, Topology};
use crate::nn::{ForwardContext, Linear};
use crate::ops::{self, AttentionOptions, QueryRows};

use super::{SelfEdges, VirtualEdges};

/// Virtual edges of a batch in chunked evaluation.
#[derive(Debug)]
pub struct ChunkedVirtualEdges<'a> {
    /// Virtual edge network and edge weights `[m]`; `None` if the model has no virtual edges.
    edges: Option<(&'a VirtualEdges, Tensor<1>)>,
    batch: &'a GraphBatch,
    options: ChunkedEval,
}

impl<'a> ChunkedVirtualEdges<'a> {
    /// Computes the edge weights of a batch.
    ///
    /// # Shapes
    /// - `x`: `[r, d]` node states
    pub(crate) fn new(
        edges: Option<&'a VirtualEdges>,
        x: &Tensor<2>,
        e: Option<&EdgeEmbeddings>,
        (batch, options): (&'a GraphBatch, ChunkedEval),
        ctx: &ForwardContext,
    ) -> Self {
        assert!(!ctx.uses_batch_statistics(), "chunked evaluation requires running statistics");
        let with_weights =
            |edges: &'a VirtualEdges| (edges, edges.edge_weights(x, e, &batch.topology, ctx));
        Self { edges: edges.map(with_weights), batch, options }
    }

    fn topology(&self) -> &Topology {
        &self.batch.topology
    }

    /// Returns the diagonal of the virtual edges, if it is encoded (Eq. 9).
    ///
    /// # Shapes
    /// - returns `[c, r]`
    pub(crate) fn diagonal(&self, ctx: &ForwardContext) -> Option<Tensor<2>> {
        let (edges, weights) = self.edges.as_ref()?;
        if edges.self_edges == SelfEdges::Off {
            return None;
        }
        let device = weights.device();
        let chunks =
            ops::row_chunks(self.topology(), Some(edges.num_steps), self.options.pairs_per_chunk);
        let diagonals = chunks.map(|chunk| {
            let self_pairs = chunk.groups.iter().flat_map(RowGroup::self_pairs).collect();
            let stack = ops::diffusion_rows(
                weights.clone(),
                self.topology(),
                &Arc::new(chunk),
                edges.num_steps,
            );
            stack.select(1, crate::batch::index_tensor(self_pairs, &device))
        });
        let raw = edges.transform.apply(Tensor::cat(diagonals.collect(), 1));
        Some(match (&edges.ffn, edges.self_edges) {
            (Some(ffn), SelfEdges::AfterFfn) => ffn.forward(raw, None, ctx),
            _ => raw,
        })
    }

    /// Computes the attention of one layer between all nodes of each graph (Eq. 1–3, 6–8).
    ///
    /// `position` is the position projection of the layer, if it has one.
    ///
    /// # Shapes
    /// - `qkv`: `[r, 3d]` queries, keys and values, or `[r, d]` values only, including CLS nodes
    /// - `cls_scores`: `[h, 1]` score of pairs with a CLS node
    /// - returns `[r, d]`
    pub(crate) fn attention(
        &self,
        qkv: Tensor<2>,
        d: usize,
        position: Option<&Linear>,
        cls_scores: Option<Tensor<2>>,
        options: &AttentionOptions,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let by_head = ops::split_heads(qkv, d, options.heads);
        let projection = self.edges.as_ref().zip(position);
        let steps = projection.map(|((edges, _), _)| edges.num_steps);
        let chunks = ops::row_chunks(self.topology(), steps, self.options.pairs_per_chunk);
        let attended = chunks.map(|chunk| {
            let layout = self.batch.layer_topology().layout.clone();
            let rows =
                QueryRows { block: Arc::new(chunk), layout, cls: self.batch.with_cls.is_some() };
            let scores = projection.map(|((edges, weights), position)| {
                let stack = ops::diffusion_rows(
                    weights.clone(),
                    self.topology(),
                    &rows.block,
                    edges.num_steps,
                ); // Eq. 1
                let scores =
                    edges.forward_stack(stack, &[position], None, None, ctx).scores.remove(0); // Eq. 2–3, 6
                Tensor::cat(std::iter::once(scores).chain(cls_scores.clone()).collect(), 1)
            });
            ops::attention_rows(by_head.clone(), scores, &rows, options) // Eq. 7–8
        });
        Tensor::cat(attended.collect(), 0)
    }
}
