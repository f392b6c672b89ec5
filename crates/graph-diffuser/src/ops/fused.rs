//! Integration of slice kernels into Burn as differentiable tensor operations.
//!
//! A [`SliceOp`] maps slices to vectors in its forward and backward pass. This module contains all
//! framework-specific code: dispatch to the CPU backend, registration in the autodiff graph, and
//! operations with several outputs.

use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, OnceLock};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, Dispatch, DispatchTensor, ExtensionType, Flex, TensorMetadata,
    backend_extension,
};
use burn::tensor::{Bytes, DType, Device, Shape, Tensor};

/// Output tensor of an operation.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) values: Vec<f32>,
    pub(crate) shape: Vec<usize>,
}

impl Output {
    /// Creates an output `[rows, width]`.
    pub(crate) fn rows(values: Vec<f32>, width: usize) -> Self {
        Self { shape: vec![values.len() / width, width], values }
    }
}

/// Gradient of an input or output of an operation; clones share their values.
#[derive(Debug, Clone)]
pub(crate) struct Gradient(FlexTensor);

impl From<Vec<f32>> for Gradient {
    fn from(values: Vec<f32>) -> Self {
        let shape = Shape::from([values.len()]);
        Self(tensor(values, shape))
    }
}

impl AsRef<[f32]> for Gradient {
    fn as_ref(&self) -> &[f32] {
        self.as_slice()
    }
}

impl Gradient {
    pub(crate) fn as_slice(&self) -> &[f32] {
        slice(&self.0)
    }
}

/// Operation on slices with a hand-written backward pass.
pub(crate) trait SliceOp: Debug + Send + Sync + 'static {
    /// Values that the forward pass saves for the backward pass.
    type Saved: Send + Sync;

    /// Returns the outputs and the values saved for the backward pass.
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Self::Saved);

    /// Returns whether the backward pass reads an input.
    ///
    /// Inputs that it does not read are not saved, and are empty slices in the backward pass.
    fn reads_input(&self, _index: usize) -> bool {
        true
    }

    /// Returns whether the backward pass reads the outputs, which are then saved.
    fn reads_outputs(&self) -> bool {
        false
    }

    /// Computes the gradients of all inputs.
    ///
    /// Operations that are only used in evaluation have no backward pass.
    fn backward(
        &self,
        _inputs: &[&[f32]],
        _outputs: &[&[f32]],
        _saved: &Self::Saved,
        _gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        unreachable!("{self:?} has no backward pass")
    }
}

/// Returns the gradient of the only output of an operation.
pub(crate) fn single(gradients: &[Option<Gradient>]) -> &[f32] {
    gradients[0].as_ref().expect("the single output has a gradient").as_slice()
}

/// Returns whether kernels can run on `tensor`: single precision on the CPU backend.
pub(crate) fn can_run<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32 && tensor.device().inner() == Device::flex()
}

/// Returns the memory of a device in bytes, if it is a GPU whose driver reports it.
pub(crate) fn device_memory(device: &Device) -> Option<u64> {
    #[cfg(feature = "cube")]
    if is_on_gpu(device) {
        return super::cube::device_memory(&device.clone().inner());
    }
    let _ = device;
    None
}

/// Returns whether a device is a GPU, for whose results the host has to wait.
pub(crate) fn is_on_gpu(device: &Device) -> bool {
    cfg!(feature = "cube") && device.clone().inner() != Device::flex()
}

/// Input tensor of any rank. Operations see slices, so that a bias needs no second dimension, which
/// would be another node of the autodiff graph.
pub(crate) struct Input(DispatchTensor);

impl<const D: usize> From<Tensor<D>> for Input {
    fn from(tensor: Tensor<D>) -> Self {
        Self(tensor.into_dispatch())
    }
}

/// Applies `op` to up to four inputs and tracks the outputs in the autodiff graph.
pub(crate) fn apply<O: SliceOp, I: Into<Input>>(
    op: O,
    inputs: impl IntoIterator<Item = I>,
) -> (Vec<Tensor<2>>, Arc<Call<O>>) {
    let call = Arc::new(Call { op, saved: OnceLock::new() });
    (apply_call(inputs, call.clone()), call)
}

/// Applies the operation of `call` and tracks the outputs in the autodiff graph.
pub(super) fn apply_call<I: Into<Input>, const D: usize>(
    inputs: impl IntoIterator<Item = I>,
    call: Arc<dyn DynCall>,
) -> Vec<Tensor<D>> {
    let inputs = Inputs::new(inputs.into_iter().map(|input| input.into().0).collect());
    Dispatch::fused(inputs, call).into_iter().map(Tensor::from_dispatch).collect()
}

/// Applies an operation with a single output.
pub(crate) fn apply_single<O: SliceOp, I: Into<Input>>(
    op: O,
    inputs: impl IntoIterator<Item = I>,
) -> Tensor<2> {
    apply(op, inputs).0.remove(0)
}

/// Operation and the values that its forward pass has saved.
pub(crate) struct Call<O: SliceOp> {
    op: O,
    saved: OnceLock<O::Saved>,
}

