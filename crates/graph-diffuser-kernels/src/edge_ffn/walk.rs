//! How pairs are walked: in tiles, tiles in groups, groups in chunks.

use std::ops::Range;

use crate::parallel;
use crate::simd::Isa;
use crate::tile::{self, Affine, Ahead, Buffer, PairTransform, Sums, Tiles, WIDTH};

use super::Pairs;
use super::algebra::Moments;

/// Pieces that the pairs are cut into, for up to as many threads.
pub(super) const MOST_CHUNKS: usize = 64;
/// Pairs of a piece, at least: its sums cost as much as a hundred pairs to collect.
pub(super) const LEAST_PAIRS: usize = 2048;
/// Tiles whose products over pairs are summed at once: as many as the second-level cache holds with ease.
pub(super) const GROUP: usize = 512 / WIDTH;

/// How pairs are cut into tiles and tiles into chunks: by their number alone, never by threads.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) pairs: usize,
    pub(super) tiles: usize,
    pub(super) chunks: usize,
}

/// A tile of pairs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Which tile.
    pub(super) tile: usize,
    /// Its first pair.
    pub(super) start: usize,
    /// Its first pair, counted from the beginning of the chunk.
    pub(super) offset: usize,
    /// Its pairs.
    pub(super) len: usize,
}

impl Plan {
    pub(super) fn new(pairs: usize) -> Self {
        let tiles = pairs.div_ceil(WIDTH);
        Self { pairs, tiles, chunks: (pairs / LEAST_PAIRS).clamp(1, MOST_CHUNKS) }
    }

    pub(super) fn tiles(self, chunk: usize) -> Range<usize> {
        chunk * self.tiles / self.chunks..(chunk + 1) * self.tiles / self.chunks
    }

    pub(super) fn pairs(self, chunk: usize) -> Range<usize> {
        let tiles = self.tiles(chunk);
        tiles.start * WIDTH..self.pairs.min(tiles.end * WIDTH)
    }

    pub(super) fn places(self, chunk: usize) -> impl Iterator<Item = Place> {
        let tiles = self.tiles(chunk);
        let first = tiles.start * WIDTH;
        tiles.map(move |tile| {
            let start = tile * WIDTH;
            Place { tile, start, offset: start - first, len: WIDTH.min(self.pairs - start) }
        })
    }

    /// Places of a chunk, a group at a time.
    pub(super) fn groups(self, chunk: usize) -> Vec<Vec<Place>> {
        let places: Vec<Place> = self.places(chunk).collect();
        places.chunks(GROUP).map(<[Place]>::to_vec).collect()
    }

    /// Cuts every row of `[rows, p]` at the ends of chunks: for each chunk its part of every row.
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

    /// Cuts tiles of `size` numbers at the ends of chunks.
    pub(super) fn cut_tiles(self, mut tiles: &mut [f32], size: usize) -> Vec<&mut [f32]> {
        let cut = |chunk| {
            tiles.split_off_mut(..self.tiles(chunk).len() * size).expect("all tiles are there")
        };
        (0..self.chunks).map(cut).collect()
    }

    /// Does `work` for every chunk, with a piece for each; results are in the order of chunks. What `scratch`
    /// makes is used for many chunks, and must not carry anything from one to the next.
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

/// Which of `self_pairs` are among `pairs`.
pub(super) fn own_of(self_pairs: &[usize], pairs: Range<usize>) -> Range<usize> {
    self_pairs.partition_point(|&pair| pair < pairs.start)
        ..self_pairs.partition_point(|&pair| pair < pairs.end)
}

/// The input, and how it is walked.
pub(super) struct Stack<'a> {
    pub(super) isa: Isa,
    pub(super) transform: PairTransform,
    pub(super) rows: Vec<&'a [f32]>,
    pub(super) counts: Option<&'a [f32]>,
    /// Roots of `counts`: with them on both sides a sum of squares stays one.
    pub(super) roots: Option<Vec<f32>>,
    pub(super) plan: Plan,
}

