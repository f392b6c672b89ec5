//! Tests of tables in all file formats, for training and for inference.

#![cfg(feature = "chem")]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::Write as _;
use std::path::{Path, PathBuf};

use graph_diffuser_data::chem::ogb_schema;
use graph_diffuser_data::formats::inference_input::{InferenceInput, InputRow};
use graph_diffuser_data::formats::smiles_csv::{SmilesColumn, SmilesCsv, SmilesCsvOptions, read};
use graph_diffuser_data::formats::{Featurizer, Format};
use graph_diffuser_data::{Diagnostic as _, LocatedError, Schema, Targets};

const DRUGS: &str = include_str!("fixtures/drugs.sdf");

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Writes a file that is deleted with the directory.
fn temp_file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn utf16(text: &str, to_bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    format!("\u{feff}{text}").encode_utf16().flat_map(to_bytes).collect()
}

/// Schema of a model without targets that depend on the file.
fn schema() -> Schema {
    let (_directory, path) = temp_file("model.csv", b"smiles,y\nC,0.5\nCC,1.5\n");
    read(&path, &SmilesCsvOptions::default()).unwrap().schema
}

/// Returns the output of a model that predicts the number of atoms.
fn predicted(path: &Path) -> String {
    let input = InferenceInput::open(path, Featurizer::Ogb, &schema(), SmilesColumn::Auto).unwrap();
    let header = input.header.clone().unwrap();
    let mut lines = vec![format!("{}\tatoms", String::from_utf8(header.bytes).unwrap())];
    let rows: Vec<InputRow> = input.chunks(2).flatten().collect();
    for row in rows {
        let atoms = match row.graph {
            Ok(Some(graph)) => graph.num_nodes.to_string(),
            Ok(None) => String::new(),
            Err(error) => format!("line {}: {}", error.line.unwrap(), error.error),
        };
        lines.push(format!("{}\t{atoms}", String::from_utf8(row.text.bytes).unwrap()));
    }
    lines.join("\n")
}

fn train(path: &Path) -> Result<SmilesCsv, Vec<LocatedError>> {
    read(path, &SmilesCsvOptions::default())
}

fn values(csv: &SmilesCsv) -> Vec<f32> {
    let value = |targets: &Targets| match targets {
        Targets::GraphValues(values) => values[0],
        other => panic!("{other:?} are not values"),
    };
    csv.graphs.iter().map(|graph| value(&graph.targets)).collect()
}

/// Returns the first error without the file name, and its hint.
fn train_error(name: &str, bytes: &[u8]) -> (String, String) {
    let (_directory, path) = temp_file(name, bytes);
    let error = train(&path).unwrap_err().remove(0);
    let message = error.to_string().split_once(&format!("{name}`")).unwrap().1.to_owned();
    (message, error.hint().unwrap_or_default())
}

#[test]
fn delimiters_encodings_and_compression_do_not_change_the_data() {
    let rows = [["smiles", "y"], ["CCO", "1.5"], ["C", "2.5"], ["O", "\u{2212}"], ["N", "0.5"]];
    let text = |delimiter: &str, line_end: &str| {
        let rows = [rows[0], rows[1], rows[2], rows[4]];
        rows.map(|row| row.join(delimiter) + line_end).concat()
    };
    let mut files = Vec::new();
    for delimiter in [",", ";", "\t", "|"] {
        for line_end in ["\n", "\r\n"] {
            let text = text(delimiter, line_end);
            files.push(text.clone().into_bytes());
            files.push(format!("\u{feff}{text}").into_bytes());
            files.push(utf16(&text, u16::to_le_bytes));
            files.push(utf16(&text, u16::to_be_bytes));
        }
    }
    let compressed: Vec<Vec<u8>> = files.iter().map(|file| gzip(file)).collect();
    for file in files.iter().chain(&compressed) {
        let (_directory, path) = temp_file("data.txt", file);
        assert_eq!(Format::detect(&path).unwrap(), Format::SmilesCsv);
        let csv = train(&path).unwrap();
        assert_eq!(values(&csv), [1.5, 2.5, 0.5]);
        assert_eq!(csv.lines, [2, 3, 4]);
    }
    let (_directory, path) =
        temp_file("excel.txt", &utf16("smiles\tname\r\nC\t\u{e9}\r\n", u16::to_le_bytes));
    assert_eq!(predicted(&path), "smiles\tname\tatoms\nC\t\u{e9}\t1");
}

