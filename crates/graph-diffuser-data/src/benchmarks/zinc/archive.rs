//! The published files of ZINC-12k: `molecules.zip` with three pickles, and three index files.
//!
//! `{train,val,test}.pickle` are lists of dictionaries, one per molecule of the full dataset:
//!
//! ```text
//! num_atom                   number of atoms n
//! atom_type                  tensor of n atom types
//! bond_type                  tensor of n × n bond types, 0 where there is no bond
//! logP_SA_cycle_normalized   tensor with the target
//! ```
//!
//! `{train,val,test}.index` select the molecules of ZINC-12k by their position in these lists.
//! Edges are the nonzero bond types in row-major order, so both directions of every bond are edges.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use zip::ZipArchive;

use super::schema;
use crate::chem::{ZINC_ATOMS, ZINC_BONDS};
use crate::dataset::{Dataset, Graphs};
use crate::error::{Diagnostic, LocatedError};
use crate::graph::{Features, Graph, Targets};
use crate::io::pickle::{ListItems, PickleError, Value};
use crate::io::torch_file::BARE_PICKLE;
use crate::split::Splits;

/// Maximum number of atoms of a molecule; the largest of ZINC has 38.
const MAX_ATOMS: usize = 1_000;
/// Maximum size of an index file in bytes.
const MAX_INDEX_BYTES: u64 = 4 << 20;
/// Maximum ratio of the size of a pickle to that of the archive.
const MAX_RATIO: u64 = 200;

/// Errors in the published files of ZINC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZincError {
    /// A file cannot be read.
    #[error("cannot read the file: {message}")]
    Read {
        /// Message of the underlying error.
        message: String,
    },
    /// The archive has no pickle with this name.
    #[error("the archive has no `{name}`")]
    NoPickle {
        /// Name of the pickle.
        name: String,
    },
    /// A pickle cannot be read.
    #[error("`{name}`: {message}")]
    Pickle {
        /// Name of the pickle.
        name: String,
        /// Message of the reader.
        message: String,
    },
    /// A molecule is invalid.
    #[error("`{name}`, molecule {molecule}: {problem}")]
    Molecule {
        /// Name of the pickle.
        name: String,
        /// Position of the molecule, starting at 0.
        molecule: usize,
        /// Description of the error.
        problem: String,
    },
    /// A position in an index file is not a number.
    #[error("`{text}` is not the position of a molecule")]
    NotAPosition {
        /// Content of the file.
        text: String,
    },
    /// A position in an index file occurs twice.
    #[error("position {position} occurs twice")]
    DuplicatePosition {
        /// The position.
        position: usize,
    },
    /// An index file selects a molecule that the pickle does not have.
    #[error("position {position} is out of range for {molecules} molecules")]
    PositionOutOfRange {
        /// The position.
        position: usize,
        /// Number of molecules of the pickle.
        molecules: usize,
    },
    /// An index file is empty.
    #[error("no molecule is selected")]
    EmptyIndex,
    /// The caller canceled reading.
    #[error("reading was interrupted")]
    Canceled,
}

impl Diagnostic for ZincError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Canceled => None,
            _ => Some(
                "delete the downloaded files of `zinc` and run `data fetch zinc` again; if the \
                 error persists, save the dataset as `smiles.csv` with the columns `smiles`, `y` \
                 and `split`"
                    .into(),
            ),
        }
    }
}

/// Reads the molecules of ZINC-12k from `molecules.zip` and the index files of `train`, `val` and
/// `test`.
///
/// Graphs are in the order of the index files, first those of the training set. The pickles are
/// read as streams; only the selected molecules are kept.
///
/// # Errors
/// Returns an error if a file is invalid, or if `cancel` is set.
pub fn read_archive(
    archive: &Path,
    indices: [&Path; 3],
    cancel: &AtomicBool,
) -> Result<Dataset, LocatedError> {
    let mut graphs = Vec::new();
    let mut splits = Splits::default();
    let parts = [
        ("train.pickle", &mut splits.train),
        ("val.pickle", &mut splits.valid),
        ("test.pickle", &mut splits.test),
    ];
    for ((name, split), index) in parts.into_iter().zip(indices) {
        let positions = read_index(index).map_err(|error| LocatedError::new(index, error))?;
        let read = read_pickle(archive, name, &positions, cancel);
        let selected = read.map_err(|error| match error {
            ZincError::PositionOutOfRange { .. } => LocatedError::new(index, error),
            _ => LocatedError::new(archive, error),
        })?;
        split.extend(graphs.len()..graphs.len() + selected.len());
        graphs.extend(selected);
    }
    Ok(Dataset { graphs: Graphs::InMemory(graphs), schema: schema(), splits })
}

