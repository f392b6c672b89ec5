//! Catalog of published datasets: URLs, checksums and licenses of their files.

use crate::error::Diagnostic;

/// A downloadable file of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteFile<'a> {
    /// URL of the file.
    pub url: &'a str,
    /// Local file name.
    pub file_name: &'a str,
    /// Published MD5 checksum, in lowercase hexadecimal digits.
    pub md5: Option<&'a str>,
    /// Published SHA-256 checksum, in lowercase hexadecimal digits.
    pub sha256: Option<&'a str>,
    /// Size in bytes, if known.
    pub bytes: Option<u64>,
    /// Maximum size of the download, in bytes.
    pub max_bytes: u64,
}

/// A downloadable dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetSource {
    /// Name in recipes and commands.
    pub name: &'static str,
    /// One-line description.
    pub description: &'static str,
    /// Files to download.
    pub files: &'static [RemoteFile<'static>],
    /// Format of the files.
    pub format: PackageFormat,
    /// License, in one line.
    pub license: &'static str,
}

/// Format in which a dataset is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageFormat {
    /// Files that are read without unpacking.
    Plain,
    /// One zip or tar.gz archive.
    Archive,
    /// An archive with the pickled molecules of ZINC, and index files for train, validation and
    /// test. They are converted to CSV files in the layout of OGB.
    ZincPickles,
}

const MEBIBYTE: u64 = 1 << 20;
const GIBIBYTE: u64 = 1 << 30;

const fn file(url: &'static str, file_name: &'static str, max_bytes: u64) -> RemoteFile<'static> {
    RemoteFile { url, file_name, md5: None, sha256: None, bytes: None, max_bytes }
}

const fn file_with_md5(
    url: &'static str,
    file_name: &'static str,
    max_bytes: u64,
    md5: &'static str,
) -> RemoteFile<'static> {
    RemoteFile { url, file_name, md5: Some(md5), sha256: None, bytes: None, max_bytes }
}

const PEPTIDE_SPLIT: RemoteFile<'static> = file_with_md5(
    "https://www.dropbox.com/s/j4zcnx2eipuo0xz/splits_random_stratified_peptide.pickle?dl=1",
    "splits_random_stratified_peptide.pickle",
    16 * MEBIBYTE,
    "5a0114bdadc80b94fc7ae974f13ef061",
);

const TU_LICENSE: &str =
    "TUDataset states no license; cite its authors (chrsmrrs.github.io/datasets)";

macro_rules! tu_dataset {
    ($name:literal, $description:literal) => {
        DatasetSource {
            name: $name,
            description: $description,
            format: PackageFormat::Archive,
            files: &[file(
                concat!("https://www.chrsmrrs.com/graphkerneldatasets/", $name, ".zip"),
                concat!($name, ".zip"),
                256 * MEBIBYTE,
            )],
            license: TU_LICENSE,
        }
    };
}

macro_rules! zinc_index {
    ($name:literal) => {
        file(
            concat!(
                "https://raw.githubusercontent.com/graphdeeplearning/benchmarking-gnns/master/data/molecules/",
                $name
            ),
            $name,
            4 * MEBIBYTE,
        )
    };
}

