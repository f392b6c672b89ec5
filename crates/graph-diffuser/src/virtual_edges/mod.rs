//! Virtual edges: diffusion features of every node pair (Eq. 1–6, 9).
//!
//! Powers of the row-normalized adjacency matrix, whose edge weights are learned (Eq. 4–5) or
//! fixed, form the diffusion stack (Eq. 1); an edge-wise network mixes the steps of every pair (Eq.
//! 2–3). Each Transformer layer has a projection of virtual edges to position scores (Eq. 6), and
//! the virtual edges of nodes to themselves are a positional encoding (Eq. 9).

mod chunked;
mod transform;
mod edge_ffn;
mod self_edge_encoding;
mod trace;
mod weighted_adjacency;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::{GraphBatch, Topology, UniqueTopologies};
use crate::nn::{ForwardContext, GraphState, Linear, ParamInit};
use crate::ops::{self, EdgeEmbeddings, PairScores};

pub use chunked::ChunkedScores;
pub use edge_ffn::{EdgeFfn, EdgeFfnConfig, GridFfn, ReleaseFfn, ResidualFfn};
pub use self_edge_encoding::SelfEdgeEncoding;
pub use transform::StackTransform;
pub use weighted_adjacency::{AdjacencyConfig, EdgeActivation, Projections, WeightedAdjacency};

/// Minimum number of pairs for the fused network with batch statistics.
///
/// The kernel computes statistics from sums, which suffer from cancellation for very few pairs:
/// with two pairs, gradients of the stack were off by up to 1e-2. The reference is fast enough for
/// so few. Running statistics are unaffected; with them the kernel always runs, so that the scores
/// of a small graph do not depend on the batch, to the last bit.
const MIN_FUSED_PAIRS: usize = 16;

/// Configuration of [`VirtualEdges`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VirtualEdgesConfig {
    /// Number of diffusion steps, `k`.
    pub num_steps: usize,
    /// Edge weights.
    #[serde(default)]
    pub adjacency: AdjacencyConfig,
    /// Pointwise transform of the diffusion stack.
    #[serde(default)]
    pub transform: StackTransform,
    /// Edge-wise feed-forward network.
    #[serde(default)]
    pub ffn: EdgeFfnConfig,
    /// Self-virtual-edges as positional encoding (Eq. 9).
    #[serde(default)]
    pub self_edges: SelfEdges,
}

/// Self-virtual-edges that are added to the nodes as positional encoding (Eq. 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SelfEdges {
    /// No positional encoding.
    Off,
    /// Virtual edges after the edge-wise network, as in the paper.
    #[default]
    AfterFfn,
    /// Transformed diffusion stack before the network with a separate batch norm, as in the
    /// authors' code.
    BeforeFfn,
}

impl VirtualEdgesConfig {
    /// Returns the number of channels of the diffusion stack, `c = k + 1`.
    pub fn stack_channels(&self) -> usize {
        self.num_steps + 1
    }

    /// Returns the number of channels of a virtual edge after the network.
    pub fn channels(&self) -> usize {
        self.ffn.output_channels(self.stack_channels())
    }

    /// Initializes the module without position projections; `edge_dim` is the dimension of edge
    /// embeddings, if edges have features.
    pub fn init(
        &self,
        hidden_dim: usize,
        edge_dim: Option<usize>,
        init: &mut ParamInit,
    ) -> VirtualEdges {
        VirtualEdges {
            adjacency: match self.adjacency {
                AdjacencyConfig::Fixed {} => None,
                AdjacencyConfig::Weighted { activation, projections } => Some(
                    WeightedAdjacency::new(hidden_dim, edge_dim, activation, projections, init),
                ),
            },
            ffn: self.ffn.init(self.stack_channels(), init),
            self_edge_encoding: SelfEdgeEncoding::new(self, hidden_dim, init),
            cls_edge: None,
            positions: vec![],
            num_steps: self.num_steps,
            channels: self.channels(),
            transform: self.transform,
            self_edges: self.self_edges,
        }
    }
}

