//! Feature encoders: sums of category embeddings, a linear layer, or one learned vector.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use graph_diffuser_data::FeatureSchema;

use crate::batch::FeatureTensor;
use crate::nn::{Linear, ParamInit};

/// Embedding table of one categorical column.
#[derive(Module, Debug)]
pub(super) struct Embedding {
    /// Embeddings, `[categories, dim]`.
    weight: Param<Tensor<2>>,
}

/// Embeds node or edge features into vectors of a fixed dimension.
///
/// Categorical columns are embedded and summed, float features pass a linear layer, and rows
/// without features share one learned vector.
#[derive(Module, Debug)]
pub struct FeatureEncoder {
    tables: Vec<Embedding>,
    linear: Option<Linear>,
    vector: Option<Param<Tensor<1>>>,
}

impl FeatureEncoder {
    /// Initializes the encoder for features of the given schema.
    pub fn new(schema: &FeatureSchema, dim: usize, init: &mut ParamInit) -> Self {
        let mut encoder = Self { tables: Vec::new(), linear: None, vector: None };
        match schema {
            FeatureSchema::Categorical(sizes) => {
                encoder.tables = sizes
                    .iter()
                    .map(|&size| Embedding { weight: init.normal([size, dim]) })
                    .collect();
            }
            FeatureSchema::Float(columns) => {
                encoder.linear = Some(Linear::new(*columns, dim, init));
            }
            FeatureSchema::None => encoder.vector = Some(init.normal([dim])),
        }
        encoder
    }

    /// Embeds the features of every row.
    ///
    /// # Shapes
    /// - returns `[rows, dim]`
    ///
    /// # Panics
    /// Panics if the features do not match the schema of the encoder.
    pub fn forward(&self, features: &FeatureTensor) -> Tensor<2> {
        match (features, &self.linear, &self.vector) {
            (FeatureTensor::Categorical(columns), None, None)
                if columns.len() == self.tables.len() =>
            {
                self.tables
                    .iter()
                    .zip(columns)
                    .map(|(table, column)| table.weight.val().select(0, column.clone()))
                    .reduce(|sum, column| sum + column)
                    .expect("categorical features have at least one column")
            }
            (FeatureTensor::Float(values), Some(linear), None) => linear.forward(values.clone()),
            (FeatureTensor::None(rows), None, Some(vector)) => {
                let dim = vector.dims()[0];
                vector.val().unsqueeze_dim::<2>(0).expand([*rows, dim])
            }
            _ => panic!("features do not match the schema of the encoder"),
        }
    }
}
