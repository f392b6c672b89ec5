//! Virtual edges that are made some rows at a time, read and thrown away: evaluation of large graphs.
//!
//! In evaluation batch norm is affine, so a virtual edge needs nothing but its own walks, and walks from
//! some nodes need nothing of walks from others. Memory is then that of a block of rows, not of all
//! pairs. Every layer makes them again and reads its own scores alone. The same network runs over a
//! block as over a whole stack; pairs that no walk connects have equal virtual edges, made once.

use std::sync::Arc;

use burn::tensor::Tensor;
use graph_diffuser_kernels::diffusion_rows::RowGroup;

use crate::batch::{ChunkedEval, EdgeEmbeddings, GraphBatch, Topology};
use crate::nn::{ForwardContext, Linear};
use crate::ops::{self, AttentionOptions, RowsOf};

use super::{SelfEdges, VirtualEdges};

/// What makes virtual edges of some rows.
#[derive(Debug)]
pub struct ChunkedVirtualEdges<'a> {
    /// The network, and the weights `[m]` of the edges; absent where attention is by content alone.
    edges: Option<(&'a VirtualEdges, Tensor<1>)>,
    batch: &'a GraphBatch,
    size: ChunkedEval,
}

impl<'a> ChunkedVirtualEdges<'a> {
    /// Weighs the edges of a batch that goes by rows.
    ///
    /// # Shapes
    /// - `x`: `[r, d]` nodes
    pub(crate) fn new(
        edges: Option<&'a VirtualEdges>,
        x: &Tensor<2>,
        e: Option<&EdgeEmbeddings>,
        (batch, size): (&'a GraphBatch, ChunkedEval),
        ctx: &ForwardContext,
    ) -> Self {
        assert!(
            !ctx.uses_batch_statistics(),
            "a batch that goes by rows has no statistics of its own"
        );
        let weigh =
            |edges: &'a VirtualEdges| (edges, edges.edge_weights(x, e, &batch.topology, ctx));
        Self { edges: edges.map(weigh), batch, size }
    }

    fn topology(&self) -> &Topology {
        &self.batch.topology
    }

    /// Virtual edges of nodes with themselves, where they are encoded (Eq. 9).
    ///
    /// # Shapes
    /// - returns `[c, r]`
    pub(crate) fn own(&self, ctx: &ForwardContext) -> Option<Tensor<2>> {
        let (edges, weights) = self.edges.as_ref()?;
        if edges.self_edges == SelfEdges::Off {
            return None;
        }
        let device = weights.device();
        let blocks =
            ops::chunked_eval(self.topology(), Some(edges.num_steps), self.size.pairs_per_chunk);
        let diagonals = blocks.map(|block| {
            let own = block.groups.iter().flat_map(RowGroup::self_pairs).collect();
            let stack = ops::diffusion_rows(
                weights.clone(),
                self.topology(),
                &Arc::new(block),
                edges.num_steps,
            );
            stack.select(1, crate::batch::indices(own, &device))
        });
        let raw = edges.transform.apply(Tensor::cat(diagonals.collect(), 1));
        Some(match (&edges.ffn, edges.self_edges) {
            (Some(ffn), SelfEdges::AfterFfn) => ffn.forward(raw, None, ctx),
            _ => raw,
        })
    }

    /// Each node gathers from every node of its own graph (Eq. 6–8).
    ///
    /// # Shapes
    /// - `qkv`: `[r, 3d]` queries, keys and values, or `[r, d]` values alone, CLS nodes among them
    /// - `position`: what reads this layer's scores, where it has any
    /// - `cls_scores`: `[h, 1]` of pairs with a CLS node
    /// - returns `[r, d]`
    pub(crate) fn attend(
        &self,
        qkv: Tensor<2>,
        d: usize,
        position: Option<&Linear>,
        cls_scores: Option<Tensor<2>>,
        rule: &AttentionOptions,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let by_head = ops::split_heads(qkv, d, rule.heads);
        let reading = self.edges.as_ref().zip(position);
        let steps = reading.map(|((edges, _), _)| edges.num_steps);
        let blocks = ops::chunked_eval(self.topology(), steps, self.size.pairs_per_chunk);
        let gathered = blocks.map(|block| {
            let layout = self.batch.layer_topology().layout.clone();
            let rows =
                RowsOf { block: Arc::new(block), layout, cls: self.batch.with_cls.is_some() };
            let scores = reading.map(|((edges, weights), position)| {
                let stack = ops::diffusion_rows(
                    weights.clone(),
                    self.topology(),
                    &rows.block,
                    edges.num_steps,
                ); // Eq. 1
                let scores = edges.read(stack, &[position], None, None, ctx).scores.remove(0); // Eq. 2–3, 6
                Tensor::cat(std::iter::once(scores).chain(cls_scores.clone()).collect(), 1)
            });
            ops::attention_rows(by_head.clone(), scores, &rows, rule) // Eq. 7–8
        });
        Tensor::cat(gathered.collect(), 0)
    }
}