/// Module that computes virtual edges and the position scores of all layers.
#[derive(Module, Debug)]
pub struct VirtualEdges {
    /// Learned edge weights; `None` for a fixed adjacency.
    adjacency: Option<WeightedAdjacency>,
    ffn: Option<EdgeFfn>,
    self_edge_encoding: Option<SelfEdgeEncoding>,
    /// Learned virtual edge of all pairs with a CLS node, `[c']`.
    cls_edge: Option<Param<Tensor<1>>>,
    /// Projection of virtual edges to the position scores of each layer (Eq. 6).
    positions: Vec<Linear>,
    #[module(skip)]
    num_steps: usize,
    #[module(skip)]
    channels: usize,
    #[module(skip)]
    transform: StackTransform,
    #[module(skip)]
    self_edges: SelfEdges,
}

/// Position scores of one layer (Eq. 6).
#[derive(Debug)]
pub enum PositionScores<'a> {
    /// No position scores: content attention only.
    None,
    /// Scores of all pairs.
    Dense(PairScores),
    /// Scores computed by the layer, one chunk of rows at a time.
    Chunked(ChunkedScores<'a>),
}

impl PositionScores<'_> {
    /// Returns the score of pairs with a CLS node, `[h, 1]`, if there is one.
    pub(crate) fn cls(&self) -> Option<&Tensor<2>> {
        match self {
            Self::None => None,
            Self::Dense(scores) => scores.cls.as_ref(),
            Self::Chunked(scores) => scores.cls.as_ref(),
        }
    }
}

/// Position scores of each layer, `[h, p]`, and the diagonal of the virtual edges, `[c, nodes]`, if
/// it is encoded.
#[derive(Debug)]
struct StackOutput {
    scores: Vec<Tensor<2>>,
    diagonal: Option<Tensor<2>>,
}

impl VirtualEdges {
    /// Adds the learned virtual edge of all pairs with a CLS node.
    pub fn add_cls_edge(&mut self, init: &mut ParamInit) {
        self.cls_edge = Some(init.normal([self.channels]));
    }

    /// Adds the position projection of the next layer.
    pub fn add_position(&mut self, heads: usize, init: &mut ParamInit) {
        self.positions.push(Linear::new(self.channels, heads, init));
    }

