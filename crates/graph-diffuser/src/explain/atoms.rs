//! Node labels of figures, and detection of grids and molecules.

use graph_diffuser_data::benchmarks::grid_histogram;
use graph_diffuser_data::chem::{ATOM_FEATURES, BOND_FEATURES};
use graph_diffuser_data::{FeatureSchema, Features, Graph, Schema};

use super::structure::Structure;

/// Element symbols in the order of their atomic number, starting at 1.
const ELEMENTS: &str = "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr \
    Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os \
    Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc \
    Lv Ts Og";

/// Labels of the categories of a column without category names.
const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Returns the symbol of the element with atomic number `index + 1`.
pub(super) fn element(index: usize) -> &'static str {
    ELEMENTS.split_whitespace().nth(index).unwrap_or("*")
}

fn is_element(symbol: &str) -> bool {
    ELEMENTS.split_whitespace().any(|known| known == symbol)
}

/// Returns whether `name` is an atom type in the notation of ZINC: `C`, `N H1 +`, `O -`.
pub(super) fn is_atom(name: &str) -> bool {
    let mut words = name.split_whitespace();
    words.next().is_some_and(is_element)
        && words.all(|word| {
            ["+", "-"].contains(&word)
                || word.strip_prefix('H').is_some_and(|count| count.parse::<u8>().is_ok())
        })
}

/// Abbreviates an atom type of ZINC: `N H1 +` becomes `NH+`.
pub(super) fn short_atom(name: &str) -> String {
    name.split_whitespace().map(|word| if word == "H1" { "H" } else { word }).collect()
}

/// Detects whether a graph is a grid, a molecule or neither.
pub(super) fn structure(graph: &Graph, schema: &Schema) -> Structure {
    if let Some((rows, columns)) = grid(graph) {
        return Structure::Grid { rows, columns };
    }
    let named = schema.names.node_categories.first();
    let is_molecule = schema.node_features == FeatureSchema::Categorical(ATOM_FEATURES.to_vec())
        || named.is_some_and(|names| !names.is_empty() && names.iter().all(|name| is_atom(name)));
    if is_molecule {
        Structure::Molecule { bonds: bonds(graph, schema) }
    } else {
        Structure::Other {}
    }
}

/// Returns rows and columns if the edges are exactly those of a grid in row-major order.
fn grid(graph: &Graph) -> Option<(usize, usize)> {
    let mut edges = graph.edges.clone();
    edges.sort_unstable();
    // Node 0 of a grid has the neighbors 1 and `columns`.
    let below = edges.iter().filter(|edge| edge[0] == 0).map(|edge| edge[1] as usize).max()?;
    let (columns, rows) = (below, graph.num_nodes / below.max(1));
    let is_grid = rows > 1 && columns > 1 && rows * columns == graph.num_nodes;
    (is_grid && edges == grid_histogram::edges(rows, columns)).then_some((rows, columns))
}

/// Returns the bond type of each edge: 1, 2, 3, or 4 for an aromatic bond.
fn bonds(graph: &Graph, schema: &Schema) -> Vec<u8> {
    let Features::Categorical { columns, values } = &graph.edge_features else {
        return vec![1; graph.edges.len()];
    };
    let names = schema.names.edge_categories.first();
    let is_ogb = schema.edge_features == FeatureSchema::Categorical(BOND_FEATURES.to_vec());
    let bond = |kind: u32| match (
        names.and_then(|names| names.get(kind as usize)).map(String::as_str),
        kind,
    ) {
        (Some("double" | "2"), _) => 2,
        (Some("triple" | "3"), _) => 3,
        (Some("aromatic"), _) => 4,
        (None, 1..=3) if is_ogb => kind as u8 + 1,
        _ => 1,
    };
    values.iter().step_by(*columns).map(|&kind| bond(kind)).collect()
}

/// Returns the label of each node: its element, the name or letter of its category, or its index.
pub(super) fn labels(graph: &Graph, schema: &Schema) -> Vec<String> {
    let Features::Categorical { columns, values } = &graph.node_features else {
        return (0..graph.num_nodes).map(|node| node.to_string()).collect();
    };
    let rows = values.chunks(*columns);
    if schema.node_features == FeatureSchema::Categorical(ATOM_FEATURES.to_vec()) {
        // The first column holds the atomic number - 1, the fourth the formal charge + 5.
        let atom = |row: &[u32]| {
            let charge = match row[3] as i32 - 5 {
                0 => String::new(),
                1 => "+".into(),
                -1 => "-".into(),
                charge => format!("{}{}", charge.abs(), if charge > 0 { '+' } else { '-' }),
            };
            // The last category of the charge represents all charges outside -5..=5.
            let charge = if row[3] == 11 { "*".into() } else { charge };
            format!("{}{charge}", element(row[0] as usize))
        };
        return rows.map(atom).collect();
    }
    let names = schema.names.node_categories.first().filter(|names| !names.is_empty());
    let categories = match &schema.node_features {
        FeatureSchema::Categorical(sizes) => sizes[0],
        _ => 0,
    };
    let label = |row: &[u32]| match names.and_then(|names| names.get(row[0] as usize)) {
        Some(name) if is_atom(name) => short_atom(name),
        Some(name) => name.clone(),
        None if categories <= LETTERS.len() => {
            LETTERS[row[0] as usize..=row[0] as usize].to_owned()
        }
        None => row[0].to_string(),
    };
    rows.map(label).collect()
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::benchmarks::zinc;
    use graph_diffuser_data::chem::Molecule;
    use graph_diffuser_data::{Names, TargetSchema};

    use super::*;

    #[test]
    fn grids_are_detected_by_their_edges() {
        let dataset = grid_histogram::GridHistogram {
            rows: 2,
            columns: vec![3],
            train: 1,
            ..Default::default()
        }
        .generate();
        let graph = dataset.graphs.get(0).into_owned();
        assert_eq!(structure(&graph, &dataset.schema), Structure::Grid { rows: 2, columns: 3 });
        assert!(labels(&graph, &dataset.schema).iter().all(|label| label.len() == 1));
        let mut other = graph.clone();
        other.edges.pop();
        assert_eq!(structure(&other, &dataset.schema), Structure::Other {});
    }

    #[test]
    fn atoms_and_bonds_are_detected_in_zinc_and_ogb_features() {
        let molecule = Molecule::from_smiles("C[NH+]=C").unwrap();
        let (zinc_graph, zinc_schema) = (molecule.zinc_graph().unwrap(), zinc::schema());
        assert_eq!(labels(&zinc_graph, &zinc_schema), ["C", "NH+", "C"]);
        assert_eq!(
            structure(&zinc_graph, &zinc_schema),
            Structure::Molecule { bonds: vec![1, 1, 2, 2] }
        );
        let schema = Schema {
            node_features: FeatureSchema::Categorical(ATOM_FEATURES.to_vec()),
            edge_features: FeatureSchema::Categorical(BOND_FEATURES.to_vec()),
            targets: TargetSchema::regression(1),
            names: Names::default(),
        };
        let graph = molecule.ogb_graph();
        assert_eq!(labels(&graph, &schema), ["C", "N+", "C"]);
        assert_eq!(structure(&graph, &schema), Structure::Molecule { bonds: vec![1, 1, 2, 2] });
    }

    #[test]
    fn elements_are_ordered_by_atomic_number() {
        assert_eq!(ELEMENTS.split_whitespace().count(), 118);
        assert_eq!(
            (element(5), element(16), element(34), element(52), element(118)),
            ("C", "Cl", "Br", "I", "*")
        );
    }
}