impl<O: SliceOp> Call<O> {
    /// Returns the values saved by the forward pass.
    pub(crate) fn saved(&self) -> &O::Saved {
        self.saved.get().expect("the forward pass has saved its values")
    }
}

impl<O: SliceOp> Debug for Call<O> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.op.fmt(formatter)
    }
}

/// [`Call`] of any operation.
pub(crate) trait DynCall: Debug + Send + Sync {
    /// Returns the operation on buffers of a GPU, if it is one.
    #[cfg(feature = "cube")]
    fn on_cube(&self) -> Option<&dyn super::cube::DynCubeCall> {
        None
    }
    fn forward(&self, inputs: &[&[f32]]) -> Vec<Output>;
    fn reads_input(&self, index: usize) -> bool;
    fn reads_outputs(&self) -> bool;
    fn backward(
        &self,
        inputs: &[&[f32]],
        outputs: &[&[f32]],
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient>;
}

impl<O: SliceOp> DynCall for Call<O> {
    fn forward(&self, inputs: &[&[f32]]) -> Vec<Output> {
        let (outputs, saved) = self.op.forward(inputs);
        assert!(self.saved.set(saved).is_ok(), "the forward pass runs once");
        outputs
    }

    fn reads_input(&self, index: usize) -> bool {
        self.op.reads_input(index)
    }

    fn reads_outputs(&self) -> bool {
        self.op.reads_outputs()
    }

    fn backward(
        &self,
        inputs: &[&[f32]],
        outputs: &[&[f32]],
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient> {
        self.op.backward(inputs, outputs, self.saved(), gradients)
    }
}

/// Input tensors of an operation.
#[derive(ExtensionType)]
pub(crate) enum Inputs<B: Backend> {
    One(FloatTensor<B>),
    Two(FloatTensor<B>, FloatTensor<B>),
    Three(FloatTensor<B>, FloatTensor<B>, FloatTensor<B>),
    Four(FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, FloatTensor<B>),
}

impl<B: Backend> Inputs<B> {
    fn new(tensors: Vec<FloatTensor<B>>) -> Self {
        let count = tensors.len();
        let mut tensors = tensors.into_iter();
        match [(); 4].map(|()| tensors.next()) {
            [Some(a), None, None, None] => Self::One(a),
            [Some(a), Some(b), None, None] => Self::Two(a, b),
            [Some(a), Some(b), Some(c), None] => Self::Three(a, b, c),
            [Some(a), Some(b), Some(c), Some(d)] if count == 4 => Self::Four(a, b, c, d),
            _ => panic!("unsupported number of inputs: {count}"),
        }
    }
}

/// Backends that run fused operations.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub(crate) trait Fused: Backend {
    fn fused(
        #[extension_type] inputs: Inputs<Self>,
        call: Arc<dyn DynCall>,
    ) -> Vec<FloatTensor<Self>>;
}

impl Fused for Flex {
    fn fused(inputs: Inputs<Self>, call: Arc<dyn DynCall>) -> Vec<FlexTensor> {
        match inputs {
            Inputs::One(a) => Self::forward(&*call, &[a]),
            Inputs::Two(a, b) => Self::forward(&*call, &[a, b]),
            Inputs::Three(a, b, c) => Self::forward(&*call, &[a, b, c]),
            Inputs::Four(a, b, c, d) => Self::forward(&*call, &[a, b, c, d]),
        }
    }
}

impl<B: Slices, C: CheckpointStrategy> Fused for Autodiff<B, C> {
    fn fused(inputs: Inputs<Self>, call: Arc<dyn DynCall>) -> Vec<FloatTensor<Self>> {
        match inputs {
            Inputs::One(a) => tracked::<B, C, 1>([a], call),
            Inputs::Two(a, b) => tracked::<B, C, 2>([a, b], call),
            Inputs::Three(a, b, c) => tracked::<B, C, 3>([a, b, c], call),
            Inputs::Four(a, b, c, d) => tracked::<B, C, 4>([a, b, c, d], call),
        }
    }
}

/// Backend whose tensors can be read as slices.
pub(crate) trait Slices: Backend {
    fn forward(call: &dyn DynCall, inputs: &[FloatTensor<Self>]) -> Vec<FloatTensor<Self>>;
    fn backward(
        call: &dyn DynCall,
        inputs: &[SavedInput<Self>],
        outputs: &[FloatTensor<Self>],
        gradients: Vec<Option<FloatTensor<Self>>>,
    ) -> Vec<FloatTensor<Self>>;
    /// Returns a tensor of one element on the device of `like`, which represents an operation with
    /// several outputs.
    fn placeholder(like: &FloatTensor<Self>) -> FloatTensor<Self>;
}

impl Slices for Flex {
    fn forward(call: &dyn DynCall, inputs: &[FlexTensor]) -> Vec<FlexTensor> {
        let inputs: Vec<FlexTensor> = inputs.iter().map(contiguous).collect();
        let outputs = call.forward(&slices(&inputs)).into_iter();
        outputs.map(|output| tensor(output.values, Shape::from(output.shape))).collect()
    }

