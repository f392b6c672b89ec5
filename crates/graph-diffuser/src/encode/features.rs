//! Feature encoders: sums of category embeddings, a linear layer, both, or one learned vector.

use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};
use graph_diffuser_data::FeatureSchema;

use crate::batch::FeatureTensor;
use crate::nn::{Linear, ParamInit};

/// Embeds node or edge features into vectors of a fixed dimension.
#[derive(Module, Debug)]
pub enum FeatureEncoder {
    /// Sum of the embeddings of categorical columns.
    Categorical(CategoryEmbeddings),
    /// Linear layer on float features.
    Float(Linear),
    /// Sum of category embeddings and a linear layer on float features.
    Mixed(MixedEncoder),
    /// One learned vector for all rows without features.
    None(LearnedVector),
}

/// Embedding tables of categorical columns.
#[derive(Module, Debug)]
pub struct CategoryEmbeddings {
    tables: Vec<Embedding>,
}

/// Encoder of categorical and float columns.
#[derive(Module, Debug)]
pub struct MixedEncoder {
    categories: CategoryEmbeddings,
    floats: Linear,
}

/// Embedding table of one categorical column.
#[derive(Module, Debug)]
struct Embedding {
    /// Embeddings, `[categories, dim]`.
    weight: Param<Tensor<2>>,
}

/// Learned vector.
#[derive(Module, Debug)]
pub struct LearnedVector {
    /// Values, `[dim]`.
    vector: Param<Tensor<1>>,
}

impl CategoryEmbeddings {
    fn new(sizes: &[usize], dim: usize, init: &mut ParamInit) -> Self {
        let table = |&size: &usize| Embedding { weight: init.normal([size, dim]) };
        Self { tables: sizes.iter().map(table).collect() }
    }

    /// Sums the embeddings of all columns, `[rows, dim]`.
    fn forward(&self, columns: &[Tensor<1, Int>]) -> Tensor<2> {
        assert_eq!(columns.len(), self.tables.len(), "categorical columns and embedding tables");
        self.tables
            .iter()
            .zip(columns)
            .map(|(table, column)| table.weight.val().select(0, column.clone()))
            .reduce(|sum, column| sum + column)
            .expect("categorical features have at least one column")
    }
}

impl FeatureEncoder {
    /// Initializes the encoder for features of the given schema.
    pub fn new(schema: &FeatureSchema, dim: usize, init: &mut ParamInit) -> Self {
        match schema {
            FeatureSchema::Categorical(sizes) => {
                Self::Categorical(CategoryEmbeddings::new(sizes, dim, init))
            }
            FeatureSchema::Float(columns) => Self::Float(Linear::new(*columns, dim, init)),
            FeatureSchema::Mixed(_) => Self::Mixed(MixedEncoder {
                categories: CategoryEmbeddings::new(&schema.category_sizes(), dim, init),
                floats: Linear::new(schema.num_floats(), dim, init),
            }),
            FeatureSchema::None => Self::None(LearnedVector { vector: init.normal([dim]) }),
        }
    }

    /// Embeds the features of every row.
    ///
    /// # Shapes
    /// - returns `[rows, dim]`
    ///
    /// # Panics
    /// Panics if the features do not match the schema of the encoder.
    pub fn forward(&self, features: &FeatureTensor) -> Tensor<2> {
        match (self, features) {
            (Self::Categorical(embeddings), FeatureTensor::Categorical(columns)) => {
                embeddings.forward(columns)
            }
            (Self::Float(linear), FeatureTensor::Float(values)) => linear.forward(values.clone()),
            (Self::Mixed(encoder), FeatureTensor::Mixed { categories, floats }) => {
                encoder.categories.forward(categories) + encoder.floats.forward(floats.clone())
            }
            (Self::None(LearnedVector { vector }), FeatureTensor::None(rows)) => {
                let dim = vector.dims()[0];
                vector.val().unsqueeze_dim::<2>(0).expand([*rows, dim])
            }
            _ => panic!("features do not match the schema of the encoder"),
        }
    }
}
