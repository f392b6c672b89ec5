//! Category tables summed, real numbers through a linear layer, one learned vector for nothing.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use graph_diffuser_data::FeatureSchema;

use crate::batch::FeatureTensor;
use crate::nn::{Linear, ParamInit};

/// An embedding table.
#[derive(Module, Debug)]
pub(super) struct Table {
    /// `[categories, dim]`
    weight: Param<Tensor<2>>,
}

/// Turns features into vectors of one width.
#[derive(Module, Debug)]
pub struct FeatureEncoder {
    tables: Vec<Table>,
    linear: Option<Linear>,
    vector: Option<Param<Tensor<1>>>,
}

impl FeatureEncoder {
    /// What `schema` needs: a table a column, a linear layer, or one vector for every row.
    pub fn new(schema: &FeatureSchema, dim: usize, init: &mut ParamInit) -> Self {
        let mut encoder = Self { tables: Vec::new(), linear: None, vector: None };
        match schema {
            FeatureSchema::Categorical(sizes) => {
                encoder.tables =
                    sizes.iter().map(|&size| Table { weight: init.normal([size, dim]) }).collect();
            }
            FeatureSchema::Float(columns) => {
                encoder.linear = Some(Linear::new(*columns, dim, init))
            }
            FeatureSchema::None => encoder.vector = Some(init.normal([dim])),
        }
        encoder
    }

    /// # Shapes
    /// - returns `[rows, dim]`
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
                    .expect("categorical features have a column")
            }
            (FeatureTensor::Float(values), Some(linear), None) => linear.forward(values.clone()),
            (FeatureTensor::None(rows), None, Some(vector)) => {
                let dim = vector.dims()[0];
                vector.val().unsqueeze_dim::<2>(0).expand([*rows, dim])
            }
            _ => panic!("features of another kind than the encoder was built for"),
        }
    }
}
