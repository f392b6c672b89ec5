//! Attention against the equations as they are printed, in double precision.

use super::*;
use crate::hash32;

/// Sizes of graphs with the starts that [`Graphs`] points to.
struct Batch {
    sizes: Vec<usize>,
    node_starts: Vec<usize>,
    pair_starts: Vec<usize>,
}

impl Batch {
    fn new(sizes: &[usize]) -> Self {
        let starts = |count: fn(usize) -> usize| {
            let mut starts = vec![0];
            starts.extend(sizes.iter().scan(0, |end, &n| {
                *end += count(n);
                Some(*end)
            }));
            starts
        };
        Self { sizes: sizes.to_vec(), node_starts: starts(|n| n), pair_starts: starts(|n| n * n) }
    }

    fn graphs(&self) -> Graphs<'_> {
        Graphs {
            sizes: &self.sizes,
            node_starts: &self.node_starts,
            pair_starts: &self.pair_starts,
        }
    }
}

/// Numbers spread evenly over `±size`.
fn draw(stream: u32, count: usize, size: f32) -> Vec<f32> {
    let draw = |index| hash32(hash32(index as u32) ^ stream) as f32 / 2_f32.powi(31) - 1.0;
    (0..count).map(|index| size * draw(index)).collect()
}

/// The operands of one call, and what it should give.
struct Case {
    batch: Batch,
    rule: Rule,
    qkv: Vec<f32>,
    position: Option<Blocks>,
    d_out: Vec<f32>,
}

/// What a [`Position`] points to.
struct Blocks {
    scores: Vec<f32>,
    starts: Vec<usize>,
    cls: Option<Vec<f32>>,
}

impl Blocks {
    /// Drawn for graphs of these sizes; those with one name in `blocks` share a block.
    fn new(sizes: &[usize], blocks: &[usize], cls: bool, heads: usize, size: f32) -> Self {
        let (mut seen, mut end) = (std::collections::BTreeMap::new(), 0);
        let starts = sizes.iter().zip(blocks).map(|(n, block)| {
            *seen.entry(block).or_insert_with(|| {
                let start = end;
                end += n.saturating_sub(usize::from(cls)).pow(2);
                start
            })
        });
        let starts = starts.collect();
        Self { scores: draw(2, heads * end, size), starts, cls: cls.then(|| draw(4, heads, size)) }
    }

    fn view(&self) -> Position<'_> {
        Position { scores: &self.scores, starts: &self.starts, cls: self.cls.as_deref() }
    }
}

/// What the two passes give.
#[derive(Debug, PartialEq)]
struct Given<T> {
    out: Vec<T>,
    d_qkv: Vec<T>,
    d_scores: Vec<T>,
    d_cls: Vec<T>,
}

impl Case {
    fn new(sizes: &[usize], rule: Rule, directed: bool, size: f32) -> Self {
        let blocks: Vec<usize> = (0..sizes.len()).collect();
        let position = directed.then(|| Blocks::new(sizes, &blocks, false, rule.heads, size));
        Self::with_position(sizes, rule, position)
    }

    fn with_position(sizes: &[usize], rule: Rule, position: Option<Blocks>) -> Self {
        let batch = Batch::new(sizes);
        let r = batch.graphs().nodes();
        let qkv = draw(1, r * rule.columns(), 1.5);
        Self { qkv, position, d_out: draw(3, r * rule.width, 1.0), rule, batch }
    }

    fn run(&self, isa: Isa) -> Given<f32> {
        let (graphs, rule) = (self.batch.graphs(), &self.rule);
        let position = self.position.as_ref().map(Blocks::view);
        let Attended { out, statistics } = forward(isa, graphs, rule, &self.qkv, position);
        let gradients =
            backward(isa, graphs, rule, &self.qkv, position, (&out, &statistics), &self.d_out);
        Given { out, d_qkv: gradients.qkv, d_scores: gradients.scores, d_cls: gradients.cls }
    }

