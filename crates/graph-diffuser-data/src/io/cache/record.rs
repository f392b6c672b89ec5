//! Binary encoding of one graph, column by column, each with the narrowest integer type that fits.
//!
//! If every edge is directly followed by its reverse with the same features, only one of the two is
//! stored. Input is not trusted: counts are compared with the remaining bytes before allocation.

use crate::graph::{Features, Graph, Targets};

/// Maximum number of nodes of a graph.
pub(crate) const MAX_GRAPH_NODES: usize = 1 << 20;
/// Maximum number of feature values of a graph; a constant column could otherwise expand without
/// bound.
const MAX_VALUES: usize = 1 << 26;

const CONSTANT: u8 = 0;
const ONE_BYTE: u8 = 1;
const TWO_BYTES: u8 = 2;
const FOUR_BYTES: u8 = 4;
/// Floats with three decimals, stored as 16-bit counts of thousandths.
const THOUSANDTHS: u8 = 5;

/// Appends the encoding of a graph; returns `None` if it exceeds the limits or is inconsistent.
pub(super) fn encode(graph: &Graph, into: &mut Vec<u8>) -> Option<()> {
    let paired = is_paired(graph);
    let rows = if paired { graph.edges.len() / 2 } else { graph.edges.len() };
    if graph.num_nodes > MAX_GRAPH_NODES {
        return None;
    }
    put_count(graph.num_nodes, into)?;
    put_count(rows, into)?;
    into.push(u8::from(paired));
    let step = if paired { 2 } else { 1 };
    for end in 0..2 {
        put_u32s(graph.edges.iter().step_by(step).map(|edge| edge[end]), false, into);
    }
    put_features(&graph.node_features, graph.num_nodes, 1, into)?;
    put_features(&graph.edge_features, graph.edges.len(), step, into)?;
    match &graph.targets {
        Targets::NodeClasses(classes) => put_list(0, classes, into)?,
        Targets::GraphValues(values) => {
            into.push(1);
            put_count(values.len(), into)?;
            put_f32s(values.iter().copied(), into);
        }
        Targets::SubTokens(tokens) => put_list(2, tokens, into)?,
        Targets::Links(pairs) => {
            into.push(3);
            put_count(pairs.len(), into)?;
            for end in 0..2 {
                put_u32s(pairs.iter().map(|pair| pair[end]), false, into);
            }
        }
    }
    Some(())
}

/// Decodes a graph; returns `None` if the bytes are not a valid encoding.
pub(super) fn decode(bytes: &[u8]) -> Option<Graph> {
    let mut bytes = Bytes(bytes);
    let nodes = bytes.count()?;
    let rows = bytes.count()?;
    let paired = match bytes.byte()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    if nodes > MAX_GRAPH_NODES {
        return None;
    }
    let stored = bytes.pairs(rows)?;
    let edges: Vec<[u32; 2]> =
        if paired { stored.iter().flat_map(|&[u, v]| [[u, v], [v, u]]).collect() } else { stored };
    let node_features = bytes.features(nodes, false)?;
    let edge_features = bytes.features(rows, paired)?;
    let targets = match bytes.byte()? {
        0 => Targets::NodeClasses(bytes.list()?),
        1 => {
            let length = bytes.count()?;
            if length > MAX_VALUES {
                return None;
            }
            let mut values = vec![0.0; length];
            bytes.read_f32_column(&mut values, 1, 0)?;
            Targets::GraphValues(values)
        }
        2 => Targets::SubTokens(bytes.list()?),
        3 => {
            let length = bytes.count()?;
            Targets::Links(bytes.pairs(length)?)
        }
        _ => return None,
    };
    bytes.0.is_empty().then_some(Graph {
        num_nodes: nodes,
        edges,
        node_features,
        edge_features,
        targets,
    })
}

/// Returns `true` if every edge is directly followed by its reverse with the same features.
fn is_paired(graph: &Graph) -> bool {
    fn repeated<T: PartialEq>(values: &[T], columns: usize) -> bool {
        columns == 0 || values.chunks(2 * columns).all(|rows| rows[..columns] == rows[columns..])
    }
    graph.edges.len().is_multiple_of(2)
        && graph.edges.chunks_exact(2).all(|pair| pair[0] == [pair[1][1], pair[1][0]])
        && {
            let (columns, categories) = graph.edge_features.categories();
            let (float_columns, floats) = graph.edge_features.floats();
            categories.len() == columns * graph.edges.len()
                && floats.len() == float_columns * graph.edges.len()
                // Equal values may differ in the sign of zero, which would be lost.
                && floats.iter().all(|value| value.to_bits() != (-0.0_f32).to_bits())
                && repeated(categories, columns)
                && repeated(floats, float_columns)
        }
}