#[test]
fn text_that_is_not_utf8_is_an_error_with_line_and_hint() {
    let (message, hint) =
        train_error("latin1.csv", b"smiles,name,y\nC,methane,1\nCC,\xe9thane,2\n");
    assert_eq!(message, ", line 3: invalid UTF-8 at byte 3 of the row");
    assert_eq!(hint, "save the file as UTF-8; in Excel, choose `CSV UTF-8 (Comma delimited)`");
    let (message, _) = train_error("latin1.smi", b"C m\xe9thane\n");
    assert_eq!(message, ", line 1: invalid UTF-8 at byte 4 of the row");
}

#[test]
fn rows_of_delimiters_are_skipped_in_training_and_kept_in_prediction() {
    let text = b"smiles,y,z\r\n,,\r\nC,1.5,\r\n,,\r\n,2,\r\n,\r\n, ,\"\"\r\n,,\r\n";
    let (_directory, path) = temp_file("excel.csv", text);
    let errors = train(&path).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].to_string().ends_with("line 5, column `smiles`: SMILES is empty"));
    assert_eq!(
        predicted(&path),
        "smiles,y,z\tatoms\n,,\t\nC,1.5,\t1\n,,\t\n,2,\tline 5: SMILES is empty\n,,\t\n, ,\"\"\t\n,,\t"
    );
    let (_directory, path) = temp_file("excel.csv", b"smiles,y\nC,1.5\nCC,2.5\n,\n,\n");
    let csv = train(&path).unwrap();
    assert_eq!((values(&csv), csv.skipped.len()), (vec![1.5, 2.5], 0));
    let (message, _) = train_error("blank.csv", b"smiles,y\n,\n,\n");
    assert_eq!(message, ": no usable rows");
}

#[test]
fn smiles_file_without_header_predicts_and_has_no_targets() {
    let text = "# comment\nCCO ethanol\nCC |$R1;$|\t12, with a comma\n\nC1\nN 7\n";
    let (_directory, path) = temp_file("mine.smi", text.as_bytes());
    assert_eq!(Format::detect(&path).unwrap(), Format::Smi);
    assert_eq!(
        predicted(&path),
        "smiles,name\tatoms\nCCO,ethanol\t3\nCC |$R1;$|,\"12, with a comma\"\t2\nC1,\tline 5: unclosed ring bond 1\nN,7\t1"
    );
    // Names are identifiers, even if they are numbers.
    let (message, hint) = train_error("numbers.smi", b"CCO 1.5\nCC 2.5\nC 3.5\n");
    assert!(message.starts_with(": no target column"), "{message}");
    assert!(hint.starts_with("add a column with the values to predict"), "{hint}");
    let (_directory, path) = temp_file("mine.smi.gz", &gzip(b"smiles name\nCCO a b\n"));
    assert_eq!(predicted(&path), "smiles,name\tatoms\nCCO,a b\t3");
}

#[test]
fn smiles_file_with_a_header_is_a_table() {
    let text = "smiles\tname\ty\nCCO\t1\t1.5\nCC\t2\t2.5\n";
    let (_directory, path) = temp_file("table.smi", text.as_bytes());
    let csv = train(&path).unwrap();
    assert_eq!(values(&csv), [1.5, 2.5]);
    assert_eq!(csv.schema.names.targets, ["y"]);
    let (_directory, path) = temp_file("x.smi", b"canonical_smiles id\nCCO 7\n");
    assert_eq!(predicted(&path), "canonical_smiles,id\tatoms\nCCO,7\t3");
    let (_directory, path) = temp_file("spaces.txt", b"smiles y\nCCO 1.5\nCC 2.5\n");
    assert_eq!(values(&train(&path).unwrap()), [1.5, 2.5]);
}

#[test]
fn data_fields_of_an_sdf_file_are_columns() {
    let expected = "name,smiles,logS,comment\tatoms
ibuprofen,CC(C)Cc1ccc([C@H](C)C(=O)O)cc1,-1.0,\t15
caffeine,Cn1c(=O)c2c(ncn2C)n(C)c1=O,-1.5,\"found in coffee,\ntea and cocoa\"\t14
nicotine,CN1CCC[C@H]1c1cccnc1,-2.0,\t12
sodium acetate,CC(=O)[O-].[Na+],,\t5";
    let files = [
        DRUGS.as_bytes().to_vec(),
        gzip(DRUGS.as_bytes()),
        DRUGS.strip_suffix("$$$$\n").unwrap().as_bytes().to_vec(),
        DRUGS.replace('\n', "\r\n").into_bytes(),
        format!("\u{feff}{DRUGS}").into_bytes(),
    ];
    for file in files {
        let (_directory, path) = temp_file("data", &file);
        assert_eq!(Format::detect(&path).unwrap(), Format::Sdf);
        assert_eq!(predicted(&path), expected);
        let csv = train(&path).unwrap();
        assert_eq!(csv.schema.names.targets, ["logS"]);
        assert_eq!(values(&csv)[..3], [-1.0, -1.5, -2.0]);
        assert!(values(&csv)[3].is_nan());
        assert_eq!(csv.lines[..2], [1, 40]);
    }
}

