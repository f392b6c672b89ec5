//! Random batches for the tests of the kernels, and the device that they run on.

use cubecl::client::Client;

use crate::attention::AttentionLayout;
use crate::edges::CubeEdgeIndex;
use crate::{Buffer, CubeDropout};

/// Returns a client, or prints a message and returns `None` if there is no GPU or software driver.
///
/// With `GRAPH_DIFFUSER_REQUIRE_GPU`, a missing driver is a panic.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub(crate) fn client() -> Option<Client> {
    let client = std::panic::catch_unwind(|| cubecl::Device::default().client());
    match client {
        Ok(client) => Some(client),
        Err(_) if std::env::var_os("GRAPH_DIFFUSER_REQUIRE_GPU").is_some() => {
            panic!("there is no GPU driver")
        }
        Err(_) => {
            eprintln!("skipped: there is no GPU driver");
            None
        }
    }
}

/// Returns `count` values in `±scale`, at least 1e-3 apart from zero so that signs are certain.
pub(crate) fn values(seed: u32, count: usize, scale: f32) -> Vec<f32> {
    let value = |index: u32| {
        let mut bits = (index ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x7feb_352d);
        bits = (bits ^ (bits >> 15)).wrapping_mul(0x846c_a68b);
        let unit = (bits ^ (bits >> 16)) as f32 / u32::MAX as f32 * 2.0 - 1.0;
        scale * if unit.abs() < 1e-3 { 1e-3 } else { unit }
    };
    (0..count as u32).map(value).collect()
}

/// Asserts that values agree to `tolerance` times the largest expected value.
pub(crate) fn assert_close(ours: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(ours.len(), expected.len());
    let scale = expected.iter().fold(1e-3f64, |largest, value| largest.max(value.abs()));
    for (index, (ours, expected)) in ours.iter().zip(expected).enumerate() {
        let error = (f64::from(*ours) - expected).abs();
        assert!(error <= tolerance * scale, "[{index}] {ours} is not {expected}, scale {scale}");
    }
}

/// Graphs of different sizes.
pub(crate) struct Batch {
    pub(crate) sizes: Vec<usize>,
    /// Source and target of each edge, in the batch.
    pub(crate) edges: Vec<[u32; 2]>,
}

impl Batch {
    /// Creates graphs with about three random edges per node; some nodes have none, and some edges
    /// are loops or occur twice. Graphs of a single node have no edges.
    pub(crate) fn random(seed: u32, sizes: &[usize]) -> Self {
        let (mut edges, mut first) = (Vec::new(), 0);
        for &n in sizes {
            let ends = values(seed, if n > 1 { 6 * n } else { 0 }, 0.5);
            let node = |value: f32| first + (((value + 0.5) * n as f32) as u32).min(n as u32 - 1);
            edges.extend(ends.chunks(2).map(|ends| [node(ends[0]), node(ends[1])]));
            first += n as u32;
        }
        Self { sizes: sizes.to_vec(), edges }
    }

    pub(crate) fn num_nodes(&self) -> usize {
        self.sizes.iter().sum()
    }

    pub(crate) fn num_pairs(&self) -> usize {
        self.sizes.iter().map(|n| n * n).sum()
    }

    /// Iterates over (first node, number of nodes, first pair) of each graph.
    pub(crate) fn graphs(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let (mut node, mut pair) = (0, 0);
        self.sizes.iter().map(move |&n| {
            let graph = (node, n, pair);
            node += n;
            pair += n * n;
            graph
        })
    }

    /// Iterates over (first node of the graph, source, target) with indices within the graph.
    pub(crate) fn local_edges(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        self.edges.iter().map(|ends| {
            let [source, target] = ends.map(|node| node as usize);
            let of_source = |&(first, n, _): &(usize, usize, usize)| source < first + n;
            let (first, _, _) = self.graphs().find(of_source).expect("the node is in a graph");
            (first, source - first, target - first)
        })
    }

    pub(crate) fn layout(&self, client: &Client) -> AttentionLayout {
        AttentionLayout::new(client, &self.sizes)
    }

    pub(crate) fn edge_index(&self, client: &Client) -> CubeEdgeIndex {
        CubeEdgeIndex::new(client, self.num_nodes(), &self.edges)
    }
}

/// Returns a dropout factor as documented at `graph_diffuser_kernels::Dropout`.
pub(crate) fn dropout_factor_reference(mask: CubeDropout, index: u32) -> f64 {
    let hash = |bits: u32| {
        let bits = (bits ^ (bits >> 16)).wrapping_mul(0x7feb_352d);
        let bits = (bits ^ (bits >> 15)).wrapping_mul(0x846c_a68b);
        bits ^ (bits >> 16)
    };
    let bits = hash(hash(index.wrapping_add(mask.key[0])) ^ mask.key[1]);
    if bits < mask.threshold { 0.0 } else { f64::from(mask.scale) }
}

/// Copies values to the device.
pub(crate) fn upload(client: &Client, values: &[f32]) -> Buffer {
    Buffer::from_slice(client, values)
}