/// All downloadable datasets.
pub const SOURCES: &[DatasetSource] = &[
    DatasetSource {
        name: "zinc",
        description: "12,000 small molecules, 1 regression target",
        format: PackageFormat::ZincPickles,
        files: &[
            file(
                "https://www.dropbox.com/s/feo9qle74kg48gy/molecules.zip?dl=1",
                "molecules.zip",
                2 * GIBIBYTE,
            ),
            zinc_index!("train.index"),
            zinc_index!("val.index"),
            zinc_index!("test.index"),
        ],
        license: "ZINC is free to use; the benchmark files are under the MIT license",
    },
    DatasetSource {
        name: "ogbg-molpcba",
        description: "437,929 molecules, 128 binary labels",
        format: PackageFormat::Archive,
        // OGB publishes no checksum; this one is recorded by TensorFlow Datasets.
        files: &[RemoteFile {
            bytes: Some(39_533_472),
            sha256: Some("0bb12da2f3ec8b0bb80564114a6174fad2df6a3a0d3c19470b3a27813a7d4e53"),
            ..file(
                "https://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/pcba.zip",
                "pcba.zip",
                256 * MEBIBYTE,
            )
        }],
        license: "MIT",
    },
    DatasetSource {
        name: "ogbg-molhiv",
        description: "41,127 molecules, 1 binary label",
        format: PackageFormat::Archive,
        files: &[file(
            "https://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/hiv.zip",
            "hiv.zip",
            256 * MEBIBYTE,
        )],
        license: "MIT",
    },
    DatasetSource {
        name: "ogbg-ppa",
        description: "158,100 protein neighborhoods, 37 classes",
        format: PackageFormat::Archive,
        files: &[file(
            "https://snap.stanford.edu/ogb/data/graphproppred/ogbg_ppi_medium.zip",
            "ogbg_ppi_medium.zip",
            16 * GIBIBYTE,
        )],
        license: "CC0",
    },
    DatasetSource {
        name: "ogbg-code2",
        description: "452,741 syntax trees of Python functions, sub-tokens of the function name",
        format: PackageFormat::Archive,
        files: &[file(
            "https://snap.stanford.edu/ogb/data/graphproppred/code2.zip",
            "code2.zip",
            8 * GIBIBYTE,
        )],
        license: "MIT",
    },
    DatasetSource {
        name: "pcqm4mv2",
        description: "3,746,620 molecules, 1 regression target",
        format: PackageFormat::Archive,
        files: &[file_with_md5(
            "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/pcqm4m-v2.zip",
            "pcqm4m-v2.zip",
            GIBIBYTE,
            "65b742bafca5670be4497499db7d361b",
        )],
        license: "CC BY 4.0",
    },
    DatasetSource {
        name: "pcqm-contact",
        description: "529,434 molecules, atom contacts (link prediction)",
        format: PackageFormat::Plain,
        files: &[
            file_with_md5(
                "https://datasets-public-research.s3.us-east-2.amazonaws.com/PCQM4M/pcqm4m-contact.tsv.gz",
                "pcqm4m-contact.tsv.gz",
                4 * GIBIBYTE,
                "f7ffb27942145a2e72f6f5f51716d3bc",
            ),
            file_with_md5(
                "https://www.dropbox.com/s/p8fzkt2ff3zrpo7/530k_shuffle_split_dict.pt?dl=1",
                "530k_shuffle_split_dict.pt",
                64 * MEBIBYTE,
                "e7951276cf80b4d011c59d5efe9b70cd",
            ),
        ],
        license: "CC BY 4.0",
    },
    DatasetSource {
        name: "peptides-func",
        description: "15,535 peptides, 10 binary labels",
        format: PackageFormat::Plain,
        files: &[
            RemoteFile {
                bytes: Some(769_970),
                ..file_with_md5(
                    "https://www.dropbox.com/s/ol2v01usvaxbsr8/peptide_multi_class_dataset.csv.gz?dl=1",
                    "peptide_multi_class_dataset.csv.gz",
                    MEBIBYTE,
                    "701eb743e899f4d793f0e13c8fa5a1b4",
                )
            },
            PEPTIDE_SPLIT,
        ],
        license: "CC BY-NC 4.0 (non-commercial)",
    },
    DatasetSource {
        name: "peptides-struct",
        description: "15,535 peptides, 11 regression targets",
        format: PackageFormat::Plain,
        files: &[
            file_with_md5(
                "https://www.dropbox.com/s/464u3303eu2u4zp/peptide_structure_dataset.csv.gz?dl=1",
                "peptide_structure_dataset.csv.gz",
                4 * GIBIBYTE,
                "9786061a34298a0684150f2e4ff13f47",
            ),
            PEPTIDE_SPLIT,
        ],
        license: "CC BY-NC 4.0 (non-commercial)",
    },
    tu_dataset!("MUTAG", "188 molecules, 2 classes"),
    tu_dataset!("ENZYMES", "600 proteins, 6 classes"),
    tu_dataset!("PROTEINS", "1,113 proteins, 2 classes"),
    tu_dataset!("NCI1", "4,110 molecules, 2 classes"),
    tu_dataset!("AIDS", "2,000 molecules, 2 classes"),
];

/// Error of [`find_source`]: no dataset has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown dataset `{name}`")]
pub struct UnknownSource {
    /// The requested name.
    pub name: String,
}

impl Diagnostic for UnknownSource {
    /// Suggests a similar name, or lists all names.
    fn hint(&self) -> Option<String> {
        let requested: String = self.name.to_lowercase().chars().take(64).collect();
        let distance = |source: &DatasetSource| {
            strsim::damerau_levenshtein(&requested, &source.name.to_lowercase())
        };
        Some(match SOURCES.iter().min_by_key(|source| distance(source)) {
            Some(nearest) if distance(nearest) <= nearest.name.len() / 3 => {
                format!("did you mean `{}`?", nearest.name)
            }
            _ => {
                let names: Vec<&str> = SOURCES.iter().map(|source| source.name).collect();
                format!("available datasets: {}", names.join(", "))
            }
        })
    }

    fn is_usage_error(&self) -> bool {
        true
    }
}

/// Returns the dataset with this name.
///
/// # Errors
/// Returns an error if no dataset has this name.
pub fn find_source(name: &str) -> Result<&'static DatasetSource, UnknownSource> {
    let found = SOURCES.iter().find(|source| source.name == name);
    found.ok_or_else(|| UnknownSource { name: name.into() })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_file_has_a_url_a_unique_name_and_a_size_limit() {
        let mut names = HashSet::new();
        for source in SOURCES {
            assert!(
                names.insert(source.name) && !source.files.is_empty() && !source.license.is_empty()
            );
            let mut files = HashSet::new();
            for file in source.files {
                assert!(
                    file.url.starts_with("https://") && files.insert(file.file_name),
                    "{file:?}"
                );
                assert!(file.bytes.is_none_or(|bytes| bytes <= file.max_bytes), "{file:?}");
                let is_sum = |sum: &str, length| {
                    sum.len() == length
                        && sum.bytes().all(|byte| b"0123456789abcdef".contains(&byte))
                };
                assert!(file.md5.is_none_or(|sum| is_sum(sum, 32)), "{file:?}");
                assert!(file.sha256.is_none_or(|sum| is_sum(sum, 64)), "{file:?}");
            }
        }
    }

    #[test]
    fn unknown_name_suggests_a_similar_one() {
        assert_eq!(find_source("zinc").unwrap().files.len(), 4);
        let hint = |name| find_source(name).unwrap_err().hint().unwrap();
        assert_eq!(hint("mutag"), "did you mean `MUTAG`?");
        assert_eq!(hint("ogbg-molpbca"), "did you mean `ogbg-molpcba`?");
        assert!(hint("imagenet-1k").starts_with("available datasets: zinc, "));
    }
}