    fn backward(
        call: &dyn DynCall,
        inputs: &[SavedInput<Self>],
        outputs: &[FlexTensor],
        gradients: Vec<Option<FlexTensor>>,
    ) -> Vec<FlexTensor> {
        let values: Vec<Option<FlexTensor>> =
            inputs.iter().map(|input| input.values.as_ref().map(contiguous)).collect();
        let slices_of_inputs: Vec<&[f32]> =
            values.iter().map(|values| values.as_ref().map_or(&[][..], slice)).collect();
        let gradients = gradients
            .into_iter()
            .map(|gradient| gradient.map(|gradient| Gradient(contiguous(&gradient))));
        let input_gradients =
            call.backward(&slices_of_inputs, &slices(outputs), gradients.collect());
        input_gradients
            .into_iter()
            .zip(inputs)
            .map(|(Gradient(gradient), input)| gradient.reshape(input.shape.clone()))
            .collect()
    }

    fn placeholder(_: &FlexTensor) -> FlexTensor {
        tensor(vec![0.0], Shape::from([1]))
    }
}

fn tensor(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape), DType::F32)
}

fn contiguous(tensor: &FlexTensor) -> FlexTensor {
    if tensor.is_contiguous() { tensor.clone() } else { tensor.to_contiguous() }
}

fn slice(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice::<f32>().expect("the tensor is f32 and contiguous")
}

fn slices(tensors: &[FlexTensor]) -> Vec<&[f32]> {
    tensors.iter().map(slice).collect()
}

/// Gradients of the outputs, filled in during the backward pass.
type GradientCell<B> = Arc<Mutex<Vec<Option<FloatTensor<B>>>>>;

/// Input saved for the backward pass; `values` is `None` if the backward pass does not read it.
#[derive(Debug, Clone)]
pub(crate) struct SavedInput<B: Backend> {
    pub(super) shape: Shape,
    pub(super) values: Option<FloatTensor<B>>,
}

/// State of an operation in the autodiff graph.
#[derive(Debug, Clone)]
struct State<B: Slices> {
    call: Arc<dyn DynCall>,
    inputs: Vec<SavedInput<B>>,
    outputs: Vec<FloatTensor<B>>,
    /// Gradients of several outputs; `None` for a single output.
    gradients: Option<GradientCell<B>>,
}

/// Autodiff node of an operation.
#[derive(Debug)]
struct Node;

impl<B: Slices, const N: usize> Backward<B, N> for Node {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let State { call, inputs, outputs, gradients } = ops.state;
        let gradients = match gradients {
            Some(cell) => {
                std::mem::take(&mut *cell.lock().expect("no thread panics while holding the lock"))
            }
            None => vec![Some(gradient)],
        };
        let input_gradients = B::backward(&*call, &inputs, &outputs, gradients);
        for (parent, gradient) in ops.parents.into_iter().zip(input_gradients) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// Autodiff node of one of several outputs.
///
/// It passes its gradient to the node of the operation, which the backward pass visits later.
#[derive(Debug)]
struct OutputNode;

impl<B: Slices> Backward<B, 1> for OutputNode {
    type State = (GradientCell<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let (cell, index) = ops.state;
        let placeholder = B::placeholder(&gradient);
        cell.lock().expect("no thread panics while holding the lock")[index] = Some(gradient);
        if let [Some(parent)] = ops.parents {
            grads.register::<B>(parent.id, placeholder);
        }
    }
}

fn tracked<B: Slices, C: CheckpointStrategy, const N: usize>(
    inputs: [FloatTensor<Autodiff<B, C>>; N],
    call: Arc<dyn DynCall>,
) -> Vec<FloatTensor<Autodiff<B, C>>> {
    let primitives: Vec<FloatTensor<B>> =
        inputs.iter().map(|input| input.primitive().clone()).collect();
    let mut outputs = B::forward(&*call, &primitives);
    let saved_outputs = if call.reads_outputs() { outputs.clone() } else { Vec::new() };
    let gradients: Option<GradientCell<B>> =
        (outputs.len() > 1).then(|| Arc::new(Mutex::new(outputs.iter().map(|_| None).collect())));
    let save = |(index, input): (usize, FloatTensor<B>)| SavedInput {
        shape: input.shape(),
        values: call.reads_input(index).then_some(input),
    };
    let saved_inputs = primitives.into_iter().enumerate().map(save).collect();
    let state =
        State { call, inputs: saved_inputs, outputs: saved_outputs, gradients: gradients.clone() };
    let prepared = Node
        .prepare::<C>(inputs.each_ref().map(FloatTensor::<Autodiff<B, C>>::node))
        .compute_bound()
        .stateful();
    let finish = |output: FloatTensor<B>| match prepared {
        OpsKind::Tracked(prepared) => prepared.finish(state, output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    };
    let Some(gradients) = gradients else {
        return vec![finish(outputs.remove(0))];
    };
    let node = finish(B::placeholder(&outputs[0]));
    let output_node = |(index, output): (usize, FloatTensor<B>)| match OutputNode
        .prepare::<C>([node.node()])
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prepared) => prepared.finish((gradients.clone(), index), output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    };
    outputs.into_iter().enumerate().map(output_node).collect()
}
