//! Molecules from SMILES, as `RDKit` reads them.
//!
//! A small interface over the crate `cosmolkit`, a port of `RDKit`: nothing else of this crate knows it. The reference
//! is `RDKit` 2026.9.1; a recorded fixture holds every atom and bond of the port to it.
//!
//! ```
//! use graph_diffuser_data::molecule::Molecule;
//!
//! let ethanol = Molecule::from_smiles("CCO")?.ogb_graph();
//! assert_eq!(ethanol.nodes, 3);
//! assert_eq!(ethanol.edges, [[0, 1], [1, 0], [1, 2], [2, 1]]);
//! # Ok::<(), graph_diffuser_data::molecule::MoleculeFault>(())
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};

pub mod contacts;
mod error;
pub mod ogb_features;
mod rings;
pub mod scaffold;
pub mod zinc_features;

pub use error::MoleculeError;
pub use scaffold::scaffold_groups;

/// The longest SMILES that is read, in bytes. Perceiving rings takes time in the square of the length and more, and a
/// model that looks at all pairs of atoms could not use a longer one.
pub const LONGEST_SMILES: usize = 20_000;

/// Most atoms `*` of a SMILES. In an aromatic ring each may or may not be part of a double bond, and all combinations
/// are tried: thirty of them would take longer than anybody waits.
pub const MOST_WILDCARDS: usize = 12;

/// Atoms and bonds with what `RDKit` perceives in them.
#[derive(Debug, Clone)]
pub struct Molecule {
    inner: cosmolkit::Molecule,
    sanitised: bool,
}

impl Molecule {
    /// Reads a SMILES as `Chem.MolFromSmiles` does: hydrogens become counts, aromaticity, charges, radicals and
    /// stereochemistry are perceived and cleaned.
    ///
    /// # Errors
    /// Why `RDKit` would refuse it; and a SMILES without atoms, which `RDKit` lets pass.
    pub fn from_smiles(smiles: &str) -> Result<Self, MoleculeError> {
        Self::read(smiles, &cosmolkit::SmilesParseParams::default())
    }

    /// Reads a SMILES with its extensions as `Chem.MolFromSmiles(…, sanitize=False)` does: every written hydrogen
    /// stays an atom, and nothing is perceived.
    ///
    /// # Errors
    /// Bad syntax, and a SMILES without atoms.
    pub fn from_cxsmiles_unsanitized(smiles: &str) -> Result<Self, MoleculeError> {
        let params = cosmolkit::SmilesParseParams {
            sanitize: false,
            remove_hs: false,
            ..cosmolkit::SmilesParseParams::default()
        };
        Self::read(smiles, &params)
    }

    fn read(smiles: &str, params: &cosmolkit::SmilesParseParams) -> Result<Self, MoleculeError> {
        if smiles.trim().is_empty() {
            return Err(MoleculeError::Empty);
        }
        if smiles.len() > LONGEST_SMILES {
            return Err(MoleculeError::TooLong { length: smiles.len() });
        }
        let written = smiles.split_whitespace().next().unwrap_or_default();
        let wildcards = written.matches('*').count() + written.matches("[#0").count();
        if params.sanitize && wildcards > MOST_WILDCARDS {
            return Err(MoleculeError::Wildcards { count: wildcards });
        }
        let read =
            guarded(smiles.len(), || cosmolkit::Molecule::from_smiles_with_params(smiles, params))?;
        let inner = read.map_err(|error| MoleculeError::from_reader(&error))?;
        if inner.num_atoms() == 0 {
            return Err(MoleculeError::NoAtoms);
        }
        Ok(Self { inner, sanitised: params.sanitize })
    }

    /// How many atoms it has, written-out hydrogens included where they were kept.
    pub fn atoms(&self) -> usize {
        self.inner.num_atoms()
    }

    /// Both ends of every bond, in the order of the SMILES.
    fn bond_ends(&self) -> impl Iterator<Item = [u32; 2]> {
        self.inner
            .bonds()
            .iter()
            .map(|bond| [bond.begin().index() as u32, bond.end().index() as u32])
    }
}

/// A panic inside the chemistry is a fault of one molecule, not the end of the program.
///
/// The chemistry walks molecules by recursion, and a stack that runs out cannot be caught: up to 250 bytes a character
/// were seen. What could come near the two megabytes of a worker thread gets a thread of its own.
fn guarded<T: Send>(size: usize, work: impl FnOnce() -> T + Send) -> Result<T, MoleculeError> {
    const SHORT: usize = 1_000;
    const STACK: usize = 32 << 20;
    if size <= SHORT {
        // The closure owns or reads its input, and what it made is dropped with the panic.
        return catch_unwind(AssertUnwindSafe(work)).map_err(|_| MoleculeError::Broke);
    }
    std::thread::scope(|scope| {
        let spawned = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        spawned.map_err(|_| MoleculeError::Broke)?.join().map_err(|_| MoleculeError::Broke)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(smiles: &str) -> String {
        Molecule::from_smiles(smiles).expect_err("RDKit refuses it").to_string()
    }

    #[test]
    fn what_is_wrong_with_a_smiles_is_said() {
        assert_eq!(refusal(" "), "the SMILES is empty");
        assert_eq!(refusal("CC(C"), "the SMILES breaks off at character 5: unclosed branch");
        assert_eq!(refusal("C1CC"), "ring 1 is opened and never closed");
        let valence =
            "no such molecule: Explicit valence for atom # 1 C, 5, is greater than permitted";
        assert_eq!(refusal("CC(C)(C)(C)C"), valence);
        assert_eq!(
            refusal("c1cccc1"),
            "no such molecule: could not kekulize molecule; remaining atoms: [0, 1, 2, 3, 4]"
        );
        assert_eq!(refusal("cC"), "no such molecule: aromatic atom 0 is not in a ring");
        assert_eq!(refusal("C[Xx]C"), "the SMILES breaks off at character 2: `Xx` is no atom");
        assert!(refusal("C |foo|").starts_with("the extension after the SMILES is not understood"));
        // Found by fuzzing: it was not over after minutes.
        let ring = "CCOcc(*1O)#c**********************Occ(*1O)#c*********";
        assert_eq!(refusal(ring), "the SMILES has 33 atoms `*`, and 12 are read at most");
        assert!(Molecule::from_smiles(&format!("c1{}1", "*".repeat(11))).is_ok());
        assert_eq!(
            refusal(&"C".repeat(20_001)),
            "the SMILES has 20001 characters, and 20000 are read at most"
        );
    }

    #[test]
    fn many_rings_do_not_exhaust_the_stack() {
        let rings = "C1CCCCC1".repeat(800);
        std::thread::scope(|scope| {
            let small = std::thread::Builder::new().stack_size(256 << 10);
            let atoms = small.spawn_scoped(scope, || {
                Molecule::from_smiles(&rings).map(|molecule| molecule.atoms())
            });
            assert_eq!(atoms.unwrap().join().unwrap(), Ok(4_800));
        });
    }

    #[test]
    fn unsanitised_hydrogens_are_atoms() {
        assert_eq!(Molecule::from_smiles("[H][C]([H])([H])[H]").unwrap().atoms(), 1);
        assert_eq!(Molecule::from_cxsmiles_unsanitized("[H][C]([H])([H])[H]").unwrap().atoms(), 5);
    }
}
