//! Virtual edges: what diffusion says of every pair of nodes (Eq. 1–5).
//!
//! Edge weights are learned (Eq. 4–5) or fixed, walks along them are stacked (Eq. 1), and a small
//! network mixes the steps of every pair (Eq. 2–3).

mod chunked;
mod edge_ffn;
mod transform;
mod weighted_adjacency;

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::batch::{EdgeEmbeddings, GraphBatch, Topology, UniqueTopologies};
use crate::nn::{ForwardContext, Linear, ParamInit};
use crate::ops;

pub use chunked::ChunkedVirtualEdges;
pub use edge_ffn::{EdgeFfn, EdgeFfnConfig};
pub use transform::StackTransform;
pub use weighted_adjacency::{AdjacencyConfig, EdgeActivation, Projections, WeightedAdjacency};

/// The fused network takes statistics from sums, which cancel where there are next to no pairs: with
/// two, gradients of the stack were off by up to 1e-2. So few cost nothing in plain operations. Given statistics
/// do not cancel, and a small graph alone then has the scores that it has among others, to the bit.
const MIN_FUSED_PAIRS: usize = 16;

/// What [`VirtualEdges`] needs to exist.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VirtualEdgesConfig {
    /// Number of diffusion steps, `k`.
    pub num_steps: usize,
    /// Where edge weights come from.
    #[serde(default)]
    pub adjacency: AdjacencyConfig,
    /// What is done to the stack before the network sees it.
    #[serde(default)]
    pub transform: StackTransform,
    /// The network over every pair.
    #[serde(default)]
    pub ffn: EdgeFfnConfig,
    /// Which self-virtual-edges are added to the nodes (Eq. 9).
    #[serde(default)]
    pub self_edges: SelfEdges,
}

/// Which self-virtual-edges are added to the nodes (Eq. 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelfEdges {
    /// None.
    Off,
    /// Those after the edge-wise network: the paper.
    #[default]
    AfterFfn,
    /// Those before it, with a batch norm of their own: the authors' code.
    BeforeFfn,
}

impl VirtualEdgesConfig {
    /// Channels of the stack: the identity and `k` powers, `c`.
    pub fn stack_channels(&self) -> usize {
        self.num_steps + 1
    }

    /// Channels of a virtual edge after the network.
    pub fn channels(&self) -> usize {
        self.ffn.output_channels(self.stack_channels())
    }

    /// Draws the parameters; `edge_width` is that of `e`, where edges have features.
    pub fn init(
        &self,
        width: usize,
        edge_width: Option<usize>,
        init: &mut ParamInit,
    ) -> VirtualEdges {
        VirtualEdges {
            adjacency: match self.adjacency {
                AdjacencyConfig::Fixed {} => None,
                AdjacencyConfig::Weighted { activation, projections } => {
                    Some(WeightedAdjacency::new(width, edge_width, activation, projections, init))
                }
            },
            ffn: self.ffn.init(self.stack_channels(), init),
            num_steps: self.num_steps,
            transform: self.transform,
            self_edges: self.self_edges,
        }
    }
}

/// Makes virtual edges from nodes and edges.
#[derive(Module, Debug)]
pub struct VirtualEdges {
    adjacency: Option<WeightedAdjacency>,
    ffn: Option<EdgeFfn>,
    #[module(skip)]
    num_steps: usize,
    #[module(skip)]
    transform: StackTransform,
    #[module(skip)]
    self_edges: SelfEdges,
}

/// What the Transformer reads of the virtual edges.
#[derive(Debug, Clone)]
pub struct VirtualEdgeOutput {
    /// `[h, p]` position scores of each layer (Eq. 6), one a pair of the distinct structures.
    pub scores: Vec<Tensor<2>>,
    /// `[c, nodes]` virtual edges of nodes with themselves, where they are encoded (Eq. 9).
    pub own: Option<Tensor<2>>,
}