    /// The equations as they are printed, pair after pair, with the gradients by the chain rule.
    fn naive(&self) -> Given<f64> {
        let (graphs, rule) = (self.batch.graphs(), &self.rule);
        let (d, columns, p) = (rule.width, rule.columns(), graphs.pairs());
        let scores = self.position.as_ref().map_or(&[][..], |position| &position.scores);
        let cls = self.position.as_ref().and_then(|position| position.cls.as_deref());
        let d_head = d / rule.heads;
        let scale = 1.0 / (d_head as f64).sqrt();
        let bound = rule.clamp.map_or(f64::INFINITY, f64::from);
        let qkv = |row: usize, column: usize| f64::from(self.qkv[row * columns + column]);
        let mut given = Given {
            out: vec![0.0; self.d_out.len()],
            d_qkv: vec![0.0; self.qkv.len()],
            d_scores: vec![0.0; scores.len()],
            d_cls: vec![0.0; cls.map_or(0, <[f32]>::len)],
        };
        for (graph, &n) in graphs.sizes.iter().enumerate() {
            let start = graphs.node_starts[graph];
            for head in 0..rule.heads {
                let (query, key, value) =
                    (head * d_head, d + head * d_head, columns - d + head * d_head);
                for i in 0..n {
                    let row = start + i;
                    let first_pair = head * p + graphs.pair_starts[graph] + i * n;
                    let content: Vec<f64> = (0..n)
                        .map(|j| {
                            if !rule.content {
                                return 0.0;
                            }
                            let products =
                                (0..d_head).map(|c| qkv(row, query + c) * qkv(start + j, key + c));
                            products.sum::<f64>() * scale
                        })
                        .collect();
                    // Where the score of a pair is, if it is not that of the CLS node.
                    let place = |j: usize| {
                        let scored = n - usize::from(cls.is_some());
                        let start =
                            self.position.as_ref().map_or(0, |position| position.starts[graph]);
                        let at = head * (scores.len() / rule.heads) + start + i * scored + j;
                        (i < scored && j < scored).then_some(at)
                    };
                    let position: Vec<f64> = (0..n)
                        .map(|j| match (&self.position, place(j)) {
                            (None, _) => 0.0,
                            (Some(_), Some(place)) => f64::from(scores[place]),
                            (Some(_), None) => f64::from(cls.expect("only it has no place")[head]),
                        })
                        .collect();
                    let scores: Vec<f64> = (0..n)
                        .map(|j| {
                            let (content, at) =
                                (content[j].clamp(-bound, bound), position[j].clamp(-bound, bound));
                            match rule.combine {
                                Combine::Gate if self.position.is_some() => {
                                    content + at.min(0.0) - (-at.abs()).exp().ln_1p()
                                }
                                _ => content + at,
                            }
                        })
                        .collect();
                    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                    let weights: Vec<f64> =
                        scores.iter().map(|score| (score - largest).exp() / sum).collect();
                    let mask = |j: usize| {
                        rule.dropout.map_or(1.0, |dropout| {
                            f64::from(dropout.factor((first_pair + j) as u64))
                        })
                    };
                    let d_out = |c: usize| f64::from(self.d_out[row * d + head * d_head + c]);
                    let mut d_weights = vec![0.0; n];
                    for j in 0..n {
                        for c in 0..d_head {
                            let weight = weights[j] * mask(j);
                            given.out[row * d + head * d_head + c] +=
                                weight * qkv(start + j, value + c);
                            given.d_qkv[(start + j) * columns + value + c] += weight * d_out(c);
                            d_weights[j] += d_out(c) * qkv(start + j, value + c) * mask(j);
                        }
                    }
                    let shared: f64 = (0..n).map(|j| weights[j] * d_weights[j]).sum();
                    for j in 0..n {
                        let d_score = weights[j] * (d_weights[j] - shared);
                        if self.position.is_some() && position[j].abs() <= bound {
                            let slope = match rule.combine {
                                Combine::Gate => 1.0 / (1.0 + position[j].exp()),
                                Combine::Add => 1.0,
                            };
                            match place(j) {
                                Some(place) => given.d_scores[place] += d_score * slope,
                                None => given.d_cls[head] += d_score * slope,
                            }
                        }
                        if rule.content && content[j].abs() <= bound {
                            for c in 0..d_head {
                                given.d_qkv[row * columns + query + c] +=
                                    d_score * scale * qkv(start + j, key + c);
                                given.d_qkv[(start + j) * columns + key + c] +=
                                    d_score * scale * qkv(row, query + c);
                            }
                        }
                    }
                }
            }
        }
        given
    }

