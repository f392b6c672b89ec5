//! Category tables summed, real numbers through a linear layer, one learned vector for nothing.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use graph_diffuser_data::FeatureSchema;

use crate::batch::FeatureTensor;
use crate::nn::{Init, Linear};

/// An embedding table.
#[derive(Module, Debug)]
pub(super) struct Table {
    /// `[categories, width]`
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
    pub fn new(schema: &FeatureSchema, width: usize, init: &mut Init) -> Self {
        let mut encoder = Self { tables: Vec::new(), linear: None, vector: None };
        match schema {
            FeatureSchema::Categorical(sizes) => {
                encoder.tables = sizes.iter().map(|&size| Table { weight: init.normal([size, width]) }).collect();
            }
            FeatureSchema::Float(columns) => encoder.linear = Some(Linear::new(*columns, width, init)),
            FeatureSchema::None => encoder.vector = Some(init.normal([width])),
        }
        encoder
    }

    /// # Shapes
    /// - returns `[rows, width]`
    pub fn forward(&self, features: &FeatureTensor) -> Tensor<2> {
        match (features, &self.linear, &self.vector) {
            (FeatureTensor::Categorical(columns), None, None) if columns.len() == self.tables.len() => self
                .tables
                .iter()
                .zip(columns)
                .map(|(table, column)| table.weight.val().select(0, column.clone()))
                .reduce(|sum, column| sum + column)
                .expect("categorical features have a column"),
            (FeatureTensor::Float(values), Some(linear), None) => linear.forward(values.clone()),
            (FeatureTensor::None(rows), None, Some(vector)) => {
                let width = vector.dims()[0];
                vector.val().unsqueeze_dim::<2>(0).expand([*rows, width])
            }
            _ => panic!("features of another kind than the encoder was built for"),
        }
    }
}