/// Virtual edges of some rows of one graph, for those who look inside.
#[derive(Debug, Clone)]
pub struct VirtualEdgeTrace {
    /// `[m]` weights of the edges, rows of A.
    pub weights: Tensor<1>,
    /// `[c, rows · n]` walks of 0 to `k` steps from each row to every node (Eq. 1).
    pub walks: Tensor<2>,
    /// `[h, rows · n]` position scores of each layer (Eq. 6).
    pub scores: Vec<Tensor<2>>,
}

/// Where a layer finds the position scores of its pairs.
#[derive(Debug)]
pub enum PositionScores<'a> {
    /// Nowhere: attention is by content alone.
    None,
    /// `[h, p]`, made before the first layer, one a pair of the distinct structures.
    Dense(Tensor<2>),
    /// The layer makes them, some rows at a time.
    Chunked(&'a ChunkedVirtualEdges<'a>),
}

impl VirtualEdges {
    /// Makes virtual edges and reads off them what `positions`, one a layer, ask for.
    ///
    /// # Shapes
    /// - `x`: `[r, d]` nodes
    pub fn forward(
        &self,
        x: &Tensor<2>,
        e: Option<&EdgeEmbeddings>,
        positions: &[&Linear],
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> VirtualEdgeOutput {
        let topology = batch.edge_topology();
        let weights = self.edge_weights(x, e, topology, ctx);
        let stack = ops::diffusion_stack(weights, topology, self.num_steps); // Eq. 1, [c, p]
        ctx.record(|| "virtual_edges.stack".into(), &stack);
        let related = self.read(stack, positions, Some(topology), batch.shared.as_ref(), ctx);
        if let Some(scores) = related.scores.first() {
            ctx.record(|| "virtual_edges.ffn".into(), scores);
        }
        related
    }

    /// Virtual edges from some nodes of a graph that is alone in its batch, in evaluation.
    ///
    /// Walks go step by step from the asked rows alone, so memory is theirs and not that of all pairs.
    pub(crate) fn of_rows(
        &self,
        x: &Tensor<2>,
        e: Option<&EdgeEmbeddings>,
        positions: &[&Linear],
        rows: &[usize],
        batch: &GraphBatch,
        ctx: &ForwardContext,
    ) -> VirtualEdgeTrace {
        assert!(!ctx.uses_batch_statistics(), "some rows have no statistics of their own");
        let Topology { layout, sources, targets, .. } = &batch.topology;
        let (n, count) = (layout.nodes(), rows.len());
        let weights = self.edge_weights(x, e, &batch.topology, ctx);
        let mut start = vec![0.0_f32; n * count];
        for (place, &row) in rows.iter().enumerate() {
            start[row * count + place] = 1.0;
        }
        let options = (&x.device(), x.dtype());
        let mut step =
            Tensor::<2>::from_data(burn::tensor::TensorData::new(start, [n, count]), options);
        let mut walks = Vec::with_capacity(self.num_steps + 1);
        for power in 0..=self.num_steps {
            if power > 0 && batch.topology.edges() == 0 {
                step = step * 0.0;
            } else if power > 0 {
                let along = ops::gather(step, sources.clone()) * weights.clone().unsqueeze_dim(1);
                step = ops::scatter_sum(along, targets.clone(), n); // A one step further, [n, rows]
            }
            walks.push(step.clone().transpose().reshape([1, count * n]));
        }
        let walks = Tensor::cat(walks, 0); // Eq. 1
        let scores = self.read(walks.clone(), positions, None, None, ctx).scores; // Eq. 2–3, 6
        VirtualEdgeTrace { weights, walks, scores }
    }

    /// Mixes the steps of every pair of `stack` and reads off what is asked for.
    ///
    /// # Shapes
    /// - `stack`: `[c, p]`, in evaluation of any pairs
    /// - `nodes`: whose virtual edges with themselves are read too, where that is asked for
    fn read(
        &self,
        stack: Tensor<2>,
        positions: &[&Linear],
        nodes: Option<&Topology>,
        shared: Option<&UniqueTopologies>,
        ctx: &ForwardContext,
    ) -> VirtualEdgeOutput {
        let nodes = nodes.filter(|_| self.self_edges != SelfEdges::Off);
        let own = |stack: &Tensor<2>| {
            nodes.map(|nodes| stack.clone().select(1, nodes.self_pairs.clone()))
        };
        let pairs = stack.dims()[1];
        let enough = pairs > 0 && (pairs >= MIN_FUSED_PAIRS || !ctx.uses_batch_statistics());
        let fused = self.ffn.as_ref().filter(|ffn| {
            ffn.is_residual() && !positions.is_empty() && enough && ops::can_run(&stack)
        });
        let counts = shared.map(|shared| &shared.pair_weights);
        if let Some(ffn) = fused {
            let after = self.self_edges == SelfEdges::AfterFfn;
            let before =
                if after { None } else { own(&stack).map(|own| self.transform.apply(own)) };
            let self_pairs = nodes.filter(|_| after).map(|nodes| nodes.layout.self_pairs());
            let read = ffn.read(stack, self.transform, positions, self_pairs, counts, ctx); // Eq. 2–3, 6
            VirtualEdgeOutput {
                scores: read.scores,
                own: before.or(read.own.map(Tensor::transpose)),
            }
        } else {
            let raw = self.transform.apply(stack);
            let mixed = match &self.ffn {
                Some(ffn) => ffn.forward(raw.clone(), counts, ctx),
                None => raw.clone(),
            }; // Eq. 2–3, [c', p]
            let own = match self.self_edges {
                SelfEdges::Off => None,
                SelfEdges::BeforeFfn => own(&raw),
                SelfEdges::AfterFfn => own(&mixed),
            };
            let scores =
                positions.iter().map(|position| position.forward_channels_first(mixed.clone())); // Eq. 6
            VirtualEdgeOutput { scores: scores.collect(), own }
        }
    }

    /// Rows of A: learned (Eq. 4–5) or uniform over the neighbours.
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
    use graph_diffuser_data::grid_histogram::GridHistogram;

    use crate::batch::Batcher;

    use super::*;

    fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
        tensor.into_data().iter::<f64>().collect()
    }

