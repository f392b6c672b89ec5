//! Sizes that are compiled into the kernels, and locations of parameters and statistics.

use cubecl::prelude::*;

use super::{CubeEdgeFfn, CubePairInputs, CubePairTransform};
use crate::moments::NormChannels;

/// Bytes of shared memory that WebGPU guarantees.
const SHARED_BYTES: usize = 16_384;

/// Largest number of chunks of pairs, which are summed by separate cubes.
///
/// Estimated: enough cubes for the largest current GPUs, and few compared to the pairs of a batch
/// that takes long. No benchmark has been run on a GPU.
const MAX_CHUNKS: usize = 1024;

/// Options that are compiled into the kernels.
///
/// Sizes are arguments of the kernels: loops of constant length would be unrolled, and a shader of
/// several nested ones compiles for minutes on a software driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FfnShape {
    /// Units of a cube and pairs of a tile.
    pub(super) units: usize,
    /// Distance of the rows of a tile: one more than `units`, so that neighboring rows are in
    /// different banks of shared memory.
    pub(super) stride: usize,
    /// Number of values of a tile.
    pub(super) tile: usize,
    pub(super) log: bool,
    pub(super) root: bool,
    pub(super) counts: bool,
}

impl FfnShape {
    pub(super) fn units(&self) -> CubeDim {
        CubeDim::new_1d(self.units as u32)
    }
}

impl CubeEdgeFfn {
    /// Returns the largest number of units whose tile fits into shared memory.
    pub(super) fn tile_units(&self) -> Option<usize> {
        [64, 32, 16].into_iter().find(|units| 4 * self.rows() * (units + 1) <= SHARED_BYTES)
    }

    /// Returns the number of rows of a tile: virtual edge, hidden units and their gradients.
    fn rows(&self) -> usize {
        self.channels + 2 * self.hidden
    }

    /// Returns the first parameter of layer `layer`; for the number of layers, of the projections.
    pub(super) fn layer_start(&self, layer: usize) -> usize {
        let (c, hidden) = (self.channels, self.hidden);
        2 * c + layer * (2 * hidden * c + 3 * hidden + c)
    }

    /// Returns the first parameter of the position projections.
    pub(super) fn position_start(&self) -> usize {
        self.layer_start(self.layers)
    }

    /// Returns the first parameter whose gradient is a sum of the pass before layer `layer`: that
    /// of the norm of the stack, or what follows the first linear layer in layer `layer - 1`.
    pub(super) fn before(&self, layer: usize) -> usize {
        match layer {
            0 => 0,
            _ => self.first_linear_end(layer - 1),
        }
    }

    /// Returns the end of the parameters of the first linear layer of layer `layer`.
    pub(super) fn first_linear_end(&self, layer: usize) -> usize {
        self.layer_start(layer) + self.hidden * (self.channels + 1)
    }

    /// Returns the channels of batch norm `norm`: that of the stack, then those of the layers.
    pub(super) fn norm(&self, norm: usize) -> NormChannels {
        match norm {
            0 => NormChannels { start: 0, count: self.channels },
            _ => {
                NormChannels { start: self.channels + (norm - 1) * self.hidden, count: self.hidden }
            }
        }
    }

    /// Returns the shape for checked inputs.
    pub(super) fn shape(&self, inputs: &CubePairInputs<'_>) -> FfnShape {
        let pairs = inputs.stack.len() / self.channels;
        assert!(self.supports(pairs), "unsupported network: {self:?} for {pairs} pairs");
        assert_eq!(inputs.stack.len(), self.channels * pairs, "stack must be [c, p]");
        assert_eq!(inputs.parameters.len(), self.num_parameters(), "parameters of this network");
        assert!(inputs.counts.is_none_or(|counts| counts.len() == pairs), "one count per pair");
        let units = self.tile_units().expect("the network is supported");
        FfnShape {
            units,
            stride: units + 1,
            tile: (self.rows() * (units + 1)).next_power_of_two().max(SHARED_BYTES / 8),
            log: matches!(self.transform, CubePairTransform::Log { .. }),
            root: self.transform == CubePairTransform::SignedSquareRoot,
            counts: inputs.counts.is_some(),
        }
    }

    /// Returns the sizes of a batch as arguments of a kernel.
    pub(super) fn scalars(&self, pairs: usize) -> PairScalarsLaunch {
        let units = self.tile_units().expect("the network is supported");
        PairScalarsLaunch::new(
            pairs as u32,
            Chunks::new(pairs, units).tiles_per_chunk as u32,
            self.channels as u32,
            self.hidden as u32,
            self.layers as u32,
            self.heads as u32,
            self.scores() as u32,
            self.eps(),
        )
    }

    /// Returns the offset of the logarithm.
    fn eps(&self) -> f32 {
        match self.transform {
            CubePairTransform::Log { eps } => eps,
            CubePairTransform::None | CubePairTransform::SignedSquareRoot => 0.0,
        }
    }
}

/// Chunks of tiles of pairs; the cube of a chunk adds the sums of its tiles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunks {
    pub(super) count: usize,
    pub(super) tiles_per_chunk: usize,
}

impl Chunks {
    pub(super) fn new(pairs: usize, units: usize) -> Self {
        let tiles = pairs.div_ceil(units);
        let tiles_per_chunk = tiles.div_ceil(MAX_CHUNKS);
        Self { count: tiles.div_ceil(tiles_per_chunk), tiles_per_chunk }
    }

    pub(super) fn cubes(&self) -> CubeCount {
        CubeCount::new_1d(self.count as u32)
    }
}

/// Numbers that all passes depend on.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct PairScalars {
    /// Number of pairs of the batch.
    pub(super) num_pairs: u32,
    pub(super) tiles_per_chunk: u32,
    pub(super) channels: u32,
    pub(super) hidden: u32,
    pub(super) layers: u32,
    pub(super) heads: u32,
    /// Number of scores of a pair.
    pub(super) scores: u32,
    /// Offset of the logarithm.
    pub(super) eps: f32,
}

/// Returns the first parameter of layer `layer`; for the number of layers, of the projections.
#[cube]
pub(super) fn layer_start(scalars: &PairScalars, layer: usize) -> usize {
    let (channels, hidden) = (scalars.channels as usize, scalars.hidden as usize);
    2 * channels + layer * (2 * hidden * channels + 3 * hidden + channels)
}

/// Returns the scale of the batch norm of layer `layer`; shift, second weight and bias follow.
#[cube]
pub(super) fn gamma_start(scalars: &PairScalars, layer: usize) -> usize {
    layer_start(scalars, layer) + scalars.hidden as usize * (scalars.channels as usize + 1)
}

/// Returns the number of channels of all batch norms.
#[cube]
pub(super) fn norm_channels(scalars: &PairScalars) -> usize {
    scalars.channels as usize + scalars.layers as usize * scalars.hidden as usize
}
