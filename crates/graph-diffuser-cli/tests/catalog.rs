//! `data fetch NAME`, then `train NAME`, for every dataset of the catalog: small files of the
//! published form come from a local server.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::{BufRead as _, BufReader, Cursor, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flate2::Compression;
use flate2::write::GzEncoder;
use graph_diffuser_data::benchmarks::peptides;
use graph_diffuser_data::download::{
    DatasetSource, Fetcher, RemoteFile, SOURCES, find_source, prepare_dataset,
};
use graph_diffuser_data::formats::Featurizer;
use graph_diffuser_data::{Features, Graph, TargetSchema};

const SMILES: [&str; 16] = [
    "CCO", "CCN", "c1ccccc1", "CC(=O)O", "C1CCCCC1", "CCCl", "CC#N", "COC", "CCS", "c1ccncc1",
    "OCCO", "NCCN", "CC(C)O", "CC=O", "BrCBr", "NCC(=O)O",
];

/// Settings that shorten the training of any recipe.
const SHORT: [&str; 8] = [
    "model.hidden_dim=16",
    "model.layers=1",
    "model.virtual_edges.num_steps=3",
    "train.epochs=1",
    "train.batch_size=4",
    "train.bn_recalibration_batches=1",
    "optim.schedule={kind=\"constant\"}",
    "optim.lr=1e-3",
];

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("../../graph-diffuser-data/tests/fixtures/", $name)).as_slice()
    };
}

type Files = BTreeMap<String, Vec<u8>>;

/// Formats one item per line.
fn lines(items: impl Iterator<Item: Display>) -> String {
    items.fold(String::new(), |mut text, item| {
        let _ = writeln!(text, "{item}");
        text
    })
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("written to memory");
    encoder.finish().expect("written to memory")
}

/// Packs files below `folder`.
fn zip(folder: &str, files: &Files) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        let options = zip::write::SimpleFileOptions::default();
        writer.start_file(format!("{folder}/{name}"), options).expect("a valid name");
        writer.write_all(content).expect("written to memory");
    }
    writer.finish().expect("written to memory").into_inner()
}

/// Indices of the training, validation and test graphs: every fourth one is for validation.
fn split(kind: &str, graphs: usize) -> Files {
    let rows = |part: &dyn Fn(usize) -> bool| -> Vec<u8> {
        gzip(&lines((0..graphs).filter(|&row| part(row))))
    };
    Files::from([
        (format!("split/{kind}/train.csv.gz"), rows(&|row| row % 8 < 4)),
        (format!("split/{kind}/valid.csv.gz"), rows(&|row| [4, 5].contains(&(row % 8)))),
        (format!("split/{kind}/test.csv.gz"), rows(&|row| [6, 7].contains(&(row % 8)))),
    ])
}

/// Molecules in the layout of OGB, in which every bond is stored once, with binary labels.
fn ogb_molecules(labels: usize) -> Files {
    let mut text: BTreeMap<&str, String> = BTreeMap::new();
    for (row, smiles) in SMILES.iter().enumerate() {
        let graph = Featurizer::Ogb.featurize_smiles(smiles, &TargetSchema::regression(1));
        let Graph { num_nodes, edges, node_features, edge_features, .. } = graph.expect("valid");
        let rows = |features: &Features| match features {
            Features::Categorical { columns, values } => {
                let line = |row: &[u32]| {
                    row.iter().map(ToString::to_string).collect::<Vec<_>>().join(",") + "\n"
                };
                values.chunks(*columns).map(line).collect::<Vec<String>>()
            }
            _ => panic!("OGB features are categories"),
        };
        let bonds: Vec<usize> = (0..edges.len()).filter(|&e| edges[e][0] < edges[e][1]).collect();
        let of_bonds = rows(&edge_features);
        let mut add = |name, line: String| text.entry(name).or_default().push_str(&line);
        add("num-node-list", format!("{num_nodes}\n"));
        add("num-edge-list", format!("{}\n", bonds.len()));
        add("node-feat", rows(&node_features).concat());
        let pair = |&e: &usize| format!("{},{}", edges[e][0], edges[e][1]);
        add("edge", lines(bonds.iter().map(pair)));
        add("edge-feat", bonds.iter().map(|&e| of_bonds[e].as_str()).collect());
        let labels: Vec<String> =
            (0..labels).map(|label| ((row + label) % 2).to_string()).collect();
        add("graph-label", labels.join(",") + "\n");
    }
    let raw = text.into_iter().map(|(name, text)| (format!("raw/{name}.csv.gz"), gzip(&text)));
    raw.chain(split("scaffold", SMILES.len())).collect()
}

