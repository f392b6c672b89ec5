//! Aggregation of GatedGCN: the average of the neighbor messages, weighted by edge gates.

use cubecl::client::Client;
use cubecl::prelude::*;

use crate::Buffer;
use crate::buffer::{unit_per_element, units};
use crate::edges::CubeEdgeIndex;

/// Added to the sum of the gates, so that nodes without incoming edges do not divide by zero.
const EPSILON: f32 = 1e-6;

/// Inputs of [`gated_forward`]; each is a linear projection of node or edge features.
#[derive(Debug, Clone, Copy)]
pub struct CubeGatedInputs<'a> {
    /// `[r, width]`, `D x`: gate term of the target.
    pub target: &'a Buffer,
    /// `[r, width]`, `E x`: gate term of the source.
    pub source: &'a Buffer,
    /// `[m, width]`, `C e`: gate term of the edge.
    pub edge: &'a Buffer,
    /// `[r, width]`, `B x`: message of the source.
    pub message: &'a Buffer,
}

/// Output of [`gated_forward`].
#[derive(Debug, Clone)]
pub struct CubeGatedOutput {
    /// `[r, width]` average of the messages.
    pub aggregated: Buffer,
    /// `[m, width]` gates before the sigmoid.
    pub gates: Buffer,
    /// `[r, width]` denominators of the averages.
    pub total: Buffer,
}

/// Gradients of [`CubeGatedInputs`], in the same shapes.
#[derive(Debug, Clone)]
pub struct CubeGatedGradients {
    /// Gradient of `D x`.
    pub target: Buffer,
    /// Gradient of `E x`.
    pub source: Buffer,
    /// Gradient of `C e`.
    pub edge: Buffer,
    /// Gradient of `B x`.
    pub message: Buffer,
}

/// Computes the gates `g_ij = D x_i + E x_j + C e_ij` of the edges j → i and the averages
/// `Σ σ(g_ij) B x_j / (Σ σ(g_ij) + 1e-6)`, with one launch.
///
/// # Panics
/// Panics if there are no edges or a shape is wrong.
pub fn gated_forward(
    client: &Client,
    edges: &CubeEdgeIndex,
    inputs: CubeGatedInputs<'_>,
    width: usize,
) -> CubeGatedOutput {
    let (r, m) = (edges.num_nodes(), edges.num_edges());
    assert!(m > 0, "the batch has edges");
    assert!(
        [inputs.target, inputs.source, inputs.message].iter().all(|x| x.len() == r * width),
        "terms of nodes must be [r, width]"
    );
    assert_eq!(inputs.edge.len(), m * width, "terms of edges must be [m, width]");
    let [aggregated, total] = [(); 2].map(|()| Buffer::empty(client, r * width));
    let gates = Buffer::empty(client, m * width);
    gated_nodes::launch(
        client,
        unit_per_element(r * width),
        units(),
        edges.incoming.starts.arg(),
        edges.incoming.entries.arg(),
        inputs.target.arg(),
        inputs.source.arg(),
        inputs.edge.arg(),
        inputs.message.arg(),
        gates.arg(),
        aggregated.arg(),
        total.arg(),
        (r * width) as u32,
        width,
    );
    CubeGatedOutput { aggregated, gates, total }
}

