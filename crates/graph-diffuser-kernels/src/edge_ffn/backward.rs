//! Passes of the backward pass over all pairs.

use crate::buffer::{CachedBuffer, UninitBuffer};
use crate::tile::{
    self, Epilogue, Initial, Prefetch, RowSums, Sums, Tiles, TransformBackward, WIDTH, product,
};

use super::algebra::{Correction, dot, total};
use super::network::Network;
use super::output_gradients::{DiagonalTiles, OutputGradients};
use super::tiling::{GROUP, Stack, TileGroup};

/// Maximum number of values of a gradient that may still be cached when it is read.
const MAX_CACHED_VALUES: usize = 1 << 20;

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

impl Network {
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
        inputs: &[CachedBuffer],
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
                DiagonalTiles { d: tile::zeros(c), relu: tile::zeros(hidden), len: 0 };
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
        let scratch = || [c + 1, c].map(tile::zeros);
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
