//! Network with packed matrices, and its passes over all pairs.

use crate::simd::Isa;
use crate::tile::{
    self, Affine, Buffer, Epilogue, Initial, Matrix, Prefetch, RowSums, Sums, Tiles,
    TransformBackward, WIDTH, product,
};
use crate::uninit::UninitBuffer;

use super::algebra::{
    Correction, FirstLinear, Moments, Normalization, Scaling, dot, double, single, total,
};
use super::output_gradients::{DiagonalTiles, OutputGradients};
use super::tiling::{
    GROUP, MomentAccumulator, Stack, TileGroup, TileSpan, diagonal_range, row_means,
};
use super::{EdgeFfnParams, PositionProjection};

/// Maximum number of values of a gradient that may still be cached when it is read.
const MAX_CACHED_VALUES: usize = 1 << 20;

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

/// Sums over pairs collected by a pass of the backward pass.
pub(super) struct BackwardSums {
    /// `Σ ∂scores ⊗ [t, 1]` with the output `t` of the last layer.
    pub(super) position: Vec<f64>,
    /// `Σ ∂x ⊗ r`, `[c, hidden]`.
    pub(super) second: Vec<f64>,
    /// `Σ g ⊗ [t, 1]`, `[hidden, c + 1]`.
    pub(super) first: Vec<f64>,
    /// `Σ ∂x ⊙ t`, `[c]`, of the first layer.
    pub(super) dots: Vec<f64>,
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
        inputs: &'a [Buffer],
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
        inputs: &[Buffer],
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

    /// Returns the mean of the output of layer `index` over the first tile. Sums relative to it are
    /// small and preserve variances much smaller than the mean.
    pub(super) fn sample_mean(
        &self,
        stack: &Stack<'_>,
        inputs: &[Buffer],
        index: usize,
    ) -> Vec<f64> {
        let c = self.channels;
        let (mut scratch, mut relu, mut out) =
            (Buffer::tile(c + 1), Buffer::tile(self.hidden + 1), Buffer::tile(c + 1));
        let Some(span) = stack.plan.spans(0).next() else { return vec![0.0; c] };
        let t = self.tile(stack, inputs, index, span, &mut scratch);
        self.forward_tile(stack.isa, &mut Prefetch::new(), index, t, span.len, &mut relu, &mut out);
        double(&row_means(&out, c, span.len))
    }

    /// Computes the output of layer `index` for all pairs, tile after tile, and its moments.
    pub(super) fn apply_layer(
        &self,
        stack: &Stack<'_>,
        inputs: &[Buffer],
        index: usize,
    ) -> (Buffer, Moments) {
        let (c, isa, plan) = (self.channels, stack.isa, stack.plan);
        let size = (c + 1) * WIDTH;
        let mut output = Buffer::reused(plan.tiles * size);
        let pieces = plan.cut_tiles(&mut output, size);
        let weighted = if stack.counts.is_some() { c + 1 } else { 0 };
        let scratch = || {
            (
                Buffer::tile(c + 1),
                Buffer::tile(self.hidden + 1),
                TileGroup::new(weighted),
                MomentAccumulator::new(c),
            )
        };
        let parts =
            plan.run(pieces, scratch, |(scratch, relu, weighted, accumulator), chunk, piece| {
                let prefetch = &mut Prefetch::new();
                self.prefetch_input(stack, inputs, index, chunk, prefetch);
                prefetch.add_groups(piece, GROUP * size);
                for group in plan.groups(chunk) {
                    prefetch.advance();
                    for (slot, &span) in group.iter().enumerate() {
                        let out = &mut piece[span.offset / WIDTH * size..][..size];
                        let t = self.tile(stack, inputs, index, span, scratch);
                        self.forward_tile(isa, prefetch, index, t, span.len, relu, out);
                        if stack.counts.is_some() {
                            weighted.tile_mut(slot).copy_from_slice(out);
                            stack.weight_by_sqrt_counts(span, weighted.tile_mut(slot));
                        }
                    }
                    let kept =
                        Tiles { rows: c + 1, values: &piece[group[0].offset / WIDTH * size..] };
                    let summed = if stack.counts.is_some() { weighted.tiles() } else { kept };
                    accumulator.sums.add(isa, prefetch, group.len(), summed, summed);
                }
                accumulator.finish(isa)
            });
        (output, Moments::of_chunks(c, parts))
    }