/// Computes the gradients of [`gated_forward`] from those of the averages and of the gates, if the
/// gates have other uses, with one launch for edges and one for nodes.
///
/// With `p_i = ∂out_i / total_i`, the gradient of `σ(g_ij)` is `p_i (B x_j - out_i)`, and the edge
/// adds `σ(g_ij) p_i` to the gradient of `B x_j`.
///
/// # Panics
/// Panics if there are no edges or a shape is wrong.
pub fn gated_backward(
    client: &Client,
    edges: &CubeEdgeIndex,
    message: &Buffer,
    width: usize,
    output: &CubeGatedOutput,
    d_aggregated: Option<&Buffer>,
    d_gates: Option<&Buffer>,
) -> CubeGatedGradients {
    let (r, m) = (edges.num_nodes(), edges.num_edges());
    assert!(m > 0, "the batch has edges");
    assert!(
        [message, &output.aggregated, &output.total].iter().all(|x| x.len() == r * width)
            && output.gates.len() == m * width,
        "inputs and outputs of the forward pass"
    );
    assert!(d_aggregated.is_none_or(|d| d.len() == r * width), "d_aggregated must be [r, width]");
    assert!(d_gates.is_none_or(|d| d.len() == m * width), "d_gates must be [m, width]");
    let edge = Buffer::empty(client, m * width);
    gated_edge_gradients::launch(
        client,
        unit_per_element(m * width),
        units(),
        edges.ends.arg(),
        message.arg(),
        output.gates.arg(),
        output.aggregated.arg(),
        output.total.arg(),
        d_aggregated.unwrap_or(message).arg(),
        d_gates.unwrap_or(&output.gates).arg(),
        edge.arg(),
        (m * width) as u32,
        width,
        d_aggregated.is_some(),
        d_gates.is_some(),
    );
    let [target, source, d_message] = [(); 3].map(|()| Buffer::empty(client, r * width));
    gated_node_gradients::launch(
        client,
        unit_per_element(r * width),
        units(),
        edges.incoming.starts.arg(),
        edges.incoming.entries.arg(),
        edges.outgoing.starts.arg(),
        edges.outgoing.entries.arg(),
        output.gates.arg(),
        output.total.arg(),
        d_aggregated.unwrap_or(message).arg(),
        edge.arg(),
        target.arg(),
        source.arg(),
        d_message.arg(),
        (r * width) as u32,
        width,
        d_aggregated.is_some(),
    );
    CubeGatedGradients { target, source, edge, message: d_message }
}

#[cube]
fn sigmoid(x: f32) -> f32 {
    // The exponent is bounded so that it cannot overflow.
    1.0f32 / (1.0f32 + min(0.0f32 - x, 80.0f32).exp())
}

#[cube(launch)]
fn gated_nodes(
    starts: &[u32],
    entries: &[u32],
    target: &[f32],
    source: &[f32],
    edge: &[f32],
    message: &[f32],
    gates: &mut [f32],
    aggregated: &mut [f32],
    total: &mut [f32],
    count: u32,
    #[comptime] width: usize,
) {
    let at = ABSOLUTE_POS;
    if at < count as usize {
        let (node, channel) = (at / width, at % width);
        let mut sum = 0.0f32;
        let mut weights = 0.0f32;
        for entry in starts[node]..starts[node + 1] {
            let neighbor = entries[2 * entry as usize] as usize * width + channel;
            let of_edge = entries[2 * entry as usize + 1] as usize * width + channel;
            let gate = target[at] + source[neighbor] + edge[of_edge];
            let weight = sigmoid(gate);
            gates[of_edge] = gate;
            weights += weight;
            sum += weight * message[neighbor];
        }
        let denominator = weights + EPSILON;
        total[at] = denominator;
        aggregated[at] = sum / denominator;
    }
}

#[cube(launch)]
fn gated_edge_gradients(
    ends: &[u32],
    message: &[f32],
    gates: &[f32],
    aggregated: &[f32],
    total: &[f32],
    d_aggregated: &[f32],
    d_gates: &[f32],
    d_edge: &mut [f32],
    count: u32,
    #[comptime] width: usize,
    #[comptime] has_aggregated: bool,
    #[comptime] has_gates: bool,
) {
    let at = ABSOLUTE_POS;
    if at < count as usize {
        let (edge, channel) = (at / width, at % width);
        let source = ends[2 * edge] as usize * width + channel;
        let target = ends[2 * edge + 1] as usize * width + channel;
        let mut gradient = 0.0f32;
        if comptime!(has_aggregated) {
            let weight = sigmoid(gates[at]);
            let scaled = d_aggregated[target] / total[target];
            gradient = weight * (1.0f32 - weight) * scaled * (message[source] - aggregated[target]);
        }
        if comptime!(has_gates) {
            gradient += d_gates[at];
        }
        d_edge[at] = gradient;
    }
}

