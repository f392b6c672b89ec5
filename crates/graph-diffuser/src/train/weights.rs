//! Weights and optimizer moments as safetensors files (`docs/guide/weights.md`).

use std::collections::HashMap;

use burn::tensor::{Tensor, TensorData};
use graph_diffuser_data::Schema;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

use crate::model::GraphDiffuser;
use crate::parameters::{self, NamedParam};
use crate::recipe::Recipe;

use super::checkpoint::hash;
use super::{CheckpointError, LoadedCheckpoint, RunSchema};

/// Name of the file with the weights of a checkpoint.
pub(crate) const WEIGHTS: &str = "weights.safetensors";

/// Version of the names, shapes and meaning of the tensors.
const FORMAT_VERSION: u64 = 1;

/// Key of the metadata in the header of the file.
///
/// It is a single key with a JSON value, because the library writes keys in the order of a hash
/// map, which would make equal weights differ in their bytes.
const METADATA: &str = "graph_diffuser";

/// Format, architecture and schema of a model as JSON, in the header of the file of its weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WeightsMetadata(String);

impl WeightsMetadata {
    /// Describes a model; the name of the recipe, which may be that of a file, is left out, so that
    /// it does not affect the bytes of the weights.
    pub(crate) fn new(recipe: &Recipe, schema: &Schema) -> Self {
        let metadata = json!({
            "format_version": FORMAT_VERSION,
            "recipe": { "model": recipe.model },
            "schema_sha256": schema_hash(&RunSchema::new(recipe, schema)),
        });
        Self(metadata.to_string())
    }

    /// Reads the metadata of a file; `None` if it has none, as files of other programs.
    pub(crate) fn read(file: &[u8]) -> Option<Self> {
        let (_, header) = SafeTensors::read_metadata(file).ok()?;
        header.metadata().as_ref()?.get(METADATA).cloned().map(Self)
    }

    fn format_version(&self) -> Option<u64> {
        serde_json::from_str::<Value>(&self.0).ok()?.get("format_version")?.as_u64()
    }

    /// Checks that the weights of a checkpoint were written for the same schema.
    pub(super) fn check_schema_of(&self, found: &LoadedCheckpoint) -> Result<(), CheckpointError> {
        let hash = Self::read(found.file(WEIGHTS)?).and_then(|found| found.schema_sha256());
        if hash.is_none() || hash == self.schema_sha256() {
            return Ok(());
        }
        Err(CheckpointError::OtherSchema { path: found.path.clone() })
    }

    fn schema_sha256(&self) -> Option<String> {
        let metadata: Value = serde_json::from_str(&self.0).ok()?;
        Some(metadata.get("schema_sha256")?.as_str()?.to_owned())
    }
}

/// Returns the hash of the content of a schema, which does not depend on how `schema.json` is
/// formatted.
fn schema_hash(schema: &RunSchema) -> String {
    hash(&schema.to_json())
}

/// Returns whether a file of weights was written for a schema, or does not name any, as files of
/// other programs.
///
/// Classes, and mean and standard deviation of targets, change the meaning of outputs but no shape.
pub(crate) fn has_schema(file: &[u8], schema: &RunSchema) -> bool {
    let hash = WeightsMetadata::read(file).and_then(|metadata| metadata.schema_sha256());
    hash.is_none_or(|hash| hash == schema_hash(schema))
}

/// Serializes parameters and buffers of a model as a safetensors file.
pub(crate) fn serialize_model(model: &GraphDiffuser, metadata: &WeightsMetadata) -> Vec<u8> {
    serialize_tensors(parameters::named_tensors(model), metadata)
}

/// Serializes parameters and buffers as a safetensors file.
pub(crate) fn serialize_tensors(
    tensors: Vec<(NamedParam, Tensor<1>)>,
    metadata: &WeightsMetadata,
) -> Vec<u8> {
    let values: Vec<_> =
        tensors.into_iter().map(|(entry, tensor)| (entry, host(&tensor))).collect();
    serialize(
        values
            .iter()
            .map(|(entry, values)| (entry.name.as_str(), entry.shape.clone(), values.as_slice()))
            .collect(),
        Some(metadata),
    )
}

pub(super) fn serialize(
    tensors: Vec<(&str, Vec<usize>, &[f32])>,
    metadata: Option<&WeightsMetadata>,
) -> Vec<u8> {
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
    let metadata =
        metadata.map(|metadata| HashMap::from([(METADATA.to_owned(), metadata.0.clone())]));
    safetensors::serialize(views, metadata).expect("names are unique and shapes match the data")
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
    load_tensors(model, &parse_finite(file)?)
}

