//! Diffusion stack `[I | A | … | Aᵏ]` (Eq. 1), forward and backward.
//!
//! A cube computes one row of all powers: `Aˢ[i, j] = Σ_l Aˢ⁻¹[i, l] A[l, j]` over the edges l → j.
//! Backward, with `G` the gradient of the stack, one launch computes
//! `Gˢ⁻¹[i, l] += Σ_j Gˢ[i, j] A[l, j]` row by row, and a second one
//! `dA[l, j] = Σ_s Σ_i Aˢ⁻¹[i, l] Gˢ[i, j]` edge by edge.

use cubecl::client::Client;
use cubecl::prelude::*;

use crate::attention::AttentionLayout;
use crate::buffer::units;
use crate::edges::CubeEdgeIndex;
use crate::reduce::sum_over_units;
use crate::{Buffer, MAX_CUBES, UNITS};

/// Number of values that describe a node in an [`AttentionLayout`].
const FIELDS: usize = 3;

/// Returns whether the kernels support a batch: cubes and indices fit into their ranges.
pub fn supports(layout: &AttentionLayout, edges: &CubeEdgeIndex, steps: usize) -> bool {
    (1..=MAX_CUBES).contains(&layout.num_nodes())
        && edges.num_edges() > 0
        && (steps + 1) * layout.num_pairs() < u32::MAX as usize
}

/// Computes the stack `[steps + 1, p]` of the weights `[m]` of the edges, with one launch.
///
/// # Panics
/// Panics if the batch is not [supported](supports()) or a shape is wrong.
pub fn forward(
    client: &Client,
    layout: &AttentionLayout,
    edges: &CubeEdgeIndex,
    weights: &Buffer,
    steps: usize,
) -> Buffer {
    check(layout, edges, weights, steps);
    let stack = Buffer::empty(client, (steps + 1) * layout.num_pairs());
    stack_rows::launch(
        client,
        CubeCount::new_1d(layout.num_nodes() as u32),
        units(),
        layout.nodes().arg(),
        edges.incoming.starts.arg(),
        edges.incoming.entries.arg(),
        weights.arg(),
        stack.arg(),
        steps as u32,
        layout.num_pairs() as u32,
    );
    stack
}

/// Computes the gradient of the weights, `[m]`, from the stack and its gradient, with two launches.
///
/// # Panics
/// Panics if the batch is not [supported](supports()) or a shape is wrong.
pub fn backward(
    client: &Client,
    layout: &AttentionLayout,
    edges: &CubeEdgeIndex,
    weights: &Buffer,
    steps: usize,
    stack: &Buffer,
    d_stack: &Buffer,
) -> Buffer {
    check(layout, edges, weights, steps);
    let p = layout.num_pairs();
    assert_eq!(stack.len(), (steps + 1) * p, "stack must be [steps + 1, p]");
    assert_eq!(d_stack.len(), stack.len(), "d_stack must have the shape of stack");
    let total = Buffer::empty(client, stack.len());
    gradient_rows::launch(
        client,
        CubeCount::new_1d(layout.num_nodes() as u32),
        units(),
        layout.nodes().arg(),
        edges.outgoing.starts.arg(),
        edges.outgoing.entries.arg(),
        weights.arg(),
        d_stack.arg(),
        total.arg(),
        steps as u32,
        p as u32,
    );
    let m = edges.num_edges();
    let d_weights = Buffer::empty(client, m);
    let width = m.min(32_768);
    weight_gradients::launch(
        client,
        CubeCount::new_2d(width as u32, m.div_ceil(width) as u32),
        units(),
        layout.nodes().arg(),
        edges.ends.arg(),
        stack.arg(),
        total.arg(),
        d_weights.arg(),
        m as u32,
        steps as u32,
        p as u32,
    );
    d_weights
}