    /// Computes the position scores of each layer and adds the positional encoding to the nodes.
    ///
    /// In chunked evaluation, layers compute their scores themselves, because the virtual edges of
    /// a large graph do not fit in memory.
    pub fn forward<'a>(
        &'a self,
        GraphState { x, e }: GraphState,
        batch: &'a GraphBatch,
        ctx: &'a ForwardContext,
    ) -> (GraphState, Vec<PositionScores<'a>>) {
        let weights = self.edge_weights(&x, e.as_ref(), batch.edge_topology(), ctx); // Eq. 4–5
        ctx.trace_virtual_edges(|rows| self.trace_rows(weights.clone(), rows, batch, ctx));
        let (scores, diagonal) = match batch.chunked_eval {
            None => self.dense(weights, batch, ctx),
            Some(chunks) => self.chunked(weights, chunks, batch, ctx),
        };
        let x = match (&self.self_edge_encoding, diagonal) {
            (Some(encoding), Some(diagonal)) => encoding.forward(x, diagonal, batch, ctx), // Eq. 9
            _ => x,
        };
        (GraphState { x, e }, scores)
    }

    /// Computes the position scores of all pairs of each layer, and the diagonal.
    fn dense(
        &self,
        weights: Tensor<1>,
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> (Vec<PositionScores<'_>>, Option<Tensor<2>>) {
        let topology = batch.edge_topology();
        let stack = ops::diffusion_stack(weights, topology, self.num_steps); // Eq. 1, [c, p]
        ctx.record(|| "virtual_edges.stack".into(), &stack);
        let output =
            self.forward_stack(stack, &self.positions, Some(topology), batch.shared.as_ref(), ctx);
        if let Some(scores) = output.scores.first() {
            ctx.record(|| "virtual_edges.ffn".into(), scores);
        }
        let scores = output.scores.into_iter().enumerate().map(|(layer, scores)| {
            let (starts, cls) = (batch.edge_starts.clone(), self.cls_scores(layer));
            PositionScores::Dense(PairScores { scores, starts, cls })
        });
        (scores.collect(), output.diagonal)
    }

    /// Applies the transform, the edge-wise network and position projections to a stack.
    ///
    /// Given the topology of the nodes, the diagonal is returned too, if it is encoded.
    ///
    /// # Shapes
    /// - `stack`: `[c, p]`; in evaluation, any subset of pairs
    fn forward_stack(
        &self,
        stack: Tensor<2>,
        positions: &[Linear],
        nodes: Option<&Topology>,
        shared: Option<&UniqueTopologies>,
        ctx: &ForwardContext,
    ) -> StackOutput {
        let nodes = nodes.filter(|_| self.self_edges != SelfEdges::Off);
        let diagonal =
            |stack: &Tensor<2>| nodes.map(|nodes| stack.clone().select(1, nodes.self_pairs()));
        // The same decision on all shards of a batch.
        let pairs = ctx.batch_pairs(stack.dims()[1]);
        let enough = pairs > 0 && (pairs >= MIN_FUSED_PAIRS || !ctx.uses_batch_statistics());
        let can_fuse = enough && !positions.is_empty();
        let counts = shared.map(|shared| &shared.pair_counts);
        if let Some(EdgeFfn::Residual(ffn)) = self.ffn.as_ref().filter(|_| can_fuse)
            && ffn.has_kernel(&stack, self.transform, positions)
        {
            let after = self.self_edges == SelfEdges::AfterFfn;
            let before = if after {
                None
            } else {
                diagonal(&stack).map(|diagonal| self.transform.apply(diagonal))
            };
            let layout = nodes.filter(|_| after).map(|nodes| nodes.layout.clone());
            let output = ffn.forward_scores(stack, self.transform, positions, layout, counts, ctx); // Eq. 2–3, 6
            let diagonal = before.or(output.diagonal.map(Tensor::transpose));
            StackOutput { scores: output.scores, diagonal }
        } else {
            let raw = self.transform.apply(stack);
            let mixed = match &self.ffn {
                Some(ffn) => ffn.forward(raw.clone(), counts, ctx),
                None => raw.clone(),
            }; // Eq. 2–3, [c', p]
            let diagonal = match self.self_edges {
                SelfEdges::Off => None,
                SelfEdges::BeforeFfn => diagonal(&raw),
                SelfEdges::AfterFfn => diagonal(&mixed),
            };
            let scores =
                positions.iter().map(|position| position.forward_channels_first(mixed.clone())); // Eq. 6
            StackOutput { scores: scores.collect(), diagonal }
        }
    }

    /// Returns the position score of pairs with a CLS node in a layer, `[h, 1]`.
    fn cls_scores(&self, layer: usize) -> Option<Tensor<2>> {
        let edge = self.cls_edge.as_ref()?.val().unsqueeze_dim(1); // [c', 1]
        Some(self.positions[layer].forward_channels_first(edge))
    }

    /// Computes the row-normalized edge weights, learned (Eq. 4–5) or uniform over the neighbors.
    ///
    /// # Shapes
    /// - returns `[m]`
    pub fn edge_weights(
        &self,
        x: &Tensor<2>,
        e: Option<&EdgeEmbeddings>,
        topology: &Topology,
        ctx: &ForwardContext,
    ) -> Tensor<1> {
        let m = topology.edges();
        let options = (&x.device(), x.dtype());
        if m == 0 {
            return Tensor::zeros([0], options);
        }
        let weights = match &self.adjacency {
            Some(adjacency) => adjacency.forward(x, e, topology, ctx), // [m, 1]
            None => Tensor::ones([m, 1], options),
        };
        let sums =
            ops::scatter_sum(weights.clone(), topology.sources.clone(), topology.layout.nodes());
        let weights = weights / ops::gather(sums, topology.sources.clone());
        ctx.record(|| "virtual_edges.adjacency".into(), &weights);
        weights.squeeze_dim(1)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device};
    use graph_diffuser_data::SeedTree;
    use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;

    use crate::batch::Batcher;

    use super::*;

    fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
        tensor.into_data().iter::<f64>().collect()
    }

    #[test]
    fn traced_rows_equal_the_rows_of_all_virtual_edges() {
        let device = Device::flex();
        let grids =
            GridHistogram { rows: 3, columns: vec![4], train: 1, ..GridHistogram::default() }
                .generate();
        let batch = Batcher::new(&device, DType::F64).collate(&grids, &[0]);
        let config = VirtualEdgesConfig {
            num_steps: 5,
            adjacency: AdjacencyConfig::default(),
            transform: StackTransform::Log { eps: 1e-4 },
            ffn: EdgeFfnConfig::default(),
            self_edges: SelfEdges::Off,
        };
        let mut init = ParamInit::with_dtype(SeedTree::new(0), &device, DType::F64);
        let x = init.normal([12, 6]).val();
        let mut edges = config.init(6, None, &mut init);
        edges.add_position(2, &mut init);
        let rows = [7, 2];
        let ctx = ForwardContext::trace(&rows);
        let (_, mut scores) = edges.forward(GraphState { x, e: None }, &batch, &ctx);
        let PositionScores::Dense(PairScores { scores: all, .. }) = scores.remove(0) else {
            panic!("a small graph is not chunked")
        };
        drop(scores);
        let some = ctx.into_trace().virtual_edges.expect("rows are traced");
        let stack = ops::diffusion_stack(some.weights.clone(), &batch.topology, config.num_steps);
        for (some, all) in [(some.walks, stack), (some.scores[0].clone(), all)] {
            let channels = some.dims()[0];
            let expected =
                rows.map(|row| all.clone().slice([0..channels, row * 12..(row + 1) * 12]));
            let expected = to_vec(Tensor::cat(expected.to_vec(), 1));
            for (ours, expected) in to_vec(some).iter().zip(&expected) {
                assert!((ours - expected).abs() < 1e-10, "{ours} is not {expected}");
            }
        }
    }

    #[test]
    fn rows_of_every_power_sum_to_one_and_channel_0_is_the_identity() {
        let device = Device::flex();
        let grids =
            GridHistogram { rows: 2, columns: vec![2, 3], train: 3, ..GridHistogram::default() }
                .generate();
        let batch = Batcher::new(&device, DType::F64).collate(&grids, &[0, 1, 2]);
        let layout = &batch.topology.layout;
        for activation in [EdgeActivation::Sigmoid, EdgeActivation::Exp] {
            let config = VirtualEdgesConfig {
                num_steps: 4,
                adjacency: AdjacencyConfig::Weighted {
                    activation,
                    projections: Projections::Separate,
                },
                transform: StackTransform::None {},
                ffn: EdgeFfnConfig::None {},
                self_edges: SelfEdges::Off,
            };
            let mut init = ParamInit::with_dtype(SeedTree::new(0), &device, DType::F64);
            let x = init.normal([layout.nodes(), 6]).val();
            let virtual_edges = config.init(6, None, &mut init);
            let weights =
                virtual_edges.edge_weights(&x, None, &batch.topology, &ForwardContext::train(0));
            let rows = ops::scatter_sum(
                weights.unsqueeze_dim(1),
                batch.topology.sources.clone(),
                layout.nodes(),
            );
            assert!(to_vec(rows).iter().all(|sum| (sum - 1.0).abs() < 1e-12));
            let stack = to_vec(ops::diffusion_stack(
                virtual_edges.edge_weights(&x, None, &batch.topology, &ForwardContext::train(0)),
                &batch.topology,
                config.num_steps,
            ));
            for channel in stack.chunks(layout.pairs()) {
                for (graph, &n) in layout.sizes.iter().enumerate() {
                    let pairs = &channel[layout.pair_starts[graph]..layout.pair_starts[graph + 1]];
                    assert!(
                        pairs.chunks(n).all(|row| (row.iter().sum::<f64>() - 1.0).abs() < 1e-12)
                    );
                }
            }
            let self_pairs = to_vec(batch.topology.self_pairs().float());
            for (pair, &value) in stack[..layout.pairs()].iter().enumerate() {
                assert_eq!(value == 1.0, self_pairs.contains(&(pair as f64)));
                assert!(value == 0.0 || value == 1.0);
            }
        }
    }
}
