//! Regression trees on binned features.

use graph_diffuser_data::RandomStream;

/// Features of samples as small integers, most of which are zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BinnedFeatures {
    /// One vector of bins per column, `[rows]`.
    columns: Vec<Vec<u8>>,
    /// Column and bin of the bins of each row that are not zero.
    nonzero: Vec<Vec<(u32, u8)>>,
}

impl BinnedFeatures {
    /// Stores the bins of samples, `[rows][columns]`.
    pub(super) fn new(rows: impl Iterator<Item = Vec<u8>>, columns: usize) -> Self {
        let mut features = Self { columns: vec![Vec::new(); columns], nonzero: Vec::new() };
        for row in rows {
            let entries = (0..).zip(row.iter().copied()).filter(|(_, bin)| *bin != 0);
            features.nonzero.push(entries.collect());
            for (column, bin) in features.columns.iter_mut().zip(row) {
                column.push(bin);
            }
        }
        features
    }
}

/// Options of tree growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Growth {
    /// Number of columns that are considered for each split.
    pub columns_per_split: usize,
    /// Minimum number of samples of a leaf.
    pub min_leaf: usize,
}

/// Node of a tree; both children follow each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Node {
    /// Samples with a bin of at most `bin` continue at `left`, others at `left + 1`.
    Split { column: u32, bin: u8, left: u32 },
    /// Mean of the targets of the samples of a leaf: the index of its first value.
    Leaf { values: u32 },
}

/// Binary tree whose leaves hold means of the targets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tree {
    pub nodes: Vec<Node>,
    /// Values of all leaves, `outputs` each.
    pub values: Vec<f32>,
}

impl Tree {
    /// Grows a tree on a bootstrap sample of the rows.
    ///
    /// Splits minimize the squared error, summed over outputs.
    ///
    /// # Shapes
    /// - `targets`: `[rows, outputs]`, in row-major order
    pub(super) fn grow(
        features: &BinnedFeatures,
        targets: &[f64],
        outputs: usize,
        growth: Growth,
        stream: &mut RandomStream,
    ) -> Self {
        let mut rows: Vec<u32> =
            features.nonzero.iter().map(|_| stream.below(features.nonzero.len()) as u32).collect();
        let mut candidates = Candidates::new(features.columns.len());
        let mut tree = Self { nodes: vec![Node::Leaf { values: 0 }], values: Vec::new() };
        let mut histogram = Histogram::new(outputs);
        // Nodes to grow, with their range of `rows`.
        let mut open = vec![(0, 0, rows.len())];
        while let Some((node, start, end)) = open.pop() {
            let rows = &mut rows[start..end];
            let split =
                histogram.best_split(features, targets, rows, growth, &mut candidates, stream);
            let Some((column, bin)) = split else {
                tree.nodes[node] = Node::Leaf { values: tree.values.len() as u32 };
                tree.values.extend(histogram.means(targets, rows));
                continue;
            };
            let bins = &features.columns[column as usize];
            let middle = partition(rows, |row| bins[row as usize] <= bin);
            let left = tree.nodes.len();
            tree.nodes[node] = Node::Split { column, bin, left: left as u32 };
            tree.nodes.extend([Node::Leaf { values: 0 }; 2]);
            open.push((left + 1, start + middle, end));
            open.push((left, start, start + middle));
        }
        tree
    }

    /// Returns whether every path through the tree ends at the values of a leaf.
    pub(super) fn is_valid(&self, columns: usize, outputs: usize) -> bool {
        let is_valid = |(index, node): (usize, &Node)| match *node {
            // Children follow their parent, so that no path is endless.
            Node::Split { column, left, .. } => {
                let (column, left) = (column as usize, left as usize);
                column < columns && left > index && left + 1 < self.nodes.len()
            }
            Node::Leaf { values } => values as usize + outputs <= self.values.len(),
        };
        !self.nodes.is_empty() && self.nodes.iter().enumerate().all(is_valid)
    }

    /// Returns the values of the leaf that a sample reaches.
    pub(super) fn predict(&self, outputs: usize, bin_of: impl Fn(u32) -> u8) -> &[f32] {
        let mut node = 0;
        loop {
            match self.nodes[node] {
                Node::Split { column, bin, left } => {
                    node = left as usize + usize::from(bin_of(column) > bin);
                }
                Node::Leaf { values } => return &self.values[values as usize..][..outputs],
            }
        }
    }
}

/// Reorders rows so that those that satisfy `first` come first, and returns their number.
fn partition(rows: &mut [u32], first: impl Fn(u32) -> bool) -> usize {
    let mut count = 0;
    for index in 0..rows.len() {
        if first(rows[index]) {
            rows.swap(count, index);
            count += 1;
        }
    }
    count
}