fn check(layout: &AttentionLayout, edges: &CubeEdgeIndex, weights: &Buffer, steps: usize) {
    assert!(supports(layout, edges, steps), "the batch is empty or too large");
    assert_eq!(layout.num_nodes(), edges.num_nodes(), "the layouts must agree");
    assert_eq!(weights.len(), edges.num_edges(), "there is one weight per edge");
}

/// Computes one row of all powers.
#[cube(launch)]
fn stack_rows(
    nodes: &[u32],
    starts: &[u32],
    entries: &[u32],
    weights: &[f32],
    stack: &mut [f32],
    steps: u32,
    num_pairs: u32,
) {
    let node = CUBE_POS_X as usize;
    let first = nodes[node * FIELDS] as usize;
    let n = nodes[node * FIELDS + 1] as usize;
    let row = nodes[node * FIELDS + 2] as usize;
    let mut j = UNIT_POS as usize;
    while j < n {
        stack[row + j] = select(first + j == node, 1.0f32, 0.0f32);
        j += UNITS;
    }
    for step in 1..steps + 1 {
        // The previous power was written by other units of this cube.
        sync_storage();
        let at = step as usize * num_pairs as usize + row;
        let before = at - num_pairs as usize;
        let mut j = UNIT_POS as usize;
        while j < n {
            let mut sum = 0.0f32;
            for entry in starts[first + j]..starts[first + j + 1] {
                let source = entries[2 * entry as usize] as usize - first;
                sum += stack[before + source] * weights[entries[2 * entry as usize + 1] as usize];
            }
            stack[at + j] = sum;
            j += UNITS;
        }
    }
}

/// Computes one row of the gradients of all powers, including those through later powers.
#[cube(launch)]
fn gradient_rows(
    nodes: &[u32],
    starts: &[u32],
    entries: &[u32],
    weights: &[f32],
    d_stack: &[f32],
    total: &mut [f32],
    steps: u32,
    num_pairs: u32,
) {
    let node = CUBE_POS_X as usize;
    let first = nodes[node * FIELDS] as usize;
    let n = nodes[node * FIELDS + 1] as usize;
    let row = nodes[node * FIELDS + 2] as usize;
    let last = steps as usize * num_pairs as usize + row;
    let mut l = UNIT_POS as usize;
    while l < n {
        total[last + l] = d_stack[last + l];
        l += UNITS;
    }
    for nth in 0..steps {
        sync_storage();
        let after = (steps - nth) as usize * num_pairs as usize + row;
        let at = after - num_pairs as usize;
        let mut l = UNIT_POS as usize;
        while l < n {
            let mut sum = d_stack[at + l];
            for entry in starts[first + l]..starts[first + l + 1] {
                let target = entries[2 * entry as usize] as usize - first;
                sum += total[after + target] * weights[entries[2 * entry as usize + 1] as usize];
            }
            total[at + l] = sum;
            l += UNITS;
        }
    }
}

