//! The published datasets: where their files are, how to know them, and on what terms.

/// One file of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteFile<'a> {
    /// Where it is published.
    pub address: &'a str,
    /// What it is called here.
    pub file: &'a str,
    /// Its published MD5 sum, in small hexadecimal digits.
    pub md5: Option<&'a str>,
    /// Its size, where that is known.
    pub bytes: Option<u64>,
    /// No more than this is ever written.
    pub max_bytes: u64,
}

/// A dataset that can be downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// What recipes and commands call it.
    pub name: &'static str,
    /// What is in it, in a few words.
    pub about: &'static str,
    /// What is downloaded.
    pub files: &'static [RemoteFile<'static>],
    /// What the files are.
    pub form: PackageFormat,
    /// On what terms, in one line.
    pub licence: &'static str,
}

/// What the files of a dataset are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageFormat {
    /// Read as they are.
    Plain,
    /// One archive, with a folder of what is read in it.
    Archive,
    /// In a form that is not read here.
    Foreign {
        /// What form that is.
        what: &'static str,
        /// What is read instead, from the dataset's folder.
        instead: &'static str,
    },
}

const MEBIBYTE: u64 = 1 << 20;
const GIBIBYTE: u64 = 1 << 30;

const fn file(address: &'static str, file: &'static str, max_bytes: u64) -> RemoteFile<'static> {
    RemoteFile { address, file, md5: None, bytes: None, max_bytes }
}

const fn summed(
    address: &'static str,
    file: &'static str,
    max_bytes: u64,
    md5: &'static str,
) -> RemoteFile<'static> {
    RemoteFile { address, file, md5: Some(md5), bytes: None, max_bytes }
}

const PEPTIDE_SPLIT: RemoteFile<'static> = summed(
    "https://www.dropbox.com/s/j4zcnx2eipuo0xz/splits_random_stratified_peptide.pickle?dl=1",
    "splits_random_stratified_peptide.pickle",
    16 * MEBIBYTE,
    "5a0114bdadc80b94fc7ae974f13ef061",
);

const TU_LICENCE: &str =
    "TUDataset states no licence; cite its authors (chrsmrrs.github.io/datasets)";

