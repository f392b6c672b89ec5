//! Tests of the SMILES CSV reader with valid and invalid files.

#![cfg(feature = "chem")]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::path::PathBuf;

use graph_diffuser_data::formats::Featurizer;
use graph_diffuser_data::formats::smiles_csv::{
    ColumnNote, OnInvalid, SmilesCsv, SmilesCsvOptions, TargetTask, TargetTasks, read,
};
use graph_diffuser_data::{
    Dataset, Diagnostic as _, FeatureSchema, Graphs, LocatedError, Splits, Standardization,
    TargetKind, TargetSchema, Targets,
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
    assert_eq!(csv.schema.targets, TargetSchema::regression(1));
    assert_eq!(csv.schema.names.targets, ["solubility"]);
    assert_eq!(csv.lines, [2, 3, 4]);
    let splits = csv.splits.unwrap();
    assert_eq!(splits, Splits { train: vec![0], valid: vec![2], test: vec![1] });
    assert!(matches!(&csv.graphs[1].targets, Targets::GraphValues(values) if values[0].is_nan()));
    let dataset = Dataset { graphs: Graphs::InMemory(csv.graphs), schema: csv.schema, splits };
    assert_eq!(dataset.check(), Ok(()));
}

#[test]
fn kind_of_each_target_is_inferred() {
    let labels = valid("smiles,a,b\nC,0,1\nCC,,0\nO,1.0,nan\n");
    assert_eq!(labels.schema.targets, TargetSchema::binary(2));
    let words = valid("smi;kind\nC;red\nCC;blue\nO;red\nN;green\nS;blue\nP;green\n");
    assert_eq!(words.schema.targets, TargetSchema::multiclass(3));
    assert_eq!(words.schema.names.classes(0), ["blue", "green", "red"]);
    assert_eq!(words.graphs[0].targets, Targets::GraphValues(vec![2.0]));
    let integers = valid("smiles\tclass\nC\t10\nCC\t2\nO\t10\nN\t2\nS\t3\nP\t3\n");
    assert_eq!(integers.schema.names.classes(0), ["2", "3", "10"]);
    assert_eq!(integers.graphs[0].targets, Targets::GraphValues(vec![2.0]));
    let values = valid("smiles,x\nC,10\nCC,2.5\nO,3\n");
    assert_eq!(values.schema.targets, TargetSchema::regression(1));
    assert_eq!(values.notes, []);
}

#[test]
fn few_integers_are_regression_with_a_note() {
    let csv = valid("smiles,rating\nC,1\nCC,2\nO,3\nN,2\n");
    assert_eq!(csv.schema.targets, TargetSchema::regression(1));
    let note = ColumnNote::IntegerRegression { column: "rating".into(), values: 3 };
    assert_eq!(csv.notes, [note]);
}

#[test]
fn mixed_table_has_one_kind_per_column_and_ignores_identifiers_dates_and_text() {
    let row = |index: usize| {
        let class = ["A", "B", "C", ""][index % 4];
        let active = if index.is_multiple_of(3) { "yes" } else { "no" };
        format!(
            "{},CMP-{index},{},{}.5,{},{active},{class},200{},0{}.02.2024,,note {index}\n",
            "C".repeat(index + 1),
            10_000 + 7 * index * index,
            index % 5,
            index % 2,
            index % 8,
            1 + index % 9
        )
    };
    let rows: String = (0..24).map(row).collect();
    let header = "smiles,Name,compound_id,logS,toxic,active,class,year,assay_date,empty,remark\n";
    let csv = valid(&format!("{header}{rows}"));
    let regression = TargetKind::Regression(Standardization::IDENTITY);
    let kinds = [regression, TargetKind::Binary, TargetKind::Binary, TargetKind::Multiclass(3)];
    assert_eq!(csv.schema.targets, TargetSchema::Graph(kinds.to_vec()));
    assert_eq!(csv.schema.names.targets, ["logS", "toxic", "active", "class"]);
    assert_eq!(csv.schema.names.classes[2..], [vec!["no", "yes"], vec!["A", "B", "C"]]);
    let Targets::GraphValues(values) = &csv.graphs[3].targets else { panic!("graph targets") };
    assert_eq!(values[..3], [3.5, 1.0, 1.0]);
    assert!(values[3].is_nan(), "an empty cell is a missing class");
    let ignored: Vec<String> =
        csv.ignored.iter().map(|column| format!("{} ({})", column.name, column.reason)).collect();
    let expected = [
        "Name (identifier)",
        "compound_id (identifier)",
        "year (date)",
        "assay_date (date)",
        "empty (empty)",
        "remark (text)",
    ];
    assert_eq!(ignored, expected);
}