    #[test]
    fn virtual_edges_of_some_rows_are_those_rows_of_all() {
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
        let edges = config.init(6, None, &mut init);
        let position = Linear::new(config.channels(), 2, &mut init);
        let ctx = ForwardContext::evaluate();
        let rows = [7, 2];
        let some = edges.of_rows(&x, None, &[&position], &rows, &batch, &ctx);
        let all = edges.forward(&x, None, &[&position], &batch, &ctx);
        let stack = ops::diffusion_stack(some.weights.clone(), &batch.topology, config.num_steps);
        for (some, all) in [(some.walks, stack), (some.scores[0].clone(), all.scores[0].clone())] {
            let channels = some.dims()[0];
            let expected =
                rows.map(|row| all.clone().slice([0..channels, row * 12..(row + 1) * 12]));
            let expected = numbers(Tensor::cat(expected.to_vec(), 1));
            for (ours, expected) in numbers(some).iter().zip(&expected) {
                assert!((ours - expected).abs() < 1e-10, "{ours} is not {expected}");
            }
        }
    }

    #[test]
    fn rows_of_a_and_of_every_power_sum_to_one_and_channel_0_is_the_identity() {
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
            assert!(numbers(rows).iter().all(|sum| (sum - 1.0).abs() < 1e-12));
            let stack = numbers(ops::diffusion_stack(
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
            let self_pairs = numbers(batch.topology.self_pairs.clone().float());
            for (pair, &value) in stack[..layout.pairs()].iter().enumerate() {
                assert_eq!(value == 1.0, self_pairs.contains(&(pair as f64)));
                assert!(value == 0.0 || value == 1.0);
            }
        }
    }
}