macro_rules! tu_dataset {
    ($name:literal, $about:literal) => {
        Source {
            name: $name,
            about: $about,
            form: PackageFormat::Archive,
            files: &[file(
                concat!("https://www.chrsmrrs.com/graphkerneldatasets/", $name, ".zip"),
                concat!($name, ".zip"),
                256 * MEBIBYTE,
            )],
            licence: TU_LICENCE,
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

/// All datasets that can be downloaded.
pub const SOURCES: &[Source] = &[
    Source {
        name: "zinc",
        about: "12,000 small molecules, one number each",
        form: PackageFormat::Foreign {
            what: "pickles of Python objects",
            instead: "a table `smiles.csv` with the columns `smiles`, `y` and `split`, or the csv layout of OGB in `raw` and `split`",
        },
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
        licence: "ZINC is free for everyone to use; the benchmark's files are under the MIT licence",
    },
    Source {
        name: "ogbg-molpcba",
        about: "437,929 molecules, 128 labels",
        form: PackageFormat::Archive,
        files: &[file(
            "http://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/pcba.zip",
            "pcba.zip",
            2 * GIBIBYTE,
        )],
        licence: "MIT",
    },
    Source {
        name: "ogbg-molhiv",
        about: "41,127 molecules, one label",
        form: PackageFormat::Archive,
        files: &[file(
            "http://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/hiv.zip",
            "hiv.zip",
            256 * MEBIBYTE,
        )],
        licence: "MIT",
    },
    Source {
        name: "ogbg-ppa",
        about: "158,100 neighbourhoods of proteins, 37 classes",
        form: PackageFormat::Archive,
        files: &[file(
            "http://snap.stanford.edu/ogb/data/graphproppred/ogbg_ppi_medium.zip",
            "ogbg_ppi_medium.zip",
            16 * GIBIBYTE,
        )],
        licence: "CC0",
    },
    Source {
        name: "ogbg-code2",
        about: "452,741 syntax trees of functions, the words of their names",
        form: PackageFormat::Archive,
        files: &[file(
            "http://snap.stanford.edu/ogb/data/graphproppred/code2.zip",
            "code2.zip",
            8 * GIBIBYTE,
        )],
        licence: "MIT",
    },
    Source {
        name: "pcqm4mv2",
        about: "3,746,620 molecules, one number each",
        form: PackageFormat::Archive,
        files: &[summed(
            "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/pcqm4m-v2.zip",
            "pcqm4m-v2.zip",
            GIBIBYTE,
            "65b742bafca5670be4497499db7d361b",
        )],
        licence: "CC BY 4.0",
    },
    Source {
        name: "pcqm-contact",
        about: "529,434 molecules, pairs of atoms that touch",
        form: PackageFormat::Plain,
        files: &[
            summed(
                "https://datasets-public-research.s3.us-east-2.amazonaws.com/PCQM4M/pcqm4m-contact.tsv.gz",
                "pcqm4m-contact.tsv.gz",
                4 * GIBIBYTE,
                "f7ffb27942145a2e72f6f5f51716d3bc",
            ),
            summed(
                "https://www.dropbox.com/s/p8fzkt2ff3zrpo7/530k_shuffle_split_dict.pt?dl=1",
                "530k_shuffle_split_dict.pt",
                64 * MEBIBYTE,
                "e7951276cf80b4d011c59d5efe9b70cd",
            ),
        ],
        licence: "CC BY 4.0",
    },
    Source {
        name: "peptides-func",
        about: "15,535 peptides, 10 labels",
        form: PackageFormat::Plain,
        files: &[
            RemoteFile {
                bytes: Some(769_970),
                ..summed(
                    "https://www.dropbox.com/s/ol2v01usvaxbsr8/peptide_multi_class_dataset.csv.gz?dl=1",
                    "peptide_multi_class_dataset.csv.gz",
                    MEBIBYTE,
                    "701eb743e899f4d793f0e13c8fa5a1b4",
                )
            },
            PEPTIDE_SPLIT,
        ],
        licence: "CC BY-NC 4.0: not for commercial use",
    },
    Source {
        name: "peptides-struct",
        about: "15,535 peptides, 11 numbers each",
        form: PackageFormat::Plain,
        files: &[
            summed(
                "https://www.dropbox.com/s/464u3303eu2u4zp/peptide_structure_dataset.csv.gz?dl=1",
                "peptide_structure_dataset.csv.gz",
                4 * GIBIBYTE,
                "9786061a34298a0684150f2e4ff13f47",
            ),
            PEPTIDE_SPLIT,
        ],
        licence: "CC BY-NC 4.0: not for commercial use",
    },
    tu_dataset!("MUTAG", "188 molecules, 2 classes"),
    tu_dataset!("ENZYMES", "600 proteins, 6 classes"),
    tu_dataset!("PROTEINS", "1,113 proteins, 2 classes"),
    tu_dataset!("NCI1", "4,110 molecules, 2 classes"),
    tu_dataset!("AIDS", "2,000 molecules, 2 classes"),
];

/// A name that no dataset has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no dataset `{name}` to download")]
pub struct UnknownSource {
    /// The name.
    pub name: String,
}

impl UnknownSource {
    /// The name that may have been meant, or all of them.
    pub fn hint(&self) -> String {
        let traced: String = self.name.to_lowercase().chars().take(64).collect();
        let distance =
            |source: &Source| strsim::damerau_levenshtein(&traced, &source.name.to_lowercase());
        match SOURCES.iter().min_by_key(|source| distance(source)) {
            Some(nearest) if distance(nearest) <= nearest.name.len() / 3 => {
                format!("did you mean `{}`?", nearest.name)
            }
            _ => {
                let names: Vec<&str> = SOURCES.iter().map(|source| source.name).collect();
                format!("the datasets are {}", names.join(", "))
            }
        }
    }
}

/// The dataset of this name.
///
/// # Errors
/// If there is none.
pub fn source(name: &str) -> Result<&'static Source, UnknownSource> {
    let found = SOURCES.iter().find(|source| source.name == name);
    found.ok_or_else(|| UnknownSource { name: name.into() })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_file_has_an_address_a_name_of_its_own_and_a_limit() {
        let mut names = HashSet::new();
        for source in SOURCES {
            assert!(
                names.insert(source.name) && !source.files.is_empty() && !source.licence.is_empty()
            );
            let mut files = HashSet::new();
            for file in source.files {
                assert!(file.address.starts_with("http") && files.insert(file.file), "{file:?}");
                assert!(file.bytes.is_none_or(|bytes| bytes <= file.max_bytes), "{file:?}");
                let digits = |md5: &str| {
                    md5.len() == 32 && md5.bytes().all(|byte| b"0123456789abcdef".contains(&byte))
                };
                assert!(file.md5.is_none_or(digits), "{file:?}");
            }
        }
    }

    #[test]
    fn a_mistyped_name_is_put_right() {
        assert_eq!(source("zinc").unwrap().files.len(), 4);
        assert_eq!(source("mutag").unwrap_err().hint(), "did you mean `MUTAG`?");
        assert_eq!(source("ogbg-molpbca").unwrap_err().hint(), "did you mean `ogbg-molpcba`?");
        assert!(source("imagenet-1k").unwrap_err().hint().starts_with("the datasets are zinc, "));
    }
}