#[test]
fn sdf_and_csv_of_the_same_molecules_give_the_same_graphs() {
    let (_directory, sdf) = temp_file("drugs.sdf", DRUGS.as_bytes());
    let text =
        "smiles,logS\nCC(C)Cc1ccc(cc1)[C@H](C)C(=O)O,-1.0\nCn1cnc2c1c(=O)n(C)c(=O)n2C,-1.5\n";
    let (_directory, csv) = temp_file("drugs.csv", text.as_bytes());
    let [sdf, csv] = [sdf, csv].map(|path| train(&path).unwrap().graphs);
    assert_eq!(csv[1], sdf[1]);
    assert_eq!((csv[0].num_nodes, csv[0].edges.len()), (sdf[0].num_nodes, sdf[0].edges.len()));
}

#[test]
fn invalid_sdf_records_are_located_and_can_be_skipped() {
    let broken = DRUGS.replacen("  1  2  1  0\n", "  1 99  1  0\n", 1);
    let (message, _) = train_error("mine.sdf", broken.as_bytes());
    assert!(message.starts_with(", line 1: invalid molfile: "), "{message}");
    let (_directory, path) = temp_file("mine.sdf", broken.as_bytes());
    let rows = predicted(&path);
    assert!(rows.lines().nth(1).unwrap().starts_with("ibuprofen,,-1.0,\tline 1: invalid molfile"));
    let options = SmilesCsvOptions {
        on_invalid: graph_diffuser_data::formats::smiles_csv::OnInvalid::Skip,
        ..SmilesCsvOptions::default()
    };
    let csv = read(&path, &options).unwrap();
    assert_eq!((csv.graphs.len(), csv.skipped.len()), (3, 1));
}

#[test]
fn time_is_linear_in_the_number_of_columns() {
    let columns = 200_000;
    let names: Vec<String> = (0..columns).map(|column| format!(",y{column}")).collect();
    let names = names.concat();
    let text =
        format!("smiles{names}\nCCO{0}\nCC{1}\n", ",1.5".repeat(columns), ",2.5".repeat(columns));
    let (_directory, path) = temp_file("wide.csv", text.as_bytes());
    let start = std::time::Instant::now();
    let csv = read(&path, &SmilesCsvOptions::default()).unwrap();
    assert_eq!(csv.schema.names.targets.len(), columns);
    // It takes about a second; comparing every pair of columns takes minutes.
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}

#[test]
fn unknown_smiles_column_is_an_error_in_every_format() {
    for (name, text) in [("mine.sdf", DRUGS), ("mine.smi", "CCO ethanol\nCC ethane\n")] {
        let (_directory, path) = temp_file(name, text.as_bytes());
        let named = SmilesColumn::Named("structure");
        let error = InferenceInput::open(&path, Featurizer::Ogb, &schema(), named).unwrap_err();
        assert!(error.to_string().contains("structure"), "{name}: {error}");
        let options =
            SmilesCsvOptions { smiles_column: Some("structure".into()), ..Default::default() };
        assert!(read(&path, &options).is_err(), "{name}");
        // The name of the column in the training file need not exist here.
        let of_training = SmilesColumn::OfTraining("structure");
        assert!(InferenceInput::open(&path, Featurizer::Ogb, &schema(), of_training).is_ok());
    }
}

#[test]
fn smiles_field_of_an_sdf_file_can_be_selected() {
    let text = DRUGS.replace("<comment>\nfound in coffee,\ntea and cocoa", "<structure>\nCCO");
    let (_directory, path) = temp_file("mine.sdf", text.as_bytes());
    let input =
        InferenceInput::open(&path, Featurizer::Ogb, &schema(), SmilesColumn::Named("structure"))
            .unwrap();
    let rows: Vec<InputRow> = input.chunks(1).flatten().collect();
    assert_eq!(rows[1].graph.as_ref().unwrap().as_ref().unwrap().num_nodes, 3);
    assert!(rows[0].graph.is_err());
}