#[cube(launch)]
fn gated_node_gradients(
    incoming_starts: &[u32],
    incoming: &[u32],
    outgoing_starts: &[u32],
    outgoing: &[u32],
    gates: &[f32],
    total: &[f32],
    d_aggregated: &[f32],
    d_edge: &[f32],
    d_target: &mut [f32],
    d_source: &mut [f32],
    d_message: &mut [f32],
    count: u32,
    #[comptime] width: usize,
    #[comptime] has_aggregated: bool,
) {
    let at = ABSOLUTE_POS;
    if at < count as usize {
        let (node, channel) = (at / width, at % width);
        let mut sum = 0.0f32;
        for entry in incoming_starts[node]..incoming_starts[node + 1] {
            sum += d_edge[incoming[2 * entry as usize + 1] as usize * width + channel];
        }
        d_target[at] = sum;
        sum = 0.0f32;
        let mut messages = 0.0f32;
        for entry in outgoing_starts[node]..outgoing_starts[node + 1] {
            let of_edge = outgoing[2 * entry as usize + 1] as usize * width + channel;
            sum += d_edge[of_edge];
            if comptime!(has_aggregated) {
                let target = outgoing[2 * entry as usize] as usize * width + channel;
                messages += sigmoid(gates[of_edge]) * d_aggregated[target] / total[target];
            }
        }
        d_source[at] = sum;
        d_message[at] = messages;
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use super::*;
    use crate::testing::{Batch, assert_close, client, upload, values};

    #[test]
    fn averages_gates_and_gradients_match_the_reference_on_ragged_batches() {
        let Some(client) = client() else { return };
        for (width, has_aggregated, has_gates) in
            [(7, true, true), (64, true, true), (5, true, false), (3, false, true)]
        {
            let batch = Batch::random(width as u32, &[4, 1, 33, 2]);
            let (r, m) = (batch.num_nodes(), batch.edges.len());
            let nodes = |seed| values(seed, r * width, 3.0);
            let [target, source, message, d_aggregated] = [1, 2, 3, 4].map(nodes);
            let [edge, d_gates] = [5, 6].map(|seed| values(seed, m * width, 3.0));
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            let ends = |edge: usize, channel: usize| {
                batch.edges[edge].map(|node| node as usize * width + channel)
            };
            let mut gates = vec![0.0; m * width];
            let (mut total, mut aggregated) = (vec![1e-6; r * width], vec![0.0; r * width]);
            for at in 0..m * width {
                let [from, to] = ends(at / width, at % width);
                gates[at] = f64::from(target[to]) + f64::from(source[from]) + f64::from(edge[at]);
                total[to] += sigmoid(gates[at]);
                aggregated[to] += sigmoid(gates[at]) * f64::from(message[from]);
            }
            aggregated.iter_mut().zip(&total).for_each(|(sum, total)| *sum /= total);
            let [mut d_target, mut d_source, mut d_message] =
                [(); 3].map(|()| vec![0.0; r * width]);
            let mut d_edge = vec![0.0; m * width];
            for at in 0..m * width {
                let [from, to] = ends(at / width, at % width);
                let weight = sigmoid(gates[at]);
                let d_out = if has_aggregated { f64::from(d_aggregated[to]) } else { 0.0 };
                let scaled = d_out / total[to];
                let d_weight = scaled * (f64::from(message[from]) - aggregated[to]);
                d_edge[at] = d_weight * weight * (1.0 - weight);
                if has_gates {
                    d_edge[at] += f64::from(d_gates[at]);
                }
                d_target[to] += d_edge[at];
                d_source[from] += d_edge[at];
                d_message[from] += weight * scaled;
            }
            let edges = batch.edge_index(&client);
            let [target, source, message, d_aggregated, edge, d_gates] =
                [target, source, message, d_aggregated, edge, d_gates]
                    .map(|values| upload(&client, &values));
            let inputs = CubeGatedInputs {
                target: &target,
                source: &source,
                edge: &edge,
                message: &message,
            };
            let output = gated_forward(&client, &edges, inputs, width);
            assert_close(&output.gates.to_vec(&client), &gates, 1e-6);
            assert_close(&output.aggregated.to_vec(&client), &aggregated, 1e-5);
            let gradients = gated_backward(
                &client,
                &edges,
                &message,
                width,
                &output,
                has_aggregated.then_some(&d_aggregated),
                has_gates.then_some(&d_gates),
            );
            for (ours, expected) in [
                (gradients.target, d_target),
                (gradients.source, d_source),
                (gradients.edge, d_edge),
                (gradients.message, d_message),
            ] {
                assert_close(&ours.to_vec(&client), &expected, 1e-5);
            }
        }
    }
}
