//! Small models that cover all options, and batches of graphs with unusual structure.

use std::sync::Arc;

use burn::tensor::{DType, Device};
use graph_diffuser::batch::{Batcher, GraphBatch};
use graph_diffuser::model::{GraphDiffuser, ModelConfig};
use graph_diffuser::nn::ParamInit;
use graph_diffuser::task::{Task, TaskConfig};
use graph_diffuser_data::chem::{ATOM_FEATURES, BOND_FEATURES};
use graph_diffuser_data::{
    ColumnSchema, FeatureSchema, Features, Graph, MISSING_CLASS, Names, RandomStream, Schema,
    SeedTree, Standardization, TargetKind, TargetSchema, Targets,
};

/// Model configuration and the schema of its data.
pub(crate) struct Case {
    pub name: &'static str,
    pub config: ModelConfig,
    pub targets: TargetSchema,
    pub edge_features: bool,
    /// If `true`, nodes and edges have categorical and float features, and some node classes are
    /// missing.
    pub mixed: bool,
}

/// Returns cases that together cover every part of the model.
pub(crate) fn cases() -> Vec<Case> {
    let node = "[head]\nkind = \"node\"\nmlp = { kind = \"plain\", hidden_layers = 1 }";
    let graph = |pooling: &str, mlp: &str| {
        format!("[head]\nkind = \"graph\"\npooling = \"{pooling}\"\nmlp = {mlp}")
    };
    let attention = |scores: &str| format!("[attention]\nheads = 2\nscores = {scores}");
    let gate = "{ kind = \"position_and_content\", combine = \"gate\" }";
    let edges = |text: &str| format!("[virtual_edges]\nnum_steps = 3\n{text}");
    let base = "hidden_dim = 8\nlayers = 2";
    let case = |name, parts: &[&str], targets, edge_features| Case {
        name,
        config: toml::from_str(&parts.join("\n")).unwrap_or_else(|error| panic!("{name}: {error}")),
        targets,
        edge_features,
        mixed: false,
    };
    let classes = || TargetSchema::NodeMulticlass(3);
    let mut cases = vec![
        case("paper", &[base, &edges(""), &attention(gate), node], classes(), false),
        case(
            "script",
            &[
                base,
                "input_mlp = true\npositional_encoding = { kind = \"rwse\", num_steps = 3, dim = 3 }",
                &edges(
                    "adjacency = { kind = \"weighted\", activation = \"exp\" }\nffn = { kind = \"authors_grid\", layers = 2, expansion = 2 }\nself_edges = \"off\"",
                ),
                &attention("{ kind = \"position_and_content\", combine = \"add\" }"),
                node,
            ],
            classes(),
            false,
        ),
        case(
            "code",
            &[
                base,
                "mpnn = { kind = \"gated_gcn\", parallel = true }",
                &edges(
                    "adjacency = { kind = \"weighted\", projections = \"shared\" }\nffn = { kind = \"authors_release\", layers = 2, expansion = 1 }\nself_edges = \"before_ffn\"",
                ),
                &attention("{ kind = \"position_and_content\", combine = \"gate\", clamp = 0.7 }"),
                &graph("mean", "{ kind = \"plain\", hidden_layers = 1 }"),
            ],
            TargetSchema::regression(2),
            true,
        ),
        case(
            "molecule",
            &[
                base,
                "mpnn = { kind = \"gine\", pre_layers = 1, parallel = true }",
                &edges(
                    "transform = { kind = \"log\", eps = 1e-3 }\nffn = { kind = \"residual\", layers = 1, expansion = 2 }",
                ),
                &attention(gate),
                &graph("sum", "{ kind = \"halving\" }"),
            ],
            TargetSchema::regression(1),
            true,
        ),
        case(
            "cls",
            &[
                base,
                "mpnn = { kind = \"gine\", parallel = true }",
                &edges("transform = { kind = \"signed_square_root\" }"),
                &attention(gate),
                &graph("cls", "{ kind = \"plain\", hidden_layers = 0 }"),
            ],
            TargetSchema::binary(2),
            false,
        ),
        case(
            "fixed",
            &[
                base,
                &edges("adjacency = { kind = \"fixed\" }\nself_edges = \"before_ffn\""),
                &attention("{ kind = \"position\", combine = \"gate\" }"),
                node,
            ],
            classes(),
            false,
        ),
        case(
            "raw",
            &[
                base,
                "mpnn = { kind = \"gated_gcn\", pre_layers = 2 }",
                &edges("adjacency = { kind = \"fixed\" }\nffn = { kind = \"none\" }"),
                &attention("{ kind = \"position\", combine = \"add\" }"),
                &graph("cls", "{ kind = \"plain\", hidden_layers = 0 }"),
            ],
            TargetSchema::regression(1),
            false,
        ),
        case("content", &[base, &attention("{ kind = \"content\" }"), node], classes(), false),
        case(
            "local",
            &["hidden_dim = 8\nlayers = 0", "mpnn = { kind = \"gine\", pre_layers = 2 }", node],
            classes(),
            true,
        ),
        case(
            "mean aggregation",
            &[
                base,
                "mpnn = { kind = \"gine\", aggregation = \"mean\", pre_layers = 1, parallel = true }",
                &edges(""),
                &attention(gate),
                &graph("cls", "{ kind = \"plain\", hidden_layers = 0 }"),
            ],
            TargetSchema::regression(1),
            true,
        ),
    ];
    let mixed = case(
        "mixed",
        &[base, "mpnn = { kind = \"gine\", parallel = true }", &edges(""), &attention(gate), node],
        classes(),
        true,
    );
    cases.push(Case { mixed: true, ..mixed });
    cases.push(molecule_features());
    cases.extend(other_tasks());
    cases
}

