//! Iteration over pairs: in tiles, tiles in groups, groups in chunks.

use std::ops::Range;

use crate::buffer::Buffer;
use crate::parallel;
use crate::simd::Isa;
use crate::tile::{self, Affine, PairTransform, Prefetch, Sums, Tiles, WIDTH};

use super::PairInputs;
use super::algebra::Moments;

/// Maximum number of chunks of pairs, and thus of threads, unless chunks would become too large.
const MAX_CHUNKS: usize = 64;
/// Minimum number of pairs of a chunk: merging its sums costs as much as a hundred pairs.
const MIN_CHUNK_PAIRS: usize = 2048;
/// Number of pairs of a chunk from which there are more than [`MAX_CHUNKS`].
const LARGE_CHUNK_PAIRS: usize = 1 << 14;
/// Tiles per group, whose products over pairs are summed together: they fit easily into the
/// second-level cache.
pub(super) const GROUP: usize = 512 / WIDTH;

/// Partition of pairs into tiles and of tiles into chunks, independent of the number of threads.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) pairs: usize,
    pub(super) tiles: usize,
    pub(super) chunks: usize,
}

/// Range of pairs of a tile.
#[derive(Clone, Copy)]
pub(super) struct TileSpan {
    /// Index of the tile.
    pub(super) tile: usize,
    /// First pair.
    pub(super) start: usize,
    /// First pair, relative to the chunk.
    pub(super) offset: usize,
    /// Number of pairs.
    pub(super) len: usize,
}

impl Plan {
    /// Plans the partition of `pairs` pairs.
    pub(super) fn new(pairs: usize) -> Self {
        let tiles = pairs.div_ceil(WIDTH);
        let chunks = (pairs / MIN_CHUNK_PAIRS).clamp(1, MAX_CHUNKS);
        Self { pairs, tiles, chunks: chunks.max(pairs / LARGE_CHUNK_PAIRS) }
    }

    /// Returns the tiles of a chunk.
    pub(super) fn tiles(self, chunk: usize) -> Range<usize> {
        chunk * self.tiles / self.chunks..(chunk + 1) * self.tiles / self.chunks
    }

    /// Returns the pairs of a chunk.
    pub(super) fn pairs(self, chunk: usize) -> Range<usize> {
        let tiles = self.tiles(chunk);
        tiles.start * WIDTH..self.pairs.min(tiles.end * WIDTH)
    }

    /// Iterates over the tiles of a chunk.
    pub(super) fn spans(self, chunk: usize) -> impl Iterator<Item = TileSpan> {
        let tiles = self.tiles(chunk);
        let first = tiles.start * WIDTH;
        tiles.map(move |tile| {
            let start = tile * WIDTH;
            TileSpan { tile, start, offset: start - first, len: WIDTH.min(self.pairs - start) }
        })
    }

    /// Returns the tiles of a chunk in groups.
    pub(super) fn groups(self, chunk: usize) -> Vec<Vec<TileSpan>> {
        let spans: Vec<TileSpan> = self.spans(chunk).collect();
        spans.chunks(GROUP).map(<[TileSpan]>::to_vec).collect()
    }

    /// Splits every row of `[rows, p]` at chunk boundaries; returns the parts of all rows for each
    /// chunk.
    pub(super) fn cut_rows<'a, T>(
        self,
        all: impl IntoIterator<Item = &'a mut [T]>,
    ) -> Vec<Vec<&'a mut [T]>> {
        let mut chunks: Vec<Vec<_>> = (0..self.chunks).map(|_| vec![]).collect();
        for mut row in all.into_iter().flat_map(|rows| rows.chunks_exact_mut(self.pairs.max(1))) {
            for (chunk, parts) in chunks.iter_mut().enumerate() {
                let (part, rest) = row.split_at_mut(self.pairs(chunk).len());
                parts.push(part);
                row = rest;
            }
        }
        chunks
    }

    /// Splits tiles of `size` values at chunk boundaries.
    pub(super) fn cut_tiles(self, mut tiles: &mut [f32], size: usize) -> Vec<&mut [f32]> {
        let cut = |chunk| {
            tiles
                .split_off_mut(..self.tiles(chunk).len() * size)
                .expect("the slice has all tiles of the plan")
        };
        (0..self.chunks).map(cut).collect()
    }

    /// Runs `work` for every chunk with its piece and returns the results in chunk order. The state
    /// created by `scratch` is reused for many chunks and must not carry information from one to
    /// the next.
    pub(super) fn run<S, T: Send, R: Send>(
        self,
        pieces: Vec<T>,
        scratch: impl Fn() -> S + Sync + Send,
        work: impl Fn(&mut S, usize, T) -> R + Sync + Send,
    ) -> Vec<R> {
        debug_assert_eq!(pieces.len(), self.chunks);
        parallel::map_init(pieces, scratch, work)
    }
}

