//! Applicability domain of models of molecules: similarity to the training molecules and range of
//! their sizes.
//!
//! A run stores the [`Fingerprint`]s of its training molecules in `fingerprints.bin`, of at most
//! [`TrainingDomain::MAX_MOLECULES`] molecules, or a fixed random subset of that size. All integers
//! are little-endian; varints have seven bits per byte, lowest first.
//!
//! ```text
//! 8 bytes    "GDFINGER"
//! u32        version, 1
//! u64        number of training molecules
//! u32, u32   smallest and largest number of atoms of a training molecule
//! u32        number of fingerprints
//! each:      varint number of bins; per bin, varint difference to the previous bin and count
//! 32 bytes   SHA-256 hash of everything above
//! ```
//!
//! A drug-like molecule takes about 120 bytes, so that the file of a large dataset has about 6 MB.

use graph_diffuser_data::chem::Fingerprint;
use graph_diffuser_data::{Dataset, Graph, SeedTree, Split, map_on_threads};
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 8] = b"GDFINGER";
const VERSION: u32 = 1;
const HASH_BYTES: usize = 32;

/// Training molecules of a model, to recognize molecules on which it is unreliable.
///
/// # Examples
/// ```
/// use graph_diffuser::domain::TrainingDomain;
/// use graph_diffuser_data::{Features, Graph, Targets};
///
/// // Chains of two to four carbon atoms.
/// let chain = |atoms: u32| Graph {
///     num_nodes: atoms as usize,
///     edges: (1..atoms).flat_map(|atom| [[atom - 1, atom], [atom, atom - 1]]).collect(),
///     node_features: Features::Categorical { columns: 1, values: vec![6; atoms as usize] },
///     edge_features: Features::None,
///     targets: Targets::GraphValues(vec![]),
/// };
/// let domain = TrainingDomain::new((2..5).map(chain));
/// assert_eq!(domain.check(&chain(3)).similarity, 1.0);
/// let large = domain.check(&chain(500));
/// assert!(large.is_outside() && large.has_unusual_size);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingDomain {
    molecules: u64,
    atoms: [u32; 2],
    fingerprints: Vec<Fingerprint>,
    /// Sum of the counts of each fingerprint.
    totals: Vec<u32>,
    /// Counts of each bin, derived from the fingerprints.
    bins: Vec<BinCounts>,
}

/// Counts of one bin in all fingerprints.
#[derive(Debug, Clone, PartialEq)]
enum BinCounts {
    /// Molecules with a positive count, and the count.
    Sparse(Vec<(u32, u16)>),
    /// Count of every molecule. A vectorized pass over all molecules is faster than a list of more
    /// than a fifth of them: with the 10,000 molecules of `zinc`, a check takes 40 to 60 µs instead
    /// of 160 to 190 µs with lists only, and 56 to 89 µs with lists of up to a third.
    Dense(Vec<u16>),
}

/// Relation of a molecule to the training molecules.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DomainCheck {
    /// Similarity to the nearest training molecule, from 0 to 1.
    pub similarity: f64,
    /// True if the number of atoms is far from that of every training molecule.
    pub has_unusual_size: bool,
}

impl DomainCheck {
    /// Returns whether no training molecule is similar.
    pub fn is_dissimilar(&self) -> bool {
        self.similarity < TrainingDomain::MIN_SIMILARITY
    }

    /// Returns whether the molecule is outside of the domain.
    pub fn is_outside(&self) -> bool {
        self.is_dissimilar() || self.has_unusual_size
    }
}

impl TrainingDomain {
    /// Maximum number of molecules whose fingerprints are stored.
    pub const MAX_MOLECULES: usize = 50_000;

    /// Similarity to the nearest training molecule below which a molecule is outside of the domain.
    pub const MIN_SIMILARITY: f64 = 0.25;

    /// Factor by which a molecule may be smaller or larger than all training molecules.
    pub const SIZE_FACTOR: f64 = 1.5;

    /// Creates the domain of a dataset of molecules from its training split.
    pub fn of(dataset: &Dataset) -> Self {
        let train = dataset.split(Split::Train);
        let mut chosen = train.to_vec();
        if chosen.len() > Self::MAX_MOLECULES {
            SeedTree::new(0).stream("fingerprints").shuffle(&mut chosen);
            chosen.truncate(Self::MAX_MOLECULES);
            chosen.sort_unstable();
        }
        let fingerprints =
            chosen.iter().map(|&index| Fingerprint::of(&dataset.graphs.get(index))).collect();
        let atoms = train.iter().map(|&index| dataset.graphs.num_nodes(index));
        Self::with_fingerprints(fingerprints, train.len() as u64, range(atoms))
    }