impl<'a> Stack<'a> {
    pub(super) fn new(
        isa: Isa,
        transform: PairTransform,
        channels: usize,
        pairs: Pairs<'a>,
    ) -> Self {
        let Pairs { stack, counts, .. } = pairs;
        assert!(channels > 0 && stack.len().is_multiple_of(channels), "the stack is [c, p]");
        let pairs = stack.len() / channels;
        let rows = (0..channels).map(|row| &stack[row * pairs..][..pairs]).collect();
        assert!(counts.is_none_or(|counts| counts.len() == pairs), "one count a pair");
        let roots = counts.map(|counts| counts.iter().map(|count| count.sqrt()).collect());
        Self { isa, transform, rows, counts, roots, plan: Plan::new(pairs) }
    }

    /// Counts every pair of a tile as often as it does, where that is not once.
    pub(super) fn weigh(&self, place: Place, tile: &mut [f32]) {
        if let Some(counts) = self.counts {
            tile::weigh(self.isa, tile, &counts[place.start..][..place.len]);
        }
    }

    /// The same for a tile that will be multiplied by itself.
    pub(super) fn weigh_by_root(&self, place: Place, tile: &mut [f32]) {
        if let Some(roots) = &self.roots {
            tile::weigh(self.isa, tile, &roots[place.start..][..place.len]);
        }
    }

    pub(super) fn load(&self, affine: &Affine, place: Place, out: &mut [f32]) {
        let rows = self.rows.len();
        tile::load_mapped(
            self.isa,
            &self.rows,
            self.transform,
            affine,
            place.start,
            place.len,
            out,
        );
        tile::fill_ones(&mut out[rows * WIDTH..], place.len);
    }

    /// Mean and covariance of the transformed stack.
    pub(super) fn moments(&self) -> Moments {
        let c = self.rows.len();
        let scratch = || (Group::new(c + 1), Gather::new(c));
        let parts = self.plan.run(vec![(); self.plan.chunks], scratch, |(x, gather), chunk, ()| {
            let mut ahead = Ahead::new();
            ahead.add_rows(
                self.rows.iter().map(|row| row.as_ptr()),
                self.plan.pairs(chunk).start,
                GROUP * WIDTH,
            );
            let mut affine =
                Affine { centre: vec![0.0; c], scale: vec![1.0; c], offset: vec![0.0; c] };
            for group in self.plan.groups(chunk) {
                ahead.turn();
                for (slot, &place) in group.iter().enumerate() {
                    let x = x.tile_mut(slot);
                    if place.offset == 0 {
                        self.load(&affine, place, x);
                        affine.centre = row_means(x, c, place.len);
                        gather.shift.clone_from(&affine.centre);
                    }
                    self.load(&affine, place, x);
                    self.weigh_by_root(place, x);
                }
                gather.sums.add(self.isa, &mut ahead, group.len(), x.tiles(), x.tiles());
            }
            gather.finish(self.isa)
        });
        Moments::of_chunks(c, parts)
    }
}

/// The tiles of a group, `[GROUP][rows][WIDTH]`.
pub(super) struct Group {
    pub(super) rows: usize,
    pub(super) values: Buffer,
}

impl Group {
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

/// Collects the moments of one chunk, about a shift near its mean: what is squared is then small, and
/// a channel far from zero keeps its variance.
pub(super) struct Gather {
    pub(super) shift: Vec<f32>,
    pub(super) sums: Sums,
}

impl Gather {
    pub(super) fn new(channels: usize) -> Self {
        Self { shift: vec![0.0; channels], sums: Sums::symmetric(channels + 1) }
    }

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

/// Mean of each row over the first `len` pairs of a tile.
pub(super) fn row_means(x: &[f32], rows: usize, len: usize) -> Vec<f32> {
    let mean = |row: &[f32]| {
        (row[..len].iter().map(|&value| f64::from(value)).sum::<f64>() / len as f64) as f32
    };
    x.chunks_exact(WIDTH).take(rows).map(mean).collect()
}