/// Returns the indices into `self_pairs` whose pairs are within `pairs`.
pub(super) fn diagonal_range(self_pairs: &[usize], pairs: Range<usize>) -> Range<usize> {
    self_pairs.partition_point(|&pair| pair < pairs.start)
        ..self_pairs.partition_point(|&pair| pair < pairs.end)
}

/// Diffusion stack and its partition into tiles.
pub(super) struct Stack<'a> {
    pub(super) isa: Isa,
    pub(super) transform: PairTransform,
    pub(super) rows: Vec<&'a [f32]>,
    pub(super) counts: Option<&'a [f32]>,
    /// Square roots of `counts`: if both factors of a product are scaled by them, the product is
    /// scaled by `counts`.
    pub(super) sqrt_counts: Option<Vec<f32>>,
    pub(super) plan: Plan,
}

impl<'a> Stack<'a> {
    /// Checks the shapes and plans the partition.
    pub(super) fn new(
        isa: Isa,
        transform: PairTransform,
        channels: usize,
        pairs: PairInputs<'a>,
    ) -> Self {
        let PairInputs { stack, counts, .. } = pairs;
        assert!(channels > 0 && stack.len().is_multiple_of(channels), "the stack must be [c, p]");
        let pairs = stack.len() / channels;
        let rows = (0..channels).map(|row| &stack[row * pairs..][..pairs]).collect();
        assert!(counts.is_none_or(|counts| counts.len() == pairs), "counts must be [p]");
        let sqrt_counts = counts.map(|counts| counts.iter().map(|count| count.sqrt()).collect());
        Self { isa, transform, rows, counts, sqrt_counts, plan: Plan::new(pairs) }
    }

    /// Multiplies every pair of a tile by its multiplicity.
    pub(super) fn weight_by_counts(&self, span: TileSpan, tile: &mut [f32]) {
        if let Some(counts) = self.counts {
            tile::scale_pairs(self.isa, tile, &counts[span.start..][..span.len]);
        }
    }

    /// Multiplies every pair of a tile by the square root of its multiplicity, for tiles that are
    /// multiplied by themselves.
    pub(super) fn weight_by_sqrt_counts(&self, span: TileSpan, tile: &mut [f32]) {
        if let Some(sqrt_counts) = &self.sqrt_counts {
            tile::scale_pairs(self.isa, tile, &sqrt_counts[span.start..][..span.len]);
        }
    }

    /// Loads a tile of the stack, transformed and mapped, with its row of ones.
    pub(super) fn load(&self, affine: &Affine, span: TileSpan, out: &mut [f32]) {
        let rows = self.rows.len();
        tile::load_mapped(self.isa, &self.rows, self.transform, affine, span.start, span.len, out);
        tile::fill_ones(&mut out[rows * WIDTH..], span.len);
    }

