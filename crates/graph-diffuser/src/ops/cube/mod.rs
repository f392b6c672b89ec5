//! Integration of GPU kernels into Burn as differentiable tensor operations.
//!
//! A [`CubeOp`] launches kernels of `graph-diffuser-cube` in its forward and backward pass. It is
//! registered in the autodiff graph like a [`SliceOp`](super::fused::SliceOp) of the CPU; one
//! implementation serves all runtimes of CubeCL.

mod adamw;
mod attention;
mod batch_norm;
mod diffusion_stack;
mod edge_ffn;
mod gated_gcn_aggregate;
mod gine_aggregate;

use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, OnceLock};

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Device, Shape, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use graph_diffuser_cube::{Buffer, Client};

use super::fused::{self, DynCall, Fused, Gradient, Input, Inputs, Output, SavedInput, Slices};

pub(super) use adamw::{adamw, clipped_adamw};
pub(super) use attention::{attention, supports_attention};
pub(super) use batch_norm::batch_norm;
pub(super) use diffusion_stack::diffusion_stack;
pub(super) use edge_ffn::{edge_ffn, supports_edge_ffn};
pub(super) use gated_gcn_aggregate::gated_gcn_aggregate;
pub(super) use gine_aggregate::gine_aggregate;

/// Returns whether GPU kernels can run on `tensor`: single precision on a GPU.
pub(super) fn can_run<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32 && tensor.device().inner() != Device::flex()
}

/// Output tensor of an operation.
#[derive(Debug)]
pub(super) struct CubeOutput {
    values: Buffer,
    shape: Vec<usize>,
}

/// Operation on buffers with a hand-written backward pass.
pub(super) trait CubeOp: Debug + Send + Sync + 'static {
    /// Values that the forward pass saves for the backward pass.
    type Saved: Send + Sync;

    /// Returns the outputs and the values saved for the backward pass.
    fn forward(&self, client: &Client, inputs: &[Buffer]) -> (Vec<CubeOutput>, Self::Saved);

    /// Returns whether the backward pass reads an input.
    ///
    /// Inputs that it does not read are not saved, and are empty buffers in the backward pass.
    fn reads_input(&self, _index: usize) -> bool {
        true
    }

    /// Returns whether the backward pass reads the outputs, which are then saved.
    fn reads_outputs(&self) -> bool {
        false
    }

    /// Computes the gradients of the inputs from those of the outputs; outputs without effect on
    /// the loss have none. Trailing inputs without gradients may be left out.
    fn backward(
        &self,
        _client: &Client,
        _inputs: &[Buffer],
        _outputs: &[Buffer],
        _saved: &Self::Saved,
        _gradients: &[Option<Buffer>],
    ) -> Vec<Buffer> {
        unreachable!("{self:?} has no backward pass")
    }
}

/// Operation without effect that saves the memory of its device.
#[derive(Debug)]
struct DeviceMemory;

impl CubeOp for DeviceMemory {
    type Saved = Option<u64>;

    fn forward(&self, client: &Client, inputs: &[Buffer]) -> (Vec<CubeOutput>, Option<u64>) {
        let output = CubeOutput { values: inputs[0].clone(), shape: vec![inputs[0].len()] };
        (vec![output], graph_diffuser_cube::device_memory(client))
    }
}

/// Returns the memory of a GPU in bytes, if its driver reports it.
pub(super) fn device_memory(device: &Device) -> Option<u64> {
    let call = Arc::new(CubeCall { op: DeviceMemory, saved: OnceLock::new() });
    let input = Tensor::<1>::zeros([1], (device, DType::F32));
    let _: Vec<Tensor<1>> = fused::apply_call([input], call.clone());
    *call.saved.get().expect("the forward pass has saved its values")
}

/// Returns the gradient of the only output of an operation.
fn single(gradients: &[Option<Buffer>]) -> &Buffer {
    gradients[0].as_ref().expect("the single output has a gradient")
}

/// Applies `op` to up to four inputs and tracks the outputs in the autodiff graph.
fn apply<O: CubeOp, I: Into<Input>, const D: usize>(
    op: O,
    inputs: impl IntoIterator<Item = I>,
) -> Vec<Tensor<D>> {
    let call = Arc::new(CubeCall { op, saved: OnceLock::new() });
    fused::apply_call(inputs, call)
}

/// Operation and the values that its forward pass has saved.
struct CubeCall<O: CubeOp> {
    op: O,
    saved: OnceLock<O::Saved>,
}

impl<O: CubeOp> Debug for CubeCall<O> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.op.fmt(formatter)
    }
}

/// [`CubeCall`] of any operation.
pub(super) trait DynCubeCall {
    fn forward(&self, client: &Client, inputs: &[Buffer]) -> Vec<CubeOutput>;
    fn backward(
        &self,
        client: &Client,
        inputs: &[Buffer],
        outputs: &[Buffer],
        gradients: &[Option<Buffer>],
    ) -> Vec<Buffer>;
}

