//! Fuzzes SMILES parsing and featurization.
#![no_main]

use graph_diffuser_data::chem::Molecule;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|smiles: &str| {
    if let Ok(molecule) = Molecule::from_smiles(smiles) {
        molecule.ogb_graph().check().expect("parsed molecules are valid graphs");
        drop(molecule.zinc_graph());
        drop(molecule.scaffold());
    }
    if let Ok(graph) =
        Molecule::from_cxsmiles_unsanitized(smiles).and_then(|molecule| molecule.contact_graph())
    {
        graph.check().expect("parsed molecules are valid graphs");
    }
});