    fn check(&self) {
        self.check_to(3e-6);
    }

    fn check_to(&self, tolerance: f64) {
        let expected = self.naive();
        for isa in Isa::available() {
            let ours = self.run(isa);
            let name = format!("{isa:?}, {:?}, {:?}", self.rule, self.batch.sizes);
            assert_close(&ours.out, &expected.out, tolerance, &format!("out, {name}"));
            assert_close(&ours.d_qkv, &expected.d_qkv, tolerance, &format!("d_qkv, {name}"));
            assert_close(
                &ours.d_scores,
                &expected.d_scores,
                tolerance,
                &format!("d_scores, {name}"),
            );
            assert_close(&ours.d_cls, &expected.d_cls, tolerance, &format!("d_cls, {name}"));
        }
    }
}

fn assert_close(ours: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(ours.len(), expected.len());
    let size = expected.iter().fold(0.0_f64, |size, value| size.max(value.abs()));
    for (index, (ours, expected)) in ours.iter().zip(expected).enumerate() {
        let error = (f64::from(*ours) - expected).abs();
        assert!(error <= tolerance * size, "{ours} is not {expected} at {index}: {what}");
    }
}

fn rule(heads: usize, d_head: usize) -> Rule {
    let combine = Combine::Gate;
    Rule { heads, width: heads * d_head, content: true, combine, clamp: None, dropout: None }
}

fn dropout() -> Dropout {
    Dropout { key: [0xffff_ff00, 5], threshold: 3 << 29, kept: 1.6 }
}

/// Content with and without position, and position alone, each combined in each way.
fn modes() -> impl Iterator<Item = (bool, bool, Combine)> {
    [(true, true), (true, false), (false, true)].into_iter().flat_map(|(content, directed)| {
        [Combine::Gate, Combine::Add].map(|combine| (content, directed, combine))
    })
}

const RAGGED: [usize; 11] = [3, 1, 0, 15, 2, 16, 17, 0, 33, 8, 9];

#[test]
fn two_nodes_by_hand() {
    // As in the reference: one head of width one, q = (ln 2, 0), k = (1, 0), v = (10, 20), so
    // exp(content) is (2, 1) in the first row and (1, 1) in the second. A gate of 1/4 on the first
    // pair and 1/2 on the others makes both weights of the first row equal.
    let (two, three) = (2_f32.ln(), 3_f32.ln());
    let check = |rule: Rule, qkv: &[f32], position: Option<[f32; 4]>, expected: f32| {
        let batch = Batch::new(&[2]);
        for isa in Isa::available() {
            let position =
                position.as_ref().map(|scores| Position { scores, starts: &[0], cls: None });
            let Attended { out, .. } = forward(isa, batch.graphs(), &rule, qkv, position);
            assert!(
                (out[0] - expected).abs() < 1e-5 && (out[1] - 15.0).abs() < 1e-5,
                "{out:?}, not {expected}"
            );
        }
    };
    let qkv = [two, 1.0, 10.0, 0.0, 0.0, 20.0];
    let (gate, add) = (rule(1, 1), Rule { combine: Combine::Add, ..rule(1, 1) });
    check(gate, &qkv, Some([-three, 0.0, 0.0, 0.0]), 15.0);
    check(gate, &qkv, None, (2.0 * 10.0 + 20.0) / 3.0);
    let position = [three, 0.0, 0.0, 0.0];
    check(add, &qkv, Some(position), (6.0 * 10.0 + 20.0) / 7.0);
    // A clamp at ln 2 lets position only double, and leaves the content as it is.
    check(Rule { clamp: Some(two), ..add }, &qkv, Some(position), (4.0 * 10.0 + 20.0) / 5.0);
    // Values alone: exp(ln 3) triples, σ(ln 3) = 3/4 is one and a half times σ(0).
    let values = [10.0, 20.0];
    check(Rule { content: false, ..add }, &values, Some(position), (3.0 * 10.0 + 20.0) / 4.0);
    check(Rule { content: false, ..gate }, &values, Some(position), (1.5 * 10.0 + 20.0) / 2.5);
}