fn put_count(count: usize, into: &mut Vec<u8>) -> Option<()> {
    into.extend(u32::try_from(count).ok()?.to_le_bytes());
    Some(())
}

fn put_list(tag: u8, values: &[u32], into: &mut Vec<u8>) -> Option<()> {
    into.push(tag);
    put_count(values.len(), into)?;
    put_u32s(values.iter().copied(), false, into);
    Some(())
}

/// Appends the numbers of categorical and float columns, followed by the columns.
fn put_features(features: &Features, rows: usize, step: usize, into: &mut Vec<u8>) -> Option<()> {
    let (categorical_columns, categories) = features.categories();
    let (float_columns, floats) = features.floats();
    let is_table = |columns: usize, length: usize| rows.checked_mul(columns) == Some(length);
    if !is_table(categorical_columns, categories.len())
        || !is_table(float_columns, floats.len())
        || categories.len().max(floats.len()) > MAX_VALUES
    {
        return None;
    }
    let tag = match features {
        Features::None => 0,
        Features::Categorical { .. } => 1,
        Features::Float { .. } => 2,
        Features::Mixed { .. } => 3,
    };
    into.push(tag);
    if tag & 1 != 0 {
        put_count(categorical_columns, into)?;
        for column in 0..categorical_columns {
            let column = categories.iter().copied().skip(column);
            put_u32s(column.step_by(categorical_columns * step), true, into);
        }
    }
    if tag & 2 != 0 {
        put_count(float_columns, into)?;
        for column in 0..float_columns {
            put_f32s(floats.iter().copied().skip(column).step_by(float_columns * step), into);
        }
    }
    Some(())
}

fn put_u32s(values: impl Iterator<Item = u32> + Clone, may_be_constant: bool, into: &mut Vec<u8>) {
    let largest = values.clone().max().unwrap_or(0);
    let first = values.clone().next().unwrap_or(0);
    if may_be_constant && values.clone().all(|value| value == first) {
        into.push(CONSTANT);
        into.extend(first.to_le_bytes());
    } else if u8::try_from(largest).is_ok() {
        into.push(ONE_BYTE);
        into.extend(values.map(|value| value as u8));
    } else if u16::try_from(largest).is_ok() {
        into.push(TWO_BYTES);
        into.extend(values.flat_map(|value| (value as u16).to_le_bytes()));
    } else {
        into.push(FOUR_BYTES);
        into.extend(values.flat_map(u32::to_le_bytes));
    }
}

fn put_f32s(values: impl Iterator<Item = f32> + Clone, into: &mut Vec<u8>) {
    let first = values.clone().next().unwrap_or(0.0);
    if values.clone().all(|value| value.to_bits() == first.to_bits()) {
        into.push(CONSTANT);
        into.extend(first.to_le_bytes());
    } else if values
        .clone()
        .all(|value| thousandth(thousandths(value)).to_bits() == value.to_bits())
    {
        into.push(THOUSANDTHS);
        into.extend(values.flat_map(|value| thousandths(value).to_le_bytes()));
    } else {
        into.push(FOUR_BYTES);
        into.extend(values.flat_map(f32::to_le_bytes));
    }
}

fn thousandths(value: f32) -> u16 {
    // The cast saturates and maps NaN to 0; the caller detects both because the value changes.
    (f64::from(value) * 1000.0).round() as u16
}

fn thousandth(count: u16) -> f32 {
    (f64::from(count) / 1000.0) as f32
}