    /// Computes the remaining layers, whose outputs are not stored, and the scores.
    pub(super) fn position_scores(
        &self,
        stack: &Stack<'_>,
        inputs: &[Buffer],
        positions: usize,
        self_pairs: &[usize],
        diagonal: Option<&mut [f32]>,
    ) -> Vec<Vec<f32>> {
        let (c, isa, plan) = (self.channels, stack.isa, stack.plan);
        let last = &self.scalings[self.layers.len()];
        let mut diagonal_rest = diagonal;
        if let Some(diagonal) = &diagonal_rest {
            assert_eq!(
                diagonal.len(),
                self_pairs.len() * c,
                "the diagonal must be [self_pairs, c]"
            );
        }
        let size = self.scores * plan.pairs / positions.max(1);
        let mut buffers: Vec<UninitBuffer> =
            (0..positions).map(|_| UninitBuffer::new(size)).collect();
        let mut pieces = Vec::new();
        for (chunk, rows) in
            plan.cut_rows(buffers.iter_mut().map(UninitBuffer::as_uninit)).into_iter().enumerate()
        {
            let diagonal = diagonal_rest.take().map(|diagonal| {
                let (part, rest) =
                    diagonal.split_at_mut(diagonal_range(self_pairs, plan.pairs(chunk)).len() * c);
                diagonal_rest = Some(rest);
                part
            });
            pieces.push((rows, diagonal));
        }
        let [scores, hidden] = [self.scores, self.hidden + 1];
        let scratch = || [c + 1, c + 1, hidden, scores].map(Buffer::tile);
        plan.run(pieces, scratch, |[x, next, relu, out], chunk, (mut rows, mut diagonal)| {
            let (first_diagonal, prefetch) =
                (diagonal_range(self_pairs, plan.pairs(chunk)).start, &mut Prefetch::new());
            self.prefetch_input(stack, inputs, inputs.len(), chunk, prefetch);
            prefetch.add_rows(rows.iter().map(|row| row.as_ptr().cast()), 0, GROUP * WIDTH);
            for span in plan.spans(chunk) {
                if span.offset.is_multiple_of(GROUP * WIDTH) {
                    prefetch.advance();
                }
                let mut t = self.tile(stack, inputs, inputs.len(), span, x);
                for index in inputs.len()..self.layers.len() {
                    self.forward_tile(isa, prefetch, index, t, span.len, relu, next);
                    std::mem::swap(x, next);
                    t = x;
                }
                product(isa, prefetch, &self.position, t, Initial::Zero, Epilogue::None, out); // Eq. 6
                tile::store(isa, out, &mut rows, span.offset, span.len);
                if let Some(diagonal) = &mut diagonal {
                    for index in diagonal_range(self_pairs, span.start..span.start + span.len) {
                        let column = self_pairs[index] - span.start;
                        for (i, value) in
                            diagonal[(index - first_diagonal) * c..][..c].iter_mut().enumerate()
                        {
                            let t = f64::from(t[i * WIDTH + column]);
                            *value = (last.scale[i] * t + last.offset[i]) as f32;
                        }
                    }
                }
            }
        });
        // SAFETY: every tile of every row has been stored.
        buffers.into_iter().map(|buffers| unsafe { buffers.assume_init() }).collect()
    }

