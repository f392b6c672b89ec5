//! Aggregation of GINE: `x_i + Σ ReLU(x_j + e_ji)` over the edges j → i.

use cubecl::client::Client;
use cubecl::prelude::*;

use crate::Buffer;
use crate::buffer::{unit_per_element, units};
use crate::edges::CubeEdgeIndex;

/// Computes the aggregation, with one launch.
///
/// # Shapes
/// - `x`: `[r, width]`, `e`: `[m, width]`
/// - returns `[r, width]`
///
/// # Panics
/// Panics if there are no edges or a shape is wrong.
pub fn gine_forward(
    client: &Client,
    edges: &CubeEdgeIndex,
    x: &Buffer,
    e: Option<&Buffer>,
    width: usize,
) -> Buffer {
    check(edges, x, e, width);
    let out = Buffer::empty(client, x.len());
    gine_nodes::launch(
        client,
        unit_per_element(x.len()),
        units(),
        edges.incoming.starts.arg(),
        edges.incoming.entries.arg(),
        x.arg(),
        e.unwrap_or(x).arg(),
        out.arg(),
        x.len() as u32,
        width,
        e.is_some(),
    );
    out
}

/// Computes the gradients of `x` and `e` from the gradient of the output, with one launch for each.
///
/// # Panics
/// Panics if there are no edges or a shape is wrong.
pub fn gine_backward(
    client: &Client,
    edges: &CubeEdgeIndex,
    x: &Buffer,
    e: Option<&Buffer>,
    width: usize,
    d_out: &Buffer,
) -> (Buffer, Option<Buffer>) {
    check(edges, x, e, width);
    assert_eq!(d_out.len(), x.len(), "d_out must have the shape of x");
    let d_x = Buffer::empty(client, x.len());
    gine_node_gradients::launch(
        client,
        unit_per_element(x.len()),
        units(),
        edges.outgoing.starts.arg(),
        edges.outgoing.entries.arg(),
        x.arg(),
        e.unwrap_or(x).arg(),
        d_out.arg(),
        d_x.arg(),
        x.len() as u32,
        width,
        e.is_some(),
    );
    let d_e = e.map(|e| {
        let d_e = Buffer::empty(client, e.len());
        gine_edge_gradients::launch(
            client,
            unit_per_element(e.len()),
            units(),
            edges.ends.arg(),
            x.arg(),
            e.arg(),
            d_out.arg(),
            d_e.arg(),
            e.len() as u32,
            width,
        );
        d_e
    });
    (d_x, d_e)
}

fn check(edges: &CubeEdgeIndex, x: &Buffer, e: Option<&Buffer>, width: usize) {
    assert!(edges.num_edges() > 0, "the batch has edges");
    assert_eq!(x.len(), edges.num_nodes() * width, "x must be [r, width]");
    assert!(e.is_none_or(|e| e.len() == edges.num_edges() * width), "e must be [m, width]");
}

/// Returns the message of an edge before the ReLU.
#[cube]
fn message(
    x: &[f32],
    e: &[f32],
    source: usize,
    edge: usize,
    channel: usize,
    #[comptime] width: usize,
    #[comptime] has_edges: bool,
) -> f32 {
    let mut sum = x[source * width + channel];
    if comptime!(has_edges) {
        sum += e[edge * width + channel];
    }
    sum
}

#[cube(launch)]
fn gine_nodes(
    starts: &[u32],
    entries: &[u32],
    x: &[f32],
    e: &[f32],
    out: &mut [f32],
    count: u32,
    #[comptime] width: usize,
    #[comptime] has_edges: bool,
) {
    if ABSOLUTE_POS < count as usize {
        let (node, channel) = (ABSOLUTE_POS / width, ABSOLUTE_POS % width);
        let mut sum = x[ABSOLUTE_POS];
        for entry in starts[node]..starts[node + 1] {
            let source = entries[2 * entry as usize] as usize;
            let edge = entries[2 * entry as usize + 1] as usize;
            sum += max(message(x, e, source, edge, channel, width, has_edges), 0.0f32);
        }
        out[ABSOLUTE_POS] = sum;
    }
}

#[cube(launch)]
fn gine_node_gradients(
    starts: &[u32],
    entries: &[u32],
    x: &[f32],
    e: &[f32],
    d_out: &[f32],
    d_x: &mut [f32],
    count: u32,
    #[comptime] width: usize,
    #[comptime] has_edges: bool,
) {
    if ABSOLUTE_POS < count as usize {
        let (node, channel) = (ABSOLUTE_POS / width, ABSOLUTE_POS % width);
        let mut sum = d_out[ABSOLUTE_POS];
        for entry in starts[node]..starts[node + 1] {
            let target = entries[2 * entry as usize] as usize;
            let edge = entries[2 * entry as usize + 1] as usize;
            if message(x, e, node, edge, channel, width, has_edges) > 0.0f32 {
                sum += d_out[target * width + channel];
            }
        }
        d_x[ABSOLUTE_POS] = sum;
    }
}

#[cube(launch)]
fn gine_edge_gradients(
    ends: &[u32],
    x: &[f32],
    e: &[f32],
    d_out: &[f32],
    d_e: &mut [f32],
    count: u32,
    #[comptime] width: usize,
) {
    if ABSOLUTE_POS < count as usize {
        let (edge, channel) = (ABSOLUTE_POS / width, ABSOLUTE_POS % width);
        let (source, target) = (ends[2 * edge] as usize, ends[2 * edge + 1] as usize);
        let mut gradient = 0.0f32;
        if message(x, e, source, edge, channel, width, true) > 0.0f32 {
            gradient = d_out[target * width + channel];
        }
        d_e[ABSOLUTE_POS] = gradient;
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use super::*;
    use crate::testing::{Batch, assert_close, client, values};

    #[test]
    fn aggregation_and_gradients_match_the_reference_on_ragged_batches() {
        let Some(client) = client() else { return };
        for (width, with_edges) in [(7, true), (64, true), (5, false)] {
            let batch = Batch::random(width as u32, &[4, 1, 33, 2]);
            let (r, m) = (batch.num_nodes(), batch.edges.len());
            let (x, e) = (values(1, r * width, 1.0), values(2, m * width, 1.0));
            let d_out = values(3, r * width, 1.0);
            let double = |values: &[f32]| values.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
            let (mut out, mut d_x, mut d_e) = (double(&x), double(&d_out), vec![0.0; m * width]);
            for (edge, ends) in batch.edges.iter().enumerate() {
                for c in 0..width {
                    let [source, target] = ends.map(|node| node as usize * width + c);
                    let of_edge = if with_edges { f64::from(e[edge * width + c]) } else { 0.0 };
                    let message = f64::from(x[source]) + of_edge;
                    out[target] += message.max(0.0);
                    if message > 0.0 {
                        d_x[source] += f64::from(d_out[target]);
                        d_e[edge * width + c] = f64::from(d_out[target]);
                    }
                }
            }
            let edges = batch.edge_index(&client);
            let [x, e, d_out] = [x, e, d_out].map(|values| Buffer::from_slice(&client, &values));
            let e = with_edges.then_some(&e);
            let ours = gine_forward(&client, &edges, &x, e, width);
            assert_close(&ours.to_vec(&client), &out, 1e-6);
            let (ours_x, ours_e) = gine_backward(&client, &edges, &x, e, width, &d_out);
            assert_close(&ours_x.to_vec(&client), &d_x, 1e-6);
            if let Some(ours_e) = ours_e {
                assert_close(&ours_e.to_vec(&client), &d_e, 1e-6);
            }
        }
    }
}
