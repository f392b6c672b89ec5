//! Network with packed matrices, and its operations on one tile.

use crate::buffer::CachedBuffer;
use crate::simd::Isa;
use crate::tile::{self, Affine, Epilogue, Initial, Matrix, Prefetch, WIDTH, product};

use super::algebra::{FirstLinear, Normalization, Scaling, dot, double, single};
use super::tiling::{GROUP, Stack, TileSpan};
use super::{EdgeFfnParams, PositionProjection};

/// Packed matrices of a layer.
pub(super) struct PackedLayer {
    /// `[hidden, c + 1]`, maps `t` and ones to the input of the `ReLU`.
    pub(super) first: Matrix,
    /// `[c, hidden + 1]`, maps the output of the `ReLU` and ones to the term added to `scale ⊙ t`.
    pub(super) second: Matrix,
    /// `[c, hidden]`
    pub(super) first_transposed: Matrix,
    /// `[hidden, c]`
    pub(super) second_transposed: Matrix,
    /// Transpose of `first_transposed`, `[hidden, c]`, in double precision.
    pub(super) scaled: Vec<f64>,
    /// Entries of `second`, `[c, hidden + 1]`, in double precision.
    pub(super) weight: Vec<f64>,
}

/// Network with packed matrices.
pub(super) struct Network {
    pub(super) channels: usize,
    pub(super) hidden: usize,
    /// Map from the stack to the normalized stack.
    pub(super) input: Affine,
    /// γ times the inverse standard deviation of the norm of the stack.
    pub(super) input_scale: Vec<f32>,
    pub(super) scalings: Vec<Scaling>,
    /// Scales of `scalings`, rounded.
    pub(super) scales: Vec<Vec<f32>>,
    pub(super) layers: Vec<PackedLayer>,
    /// `[groups · heads, c + 1]`, maps the output of the last layer and ones to scores.
    pub(super) position: Matrix,
    /// Number of rows of `position`.
    pub(super) scores: usize,
}

impl Network {
    /// Packs the matrices of all layers whose batch norm is known.
    pub(super) fn new(
        params: &EdgeFfnParams<'_>,
        normalizations: &[Normalization],
        shifts: &[Vec<f64>],
    ) -> Self {
        let (c, hidden) = (params.channels, params.hidden);
        let center = single(&normalizations[0].mean);
        let offset = |i: usize| {
            (f64::from(center[i]) - normalizations[0].mean[i]) * normalizations[0].inverse[i]
        };
        let input = Affine {
            scale: single(&normalizations[0].inverse),
            offset: (0..c).map(|i| offset(i) as f32).collect(),
            center,
        };
        let input_scale = (0..c)
            .map(|i| (f64::from(params.norm.gamma[i]) * normalizations[0].inverse[i]) as f32)
            .collect();
        let scalings: Vec<Scaling> =
            (0..=params.layers.len()).map(|index| Scaling::new(params, index, shifts)).collect();
        let prepare = |(index, normalization): (usize, &Normalization)| {
            let first = FirstLinear::new(params, index, shifts);
            let layer = &params.layers[index];
            let second = |i: usize, j: usize| f64::from(layer.second_weight[i * hidden + j]);
            let offset = |i: usize| scalings[index].offset[i] - scalings[index + 1].offset[i];
            let constant = |i: usize| f64::from(layer.second_bias[i]) + offset(i);
            let weight: Vec<f64> = (0..c * (hidden + 1))
                .map(|at| (at / (hidden + 1), at % (hidden + 1)))
                .map(|(i, j)| if j < hidden { second(i, j) } else { constant(i) })
                .collect();
            let scaled: Vec<f64> = (0..hidden * c)
                .map(|at| first.gamma[at / c] * normalization.inverse[at / c] * first.plain[at])
                .collect();
            PackedLayer {
                first: Matrix::new(hidden, c + 1, |i, j| first.forward_entry(normalization, i, j)),
                second: Matrix::new(c, hidden + 1, |i, j| weight[i * (hidden + 1) + j]),
                first_transposed: Matrix::new(c, hidden, |j, i| scaled[i * c + j]),
                second_transposed: Matrix::new(hidden, c, |j, i| second(i, j)),
                scaled,
                weight,
            }
        };
        let layers = normalizations[1..].iter().enumerate().map(prepare).collect();
        let (heads, scores) = (params.heads, params.heads * params.position.len());
        let last = &scalings[params.layers.len()];
        let position = Matrix::new(scores, c + 1, |i, j| {
            let PositionProjection { weight, bias } = &params.position[i / heads];
            let row = &weight[i % heads * c..][..c];
            if j < c {
                f64::from(row[j]) * last.scale[j]
            } else {
                f64::from(bias[i % heads]) + dot(&double(row), &last.offset)
            }
        });
        let scales = scalings.iter().map(|scaling| single(&scaling.scale)).collect();
        Self { channels: c, hidden, input, input_scale, scalings, scales, layers, position, scores }
    }

    /// Returns a tile of the input of layer `index`, loaded into `scratch` unless it is stored.
    pub(super) fn tile<'a>(
        &self,
        stack: &Stack<'_>,
        inputs: &'a [CachedBuffer],
        index: usize,
        span: TileSpan,
        scratch: &'a mut [f32],
    ) -> &'a [f32] {
        if index == 0 {
            stack.load(&self.input, span, scratch);
            scratch
        } else {
            let size = (self.channels + 1) * WIDTH;
            &inputs[index - 1][span.tile * size..][..size]
        }
    }

    /// Registers the input of layer `index` in a chunk for prefetching.
    pub(super) fn prefetch_input(
        &self,
        stack: &Stack<'_>,
        inputs: &[CachedBuffer],
        index: usize,
        chunk: usize,
        prefetch: &mut Prefetch,
    ) {
        if index == 0 {
            prefetch.add_rows(
                stack.rows.iter().map(|row| row.as_ptr()),
                stack.plan.pairs(chunk).start,
                GROUP * WIDTH,
            );
        } else {
            let size = (self.channels + 1) * WIDTH;
            prefetch.add_groups(
                &inputs[index - 1][stack.plan.tiles(chunk).start * size..],
                GROUP * size,
            );
        }
    }

    /// Computes layer `index` on one tile; `relu` is scratch memory for the hidden units and the
    /// row of ones.
    pub(super) fn forward_tile(
        &self,
        isa: Isa,
        prefetch: &mut Prefetch,
        index: usize,
        t: &[f32],
        len: usize,
        relu: &mut [f32],
        out: &mut [f32],
    ) {
        let layer = &self.layers[index];
        product(isa, prefetch, &layer.first, t, Initial::Zero, Epilogue::Relu, relu);
        tile::fill_ones(&mut relu[self.hidden * WIDTH..], len);
        self.add_second(isa, prefetch, index, t, len, relu, out);
    }

    /// Computes the part after the `ReLU`: `x + W₂ r + b₂`.
    pub(super) fn add_second(
        &self,
        isa: Isa,
        prefetch: &mut Prefetch,
        index: usize,
        t: &[f32],
        len: usize,
        relu: &[f32],
        out: &mut [f32],
    ) {
        let start = Initial::Scaled(t, &self.scales[index]);
        product(isa, prefetch, &self.layers[index].second, relu, start, Epilogue::None, out);
        tile::fill_ones(&mut out[self.channels * WIDTH..], len);
    }
}