/// Returns a model with features of whole molecules.
fn molecule_features() -> Case {
    let model = "hidden_dim = 8\nlayers = 2\nmpnn = { kind = \"gine\", pre_layers = 1 }\n[virtual_edges]\nnum_steps = 3\n[attention]\nheads = 2\nscores = { kind = \"position_and_content\", combine = \"gate\" }\n[molecule_features]\nfingerprint_dim = 3\ndescriptors = true\n[head]\nkind = \"graph\"\npooling = \"norm\"\nmlp = { kind = \"plain\", hidden_layers = 1 }";
    Case {
        name: "molecule features",
        config: toml::from_str(model).unwrap_or_else(|error| panic!("{error}")),
        targets: TargetSchema::regression(1),
        edge_features: true,
        mixed: false,
    }
}

/// Returns one model with parallel message passing for each of the remaining heads.
fn other_tasks() -> impl Iterator<Item = Case> {
    let model = "hidden_dim = 8\nlayers = 2\nmpnn = { kind = \"gated_gcn\", parallel = true }\n[virtual_edges]\nnum_steps = 3\n[attention]\nheads = 2\nscores = { kind = \"position_and_content\", combine = \"gate\" }\n[head]\n";
    let mlp = "mlp = { kind = \"plain\", hidden_layers = 1 }";
    [
        (
            "graph classes",
            format!("kind = \"graph\"\npooling = \"mean\"\n{mlp}"),
            TargetSchema::multiclass(3),
        ),
        (
            "mixed targets",
            format!("kind = \"auto\"\npooling = \"mean\"\n{mlp}"),
            TargetSchema::Graph(vec![
                TargetKind::Regression(Standardization { mean: 2.0, std: 3.0 }),
                TargetKind::Multiclass(3),
                TargetKind::Binary,
                TargetKind::Regression(Standardization::IDENTITY),
            ]),
        ),
        (
            "sub-tokens",
            "kind = \"sub_tokens\"\npooling = \"mean\"\nmax_tokens = 3".into(),
            TargetSchema::SubTokens(6),
        ),
        ("links", format!("kind = \"link\"\n{mlp}"), TargetSchema::LinkPrediction),
    ]
    .into_iter()
    .map(move |(name, head, targets)| {
        let config = toml::from_str(&format!("{model}{head}"))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        Case { name, config, targets, edge_features: true, mixed: false }
    })
}

impl Case {
    pub(crate) fn model(&self, device: &Device, dtype: DType) -> GraphDiffuser {
        self.config.check().unwrap_or_else(|error| panic!("{}: {error}", self.name));
        use ColumnSchema::{Categorical, Float};
        let (node_features, edge_features) = if self.mixed {
            (
                FeatureSchema::Mixed(vec![Float, Categorical(4), Float, Categorical(2)]),
                FeatureSchema::Mixed(vec![Categorical(3), Float]),
            )
        } else if self.config.molecule_features.is_some() {
            (
                FeatureSchema::Categorical(ATOM_FEATURES.to_vec()),
                FeatureSchema::Categorical(BOND_FEATURES.to_vec()),
            )
        } else if self.edge_features {
            (FeatureSchema::Categorical(vec![4, 2]), FeatureSchema::Categorical(vec![3]))
        } else {
            (FeatureSchema::Categorical(vec![4, 2]), FeatureSchema::None)
        };
        let schema = Schema {
            node_features,
            edge_features,
            targets: self.targets.clone(),
            names: Names::default(),
        };
        self.config.check_schema(&schema).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let mut init = ParamInit::with_dtype(SeedTree::new(5), device, dtype);
        self.config.init_for(&schema, &mut init)
    }

    pub(crate) fn task(&self) -> Task {
        TaskConfig::default().init(&self.targets, self.config.head)
    }

    /// Creates a batcher of graphs and targets.
    pub(crate) fn batcher(&self, device: &Device, dtype: DType) -> Batcher {
        self.config.batcher(device, dtype).with_targets(Arc::new(self.task()))
    }