fn read_error(error: impl ToString) -> ZincError {
    ZincError::Read { message: error.to_string() }
}

/// Reads positions that are separated by commas, and returns the rank of each.
fn read_index(path: &Path) -> Result<BTreeMap<usize, usize>, ZincError> {
    let mut text = String::new();
    let file = File::open(path).map_err(read_error)?;
    file.take(MAX_INDEX_BYTES).read_to_string(&mut text).map_err(read_error)?;
    let mut positions = BTreeMap::new();
    let words = text.split([',', '\n']).map(str::trim).filter(|word| !word.is_empty());
    for (rank, word) in words.enumerate() {
        let position = word
            .parse()
            .map_err(|_| ZincError::NotAPosition { text: word.chars().take(20).collect() })?;
        if positions.insert(position, rank).is_some() {
            return Err(ZincError::DuplicatePosition { position });
        }
    }
    if positions.is_empty() { Err(ZincError::EmptyIndex) } else { Ok(positions) }
}

/// Reads the molecules at the given positions of a pickle, in the order of their ranks.
fn read_pickle(
    archive: &Path,
    name: &str,
    positions: &BTreeMap<usize, usize>,
    cancel: &AtomicBool,
) -> Result<Vec<Graph>, ZincError> {
    let file = File::open(archive).map_err(read_error)?;
    let max_bytes = file
        .metadata()
        .map_err(read_error)?
        .len()
        .saturating_mul(MAX_RATIO)
        .saturating_add(1 << 20);
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(read_error)?;
    let is_pickle = |entry: &&str| {
        let folder = entry.strip_suffix(name);
        folder.is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
            && !entry.starts_with("__MACOSX")
    };
    let entry = archive.file_names().find(is_pickle).map(ToOwned::to_owned);
    let entry = entry.ok_or_else(|| ZincError::NoPickle { name: name.into() })?;
    let entry = archive.by_name(&entry).map_err(read_error)?;
    let content = BufReader::with_capacity(1 << 16, entry.take(max_bytes));
    read_molecules(name, content, positions, cancel)
}

fn read_molecules(
    name: &str,
    content: impl io::BufRead,
    positions: &BTreeMap<usize, usize>,
    cancel: &AtomicBool,
) -> Result<Vec<Graph>, ZincError> {
    let mut selected: Vec<Option<Graph>> = vec![None; positions.len()];
    let mut molecules = 0;
    for molecule in ListItems::new(content, BARE_PICKLE) {
        let molecule = molecule
            .map_err(|error| ZincError::Pickle { name: name.into(), message: error.to_string() })?;
        if let Some(&rank) = positions.get(&molecules) {
            let graph = molecule_graph(&molecule).map_err(|error| ZincError::Molecule {
                name: name.into(),
                molecule: molecules,
                problem: error.to_string(),
            })?;
            selected[rank] = Some(graph);
        }
        molecules += 1;
        if cancel.load(Ordering::Relaxed) {
            return Err(ZincError::Canceled);
        }
    }
    if let Some((&position, _)) = positions.range(molecules..).next() {
        return Err(ZincError::PositionOutOfRange { position, molecules });
    }
    Ok(selected.into_iter().flatten().collect())
}

