//! Tests of messages against hand-computed examples and loops in double precision.

use super::gated::EPSILON;
use super::*;
use crate::hash32;

const WIDTHS: [usize; 14] = [1, 2, 3, 7, 8, 9, 16, 17, 32, 33, 63, 64, 65, 100];

fn random(at: usize, seed: u32) -> u32 {
    hash32(hash32(at as u32) ^ (seed << 20))
}

fn random_values(count: usize, seed: u32) -> Vec<f32> {
    (0..count).map(|at| random(at, seed) as f32 / u32::MAX as f32 * 4.0 - 2.0).collect()
}

fn to_f64(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// Returns sources and targets: self-loops, one-way and duplicate edges, isolated nodes; no edges
/// for two nodes.
fn random_edges(nodes: usize) -> [Vec<u32>; 2] {
    let mut ends = [Vec::new(), Vec::new()];
    for edge in 0..if nodes == 2 { 0 } else { 3 * nodes } {
        let [source, target] = [1, 2].map(|seed| random(edge, seed) % nodes as u32);
        if source % 7 != 3 && target % 7 != 3 {
            for _ in 0..=edge % 2 {
                ends[0].push(source);
                ends[1].push(target);
            }
        }
    }
    ends
}

/// Returns all sizes with few widths and all widths with few sizes.
fn sizes() -> Vec<(usize, usize)> {
    let few_widths =
        [0, 1, 2, 15, 16, 17, 130, 300].into_iter().flat_map(|nodes| [(nodes, 5), (nodes, 64)]);
    few_widths
        .chain(WIDTHS.into_iter().flat_map(|width| [(1, width), (17, width), (70, width)]))
        .collect()
}

fn assert_close(ours: &[f32], exact: &[f64], what: &str) {
    assert_eq!(ours.len(), exact.len(), "{what}");
    let size = exact.iter().fold(1.0_f64, |size, value| size.max(value.abs()));
    for (at, (ours, exact)) in ours.iter().zip(exact).enumerate() {
        assert!(
            (f64::from(*ours) - exact).abs() < 2e-6 * size,
            "{what} at {at}: {ours} differs from {exact}"
        );
    }
}

#[test]
fn three_node_path_matches_hand_computation() {
    // 0 -> 1, 2 -> 1, 1 -> 1, with x = 1, -3, 2 and e = 0.5, -5, 4. Node 1 receives 1.5, nothing,
    // and 1 from itself.
    let edges = EdgeIndex::new(3, &[0, 2, 1], &[1, 1, 1]);
    for isa in Isa::available() {
        let (x, e) = ([1.0, -3.0, 2.0], [0.5, -5.0, 4.0]);
        assert_eq!(gine_forward(isa, &edges, &x, Some(&e), 1), [1.0, -0.5, 2.0]);
        let (d_x, d_e) = gine_backward(isa, &edges, &x, Some(&e), 1, &[1.0, 10.0, 100.0]);
        assert_eq!(d_x, [11.0, 20.0, 100.0]);
        assert_eq!(d_e, Some(vec![10.0, 0.0, 10.0]));

        // With zero gates, a node receives the average of its neighbors.
        let zeros = [0.0; 3];
        let inputs = GatedInputs {
            gate_target: &zeros,
            gate_source: &zeros,
            gate_edge: &zeros,
            neighbor: &x,
        };
        let (mut gates, mut total, mut out) = ([1.0; 3], [0.0; 3], [0.0; 3]);
        gated_forward(isa, &edges, inputs, 1, &mut gates, &mut total, &mut out);
        assert_eq!(gates, zeros);
        assert!(out[0] == 0.0 && out[1].abs() < 1e-6 && out[2] == 0.0, "{out:?}");
    }
}

#[test]
fn endpoint_sums_and_scatter_sums_match_loops() {
    for isa in Isa::available() {
        for (nodes, width) in sizes() {
            let [sources, targets] = random_edges(nodes);
            let edges = EdgeIndex::new(nodes, &sources, &targets);
            let [at_source, at_target] = [3, 4].map(|seed| random_values(nodes * width, seed));
            // One of the five types has no edges.
            let type_of_edge: Vec<u32> =
                (0..sources.len()).map(|edge| random(edge, 6) % 4).collect();
            let (edge_types, features) =
                (EdgeTypes::new(5, &type_of_edge), random_values(5 * width, 5));
            for e in [None, Some((features.as_slice(), &edge_types))] {
                let edge_sums = edge_endpoint_sum(isa, &edges, &at_source, &at_target, e, width);
                assert_eq!(edge_sums.len(), sources.len() * width);
                let (mut exact, mut exact_by_type) =
                    (vec![0.0; nodes * width], vec![0.0; 5 * width]);
                for (edge, row) in edge_sums.chunks(width).enumerate() {
                    let [source, target] =
                        [&sources, &targets].map(|ends| ends[edge] as usize * width);
                    for (at, edge_sums) in row.iter().enumerate() {
                        let ends = at_source[source + at] + at_target[target + at];
                        let edge_type = type_of_edge[edge] as usize * width;
                        assert_eq!(*edge_sums, e.map_or(ends, |(e, _)| ends + e[edge_type + at]));
                        exact[source + at] += f64::from(*edge_sums);
                        exact_by_type[edge_type + at] += f64::from(*edge_sums);
                    }
                }
                let sum = scatter_sum(isa, &edge_sums, width, edges.outgoing());
                assert_close(&sum, &exact, &format!("{isa:?} [{nodes}, {width}]"));
                let sum = scatter_sum(isa, &edge_sums, width, edge_types.edges());
                assert_close(&sum, &exact_by_type, &format!("{isa:?} [{nodes}, {width}] by type"));
            }
        }
    }
}

#[test]
fn gine_matches_double_precision() {
    for (nodes, width) in sizes() {
        let [sources, targets] = random_edges(nodes);
        let count = sources.len();
        let edges = EdgeIndex::new(nodes, &sources, &targets);
        let (x, d_out) = (random_values(nodes * width, 3), random_values(nodes * width, 4));
        let features = random_values(count * width, 5);
        for e in [None, Some(features.as_slice())] {
            let (mut exact, mut exact_d_x, mut exact_d_e) =
                (to_f64(&x), to_f64(&d_out), vec![0.0; count * width]);
            for edge in 0..count {
                for at in 0..width {
                    let [j, i] = [&sources, &targets].map(|ends| ends[edge] as usize * width + at);
                    let message =
                        f64::from(x[j]) + e.map_or(0.0, |e| f64::from(e[edge * width + at]));
                    if message > 0.0 {
                        exact[i] += message;
                        exact_d_x[j] += f64::from(d_out[i]);
                        exact_d_e[edge * width + at] = f64::from(d_out[i]);
                    }
                }
            }
            for isa in Isa::available() {
                let what = format!("{isa:?} [{nodes}, {width}]");
                let out = gine_forward(isa, &edges, &x, e, width);
                let (d_x, d_e) = gine_backward(isa, &edges, &x, e, width, &d_out);
                assert_close(&out, &exact, &format!("{what} out"));
                assert_close(&d_x, &exact_d_x, &format!("{what} d_x"));
                assert_eq!(d_e.is_some(), e.is_some());
                if let Some(d_e) = d_e {
                    assert_close(&d_e, &exact_d_e, &format!("{what} d_e"));
                }
            }
        }
    }
}

#[test]
fn gated_messages_match_double_precision() {
    for (nodes, width) in sizes() {
        let [sources, targets] = random_edges(nodes);
        let count = sources.len();
        let edges = EdgeIndex::new(nodes, &sources, &targets);
        let [d, e, b, d_out] = [3, 4, 5, 6].map(|seed| random_values(nodes * width, seed));
        let [c, d_gates] = [7, 8].map(|seed| random_values(count * width, seed));
        let inputs = GatedInputs { gate_target: &d, gate_source: &e, gate_edge: &c, neighbor: &b };
        for d_gates in [None, Some(d_gates.as_slice())] {
            let mut exact_gates = vec![0.0; count * width];
            let (mut sum, mut total) =
                (vec![0.0; nodes * width], vec![f64::from(EPSILON); nodes * width]);
            let ends = |edge: usize, at: usize| {
                [&sources, &targets].map(|ends| ends[edge] as usize * width + at)
            };
            for edge in 0..count {
                for at in 0..width {
                    let ([j, i], place) = (ends(edge, at), edge * width + at);
                    let gate = f64::from(d[i]) + f64::from(e[j]) + f64::from(c[place]);
                    exact_gates[place] = gate;
                    let sigma = 1.0 / (1.0 + (-gate).exp());
                    sum[i] += sigma * f64::from(b[j]);
                    total[i] += sigma;
                }
            }
            let exact: Vec<f64> = sum.iter().zip(&total).map(|(sum, total)| sum / total).collect();
            let [mut exact_d, mut exact_e, mut exact_b] =
                [(); 3].map(|()| vec![0.0; nodes * width]);
            let mut exact_c = vec![0.0; count * width];
            for edge in 0..count {
                for at in 0..width {
                    let ([j, i], place) = (ends(edge, at), edge * width + at);
                    let sigma = 1.0 / (1.0 + (-exact_gates[place]).exp());
                    let d_sum = f64::from(d_out[i]) / total[i];
                    let d_total = -f64::from(d_out[i]) * sum[i] / (total[i] * total[i]);
                    exact_b[j] += sigma * d_sum;
                    let d_sigma = d_sum * f64::from(b[j]) + d_total;
                    let d_gate = d_sigma * sigma * (1.0 - sigma)
                        + d_gates.map_or(0.0, |g| f64::from(g[place]));
                    exact_c[place] = d_gate;
                    exact_d[i] += d_gate;
                    exact_e[j] += d_gate;
                }
            }
            for isa in Isa::available() {
                let what = format!("{isa:?} [{nodes}, {width}]");
                let [mut out, mut total, mut d_d, mut d_e, mut d_b] =
                    [(); 5].map(|()| vec![f32::NAN; nodes * width]);
                let [mut gates, mut d_c] = [(); 2].map(|()| vec![f32::NAN; count * width]);
                gated_forward(isa, &edges, inputs, width, &mut gates, &mut total, &mut out);
                let gradients = GatedGradients {
                    gate_target: &mut d_d,
                    gate_source: &mut d_e,
                    gate_edge: &mut d_c,
                    neighbor: &mut d_b,
                };
                gated_backward(
                    isa, &edges, &b, width, &gates, &total, &out, &d_out, d_gates, gradients,
                );
                assert_close(&gates, &exact_gates, &format!("{what} gates"));
                assert_close(&out, &exact, &format!("{what} out"));
                assert_close(&d_b, &exact_b, &format!("{what} d_b"));
                assert_close(&d_c, &exact_c, &format!("{what} d_c"));
                assert_close(&d_d, &exact_d, &format!("{what} d_d"));
                assert_close(&d_e, &exact_e, &format!("{what} d_e"));
            }
        }
    }
}

#[test]
fn results_are_independent_of_thread_count() {
    let (nodes, width) = (1500, 70);
    let [sources, targets] = random_edges(nodes);
    let count = sources.len();
    let edges = EdgeIndex::new(nodes, &sources, &targets);
    let [d, e, b, d_out] = [3, 4, 5, 6].map(|seed| random_values(nodes * width, seed));
    let [c, d_gates] = [7, 8].map(|seed| random_values(count * width, seed));
    let inputs = GatedInputs { gate_target: &d, gate_source: &e, gate_edge: &c, neighbor: &b };
    let edge_types = EdgeTypes::new(nodes, &sources);
    for isa in Isa::available() {
        let results = [1, 2, 5].map(|threads| {
            let pool = crate::ThreadPool::new(threads);
            pool.install(|| {
                let [mut out, mut total, mut d_d, mut d_e, mut d_b] =
                    [(); 5].map(|()| vec![f32::NAN; nodes * width]);
                let [mut gates, mut d_c] = [(); 2].map(|()| vec![f32::NAN; count * width]);
                let edge_sums =
                    edge_endpoint_sum(isa, &edges, &d, &e, Some((&b, &edge_types)), width);
                let sum = scatter_sum(isa, &c, width, edges.incoming());
                let gine = gine_forward(isa, &edges, &d, Some(&c), width);
                let (d_x, d_features) = gine_backward(isa, &edges, &d, Some(&c), width, &d_out);
                let d_features =
                    d_features.expect("gine_backward returns edge gradients for edge features");
                gated_forward(isa, &edges, inputs, width, &mut gates, &mut total, &mut out);
                let gradients = GatedGradients {
                    gate_target: &mut d_d,
                    gate_source: &mut d_e,
                    gate_edge: &mut d_c,
                    neighbor: &mut d_b,
                };
                gated_backward(
                    isa,
                    &edges,
                    &b,
                    width,
                    &gates,
                    &total,
                    &out,
                    &d_out,
                    Some(&d_gates),
                    gradients,
                );
                let all =
                    [gine, d_x, sum, out, total, d_d, d_e, d_b, edge_sums, d_features, gates, d_c]
                        .concat();
                all.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            })
        });
        assert!(results[0] == results[1] && results[0] == results[2], "{isa:?}");
    }
}

#[test]
#[should_panic(expected = "edge endpoint 3 is out of range for 3 nodes")]
fn edge_endpoint_out_of_range_panics() {
    EdgeIndex::new(3, &[0], &[3]);
}
