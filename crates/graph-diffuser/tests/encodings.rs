//! Positional encodings in a model: permutation equivariance, sign invariance and gradients.

use std::borrow::Cow;
use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor, TensorData};
use graph_diffuser::batch::GraphBatch;
use graph_diffuser::model::{GraphDiffuser, ModelConfig};
use graph_diffuser::nn::{ForwardContext, ParamInit};
use graph_diffuser::parameters;
use graph_diffuser::raw_encoding::{PositionalEncodingCache, RawEncoding};
use graph_diffuser::task::TaskConfig;
use graph_diffuser_data::benchmarks::grid_histogram::GridHistogram;
use graph_diffuser_data::benchmarks::synthetic_molecules::{NodeCount, SyntheticMolecules};
use graph_diffuser_data::{Dataset, Features, Graph, Schema, SeedTree, TargetSchema, Targets};

const ENCODINGS: [(&str, &str); 6] = [
    ("rwse, added", "kind = \"rwse\", num_steps = 5"),
    ("rwse, concatenated", "kind = \"rwse\", num_steps = 5, dim = 3"),
    ("lap_pe, added", "kind = \"lap_pe\", num_eigenvectors = 4, hidden_dim = 6"),
    ("lap_pe, concatenated", "kind = \"lap_pe\", num_eigenvectors = 4, hidden_dim = 6, dim = 4"),
    (
        "sign_net, mlp",
        "kind = \"sign_net\", num_eigenvectors = 4, phi = \"mlp\", layers = 2, hidden_dim = 6, channels = 3",
    ),
    (
        "sign_net, gin",
        "kind = \"sign_net\", num_eigenvectors = 4, phi = \"gin\", layers = 2, hidden_dim = 6, channels = 3, dim = 2",
    ),
];

fn config(encoding: &str) -> ModelConfig {
    let text = format!(
        "hidden_dim = 8\nlayers = 1\npositional_encoding = {{ {encoding} }}\n\
         attention = {{ heads = 2, scores = {{ kind = \"content\" }} }}\n\
         head = {{ kind = \"node\", mlp = {{ kind = \"plain\", hidden_layers = 0 }} }}"
    );
    let config: ModelConfig =
        toml::from_str(&text).unwrap_or_else(|error| panic!("{encoding}: {error}"));
    config.check().expect("the config is valid");
    config
}

/// Generates grids of two sizes; square grids are symmetric and have no canonical eigenvectors.
fn grids() -> Dataset {
    GridHistogram {
        rows: 3,
        columns: vec![4, 5],
        colors: 3,
        train: 5,
        valid: 1,
        test: 1,
        ..GridHistogram::default()
    }
    .generate()
}

fn model(config: &ModelConfig, schema: &Schema, device: &Device) -> GraphDiffuser {
    config.init_for(schema, &mut ParamInit::with_dtype(SeedTree::new(5), device, DType::F64))
}

/// Creates a model whose running statistics differ from their initial values.
fn trained_model(config: &ModelConfig, dataset: &Dataset) -> GraphDiffuser {
    let model = model(config, &dataset.schema, &Device::flex());
    let batch = config.batcher(&Device::flex(), DType::F64).collate(dataset, &dataset.splits.train);
    let ctx = ForwardContext::train(0);
    model.forward(&batch, &ctx);
    parameters::update_running_stats(model, &ctx.into_statistics(), 0.5)
}

fn output(model: &GraphDiffuser, batch: &GraphBatch, ctx: &ForwardContext) -> Vec<f64> {
    model.forward(batch, ctx).into_data().iter::<f64>().collect()
}

/// Permutes the nodes of a graph (node `i` becomes node `order[i]`) and reverses its edge list.
fn permuted(graph: &Graph, order: &[u32]) -> Graph {
    let Features::Categorical { columns: 1, values } = &graph.node_features else {
        panic!("grids have one categorical column")
    };
    let mut colors = values.clone();
    for (old, &new) in order.iter().enumerate() {
        colors[new as usize] = values[old];
    }
    Graph {
        edges: graph.edges.iter().rev().map(|ends| ends.map(|node| order[node as usize])).collect(),
        node_features: Features::Categorical { columns: 1, values: colors },
        ..graph.clone()
    }
}

fn random_order(nodes: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..nodes as u32).collect();
    SeedTree::new(2).stream("order").shuffle(&mut order);
    order
}

#[test]
fn output_is_permutation_equivariant() {
    let dataset = grids();
    // LapPE is not invariant to the signs of the eigenvectors.
    for (name, encoding) in ENCODINGS.into_iter().filter(|(name, _)| !name.starts_with("lap_pe")) {
        let config = config(encoding);
        let model = trained_model(&config, &dataset);
        let batcher = config.batcher(&Device::flex(), DType::F64);
        let predict = |graph: &Graph| {
            output(&model, &batcher.collate_graphs(&[graph], vec![0]), &ForwardContext::evaluate())
        };
        for graph in dataset.graphs.iter() {
            let order = random_order(graph.num_nodes);
            let (before, after) = (predict(&graph), predict(&permuted(&graph, &order)));
            let outputs = before.len() / graph.num_nodes;
            for (old, &new) in order.iter().enumerate() {
                for column in 0..outputs {
                    let (old, new) =
                        (before[old * outputs + column], after[new as usize * outputs + column]);
                    assert!((old - new).abs() < 1e-7, "{name}: {old} became {new}");
                }
            }
        }
    }
}

