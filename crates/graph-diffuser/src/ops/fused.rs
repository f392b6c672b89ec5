//! Integration of slice kernels into Burn as differentiable tensor operations.
//!
//! A [`SliceOp`] maps slices to vectors in its forward and backward pass. This module contains all
//! framework-specific code: dispatch to the CPU backend, registration in the autodiff graph, and
//! operations with several outputs.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Bytes, DType, Device, Shape, Tensor};

/// Values that an operation saves in its forward pass for its backward pass.
pub(crate) type Saved = Arc<dyn Any + Send + Sync>;

/// Output tensor of an operation.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) values: Vec<f32>,
    pub(crate) shape: Vec<usize>,
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
pub(crate) trait SliceOp: Debug + Send + Sync {
    /// Returns the outputs and the values saved for the backward pass.
    fn forward(&self, inputs: &[&[f32]]) -> (Vec<Output>, Saved);

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
    fn backward(
        &self,
        inputs: &[&[f32]],
        outputs: &[&[f32]],
        saved: &Saved,
        gradients: Vec<Option<Gradient>>,
    ) -> Vec<Gradient>;
}

/// Returns whether kernels can run on `tensor`: single precision on the CPU backend.
pub(crate) fn can_run<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32 && tensor.device().inner() == Device::flex()
}

/// Applies `op` and tracks the outputs in the autodiff graph.
pub(crate) fn apply<const D: usize>(
    op: impl SliceOp + 'static,
    inputs: Vec<Tensor<D>>,
) -> (Vec<Tensor<2>>, Saved) {
    let op: Arc<dyn SliceOp> = Arc::new(op);
    let saved = Arc::new(Mutex::new(None));
    let inputs: Vec<_> = inputs.into_iter().map(Tensor::into_dispatch).collect();
    let outputs = match <[_; 1]>::try_from(inputs) {
        Ok([a]) => Dispatch::fused_1(a, op, saved.clone()),
        Err(inputs) => match <[_; 2]>::try_from(inputs) {
            Ok([a, b]) => Dispatch::fused_2(a, b, op, saved.clone()),
            Err(inputs) => match <[_; 3]>::try_from(inputs) {
                Ok([a, b, c]) => Dispatch::fused_3(a, b, c, op, saved.clone()),
                Err(inputs) => match <[_; 4]>::try_from(inputs) {
                    Ok([a, b, c, d]) => Dispatch::fused_4(a, b, c, d, op, saved.clone()),
                    Err(inputs) => panic!("unsupported number of inputs: {}", inputs.len()),
                },
            },
        },
    };
    let saved = saved
        .lock()
        .expect("no thread panics while holding the lock")
        .take()
        .expect("the forward pass sets the saved values");
    (outputs.into_iter().map(Tensor::from_dispatch).collect(), saved)
}

/// Cell through which the forward pass returns its saved values.
type SavedCell = Arc<Mutex<Option<Saved>>>;

/// Backend whose tensors can be read as slices.
pub(crate) trait Slices: Backend {
    fn forward(op: &dyn SliceOp, inputs: &[FloatTensor<Self>]) -> (Vec<FloatTensor<Self>>, Saved);
    fn backward(
        op: &dyn SliceOp,
        inputs: &[SavedInput<Self>],
        outputs: &[FloatTensor<Self>],
        saved: &Saved,
        gradients: Vec<Option<FloatTensor<Self>>>,
    ) -> Vec<FloatTensor<Self>>;
    /// Returns a tensor with a single zero, which represents an operation with several outputs.
    fn placeholder() -> FloatTensor<Self>;
}

