//! Weights and optimizer moments as safetensors files.

use burn::tensor::{Tensor, TensorData};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::model::GraphDiffuser;
use crate::parameters;

use super::{CheckpointError, LoadedCheckpoint};

/// Name of the file with the weights of a checkpoint.
pub(crate) const WEIGHTS: &str = "weights.safetensors";

/// Serializes parameters and buffers of a model as a safetensors file.
pub(crate) fn serialize_model(model: &GraphDiffuser) -> Vec<u8> {
    let values: Vec<_> = parameters::named_tensors(model)
        .into_iter()
        .map(|(entry, tensor)| (entry, host(&tensor)))
        .collect();
    serialize(
        values
            .iter()
            .map(|(entry, values)| (entry.name.as_str(), entry.shape.clone(), values.as_slice()))
            .collect(),
    )
}

pub(super) fn serialize(tensors: Vec<(&str, Vec<usize>, &[f32])>) -> Vec<u8> {
    let bytes: Vec<(&str, Vec<usize>, Vec<u8>)> = tensors
        .into_iter()
        .map(|(name, shape, values)| {
            (name, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
        })
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (*name, view.expect("the shape matches the data"))
    });
    safetensors::serialize(views, None).expect("names are unique and shapes match the data")
}

/// Returns `model` with the weights of a checkpoint.
pub(crate) fn load_model(
    model: GraphDiffuser,
    found: &LoadedCheckpoint,
) -> Result<GraphDiffuser, CheckpointError> {
    let weights = weights(found)?;
    if let Some(tensor) = first_non_finite(&weights) {
        return Err(CheckpointError::NonFinite { path: found.path.clone(), tensor });
    }
    load_tensors(model, &weights).map_err(|reason| found.incompatible(reason))
}

/// Returns `model` with the weights of a safetensors file, or the reason why they do not fit.
pub(crate) fn load_weights(model: GraphDiffuser, file: &[u8]) -> Result<GraphDiffuser, String> {
    let weights =
        SafeTensors::deserialize(file).map_err(|error| format!("`{WEIGHTS}`: {error}"))?;
    match first_non_finite(&weights) {
        Some(tensor) => Err(format!("tensor `{tensor}` has values that are not finite")),
        None => load_tensors(model, &weights),
    }
}

/// Returns the name of a tensor with values that are NaN or infinite.
fn first_non_finite(weights: &SafeTensors<'_>) -> Option<String> {
    let is_finite = |view: &TensorView<'_>| {
        safetensor(view).is_none_or(|data| data.iter::<f32>().all(f32::is_finite))
    };
    weights.iter().find(|(_, view)| !is_finite(view)).map(|(name, _)| name.to_owned())
}

fn load_tensors(model: GraphDiffuser, weights: &SafeTensors<'_>) -> Result<GraphDiffuser, String> {
    parameters::load(model, |name| weights.tensor(name).ok().and_then(|view| safetensor(&view)))
        .map_err(|error| error.to_string())
}

/// Checks that the weights of a checkpoint have the shapes of `model`, which may have
/// [shapes only](crate::nn::ParamInit::shapes_only).
pub(crate) fn check_weights(
    model: &GraphDiffuser,
    found: &LoadedCheckpoint,
) -> Result<(), CheckpointError> {
    let weights = weights(found)?;
    let shape = |name: &str| Some(weights.tensor(name).ok()?.shape().to_vec());
    parameters::check_shapes(model, shape).map_err(|error| found.incompatible(error.to_string()))
}

fn weights(found: &LoadedCheckpoint) -> Result<SafeTensors<'_>, CheckpointError> {
    SafeTensors::deserialize(found.file(WEIGHTS)?)
        .map_err(|error| found.incompatible(format!("`{WEIGHTS}`: {error}")))
}

/// Returns a tensor of a safetensors file; `None` if it is not single precision.
pub(super) fn safetensor(view: &TensorView<'_>) -> Option<TensorData> {
    let values = view
        .data()
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")));
    (view.dtype() == Dtype::F32)
        .then(|| TensorData::new(values.collect::<Vec<f32>>(), view.shape().to_vec()))
}

/// Copies a tensor to host memory.
pub(super) fn host(tensor: &Tensor<1>) -> Vec<f32> {
    tensor.to_data().iter::<f32>().collect()
}