#[test]
fn return_probabilities_are_bitwise_permutation_equivariant() {
    let molecules = SyntheticMolecules {
        nodes: NodeCount::DRUG,
        atoms: 3,
        bonds: 2,
        targets: TargetSchema::regression(1),
        graphs: 20,
        seed: 0,
    };
    let cache = PositionalEncodingCache::with_directory(
        RawEncoding::ReturnProbabilities { num_steps: 12 },
        None,
    );
    for graph in molecules.generate().graphs.iter() {
        let order = random_order(graph.num_nodes);
        let (before, after) = (cache.get(&graph), cache.get(&permuted(&graph, &order)));
        for (old, &new) in order.iter().enumerate() {
            let new = new as usize;
            assert_eq!(before[12 * old..12 * (old + 1)], after[12 * new..12 * (new + 1)]);
        }
    }
}

#[test]
fn signs_are_random_in_training_and_fixed_in_evaluation() {
    let dataset = grids();
    let config = config(ENCODINGS[2].1);
    let model = trained_model(&config, &dataset);
    let batch = config.batcher(&Device::flex(), DType::F64).collate(&dataset, &[0, 1]);
    let train_output = |key| output(&model, &batch, &ForwardContext::train(key));
    assert_eq!(train_output(1), train_output(1));
    assert_ne!(train_output(1), train_output(2));
    assert_eq!(
        output(&model, &batch, &ForwardContext::evaluate()),
        output(&model, &batch, &ForwardContext::evaluate())
    );
}

#[test]
fn output_of_graphs_with_fewer_nodes_than_eigenvectors_is_invariant_to_batch_composition() {
    let graph = |nodes: usize, edges: Vec<[u32; 2]>| Graph {
        num_nodes: nodes,
        edges,
        node_features: Features::Categorical { columns: 1, values: vec![1; nodes] },
        edge_features: Features::None,
        targets: Targets::NodeClasses(vec![0; nodes]),
    };
    let dataset = grids();
    let graphs: Vec<Graph> =
        [graph(1, vec![]), graph(2, vec![[0, 1], [1, 0]]), graph(3, vec![[0, 1]])].to_vec();
    for (name, encoding) in ENCODINGS {
        let config = config(encoding);
        let model = trained_model(&config, &dataset);
        let batcher = config.batcher(&Device::flex(), DType::F64);
        let predict = |graphs: &[&Graph]| {
            output(&model, &batcher.collate_graphs(graphs, vec![]), &ForwardContext::evaluate())
        };
        let together = predict(&graphs.iter().collect::<Vec<_>>());
        let alone: Vec<f64> = graphs.iter().flat_map(|graph| predict(&[graph])).collect();
        for (together, alone) in together.iter().zip(&alone) {
            assert!(
                together.is_finite() && (together - alone).abs() < 1e-10,
                "{name}: {together} {alone}"
            );
        }
    }
}

#[test]
fn gradients_match_finite_differences() {
    let dataset = grids();
    for (name, encoding) in ENCODINGS {
        let config = config(encoding);
        let task = TaskConfig::default().init(&dataset.schema.targets, config.head);
        let loss = |model: &GraphDiffuser, batch: &GraphBatch| {
            task.loss(model.forward(batch, &ForwardContext::train(3)), batch)
        };
        let device = Device::flex().autodiff();
        let graphs: Vec<Cow<'_, Graph>> = dataset.graphs.iter().collect();
        let graphs: Vec<&Graph> = graphs.iter().map(Cow::as_ref).collect();
        let collate = |device: &Device| {
            let batcher = config.batcher(device, DType::F64);
            batcher.with_targets(Arc::new(task.clone())).collate_graphs(&graphs, vec![])
        };
        let tracked = model(&config, &dataset.schema, &device);
        let gradients =
            parameters::gradients(&tracked, &mut loss(&tracked, &collate(&device)).backward());
        let gradient: Vec<f64> = gradients
            .into_iter()
            .flat_map(|part| part.into_data().iter::<f64>().collect::<Vec<_>>())
            .collect();
        let plain = model(&config, &dataset.schema, &Device::flex());
        let (origin, batch) = (parameters::flatten(&plain), collate(&Device::flex()));
        // Only the parameters of the encoding, so that the rest of the model does not hide errors.
        let entries = parameters::named_params(&plain).into_iter().filter(|entry| entry.trainable);
        let members = entries
            .flat_map(|entry| vec![entry.name.contains("positional_encoding"); entry.count()]);
        let mut stream = SeedTree::new(4).stream("direction");
        let direction: Vec<f64> =
            members.map(|member| if member { stream.normal() } else { 0.0 }).collect();
        let slope: f64 =
            gradient.iter().zip(&direction).map(|(gradient, direction)| gradient * direction).sum();
        let at = |distance: f64| {
            let data = TensorData::new(direction.clone(), [direction.len()]);
            let offset = Tensor::<1>::from_data(data, (&Device::flex(), DType::F64)) * distance;
            loss(&parameters::assign(plain.clone(), &(origin.clone() + offset)), &batch)
                .into_scalar::<f64>()
        };
        let difference = (at(1e-6) - at(-1e-6)) / 2e-6;
        assert!(slope.abs() > 1e-4, "{name}: the encoding has no effect on the loss");
        assert!(
            (slope - difference).abs() < 1e-5 * slope.abs().max(1e-2),
            "{name}: {slope:e} {difference:e}"
        );
    }
}
