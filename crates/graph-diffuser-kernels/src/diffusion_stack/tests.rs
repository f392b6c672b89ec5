//! Tests of the stack against hand-computed examples and powers of dense matrices in double
//! precision.

use super::blocks::{blocks, tasks};
use super::*;
use crate::hash32;
use crate::simd::Isa;
use crate::testing::OwnedOffsets;

/// Graphs with edges in any order, and the resulting CSR matrix.
struct Batch {
    offsets: OwnedOffsets,
    /// Graph, source, target of each edge.
    edges: Vec<[usize; 3]>,
    csr: Csr,
}

impl Batch {
    fn new(sizes: &[usize], edges: &[[usize; 3]]) -> Self {
        let offsets = OwnedOffsets::new(sizes);
        let node = |graph: usize, node: usize| (offsets.node_starts[graph] + node) as u32;
        let [sources, targets] =
            [1, 2].map(|end| edges.iter().map(|edge| node(edge[0], edge[end])).collect::<Vec<_>>());
        let csr = Csr::new(offsets.graphs().num_nodes(), &sources, &targets);
        Self { offsets, csr, edges: edges.to_vec() }
    }

    /// Sizes around those of a vector and a block; isolated nodes, self-loops, one-way and
    /// duplicate edges; every fourth graph without edges.
    fn ragged() -> Self {
        let sizes = [2, 300, 0, 1, 15, 16, 17, 1, 130, 0, 2];
        let mut edges = Vec::new();
        for (graph, &n) in sizes.iter().enumerate().filter(|(graph, n)| graph % 4 != 3 && **n > 0) {
            for edge in 0..3 * n {
                let draw =
                    |stream: usize| random_u32(edge * 4 + stream + graph * 100_000) as usize % n;
                let (source, target) = (draw(0), draw(1));
                if source % 7 != 3 {
                    edges.extend(vec![[graph, source, target]; 1 + usize::from(draw(2) % 5 == 0)]);
                    edges.push([graph, target, source]);
                }
            }
        }
        edges.sort_by_key(|edge| hash32((edge[0] * 91 + edge[1] * 17 + edge[2]) as u32));
        Self::new(&sizes, &edges)
    }

    fn graphs(&self) -> GraphOffsets<'_> {
        self.offsets.graphs()
    }

    fn stack(&self, isa: Isa, weights: &[f32], steps: usize) -> Vec<f32> {
        forward(isa, self.graphs(), &self.csr, weights, steps)
    }

    fn gradient(
        &self,
        isa: Isa,
        weights: &[f32],
        steps: usize,
        stack: &[f32],
        d_stack: &[f32],
    ) -> Vec<f32> {
        let mut d_weights = vec![f32::NAN; weights.len()];
        backward(isa, self.graphs(), &self.csr, weights, steps, stack, d_stack, &mut d_weights);
        d_weights
    }

    fn adjacency(&self, graph: usize, weights: &[f32]) -> Vec<f64> {
        let n = self.offsets.sizes[graph];
        let mut matrix = vec![0.0; n * n];
        for ([own, source, target], weight) in self.edges.iter().zip(weights) {
            if *own == graph {
                matrix[source * n + target] += f64::from(*weight);
            }
        }
        matrix
    }
}

fn random_u32(index: usize) -> u32 {
    hash32(hash32(index as u32) ^ 0x9e37_79b9)
}

fn random_values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|at| random_u32(at + (seed << 24)) as f32 / u32::MAX as f32 - 0.5).collect()
}

/// Adds `a · b` to `sum`; `transposed` marks operands to transpose.
fn multiply(n: usize, a: &[f64], b: &[f64], transposed: [bool; 2], sum: &mut [f64]) {
    for i in 0..n {
        for k in 0..n {
            let left = if transposed[0] { a[k * n + i] } else { a[i * n + k] };
            if left != 0.0 {
                for j in 0..n {
                    sum[i * n + j] +=
                        left * if transposed[1] { b[j * n + k] } else { b[k * n + j] };
                }
            }
        }
    }
}

fn assert_close(ours: &[f32], exact: &[f64], tolerance: f64, what: &str) {
    assert_eq!(ours.len(), exact.len());
    let size = exact.iter().fold(1e-30_f64, |size, value| size.max(value.abs()));
    for (at, (ours, exact)) in ours.iter().zip(exact).enumerate() {
        let error = (f64::from(*ours) - exact).abs() / size;
        assert!(error < tolerance, "{what} at {at}: {ours} differs from {exact}");
    }
}

#[test]
fn three_node_path_matches_hand_computation() {
    // Path 0 - 1 - 2; the middle node moves left with probability 1/4 and right with 3/4.
    let batch = Batch::new(&[3], &[[0, 2, 1], [0, 1, 0], [0, 0, 1], [0, 1, 2]]);
    let weights = [1.0, 0.25, 1.0, 0.75];
    #[rustfmt::skip]
    let expected = [
        1.0, 0.0, 0.0,   0.0, 1.0, 0.0,   0.0, 0.0, 1.0,
        0.0, 1.0, 0.0,   0.25, 0.0, 0.75, 0.0, 1.0, 0.0,
        0.25, 0.0, 0.75, 0.0, 1.0, 0.0,   0.25, 0.0, 0.75,
    ];
    // Only A²[0, 2] = w01 w12 has a gradient: 3/4 for w01 and 1 for w12.
    let mut d_stack = [0.0; 27];
    d_stack[18 + 2] = 1.0;
    for isa in Isa::available() {
        let stack = batch.stack(isa, &weights, 2);
        assert_eq!(stack, expected, "{isa:?}");
        assert_eq!(
            batch.gradient(isa, &weights, 2, &stack, &d_stack),
            [0.0, 0.0, 0.75, 1.0],
            "{isa:?}"
        );
    }
}