    /// Creates the domain of molecules, of which all fingerprints are kept.
    pub fn new(molecules: impl IntoIterator<Item = Graph>) -> Self {
        let (sizes, fingerprints): (Vec<usize>, Vec<Fingerprint>) =
            molecules.into_iter().map(|graph| (graph.num_nodes, Fingerprint::of(&graph))).unzip();
        let molecules = sizes.len() as u64;
        Self::with_fingerprints(fingerprints, molecules, range(sizes.into_iter()))
    }

    fn with_fingerprints(fingerprints: Vec<Fingerprint>, molecules: u64, atoms: [u32; 2]) -> Self {
        let mut lists = vec![Vec::new(); Fingerprint::BINS];
        for (molecule, fingerprint) in fingerprints.iter().enumerate() {
            for &(bin, count) in fingerprint.counts() {
                lists[usize::from(bin)].push((molecule as u32, count));
            }
        }
        let bins = lists.into_iter().map(|list| BinCounts::new(list, fingerprints.len())).collect();
        let totals = fingerprints.iter().map(Fingerprint::total).collect();
        Self { molecules, atoms, fingerprints, totals, bins }
    }

    /// Returns the number of training molecules.
    pub fn num_molecules(&self) -> u64 {
        self.molecules
    }

    /// Returns the smallest and largest number of atoms inside the domain.
    pub fn atom_limits(&self) -> [usize; 2] {
        let [min, max] = self.atoms.map(f64::from);
        [(min / Self::SIZE_FACTOR).ceil() as usize, (max * Self::SIZE_FACTOR).floor() as usize]
    }

    /// Compares a molecule with the training molecules.
    pub fn check(&self, molecule: &Graph) -> DomainCheck {
        self.check_with(molecule, &mut Vec::new())
    }

    /// Compares molecules with the training molecules on `threads` threads.
    pub fn check_all(&self, molecules: &[Graph], threads: usize) -> Vec<DomainCheck> {
        let check = |molecules: &[Graph]| -> Vec<DomainCheck> {
            let mut common = Vec::new();
            molecules.iter().map(|molecule| self.check_with(molecule, &mut common)).collect()
        };
        let chunk = molecules.len().div_ceil(threads.max(1)).max(1);
        if chunk >= molecules.len() {
            return check(molecules);
        }
        map_on_threads(molecules.chunks(chunk), check).into_iter().flatten().collect()
    }

    /// Compares a molecule with the training molecules; `common` is reused memory.
    fn check_with(&self, molecule: &Graph, common: &mut Vec<u16>) -> DomainCheck {
        let [min, max] = self.atom_limits();
        DomainCheck {
            similarity: self.nearest_similarity(&Fingerprint::of(molecule), common),
            has_unusual_size: !(min..=max).contains(&molecule.num_nodes),
        }
    }

    /// Returns the similarity to the nearest training molecule.
    fn nearest_similarity(&self, fingerprint: &Fingerprint, common: &mut Vec<u16>) -> f64 {
        let total = fingerprint.total();
        if total > u32::from(u16::MAX) {
            // The sums of a huge molecule may overflow.
            let similarities = self.fingerprints.iter().map(|other| fingerprint.tanimoto(other));
            return similarities.fold(0.0, f64::max);
        }
        common.clear();
        common.resize(self.fingerprints.len(), 0);
        for &(bin, count) in fingerprint.counts() {
            self.bins[usize::from(bin)].add_common(count, common);
        }
        // The nearest molecules are found in single precision, and compared in double precision.
        const CHUNK: usize = 16;
        let approximate = |common: u16, other: u32| {
            let common = f32::from(common);
            common / (total as f32 + other as f32 - common).max(1.0)
        };
        let mut lanes = [0.0_f32; CHUNK];
        for (common, totals) in common.chunks(CHUNK).zip(self.totals.chunks(CHUNK)) {
            for ((largest, &common), &other) in lanes.iter_mut().zip(common).zip(totals) {
                let similarity = approximate(common, other);
                *largest = if similarity > *largest { similarity } else { *largest };
            }
        }
        let limit = lanes.into_iter().fold(0.0, f32::max) * (1.0 - 8.0 * f32::EPSILON);
        let mut nearest = 0.0;
        for (common, totals) in common.chunks(CHUNK).zip(self.totals.chunks(CHUNK)) {
            let mut pairs = common.iter().zip(totals);
            // Without an early exit, which would not be vectorized.
            if pairs.clone().fold(false, |any, (&c, &other)| any | (approximate(c, other) >= limit))
            {
                nearest = pairs.by_ref().fold(nearest, |nearest: f64, (&common, &other)| {
                    nearest.max(Fingerprint::similarity(u32::from(common), total, other))
                });
            }
        }
        nearest
    }