    pub(crate) fn collate(&self, graphs: &[Graph], device: &Device, dtype: DType) -> GraphBatch {
        let graphs: Vec<&Graph> = graphs.iter().collect();
        self.batcher(device, dtype).collate_graphs(&graphs, (0..graphs.len()).collect())
    }

    /// Creates a graph with random features and targets.
    pub(crate) fn graph(
        &self,
        nodes: usize,
        edges: &[[u32; 2]],
        stream: &mut RandomStream,
    ) -> Graph {
        let categories =
            (0..nodes).flat_map(|_| [stream.below(4) as u32, stream.below(2) as u32]).collect();
        let edge_features = if self.edge_features {
            let values = edges.iter().map(|_| stream.below(3) as u32).collect();
            Features::Categorical { columns: 1, values }
        } else {
            Features::None
        };
        let targets = match &self.targets {
            TargetSchema::NodeMulticlass(count) => {
                Targets::NodeClasses((0..nodes).map(|_| stream.below(*count) as u32).collect())
            }
            TargetSchema::Graph(kinds) => {
                let sample = |kind: &TargetKind| match *kind {
                    TargetKind::Regression(_) => stream.normal() as f32,
                    TargetKind::Binary => stream.below(2) as f32,
                    TargetKind::Multiclass(classes) => stream.below(classes) as f32,
                };
                Targets::GraphValues(kinds.iter().map(sample).collect())
            }
            TargetSchema::SubTokens(vocabulary) => {
                // Zero to five tokens, some out of vocabulary.
                let words = stream.below(6);
                Targets::SubTokens(
                    (0..words).map(|_| stream.below(vocabulary + 2) as u32).collect(),
                )
            }
            TargetSchema::LinkPrediction => {
                let mut pair = || [stream.below(nodes) as u32, stream.below(nodes) as u32];
                let pairs = (0..nodes / 2).map(|_| pair());
                Targets::Links(
                    pairs.flat_map(|[first, second]| [[first, second], [second, first]]).collect(),
                )
            }
        };
        let mut targets = targets;
        let mut node_features = Features::Categorical { columns: 2, values: categories };
        let mut edge_features = edge_features;
        if self.config.molecule_features.is_some() {
            let mut draw = |sizes: &[usize], rows: usize| Features::Categorical {
                columns: sizes.len(),
                values: (0..rows)
                    .flat_map(|_| sizes.to_vec())
                    .map(|size| stream.below(size) as u32)
                    .collect(),
            };
            node_features = draw(&ATOM_FEATURES, nodes);
            edge_features = draw(&BOND_FEATURES, edges.len());
        }
        if self.mixed {
            let mut with_floats = |features: &Features, columns: usize, rows: usize| {
                let (categorical_columns, categories) = features.categories();
                let floats = (0..rows * columns).map(|_| stream.normal() as f32).collect();
                Features::from_tables(categorical_columns, categories.to_vec(), columns, floats)
            };
            node_features = with_floats(&node_features, 2, nodes);
            edge_features = with_floats(&edge_features, 1, edges.len());
            if let Targets::NodeClasses(classes) = &mut targets {
                classes.iter_mut().skip(1).step_by(3).for_each(|class| *class = MISSING_CLASS);
            }
        }
        Graph { num_nodes: nodes, edges: edges.to_vec(), node_features, edge_features, targets }
    }

    /// Returns batches of graphs with unusual structure.
    pub(crate) fn batches(&self) -> Vec<(&'static str, Vec<Graph>)> {
        let mut stream = SeedTree::new(1).stream("graphs");
        let ring: &[[u32; 2]] = &[[0, 1], [1, 0], [1, 2], [2, 1], [2, 3], [3, 2], [3, 0], [0, 3]];
        let path: &[[u32; 2]] = &[[0, 1], [1, 0], [1, 2], [2, 1]];
        let mut make = |structures: &[(usize, &[[u32; 2]])]| {
            structures.iter().map(|(nodes, edges)| self.graph(*nodes, edges, &mut stream)).collect()
        };
        vec![
            (
                "ragged",
                make(&[(4, ring), (3, path), (4, ring), (5, &[[0, 1], [1, 0], [3, 4], [4, 3]])]),
            ),
            ("one graph", make(&[(4, ring)])),
            ("single-node graph", make(&[(1, &[]), (3, path), (4, ring)])),
            ("graph without edges", make(&[(3, &[]), (4, ring), (3, path)])),
            ("isolated nodes", make(&[(5, path), (6, ring)])),
            ("self-loops", make(&[(3, &[[0, 0], [0, 1], [1, 0], [2, 2]]), (4, ring)])),
            ("directed edges", make(&[(4, &[[0, 1], [1, 2], [2, 3]]), (3, &[[2, 0], [2, 1]])])),
            ("duplicate edges", make(&[(3, &[[0, 1], [0, 1], [1, 0], [1, 2], [2, 1]]), (4, ring)])),
        ]
    }
}