#[test]
fn no_steps_or_edges_yield_identity_and_zero_gradient() {
    let batch = Batch::new(&[2, 0, 1], &[]);
    for isa in Isa::available() {
        assert_eq!(batch.stack(isa, &[], 0), [1.0, 0.0, 0.0, 1.0, 1.0]);
        assert_eq!(batch.stack(isa, &[], 1), [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(batch.gradient(isa, &[], 1, &[0.0; 10], &[1.0; 10]), []);
        assert_eq!(Batch::new(&[], &[]).stack(isa, &[], 3), []);
        let edge = Batch::new(&[2], &[[0, 0, 1]]);
        assert_eq!(edge.gradient(isa, &[2.0], 0, &[1.0, 0.0, 0.0, 1.0], &[1.0; 4]), [0.0]);
    }
}

#[test]
fn powers_and_gradients_match_dense_matrices() {
    let batch = Batch::ragged();
    let steps = 4;
    let pairs = batch.graphs().num_pairs();
    let weights: Vec<f32> =
        random_values(batch.edges.len(), 1).iter().map(|value| value + 0.2).collect();
    let d_stack = random_values((steps + 1) * pairs, 2);
    let mut exact = vec![0.0; (steps + 1) * pairs];
    let mut d_exact = vec![0.0; weights.len()];
    for (graph, &n) in batch.offsets.sizes.iter().enumerate() {
        let a = batch.adjacency(graph, &weights);
        let part = |channel: usize| {
            channel * pairs + batch.offsets.pair_starts[graph]
                ..channel * pairs + batch.offsets.pair_starts[graph + 1]
        };
        let mut powers = vec![vec![0.0; n * n]];
        (0..n).for_each(|node| powers[0][node * n + node] = 1.0);
        for step in 1..=steps {
            let mut power = vec![0.0; n * n];
            multiply(n, &powers[step - 1], &a, [false, false], &mut power);
            powers.push(power);
        }
        for (channel, power) in powers.iter().enumerate() {
            exact[part(channel)].copy_from_slice(power);
        }
        let channel_gradient =
            |channel: usize| d_stack[part(channel)].iter().map(|value| f64::from(*value));
        let mut above: Vec<f64> = channel_gradient(steps).collect();
        let mut d_a = vec![0.0; n * n];
        for step in (0..steps).rev() {
            multiply(n, &above, &powers[step], [false, true], &mut d_a);
            let mut below: Vec<f64> = channel_gradient(step).collect();
            multiply(n, &a, &above, [true, false], &mut below);
            above = below;
        }
        for ([own, source, target], gradient) in batch.edges.iter().zip(&mut d_exact) {
            if *own == graph {
                *gradient = d_a[source * n + target];
            }
        }
    }
    for isa in Isa::available() {
        let stack = batch.stack(isa, &weights, steps);
        for (channel, exact) in exact.chunks(pairs).enumerate() {
            assert_close(
                &stack[channel * pairs..][..pairs],
                exact,
                1e-6,
                &format!("{isa:?} channel {channel}"),
            );
        }
        let gradient = batch.gradient(isa, &weights, steps, &stack, &d_stack);
        assert_close(&gradient, &d_exact, 1e-6, &format!("{isa:?} derivative"));
    }
}

#[test]
fn output_is_invariant_to_batch_composition() {
    let (batch, steps) = (Batch::ragged(), 3);
    let weights = random_values(batch.edges.len(), 1);
    let pairs = batch.graphs().num_pairs();
    for graph in 0..batch.offsets.sizes.len() {
        let own: Vec<usize> =
            (0..weights.len()).filter(|edge| batch.edges[*edge][0] == graph).collect();
        let edges: Vec<[usize; 3]> =
            own.iter().map(|edge| [0, batch.edges[*edge][1], batch.edges[*edge][2]]).collect();
        let alone = Batch::new(&batch.offsets.sizes[graph..=graph], &edges);
        let own_weights: Vec<f32> = own.iter().map(|edge| weights[*edge]).collect();
        for isa in Isa::available() {
            let in_batch = batch.stack(isa, &weights, steps);
            let alone = alone.stack(isa, &own_weights, steps);
            let n = batch.offsets.sizes[graph];
            for channel in 0..=steps {
                let part = &in_batch[channel * pairs + batch.offsets.pair_starts[graph]..][..n * n];
                assert_eq!(
                    &alone[channel * n * n..(channel + 1) * n * n],
                    part,
                    "{isa:?} graph {graph}"
                );
            }
        }
    }
}

#[test]
fn results_are_independent_of_thread_count() {
    let (batch, steps) = (Batch::ragged(), 5);
    let weights = random_values(batch.edges.len(), 1);
    let d_stack = random_values((steps + 1) * batch.graphs().num_pairs(), 2);
    assert!(
        tasks(&blocks(batch.graphs(), &batch.csr)).len() > 3,
        "too few tasks to test parallel runs"
    );
    for isa in Isa::available() {
        let results = [1, 2, 5].map(|threads| {
            let pool = crate::ThreadPool::new(threads);
            pool.install(|| {
                let stack = batch.stack(isa, &weights, steps);
                let gradient = batch.gradient(isa, &weights, steps, &stack, &d_stack);
                [stack, gradient].concat().into_iter().map(f32::to_bits).collect::<Vec<_>>()
            })
        });
        assert!(results[0] == results[1] && results[0] == results[2], "{isa:?}");
    }
}

#[test]
#[should_panic(expected = "edge target 2 is out of range for 2 nodes")]
fn edge_target_outside_graph_panics() {
    let batch = Batch::new(&[2, 2], &[[0, 1, 2]]);
    batch.stack(Isa::best(), &[1.0], 2);
}
