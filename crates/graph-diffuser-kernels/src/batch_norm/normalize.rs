//! The forward: by the statistics of the batch, or by those of other batches.

use std::mem::MaybeUninit;

use super::affine::{Affine, Channels};
use super::statistics::measure;
use super::{Block, Blockwise, CHUNK, Statistics, by_blocks, rows, run_all};
use crate::fresh::Fresh;
use crate::simd::{Dropout, Isa, Kernel, Simd};

/// What is added to the rows before they are normalised: a residual branch.
#[derive(Debug, Clone, Copy)]
pub struct Branch<'a> {
    /// `[rows, channels]`
    pub values: &'a [f32],
    /// What drops some of them first.
    pub dropout: Option<Dropout>,
}

/// What [`forward`] makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalized {
    /// `[rows, channels]`
    pub y: Vec<f32>,
    /// The rows with their branch, where there was one: these are then the `x` of [`backward`](super::backward).
    pub sum: Option<Vec<f32>>,
    /// Those of the batch.
    pub statistics: Statistics,
}

/// Normalises by the statistics of the batch, which are zeros if it has no rows.
///
/// # Shapes
/// - `x`: `[rows, channels]`
/// - `gamma`, `beta`: `[channels]`
pub fn forward(
    isa: Isa,
    x: &[f32],
    branch: Option<Branch<'_>>,
    gamma: &[f32],
    beta: &[f32],
    relu: bool,
) -> Normalized {
    let channels = gamma.len();
    let (sum, statistics) = match branch {
        None => (None, measure(isa, x, channels, None)),
        Some(branch) => {
            let mut sum = Fresh::new(x.len());
            let statistics = measure(isa, x, channels, Some((branch, sum.room())));
            // SAFETY: `measure` writes the sum of every row.
            (Some(unsafe { sum.written() }), statistics)
        }
    };
    let affine = Affine::new(&statistics, gamma, beta);
    let y = normalize(isa, sum.as_deref().unwrap_or(x), None, channels, &affine, relu);
    Normalized { y, sum, statistics }
}

/// Normalises by statistics of other batches; nothing is dropped.
///
/// # Shapes
/// - `x`, `branch`, the result: `[rows, channels]`
/// - `gamma`, `beta`: `[channels]`
pub fn evaluate(
    isa: Isa,
    x: &[f32],
    branch: Option<&[f32]>,
    statistics: &Statistics,
    gamma: &[f32],
    beta: &[f32],
    relu: bool,
) -> Vec<f32> {
    normalize(isa, x, branch, gamma.len(), &Affine::new(statistics, gamma, beta), relu)
}

fn normalize(
    isa: Isa,
    x: &[f32],
    branch: Option<&[f32]>,
    channels: usize,
    affine: &Affine,
    relu: bool,
) -> Vec<f32> {
    rows(x, channels);
    assert!(
        branch.is_none_or(|branch| branch.len() == x.len()),
        "one number of the branch for each"
    );
    assert_eq!(affine.scale.len(), channels, "one scale a channel");
    let chunk = CHUNK * channels;
    let mut y = Fresh::new(x.len());
    let tasks = x.chunks(chunk).zip(y.room().chunks_mut(chunk)).enumerate().collect();
    run_all(x.len(), tasks, |(at, (x, y))| {
        let branch = branch.map(|branch| &branch[at * chunk..at * chunk + x.len()]);
        isa.run(Normalize { x, branch, affine, relu, y });
    });
    // SAFETY: `Normalize` writes every row.
    unsafe { y.written() }
}

struct Normalize<'a> {
    x: &'a [f32],
    branch: Option<&'a [f32]>,
    affine: &'a Affine,
    relu: bool,
    y: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Normalize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        by_blocks(simd, self.affine.scale.len(), self);
    }
}

impl Blockwise for Normalize<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize>(&mut self, simd: S, block: Block) {
        let floor = simd.splat(if self.relu { 0.0 } else { f32::NEG_INFINITY });
        // SAFETY: `x` and `y` are equally long, whole rows of the channels.
        unsafe {
            let affine = Channels::<S, W>::load(simd, self.affine, block);
            for at in (0..self.x.len()).step_by(block.channels) {
                for v in 0..W {
                    let mut x = block.load::<S, W>(simd, self.x.as_ptr().add(at), v);
                    if let Some(branch) = self.branch {
                        x = simd.add(x, block.load::<S, W>(simd, branch.as_ptr().add(at), v));
                    }
                    let centred = affine.centre(simd, x, v);
                    // The value comes second: it is what `max` returns if it is not a number.
                    let value = simd.max(floor, affine.apply(simd, centred, v));
                    block.store::<S, W>(simd, self.y.as_mut_ptr().cast::<f32>().add(at), v, value);
                }
            }
        }
    }
}