impl<O: CubeOp> DynCubeCall for CubeCall<O> {
    fn forward(&self, client: &Client, inputs: &[Buffer]) -> Vec<CubeOutput> {
        let (outputs, saved) = self.op.forward(client, inputs);
        assert!(self.saved.set(saved).is_ok(), "the forward pass runs once");
        outputs
    }

    fn backward(
        &self,
        client: &Client,
        inputs: &[Buffer],
        outputs: &[Buffer],
        gradients: &[Option<Buffer>],
    ) -> Vec<Buffer> {
        let saved = self.saved.get().expect("the forward pass has saved its values");
        self.op.backward(client, inputs, outputs, saved, gradients)
    }
}

impl<O: CubeOp> DynCall for CubeCall<O> {
    fn on_cube(&self) -> Option<&dyn DynCubeCall> {
        Some(self)
    }

    fn forward(&self, _: &[&[f32]]) -> Vec<Output> {
        unreachable!("{self:?} runs on a GPU")
    }

    fn reads_input(&self, index: usize) -> bool {
        self.op.reads_input(index)
    }

    fn reads_outputs(&self) -> bool {
        self.op.reads_outputs()
    }

    fn backward(&self, _: &[&[f32]], _: &[&[f32]], _: Vec<Option<Gradient>>) -> Vec<Gradient> {
        unreachable!("{self:?} runs on a GPU")
    }
}

/// Returns the GPU form of an operation.
fn on_cube(call: &dyn DynCall) -> &dyn DynCubeCall {
    call.on_cube().unwrap_or_else(|| panic!("{call:?} runs on the CPU"))
}

/// Returns the memory of a contiguous tensor.
fn buffer(tensor: &CubeTensor) -> Buffer {
    let elements = tensor.shape().num_elements();
    Buffer::new(tensor.handle.clone(), elements)
}

/// Returns a tensor of the memory of a buffer, on the device of `like`.
fn tensor(like: &CubeTensor, values: Buffer, shape: Shape) -> CubeTensor {
    assert_eq!(values.len(), shape.num_elements(), "the shape is that of the values");
    let (client, device) = (like.client.clone(), like.device.clone());
    CubeTensor::new_contiguous(client, device, shape, values.into_handle(), DType::F32)
}

impl Fused for CubeBackend {
    fn fused(inputs: Inputs<Self>, call: Arc<dyn DynCall>) -> Vec<CubeTensor> {
        match inputs {
            Inputs::One(a) => Self::forward(&*call, &[a]),
            Inputs::Two(a, b) => Self::forward(&*call, &[a, b]),
            Inputs::Three(a, b, c) => Self::forward(&*call, &[a, b, c]),
            Inputs::Four(a, b, c, d) => Self::forward(&*call, &[a, b, c, d]),
        }
    }
}

impl Slices for CubeBackend {
    fn forward(call: &dyn DynCall, inputs: &[CubeTensor]) -> Vec<CubeTensor> {
        let contiguous: Vec<CubeTensor> = inputs.iter().cloned().map(into_contiguous).collect();
        let buffers: Vec<Buffer> = contiguous.iter().map(buffer).collect();
        let outputs = on_cube(call).forward(&inputs[0].client, &buffers).into_iter();
        outputs
            .map(|CubeOutput { values, shape }| tensor(&inputs[0], values, Shape::from(shape)))
            .collect()
    }

    fn backward(
        call: &dyn DynCall,
        inputs: &[SavedInput<Self>],
        outputs: &[CubeTensor],
        gradients: Vec<Option<CubeTensor>>,
    ) -> Vec<CubeTensor> {
        let saved = inputs.iter().find_map(|input| input.values.as_ref());
        let like = saved.or(outputs.first()).expect("the backward pass reads a tensor").clone();
        let buffers: Vec<Buffer> = inputs
            .iter()
            .map(|input| match &input.values {
                Some(values) => buffer(&into_contiguous(values.clone())),
                None => Buffer::empty(&like.client, 0),
            })
            .collect();
        let outputs: Vec<Buffer> =
            outputs.iter().cloned().map(|output| buffer(&into_contiguous(output))).collect();
        let gradients: Vec<Option<Buffer>> = gradients
            .into_iter()
            .map(|gradient| gradient.map(|gradient| buffer(&into_contiguous(gradient))))
            .collect();
        let gradients = on_cube(call).backward(&like.client, &buffers, &outputs, &gradients);
        gradients
            .into_iter()
            .zip(inputs)
            .map(|(gradient, input)| tensor(&like, gradient, input.shape.clone()))
            .collect()
    }

    fn placeholder(like: &CubeTensor) -> CubeTensor {
        let (client, device) = (like.client.clone(), like.device.clone());
        empty_device_contiguous_dtype(client, device, Shape::from([1]), DType::F32)
    }
}