/// Columns that are not constant in the samples of a node, found without visiting zeros.
struct Candidates {
    /// Columns with different bins, in the order of their first occurrence.
    columns: Vec<u32>,
    /// Number of nonzero bins of each column, the first of them, and whether others differ; 0 and
    /// `false` between calls.
    seen: Vec<(u32, u8, bool)>,
}

impl Candidates {
    fn new(columns: usize) -> Self {
        Self { columns: Vec::new(), seen: vec![(0, 0, false); columns] }
    }

    fn find(&mut self, features: &BinnedFeatures, rows: &[u32]) {
        self.columns.clear();
        for &row in rows {
            for &(column, bin) in &features.nonzero[row as usize] {
                let (count, first, differs) = &mut self.seen[column as usize];
                if *count == 0 {
                    self.columns.push(column);
                    *first = bin;
                }
                *count += 1;
                *differs |= *first != bin;
            }
        }
        let seen = &mut self.seen;
        self.columns.retain(|&column| {
            let (count, _, differs) = std::mem::take(&mut seen[column as usize]);
            differs || (count as usize) < rows.len()
        });
    }
}

/// Number and sum of the targets by bin.
struct Histogram {
    outputs: usize,
    counts: [u32; 256],
    sums: Vec<f64>,
    total: Vec<f64>,
    left: Vec<f64>,
}

impl Histogram {
    fn new(outputs: usize) -> Self {
        Self {
            outputs,
            counts: [0; 256],
            sums: vec![0.0; 256 * outputs],
            total: vec![0.0; outputs],
            left: vec![0.0; outputs],
        }
    }

    fn means(&self, targets: &[f64], rows: &[u32]) -> Vec<f32> {
        let mut sums = vec![0.0; self.outputs];
        for &row in rows {
            let targets = &targets[row as usize * self.outputs..][..self.outputs];
            sums.iter_mut().zip(targets).for_each(|(sum, target)| *sum += target);
        }
        sums.into_iter().map(|sum| (sum / rows.len() as f64) as f32).collect()
    }

    /// Returns the column and the last bin of the left child of the best split, if there is one.
    fn best_split(
        &mut self,
        features: &BinnedFeatures,
        targets: &[f64],
        rows: &[u32],
        growth: Growth,
        candidates: &mut Candidates,
        stream: &mut RandomStream,
    ) -> Option<(u32, u8)> {
        if rows.len() < 2 * growth.min_leaf {
            return None;
        }
        let outputs = self.outputs;
        let first = &targets[rows[0] as usize * outputs..][..outputs];
        if rows.iter().all(|&row| &targets[row as usize * outputs..][..outputs] == first) {
            return None;
        }
        self.total.fill(0.0);
        for &row in rows {
            let targets = &targets[row as usize * outputs..][..outputs];
            self.total.iter_mut().zip(targets).for_each(|(sum, target)| *sum += target);
        }
        let squared = |sums: &[f64]| sums.iter().map(|sum| sum * sum).sum::<f64>();
        let before = squared(&self.total) / rows.len() as f64;
        let (mut best, mut best_score) = (None, before * (1.0 + 1e-12));
        candidates.find(features, rows);
        let columns = &mut candidates.columns;
        for index in 0..growth.columns_per_split.min(columns.len()) {
            let drawn = index + stream.below(columns.len() - index);
            columns.swap(index, drawn);
            let column = columns[index];
            let bins = &features.columns[column as usize];
            let (mut min, mut max) = (u8::MAX, 0);
            for &row in rows {
                let bin = bins[row as usize];
                (min, max) = (min.min(bin), max.max(bin));
            }
            let range = usize::from(min)..=usize::from(max);
            self.counts[range].fill(0);
            self.sums[usize::from(min) * outputs..(usize::from(max) + 1) * outputs].fill(0.0);
            for &row in rows {
                let bin = usize::from(bins[row as usize]);
                self.counts[bin] += 1;
                let targets = &targets[row as usize * outputs..][..outputs];
                let sums = &mut self.sums[bin * outputs..][..outputs];
                sums.iter_mut().zip(targets).for_each(|(sum, target)| *sum += target);
            }
            let mut left_count = 0;
            self.left.fill(0.0);
            for bin in min..max {
                let sums = &self.sums[usize::from(bin) * outputs..][..outputs];
                left_count += self.counts[usize::from(bin)] as usize;
                self.left.iter_mut().zip(sums).for_each(|(left, sum)| *left += sum);
                let right_count = rows.len() - left_count;
                if self.counts[usize::from(bin)] == 0
                    || left_count < growth.min_leaf
                    || right_count < growth.min_leaf
                {
                    continue;
                }
                let right = self.total.iter().zip(&self.left);
                let right = right.map(|(total, left)| (total - left) * (total - left)).sum::<f64>();
                let score = squared(&self.left) / left_count as f64 + right / right_count as f64;
                if score > best_score {
                    (best, best_score) = (Some((column, bin)), score);
                }
            }
        }
        best
    }
}