#[test]
fn consecutive_integers_and_constants_are_not_targets() {
    let rows = (0..12).map(|row| format!("C,{row},7,{}\n", row % 5)).collect::<Vec<_>>().concat();
    let csv = valid(&format!("smiles,counter,same,y\n{rows}"));
    assert_eq!(csv.schema.names.targets, ["y"]);
    let reasons: Vec<String> = csv.ignored.iter().map(|column| column.reason.to_string()).collect();
    assert_eq!(reasons, ["identifier", "constant"]);
    // A filtered index, as pandas writes it to Parquet files, is not consecutive.
    let rows: String = [1, 4, 5, 9, 12, 13].map(|row| format!("C,{row},{}.5\n", row % 5)).concat();
    let csv = valid(&format!("smiles,__index_level_0__,y\n{rows}"));
    assert_eq!(csv.schema.names.targets, ["y"]);
    assert_eq!(csv.ignored[0].reason.to_string(), "identifier");
}

#[test]
fn decimal_commas_are_numbers_where_columns_are_separated_by_semicolons() {
    let csv = valid("smiles;pIC50\nC;3,119\nCC;12,5\nO;7\nN;\n");
    assert_eq!(csv.schema.targets, TargetSchema::regression(1));
    assert_eq!(csv.graphs[0].targets, Targets::GraphValues(vec![3.119]));
    assert_eq!(csv.notes, [ColumnNote::DecimalCommas { column: "pIC50".into() }]);
    let quoted = valid("smiles,y\nC,\"0,25\"\nCC,\"1,5\"\nO,\"2,125\"\n");
    assert_eq!(quoted.graphs[2].targets, Targets::GraphValues(vec![2.125]));
}

#[test]
fn commas_that_may_separate_thousands_are_never_guessed() {
    let text = "smiles,y,z\nC,\"1,250\",1.5\nCC,\"2,500\",2.5\nO,\"1,125\",0.5\n";
    let csv = valid(text);
    assert_eq!(csv.schema.names.targets, ["z"]);
    assert_eq!(csv.ignored[0].reason.to_string(), "ambiguous number `1,250`");
    let options =
        SmilesCsvOptions { target_columns: Some(vec!["y".into()]), ..SmilesCsvOptions::default() };
    let errors = read_with(text, &options).unwrap_err();
    assert!(errors[0].to_string().contains("ambiguous number `1,250`"), "{}", errors[0]);
    assert_eq!(errors[0].hint().unwrap(), "write `1.250` or `1250`");
}

#[test]
fn options_select_columns_and_task() {
    let text = "id,drug,kind,x\n1,C,0,5\n2,CC,1,6\n3,O,1,7\n";
    let mut options = SmilesCsvOptions {
        smiles_column: Some("drug".into()),
        target_columns: Some(vec!["KIND".into()]),
        task: Some(TargetTasks::All(TargetTask::Multiclass)),
        ..SmilesCsvOptions::default()
    };
    let csv = read_with(text, &options).unwrap();
    assert_eq!(csv.schema.targets, TargetSchema::multiclass(2));
    assert_eq!(csv.schema.names.targets, ["kind"]);
    let unused: Vec<&str> = csv.ignored.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(unused, ["id", "x"]);
    options.task = Some(TargetTasks::All(TargetTask::Binary));
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
    options.target_columns = None;
    options.task = Some(TargetTasks::ByColumn([("id".into(), TargetTask::Multiclass)].into()));
    let csv = read_with(text, &options).unwrap();
    assert_eq!(csv.schema.names.targets, ["id", "kind", "x"]);
    assert_eq!(csv.schema.targets.graph_targets()[0], TargetKind::Multiclass(3));
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
fn hints_explain_unsupported_delimiters_and_missing_targets() {
    let hint = |text: &str| {
        let errors = read_with(text, &SmilesCsvOptions::default()).unwrap_err();
        (errors[0].error.to_string(), errors[0].hint().unwrap())
    };
    let (message, fix) = hint("smiles:y\nCC:2\n");
    assert_eq!(message, "no `smiles` column; found `smiles:y`");
    assert_eq!(fix, "columns must be separated by commas, semicolons, tabs or pipes");
    assert!(hint("smiles\nCC\n").1.starts_with("add a column"));
    let (message, fix) = hint("smiles,name,note\nC,one,a b\nN,two,c d\nO,three,e\nCC,four,f\n");
    assert_eq!(message, "no target column: `name` is an identifier, `note` is text");
    assert_eq!(fix, "select a target column with `--target COLUMN`");
    let options = SmilesCsvOptions {
        target_columns: Some(vec!["note".into()]),
        ..SmilesCsvOptions::default()
    };
    let errors = read_with("smiles,note\nC,a\nN,b\nO,c\nCC,d\n", &options).unwrap_err();
    assert_eq!(errors[0].error.to_string(), "column is text with 4 distinct values");
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