/// Rings with seven strengths per edge and 37 classes, in the layout of OGB.
fn ogbg_ppa() -> Files {
    let graphs = 16;
    let mut edges = String::new();
    for _ in 0..graphs {
        edges += "0,1\n1,2\n2,3\n3,0\n";
    }
    let of = |text: &str, count: usize| gzip(&text.repeat(count));
    let labels = lines((0..graphs).map(|graph| graph % 3));
    let raw = [
        ("raw/num-node-list.csv.gz", of("4\n", graphs)),
        ("raw/num-edge-list.csv.gz", of("4\n", graphs)),
        ("raw/edge.csv.gz", gzip(&edges)),
        ("raw/edge-feat.csv.gz", of("0.1,0.0,0.5,0.001,0.0,0.2,1.0\n", 4 * graphs)),
        ("raw/graph-label.csv.gz", gzip(&labels)),
    ];
    let raw = raw.map(|(name, content)| (name.to_owned(), content));
    raw.into_iter().chain(split("species", graphs)).collect()
}

/// Syntax trees of four nodes in the layout of OGB.
fn ogbg_code2() -> Files {
    let graphs = 16;
    let of = |text: &str| gzip(&text.repeat(graphs));
    let labels = lines((0..graphs).map(|graph| format!("get name{}", graph % 3)));
    let raw = [
        ("raw/num-node-list.csv.gz", of("4\n")),
        ("raw/num-edge-list.csv.gz", of("3\n")),
        ("raw/edge.csv.gz", of("0,1\n0,2\n2,3\n")),
        ("raw/node-feat.csv.gz", of("0,2\n1,0\n0,1\n1,1\n")),
        ("raw/node_is_attributed.csv.gz", of("0\n1\n1\n1\n")),
        ("raw/node_dfs_order.csv.gz", of("0\n1\n2\n3\n")),
        ("raw/node_depth.csv.gz", of("0\n1\n1\n2\n")),
        ("raw/graph-label.csv.gz", gzip(&labels)),
        ("mapping/typeidx2type.csv.gz", gzip("type idx,type\n0,Name\n1,arg\n")),
        ("mapping/attridx2attr.csv.gz", gzip("attr idx,attr\n0,self\n1,x\n2,__NONE__\n")),
    ];
    let raw = raw.map(|(name, content)| (name.to_owned(), content));
    raw.into_iter().chain(split("project", graphs)).collect()
}

/// Paths and triangles in the layout of TU.
fn tu(name: &str) -> Files {
    let (mut edges, mut graph_of_node, mut labels) = (String::new(), String::new(), String::new());
    for graph in 0..20 {
        let first = 3 * graph + 1;
        let mut pairs = vec![[first, first + 1], [first + 1, first + 2]];
        pairs.extend((graph % 2 == 0).then_some([first, first + 2]));
        for [a, b] in pairs {
            let _ = writeln!(edges, "{a}, {b}\n{b}, {a}");
        }
        graph_of_node += &format!("{}\n", graph + 1).repeat(3);
        let _ = writeln!(labels, "{}", graph % 2);
    }
    let files = [("A", edges), ("graph_indicator", graph_of_node), ("graph_labels", labels)];
    files.map(|(part, text)| (format!("{name}_{part}.txt"), text.into_bytes())).into()
}

/// Returns the published files of a dataset, in the order of the catalog.
fn published(source: &DatasetSource) -> Vec<Vec<u8>> {
    let table = |header: &str, row: &dyn Fn(usize, &str) -> String| {
        let rows = SMILES.iter().enumerate().map(|(index, smiles)| row(index, smiles) + "\n");
        gzip(&format!("{header}\n{}", rows.collect::<String>()))
    };
    match source.name {
        "zinc" => {
            let pickles = ["train", "val", "test"]
                .map(|part| (format!("{part}.pickle"), fixture!("zinc_protocol2.pickle").to_vec()));
            let index = b"3,0,1\n".to_vec();
            vec![zip("molecules", &pickles.into()), index.clone(), index.clone(), index]
        }
        "ogbg-molhiv" => vec![zip("hiv", &ogb_molecules(1))],
        "ogbg-molpcba" => vec![zip("pcba", &ogb_molecules(128))],
        "ogbg-ppa" => vec![zip("ogbg_ppi_medium", &ogbg_ppa())],
        "ogbg-code2" => vec![zip("code2", &ogbg_code2())],
        "pcqm4mv2" => {
            let gaps = table("idx,smiles,homolumogap", &|row, smiles| {
                format!("{row},{smiles},{}.25", row % 5)
            });
            vec![zip("pcqm4m-v2", &Files::from([("raw/data.csv.gz".to_owned(), gaps)]))]
        }
        "pcqm-contact" => {
            let row = "[H][O][C]([H])([H])[H] |atomProp:0.contact.0:5.contact.0|\n";
            let contacts = gzip(&format!("cxsmiles\n{}", row.repeat(6 * 16)));
            vec![contacts, fixture!("split_arrays.pt").to_vec()]
        }
        "peptides-func" => {
            let labels = table(",smiles,peptide_seq,labels,identifier", &|row, smiles| {
                let (odd, even) = (row % 2, (row + 1) % 2);
                format!("{row},{smiles},G,\"[0, 1, {odd}, {even}, 0, 1, 0, 1, {odd}, {even}]\",x")
            });
            vec![labels, fixture!("split_protocol4.pickle").to_vec()]
        }
        "peptides-struct" => {
            let names = peptides::struct_schema().names.targets;
            let values = table(&format!(",smiles,{}", names.join(",")), &|row, smiles| {
                let values =
                    (0..names.len()).map(|column| format!(",{}.5", (row * 7 + column) % 9));
                format!("{row},{smiles}{}", values.collect::<String>())
            });
            vec![values, fixture!("split_protocol4.pickle").to_vec()]
        }
        name => vec![zip(name, &tu(name))],
    }
}

