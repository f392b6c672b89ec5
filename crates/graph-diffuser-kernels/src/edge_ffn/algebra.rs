//! Quantities derived from sums over pairs, in double precision.

use crate::shards::{Exchange, Reduction};
use crate::tile::Matrix;

use super::{EdgeFfnLayerGradients, EdgeFfnParams};

/// Rounds to single precision.
pub(super) fn single(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

/// Converts to double precision.
pub(super) fn double(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// Adds the sums of all chunks, in chunk order.
pub(super) fn total<const N: usize>(parts: Vec<[Vec<f64>; N]>) -> [Vec<f64>; N] {
    let add = |mut total: [Vec<f64>; N], part: [Vec<f64>; N]| {
        total
            .iter_mut()
            .flatten()
            .zip(part.iter().flatten())
            .for_each(|(total, part)| *total += part);
        total
    };
    parts.into_iter().reduce(add).expect("there is at least one chunk")
}

/// Mean and covariance over `count` pairs.
#[derive(Clone)]
pub(super) struct Moments {
    pub(super) count: f64,
    pub(super) mean: Vec<f64>,
    /// `[c, c]`
    pub(super) covariance: Vec<f64>,
}

impl Moments {
    /// Merges the moments of all chunks, of which only the upper triangles are read.
    pub(super) fn of_chunks(channels: usize, parts: Vec<Self>) -> Self {
        let c = channels;
        let mut all = Self { count: 0.0, mean: vec![0.0; c], covariance: vec![0.0; c * c] };
        for part in parts {
            let count = all.count + part.count;
            let (old, new) = (all.count / count.max(1.0), part.count / count.max(1.0));
            let step: Vec<f64> =
                part.mean.iter().zip(&all.mean).map(|(part, all)| part - all).collect();
            for i in 0..c {
                all.mean[i] += new * step[i];
                for j in i..c {
                    let covariance = &mut all.covariance[i * c + j];
                    *covariance = old * *covariance
                        + new * part.covariance[i * c + j]
                        + old * new * step[i] * step[j];
                }
            }
            all.count = count;
        }
        for i in 0..c {
            for j in 0..i {
                all.covariance[i * c + j] = all.covariance[j * c + i];
            }
        }
        all
    }

    /// Returns the moments of all shards of the batch, of which these are one with `count` pairs.
    pub(super) fn over_shards(self, count: f64, exchange: Option<Exchange<'_>>) -> Self {
        let Some(exchange) = exchange else { return self };
        let channels = self.mean.len();
        let mut values = [&[count][..], &self.mean, &self.covariance].concat();
        exchange(Reduction::Covariance { channels }, &mut values);
        let (mean, covariance) = values[1..].split_at(channels);
        Self { count: values[0], mean: mean.to_vec(), covariance: covariance.to_vec() }
    }

    /// Returns the diagonal of the covariance.
    pub(super) fn variances(&self) -> Vec<f64> {
        let c = self.mean.len();
        (0..c).map(|i| self.covariance[i * c + i].max(0.0)).collect()
    }

    /// Returns the moments after a batch norm without γ and β.
    pub(super) fn normalized(&self, normalization: &Normalization) -> Self {
        let c = self.mean.len();
        let scaled = |at: usize| {
            self.covariance[at] * normalization.inverse[at / c] * normalization.inverse[at % c]
        };
        Self { count: self.count, mean: vec![0.0; c], covariance: (0..c * c).map(scaled).collect() }
    }
}

/// Mean and inverse standard deviation applied by a batch norm.
pub(super) struct Normalization {
    pub(super) mean: Vec<f64>,
    pub(super) inverse: Vec<f64>,
}

/// Scaled representation of the input of a layer: `x = scale ⊙ t + offset`, where `t` is stored in
/// the tiles.
pub(super) struct Scaling {
    pub(super) scale: Vec<f64>,
    pub(super) offset: Vec<f64>,
}

impl Scaling {
    /// Returns the representation at layer `index`. Before the first layer `t` excludes γ and β,
    /// between layers it is shifted by about the mean, and after the last layer it equals `x`.
    pub(super) fn new(params: &EdgeFfnParams<'_>, index: usize, shifts: &[Vec<f64>]) -> Self {
        let c = params.channels;
        if index == 0 {
            assert!(
                params.norm.gamma.len() == c && params.norm.beta.len() == c,
                "the norm of the stack must have c channels"
            );
            return Self { scale: double(params.norm.gamma), offset: double(params.norm.beta) };
        }
        Self {
            scale: vec![1.0; c],
            offset: shifts.get(index - 1).cloned().unwrap_or_else(|| vec![0.0; c]),
        }
    }
}

/// First linear transform of a layer and its norm, in double precision: `h = weight · t + bias`.
pub(super) struct FirstLinear {
    pub(super) channels: usize,
    pub(super) hidden: usize,
    pub(super) scaling: Scaling,
    pub(super) gamma: Vec<f64>,
    pub(super) beta: Vec<f64>,
    /// `[hidden, c]`, as given; applies to `x`.
    pub(super) plain: Vec<f64>,
    /// `[hidden, c]`, applies to `t`.
    pub(super) weight: Vec<f64>,
    pub(super) bias: Vec<f64>,
}

impl FirstLinear {
    pub(super) fn new(params: &EdgeFfnParams<'_>, index: usize, shifts: &[Vec<f64>]) -> Self {
        let (channels, hidden, layer) = (params.channels, params.hidden, &params.layers[index]);
        let scaling = Scaling::new(params, index, shifts);
        let plain = double(layer.first_weight);
        assert!(
            plain.len() == hidden * channels && layer.first_bias.len() == hidden,
            "first_weight must be [hidden, c] and first_bias [hidden]"
        );
        assert!(
            layer.norm.gamma.len() == hidden && layer.norm.beta.len() == hidden,
            "the norm of a layer must have one channel per hidden unit"
        );
        let weight = plain
            .iter()
            .enumerate()
            .map(|(at, weight)| weight * scaling.scale[at % channels])
            .collect();
        let row = |i: usize| {
            plain[i * channels..][..channels].iter().zip(&scaling.offset).map(|(w, o)| w * o)
        };
        let bias =
            (0..hidden).map(|i| row(i).sum::<f64>() + f64::from(layer.first_bias[i])).collect();
        let (gamma, beta) = (double(layer.norm.gamma), double(layer.norm.beta));
        Self { channels, hidden, scaling, gamma, beta, plain, weight, bias }
    }

    /// Returns row `i` of `weight`.
    pub(super) fn row(&self, i: usize) -> &[f64] {
        &self.weight[i * self.channels..][..self.channels]
    }

    /// Returns `weight[i] · covariance`, `[c]`.
    pub(super) fn covary(&self, i: usize, moments: &Moments) -> Vec<f64> {
        let c = self.channels;
        (0..c).map(|j| dot(self.row(i), &moments.covariance[j * c..][..c])).collect()
    }

    /// Returns mean and variance of `h`, from the moments of `t`.
    pub(super) fn statistics(&self, moments: &Moments) -> (Vec<f64>, Vec<f64>) {
        let mean = |i| dot(self.row(i), &moments.mean) + self.bias[i];
        let variance = |i| dot(&self.covary(i, moments), self.row(i)).max(0.0);
        ((0..self.hidden).map(mean).collect(), (0..self.hidden).map(variance).collect())
    }

    /// Returns an entry of the `[hidden, c + 1]` matrix that applies to `t` and the row of ones,
    /// including the batch norm.
    pub(super) fn forward_entry(&self, normalization: &Normalization, i: usize, j: usize) -> f64 {
        let scale = self.gamma[i] * normalization.inverse[i];
        if j < self.channels {
            scale * self.weight[i * self.channels + j]
        } else {
            scale * (self.bias[i] - normalization.mean[i]) + self.beta[i]
        }
    }

    /// Computes the gradients from `sums = Σ g ⊗ [t, 1]`, where `g` is the gradient of the output
    /// of the batch norm.
    ///
    /// `ĥ = (h - mean)/deviation` is affine in `t`, so `Σ g ĥ` and `Σ ĥ ⊗ t` follow from known
    /// sums. `∂h = γ/deviation (g - m₁ - m₂ ĥ)` with the means `m₁` of `g` and `m₂` of `g ĥ`; with
    /// running statistics both terms vanish. Their contribution to the gradient of `x` is the
    /// [`Correction`].
    pub(super) fn backward(
        &self,
        normalization: &Normalization,
        moments: Option<&Moments>,
        pairs: f64,
        sums: &[f64],
    ) -> (EdgeFfnLayerGradients, Correction) {
        let (c, hidden) = (self.channels, self.hidden);
        let mut correction = Correction::none(c);
        let mut weight = vec![0.0; hidden * c];
        let (mut bias, mut gamma, mut beta) =
            (vec![0.0; hidden], vec![0.0; hidden], vec![0.0; hidden]);
        for i in 0..hidden {
            let inverse = normalization.inverse[i];
            let scale = self.gamma[i] * inverse;
            let (by_channel, sum) = (&sums[i * (c + 1)..][..c], sums[i * (c + 1) + c]);
            let at_zero = (self.bias[i] - normalization.mean[i]) * inverse;
            beta[i] = sum;
            gamma[i] = inverse * dot(self.row(i), by_channel) + at_zero * sum;
            let mut d_row: Vec<f64> = by_channel.iter().map(|value| scale * value).collect();
            if let Some(moments) = moments {
                let (m1, m2) = (sum / pairs, gamma[i] / pairs);
                for (j, covary) in self.covary(i, moments).into_iter().enumerate() {
                    d_row[j] -= scale * (sum * moments.mean[j] + gamma[i] * inverse * covary);
                    let plain = scale * self.plain[i * c + j];
                    correction.constant[j] += plain * (m1 + m2 * at_zero);
                    let row = &mut correction.matrix[j * c..][..c];
                    row.iter_mut()
                        .zip(self.row(i))
                        .for_each(|(entry, weight)| *entry += plain * m2 * inverse * weight);
                }
            } else {
                bias[i] = scale * sum;
            }
            for j in 0..c {
                weight[i * c + j] =
                    d_row[j] * self.scaling.scale[j] + bias[i] * self.scaling.offset[j];
            }
        }
        let gradients = EdgeFfnLayerGradients {
            first_weight: single(&weight),
            first_bias: single(&bias),
            gamma: single(&gamma),
            beta: single(&beta),
            ..EdgeFfnLayerGradients::default()
        };
        (gradients, correction)
    }
}

/// Returns the dot product.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Term to be subtracted from a gradient of `x` once the sums over all pairs are known:
/// `matrix · t + constant`, times the multiplicity of the pair.
#[derive(Clone)]
pub(super) struct Correction {
    /// `[c, c]`
    pub(super) matrix: Vec<f64>,
    pub(super) constant: Vec<f64>,
}

impl Correction {
    /// Returns a correction of zero.
    pub(super) fn none(channels: usize) -> Self {
        Self { matrix: vec![0.0; channels * channels], constant: vec![0.0; channels] }
    }

    /// Returns the negated matrix that applies to `t` and the row of ones.
    pub(super) fn negated(&self) -> Matrix {
        let c = self.constant.len();
        Matrix::new(c, c + 1, |i, j| -if j < c { self.matrix[i * c + j] } else { self.constant[i] })
    }

    /// Returns the negated matrix that applies to the operands of
    /// `t = scale ⊙ t' + weight · [r, 1]`: to `t'`, the row of ones and `r`. `weight` is
    /// `[c, hidden + 1]`.
    pub(super) fn negated_before(&self, scale: &[f64], weight: &[f64]) -> Matrix {
        let c = self.constant.len();
        let hidden = weight.len() / c - 1;
        let through = |i: usize, h: usize| {
            let row = &self.matrix[i * c..][..c];
            row.iter()
                .enumerate()
                .map(|(j, entry)| entry * weight[j * (hidden + 1) + h])
                .sum::<f64>()
        };
        Matrix::new(c, c + 1 + hidden, |i, j| -match j {
            _ if j < c => self.matrix[i * c + j] * scale[j],
            _ if j == c => self.constant[i] + through(i, hidden),
            _ => through(i, j - c - 1),
        })
    }
}
