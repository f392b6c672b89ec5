//! Passes of the forward pass over all pairs.

use crate::buffer::{CachedBuffer, UninitBuffer};
use crate::parallel;
use crate::tile::{self, Epilogue, Initial, Prefetch, Tiles, WIDTH, product};

use super::algebra::{Moments, double};
use super::network::Network;
use super::tiling::{GROUP, MomentAccumulator, Stack, TileGroup, diagonal_range, row_means};

impl Network {
    /// Returns the mean of the output of layer `index` over the first tile. Sums relative to it are
    /// small and preserve variances much smaller than the mean.
    pub(super) fn sample_mean(
        &self,
        stack: &Stack<'_>,
        inputs: &[CachedBuffer],
        index: usize,
    ) -> Vec<f64> {
        let c = self.channels;
        let (mut scratch, mut relu, mut out) =
            (tile::zeros(c + 1), tile::zeros(self.hidden + 1), tile::zeros(c + 1));
        let Some(span) = stack.plan.spans(0).next() else { return vec![0.0; c] };
        let t = self.tile(stack, inputs, index, span, &mut scratch);
        self.forward_tile(stack.isa, &mut Prefetch::new(), index, t, span.len, &mut relu, &mut out);
        double(&row_means(&out, c, span.len))
    }

    /// Computes the output of layer `index` for all pairs, tile after tile, and its moments.
    pub(super) fn apply_layer(
        &self,
        stack: &Stack<'_>,
        inputs: &[CachedBuffer],
        index: usize,
    ) -> (CachedBuffer, Moments) {
        let (c, isa, plan) = (self.channels, stack.isa, stack.plan);
        let size = (c + 1) * WIDTH;
        let mut output = parallel::buffer_cache().take(plan.tiles * size);
        let pieces = plan.cut_tiles(&mut output, size);
        let weighted = if stack.counts.is_some() { c + 1 } else { 0 };
        let scratch = || {
            (
                tile::zeros(c + 1),
                tile::zeros(self.hidden + 1),
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
        inputs: &[CachedBuffer],
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
        let scratch = || [c + 1, c + 1, hidden, scores].map(tile::zeros);
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
}