/// Serves files by their path, as long as the test runs; returns the address.
fn serve(files: Files) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let files = Arc::new(files);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
            let mut line = String::new();
            let _ = reader.read_line(&mut line);
            let path =
                line.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
            while reader.read_line(&mut line).is_ok_and(|length| length > 2) {}
            let content = files.get(&path).map(Vec::as_slice);
            let status = if content.is_some() { "200 OK" } else { "404 Not Found" };
            let content = content.unwrap_or_default();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                content.len()
            );
            // A client that has gone fails its test.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(content));
        }
    });
    address
}

/// Downloads a dataset as `data fetch` does, from a local server.
fn fetch(source: &DatasetSource, data: &Path) {
    let contents = published(source);
    assert_eq!(contents.len(), source.files.len(), "{}", source.name);
    let names = source.files.iter().map(|file| file.file_name.to_owned());
    let address = serve(names.zip(contents).collect());
    let local = |file: &RemoteFile<'static>| RemoteFile {
        url: format!("{address}/{}", file.file_name).leak(),
        md5: None,
        sha256: None,
        bytes: None,
        ..*file
    };
    let files = source.files.iter().map(local).collect::<Vec<_>>().leak();
    let local = DatasetSource { files, ..*source };
    let (fetcher, stop) = (Fetcher::default(), AtomicBool::new(false));
    let prepared = prepare_dataset(&local, data, &fetcher, &stop, |_| {});
    prepared.unwrap_or_else(|error| panic!("{}: {error}", source.name));
}

/// Runs the program in `directory`, which is also that of its caches; returns exit code and stderr.
fn run(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graph-diffuser"));
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    command.env("GRAPH_DIFFUSER_CACHE", directory.join("cache")).env("NO_COLOR", "1");
    command.env_remove("GRAPH_DIFFUSER_DATA");
    let Output { status, stderr, .. } = command.output().expect("the program starts");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn fetched_datasets_are_trained_by_their_name_or_directory() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("data");
    for source in SOURCES {
        let name = source.name;
        let has_recipe = graph_diffuser::recipe::BUILT_IN.iter().any(|(recipe, _)| *recipe == name);
        let path = format!("data/{name}");
        if !has_recipe {
            let (code, stderr) = run(directory.path(), &["train", name]);
            assert_eq!(code, Some(2), "{name}: {stderr}");
            let hint = format!(
                "hint: download it with `graph-diffuser data fetch {name}`, then train on its \
                 files with `graph-diffuser train {path}`"
            );
            assert!(stderr.contains(&hint), "{}", stderr);
        }
        fetch(source, &data);
        let mut settings = SHORT.to_vec();
        if name.starts_with("pcqm") || name.starts_with("peptides") {
            // The recorded files have no test split, and that of PCQM4Mv2 follows from its size.
            // A random split of a few graphs may have a single class.
            settings.extend(["data.split={kind=\"random\"}", "train.select_by=\"loss\""]);
        }
        let settings = settings.iter().flat_map(|setting| ["--set", *setting]);
        let recipe = if has_recipe { name } else { &path };
        let arguments: Vec<&str> =
            ["train", recipe, "--output", name].into_iter().chain(settings).collect();
        let (code, stderr) = run(directory.path(), &arguments);
        assert_eq!(code, Some(0), "{name}: {stderr}");
        assert!(directory.path().join(name).join("result.json").is_file(), "{name}");
    }
}

#[test]
fn hint_of_a_fetched_dataset_without_a_recipe_is_the_command_to_train_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fetch(find_source("MUTAG").expect("in the catalog"), &directory.path().join("data"));
    let (code, stderr) = run(directory.path(), &["train", "MUTAG"]);
    let expected = "error: `MUTAG` is a dataset, not a recipe\n\n\
                    hint: train on its files with `graph-diffuser train data/MUTAG`\n";
    assert_eq!((code, stderr.as_str()), (Some(2), expected));
}
