//! Molecules from SMILES and molfiles, with the semantics of `RDKit`.
//!
//! ```
//! use graph_diffuser_data::chem::Molecule;
//!
//! let ethanol = Molecule::from_smiles("CCO")?.ogb_graph();
//! assert_eq!(ethanol.num_nodes, 3);
//! assert_eq!(ethanol.edges, [[0, 1], [1, 0], [1, 2], [2, 1]]);
//! # Ok::<(), graph_diffuser_data::chem::MoleculeError>(())
//! ```

use crate::caught_panic;

use super::error::{MAX_MOLFILE_LEN, MAX_RING_SYSTEM, MAX_SMILES_LEN, MAX_WILDCARDS};
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

    /// Parses a molfile (V2000 or V3000) like `Chem.MolFromMolBlock`: explicit hydrogens become
    /// counts, and stereochemistry is perceived from wedges and coordinates.
    ///
    /// # Errors
    /// Returns an error if `RDKit` rejects the molfile, or if it has no atoms or query features,
    /// which `RDKit` accepts.
    ///
    /// # Examples
    /// ```
    /// use graph_diffuser_data::chem::Molecule;
    ///
    /// let molfile = "methanol
    ///
    ///
    ///   2  1  0  0  0  0  0  0  0  0999 V2000
    ///     0.0000    0.0000    0.0000 C   0  0
    ///     1.5000    0.0000    0.0000 O   0  0
    ///   1  2  1  0
    /// M  END
    /// ";
    /// let methanol = Molecule::from_molfile(molfile)?;
    /// assert_eq!(methanol.to_smiles()?, "CO");
    /// # Ok::<(), graph_diffuser_data::chem::MoleculeError>(())
    /// ```
    pub fn from_molfile(molfile: &str) -> Result<Self, MoleculeError> {
        if molfile.len() > MAX_MOLFILE_LEN {
            return Err(MoleculeError::MolfileTooLong { length: molfile.len() });
        }
        let wildcards = molfile.lines().skip(4).filter(|line| is_wildcard_atom(line)).count();
        if wildcards > MAX_WILDCARDS {
            let reason = format!("{wildcards} wildcard atoms, the maximum is {MAX_WILDCARDS}");
            return Err(MoleculeError::Molfile { reason });
        }
        // Every atom and bond has a line, so their number bounds the depth of the recursion.
        let size = molfile.lines().count();
        if size > MAX_RING_SYSTEM {
            let params = cosmolkit::SdfReadParams {
                sanitize: false,
                remove_hs: false,
                ..cosmolkit::SdfReadParams::default()
            };
            let parsed = catch_panic(size, || {
                cosmolkit::Molecule::from_mol_with_params(molfile, &params)
                    .map_err(|error| MoleculeError::from_sdf_error(&error))
            })??;
            Self { inner: parsed, sanitized: false }.check_ring_systems()?;
        }
        let inner = catch_panic(size, || {
            let parsed = cosmolkit::Molecule::from_mol(molfile)
                .map_err(|error| MoleculeError::from_sdf_error(&error))?;
            // The reader does not update the hydrogen count of an atom whose 3D chirality it
            // discards.
            parsed
                .with_assigned_valence()
                .map_err(|error| MoleculeError::Sanitization { reason: error.to_string() })
        })??;
        if inner.num_atoms() == 0 {
            return Err(MoleculeError::NoAtoms);
        }
        Ok(Self { inner, sanitized: true })
    }

    /// Returns the SMILES of the molecule: canonical up to 200 atoms, in the order of the atoms
    /// beyond.
    ///
    /// # Errors
    /// Returns an error if the molecule cannot be written as SMILES; no sanitized molecule is known
    /// to fail.
    pub fn to_smiles(&self) -> Result<String, MoleculeError> {
        // Canonical ranks take cubic time: 30 ms for 250 atoms, 10 s for 2,000 atoms.
        const MAX_CANONICAL_ATOMS: usize = 200;
        let params = cosmolkit::SmilesWriteParams {
            canonical: self.num_atoms() <= MAX_CANONICAL_ATOMS,
            ..cosmolkit::SmilesWriteParams::default()
        };
        let written = catch_panic(self.num_atoms(), || self.inner.to_smiles_with_params(&params))?;
        let written =
            written.map_err(|error| MoleculeError::Sanitization { reason: error.to_string() })?;
        Ok(String::from_utf8_lossy(written.as_bytes()).into_owned())
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
        // An atom has at least one character.
        if params.sanitize && core.len() > MAX_RING_SYSTEM {
            Self::from_cxsmiles_unsanitized(smiles)?.check_ring_systems()?;
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

    /// Returns an error if the perception of rings would take too much memory.
    fn check_ring_systems(&self) -> Result<(), MoleculeError> {
        match self.largest_ring_system() {
            atoms if atoms > MAX_RING_SYSTEM => Err(MoleculeError::RingSystemTooLarge { atoms }),
            _ => Ok(()),
        }
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

/// Returns `true` if an atom line of a molfile has an atom without an element.
fn is_wildcard_atom(line: &str) -> bool {
    const SYMBOLS: [&str; 12] =
        ["*", "A", "Q", "L", "M", "X", "AH", "QH", "MH", "XH", "Pol", "Mod"];
    let is_r_group = |symbol: &str| {
        symbol.strip_prefix('R').is_some_and(|number| {
            number == "#" || number.bytes().all(|digit| digit.is_ascii_digit())
        })
    };
    let atom = line.strip_prefix("M  V30").unwrap_or(line);
    atom.split_whitespace().skip(1).any(|symbol| SYMBOLS.contains(&symbol) || is_r_group(symbol))
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
    // The closure owns or only reads its input, and its result is lost in a panic.
    let work = || caught_panic::catch_panic(work).map_err(|_| MoleculeError::ParserPanic);
    if size <= SHORT {
        return work();
    }
    std::thread::scope(|scope| {
        let spawned = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let joined = spawned.map_err(|_| MoleculeError::NoThread)?.join();
        joined.unwrap_or(Err(MoleculeError::ParserPanic))
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
    fn large_ring_systems_are_rejected_before_ring_perception() {
        // 64 copies of one ring are 19 kB, and would take gigabytes as one ring.
        let rings = format!("C1{}C1", "C".repeat(298)).repeat(64);
        assert_eq!(Molecule::from_smiles(&rings).unwrap().num_atoms(), 300 * 64);
        let largest = format!("C1{}C1", "C".repeat(MAX_RING_SYSTEM - 2));
        assert_eq!(Molecule::from_smiles(&largest).unwrap().num_atoms(), MAX_RING_SYSTEM);
        let ring = format!("C1{}C1", "C".repeat(19_990));
        assert_eq!(
            error_of(&ring),
            "molecule has a ring system of 19992 atoms, the maximum is 1000"
        );
        assert_eq!(
            Molecule::from_molfile(&ring_molfile(999, "C").replace("  4  0\n", "  1  0\n"))
                .unwrap()
                .num_atoms(),
            999
        );
    }

    /// Returns the molfile of a ring of `atoms` atoms with aromatic bonds.
    fn ring_molfile(atoms: usize, symbol: &str) -> String {
        let mut molfile = format!("\n\n\n{atoms:3}{atoms:3}  0  0  0  0  0  0  0  0999 V2000\n");
        for _ in 0..atoms {
            molfile += &format!("    0.0000    0.0000    0.0000 {symbol:<3} 0  0\n");
        }
        for atom in 0..atoms {
            molfile += &format!("{:3}{:3}  4  0\n", atom + 1, (atom + 1) % atoms + 1);
        }
        molfile + "M  END\n"
    }

    #[test]
    fn errors_describe_invalid_molfiles() {
        let error = |molfile: &str| Molecule::from_molfile(molfile).unwrap_err().to_string();
        assert_eq!(
            Molecule::from_molfile(&ring_molfile(6, "C")).unwrap().to_smiles().unwrap(),
            "c1ccccc1"
        );
        assert_eq!(
            error(&ring_molfile(5, "C")),
            "invalid molecule: could not kekulize molecule; remaining atoms: [0, 1, 2, 3, 4]"
        );
        assert_eq!(error(&ring_molfile(6, "Q")), "molfile has query atoms or bonds");
        assert_eq!(
            error(&ring_molfile(40, "R#")),
            "invalid molfile: 40 wildcard atoms, the maximum is 12"
        );
        assert_eq!(error(&ring_molfile(0, "C")), "molecule has no atoms");
        assert!(error("").starts_with("invalid molfile: "), "{}", error(""));
        assert!(error("CCO\n").starts_with("invalid molfile: "));
        assert!(
            error(&ring_molfile(6, "C").replace("M  END\n", "")).starts_with("invalid molfile")
        );
        assert_eq!(
            error(&"x".repeat(MAX_MOLFILE_LEN + 1)),
            "molfile has 2000001 bytes, the maximum is 2000000"
        );
    }

    #[test]
    fn large_molfile_does_not_exhaust_the_stack() {
        let mut chain = String::new();
        (1..=8000).for_each(|atom| chain += &format!("M  V30 {atom} C 0 0 0 0\n"));
        let mut bonds = String::new();
        (1..8000).for_each(|bond| bonds += &format!("M  V30 {bond} 1 {bond} {}\n", bond + 1));
        let molfile = format!(
            "\n\n\n  0  0  0     0  0            999 V3000\nM  V30 BEGIN CTAB\nM  V30 COUNTS 8000 7999 0 0 0\nM  V30 BEGIN ATOM\n{chain}M  V30 END ATOM\nM  V30 BEGIN BOND\n{bonds}M  V30 END BOND\nM  V30 END CTAB\nM  END\n"
        );
        std::thread::scope(|scope| {
            let small = std::thread::Builder::new().stack_size(256 << 10);
            let atoms = small.spawn_scoped(scope, || {
                let molecule = Molecule::from_molfile(&molfile)?;
                Ok((molecule.num_atoms(), molecule.to_smiles()?.len()))
            });
            assert_eq!(atoms.unwrap().join().unwrap(), Ok::<_, MoleculeError>((8000, 8000)));
        });
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
