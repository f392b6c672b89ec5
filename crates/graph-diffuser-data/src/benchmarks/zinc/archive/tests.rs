//! Tests with pickles recorded by `tests/fixtures/record_torch.py`.

use std::io::{Cursor, Write};
use std::path::PathBuf;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../../../tests/fixtures/", $name)).as_slice()
    };
}

const PICKLES: [&[u8]; 5] = [
    fixture!("zinc_protocol2.pickle"),
    fixture!("zinc_protocol4.pickle"),
    fixture!("zinc_int8_views.pickle"),
    fixture!("zinc_zip.pickle"),
    fixture!("zinc_lists.pickle"),
];

fn molecule(atoms: &[u32], edges: &[([u32; 2], u32)], target: f32) -> Graph {
    let (edges, bonds) = edges.iter().copied().unzip();
    Graph {
        num_nodes: atoms.len(),
        edges,
        node_features: Features::Categorical { columns: 1, values: atoms.to_vec() },
        edge_features: Features::Categorical { columns: 1, values: bonds },
        targets: Targets::GraphValues(vec![target]),
    }
}

/// The molecules of the fixtures.
fn molecules() -> [Graph; 4] {
    [
        molecule(&[0, 0, 1], &[([0, 1], 1), ([1, 0], 1), ([1, 2], 1), ([2, 1], 1)], -0.5),
        molecule(&[0, 2], &[([0, 1], 3), ([1, 0], 3)], 1.25),
        molecule(&[1], &[], 0.1),
        molecule(
            &[0, 7, 8, 27],
            &[([0, 1], 2), ([0, 2], 1), ([1, 0], 2), ([2, 0], 1), ([2, 3], 1), ([3, 2], 1)],
            3.0,
        ),
    ]
}

#[test]
fn molecules_of_every_storage_format_are_equal() {
    for pickle in PICKLES {
        assert_eq!(read_bare_pickle(pickle).unwrap(), molecules());
    }
}

#[test]
fn truncated_pickles_are_errors() {
    for pickle in PICKLES {
        for end in (0..pickle.len()).step_by(13) {
            read_bare_pickle(&pickle[..end]).unwrap_err();
        }
    }
}

#[test]
fn invalid_molecules_are_named() {
    let problem = |from: &[u8], to: &[u8]| {
        let mut pickle = fixture!("zinc_protocol4.pickle").to_vec();
        let at = pickle.windows(from.len()).position(|window| window == from).unwrap();
        pickle[at..at + from.len()].copy_from_slice(to);
        match read_bare_pickle(&pickle[..]) {
            Err(ZincError::Molecule { molecule: 0, problem, .. }) => problem,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(problem(b"bond_type", b"bond_tipe"), "no `bond_type`");
    assert_eq!(
        problem(b"num_atom\x94K\x03", b"num_atom\x94K\x04"),
        "`num_atom` is 4, but `atom_type` has 3 elements"
    );
    let target = (-0.5_f32).to_le_bytes();
    assert_eq!(
        problem(&target, &f32::NAN.to_le_bytes()),
        "`logP_SA_cycle_normalized` is not a finite number"
    );
    // The first atom type is the first element of a storage of three.
    let storage = |atom: i64| [3_i64.to_le_bytes(), atom.to_le_bytes()].concat();
    assert_eq!(problem(&storage(0), &storage(28)), "`atom_type` contains 28, expected 0 to 27");
    assert!(problem(b"_rebuild_tensor_v2", b"_rebuild_tensor_v9").contains("_rebuild_tensor_v9"));
}

struct Published {
    directory: tempfile::TempDir,
}

impl Published {
    /// Writes an archive as published, with the files that macOS adds, and index files.
    fn new(index: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, pickle) in ["train", "val", "test"].into_iter().zip(PICKLES) {
            for (name, content) in [
                (format!("__MACOSX/molecules/._{name}.pickle"), &b"x"[..]),
                (format!("__MACOSX/molecules/{name}.pickle"), b"x"),
                (format!("molecules/{name}.pickle"), pickle),
            ] {
                writer.start_file(name, SimpleFileOptions::default()).unwrap();
                writer.write_all(content).unwrap();
            }
            std::fs::write(directory.path().join(format!("{name}.index")), index).unwrap();
        }
        let archive = writer.finish().unwrap().into_inner();
        std::fs::write(directory.path().join("molecules.zip"), archive).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, cancel: bool) -> Result<Dataset, LocatedError> {
        let indices = ["train.index", "val.index", "test.index"].map(|name| self.path(name));
        let indices = [&*indices[0], &*indices[1], &*indices[2]];
        read_archive(&self.path("molecules.zip"), indices, &AtomicBool::new(cancel))
    }
}

#[test]
fn index_files_select_molecules_in_their_order() {
    let dataset = Published::new("3,0,1\n").read(false).unwrap();
    assert_eq!(dataset.check(), Ok(()));
    assert_eq!(dataset.splits.train, [0, 1, 2]);
    assert_eq!(dataset.splits.test, [6, 7, 8]);
    let [ethanol, cyanide, _, last] = molecules();
    for (index, graph) in [last, ethanol, cyanide].iter().cycle().take(9).enumerate() {
        assert_eq!(&*dataset.graphs.get(index), graph);
    }
}

#[test]
fn wrong_index_files_and_archives_are_errors() {
    let message = |index: &str| Published::new(index).read(false).unwrap_err().to_string();
    assert!(message("0,4\n").ends_with("train.index`: position 4 is out of range for 4 molecules"));
    assert!(message("0,1,0\n").ends_with("position 0 occurs twice"));
    assert!(message("0,-1").ends_with("`-1` is not the position of a molecule"));
    assert!(message("\n").ends_with("no molecule is selected"));
    let published = Published::new("0");
    assert!(published.read(true).unwrap_err().is::<ZincError>());
    std::fs::write(published.path("molecules.zip"), b"PK").unwrap();
    assert!(published.read(false).unwrap_err().hint().is_some());
}
