//! Names and values of node and edge features.

use graph_diffuser_data::chem::{ATOM_FEATURES, BOND_FEATURES};
use graph_diffuser_data::{FeatureSchema, Features, Graph, Schema};

use super::atoms::{element, is_atom, short_atom};

const ATOM_NAMES: [&str; 9] = [
    "element",
    "chirality",
    "degree",
    "charge",
    "hydrogens",
    "radicals",
    "hybridization",
    "aromatic",
    "ring",
];
const CHIRALITY: [&str; 5] = ["none", "clockwise", "counterclockwise", "other", "unknown"];
const HYBRIDIZATION: [&str; 6] = ["sp", "sp2", "sp3", "sp3d", "sp3d2", "other"];
const BOND_NAMES: [&str; 3] = ["type", "stereo", "conjugated"];
const BOND_TYPES: [&str; 5] = ["single", "double", "triple", "aromatic", "other"];
const STEREO: [&str; 6] = ["none", "Z", "E", "cis", "trans", "any"];

/// Features of the nodes or edges of a graph as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFeatures {
    /// Name of each feature, such as `element`.
    pub names: Vec<String>,
    /// Values of each node or edge, in the order of the names.
    pub rows: Vec<Vec<String>>,
}

impl NamedFeatures {
    /// Describes the features of the nodes of a graph.
    pub fn of_nodes(graph: &Graph, schema: &Schema) -> Self {
        let is_ogb = schema.node_features == FeatureSchema::Categorical(ATOM_FEATURES.to_vec());
        let known = is_ogb.then_some((&ATOM_NAMES[..], atom_value as fn(usize, u32) -> String));
        describe(&graph.node_features, &schema.names.node_categories, known)
    }

    /// Describes the features of the edges of a graph.
    pub fn of_edges(graph: &Graph, schema: &Schema) -> Self {
        let is_ogb = schema.edge_features == FeatureSchema::Categorical(BOND_FEATURES.to_vec());
        let known = is_ogb.then_some((&BOND_NAMES[..], bond_value as fn(usize, u32) -> String));
        describe(&graph.edge_features, &schema.names.edge_categories, known)
    }
}

/// Known names of features, and the text of a category.
type KnownFeatures = (&'static [&'static str], fn(usize, u32) -> String);

fn describe(
    features: &Features,
    categories: &[Vec<String>],
    known: Option<KnownFeatures>,
) -> NamedFeatures {
    let category = |column: usize, value: u32| match known {
        Some((_, text)) => text(column, value),
        None => match categories.get(column).and_then(|names| names.get(value as usize)) {
            Some(name) if is_atom(name) => short_atom(name),
            Some(name) => name.clone(),
            None => value.to_string(),
        },
    };
    let is_named_atom = categories
        .first()
        .is_some_and(|names| !names.is_empty() && names.iter().all(|name| is_atom(name)));
    let names = |categorical: usize, floats: usize| -> Vec<String> {
        let categorical = (0..categorical).map(|column| match known {
            Some((names, _)) => names[column].to_owned(),
            None if column == 0 && is_named_atom => "atom".to_owned(),
            None if categorical == 1 => "category".to_owned(),
            None => format!("category {column}"),
        });
        let floats = (0..floats)
            .map(|column| if floats == 1 { "value".to_owned() } else { format!("value {column}") });
        categorical.chain(floats).collect()
    };
    let categorical_row = |row: &[u32]| -> Vec<String> {
        row.iter().enumerate().map(|(column, &value)| category(column, value)).collect()
    };
    // The shortest decimal number with this value.
    let float_row = |row: &[f32]| row.iter().map(f32::to_string).collect::<Vec<_>>();
    match features {
        Features::None => NamedFeatures { names: vec![], rows: vec![] },
        Features::Categorical { columns, values } => NamedFeatures {
            names: names(*columns, 0),
            rows: values.chunks(*columns).map(categorical_row).collect(),
        },
        Features::Float { columns, values } => NamedFeatures {
            names: names(0, *columns),
            rows: values.chunks(*columns).map(float_row).collect(),
        },
        Features::Mixed { categorical_columns, categories, float_columns, floats } => {
            let rows = categories.chunks(*categorical_columns).zip(floats.chunks(*float_columns));
            NamedFeatures {
                names: names(*categorical_columns, *float_columns),
                rows: rows
                    .map(|(categories, floats)| {
                        [categorical_row(categories), float_row(floats)].concat()
                    })
                    .collect(),
            }
        }
    }
}

/// Returns the text of an OGB atom feature; the last category of a count is any larger one.
fn atom_value(column: usize, value: u32) -> String {
    let index = value as usize;
    let is_last = index + 1 == ATOM_FEATURES[column];
    match column {
        0 => element(index).to_owned(),
        1 => CHIRALITY[index].to_owned(),
        3 if is_last => "other".to_owned(),
        3 => match i64::from(value) - 5 {
            0 => "0".to_owned(),
            charge => format!("{charge:+}"),
        },
        2 | 4 | 5 if is_last => "more".to_owned(),
        6 => HYBRIDIZATION[index].to_owned(),
        7 | 8 => yes_no(value),
        _ => value.to_string(),
    }
}

fn bond_value(column: usize, value: u32) -> String {
    match column {
        0 => BOND_TYPES[value as usize].to_owned(),
        1 => STEREO[value as usize].to_owned(),
        _ => yes_no(value),
    }
}

fn yes_no(value: u32) -> String {
    if value == 0 { "no".to_owned() } else { "yes".to_owned() }
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::TargetSchema;
    use graph_diffuser_data::benchmarks::zinc;
    use graph_diffuser_data::chem::{Molecule, ogb_schema};

    use super::*;

    #[test]
    fn ogb_features_are_named() {
        let graph = Molecule::from_smiles("C[C@H](F)[NH3+]").unwrap().ogb_graph();
        let schema = ogb_schema(TargetSchema::regression(1));
        let nodes = NamedFeatures::of_nodes(&graph, &schema);
        assert_eq!(nodes.names, ATOM_NAMES);
        assert_eq!(nodes.rows[0], ["C", "none", "4", "0", "3", "0", "sp3", "no", "no"]);
        assert!(nodes.rows[1][1].ends_with("clockwise"), "{:?}", nodes.rows[1]);
        assert_eq!(nodes.rows[3][3], "+1");
        let edges = NamedFeatures::of_edges(&graph, &schema);
        assert_eq!(edges.rows[0], ["single", "none", "no"]);
    }

    #[test]
    fn zinc_features_and_floats_are_named() {
        let graph = Molecule::from_smiles("C=[NH+]C").unwrap().zinc_graph().unwrap();
        let nodes = NamedFeatures::of_nodes(&graph, &zinc::schema());
        assert_eq!(nodes.names, ["atom"]);
        assert_eq!(nodes.rows[1], ["NH+"]);
        let features = Features::Float { columns: 2, values: vec![-1.64, 3.0] };
        let floats = describe(&features, &[], None);
        assert_eq!((floats.names[1].as_str(), floats.rows[0][0].as_str()), ("value 1", "-1.64"));
    }
}
