//! The gradients that a backward pass begins with.

use crate::tile::{Buffer, Matrix, Tiles, WIDTH};

use super::algebra::{Level, double};
use super::network::Network;
use super::walk::{Place, own_of};
use super::{PositionGradients, Weights};

/// The gradients that come from above: of the scores, and of the virtual edges of nodes to themselves.
pub(super) struct Upper<'a> {
    pub(super) heads: usize,
    /// Position that each `heads` of `rows` belong to.
    pub(super) groups: Vec<usize>,
    /// Gradients of scores, those that are there.
    pub(super) rows: Vec<&'a [f32]>,
    /// `[rows, c]`, in double precision.
    pub(super) weight: Vec<f64>,
    /// `[c, rows]`
    pub(super) transposed: Matrix,
    pub(super) self_pairs: &'a [usize],
    pub(super) own: Option<&'a [f32]>,
    pub(super) channels: usize,
}

/// The columns of nodes to themselves, gathered into tiles of their own.
pub(super) struct OwnTiles {
    pub(super) d: Buffer,
    pub(super) relu: Buffer,
    pub(super) len: usize,
}

impl OwnTiles {
    pub(super) fn tile(values: &[f32]) -> Tiles<'_> {
        Tiles { rows: values.len() / WIDTH, values }
    }

    /// Takes the columns of one tile; `full` gets the tiles that are full.
    pub(super) fn gather(
        &mut self,
        upper: &Upper<'_>,
        place: Place,
        relu: &[f32],
        mut full: impl FnMut(Tiles<'_>, Tiles<'_>),
    ) {
        let (Some(own), c) = (upper.own, upper.channels) else { return };
        for number in own_of(upper.self_pairs, place.start..place.start + place.len) {
            let column = upper.self_pairs[number] - place.start;
            for (row, value) in self.d.chunks_exact_mut(WIDTH).zip(&own[number * c..][..c]) {
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

    /// Gives the last tile, if there is one.
    pub(super) fn finish(mut self, mut full: impl FnMut(Tiles<'_>, Tiles<'_>)) {
        if self.len > 0 {
            self.d.chunks_exact_mut(WIDTH).for_each(|row| row[self.len..].fill(0.0));
            full(Self::tile(&self.d), Self::tile(&self.relu));
        }
    }
}

impl<'a> Upper<'a> {
    pub(super) fn new<D: AsRef<[f32]>>(
        weights: &Weights<'_>,
        network: &Network,
        self_pairs: &'a [usize],
        d_scores: &'a [Option<D>],
        own: Option<&'a [f32]>,
    ) -> Self {
        let (c, heads) = (network.channels, weights.heads);
        let groups: Vec<usize> =
            (0..d_scores.len()).filter(|&group| d_scores[group].is_some()).collect();
        let mut rows = Vec::new();
        assert_eq!(
            d_scores.len(),
            weights.position.len(),
            "gradients of scores, or none, for each position"
        );
        for scores in d_scores.iter().flatten().map(AsRef::as_ref) {
            let pairs = scores.len() / heads;
            rows.extend((0..heads).map(|head| &scores[head * pairs..][..pairs]));
        }
        if let Some(own) = own {
            assert_eq!(
                own.len(),
                self_pairs.len() * c,
                "one row for each pair of a node with itself"
            );
        }
        let weight: Vec<f64> =
            groups.iter().flat_map(|&group| double(weights.position[group].weight)).collect();
        let transposed = Matrix::new(c, rows.len(), |j, i| weight[i * c + j]);
        Self { heads, groups, rows, weight, transposed, self_pairs, own, channels: c }
    }

    pub(super) fn add_own(&self, place: Place, d_x: &mut [f32]) {
        let (Some(own), c) = (self.own, self.channels) else { return };
        for number in own_of(self.self_pairs, place.start..place.start + place.len) {
            let column = self.self_pairs[number] - place.start;
            for (i, value) in own[number * c..][..c].iter().enumerate() {
                d_x[i * WIDTH + column] += value;
            }
        }
    }

    /// Sum of the gradient of the last layer's output over pairs.
    pub(super) fn sum(&self, position: &[f64]) -> Vec<f64> {
        let c = self.channels;
        let mut sum = vec![0.0; c];
        for (row, sums) in self.weight.chunks_exact(c).zip(position.chunks_exact(c + 1)) {
            sum.iter_mut().zip(row).for_each(|(sum, weight)| *sum += weight * sums[c]);
        }
        for row in self.own.unwrap_or_default().chunks_exact(c) {
            sum.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        sum
    }

    /// Gradients of positions from `sums = Σ ∂scores ⊗ [t, 1]`.
    pub(super) fn gradients(
        &self,
        weights: &Weights<'_>,
        level: &Level,
        sums: &[f64],
    ) -> Vec<PositionGradients> {
        let (c, heads) = (self.channels, self.heads);
        let mut gradients: Vec<_> = (0..weights.position.len())
            .map(|_| PositionGradients { weight: vec![0.0; heads * c], bias: vec![0.0; heads] })
            .collect();
        for (i, sums) in sums.chunks_exact(c + 1).enumerate() {
            let (gradient, head) = (&mut gradients[self.groups[i / heads]], i % heads);
            gradient.bias[head] = sums[c] as f32;
            for j in 0..c {
                gradient.weight[head * c + j] =
                    (sums[j] * level.scale[j] + sums[c] * level.offset[j]) as f32;
            }
        }
        gradients
    }
}
