//! Seeded parameter initialization in the order in which the model is built.

use burn::module::{Param, ParamId};
use burn::tensor::{DType, Device, Shape, Tensor, TensorData};
use graph_diffuser_data::{RandomStream, SeedTree};

/// Creates parameters from a seeded random stream.
///
/// Burn's initializers draw lazily from a global generator, so that the order of access would
/// change the weights. Here values depend only on the seed and the order in which parameters are
/// created.
#[derive(Debug)]
pub struct ParamInit {
    device: Device,
    dtype: DType,
    stream: RandomStream,
    created: u64,
    /// If `true`, parameters have a shape and no values.
    shapes_only: bool,
}

impl ParamInit {
    /// Creates single-precision parameters on `device` from the stream `init` of `seeds`.
    pub fn new(seeds: SeedTree, device: &Device) -> Self {
        Self::with_dtype(seeds, device, DType::F32)
    }

    /// Creates parameters of the given data type; tests use `F64`.
    pub fn with_dtype(seeds: SeedTree, device: &Device, dtype: DType) -> Self {
        let stream = seeds.stream("init");
        Self { device: device.clone(), dtype, stream, created: 0, shapes_only: false }
    }

    /// Creates parameters that have a shape and no values, so that a model of any size takes almost
    /// no memory. Its parameters can be listed and counted; using their values panics.
    pub fn shapes_only() -> Self {
        let init = Self::new(SeedTree::new(0), &Device::flex());
        Self { shapes_only: true, ..init }
    }

    /// Creates a trainable parameter with values uniform in `[-bound, bound]`.
    pub fn uniform<const D: usize>(&mut self, shape: [usize; D], bound: f64) -> Param<Tensor<D>> {
        self.draw(shape, |stream| bound * (2.0 * stream.uniform() - 1.0))
    }

    /// Creates a trainable parameter with standard normal values.
    pub fn normal<const D: usize>(&mut self, shape: [usize; D]) -> Param<Tensor<D>> {
        self.draw(shape, RandomStream::normal)
    }

    /// Creates a trainable parameter filled with one value.
    pub fn constant<const D: usize>(&mut self, shape: [usize; D], value: f64) -> Param<Tensor<D>> {
        self.draw(shape, |_| value)
    }

    /// Creates a buffer that is saved with the model but not trained, such as a running mean.
    pub fn buffer(&mut self, length: usize, value: f64) -> Param<Tensor<1>> {
        self.constant([length], value).set_require_grad(false)
    }

    fn draw<const D: usize>(
        &mut self,
        shape: [usize; D],
        mut value: impl FnMut(&mut RandomStream) -> f64,
    ) -> Param<Tensor<D>> {
        // Sequential instead of random ids, so that two builds of a model serialize identically.
        self.created += 1;
        let id = ParamId::from(self.created);
        if self.shapes_only {
            let no_values = |_: &Device, _: bool| panic!("the model has shapes only");
            return Param::uninitialized(
                id,
                no_values,
                self.device.clone(),
                true,
                Shape::from(shape),
            );
        }
        let count = shape.iter().product();
        let values: Vec<f64> = (0..count).map(|_| value(&mut self.stream)).collect();
        let data = TensorData::new(values, Shape::from(shape));
        let tensor = Tensor::from_data(data, (&self.device, self.dtype));
        Param::initialized(id, tensor).set_require_grad(true)
    }
}
