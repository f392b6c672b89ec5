//! The network, ready to run, and its passes over all pairs.

use crate::fresh::Fresh;
use crate::simd::Isa;
use crate::tile::{
    self, Affine, Ahead, Buffer, Finish, Matrix, RowSums, Slopes, Start, Sums, Tiles, WIDTH,
    product,
};

use super::algebra::{Correction, First, Level, Moments, Normal, dot, double, single, total};
use super::upper::{OwnTiles, Upper};
use super::walk::{GROUP, Gather, Group, Place, Stack, own_of, row_means};
use super::{Position, Weights};

/// Numbers of the largest gradient that a cache may still hold when it is read.
const MOST_CACHED: usize = 1 << 20;

/// The matrices of a layer.
pub(super) struct Prepared {
    /// `[hidden, c + 1]`, from `t` and ones to what the rectifier sees.
    pub(super) first: Matrix,
    /// `[c, hidden + 1]`, from the rectifier's output and ones to what is added to `scale ⊙ t`.
    pub(super) second: Matrix,
    /// `[c, hidden]`
    pub(super) first_transposed: Matrix,
    /// `[hidden, c]`
    pub(super) second_transposed: Matrix,
    /// The transpose of `first_transposed`, `[hidden, c]`, in double precision.
    pub(super) scaled: Vec<f64>,
    /// What is in `second`, `[c, hidden + 1]`, in double precision.
    pub(super) weight: Vec<f64>,
}

/// The network, ready to run.
pub(super) struct Network {
    pub(super) channels: usize,
    pub(super) hidden: usize,
    /// From the stack to the normalised stack.
    pub(super) input: Affine,
    /// γ times inverse deviation of the stack's norm.
    pub(super) input_scale: Vec<f32>,
    pub(super) levels: Vec<Level>,
    /// The scales of `levels`, rounded.
    pub(super) scales: Vec<Vec<f32>>,
    pub(super) layers: Vec<Prepared>,
    /// `[groups · heads, c + 1]`, from the output of the last layer and ones to scores.
    pub(super) position: Matrix,
    pub(super) scores: usize,
}

/// Sums over pairs that a pass of the backward collects.
pub(super) struct Part {
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
    /// Layers whose batch norm is not known yet are left out.
    pub(super) fn new(weights: &Weights<'_>, normals: &[Normal], shifts: &[Vec<f64>]) -> Self {
        let (c, hidden) = (weights.channels, weights.hidden);
        let centre = single(&normals[0].mean);
        let offset = |i: usize| (f64::from(centre[i]) - normals[0].mean[i]) * normals[0].inverse[i];
        let input = Affine {
            scale: single(&normals[0].inverse),
            offset: (0..c).map(|i| offset(i) as f32).collect(),
            centre,
        };
        let input_scale = (0..c)
            .map(|i| (f64::from(weights.norm.gamma[i]) * normals[0].inverse[i]) as f32)
            .collect();
        let levels: Vec<Level> =
            (0..=weights.layers.len()).map(|index| Level::new(weights, index, shifts)).collect();
        let prepare = |(index, normal): (usize, &Normal)| {
            let first = First::new(weights, index, shifts);
            let layer = &weights.layers[index];
            let second = |i: usize, j: usize| f64::from(layer.second_weight[i * hidden + j]);
            let offset = |i: usize| levels[index].offset[i] - levels[index + 1].offset[i];
            let constant = |i: usize| f64::from(layer.second_bias[i]) + offset(i);
            let weight: Vec<f64> = (0..c * (hidden + 1))
                .map(|at| (at / (hidden + 1), at % (hidden + 1)))
                .map(|(i, j)| if j < hidden { second(i, j) } else { constant(i) })
                .collect();
            let scaled: Vec<f64> = (0..hidden * c)
                .map(|at| first.gamma[at / c] * normal.inverse[at / c] * first.plain[at])
                .collect();
            Prepared {
                first: Matrix::new(hidden, c + 1, |i, j| first.forward_entry(normal, i, j)),
                second: Matrix::new(c, hidden + 1, |i, j| weight[i * (hidden + 1) + j]),
                first_transposed: Matrix::new(c, hidden, |j, i| scaled[i * c + j]),
                second_transposed: Matrix::new(hidden, c, |j, i| second(i, j)),
                scaled,
                weight,
            }
        };
        let layers = normals[1..].iter().enumerate().map(prepare).collect();
        let (heads, scores) = (weights.heads, weights.heads * weights.position.len());
        let last = &levels[weights.layers.len()];
        let position = Matrix::new(scores, c + 1, |i, j| {
            let Position { weight, bias } = &weights.position[i / heads];
            let row = &weight[i % heads * c..][..c];
            if j < c {
                f64::from(row[j]) * last.scale[j]
            } else {
                f64::from(bias[i % heads]) + dot(&double(row), &last.offset)
            }
        });
        let scales = levels.iter().map(|level| single(&level.scale)).collect();
        Self { channels: c, hidden, input, input_scale, levels, scales, layers, position, scores }
    }

