//! Recorded test cases: loads the weights and data of a case and runs the model.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor, TensorData};
use graph_diffuser::batch::GraphBatch;
use graph_diffuser::model::{GraphDiffuser, ModelConfig};
use graph_diffuser::nn::{ForwardContext, ParamInit};
use graph_diffuser::optim::{AdamW, OptimConfig, global_norm};
use graph_diffuser::parameters;
use graph_diffuser::task::{Task, TaskConfig};
use graph_diffuser_data::{
    FeatureSchema, Features, Graph, Names, Schema, SeedTree, TargetSchema, Targets,
};
use safetensors::{Dtype, SafeTensors};

/// Recorded test case.
pub(crate) struct Recorded {
    config: ModelConfig,
    bytes: Vec<u8>,
}

/// Results of the model on a recorded case.
pub(crate) struct Results {
    /// Outputs, loss, gradients and running statistics of one step, by recorded name.
    pub one_step: BTreeMap<String, Vec<f64>>,
    /// Losses of ten training steps.
    pub losses: Vec<f64>,
}

impl Recorded {
    pub(crate) fn open(case: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(case);
        let config = std::fs::read_to_string(path.with_extension("toml"))
            .expect("the fixture config exists");
        let bytes =
            std::fs::read(path.with_extension("safetensors")).expect("the fixture tensors exist");
        Self { config: toml::from_str(&config).expect("the fixture config is valid"), bytes }
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).expect("the fixture is a valid safetensors file")
    }

    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        let mut names: Vec<String> =
            self.tensors().names().iter().map(std::string::ToString::to_string).collect();
        names.retain(|name| name.starts_with(prefix));
        names
    }

    pub(crate) fn array(&self, name: &str) -> Vec<f64> {
        self.find(name).unwrap_or_else(|| panic!("`{name}` is not recorded")).1
    }

    fn find(&self, name: &str) -> Option<(Vec<usize>, Vec<f64>)> {
        let tensors = self.tensors();
        let view = tensors.tensor(name).ok()?;
        let words = view.data().chunks_exact(8).map(|word| word.try_into().expect("eight bytes"));
        let values = match view.dtype() {
            Dtype::F64 => words.map(f64::from_le_bytes).collect(),
            Dtype::I64 => words.map(|word| i64::from_le_bytes(word) as f64).collect(),
            other => panic!("`{name}` is {other:?}"),
        };
        Some((view.shape().to_vec(), values))
    }

    fn integers(&self, name: &str) -> Vec<usize> {
        self.array(name).into_iter().map(|value| value as usize).collect()
    }

    fn schema(&self, what: &str) -> FeatureSchema {
        if self.find(&format!("batch.{what}_categories")).is_some() {
            FeatureSchema::Categorical(self.integers(&format!("batch.{what}_table_sizes")))
        } else if let Some((shape, _)) = self.find(&format!("batch.{what}_floats")) {
            FeatureSchema::Float(shape[1])
        } else {
            FeatureSchema::None
        }
    }

    fn features(&self, what: &str, rows: std::ops::Range<usize>) -> Features {
        match self.schema(what) {
            FeatureSchema::None => Features::None,
            FeatureSchema::Categorical(sizes) => {
                let columns = sizes.len();
                let all = self.integers(&format!("batch.{what}_categories"));
                let values =
                    all[rows.start * columns..rows.end * columns].iter().map(|&value| value as u32);
                Features::Categorical { columns, values: values.collect() }
            }
            FeatureSchema::Float(columns) => {
                let all = self.array(&format!("batch.{what}_floats"));
                let values =
                    all[rows.start * columns..rows.end * columns].iter().map(|&value| value as f32);
                Features::Float { columns, values: values.collect() }
            }
            FeatureSchema::Mixed(_) => unreachable!("recorded features are of one kind"),
        }
    }

    fn task(&self) -> (TargetSchema, Task) {
        let outputs = self.integers("batch.outputs")[0];
        let (_, metadata) = SafeTensors::read_metadata(&self.bytes)
            .expect("the fixture is a valid safetensors file");
        let metadata = metadata.metadata().clone().expect("the metadata contain the loss");
        let schema = match metadata["loss"].as_str() {
            "cross_entropy" => TargetSchema::NodeMulticlass(outputs),
            "l1" => TargetSchema::regression(outputs),
            "bce" => TargetSchema::binary(outputs),
            other => panic!("unknown loss {other}"),
        };
        let task = TaskConfig::default().init(&schema, self.config.head);
        (schema, task)
    }

    pub(crate) fn graphs(&self) -> Vec<Graph> {
        let (schema, _) = self.task();
        let sizes = self.integers("batch.sizes");
        let edges = self.integers("batch.edges");
        let (mut node, mut edge) = (0, 0);
        sizes
            .iter()
            .zip(self.integers("batch.edge_counts"))
            .enumerate()
            .map(|(index, (&nodes, count))| {
                let (node_end, edge_end) = (node + nodes, edge + count);
                let graph = Graph {
                    num_nodes: nodes,
                    edges: edges[2 * edge..2 * edge_end]
                        .chunks(2)
                        .map(|ends| [ends[0] as u32, ends[1] as u32])
                        .collect(),
                    node_features: self.features("node", node..node_end),
                    edge_features: self.features("edge", edge..edge_end),
                    targets: match &schema {
                        TargetSchema::NodeMulticlass(_) => Targets::NodeClasses(
                            self.integers("batch.node_classes")[node..node_end]
                                .iter()
                                .map(|&class| class as u32)
                                .collect(),
                        ),
                        TargetSchema::Graph(kinds) => {
                            let outputs = kinds.len();
                            let values =
                                &self.array("batch.values")[index * outputs..(index + 1) * outputs];
                            Targets::GraphValues(values.iter().map(|&value| value as f32).collect())
                        }
                        other => panic!("unsupported target schema {other:?}"),
                    },
                };
                (node, edge) = (node_end, edge_end);
                graph
            })
            .collect()
    }

    pub(crate) fn batch(&self, device: &Device, dtype: DType) -> GraphBatch {
        let graphs = self.graphs();
        let graphs: Vec<&Graph> = graphs.iter().collect();
        let batcher = self.config.batcher(device, dtype).with_targets(Arc::new(self.task().1));
        let mut batch = batcher.collate_graphs(&graphs, vec![]);
        // `Graph` stores single-precision features and targets; use the recorded double precision.
        let replace = |tensor: &mut Tensor<2>, name: &str| {
            if let Some((shape, values)) = self.find(name) {
                *tensor = Tensor::from_data(TensorData::new(values, shape), (device, dtype));
            }
        };
        use graph_diffuser::batch::{FeatureTensor, TargetTensor};
        if let FeatureTensor::Float(tensor) = &mut batch.node_features {
            replace(tensor, "batch.node_floats");
        }
        if let FeatureTensor::Float(tensor) = &mut batch.edge_features {
            replace(tensor, "batch.edge_floats");
        }
        let targets = batch.targets.as_mut().expect("the batcher collates targets");
        if let TargetTensor::Values { values, .. } = &mut targets.tensor {
            replace(values, "batch.values");
        }
        batch
    }

    pub(crate) fn model(&self, device: &Device, dtype: DType) -> GraphDiffuser {
        self.config.check().expect("the fixture config is valid");
        let mut init = ParamInit::with_dtype(SeedTree::new(0), device, dtype);
        let schema = Schema {
            node_features: self.schema("node"),
            edge_features: self.schema("edge"),
            targets: self.task().0,
            names: Names::default(),
        };
        let model = self.config.init_for(&schema, &mut init);
        let params = parameters::named_params(&model);
        assert_eq!(params.len(), self.names("weight.").len(), "number of recorded weights");
        parameters::load(model, |name| {
            let (shape, values) = self.find(&format!("weight.{name}"))?;
            Some(TensorData::new(values, shape))
        })
        .expect("all weights are recorded")
    }

    /// Runs ten training steps and returns all results of the first one.
    pub(crate) fn run(&self, dtype: DType) -> Results {
        let device = Device::flex().autodiff();
        let batch = self.batch(&device, dtype);
        let (_, task) = self.task();
        let mut model = self.model(&device, dtype);
        let mut one_step = BTreeMap::new();
        let plain = self.batch(&Device::flex(), dtype);
        one_step.insert(
            "evaluation".to_owned(),
            to_vec(model.valid().forward(&plain, &ForwardContext::evaluate())),
        );

        let optim = OptimConfig { lr: 1e-2, weight_decay: 1e-2, ..OptimConfig::default() };
        let mut optimizer = AdamW::new(&optim);
        let mut losses = Vec::new();
        for step in 0..10 {
            let ctx = ForwardContext::train(0);
            let output = model.forward(&batch, &ctx);
            let loss = task.loss(output.clone(), &batch);
            losses.push(to_vec(loss.clone())[0]);
            let mut gradients = loss.backward();
            let gradients = parameters::gradients(&model, &mut gradients);
            if step == 0 {
                one_step.insert("output".to_owned(), to_vec(output));
                one_step.insert("loss".to_owned(), vec![losses[0]]);
                let trainable =
                    parameters::named_params(&model).into_iter().filter(|entry| entry.trainable);
                for (entry, gradient) in trainable.zip(&gradients) {
                    one_step.insert(format!("grad.{}", entry.name), to_vec(gradient.clone()));
                }
                let moved =
                    parameters::update_running_stats(model.clone(), &ctx.into_statistics(), 0.1);
                for (entry, tensor) in parameters::named_tensors(&moved)
                    .into_iter()
                    .filter(|(entry, _)| !entry.trainable)
                {
                    one_step.insert(format!("statistic.{}", entry.name), to_vec(tensor));
                }
            }
            let gradient = Tensor::cat(gradients, 0);
            let norm = global_norm(&gradient);
            model = optimizer.step(model, gradient, norm, optim.lr);
        }
        Results { one_step, losses }
    }
}

fn to_vec<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Returns the largest difference relative to the largest recorded value, or to 0.01 if that is
/// larger.
///
/// Some gradients are zero except for rounding errors, such as that of a bias before a batch norm.
/// These errors are relative to the other gradients, which are of order one.
pub(crate) fn worst_difference(ours: &[f64], recorded: &[f64]) -> f64 {
    assert_eq!(ours.len(), recorded.len(), "number of values");
    let scale = recorded.iter().fold(1e-2_f64, |scale, value| scale.max(value.abs()));
    ours.iter().zip(recorded).fold(0.0_f64, |worst, (ours, recorded)| {
        let difference = (ours - recorded).abs() / scale;
        if difference.is_nan() { f64::INFINITY } else { worst.max(difference) }
    })
}