/// Errors in a molecule.
#[derive(Debug, thiserror::Error)]
enum MoleculeProblem {
    #[error("no `{0}`")]
    Missing(&'static str),
    #[error("`{0}`: {1}")]
    Array(&'static str, PickleError),
    #[error("{0} atoms, expected 1 to {MAX_ATOMS}")]
    Atoms(usize),
    #[error("`num_atom` is {num_atom}, but `atom_type` has {atoms} elements")]
    NumAtom { num_atom: i64, atoms: usize },
    #[error("`bond_type` has shape {shape:?}, expected [{atoms}, {atoms}]")]
    BondShape { shape: Vec<usize>, atoms: usize },
    #[error("`{key}` contains {value}, expected 0 to {max}")]
    Category { key: &'static str, value: i64, max: usize },
    #[error("`logP_SA_cycle_normalized` is not a finite number")]
    Target,
}

fn molecule_graph(molecule: &Value) -> Result<Graph, MoleculeProblem> {
    const TARGET: &str = "logP_SA_cycle_normalized";
    let value = |key| molecule.get(key).ok_or(MoleculeProblem::Missing(key));
    let tensor = |key| value(key)?.tensor().map_err(|error| MoleculeProblem::Array(key, error));
    let integers =
        |key| tensor(key)?.integers().map_err(|error| MoleculeProblem::Array(key, error));

    let bonds = tensor("bond_type")?;
    let atom_types = integers("atom_type")?;
    let atoms = atom_types.len();
    if atoms == 0 || atoms > MAX_ATOMS {
        return Err(MoleculeProblem::Atoms(atoms));
    }
    if bonds.shape() != [atoms, atoms] {
        return Err(MoleculeProblem::BondShape { shape: bonds.shape().to_vec(), atoms });
    }
    if let Ok(&Value::Integer(num_atom)) = value("num_atom")
        && usize::try_from(num_atom) != Ok(atoms)
    {
        return Err(MoleculeProblem::NumAtom { num_atom, atoms });
    }
    let atom_types = categories("atom_type", &atom_types, ZINC_ATOMS.len())?;
    let bond_types = categories("bond_type", &integers("bond_type")?, ZINC_BONDS.len())?;
    let mut edges = Vec::new();
    let mut edge_types = Vec::new();
    for (pair, bond) in bond_types.into_iter().enumerate().filter(|&(_, bond)| bond != 0) {
        edges.push([(pair / atoms) as u32, (pair % atoms) as u32]);
        edge_types.push(bond);
    }
    let target = match value(TARGET)? {
        Value::Float(target) => *target,
        Value::Integer(target) => *target as f64,
        _ => {
            let values = tensor(TARGET)?.floats();
            let values = values.map_err(|error| MoleculeProblem::Array(TARGET, error))?;
            let [target] = values[..] else { return Err(MoleculeProblem::Target) };
            target
        }
    };
    let target = target as f32;
    if !target.is_finite() {
        return Err(MoleculeProblem::Target);
    }
    Ok(Graph {
        num_nodes: atoms,
        edges,
        node_features: Features::Categorical { columns: 1, values: atom_types },
        edge_features: Features::Categorical { columns: 1, values: edge_types },
        targets: Targets::GraphValues(vec![target]),
    })
}

fn categories(
    key: &'static str,
    values: &[i64],
    count: usize,
) -> Result<Vec<u32>, MoleculeProblem> {
    let category = |&value: &i64| {
        let category = u32::try_from(value).ok().filter(|&category| (category as usize) < count);
        category.ok_or(MoleculeProblem::Category { key, value, max: count - 1 })
    };
    values.iter().map(category).collect()
}

/// Reads all molecules of a pickle that is not in an archive.
///
/// # Errors
/// Returns an error if the pickle or a molecule is invalid.
pub fn read_bare_pickle(content: impl io::BufRead) -> Result<Vec<Graph>, ZincError> {
    let molecules = ListItems::new(content, BARE_PICKLE);
    let graphs = molecules.enumerate().map(|(position, molecule)| {
        let problem = |problem: String| ZincError::Molecule {
            name: "pickle".into(),
            molecule: position,
            problem,
        };
        let molecule = molecule.map_err(|error| problem(error.to_string()))?;
        molecule_graph(&molecule).map_err(|error| problem(error.to_string()))
    });
    graphs.collect()
}

#[cfg(test)]
mod tests;