    /// Tile of the input of layer `index`, loaded into `scratch` or where it is kept.
    pub(super) fn tile<'a>(
        &self,
        stack: &Stack<'_>,
        inputs: &'a [Buffer],
        index: usize,
        place: Place,
        scratch: &'a mut [f32],
    ) -> &'a [f32] {
        if index == 0 {
            stack.load(&self.input, place, scratch);
            scratch
        } else {
            let size = (self.channels + 1) * WIDTH;
            &inputs[index - 1][place.tile * size..][..size]
        }
    }

    /// Says that the tiles of a chunk of the input of layer `index` will be needed.
    pub(super) fn announce(
        &self,
        stack: &Stack<'_>,
        inputs: &[Buffer],
        index: usize,
        chunk: usize,
        ahead: &mut Ahead,
    ) {
        if index == 0 {
            ahead.add_rows(
                stack.rows.iter().map(|row| row.as_ptr()),
                stack.plan.pairs(chunk).start,
                GROUP * WIDTH,
            );
        } else {
            let size = (self.channels + 1) * WIDTH;
            ahead.add_groups(
                &inputs[index - 1][stack.plan.tiles(chunk).start * size..],
                GROUP * size,
            );
        }
    }

    /// Layer `index` on one tile; `relu` is scratch for hidden units, with its row of ones.
    pub(super) fn step(
        &self,
        isa: Isa,
        ahead: &mut Ahead,
        index: usize,
        t: &[f32],
        len: usize,
        relu: &mut [f32],
        out: &mut [f32],
    ) {
        let layer = &self.layers[index];
        product(isa, ahead, &layer.first, t, Start::Zero, Finish::Relu, relu);
        tile::fill_ones(&mut relu[self.hidden * WIDTH..], len);
        self.add_second(isa, ahead, index, t, len, relu, out);
    }

    /// What is behind the rectifier: `x + W₂ r + b₂`.
    pub(super) fn add_second(
        &self,
        isa: Isa,
        ahead: &mut Ahead,
        index: usize,
        t: &[f32],
        len: usize,
        relu: &[f32],
        out: &mut [f32],
    ) {
        let start = Start::Scaled(t, &self.scales[index]);
        product(isa, ahead, &self.layers[index].second, relu, start, Finish::Nothing, out);
        tile::fill_ones(&mut out[self.channels * WIDTH..], len);
    }

    /// Mean of the output of layer `index` over the first tile. Sums about it are small, so they keep
    /// variances much smaller than the mean.
    pub(super) fn sample_mean(
        &self,
        stack: &Stack<'_>,
        inputs: &[Buffer],
        index: usize,
    ) -> Vec<f64> {
        let c = self.channels;
        let (mut scratch, mut relu, mut out) =
            (Buffer::tile(c + 1), Buffer::tile(self.hidden + 1), Buffer::tile(c + 1));
        let Some(place) = stack.plan.places(0).next() else { return vec![0.0; c] };
        let t = self.tile(stack, inputs, index, place, &mut scratch);
        self.step(stack.isa, &mut Ahead::new(), index, t, place.len, &mut relu, &mut out);
        double(&row_means(&out, c, place.len))
    }

    /// Output of layer `index` for all pairs, tile after tile, and its moments.
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
        let weighed = if stack.counts.is_some() { c + 1 } else { 0 };
        let scratch = || {
            (
                Buffer::tile(c + 1),
                Buffer::tile(self.hidden + 1),
                Group::new(weighed),
                Gather::new(c),
            )
        };
        let parts = plan.run(pieces, scratch, |(scratch, relu, weighed, gather), chunk, piece| {
            let ahead = &mut Ahead::new();
            self.announce(stack, inputs, index, chunk, ahead);
            ahead.add_groups(piece, GROUP * size);
            for group in plan.groups(chunk) {
                ahead.turn();
                for (slot, &place) in group.iter().enumerate() {
                    let out = &mut piece[place.offset / WIDTH * size..][..size];
                    let t = self.tile(stack, inputs, index, place, scratch);
                    self.step(isa, ahead, index, t, place.len, relu, out);
                    if stack.counts.is_some() {
                        weighed.tile_mut(slot).copy_from_slice(out);
                        stack.weigh_by_root(place, weighed.tile_mut(slot));
                    }
                }
                let kept = Tiles { rows: c + 1, values: &piece[group[0].offset / WIDTH * size..] };
                let made = if stack.counts.is_some() { weighed.tiles() } else { kept };
                gather.sums.add(isa, ahead, group.len(), made, made);
            }
            gather.finish(isa)
        });
        (output, Moments::of_chunks(c, parts))
    }

    /// The layers whose inputs are not kept, and the scores.
    pub(super) fn read_scores(
        &self,
        stack: &Stack<'_>,
        inputs: &[Buffer],
        positions: usize,
        self_pairs: &[usize],
        own: Option<&mut [f32]>,
    ) -> Vec<Vec<f32>> {
        let (c, isa, plan) = (self.channels, stack.isa, stack.plan);
        let last = &self.levels[self.layers.len()];
        let mut own_rest = own;
        if let Some(own) = &own_rest {
            assert_eq!(
                own.len(),
                self_pairs.len() * c,
                "one row for each pair of a node with itself"
            );
        }
        let size = self.scores * plan.pairs / positions.max(1);
        let mut fresh: Vec<Fresh> = (0..positions).map(|_| Fresh::new(size)).collect();
        let mut pieces = Vec::new();
        for (chunk, rows) in
            plan.cut_rows(fresh.iter_mut().map(Fresh::room)).into_iter().enumerate()
        {
            let own = own_rest.take().map(|own| {
                let (part, rest) =
                    own.split_at_mut(own_of(self_pairs, plan.pairs(chunk)).len() * c);
                own_rest = Some(rest);
                part
            });
            pieces.push((rows, own));
        }
        let [scores, hidden] = [self.scores, self.hidden + 1];
        let scratch = || [c + 1, c + 1, hidden, scores].map(Buffer::tile);
        plan.run(pieces, scratch, |[x, next, relu, out], chunk, (mut rows, mut own)| {
            let (first_own, ahead) =
                (own_of(self_pairs, plan.pairs(chunk)).start, &mut Ahead::new());
            self.announce(stack, inputs, inputs.len(), chunk, ahead);
            ahead.add_rows(rows.iter().map(|row| row.as_ptr().cast()), 0, GROUP * WIDTH);
            for place in plan.places(chunk) {
                if place.offset.is_multiple_of(GROUP * WIDTH) {
                    ahead.turn();
                }
                let mut t = self.tile(stack, inputs, inputs.len(), place, x);
                for index in inputs.len()..self.layers.len() {
                    self.step(isa, ahead, index, t, place.len, relu, next);
                    std::mem::swap(x, next);
                    t = x;
                }
                product(isa, ahead, &self.position, t, Start::Zero, Finish::Nothing, out); // Eq. 6
                tile::store(isa, out, &mut rows, place.offset, place.len);
                if let Some(own) = &mut own {
                    for number in own_of(self_pairs, place.start..place.start + place.len) {
                        let column = self_pairs[number] - place.start;
                        for (i, value) in
                            own[(number - first_own) * c..][..c].iter_mut().enumerate()
                        {
                            let t = f64::from(t[i * WIDTH + column]);
                            *value = (last.scale[i] * t + last.offset[i]) as f32;
                        }
                    }
                }
            }
        });
        // SAFETY: every tile of every row has been stored.
        fresh.into_iter().map(|fresh| unsafe { fresh.written() }).collect()
    }

    /// One pass down, through layer `index`: from the gradient of its output to sums over pairs, and to the
    /// gradient of its input, which `d` then holds but for the [`Correction`] that follows from those sums.
    ///
    /// The last layer has the gradient of its output from `upper`; its input, where it is not the stack, is in
    /// `d` and gives way. Any other layer has that gradient from `d` and the correction of the layer behind.
    ///
    /// # Shapes
    /// - `d`: `[tile][c + 1][WIDTH]`
    pub(super) fn descend(
        &self,
        stack: &Stack<'_>,
        inputs: &[Buffer],
        index: usize,
        upper: Option<&Upper<'_>>,
        correction: &Correction,
        d: &mut [f32],
    ) -> Part {
        let (c, hidden, isa, plan) = (self.channels, self.hidden, stack.isa, stack.plan);
        let (size, layer) = ((c + 1) * WIDTH, self.layers.get(index));
        let correction = layer.filter(|_| upper.is_none()).map(|layer| {
            let scale = &self.levels[index].scale;
            correction.negated_before(scale, &layer.weight)
        });
        let scores = upper.map_or(0, |upper| upper.rows.len());
        // With few scores, sums of their products with the rectifier's output give ∂W_p and ∂W₂ at once; with
        // more than two for each channel it is less work to form the layer's output and its gradient.
        let multiplied_out = upper.is_some() && layer.is_some() && scores < 2 * c;
        let forms_output = upper.is_some() && layer.is_some() && !multiplied_out;
        let joint = c + 1 + hidden + 1;
        let other = if forms_output {
            c + 1
        } else if stack.counts.is_some() {
            joint
        } else {
            0
        };
        let scratch = || Descent {
            groups: [joint, other, c, hidden, scores].map(Group::new),
            position: Sums::new(scores, c + 1),
            by_relu: Sums::new(if multiplied_out { scores } else { 0 }, hidden),
            second: Sums::new(c, hidden),
            first: Sums::new(hidden, c + 1),
            dots: RowSums::new(c),
        };
        let parts = plan.run(plan.cut_tiles(d, size), scratch, |scratch, chunk, piece| {
            let Descent {
                groups: [joint, other, d_x, g, d_scores],
                position,
                by_relu,
                second,
                first,
                dots,
            } = scratch;
            let mut own = OwnTiles { d: Buffer::tile(c), relu: Buffer::tile(hidden), len: 0 };
            let ahead = &mut Ahead::new();
            ahead.add_groups(piece, GROUP * size);
            if index == 0 || upper.is_none() {
                self.announce(stack, inputs, index, chunk, ahead);
            }
            if let Some(upper) = upper {
                ahead.add_rows(
                    upper.rows.iter().map(|row| row.as_ptr()),
                    plan.pairs(chunk).start,
                    GROUP * WIDTH,
                );
            }
            for group in plan.groups(chunk) {
                ahead.turn();
                for (slot, &place) in group.iter().enumerate() {
                    let kept = &mut piece[place.offset / WIDTH * size..][..size];
                    let (t, relu) = joint.tile_mut(slot).split_at_mut(size);
                    match index {
                        0 => stack.load(&self.input, place, t),
                        _ if upper.is_some() => t.copy_from_slice(kept),
                        _ => t.copy_from_slice(&inputs[index - 1][place.tile * size..][..size]),
                    }
                    if let Some(layer) = layer {
                        product(isa, ahead, &layer.first, t, Start::Zero, Finish::Relu, relu);
                        tile::fill_ones(&mut relu[hidden * WIDTH..], place.len);
                    }
                    let d_x = d_x.tile_mut(slot);
                    if let Some(upper) = upper {
                        let d_scores = d_scores.tile_mut(slot);
                        tile::load(isa, &upper.rows, place.start, place.len, d_scores);
                        if forms_output {
                            self.add_second(
                                isa,
                                ahead,
                                index,
                                t,
                                place.len,
                                relu,
                                other.tile_mut(slot),
                            );
                        }
                        product(
                            isa,
                            ahead,
                            &upper.transposed,
                            d_scores,
                            Start::Zero,
                            Finish::Nothing,
                            d_x,
                        );
                        upper.add_own(place, d_x);
                        if multiplied_out {
                            own.gather(upper, place, relu, |d, relu| {
                                second.add(isa, ahead, 1, d, relu)
                            });
                        }
                    }
                    if let Some(correction) = &correction {
                        let mut made_from = joint.tile(slot);
                        if stack.counts.is_some() {
                            let weighed = other.tile_mut(slot);
                            weighed.copy_from_slice(made_from);
                            stack.weigh(place, weighed);
                            made_from = weighed;
                        }
                        product(
                            isa,
                            ahead,
                            correction,
                            made_from,
                            Start::Tile(kept),
                            Finish::Nothing,
                            d_x,
                        );
                    }
                    let (t, relu) = joint.tile(slot).split_at(size);
                    if index == 0 {
                        dots.add(isa, d_x, t);
                    }
                    if let Some(layer) = layer {
                        let (g, finish) = (g.tile_mut(slot), Finish::WherePositive(relu));
                        product(isa, ahead, &layer.second_transposed, d_x, Start::Zero, finish, g);
                        product(
                            isa,
                            ahead,
                            &layer.first_transposed,
                            g,
                            Start::Tile(d_x),
                            Finish::Nothing,
                            kept,
                        );
                    } else {
                        kept[..c * WIDTH].copy_from_slice(d_x);
                    }
                }
                let (count, t) = (group.len(), joint.tiles());
                let relu = Tiles { values: &joint.values[size..], ..t };
                let output = if forms_output { other.tiles() } else { t };
                position.add(isa, ahead, count, d_scores.tiles(), output);
                if multiplied_out {
                    by_relu.add(isa, ahead, count, d_scores.tiles(), relu);
                } else if layer.is_some() {
                    second.add(isa, ahead, count, d_x.tiles(), relu);
                }
                if layer.is_some() {
                    first.add(isa, ahead, count, g.tiles(), t);
                }
            }
            own.finish(|d, relu| second.add(isa, ahead, 1, d, relu));
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
            // Σ ∂x ⊙ t of the layer's input: what `g` adds follows from its sums.
            for (j, dot) in dots.iter_mut().enumerate() {
                *dot += (0..hidden)
                    .map(|i| layer.scaled[i * c + j] * first[i * (c + 1) + j])
                    .sum::<f64>();
            }
        }
        if let Some(upper) = upper.filter(|_| multiplied_out) {
            self.multiply_out(index, upper, &by_relu, &mut position, &mut second);
        }
        Part { position, second, first, dots }
    }

    /// From sums with the last layer's input and rectifier to sums with its output and its output's gradient.
    pub(super) fn multiply_out(
        &self,
        index: usize,
        upper: &Upper<'_>,
        by_relu: &[f64],
        position: &mut [f64],
        second: &mut [f64],
    ) {
        let (c, hidden, level, weight) =
            (self.channels, self.hidden, &self.levels[index], &self.layers[index].weight);
        for (r, by_relu) in by_relu.chunks_exact(hidden).enumerate() {
            let position = &mut position[r * (c + 1)..][..=c];
            for i in 0..c {
                let row = &weight[i * (hidden + 1)..][..=hidden];
                position[i] =
                    position[i] * level.scale[i] + position[c] * row[hidden] + dot(row, by_relu);
                for (second, by_relu) in second[i * hidden..][..hidden].iter_mut().zip(by_relu) {
                    *second += upper.weight[r * c + i] * by_relu;
                }
            }
        }
    }

    /// From the gradient of the normalised stack, in tiles, to that of the stack, `[c, p]`.
    pub(super) fn finish(&self, stack: &Stack<'_>, correction: &Correction, d: &[f32]) -> Vec<f32> {
        let (c, isa, plan) = (self.channels, stack.isa, stack.plan);
        let size = (c + 1) * WIDTH;
        let correction = correction.negated();
        let past_caches = c * plan.pairs > MOST_CACHED;
        let mut fresh = Fresh::new(c * plan.pairs);
        let scratch = || [c + 1, c].map(Buffer::tile);
        plan.run(plan.cut_rows([fresh.room()]), scratch, |[t, d_x], chunk, mut rows| {
            let ahead = &mut Ahead::new();
            self.announce(stack, &[], 0, chunk, ahead);
            ahead.add_groups(&d[plan.tiles(chunk).start * size..], GROUP * size);
            if !past_caches {
                ahead.add_rows(rows.iter().map(|row| row.as_ptr().cast()), 0, GROUP * WIDTH);
            }
            for place in plan.places(chunk) {
                if place.offset.is_multiple_of(GROUP * WIDTH) {
                    ahead.turn();
                }
                stack.load(&self.input, place, t);
                stack.weigh(place, t);
                let start = Start::Tile(&d[place.tile * size..][..size]);
                product(isa, ahead, &correction, t, start, Finish::Nothing, d_x);
                let slopes = Slopes {
                    transform: stack.transform,
                    scales: &self.input_scale,
                    values: &stack.rows,
                    start: place.start,
                    past_caches,
                };
                tile::store_sloped(isa, d_x, &slopes, &mut rows, place.offset, place.len);
            }
            tile::settle(isa);
        });
        // SAFETY: every tile of every row has been stored.
        unsafe { fresh.written() }
    }
}

/// What a thread needs for its part of [`Network::descend`].
pub(super) struct Descent {
    /// Input of the layer and its rectifier, one below the other; its output, or both counted as often as their
    /// pairs do; gradients of the output, of the rectifier and of the scores.
    pub(super) groups: [Group; 5],
    pub(super) position: Sums,
    /// `Σ ∂scores ⊗ r`
    pub(super) by_relu: Sums,
    pub(super) second: Sums,
    pub(super) first: Sums,
    pub(super) dots: RowSums,
}