    /// Serializes the domain.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.molecules.to_le_bytes());
        for atoms in self.atoms {
            bytes.extend(atoms.to_le_bytes());
        }
        bytes.extend((self.fingerprints.len() as u32).to_le_bytes());
        for fingerprint in &self.fingerprints {
            push_varint(&mut bytes, fingerprint.counts().len() as u32);
            let mut previous = 0;
            for &(bin, count) in fingerprint.counts() {
                push_varint(&mut bytes, u32::from(bin - previous));
                push_varint(&mut bytes, u32::from(count));
                previous = bin;
            }
        }
        let hash = Sha256::digest(&bytes);
        bytes.extend(hash);
        bytes
    }

    /// Reads a serialized domain; `None` if it is corrupt or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (content, hash) = bytes.split_at_checked(bytes.len().checked_sub(HASH_BYTES)?)?;
        if Sha256::digest(content).as_slice() != hash {
            return None;
        }
        let mut rest = content.strip_prefix(MAGIC)?;
        if take_u32(&mut rest)? != VERSION {
            return None;
        }
        let low = u64::from(take_u32(&mut rest)?);
        let molecules = low | u64::from(take_u32(&mut rest)?) << 32;
        let atoms = [take_u32(&mut rest)?, take_u32(&mut rest)?];
        let count = take_u32(&mut rest)? as usize;
        if count > Self::MAX_MOLECULES {
            return None;
        }
        let mut fingerprints = Vec::with_capacity(count);
        for _ in 0..count {
            fingerprints.push(take_fingerprint(&mut rest)?);
        }
        rest.is_empty().then(|| Self::with_fingerprints(fingerprints, molecules, atoms))
    }
}

impl BinCounts {
    /// Creates the counts of one bin from those molecules, of `molecules`, that have any.
    fn new(list: Vec<(u32, u16)>, molecules: usize) -> Self {
        if 5 * list.len() <= molecules {
            return Self::Sparse(list);
        }
        let mut counts = vec![0; molecules];
        for (molecule, count) in list {
            counts[molecule as usize] = count;
        }
        Self::Dense(counts)
    }

    /// Adds the counts that each molecule has in common with a molecule with `count`.
    fn add_common(&self, count: u16, common: &mut [u16]) {
        match self {
            Self::Sparse(list) => {
                for &(other, other_count) in list {
                    common[other as usize] += count.min(other_count);
                }
            }
            Self::Dense(counts) => {
                for (common, &other_count) in common.iter_mut().zip(counts) {
                    *common += count.min(other_count);
                }
            }
        }
    }
}

fn range(sizes: impl Iterator<Item = usize>) -> [u32; 2] {
    let size = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
    let [min, max] =
        sizes.map(size).fold([u32::MAX, 0], |[min, max], size| [min.min(size), max.max(size)]);
    [min.min(max), max]
}

fn push_varint(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0;
    for shift in (0..28).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (value, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*value))
}