/// The bytes that remain to be decoded.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn count(&mut self) -> Option<usize> {
        Some(u32::from_le_bytes(self.array()?) as usize)
    }

    /// Reads integers that take at least one byte each, so no constant column.
    fn read_u32s(&mut self, length: usize) -> Option<Vec<u32>> {
        if length > self.0.len() {
            // Even one byte per value would not fit.
            return None;
        }
        let mut values = vec![0; length];
        (self.0.first() != Some(&CONSTANT)).then_some(())?;
        self.read_u32_column(&mut values, 1, 0)?;
        Some(values)
    }

    fn list(&mut self) -> Option<Vec<u32>> {
        let length = self.count()?;
        self.read_u32s(length)
    }

    fn pairs(&mut self, length: usize) -> Option<Vec<[u32; 2]>> {
        let sources = self.read_u32s(length)?;
        let targets = self.read_u32s(length)?;
        Some(sources.into_iter().zip(targets).map(|(source, target)| [source, target]).collect())
    }

    /// Fills one column of a row-major table with the given number of columns.
    fn read_u32_column(&mut self, values: &mut [u32], columns: usize, column: usize) -> Option<()> {
        let rows = values.len() / columns;
        let slots = values.iter_mut().skip(column).step_by(columns);
        match self.byte()? {
            CONSTANT => {
                let constant = u32::from_le_bytes(self.array()?);
                slots.for_each(|slot| *slot = constant);
            }
            ONE_BYTE => {
                slots.zip(self.take(rows)?).for_each(|(slot, &byte)| *slot = u32::from(byte));
            }
            TWO_BYTES => {
                let (pairs, _) = self.take(rows.checked_mul(2)?)?.as_chunks();
                slots
                    .zip(pairs)
                    .for_each(|(slot, &pair)| *slot = u32::from(u16::from_le_bytes(pair)));
            }
            FOUR_BYTES => {
                let (words, _) = self.take(rows.checked_mul(4)?)?.as_chunks();
                slots.zip(words).for_each(|(slot, &word)| *slot = u32::from_le_bytes(word));
            }
            _ => return None,
        }
        Some(())
    }

    fn read_f32_column(&mut self, values: &mut [f32], columns: usize, column: usize) -> Option<()> {
        let rows = values.len() / columns;
        let slots = values.iter_mut().skip(column).step_by(columns);
        match self.byte()? {
            CONSTANT => {
                let constant = f32::from_le_bytes(self.array()?);
                slots.for_each(|slot| *slot = constant);
            }
            THOUSANDTHS => {
                let (pairs, _) = self.take(rows.checked_mul(2)?)?.as_chunks();
                slots
                    .zip(pairs)
                    .for_each(|(slot, &pair)| *slot = thousandth(u16::from_le_bytes(pair)));
            }
            FOUR_BYTES => {
                let (words, _) = self.take(rows.checked_mul(4)?)?.as_chunks();
                slots.zip(words).for_each(|(slot, &word)| *slot = f32::from_le_bytes(word));
            }
            _ => return None,
        }
        Some(())
    }

    fn features(&mut self, rows: usize, paired: bool) -> Option<Features> {
        let tag = self.byte()?;
        if tag > 3 {
            return None;
        }
        let (mut categorical_columns, mut categories) = (0, vec![]);
        if tag & 1 != 0 {
            categorical_columns = self.columns(rows)?;
            categories = vec![0; rows * categorical_columns];
            for column in 0..categorical_columns {
                self.read_u32_column(&mut categories, categorical_columns, column)?;
            }
        }
        let (mut float_columns, mut floats) = (0, vec![]);
        if tag & 2 != 0 {
            float_columns = self.columns(rows)?;
            floats = vec![0.0; rows * float_columns];
            for column in 0..float_columns {
                self.read_f32_column(&mut floats, float_columns, column)?;
            }
        }
        Some(Features::from_tables(
            categorical_columns,
            duplicate_rows(categories, categorical_columns, paired),
            float_columns,
            duplicate_rows(floats, float_columns, paired),
        ))
    }

    /// Reads the number of columns of a table with the given number of rows.
    fn columns(&mut self, rows: usize) -> Option<usize> {
        let columns = self.count()?;
        // Each column has a tag byte, so there cannot be more columns than bytes.
        let fits =
            columns > 0 && columns <= self.0.len() && rows.checked_mul(columns)? <= MAX_VALUES;
        fits.then_some(columns)
    }
}

