//! Molecules from SMILES, with the semantics of `RDKit`.
//!
//! ```
//! use graph_diffuser_data::chem::Molecule;
//!
//! let ethanol = Molecule::from_smiles("CCO")?.ogb_graph();
//! assert_eq!(ethanol.num_nodes, 3);
//! assert_eq!(ethanol.edges, [[0, 1], [1, 0], [1, 2], [2, 1]]);
//! # Ok::<(), graph_diffuser_data::chem::MoleculeError>(())
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::error::{MAX_SMILES_LEN, MAX_WILDCARDS};
use super::{Molecule, MoleculeError};

impl Molecule {
    /// Parses a SMILES string like `Chem.MolFromSmiles`: explicit hydrogens become counts, and
    /// aromaticity, charges, radicals and stereochemistry are perceived.
    ///
    /// # Errors
    /// Returns an error if `RDKit` rejects the string, or if it has no atoms, which `RDKit`
    /// accepts.
    pub fn from_smiles(smiles: &str) -> Result<Self, MoleculeError> {
        Self::parse(smiles, &cosmolkit::SmilesParseParams::default())
    }

    /// Parses a CXSMILES string like `Chem.MolFromSmiles(…, sanitize=False)`: explicit hydrogens
    /// stay atoms, and no properties are perceived.
    ///
    /// # Errors
    /// Returns an error if the syntax is invalid or there are no atoms.
    pub fn from_cxsmiles_unsanitized(smiles: &str) -> Result<Self, MoleculeError> {
        let params = cosmolkit::SmilesParseParams {
            sanitize: false,
            remove_hs: false,
            ..cosmolkit::SmilesParseParams::default()
        };
        Self::parse(smiles, &params)
    }

    fn parse(smiles: &str, params: &cosmolkit::SmilesParseParams) -> Result<Self, MoleculeError> {
        if smiles.trim().is_empty() {
            return Err(MoleculeError::Empty);
        }
        if smiles.len() > MAX_SMILES_LEN {
            return Err(MoleculeError::TooLong { length: smiles.len() });
        }
        let core = smiles.split_whitespace().next().unwrap_or_default();
        let wildcards = core.matches('*').count() + core.matches("[#0").count();
        if params.sanitize && wildcards > MAX_WILDCARDS {
            return Err(MoleculeError::TooManyWildcards { count: wildcards });
        }
        let parsed = catch_panic(smiles.len(), || {
            cosmolkit::Molecule::from_smiles_with_params(smiles, params)
        })?;
        let inner = parsed.map_err(|error| MoleculeError::from_smiles_error(&error))?;
        if inner.num_atoms() == 0 {
            return Err(MoleculeError::NoAtoms);
        }
        Ok(Self { inner, sanitized: params.sanitize })
    }

    /// Returns the number of atoms, including explicit hydrogens if they were kept.
    pub(super) fn num_atoms(&self) -> usize {
        self.inner.num_atoms()
    }

    /// Iterates over the atom pairs of the bonds, in the order of the SMILES.
    pub(super) fn bond_ends(&self) -> impl Iterator<Item = [u32; 2]> {
        self.inner
            .bonds()
            .iter()
            .map(|bond| [bond.begin().index() as u32, bond.end().index() as u32])
    }
}

/// Runs `work` and converts a panic of the parser crate to an error.
///
/// The parser is recursive and takes up to 250 bytes of stack per character, and a stack overflow
/// cannot be caught. Long input therefore runs on a separate thread with a larger stack than the
/// two megabytes of a worker thread.
pub(super) fn catch_panic<T: Send>(
    size: usize,
    work: impl FnOnce() -> T + Send,
) -> Result<T, MoleculeError> {
    const SHORT: usize = 1_000;
    const STACK: usize = 32 << 20;
    if size <= SHORT {
        // Unwind safe: the closure owns or only reads its input, and its result is lost in a panic.
        return catch_unwind(AssertUnwindSafe(work)).map_err(|_| MoleculeError::ParserPanic);
    }
    std::thread::scope(|scope| {
        let spawned = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        spawned
            .map_err(|_| MoleculeError::ParserPanic)?
            .join()
            .map_err(|_| MoleculeError::ParserPanic)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(smiles: &str) -> String {
        Molecule::from_smiles(smiles).expect_err("RDKit rejects it").to_string()
    }

    #[test]
    fn errors_describe_invalid_smiles() {
        assert_eq!(error_of(" "), "SMILES is empty");
        assert_eq!(error_of("CC(C"), "SMILES syntax error at character 5: unclosed branch");
        assert_eq!(error_of("C1CC"), "unclosed ring bond 1");
        let valence =
            "invalid molecule: Explicit valence for atom # 1 C, 5, is greater than permitted";
        assert_eq!(error_of("CC(C)(C)(C)C"), valence);
        assert_eq!(
            error_of("c1cccc1"),
            "invalid molecule: could not kekulize molecule; remaining atoms: [0, 1, 2, 3, 4]"
        );
        assert_eq!(error_of("cC"), "invalid molecule: aromatic atom 0 is not in a ring");
        assert_eq!(error_of("C[Xx]C"), "SMILES syntax error at character 2: unknown element `Xx`");
        assert!(error_of("C |foo|").starts_with("invalid CXSMILES extension"));
        // Found by fuzzing: parsing took minutes.
        let ring = "CCOcc(*1O)#c**********************Occ(*1O)#c*********";
        assert_eq!(error_of(ring), "SMILES has 33 wildcard atoms `*`, the maximum is 12");
        assert!(Molecule::from_smiles(&format!("c1{}1", "*".repeat(11))).is_ok());
        assert_eq!(
            error_of(&"C".repeat(20_001)),
            "SMILES has 20001 characters, the maximum is 20000"
        );
    }

    #[test]
    fn many_rings_do_not_exhaust_the_stack() {
        let rings = "C1CCCCC1".repeat(800);
        std::thread::scope(|scope| {
            let small = std::thread::Builder::new().stack_size(256 << 10);
            let atoms = small.spawn_scoped(scope, || {
                Molecule::from_smiles(&rings).map(|molecule| molecule.num_atoms())
            });
            assert_eq!(atoms.unwrap().join().unwrap(), Ok(4_800));
        });
    }

    #[test]
    fn unsanitized_hydrogens_are_atoms() {
        assert_eq!(Molecule::from_smiles("[H][C]([H])([H])[H]").unwrap().num_atoms(), 1);
        assert_eq!(
            Molecule::from_cxsmiles_unsanitized("[H][C]([H])([H])[H]").unwrap().num_atoms(),
            5
        );
    }
}