#[test]
fn every_mode_agrees_with_the_equations() {
    for (content, directed, combine) in modes() {
        for clamp in [None, Some(0.7)] {
            for dropout in [None, Some(dropout())] {
                let rule = Rule { content, combine, clamp, dropout, ..rule(3, 7) };
                Case::new(&RAGGED, rule, directed, 4.0).check();
            }
        }
    }
}

#[test]
fn every_head_count_and_width_agrees_with_the_equations() {
    for heads in 1..=16 {
        Case::new(&RAGGED[..8], Rule { dropout: Some(dropout()), ..rule(heads, 3) }, true, 3.0)
            .check();
    }
    for d_head in (1..=33).chain([47, 48, 63, 64]) {
        Case::new(&[5, 17, 1, 9], Rule { clamp: Some(2.0), ..rule(2, d_head) }, true, 3.0).check();
    }
}

#[test]
fn large_graphs_agree_with_the_equations() {
    Case::new(&[130, 1, 300], rule(1, 28), true, 3.0).check();
    let rule =
        Rule { combine: Combine::Add, clamp: Some(1.5), dropout: Some(dropout()), ..rule(2, 5) };
    Case::new(&[130, 0, 300, 2], rule, true, 3.0).check();
}

#[test]
fn gates_that_all_but_close_leave_the_equations_true() {
    // Position scores down to -200: gates vanish in single precision, in some rows all of them.
    for content in [true, false] {
        for dropout in [None, Some(dropout())] {
            let mut case = Case::new(&RAGGED, Rule { content, dropout, ..rule(2, 5) }, true, 50.0);
            let position = case.position.as_mut().expect("it has position scores");
            for (index, score) in position.scores.iter_mut().enumerate() {
                *score -= if index % 7 == 3 { 20.0 } else { 150.0 };
            }
            // A logarithm of -100 is rounded at 4e-6.
            case.check_to(2e-5);
        }
    }
}

#[test]
fn content_of_any_size_agrees_with_the_equations() {
    // Below and above what is exponentiated as it stands; some units of the middle size are on either side.
    for size in [1.0, 3.5, 8.0] {
        for (content, directed, combine) in modes() {
            let rule = Rule { content, combine, dropout: Some(dropout()), ..rule(2, 5) };
            let mut case = Case::new(&RAGGED, rule, directed, 4.0);
            let columns = rule.columns();
            for row in case.qkv.chunks_mut(columns) {
                row[..columns - rule.width].iter_mut().for_each(|value| *value *= size);
            }
            // Content scores up to 200 are rounded at 1e-5.
            case.check_to(4e-5);
        }
    }
}

#[test]
fn the_largest_content_may_have_the_smallest_gate() {
    // One head of width one: content of the first row is (100, 0), its gates e^-120 and 1/2. In
    // logarithms (-20, -0.69): a weight of 4e-9 for the first.
    let batch = Batch::new(&[2]);
    let qkv = [10.0, 10.0, 1e6, 0.0, 0.0, 2.0];
    let position = Position { scores: &[-120.0, 0.0, 0.0, 0.0], starts: &[0], cls: None };
    let weight = 1.0 / (1.0 + 0.5 * 20_f32.exp());
    for isa in Isa::available() {
        let Attended { out, statistics } =
            forward(isa, batch.graphs(), &rule(1, 1), &qkv, Some(position));
        assert!((out[0] - (2.0 + 1e6 * weight)).abs() < 1e-5, "{isa:?} gives {}", out[0]);
        assert!(statistics[1] < 0.0 && statistics[3] > 0.0, "only the first row needs logarithms");
    }
}