fn take_fingerprint(bytes: &mut &[u8]) -> Option<Fingerprint> {
    let bins = take_varint(bytes)? as usize;
    if bins > Fingerprint::BINS {
        return None;
    }
    let mut counts: Vec<(u16, u16)> = Vec::with_capacity(bins);
    for position in 0..bins {
        let step = take_varint(bytes)?;
        let count = u16::try_from(take_varint(bytes)?).ok().filter(|&count| count > 0)?;
        let previous = counts.last().map_or(0, |&(bin, _)| u32::from(bin));
        let bin = previous.checked_add(step)?;
        if bin >= Fingerprint::BINS as u32 || position > 0 && step == 0 {
            return None;
        }
        counts.push((bin as u16, count));
    }
    Some(Fingerprint::from_counts(counts))
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::{Features, Graphs, Splits, Targets};

    use graph_diffuser_data::TargetSchema;
    use graph_diffuser_data::chem::ogb_schema;

    use super::*;

    /// Returns a chain of atoms whose types repeat with this period.
    fn chain(atoms: u32, period: u32) -> Graph {
        Graph {
            num_nodes: atoms as usize,
            edges: (1..atoms).flat_map(|atom| [[atom - 1, atom], [atom, atom - 1]]).collect(),
            node_features: Features::Categorical {
                columns: 1,
                values: (0..atoms).map(|atom| atom % period).collect(),
            },
            edge_features: Features::None,
            targets: Targets::GraphValues(vec![]),
        }
    }

    fn domain() -> TrainingDomain {
        TrainingDomain::new((4..40).map(|atoms| chain(atoms, 1 + atoms % 5)))
    }

    #[test]
    fn similarity_is_that_of_the_nearest_molecule() {
        let domain = domain();
        // The counts of the largest molecule exceed 16 bits.
        for (atoms, period) in [(4, 5), (17, 3), (30, 7), (3, 1), (30_000, 5)] {
            let graph = chain(atoms, period);
            let fingerprint = Fingerprint::of(&graph);
            let nearest = domain
                .fingerprints
                .iter()
                .map(|other| fingerprint.tanimoto(other))
                .fold(0.0, f64::max);
            assert_eq!(domain.check(&graph).similarity, nearest);
        }
        let graphs: Vec<Graph> = (3..60).map(|atoms| chain(atoms, 3)).collect();
        let checks = domain.check_all(&graphs, 1);
        assert_eq!(checks, graphs.iter().map(|graph| domain.check(graph)).collect::<Vec<_>>());
        assert_eq!(checks, domain.check_all(&graphs, 4));
        assert!(domain.check_all(&[], 3).is_empty());
    }

    #[test]
    fn dissimilar_and_large_molecules_are_outside() {
        let domain = domain();
        assert_eq!(domain.atom_limits(), [3, 58]);
        assert!(!domain.check(&chain(20, 1)).is_outside());
        let unknown = Graph {
            node_features: Features::Categorical { columns: 1, values: vec![99; 20] },
            ..chain(20, 1)
        };
        let check = domain.check(&unknown);
        assert!(check.is_dissimilar() && !check.has_unusual_size);
        assert!(domain.check(&chain(500, 1)).has_unusual_size);
        assert!(domain.check(&chain(2, 1)).has_unusual_size);
    }

    #[test]
    fn serialized_domain_is_restored_and_corruption_is_detected() {
        let domain = domain();
        let bytes = domain.to_bytes();
        assert_eq!(TrainingDomain::from_bytes(&bytes), Some(domain));
        for position in [0, 9, 30, bytes.len() / 2, bytes.len() - 1] {
            let mut corrupt = bytes.clone();
            corrupt[position] ^= 1;
            assert_eq!(TrainingDomain::from_bytes(&corrupt), None);
        }
        assert_eq!(TrainingDomain::from_bytes(&bytes[..bytes.len() - 1]), None);
        assert_eq!(TrainingDomain::from_bytes(&[]), None);
        // A valid hash does not make invalid content valid.
        let mut content = bytes[..bytes.len() - HASH_BYTES].to_vec();
        content.push(0);
        let hash = Sha256::digest(&content);
        content.extend(hash);
        assert_eq!(TrainingDomain::from_bytes(&content), None);
    }

    #[test]
    fn large_datasets_are_sampled_and_keep_their_range() {
        let count = TrainingDomain::MAX_MOLECULES + 10;
        let size = |index: usize| if index == count - 1 { 9 } else { 2 };
        let graphs = (0..count).map(|index| chain(size(index), 1)).collect();
        let dataset = Dataset {
            graphs: Graphs::InMemory(graphs),
            schema: ogb_schema(TargetSchema::regression(1)),
            splits: Splits { train: (0..count).collect(), valid: vec![], test: vec![] },
        };
        let domain = TrainingDomain::of(&dataset);
        assert_eq!(domain.fingerprints.len(), TrainingDomain::MAX_MOLECULES);
        assert_eq!((domain.num_molecules(), domain.atoms), (count as u64, [2, 9]));
        assert_eq!(domain, TrainingDomain::of(&dataset));
    }
}