    /// Computes the backward pass of layer `index`: from the gradient of its output to sums over
    /// pairs and to the gradient of its input, which is written to `d` without the [`Correction`]
    /// that follows from those sums.
    ///
    /// For the last layer, the gradient of the output comes from `d_output`; its input, unless it
    /// is the stack, is read from `d` and overwritten. For any other layer, the gradient of the
    /// output is given by `d` and the correction of the layer after it.
    ///
    /// # Shapes
    /// - `d`: `[tile][c + 1][WIDTH]`
    pub(super) fn backward_layer(
        &self,
        stack: &Stack<'_>,
        inputs: &[Buffer],
        index: usize,
        d_output: Option<&OutputGradients<'_>>,
        correction: &Correction,
        d: &mut [f32],
    ) -> BackwardSums {
        let (c, hidden, isa, plan) = (self.channels, self.hidden, stack.isa, stack.plan);
        let (size, layer) = ((c + 1) * WIDTH, self.layers.get(index));
        let correction = layer.filter(|_| d_output.is_none()).map(|layer| {
            let scale = &self.scalings[index].scale;
            correction.negated_before(scale, &layer.weight)
        });
        let scores = d_output.map_or(0, |d_output| d_output.rows.len());
        // With few scores, sums of their products with the output of the `ReLU` give ∂W_p and ∂W₂
        // at once; with more than two scores per channel, it is less work to form the output of the
        // layer and its gradient.
        let multiplied_out = d_output.is_some() && layer.is_some() && scores < 2 * c;
        let forms_output = d_output.is_some() && layer.is_some() && !multiplied_out;
        let joint = c + 1 + hidden + 1;
        let other = if forms_output {
            c + 1
        } else if stack.counts.is_some() {
            joint
        } else {
            0
        };
        let scratch = || BackwardScratch {
            groups: [joint, other, c, hidden, scores].map(TileGroup::new),
            position: Sums::new(scores, c + 1),
            by_relu: Sums::new(if multiplied_out { scores } else { 0 }, hidden),
            second: Sums::new(c, hidden),
            first: Sums::new(hidden, c + 1),
            dots: RowSums::new(c),
        };
        let parts = plan.run(plan.cut_tiles(d, size), scratch, |scratch, chunk, piece| {
            let BackwardScratch {
                groups: [joint, other, d_x, g, d_scores],
                position,
                by_relu,
                second,
                first,
                dots,
            } = scratch;
            let mut diagonal =
                DiagonalTiles { d: Buffer::tile(c), relu: Buffer::tile(hidden), len: 0 };
            let prefetch = &mut Prefetch::new();
            prefetch.add_groups(piece, GROUP * size);
            if index == 0 || d_output.is_none() {
                self.prefetch_input(stack, inputs, index, chunk, prefetch);
            }
            if let Some(d_output) = d_output {
                prefetch.add_rows(
                    d_output.rows.iter().map(|row| row.as_ptr()),
                    plan.pairs(chunk).start,
                    GROUP * WIDTH,
                );
            }
            for group in plan.groups(chunk) {
                prefetch.advance();
                for (slot, &span) in group.iter().enumerate() {
                    let kept = &mut piece[span.offset / WIDTH * size..][..size];
                    let (t, relu) = joint.tile_mut(slot).split_at_mut(size);
                    match index {
                        0 => stack.load(&self.input, span, t),
                        _ if d_output.is_some() => t.copy_from_slice(kept),
                        _ => t.copy_from_slice(&inputs[index - 1][span.tile * size..][..size]),
                    }
                    if let Some(layer) = layer {
                        product(
                            isa,
                            prefetch,
                            &layer.first,
                            t,
                            Initial::Zero,
                            Epilogue::Relu,
                            relu,
                        );
                        tile::fill_ones(&mut relu[hidden * WIDTH..], span.len);
                    }
                    let d_x = d_x.tile_mut(slot);
                    if let Some(d_output) = d_output {
                        let d_scores = d_scores.tile_mut(slot);
                        tile::load(isa, &d_output.rows, span.start, span.len, d_scores);
                        if forms_output {
                            self.add_second(
                                isa,
                                prefetch,
                                index,
                                t,
                                span.len,
                                relu,
                                other.tile_mut(slot),
                            );
                        }
                        product(
                            isa,
                            prefetch,
                            &d_output.transposed,
                            d_scores,
                            Initial::Zero,
                            Epilogue::None,
                            d_x,
                        );
                        d_output.add_diagonal(span, d_x);
                        if multiplied_out {
                            diagonal.gather(d_output, span, relu, |d, relu| {
                                second.add(isa, prefetch, 1, d, relu);
                            });
                        }
                    }
                    if let Some(correction) = &correction {
                        let mut made_from = joint.tile(slot);
                        if stack.counts.is_some() {
                            let weighted = other.tile_mut(slot);
                            weighted.copy_from_slice(made_from);
                            stack.weight_by_counts(span, weighted);
                            made_from = weighted;
                        }
                        product(
                            isa,
                            prefetch,
                            correction,
                            made_from,
                            Initial::Tile(kept),
                            Epilogue::None,
                            d_x,
                        );
                    }
                    let (t, relu) = joint.tile(slot).split_at(size);
                    if index == 0 {
                        dots.add(isa, d_x, t);
                    }
                    if let Some(layer) = layer {
                        let (g, finish) = (g.tile_mut(slot), Epilogue::MaskPositive(relu));
                        product(
                            isa,
                            prefetch,
                            &layer.second_transposed,
                            d_x,
                            Initial::Zero,
                            finish,
                            g,
                        );
                        product(
                            isa,
                            prefetch,
                            &layer.first_transposed,
                            g,
                            Initial::Tile(d_x),
                            Epilogue::None,
                            kept,
                        );
                    } else {
                        kept[..c * WIDTH].copy_from_slice(d_x);
                    }
                }
                let (count, t) = (group.len(), joint.tiles());
                let relu = Tiles { values: &joint.values[size..], ..t };
                let output = if forms_output { other.tiles() } else { t };
                position.add(isa, prefetch, count, d_scores.tiles(), output);
                if multiplied_out {
                    by_relu.add(isa, prefetch, count, d_scores.tiles(), relu);
                } else if layer.is_some() {
                    second.add(isa, prefetch, count, d_x.tiles(), relu);
                }
                if layer.is_some() {
                    first.add(isa, prefetch, count, g.tiles(), t);
                }
            }
            diagonal.finish(|d, relu| second.add(isa, prefetch, 1, d, relu));
            [
                position.finish(isa),
                by_relu.finish(isa),
                second.finish(isa),
                first.finish(isa),
                dots.finish(isa),
            ]
        });
        let [mut position, by_relu, mut second, first, mut dots] = total(parts);
        if let Some(layer) = layer {
            // Σ ∂x ⊙ t for the input of the layer: the contribution of `g` follows from its sums.
            for (j, dot) in dots.iter_mut().enumerate() {
                *dot += (0..hidden)
                    .map(|i| layer.scaled[i * c + j] * first[i * (c + 1) + j])
                    .sum::<f64>();
            }
        }
        if let Some(d_output) = d_output.filter(|_| multiplied_out) {
            self.multiply_out(index, d_output, &by_relu, &mut position, &mut second);
        }
        BackwardSums { position, second, first, dots }
    }