/// Repeats every row for the reverse edge if the edges are paired.
pub(crate) fn duplicate_rows<T: Copy>(values: Vec<T>, columns: usize, paired: bool) -> Vec<T> {
    if !paired || columns == 0 {
        return values;
    }
    let mut doubled = Vec::with_capacity(2 * values.len());
    for row in values.chunks_exact(columns) {
        doubled.extend_from_slice(row);
        doubled.extend_from_slice(row);
    }
    doubled
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::graph::MISSING_CLASS;

    fn features(rows: usize) -> impl Strategy<Value = Features> {
        let categories = prop_oneof![0..4_u32, 0..300_u32, 0..100_000_u32, Just(7)];
        let floats = prop_oneof![
            (0..1000_u32).prop_map(|k| (f64::from(k) / 1e3) as f32),
            -1e6..1e6_f32,
            Just(-0.0_f32)
        ];
        let columns = prop_oneof![Just(0_usize), 1..4_usize];
        (columns.clone(), columns).prop_flat_map(move |(categorical_columns, float_columns)| {
            let tables = (
                vec(categories.clone(), rows * categorical_columns),
                vec(floats.clone(), rows * float_columns),
            );
            tables.prop_map(move |(categories, floats)| {
                Features::from_tables(categorical_columns, categories, float_columns, floats)
            })
        })
    }

    /// Generates valid graphs, with and without paired edges.
    pub(crate) fn graphs() -> impl Strategy<Value = Graph> {
        (1..400_usize, 0..12_usize, any::<bool>()).prop_flat_map(|(nodes, rows, paired)| {
            let end = 0..nodes as u32;
            let edge = (end.clone(), end).prop_map(|(u, v)| [u, v]);
            let targets = prop_oneof![
                vec(prop_oneof![0..5_u32, Just(MISSING_CLASS)], nodes)
                    .prop_map(Targets::NodeClasses),
                vec(prop_oneof![Just(0.0), Just(1.0), -5.0..5.0_f32], 0..4)
                    .prop_map(Targets::GraphValues),
                vec(any::<u32>(), 0..5).prop_map(Targets::SubTokens),
                vec(edge.clone(), 0..5).prop_map(Targets::Links),
            ];
            (vec(edge, rows), features(nodes), features(rows), targets).prop_map(
                move |(edges, node_features, stored, targets)| {
                    let edges = if paired {
                        edges.iter().flat_map(|&[u, v]| [[u, v], [v, u]]).collect()
                    } else {
                        edges
                    };
                    let ((columns, categories), (float_columns, floats)) =
                        (stored.categories(), stored.floats());
                    let edge_features = Features::from_tables(
                        columns,
                        duplicate_rows(categories.to_vec(), columns, paired),
                        float_columns,
                        duplicate_rows(floats.to_vec(), float_columns, paired),
                    );
                    Graph { num_nodes: nodes, edges, node_features, edge_features, targets }
                },
            )
        })
    }

    fn encoded(graph: &Graph) -> Vec<u8> {
        let mut bytes = vec![];
        encode(graph, &mut bytes).unwrap();
        bytes
    }

    proptest! {
        #[test]
        fn graph_round_trips(graph in graphs()) {
            let decoded = decode(&encoded(&graph)).unwrap();
            // Debug output shows the sign of zero, which equality ignores.
            prop_assert_eq!(format!("{decoded:?}"), format!("{graph:?}"));
        }

        #[test]
        fn modified_record_does_not_panic_and_truncated_record_is_rejected(
            graph in graphs(), position in any::<prop::sample::Index>(), value in any::<u8>(),
        ) {
            let mut bytes = encoded(&graph);
            let position = position.index(bytes.len());
            bytes[position] = value;
            let _ = decode(&bytes);
            prop_assert!(decode(&encoded(&graph)[..position]).is_none());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..100)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn molecule_takes_a_few_bytes_per_atom() {
        // A ring of six atoms with nine features, seven of them constant, and three constant bond
        // features: 9 bytes of counts, 2 × (1 + 6) edges, 5 + 2 × (1 + 6) + 7 × 5 nodes,
        // 5 + 3 × 5 bonds, 1 + 4 + 5 target.
        let ring: Vec<[u32; 2]> =
            (0..6).flat_map(|u| [[u, (u + 1) % 6], [(u + 1) % 6, u]]).collect();
        let atoms = (0..6).flat_map(|atom| [5 + atom % 2, atom % 3, 3, 5, 1, 0, 1, 1, 1]).collect();
        let graph = Graph {
            num_nodes: 6,
            edges: ring,
            node_features: Features::Categorical { columns: 9, values: atoms },
            edge_features: Features::Categorical { columns: 3, values: [3, 0, 1].repeat(12) },
            targets: Targets::GraphValues(vec![1.0]),
        };
        assert_eq!(encoded(&graph).len(), 9 + 14 + (5 + 14 + 35) + (5 + 15) + 10);
    }

    #[test]
    fn counts_beyond_the_input_are_rejected_before_allocation() {
        let graph = Graph {
            num_nodes: 2,
            edges: vec![[0, 1]],
            node_features: Features::None,
            edge_features: Features::None,
            targets: Targets::GraphValues(vec![3.0]),
        };
        let mut bytes = encoded(&graph);
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode(&bytes), None);
        let mut bytes = encoded(&graph);
        bytes[..4].copy_from_slice(&1_000_000_000_u32.to_le_bytes());
        assert_eq!(decode(&bytes), None);
    }
}