/// Returns `model` with those weights that a safetensors file has, or the reason why they do not
/// fit.
pub(crate) fn load_part(model: GraphDiffuser, file: &[u8]) -> Result<GraphDiffuser, String> {
    let weights = parse_finite(file)?;
    let mut own: HashMap<String, TensorData> = parameters::named_tensors(&model)
        .into_iter()
        .map(|(param, tensor)| (param.name, TensorData::new(host(&tensor), param.shape)))
        .collect();
    if let Some(name) = weights.names().into_iter().find(|name| !own.contains_key(*name)) {
        return Err(format!("unknown tensor `{name}`"));
    }
    let find = |name: &str| match weights.tensor(name) {
        Ok(view) => safetensor(&view),
        Err(_) => own.remove(name),
    };
    parameters::load(model, find).map_err(|error| error.to_string())
}

/// Parses a file of weights, or returns the reason why it cannot be used.
fn parse_finite(file: &[u8]) -> Result<SafeTensors<'_>, String> {
    let weights = parse(file)?;
    match first_non_finite(&weights) {
        Some(tensor) => Err(format!("tensor `{tensor}` has values that are not finite")),
        None => Ok(weights),
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

/// Checks that a file of weights has the shapes of `model`, which may have
/// [shapes only](crate::nn::ParamInit::shapes_only), or returns the reason why they differ.
pub(crate) fn check_shapes(model: &GraphDiffuser, file: &[u8]) -> Result<(), String> {
    let weights = parse(file)?;
    let shape = |name: &str| Some(weights.tensor(name).ok()?.shape().to_vec());
    parameters::check_shapes(model, shape).map_err(|error| error.to_string())
}

/// Checks that the weights of a checkpoint were written for `schema` and have the shapes of
/// `model`, which may have [shapes only](crate::nn::ParamInit::shapes_only).
pub(crate) fn check_weights(
    model: &GraphDiffuser,
    schema: &RunSchema,
    found: &LoadedCheckpoint,
) -> Result<(), CheckpointError> {
    let file = found.file(WEIGHTS)?;
    check_shapes(model, file).map_err(|reason| found.incompatible(reason))?;
    if has_schema(file, schema) {
        return Ok(());
    }
    Err(CheckpointError::OtherSchema { path: found.path.clone() })
}

fn weights(found: &LoadedCheckpoint) -> Result<SafeTensors<'_>, CheckpointError> {
    parse(found.file(WEIGHTS)?).map_err(|reason| found.incompatible(reason))
}

/// Parses a file of weights, or returns the reason why it cannot be read.
fn parse(file: &[u8]) -> Result<SafeTensors<'_>, String> {
    let version = WeightsMetadata::read(file).and_then(|metadata| metadata.format_version());
    if let Some(version) = version.filter(|&version| version > FORMAT_VERSION) {
        return Err(format!(
            "the weights have format {version} of a newer version of the program, this one \
             reads format {FORMAT_VERSION}"
        ));
    }
    SafeTensors::deserialize(file).map_err(|error| error.to_string())
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

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use crate::recipe::DataDirs;

    use super::*;

    #[test]
    fn metadata_is_read_back_and_newer_formats_are_rejected() {
        let small = ["data.train=1", "data.valid=1", "data.test=1"].map(String::from);
        let recipe = Recipe::find("grid-quick", &small).expect("valid recipe");
        let schema = recipe.dataset(&DataDirs::from_env()).expect("valid dataset").schema;
        let model = recipe.init_model(&schema, &Device::flex());
        let metadata = WeightsMetadata::new(&recipe, &schema);
        let file = serialize_model(&model, &metadata);
        assert_eq!(WeightsMetadata::read(&file).as_ref(), Some(&metadata));
        let read: Value = serde_json::from_str(&metadata.0).expect("JSON");
        assert_eq!(read["recipe"]["model"]["layers"], recipe.model.layers);
        assert_eq!(read["schema_sha256"].as_str().map(str::len), Some(64));
        assert_eq!(file, serialize_model(&model, &metadata));
        load_weights(model.clone(), &file).expect("readable");
        let own = RunSchema::new(&recipe, &schema);
        let mut other = own.clone();
        other.schema.names.classes = vec![vec!["renamed".to_owned()]];
        assert!(has_schema(&file, &own) && !has_schema(&file, &other));
        let reread = serde_json::to_string(&own).expect("JSON");
        let reread: RunSchema = serde_json::from_str(&reread).expect("the same schema");
        assert!(has_schema(&file, &reread), "formatting does not matter");
        let newer = WeightsMetadata(r#"{"format_version":2,"something":"new"}"#.to_owned());
        let file = serialize_model(&model, &newer);
        assert!(load_weights(model, &file).is_err_and(|reason| reason.contains("newer version")));
    }
}