    /// Computes mean and covariance of the transformed stack.
    pub(super) fn moments(&self) -> Moments {
        let c = self.rows.len();
        let scratch = || (TileGroup::new(c + 1), MomentAccumulator::new(c));
        let parts =
            self.plan.run(vec![(); self.plan.chunks], scratch, |(x, accumulator), chunk, ()| {
                let mut prefetch = Prefetch::new();
                prefetch.add_rows(
                    self.rows.iter().map(|row| row.as_ptr()),
                    self.plan.pairs(chunk).start,
                    GROUP * WIDTH,
                );
                let mut affine =
                    Affine { center: vec![0.0; c], scale: vec![1.0; c], offset: vec![0.0; c] };
                for group in self.plan.groups(chunk) {
                    prefetch.advance();
                    for (slot, &span) in group.iter().enumerate() {
                        let x = x.tile_mut(slot);
                        if span.offset == 0 {
                            self.load(&affine, span, x);
                            affine.center = row_means(x, c, span.len);
                            accumulator.shift.clone_from(&affine.center);
                        }
                        self.load(&affine, span, x);
                        self.weight_by_sqrt_counts(span, x);
                    }
                    accumulator.sums.add(
                        self.isa,
                        &mut prefetch,
                        group.len(),
                        x.tiles(),
                        x.tiles(),
                    );
                }
                accumulator.finish(self.isa)
            });
        Moments::of_chunks(c, parts)
    }
}

/// Tiles of a group, `[GROUP][rows][WIDTH]`.
pub(super) struct TileGroup {
    pub(super) rows: usize,
    pub(super) values: Buffer,
}

impl TileGroup {
    pub(super) fn new(rows: usize) -> Self {
        Self { rows, values: Buffer::zeros(GROUP * rows * WIDTH) }
    }

    pub(super) fn tile(&self, slot: usize) -> &[f32] {
        &self.values[slot * self.rows * WIDTH..][..self.rows * WIDTH]
    }

    pub(super) fn tile_mut(&mut self, slot: usize) -> &mut [f32] {
        &mut self.values[slot * self.rows * WIDTH..][..self.rows * WIDTH]
    }

    pub(super) fn tiles(&self) -> Tiles<'_> {
        Tiles { rows: self.rows, values: &self.values }
    }
}

/// Accumulator for the moments of one chunk, relative to a shift near its mean: squared values are
/// then small, and a channel far from zero keeps its variance.
pub(super) struct MomentAccumulator {
    pub(super) shift: Vec<f32>,
    pub(super) sums: Sums,
}

impl MomentAccumulator {
    pub(super) fn new(channels: usize) -> Self {
        Self { shift: vec![0.0; channels], sums: Sums::symmetric(channels + 1) }
    }

    /// Returns the moments and resets the sums.
    pub(super) fn finish(&mut self, isa: Isa) -> Moments {
        let c = self.shift.len();
        let sums = self.sums.finish(isa);
        let count = sums[(c + 1) * (c + 1) - 1];
        let off = |i: usize| sums[i * (c + 1) + c] / count.max(1.0);
        let mean = (0..c).map(|i| f64::from(self.shift[i]) + off(i)).collect();
        let mut covariance = vec![0.0; c * c];
        for i in 0..c {
            for j in i..c {
                covariance[i * c + j] = sums[i * (c + 1) + j] / count.max(1.0) - off(i) * off(j);
            }
        }
        Moments { count, mean, covariance }
    }
}

/// Returns the mean of each row over the first `len` pairs of a tile.
pub(super) fn row_means(x: &[f32], rows: usize, len: usize) -> Vec<f32> {
    let mean = |row: &[f32]| {
        (row[..len].iter().map(|&value| f64::from(value)).sum::<f64>() / len as f64) as f32
    };
    x.chunks_exact(WIDTH).take(rows).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_chunks_grows_with_the_number_of_pairs() {
        for (pairs, chunks) in
            [(0, 1), (5000, 2), (200_000, 64), (421_925, 64), (1 << 20, 64), (1 << 22, 256)]
        {
            let plan = Plan::new(pairs);
            assert_eq!(plan.chunks, chunks, "{pairs} pairs");
            let covered: usize = (0..chunks).map(|chunk| plan.pairs(chunk).len()).sum();
            assert_eq!(covered, pairs);
        }
    }
}
