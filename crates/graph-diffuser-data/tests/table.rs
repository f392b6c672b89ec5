//! Tables of users: what is understood, and what is said of what is not.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;

use graph_diffuser_data::smiles_csv::{
    OnInvalid, SmilesCsv, SmilesCsvOptions, SmilesRows, SmilesTask, read,
};
use graph_diffuser_data::{Dataset, Graphs, LocatedError, Splits, TargetSchema, Targets};

/// A file that lasts as long as the directory.
fn file(text: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.csv");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

fn read_with(text: &str, options: &SmilesCsvOptions) -> Result<SmilesCsv, Vec<LocatedError>> {
    let (_directory, path) = file(text.as_bytes());
    read(&path, options)
}

fn table(text: &str) -> SmilesCsv {
    read_with(text, &SmilesCsvOptions::default()).unwrap()
}

/// Problems without the name of the file.
fn problems(text: &str, options: &SmilesCsvOptions) -> Vec<String> {
    let problems = read_with(text, options).unwrap_err();
    problems
        .iter()
        .map(|problem| problem.to_string().split_once("mine.csv`").unwrap().1.to_owned())
        .collect()
}

#[test]
fn a_table_becomes_a_dataset() {
    let table = table(
        "Name,SMILES,solubility,Split\nethanol,CCO,1.5,train\nbenzene,c1ccccc1,,test\nwater,O,-2e1,val\n",
    );
    assert_eq!(table.schema.targets, TargetSchema::Regression(1));
    assert_eq!(table.schema.names.targets, ["solubility"]);
    assert_eq!(table.smiles, ["CCO", "c1ccccc1", "O"]);
    assert_eq!(table.lines, [2, 3, 4]);
    let splits = table.given_split.unwrap();
    assert_eq!(splits, Splits { train: vec![0], valid: vec![2], test: vec![1] });
    assert!(matches!(&table.graphs[1].targets, Targets::GraphValues(values) if values[0].is_nan()));
    let dataset = Dataset { graphs: Graphs::Listed(table.graphs), schema: table.schema, splits };
    assert_eq!(dataset.check(), Ok(()));
}

#[test]
fn labels_classes_and_values_are_told_apart() {
    let labels = table("smiles,a,b\nC,0,1\nCC,,0\nO,1.0,nan\n");
    assert_eq!(labels.schema.targets, TargetSchema::Multilabel(2));
    let words = table("smi;kind\nC;red\nCC;blue\nO;red\nN;green\nS;blue\nP;green\n");
    assert_eq!(words.schema.targets, TargetSchema::Multiclass(3));
    assert_eq!(words.schema.names.classes, ["blue", "green", "red"]);
    assert_eq!(words.graphs[0].targets, Targets::GraphClass(2));
    let whole = table("smiles\tkind\nC\t10\nCC\t2\nO\t10\nN\t2\nS\t3\nP\t3\n");
    assert_eq!(whole.schema.names.classes, ["2", "3", "10"]);
    assert_eq!(whole.graphs[0].targets, Targets::GraphClass(2));
    let values = table("smiles,x\nC,10\nCC,2.5\nO,3\n");
    assert_eq!(values.schema.targets, TargetSchema::Regression(1));
    let two = table("smiles,x,y\nC,10,1\nCC,2,0\nO,3,1\nN,2,1\n");
    assert_eq!(two.schema.targets, TargetSchema::Regression(2));
}

#[test]
fn the_user_decides_columns_and_task() {
    let text = "id,drug,kind,x\n1,C,0,5\n2,CC,1,6\n3,O,1,7\n";
    let mut options = SmilesCsvOptions {
        smiles_column: Some("drug".into()),
        target_columns: Some(vec!["KIND".into()]),
        task: Some(SmilesTask::Multiclass),
        ..SmilesCsvOptions::default()
    };
    let table = read_with(text, &options).unwrap();
    assert_eq!(table.schema.targets, TargetSchema::Multiclass(2));
    assert_eq!(table.schema.names.targets, ["kind"]);
    options.task = Some(SmilesTask::Multilabel);
    options.target_columns = Some(vec!["x".into(), "y".into()]);
    assert_eq!(
        problems(text, &options),
        [", line 1, column `y`: there is no such column; there are `id`, `drug`, `kind`, `x`"]
    );
    options.target_columns = Some(vec!["x".into()]);
    assert_eq!(
        problems(text, &options)[0],
        ", line 2, column `x`: `5` is not a label: 0, 1 or nothing"
    );
}

#[test]
fn every_problem_is_named_with_its_place() {
    let text = "smiles,y,split\nCCO,1.5,train\nC1CC,2,train\nCC,two,test\nCC,1e99,holdout\n,4,test\nCC,3\nN,1,test\n";
    assert_eq!(
        problems(text, &SmilesCsvOptions::default()),
        [
            ", line 3, column `smiles`: ring 1 is opened and never closed",
            ", line 4, column `y`: `two` is not a number",
            ", line 5, column `split`: `holdout` is no part of a split: train, valid or test",
            ", line 5, column `y`: `1e99` is not a finite number of single precision",
            ", line 6, column `smiles`: the SMILES is empty",
            ", line 7: the row has 2 fields, but the header has 3",
        ]
    );
    let few = SmilesCsvOptions { most_problems: 2, ..SmilesCsvOptions::default() };
    assert_eq!(problems(text, &few).len(), 3);
    assert!(problems(text, &few)[2].starts_with(": there are "));
}

#[test]
fn a_header_that_cannot_be_used_is_explained() {
    let options = SmilesCsvOptions::default();
    assert_eq!(
        problems("CCO,1\nCC,2\n", &options),
        [", line 1: the first line holds a molecule, not the names of columns"]
    );
    assert_eq!(
        problems("molecule,y\nCC,2\n", &options),
        [", line 1: no column is called `smiles`; there are `molecule`, `y`"]
    );
    assert_eq!(
        problems("smiles,SMILES\nCC,2\n", &options),
        [", line 1, column `SMILES`: two columns have this name"]
    );
    assert_eq!(
        problems("smiles,y,y\nCC,2,3\n", &options),
        [", line 1, column `y`: two columns have this name"]
    );
    assert_eq!(problems("smiles,y\n", &options), [": there are no rows that can be used"]);
    assert_eq!(
        problems("smiles\nCC\n", &options),
        [": no other column holds numbers or a few classes"]
    );
    assert_eq!(problems("", &options), [": the file is empty"]);
}

#[test]
fn bad_molecules_are_left_out_when_asked() {
    let options = SmilesCsvOptions { on_invalid: OnInvalid::Skip, ..SmilesCsvOptions::default() };
    let table = read_with(
        "smiles,y,split\nC(,oops,nowhere\nCC,2.5,test\nC1,1,train\nO,1,train\n",
        &options,
    )
    .unwrap();
    assert_eq!(table.smiles, ["CC", "O"]);
    assert_eq!(table.lines, [3, 5]);
    assert_eq!(
        table.skipped.iter().map(|problem| problem.line).collect::<Vec<_>>(),
        [Some(2), Some(4)]
    );
    assert_eq!(table.given_split, Some(Splits { train: vec![1], valid: vec![], test: vec![0] }));
}

#[test]
fn rows_are_streamed_with_their_bytes_in_order() {
    let mut text = b"\xef\xbb\xbfid;Smiles\r\n".to_vec();
    for row in 0..5000 {
        text.extend(
            format!("{row};{}\r\n", if row % 1000 == 999 { "C(" } else { "\"CCO\"" }).bytes(),
        );
    }
    text.extend(b"bad\r\n5001;\xff\r\n");
    let (_directory, path) = file(&text);
    let rows = SmilesRows::open(&path, None).unwrap();
    assert_eq!(rows.header().raw, b"id;Smiles");
    assert_eq!(rows.delimiter(), b';');
    let rows: Vec<_> = rows.read().collect();
    assert_eq!(rows.len(), 5002);
    for (number, row) in rows[..5000].iter().enumerate() {
        let row = row.as_ref().unwrap();
        assert_eq!(row.record.line, number as u64 + 2);
        assert_eq!(row.record.fields[0], number.to_string());
        assert_eq!(row.molecule.is_err(), number % 1000 == 999);
    }
    assert_eq!(rows[0].as_ref().unwrap().record.raw, b"0;\"CCO\"");
    assert!(rows[5000..].iter().all(Result::is_err));
}
