//! Tests of the SMILES CSV reader with valid and invalid files.

#![cfg(feature = "chem")]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::path::PathBuf;

use graph_diffuser_data::formats::Featurizer;
use graph_diffuser_data::formats::smiles_csv::{
    OnInvalid, SmilesCsv, SmilesCsvOptions, SmilesTask, read,
};
use graph_diffuser_data::{
    Dataset, Diagnostic as _, FeatureSchema, Graphs, LocatedError, Splits, TargetSchema, Targets,
};

/// Writes a file that is deleted with the directory.
fn temp_file(text: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.csv");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

fn read_with(text: &str, options: &SmilesCsvOptions) -> Result<SmilesCsv, Vec<LocatedError>> {
    let (_directory, path) = temp_file(text.as_bytes());
    read(&path, options)
}

fn valid(text: &str) -> SmilesCsv {
    read_with(text, &SmilesCsvOptions::default()).unwrap()
}

/// Returns the errors without the file name.
fn errors(text: &str, options: &SmilesCsvOptions) -> Vec<String> {
    let errors = read_with(text, options).unwrap_err();
    errors
        .iter()
        .map(|error| error.to_string().split_once("mine.csv`").unwrap().1.to_owned())
        .collect()
}

#[test]
fn csv_file_becomes_a_dataset() {
    let csv = valid(
        "Name,SMILES,solubility,Split\nethanol,CCO,1.5,train\nbenzene,c1ccccc1,,test\nwater,O,-2e1,val\n",
    );
    assert_eq!(csv.schema.targets, TargetSchema::Regression(1));
    assert_eq!(csv.schema.names.targets, ["solubility"]);
    assert_eq!(csv.lines, [2, 3, 4]);
    let splits = csv.splits.unwrap();
    assert_eq!(splits, Splits { train: vec![0], valid: vec![2], test: vec![1] });
    assert!(matches!(&csv.graphs[1].targets, Targets::GraphValues(values) if values[0].is_nan()));
    let dataset = Dataset { graphs: Graphs::InMemory(csv.graphs), schema: csv.schema, splits };
    assert_eq!(dataset.check(), Ok(()));
}

#[test]
fn task_is_inferred_from_target_columns() {
    let labels = valid("smiles,a,b\nC,0,1\nCC,,0\nO,1.0,nan\n");
    assert_eq!(labels.schema.targets, TargetSchema::Multilabel(2));
    let words = valid("smi;kind\nC;red\nCC;blue\nO;red\nN;green\nS;blue\nP;green\n");
    assert_eq!(words.schema.targets, TargetSchema::Multiclass(3));
    assert_eq!(words.schema.names.classes, ["blue", "green", "red"]);
    assert_eq!(words.graphs[0].targets, Targets::GraphClass(2));
    let integers = valid("smiles\tkind\nC\t10\nCC\t2\nO\t10\nN\t2\nS\t3\nP\t3\n");
    assert_eq!(integers.schema.names.classes, ["2", "3", "10"]);
    assert_eq!(integers.graphs[0].targets, Targets::GraphClass(2));
    let values = valid("smiles,x\nC,10\nCC,2.5\nO,3\n");
    assert_eq!(values.schema.targets, TargetSchema::Regression(1));
    let two = valid("smiles,x,y\nC,10,1\nCC,2,0\nO,3,1\nN,2,1\n");
    assert_eq!(two.schema.targets, TargetSchema::Regression(2));
}

#[test]
fn options_select_columns_and_task() {
    let text = "id,drug,kind,x\n1,C,0,5\n2,CC,1,6\n3,O,1,7\n";
    let mut options = SmilesCsvOptions {
        smiles_column: Some("drug".into()),
        target_columns: Some(vec!["KIND".into()]),
        task: Some(SmilesTask::Multiclass),
        ..SmilesCsvOptions::default()
    };
    let csv = read_with(text, &options).unwrap();
    assert_eq!(csv.schema.targets, TargetSchema::Multiclass(2));
    assert_eq!(csv.schema.names.targets, ["kind"]);
    options.task = Some(SmilesTask::Multilabel);
    options.target_columns = Some(vec!["x".into(), "y".into()]);
    assert_eq!(
        errors(text, &options),
        [", line 1, column `y`: column not found; available columns: `id`, `drug`, `kind`, `x`"]
    );
    options.target_columns = Some(vec!["x".into()]);
    assert_eq!(
        errors(text, &options)[0],
        ", line 2, column `x`: `5` is not a binary label; expected 0, 1 or an empty cell"
    );
}

#[test]
fn errors_name_line_and_column() {
    let text = "smiles,y,split\nCCO,1.5,train\nC1CC,2,train\nCC,two,test\nCC,1e99,holdout\n,4,test\nCC,3\nN,1,test\n";
    assert_eq!(
        errors(text, &SmilesCsvOptions::default()),
        [
            ", line 3, column `smiles`: unclosed ring bond 1",
            ", line 4, column `y`: `two` is not a number",
            ", line 5, column `split`: invalid split `holdout`; expected train, valid or test",
            ", line 5, column `y`: `1e99` is not a finite 32-bit float",
            ", line 6, column `smiles`: SMILES is empty",
            ", line 7: row has 2 fields, but the header has 3",
        ]
    );
    let few = SmilesCsvOptions { max_errors: 2, ..SmilesCsvOptions::default() };
    assert_eq!(errors(text, &few).len(), 3);
    assert!(errors(text, &few)[2].ends_with(" more errors not shown"));
}

#[test]
fn invalid_headers_are_explained() {
    let options = SmilesCsvOptions::default();
    assert_eq!(
        errors("CCO,1\nCC,2\n", &options),
        [", line 1: no header: the first line contains a molecule"]
    );
    assert_eq!(
        errors("molecule,y\nCC,2\n", &options),
        [", line 1: no `smiles` column; found `molecule`, `y`"]
    );
    assert_eq!(
        errors("smiles,SMILES\nCC,2\n", &options),
        [", line 1, column `SMILES`: duplicate column name"]
    );
    assert_eq!(
        errors("smiles,y,y\nCC,2,3\n", &options),
        [", line 1, column `y`: duplicate column name"]
    );
    assert_eq!(errors("smiles,y\n", &options), [": no usable rows"]);
    assert_eq!(errors("smiles\nCC\n", &options), [": no target column"]);
    assert_eq!(errors("", &options), [": file is empty"]);
}

#[test]
fn hints_explain_unsupported_delimiters_decimal_commas_and_missing_targets() {
    let hint = |text: &str| {
        let errors = read_with(text, &SmilesCsvOptions::default()).unwrap_err();
        (errors[0].error.to_string(), errors[0].hint().unwrap())
    };
    let (message, fix) = hint("smiles:y\nCC:2\n");
    assert_eq!(message, "no `smiles` column; found `smiles:y`");
    assert_eq!(fix, "columns must be separated by commas, semicolons, tabs or pipes");
    let (message, fix) = hint("smiles;y\nC;1,5\nCC;2,5\n");
    assert_eq!(message, "`1,5` has a decimal comma, which is not supported");
    assert_eq!(fix, "use a decimal point: `1.5`");
    assert!(hint("smiles\nCC\n").1.starts_with("add a column"));
    let text = "smiles,a,b\nC,x,u\nN,x,v\nO,y,u\nCC,y,v\n";
    assert_eq!(hint(text).0, "ambiguous target column: `a`, `b` could be classes");
    let text = "smiles,name\nC,one\nN,two\nO,three\nCC,four\n";
    assert!(hint(text).0.starts_with("no target column: no other column"), "{}", hint(text).0);
}

#[test]
fn invalid_molecules_are_skipped_if_requested() {
    let options = SmilesCsvOptions { on_invalid: OnInvalid::Skip, ..SmilesCsvOptions::default() };
    let csv = read_with(
        "smiles,y,split\nC(,oops,nowhere\nCC,2.5,test\nC1,1,train\nO,1,train\n",
        &options,
    )
    .unwrap();
    assert_eq!(csv.lines, [3, 5]);
    assert_eq!(csv.skipped.iter().map(|error| error.line).collect::<Vec<_>>(), [Some(2), Some(4)]);
    assert_eq!(csv.splits, Some(Splits { train: vec![1], valid: vec![], test: vec![0] }));
}

#[test]
fn scaffolds_are_computed_if_requested() {
    let text = "smiles,y\nCc1ccccc1,1\nCCO,2\nOc1ccccc1,3\n";
    let options = SmilesCsvOptions { scaffolds: true, ..SmilesCsvOptions::default() };
    assert_eq!(read_with(text, &options).unwrap().scaffolds, ["c1ccccc1", "", "c1ccccc1"]);
    assert!(valid(text).scaffolds.is_empty());
}

#[test]
fn zinc_features_can_be_selected() {
    let options = SmilesCsvOptions { featurizer: Featurizer::Zinc, ..SmilesCsvOptions::default() };
    let csv = read_with("smiles,y\nCCO,1.5\n", &options).unwrap();
    assert_eq!(csv.schema.node_features, FeatureSchema::Categorical(vec![28]));
    assert_eq!(csv.schema.mismatch(&csv.graphs[0]), None);
    let error = errors("smiles,y\nC[SiH3],1\n", &options).remove(0);
    assert!(error.contains("line 2, column `smiles`: atom 1 has type `Si"), "{error}");
}