#[test]
fn schema_of_the_model_is_used_for_every_format() {
    let schema = ogb_schema(schema().targets);
    for path in [fixture("drugs.sdf"), fixture("pandas.parquet")] {
        if cfg!(not(feature = "parquet")) && path.ends_with("pandas.parquet") {
            continue;
        }
        let input =
            InferenceInput::open(&path, Featurizer::Ogb, &schema, SmilesColumn::Auto).unwrap();
        let (read, bytes) = (std::sync::Arc::clone(&input.read), input.bytes);
        for row in input.chunks(2).flatten() {
            assert!(schema.mismatch(&row.graph.unwrap().unwrap()).is_none());
        }
        assert_eq!(InferenceInput::progress(&read, bytes), (bytes, bytes));
    }
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_files_of_all_writers_have_the_same_rows() {
    let expected = "smiles,series,logS,count,active,tested\tatoms
CCO,a,1.1,1,true,2024-05-31\t3
c1ccccc1,b,-1.64,2,false,\t6
CC(=O)O,a,,300000000000,,\t4
,,,,,\t
C[C@H](N)C(=O)O,,0.25,-5,true,1999-12-31\t6
CCO,a,1e-5,6,true,2024-01-01\t3";
    for name in ["pyarrow_snappy", "pyarrow_gzip_v2", "polars_zstd", "polars_lz4"] {
        let path = fixture(&format!("{name}.parquet"));
        assert_eq!(Format::detect(&path).unwrap(), Format::Parquet);
        assert_eq!(predicted(&path), expected, "{name}");
        let options = SmilesCsvOptions {
            target_columns: Some(vec!["logS".into()]),
            ..SmilesCsvOptions::default()
        };
        let csv = read(&path, &options).unwrap();
        assert_eq!(csv.lines, [1, 2, 3, 5, 6], "{name}");
        let values = values(&csv);
        assert!(values[2].is_nan());
        assert_eq!([values[0], values[1], values[3], values[4]], [1.1, -1.64, 0.25, 1e-5]);
    }
    let csv = train(&fixture("pandas.parquet")).unwrap();
    assert_eq!(csv.schema.names.targets, ["y"]);
    assert!(values(&csv)[1].is_nan());
}

#[cfg(feature = "parquet")]
#[test]
fn truncated_parquet_files_are_errors() {
    let whole = std::fs::read(fixture("pyarrow_snappy.parquet")).unwrap();
    for length in 4..whole.len() {
        let (_directory, path) = temp_file("x.parquet", &whole[..length]);
        let errors = train(&path).unwrap_err();
        assert!(errors[0].to_string().contains("invalid Parquet file: "), "{}", errors[0]);
    }
    let (message, _) = train_error("x.parquet", b"smiles,y\n");
    assert!(message.starts_with(": invalid Parquet file"), "{message}");
}

/// Flips bits of small files: a decoder must neither panic nor take unbounded memory or time.
#[cfg(feature = "parquet")]
#[test]
fn damaged_parquet_files_never_panic() {
    let (mut errors, mut read_anyway) = (0, 0);
    for name in ["pyarrow_gzip_v2", "polars_zstd", "pyarrow_snappy", "polars_lz4"] {
        let whole = std::fs::read(fixture(&format!("{name}.parquet"))).unwrap();
        let (_directory, path) = temp_file("x.parquet", &whole);
        for byte in (4..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[byte] ^= 1 << (byte % 8);
            std::fs::write(&path, &damaged).unwrap();
            match train(&path) {
                Ok(_) => read_anyway += 1,
                Err(_) => errors += 1,
            }
        }
    }
    assert!(errors > 100 && read_anyway > 100, "{errors} errors, {read_anyway} read");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_needs_the_feature() {
    let errors = train(&fixture("pandas.parquet")).unwrap_err();
    assert!(errors[0].to_string().ends_with("this build does not support Parquet files"));
}

#[test]
fn unsupported_files_name_what_is_supported() {
    let (_directory, path) = temp_file("sheet.xlsx", b"PK\x03\x04\0");
    let error = Format::detect(&path).unwrap_err();
    assert!(error.to_string().ends_with("unsupported binary file"), "{error}");
    for format in ["CSV", "SMILES", "SDF", "JSON Lines", "Parquet"] {
        assert!(error.hint().unwrap().contains(format));
    }
    let (_directory, path) = temp_file("graphs.jsonl", b"{\"nodes\": 1}\n");
    let error =
        InferenceInput::open(&path, Featurizer::Ogb, &schema(), SmilesColumn::Auto).unwrap_err();
    assert!(
        error.to_string().ends_with("expects a file of molecules, found a JSON file of graphs")
    );
    assert!(error.hint().unwrap().contains("SDF"));
}