/// Computes the gradient of the weight of one edge.
#[cube(launch)]
fn weight_gradients(
    nodes: &[u32],
    ends: &[u32],
    stack: &[f32],
    total: &[f32],
    d_weights: &mut [f32],
    num_edges: u32,
    steps: u32,
    num_pairs: u32,
) {
    let edge = (CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize;
    let unit = UNIT_POS as usize;
    let mut sum = 0.0f32;
    if edge < num_edges as usize {
        let (source, target) = (ends[2 * edge] as usize, ends[2 * edge + 1] as usize);
        let first = nodes[source * FIELDS] as usize;
        let n = nodes[source * FIELDS + 1] as usize;
        let first_pair = nodes[first * FIELDS + 2] as usize;
        let mut item = UNIT_POS as usize;
        while item < steps as usize * n {
            // Row i of power s - 1 and of the gradient of power s.
            let row = (item / n) * num_pairs as usize + first_pair + (item % n) * n;
            sum += stack[row + source - first] * total[row + num_pairs as usize + target - first];
            item += UNITS;
        }
    }
    let gradient = sum_over_units(sum, UNITS);
    if edge < num_edges as usize && unit == 0usize {
        d_weights[edge] = gradient;
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use super::*;
    use crate::testing::{Batch, assert_close, client, values};

    /// Computes the stack and the gradient of the weights in double precision.
    fn reference(batch: &Batch, weights: &[f32], steps: usize, d_stack: &[f32]) -> [Vec<f64>; 2] {
        let p = batch.num_pairs();
        let (mut stack, mut total) = (vec![0.0; (steps + 1) * p], vec![0.0; (steps + 1) * p]);
        let edges: Vec<(usize, usize, usize)> = batch.local_edges().collect();
        let mut d_weights = vec![0.0; edges.len()];
        for (graph, n, first_pair) in batch.graphs() {
            let own = || edges.iter().enumerate().filter(move |(_, edge)| edge.0 == graph);
            let at = |step: usize, i: usize, j: usize| step * p + first_pair + i * n + j;
            for i in 0..n {
                stack[at(0, i, i)] = 1.0;
                for step in 1..=steps {
                    for (edge, &(_, l, j)) in own() {
                        let weight = f64::from(weights[edge]);
                        stack[at(step, i, j)] += stack[at(step - 1, i, l)] * weight;
                    }
                }
                for step in (0..=steps).rev() {
                    for j in 0..n {
                        total[at(step, i, j)] += f64::from(d_stack[at(step, i, j)]);
                    }
                    for (edge, &(_, l, j)) in own().take(if step > 0 { usize::MAX } else { 0 }) {
                        let weight = f64::from(weights[edge]);
                        total[at(step - 1, i, l)] += total[at(step, i, j)] * weight;
                        d_weights[edge] += stack[at(step - 1, i, l)] * total[at(step, i, j)];
                    }
                }
            }
        }
        [stack, d_weights]
    }

    #[test]
    fn stack_and_gradient_match_the_reference_on_ragged_batches() {
        let Some(client) = client() else { return };
        for (seed, sizes, steps) in
            [(1, &[5, 1, 70, 3, 3][..], 4), (2, &[2, 130][..], 16), (3, &[9][..], 0)]
        {
            let batch = Batch::random(seed, sizes);
            let weights = values(seed, batch.edges.len(), 0.5);
            let d_stack = values(seed + 9, (steps + 1) * batch.num_pairs(), 1.0);
            let [expected, d_expected] = reference(&batch, &weights, steps, &d_stack);
            let (layout, edges) = (batch.layout(&client), batch.edge_index(&client));
            let weights = Buffer::from_slice(&client, &weights);
            let stack = forward(&client, &layout, &edges, &weights, steps);
            assert_close(&stack.to_vec(&client), &expected, 1e-6);
            let d_stack = Buffer::from_slice(&client, &d_stack);
            let d_weights = backward(&client, &layout, &edges, &weights, steps, &stack, &d_stack);
            assert_close(&d_weights.to_vec(&client), &d_expected, 1e-5);
        }
    }

    #[test]
    fn results_are_equal_in_every_run() {
        let Some(client) = client() else { return };
        let batch = Batch::random(4, &[40, 90, 2]);
        let (layout, edges) = (batch.layout(&client), batch.edge_index(&client));
        let weights = Buffer::from_slice(&client, &values(4, batch.edges.len(), 0.5));
        let d_stack = Buffer::from_slice(&client, &values(5, 4 * batch.num_pairs(), 1.0));
        let run = || {
            let stack = forward(&client, &layout, &edges, &weights, 3);
            let d = backward(&client, &layout, &edges, &weights, 3, &stack, &d_stack);
            d.to_vec::<f32>(&client)
        };
        let first = run();
        assert!((0..5).all(|_| run() == first));
    }

    #[test]
    fn batches_without_edges_are_not_supported() {
        let Some(client) = client() else { return };
        let batch = Batch { sizes: vec![2, 1], edges: vec![] };
        assert!(!supports(&batch.layout(&client), &batch.edge_index(&client), 2));
    }
}