#[backend_extension(Autodiff, Flex)]
pub(crate) trait Fused: Backend {
    fn fused_1(
        a: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>>;
    fn fused_2(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>>;
    fn fused_3(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>>;
    fn fused_4(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>>;
}

impl Slices for Flex {
    fn forward(op: &dyn SliceOp, inputs: &[FlexTensor]) -> (Vec<FlexTensor>, Saved) {
        let inputs: Vec<FlexTensor> = inputs.iter().map(contiguous).collect();
        let (outputs, saved) = op.forward(&slices(&inputs));
        (
            outputs
                .into_iter()
                .map(|output| tensor(output.values, Shape::from(output.shape)))
                .collect(),
            saved,
        )
    }

    fn backward(
        op: &dyn SliceOp,
        inputs: &[SavedInput<Self>],
        outputs: &[FlexTensor],
        saved: &Saved,
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
            op.backward(&slices_of_inputs, &slices(outputs), saved, gradients.collect());
        input_gradients
            .into_iter()
            .zip(inputs)
            .map(|(Gradient(gradient), input)| gradient.reshape(input.shape.clone()))
            .collect()
    }

    fn placeholder() -> FlexTensor {
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

fn untracked(op: &dyn SliceOp, inputs: &[FlexTensor], cell: &SavedCell) -> Vec<FlexTensor> {
    let (outputs, saved) = Flex::forward(op, inputs);
    *cell.lock().expect("no kernel panics while it holds this") = Some(saved);
    outputs
}

impl Fused for Flex {
    fn fused_1(a: FlexTensor, op: Arc<dyn SliceOp>, saved: SavedCell) -> Vec<FlexTensor> {
        untracked(&*op, &[a], &saved)
    }
    fn fused_2(
        a: FlexTensor,
        b: FlexTensor,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FlexTensor> {
        untracked(&*op, &[a, b], &saved)
    }
    fn fused_3(
        a: FlexTensor,
        b: FlexTensor,
        c: FlexTensor,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FlexTensor> {
        untracked(&*op, &[a, b, c], &saved)
    }
    fn fused_4(
        a: FlexTensor,
        b: FlexTensor,
        c: FlexTensor,
        d: FlexTensor,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FlexTensor> {
        untracked(&*op, &[a, b, c, d], &saved)
    }
}

impl<B: Slices, C: CheckpointStrategy> Fused for Autodiff<B, C> {
    fn fused_1(
        a: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>> {
        tracked::<B, C, 1>([a], op, &saved)
    }
    fn fused_2(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>> {
        tracked::<B, C, 2>([a, b], op, &saved)
    }
    fn fused_3(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>> {
        tracked::<B, C, 3>([a, b, c], op, &saved)
    }
    fn fused_4(
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
        op: Arc<dyn SliceOp>,
        saved: SavedCell,
    ) -> Vec<FloatTensor<Self>> {
        tracked::<B, C, 4>([a, b, c, d], op, &saved)
    }
}

/// Gradients of the outputs, filled in during the backward pass.
type GradientCell<B> = Arc<Mutex<Vec<Option<FloatTensor<B>>>>>;

/// Input saved for the backward pass; `values` is `None` if the backward pass does not read it.
#[derive(Debug, Clone)]
pub(crate) struct SavedInput<B: Backend> {
    shape: Shape,
    values: Option<FloatTensor<B>>,
}

/// State of an operation in the autodiff graph.
#[derive(Debug, Clone)]
struct State<B: Slices> {
    op: Arc<dyn SliceOp>,
    inputs: Vec<SavedInput<B>>,
    outputs: Vec<FloatTensor<B>>,
    saved: SavedBox,
    /// Gradients of several outputs; `None` for a single output.
    gradients: Option<GradientCell<B>>,
}

/// Wrapper of [`Saved`] that implements `Debug`.
#[derive(Clone)]
struct SavedBox(Saved);

impl Debug for SavedBox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Saved")
    }
}

/// Autodiff node of an operation.
#[derive(Debug)]
struct Node;

impl<B: Slices, const N: usize> Backward<B, N> for Node {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let State { op, inputs, outputs, saved, gradients } = ops.state;
        let gradients = match gradients {
            Some(cell) => {
                std::mem::take(&mut *cell.lock().expect("no thread panics while holding the lock"))
            }
            None => vec![Some(gradient)],
        };
        let input_gradients = B::backward(&*op, &inputs, &outputs, &saved.0, gradients);
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
        cell.lock().expect("no thread panics while holding the lock")[index] = Some(gradient);
        if let [Some(parent)] = ops.parents {
            grads.register::<B>(parent.id, B::placeholder());
        }
    }
}

fn tracked<B: Slices, C: CheckpointStrategy, const N: usize>(
    inputs: [FloatTensor<Autodiff<B, C>>; N],
    op: Arc<dyn SliceOp>,
    cell: &SavedCell,
) -> Vec<FloatTensor<Autodiff<B, C>>> {
    let primitives: Vec<FloatTensor<B>> =
        inputs.iter().map(|input| input.primitive().clone()).collect();
    let (mut outputs, saved) = B::forward(&*op, &primitives);
    *cell.lock().expect("no kernel panics while it holds this") = Some(saved.clone());
    let saved_outputs = if op.reads_outputs() { outputs.clone() } else { Vec::new() };
    let gradients: Option<GradientCell<B>> =
        (outputs.len() > 1).then(|| Arc::new(Mutex::new(outputs.iter().map(|_| None).collect())));
    let save = |(index, input): (usize, FloatTensor<B>)| SavedInput {
        shape: input.shape(),
        values: op.reads_input(index).then_some(input),
    };
    let saved_inputs = primitives.into_iter().enumerate().map(save).collect();
    let state = State {
        op,
        inputs: saved_inputs,
        outputs: saved_outputs,
        saved: SavedBox(saved),
        gradients: gradients.clone(),
    };
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
    let node = finish(B::placeholder());
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
