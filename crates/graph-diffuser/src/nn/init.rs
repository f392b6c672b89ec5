//! Parameters drawn from the run's seed, in the order in which the model is built.

use burn::module::{Param, ParamId};
use burn::tensor::{DType, Device, Shape, Tensor, TensorData};
use graph_diffuser_data::{RandomStream, SeedTree};

/// Makes parameters, one after another.
///
/// The framework's own initialisers draw on first use from a global generator, so a change of
/// access order would change the weights. Here the order of building decides, and nothing else.
#[derive(Debug)]
pub struct ParamInit {
    device: Device,
    dtype: DType,
    stream: RandomStream,
    made: u64,
}

impl ParamInit {
    /// Single-precision parameters on `device`, from the stream `init` of `seeds`.
    pub fn new(seeds: SeedTree, device: &Device) -> Self {
        Self::with_dtype(seeds, device, DType::F32)
    }

    /// The same in another precision; tests use `F64`.
    pub fn with_dtype(seeds: SeedTree, device: &Device, dtype: DType) -> Self {
        Self { device: device.clone(), dtype, stream: seeds.stream("init"), made: 0 }
    }

    /// A trainable parameter with every value uniform in `[-bound, bound]`.
    pub fn uniform<const D: usize>(&mut self, shape: [usize; D], bound: f64) -> Param<Tensor<D>> {
        self.draw(shape, |stream| bound * (2.0 * stream.uniform() - 1.0))
    }

    /// A trainable parameter with every value standard normal.
    pub fn normal<const D: usize>(&mut self, shape: [usize; D]) -> Param<Tensor<D>> {
        self.draw(shape, RandomStream::normal)
    }

    /// A trainable parameter that starts at one value everywhere.
    pub fn constant<const D: usize>(&mut self, shape: [usize; D], value: f64) -> Param<Tensor<D>> {
        self.draw(shape, |_| value)
    }

    /// A value that is saved with the model but not trained: a running statistic.
    pub fn buffer(&mut self, length: usize, value: f64) -> Param<Tensor<1>> {
        self.constant([length], value).set_require_grad(false)
    }

    fn draw<const D: usize>(
        &mut self,
        shape: [usize; D],
        mut value: impl FnMut(&mut RandomStream) -> f64,
    ) -> Param<Tensor<D>> {
        let count = shape.iter().product();
        let values: Vec<f64> = (0..count).map(|_| value(&mut self.stream)).collect();
        let data = TensorData::new(values, Shape::from(shape));
        let tensor = Tensor::from_data(data, (&self.device, self.dtype));
        // Numbered, not random, so that two builds of one model write the same bytes.
        self.made += 1;
        Param::initialized(ParamId::from(self.made), tensor).set_require_grad(true)
    }
}