    /// Converts sums with the input and the `ReLU` of the last layer to sums with its output and
    /// the gradient of its output.
    pub(super) fn multiply_out(
        &self,
        index: usize,
        d_output: &OutputGradients<'_>,
        by_relu: &[f64],
        position: &mut [f64],
        second: &mut [f64],
    ) {
        let (c, hidden, scaling, weight) =
            (self.channels, self.hidden, &self.scalings[index], &self.layers[index].weight);
        for (r, by_relu) in by_relu.chunks_exact(hidden).enumerate() {
            let position = &mut position[r * (c + 1)..][..=c];
            for i in 0..c {
                let row = &weight[i * (hidden + 1)..][..=hidden];
                position[i] =
                    position[i] * scaling.scale[i] + position[c] * row[hidden] + dot(row, by_relu);
                for (second, by_relu) in second[i * hidden..][..hidden].iter_mut().zip(by_relu) {
                    *second += d_output.weight[r * c + i] * by_relu;
                }
            }
        }
    }

    /// Computes the gradient of the stack, `[c, p]`, from that of the normalized stack in tiles.
    pub(super) fn stack_gradient(
        &self,
        stack: &Stack<'_>,
        correction: &Correction,
        d: &[f32],
    ) -> Vec<f32> {
        let (c, isa, plan) = (self.channels, stack.isa, stack.plan);
        let size = (c + 1) * WIDTH;
        let correction = correction.negated();
        let nontemporal = c * plan.pairs > MAX_CACHED_VALUES;
        let mut buffers = UninitBuffer::new(c * plan.pairs);
        let scratch = || [c + 1, c].map(Buffer::tile);
        plan.run(plan.cut_rows([buffers.as_uninit()]), scratch, |[t, d_x], chunk, mut rows| {
            let prefetch = &mut Prefetch::new();
            self.prefetch_input(stack, &[], 0, chunk, prefetch);
            prefetch.add_groups(&d[plan.tiles(chunk).start * size..], GROUP * size);
            if !nontemporal {
                prefetch.add_rows(rows.iter().map(|row| row.as_ptr().cast()), 0, GROUP * WIDTH);
            }
            for span in plan.spans(chunk) {
                if span.offset.is_multiple_of(GROUP * WIDTH) {
                    prefetch.advance();
                }
                stack.load(&self.input, span, t);
                stack.weight_by_counts(span, t);
                let start = Initial::Tile(&d[span.tile * size..][..size]);
                product(isa, prefetch, &correction, t, start, Epilogue::None, d_x);
                let backward = TransformBackward {
                    transform: stack.transform,
                    scales: &self.input_scale,
                    values: &stack.rows,
                    start: span.start,
                    nontemporal,
                };
                tile::store_transform_gradient(
                    isa,
                    d_x,
                    &backward,
                    &mut rows,
                    span.offset,
                    span.len,
                );
            }
            tile::fence(isa);
        });
        // SAFETY: every tile of every row has been stored.
        unsafe { buffers.assume_init() }
    }
}

/// Per-thread state of [`Network::backward_layer`].
pub(super) struct BackwardScratch {
    /// Input of the layer and output of its `ReLU`, concatenated; output of the layer, or the first
    /// group scaled by multiplicities; gradients of the output, of the `ReLU` and of the scores.
    pub(super) groups: [TileGroup; 5],
    pub(super) position: Sums,
    /// `Σ ∂scores ⊗ r`
    pub(super) by_relu: Sums,
    pub(super) second: Sums,
    pub(super) first: Sums,
    pub(super) dots: RowSums,
}