#[test]
fn weights_of_a_row_sum_to_one_whatever_the_scores() {
    // Gathering ones gives ones, and moving all values alike moves no score.
    for (content, directed, combine) in modes() {
        for size in [1.0, 30.0, 100.0, 1e4] {
            for shift in [0.0, -size] {
                let rule = Rule { content, combine, ..rule(2, 3) };
                let mut case = Case::new(&RAGGED, rule, directed, size);
                for row in case.qkv.chunks_mut(rule.columns()) {
                    let values = row.len() - rule.width;
                    // Queries and keys of √size, so that content scores reach `size` too.
                    row[..values].iter_mut().for_each(|value| *value *= size.sqrt());
                    row[values..].fill(1.0);
                }
                if let Some(position) = &mut case.position {
                    for score in &mut position.scores {
                        *score += shift;
                    }
                }
                for isa in Isa::available() {
                    let Given { out, d_qkv, d_scores, .. } = case.run(isa);
                    assert!(
                        out.iter().all(|one| (one - 1.0).abs() < 2e-6),
                        "{isa:?}: scores of {size} lose weight"
                    );
                    let small = 2e-5 * size.sqrt();
                    assert!(
                        d_scores.iter().all(|slope| slope.abs() < small),
                        "{isa:?}: scores of {size}"
                    );
                    for row in d_qkv.chunks(rule.columns()) {
                        let (scores, values) = row.split_at(row.len() - rule.width);
                        assert!(
                            scores.iter().all(|slope| slope.abs() < small),
                            "{isa:?}: scores of {size}"
                        );
                        assert!(
                            values.iter().all(|slope| slope.is_finite()),
                            "{isa:?}: scores of {size}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn scores_of_ten_thousand_choose_the_largest() {
    let batch = Batch::new(&[2]);
    let qkv = [1e4, 1e4, 1.0, -1e4, -1e4, 2.0];
    let position = |scores| Some(Position { scores, starts: &[0], cls: None });
    for combine in [Combine::Gate, Combine::Add] {
        for isa in Isa::available() {
            let rule = Rule { combine, ..rule(1, 1) };
            let position = position(&[-1e4, 1e4, 1e4, -1e4]);
            let Attended { out, .. } = forward(isa, batch.graphs(), &rule, &qkv, position);
            assert_eq!(out, [1.0, 2.0], "{isa:?}");
        }
    }
    // With values alone the least closed gate has all the weight.
    for isa in Isa::available() {
        let rule = Rule { content: false, ..rule(1, 1) };
        let position = position(&[-1e4, -9e3, -1e4, -1e4]);
        let Attended { out, .. } = forward(isa, batch.graphs(), &rule, &[1.0, 2.0], position);
        assert_eq!(out, [2.0, 1.5], "{isa:?}");
    }
}

#[test]
fn results_are_the_same_to_the_bit_on_any_number_of_threads() {
    let rule = Rule { dropout: Some(dropout()), ..rule(4, 5) };
    let sizes: Vec<usize> = (0..60).map(|graph| graph * 37 % 61).chain([150]).collect();
    on_any_number_of_threads(&Case::new(&sizes, rule, true, 3.0));
}

fn on_any_number_of_threads(case: &Case) {
    for isa in Isa::available() {
        let mut given = [1, 2, 5].map(|threads| {
            let pool = crate::Threads::new(threads);
            pool.install(|| case.run(isa))
        });
        let [first, others @ ..] = &mut given;
        assert!(others.iter().all(|other| other == first), "{isa:?}");
    }
}

#[test]
fn a_graph_is_the_same_alone_or_in_a_batch() {
    let rule = rule(2, 6);
    let whole = Case::new(&RAGGED, rule, true, 3.0);
    let graphs = whole.batch.graphs();
    for isa in Isa::available() {
        let in_batch = whole.run(isa);
        for (graph, &n) in graphs.sizes.iter().enumerate() {
            let nodes = graphs.node_starts[graph]..graphs.node_starts[graph + 1];
            let of_nodes = |values: &[f32], columns: usize| {
                values[nodes.start * columns..nodes.end * columns].to_vec()
            };
            let of_pairs = |values: &[f32]| -> Vec<f32> {
                let of_head = |head: &[f32]| {
                    head[graphs.pair_starts[graph]..graphs.pair_starts[graph + 1]].to_vec()
                };
                values.chunks(graphs.pairs()).flat_map(of_head).collect()
            };
            let alone = Case {
                batch: Batch::new(&[n]),
                rule,
                qkv: of_nodes(&whole.qkv, rule.columns()),
                position: whole.position.as_ref().map(|position| Blocks {
                    scores: of_pairs(&position.scores),
                    starts: vec![0],
                    cls: None,
                }),
                d_out: of_nodes(&whole.d_out, rule.width),
            };
            let expected = Given {
                out: of_nodes(&in_batch.out, rule.width),
                d_qkv: of_nodes(&in_batch.d_qkv, rule.columns()),
                d_scores: of_pairs(&in_batch.d_scores),
                d_cls: vec![],
            };
            assert_eq!(alone.run(isa), expected, "{isa:?}, graph {graph}");
        }
    }
}

#[test]
fn cls_scores_and_shared_blocks_agree_with_the_equations() {
    // Equal sizes share blocks, also with other graphs between them; a CLS node alone has no block.
    let sizes = [4, 17, 4, 1, 18, 17, 16, 4, 1, 34, 17];
    let blocks = [0, 1, 0, 2, 3, 1, 4, 0, 2, 5, 1];
    for cls in [false, true] {
        for (content, combine) in
            [(true, Combine::Gate), (true, Combine::Add), (false, Combine::Gate)]
        {
            for clamp in [None, Some(0.7)] {
                for dropout in [None, Some(dropout())] {
                    let rule = Rule { content, combine, clamp, dropout, ..rule(3, 5) };
                    let scores = Blocks::new(&sizes, &blocks, cls, 3, 4.0);
                    Case::with_position(&sizes, rule, Some(scores)).check();
                }
            }
        }
    }
}

#[test]
fn graphs_of_every_size_agree_with_the_equations() {
    let rule = Rule { dropout: Some(dropout()), ..rule(1, 3) };
    for cls in [false, true] {
        let sizes: Vec<usize> = (usize::from(cls)..70).chain([127, 128, 129, 300]).collect();
        let blocks: Vec<usize> = (0..sizes.len()).collect();
        let scores = Blocks::new(&sizes, &blocks, cls, 1, 3.0);
        Case::with_position(&sizes, rule, Some(scores)).check();
    }
    Case::new(&[], rule, true, 1.0).check();
    Case::new(&[0, 0], rule, true, 1.0).check();
}

#[test]
fn shared_blocks_and_cls_scores_are_the_same_to_the_bit_on_any_number_of_threads() {
    let sizes: Vec<usize> = (0..60).map(|graph| 1 + graph % 7 * 11).collect();
    let blocks: Vec<usize> = (0..60).map(|graph| graph % 7).collect();
    let case =
        Case::with_position(&sizes, rule(2, 5), Some(Blocks::new(&sizes, &blocks, true, 2, 3.0)));
    on_any_number_of_threads(&case);
}

#[test]
#[should_panic(expected = "every score is read")]
fn a_score_that_no_graph_reads_is_refused() {
    let mut case = Case::new(&[2, 3], rule(1, 1), true, 1.0);
    case.position.as_mut().expect("it has position scores").scores.push(0.0);
    case.run(Isa::best());
}

#[test]
#[should_panic(expected = "blocks of scores follow one another")]
fn blocks_that_overlap_are_refused() {
    let mut case = Case::new(&[2, 3], rule(1, 1), true, 1.0);
    case.position.as_mut().expect("it has position scores").starts = vec![0, 2];
    case.run(Isa::best());
}
