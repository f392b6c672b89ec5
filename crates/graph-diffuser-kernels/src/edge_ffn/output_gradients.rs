//! Gradients of the outputs, from which a backward pass starts.

use crate::buffer::Buffer;
use crate::tile::{Matrix, Tiles, WIDTH};

use super::algebra::{Scaling, double};
use super::network::Network;
use super::tiling::{TileSpan, diagonal_range};
use super::{EdgeFfnParams, PositionProjectionGradients};

/// Gradients of the scores and of the virtual edges of nodes to themselves.
pub(super) struct OutputGradients<'a> {
    pub(super) heads: usize,
    /// Index of the projection of each group of `heads` rows.
    pub(super) groups: Vec<usize>,
    /// Gradients of the scores that are present.
    pub(super) rows: Vec<&'a [f32]>,
    /// `[rows, c]` projection weights, in double precision.
    pub(super) weight: Vec<f64>,
    /// `[c, rows]` transposed projection weights.
    pub(super) transposed: Matrix,
    pub(super) self_pairs: &'a [usize],
    pub(super) diagonal: Option<&'a [f32]>,
    pub(super) channels: usize,
}

/// Columns of the pairs `(i, i)`, gathered into dense tiles.
pub(super) struct DiagonalTiles {
    pub(super) d: Buffer,
    pub(super) relu: Buffer,
    pub(super) len: usize,
}

impl DiagonalTiles {
    pub(super) fn tile(values: &[f32]) -> Tiles<'_> {
        Tiles { rows: values.len() / WIDTH, values }
    }

    /// Gathers the columns of one tile; calls `full` with each completed tile.
    pub(super) fn gather(
        &mut self,
        d_output: &OutputGradients<'_>,
        span: TileSpan,
        relu: &[f32],
        mut full: impl FnMut(Tiles<'_>, Tiles<'_>),
    ) {
        let (Some(diagonal), c) = (d_output.diagonal, d_output.channels) else { return };
        for index in diagonal_range(d_output.self_pairs, span.start..span.start + span.len) {
            let column = d_output.self_pairs[index] - span.start;
            for (row, value) in self.d.chunks_exact_mut(WIDTH).zip(&diagonal[index * c..][..c]) {
                row[self.len] = *value;
            }
            for (row, from) in self.relu.chunks_exact_mut(WIDTH).zip(relu.chunks_exact(WIDTH)) {
                row[self.len] = from[column];
            }
            self.len += 1;
            if self.len == WIDTH {
                full(Self::tile(&self.d), Self::tile(&self.relu));
                self.len = 0;
            }
        }
    }

    /// Calls `full` with the last, partial tile, unless it is empty.
    pub(super) fn finish(mut self, mut full: impl FnMut(Tiles<'_>, Tiles<'_>)) {
        if self.len > 0 {
            self.d.chunks_exact_mut(WIDTH).for_each(|row| row[self.len..].fill(0.0));
            full(Self::tile(&self.d), Self::tile(&self.relu));
        }
    }
}

impl<'a> OutputGradients<'a> {
    /// Checks the shapes and collects the gradients that are present.
    pub(super) fn new<D: AsRef<[f32]>>(
        params: &EdgeFfnParams<'_>,
        network: &Network,
        self_pairs: &'a [usize],
        d_scores: &'a [Option<D>],
        diagonal: Option<&'a [f32]>,
    ) -> Self {
        let (c, heads) = (network.channels, params.heads);
        let groups: Vec<usize> =
            (0..d_scores.len()).filter(|&group| d_scores[group].is_some()).collect();
        let mut rows = Vec::new();
        assert_eq!(
            d_scores.len(),
            params.position.len(),
            "there must be an optional gradient per projection"
        );
        for scores in d_scores.iter().flatten().map(AsRef::as_ref) {
            let pairs = scores.len() / heads;
            rows.extend((0..heads).map(|head| &scores[head * pairs..][..pairs]));
        }
        if let Some(diagonal) = diagonal {
            assert_eq!(
                diagonal.len(),
                self_pairs.len() * c,
                "the diagonal must be [self_pairs, c]"
            );
        }
        let weight: Vec<f64> =
            groups.iter().flat_map(|&group| double(params.position[group].weight)).collect();
        let transposed = Matrix::new(c, rows.len(), |j, i| weight[i * c + j]);
        Self { heads, groups, rows, weight, transposed, self_pairs, diagonal, channels: c }
    }

    /// Adds the gradients of the pairs `(i, i)` to a tile.
    pub(super) fn add_diagonal(&self, span: TileSpan, d_x: &mut [f32]) {
        let (Some(diagonal), c) = (self.diagonal, self.channels) else { return };
        for index in diagonal_range(self.self_pairs, span.start..span.start + span.len) {
            let column = self.self_pairs[index] - span.start;
            for (i, value) in diagonal[index * c..][..c].iter().enumerate() {
                d_x[i * WIDTH + column] += value;
            }
        }
    }

    /// Returns the sum over pairs of the gradient of the output of the last layer.
    pub(super) fn sum(&self, position: &[f64]) -> Vec<f64> {
        let c = self.channels;
        let mut sum = vec![0.0; c];
        for (row, sums) in self.weight.chunks_exact(c).zip(position.chunks_exact(c + 1)) {
            sum.iter_mut().zip(row).for_each(|(sum, weight)| *sum += weight * sums[c]);
        }
        for row in self.diagonal.unwrap_or_default().chunks_exact(c) {
            sum.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        sum
    }

    /// Returns the gradients of the projections from `sums = Σ ∂scores ⊗ [t, 1]`.
    pub(super) fn gradients(
        &self,
        params: &EdgeFfnParams<'_>,
        scaling: &Scaling,
        sums: &[f64],
    ) -> Vec<PositionProjectionGradients> {
        let (c, heads) = (self.channels, self.heads);
        let mut gradients: Vec<_> = (0..params.position.len())
            .map(|_| PositionProjectionGradients {
                weight: vec![0.0; heads * c],
                bias: vec![0.0; heads],
            })
            .collect();
        for (i, sums) in sums.chunks_exact(c + 1).enumerate() {
            let (gradient, head) = (&mut gradients[self.groups[i / heads]], i % heads);
            gradient.bias[head] = sums[c] as f32;
            for j in 0..c {
                gradient.weight[head * c + j] =
                    (sums[j] * scaling.scale[j] + sums[c] * scaling.offset[j]) as f32;
            }
        }
        gradients
    }
}
