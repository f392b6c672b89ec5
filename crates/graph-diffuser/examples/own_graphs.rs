//! Classifies graphs that are built in memory: paths and rings of colored nodes.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::atomic::AtomicBool;

use graph_diffuser::Device;
use graph_diffuser::recipe::Recipe;
use graph_diffuser::train::{TrainOutcome, Trainer};
use graph_diffuser_data::{
    Dataset, FeatureSchema, Features, Graph, Graphs, Names, Schema, Splits, TargetSchema, Targets,
};

/// Returns a path, or a ring if `is_ring`. Undirected edges are stored in both directions.
fn graph(nodes: usize, is_ring: bool) -> Graph {
    let last = nodes as u32 - 1;
    let mut edges: Vec<[u32; 2]> = (0..last).map(|node| [node, node + 1]).collect();
    edges.extend(is_ring.then_some([last, 0]));
    let reversed: Vec<[u32; 2]> = edges.iter().map(|&[source, target]| [target, source]).collect();
    edges.extend(reversed);
    let colors = (0..=last).map(|node| node % 3).collect();
    Graph {
        num_nodes: nodes,
        edges,
        node_features: Features::Categorical { columns: 1, values: colors },
        edge_features: Features::None,
        targets: Targets::GraphValues(vec![f32::from(u8::from(is_ring))]),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let graphs: Vec<Graph> = (0..60).map(|index| graph(4 + index / 5, index % 2 == 1)).collect();
    let dataset = Dataset {
        graphs: Graphs::InMemory(graphs),
        schema: Schema {
            node_features: FeatureSchema::Categorical(vec![3]),
            edge_features: FeatureSchema::None,
            targets: TargetSchema::binary(1),
            names: Names { targets: vec!["is_ring".to_owned()], ..Names::default() },
        },
        splits: Splits {
            train: (0..60).filter(|index| index / 2 % 5 < 3).collect(),
            valid: (0..60).filter(|index| index / 2 % 5 == 3).collect(),
            test: (0..60).filter(|index| index / 2 % 5 == 4).collect(),
        },
    };

    // The path is not read, because the dataset is in memory.
    let settings = ["data.path=memory.jsonl", "train.epochs=5", "model.hidden_dim=16"];
    let recipe = Recipe::find("graphs", &settings.map(String::from))?;
    let model = recipe.init_model(&dataset.schema, &Device::flex());
    let checkpoints = tempfile::tempdir()?;
    let mut trainer = Trainer::new(&recipe, &dataset, model, checkpoints.path(), |_| {})?;
    if let TrainOutcome::Finished { test, .. } = trainer.run(&AtomicBool::new(false), |_| {})? {
        println!("test ROC-AUC {:.3} of {} graphs", test.metric, test.samples);
    }
    Ok(())
}

#[test]
fn example_runs() {
    main().expect("the example runs");
}
