//! Property tests: readers never panic, whatever a file contains.

#![cfg(feature = "chem")]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::path::PathBuf;

use graph_diffuser_data::benchmarks::{pcqm_contact, pcqm4mv2, peptides, zinc};
use graph_diffuser_data::chem::Molecule;
use graph_diffuser_data::formats::Featurizer;
use graph_diffuser_data::formats::inference_input::InferenceInput;
use graph_diffuser_data::formats::smiles_csv::{
    OnInvalid, SmilesColumn, SmilesCsvOptions, TargetTask, TargetTasks, read,
};
use graph_diffuser_data::{Dataset, Graphs, Splits};
use proptest::prelude::*;

/// SMILES with rings, charges, stereochemistry, extensions and metals.
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

/// Replaces, removes or inserts a few characters.
fn mutate(seed: &str, edits: &[(usize, usize, u8)]) -> String {
    let mut bytes = seed.as_bytes().to_vec();
    for &(position, letter, kind) in edits {
        let letter = ALPHABET[letter % ALPHABET.len()];
        let position = position % (bytes.len() + 1);
        match kind % 3 {
            0 => bytes.insert(position, letter),
            1 if position < bytes.len() => bytes[position] = letter,
            _ if position < bytes.len() => drop(bytes.remove(position)),
            _ => {}
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Computes all features of a molecule, if the SMILES is valid.
fn check_smiles(smiles: &str) {
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

fn temp_file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

/// Runs every CSV reader and checks that the graphs read are valid.
fn check_csv(bytes: &[u8]) {
    let (_directory, path) = temp_file(bytes);
    for task in [
        None,
        Some(TargetTasks::All(TargetTask::Regression)),
        Some(TargetTasks::All(TargetTask::Binary)),
        Some(TargetTasks::All(TargetTask::Multiclass)),
    ] {
        let options =
            SmilesCsvOptions { task, on_invalid: OnInvalid::Skip, ..SmilesCsvOptions::default() };
        match read(&path, &options) {
            Err(errors) => assert!(!errors.is_empty()),
            Ok(csv) => {
                let all: Vec<usize> = (0..csv.graphs.len()).collect();
                assert_eq!(csv.lines.len(), all.len());
                let splits = Splits { train: all.clone(), valid: all.clone(), test: all };
                let dataset =
                    Dataset { graphs: Graphs::InMemory(csv.graphs), schema: csv.schema, splits };
                assert_eq!(dataset.check(), Ok(()));
            }
        }
    }
    drop(zinc::read_smiles(&path));
    drop(peptides::read_func(&path, &path));
    drop(pcqm4mv2::read_official_splits(&path));
    if let Ok(graphs) = pcqm4mv2::graphs(&path) {
        graphs.for_each(drop);
    }
    if let Ok(graphs) = pcqm_contact::graphs(&path) {
        graphs.for_each(drop);
    }
}

/// Records of an SDF file with V2000 and V3000 molfiles.
const SDF: &str = include_str!("fixtures/drugs.sdf");

/// Reads a file in the format that `name` and its content suggest, for training and for inference.
fn check_table(name: &str, bytes: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let options = SmilesCsvOptions { on_invalid: OnInvalid::Skip, ..SmilesCsvOptions::default() };
    match read(&path, &options) {
        Err(errors) => assert!(!errors.is_empty()),
        Ok(csv) => csv.graphs.iter().for_each(|graph| assert_eq!(graph.check(), Ok(()))),
    }
    let schema = zinc::schema();
    if let Ok(input) = InferenceInput::open(&path, Featurizer::Ogb, &schema, SmilesColumn::Auto) {
        let columns = input.header.as_ref().map_or(1, |header| header.names.len());
        for row in input.chunks(1).flatten() {
            if let Ok(Some(graph)) = row.graph {
                assert_eq!(graph.check(), Ok(()));
            }
            // Rows of all formats are CSV with the columns of the header.
            if !name.ends_with("csv") && !row.text.bytes.is_empty() {
                let mut csv = csv::ReaderBuilder::new()
                    .has_headers(false)
                    .flexible(true)
                    .from_reader(&row.text.bytes[..]);
                let records: Vec<csv::StringRecord> = csv.records().map(Result::unwrap).collect();
                assert!(records.iter().all(|record| record.len() == columns), "{records:?}");
            }
        }
    }
}

/// Replaces bytes of a text.
fn replace_bytes(text: &[u8], edits: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for &(position, byte) in edits {
        let position = position % bytes.len();
        bytes[position] = byte;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_smiles_never_panic(text in "\\PC{0,60}") {
        check_smiles(&text);
    }

    #[test]
    fn mutated_smiles_never_panic(
        seed in 0..SEEDS.len(),
        edits in prop::collection::vec((any::<usize>(), any::<usize>(), any::<u8>()), 1..5),
    ) {
        check_smiles(&mutate(SEEDS[seed], &edits));
    }

    #[test]
    fn random_csv_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_csv(&bytes);
    }

    #[test]
    fn mutated_csv_files_never_panic(
        edits in prop::collection::vec((any::<usize>(), prop::sample::select(b",;\t\"\n\rC1x.\xff\0 ".to_vec())), 0..12),
    ) {
        let mut bytes = b"smiles,y,split,kind\nCCO,1.5,train,a\n\"CC\",0,test,b\nO,1,val,a\nN,,train,b\n".to_vec();
        for (position, byte) in edits {
            let position = position % bytes.len();
            bytes[position] = byte;
        }
        check_csv(&bytes);
    }

    #[test]
    fn random_molfiles_never_panic(text in "\\PC{0,60}\n\\PC{0,60}\n\\PC{0,60}\n\\PC{0,60}\n") {
        drop(Molecule::from_molfile(&text));
    }

    #[test]
    fn mutated_sdf_files_never_panic(
        edits in prop::collection::vec(
            (any::<usize>(), prop::sample::select(b"0123456789 -.\n\rCNRQ*#VM$><()\xff\0".to_vec())),
            0..12,
        ),
    ) {
        check_table("file.sdf", &replace_bytes(SDF.as_bytes(), &edits));
    }

    #[test]
    fn truncated_sdf_files_never_panic(length in 0..SDF.len()) {
        check_table("file.sdf", &SDF.as_bytes()[..length]);
    }

    #[test]
    fn mutated_smiles_files_never_panic(
        edits in prop::collection::vec((any::<usize>(), prop::sample::select(b"\t |#\n\rC1x,\"\xff\0".to_vec())), 0..12),
        header in any::<bool>(),
    ) {
        let text: &[u8] = if header {
            b"smiles\tname\ty\nCCO\tethanol\t1.5\nCC |$R1;$|\ta, b\t2\n"
        } else {
            b"# comment\nCCO ethanol\nCC |$R1;$| a, b\nc1ccccc1\tbenzene\n"
        };
        check_table("file.smi", &replace_bytes(text, &edits));
    }

    #[test]
    fn mutated_utf16_files_never_panic(
        edits in prop::collection::vec((any::<usize>(), any::<u8>()), 0..6),
        cut in 0..3_usize,
    ) {
        let text: Vec<u8> =
            "\u{feff}smiles\ty\r\nCCO\t1.5\r\nC\t2\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        check_table("file.csv", &replace_bytes(&text[..text.len() - cut], &edits));
    }

    #[test]
    fn mutated_parquet_files_never_panic(
        edits in prop::collection::vec((any::<usize>(), any::<u8>()), 0..6),
    ) {
        let whole: &[u8] = include_bytes!("fixtures/pandas.parquet");
        check_table("file.parquet", &replace_bytes(whole, &edits));
    }
}
