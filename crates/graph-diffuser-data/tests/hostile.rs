//! Whatever stands in a file, reading it ends in a value or in a fault.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;

use graph_diffuser_data::molecule::Molecule;
use graph_diffuser_data::smiles_csv::{OnInvalid, SmilesCsvOptions, SmilesRows, SmilesTask, read};
use graph_diffuser_data::torch_file::read_torch_arrays;
use graph_diffuser_data::{
    Dataset, Graphs, Splits, pcqm_contact, pcqm4mv2, peptides, pickle, zinc_smiles,
};
use proptest::prelude::*;

/// Molecules to start from: rings, charges, stereo marks, extensions, metals.
const SEEDS: [&str; 8] = [
    "CC(=O)Oc1ccccc1C(O)=O",
    "C[C@H]1CC[C@@H](C)CC1",
    "F/C=C\\F",
    "[Na+].[O-]c1ccc2[nH]ccc2c1",
    "N->[Pt@SP1](Cl)(Cl)<-N",
    "[H][O][C]([H])([H])[H] |atomProp:0.contact.0:5.contact.0|",
    "C1CC2CC1CC2C%12CCCC%12",
    "CC |(0,0,;1,0,),$R1;$,^1:0|",
];

const ALPHABET: &[u8] = b"CNOPSFIBrclnops[]()=#$:/\\.-+@%0123456789HaeiA*|~ ,;^&>!";

/// Changes, drops or inserts a few characters.
fn mutate(seed: &str, edits: &[(usize, usize, u8)]) -> String {
    let mut bytes = seed.as_bytes().to_vec();
    for &(place, letter, kind) in edits {
        let letter = ALPHABET[letter % ALPHABET.len()];
        let place = place % (bytes.len() + 1);
        match kind % 3 {
            0 => bytes.insert(place, letter),
            1 if place < bytes.len() => bytes[place] = letter,
            _ if place < bytes.len() => drop(bytes.remove(place)),
            _ => {}
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Everything that can be asked of a molecule, if it is one.
fn exercise(smiles: &str) {
    if let Ok(molecule) = Molecule::from_smiles(smiles) {
        let graph = molecule.ogb_graph();
        assert_eq!(graph.check(), Ok(()), "{smiles}");
        drop(molecule.zinc_graph());
        molecule.scaffold().unwrap();
    }
    if let Ok(graph) =
        Molecule::from_cxsmiles_unsanitized(smiles).and_then(|molecule| molecule.contact_graph())
    {
        assert_eq!(graph.check(), Ok(()), "{smiles}");
    }
}

fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

/// Every reader of a table; what is read must be sound.
fn exercise_table(bytes: &[u8]) {
    let (_directory, path) = file(bytes);
    for task in [
        None,
        Some(SmilesTask::Regression),
        Some(SmilesTask::Multilabel),
        Some(SmilesTask::Multiclass),
    ] {
        let options =
            SmilesCsvOptions { task, on_invalid: OnInvalid::Skip, ..SmilesCsvOptions::default() };
        match read(&path, &options) {
            Err(problems) => assert!(!problems.is_empty()),
            Ok(table) => {
                let all: Vec<usize> = (0..table.graphs.len()).collect();
                assert_eq!((table.smiles.len(), table.lines.len()), (all.len(), all.len()));
                let splits = Splits { train: all.clone(), valid: all.clone(), test: all };
                let dataset =
                    Dataset { graphs: Graphs::Listed(table.graphs), schema: table.schema, splits };
                assert_eq!(dataset.check(), Ok(()));
            }
        }
    }
    if let Ok(rows) = SmilesRows::open(&path, None) {
        rows.read().for_each(drop);
    }
    drop(zinc_smiles::read(&path));
    drop(peptides::read_func(&path, &path));
    if let Ok(graphs) = pcqm4mv2::graphs(&path) {
        graphs.for_each(drop);
    }
    if let Ok(graphs) = pcqm_contact::graphs(&path) {
        graphs.for_each(drop);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_molecule_or_a_fault(text in "\\PC{0,60}") {
        exercise(&text);
    }

    #[test]
    fn mutated_molecules_are_molecules_or_faults(
        seed in 0..SEEDS.len(),
        edits in prop::collection::vec((any::<usize>(), any::<usize>(), any::<u8>()), 1..5),
    ) {
        exercise(&mutate(SEEDS[seed], &edits));
    }

    #[test]
    fn any_bytes_are_a_table_or_problems(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        exercise_table(&bytes);
    }

    #[test]
    fn mutated_tables_are_tables_or_problems(
        edits in prop::collection::vec((any::<usize>(), prop::sample::select(b",;\t\"\n\rC1x.\xff\0 ".to_vec())), 0..12),
    ) {
        let mut bytes = b"smiles,y,split,kind\nCCO,1.5,train,a\n\"CC\",0,test,b\nO,1,val,a\nN,,train,b\n".to_vec();
        for (place, byte) in edits {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        exercise_table(&bytes);
    }

    #[test]
    fn any_bytes_are_arrays_or_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        drop(pickle::read_arrays(&bytes));
        drop(read_torch_arrays(&[b"PK\x05\x06", &bytes[..]].concat()));
    }

    #[test]
    fn mutated_pickles_are_arrays_or_a_fault(
        protocol in prop::bool::ANY,
        edits in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = if protocol {
            include_bytes!("fixtures/split_protocol2.pickle").to_vec()
        } else {
            include_bytes!("fixtures/split_protocol4.pickle").to_vec()
        };
        for (place, byte) in edits {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        drop(pickle::read_arrays(&bytes));
    }
}
