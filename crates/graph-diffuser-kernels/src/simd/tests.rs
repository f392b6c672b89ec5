//! Tests of the vector operations on every instruction set of this processor.

use super::*;

/// Applies the function selected by `function` to `values`, vector by vector.
struct Apply<'a> {
    values: &'a [f32],
    function: usize,
}

impl Kernel for Apply<'_> {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f32> {
        let mut out = vec![0.0; self.values.len()];
        for (from, to) in self.values.chunks(S::LANES).zip(out.chunks_mut(S::LANES)) {
            // SAFETY: loads and stores are limited to the length of the chunk.
            unsafe {
                let a = simd.load_up_to(from.as_ptr(), from.len());
                let value = match self.function {
                    0 => simd.exp(a),
                    1 => simd.ln(simd.max(a, simd.splat(f32::MIN_POSITIVE))),
                    2 => simd.sigmoid(a),
                    3 => simd.splat(simd.reduce_sum(a)),
                    4 => simd.splat(simd.reduce_max(a)),
                    5 => simd.select_positive(a, simd.splat(1.0), simd.splat(-1.0)),
                    6 => simd.keep_first(a, 3, 9.0),
                    8 => simd.recip(a),
                    9 => simd.interleave(a, simd.sub(simd.zero(), a)),
                    10 => simd.add_pairs(a),
                    11 => simd.splat_pair(from.as_ptr()),
                    _ => simd.sqrt(simd.mul_add(a, a, simd.zero())),
                };
                simd.store_up_to(to.as_mut_ptr(), value, to.len());
            }
        }
        out
    }
}

fn assert_close_to_exact(function: usize, values: &[f32], exact: fn(f64) -> f64) {
    for isa in Isa::available() {
        let ours = isa.run(Apply { values, function });
        for (ours, value) in ours.iter().zip(values) {
            let exact = exact(f64::from(*value));
            let error = (f64::from(*ours) - exact).abs() / exact.abs().max(1e-30);
            assert!(error < 4e-7, "{isa:?}: f({value}) is {ours}, expected {exact}");
        }
    }
}

#[test]
fn elementary_functions_match_double_precision() {
    let values: Vec<f32> = (-8600..8700).map(|step| step as f32 * 0.01).collect();
    assert_close_to_exact(0, &values, f64::exp);
    assert_close_to_exact(2, &values, |value| 1.0 / (1.0 + (-value).exp()));
    assert_close_to_exact(7, &values, f64::abs);
    let positive: Vec<f32> = (1..4000).map(|step| 1.01_f32.powi(step - 2000) * 1.37).collect();
    assert_close_to_exact(8, &positive, |value| 1.0 / value);
    let away_from_one: Vec<f32> =
        positive.into_iter().filter(|value| (value - 1.0).abs() > 0.05).collect();
    assert_close_to_exact(1, &away_from_one, f64::ln);
}

struct Lanes;

impl Kernel for Lanes {
    type Output = usize;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        S::LANES
    }
}

#[test]
fn lane_operations_match_scalar_code() {
    let values: Vec<f32> = (0..16).map(|lane| lane as f32 - 3.0).collect();
    for isa in Isa::available() {
        let lanes = isa.run(Lanes);
        let run = |function| isa.run(Apply { values: &values, function });
        assert_eq!(run(3)[0], values[..lanes].iter().sum::<f32>());
        assert_eq!(run(4)[0], values[lanes - 1]);
        assert_eq!(run(5)[..5], [-1.0, -1.0, -1.0, -1.0, 1.0]);
        let mut kept = vec![9.0; lanes];
        kept[..3].copy_from_slice(&values[..3]);
        assert_eq!(run(6)[..lanes], kept);
        let alternating =
            |lane: usize| if lane.is_multiple_of(2) { values[lane / 2] } else { -values[lane / 2] };
        assert_eq!(run(9)[..lanes], (0..lanes).map(alternating).collect::<Vec<f32>>());
        let pairs: Vec<f32> = values.chunks(2).map(|pair| pair[0] + pair[1]).collect();
        assert_eq!(run(10)[..lanes / 2], pairs[..lanes / 2]);
        assert_eq!(run(11)[..4], [-3.0, -2.0, -3.0, -2.0]);
    }
}

struct Transpose<'a>(&'a [f32], [usize; 2], bool);

impl Kernel for Transpose<'_> {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f32> {
        let Self(from, [rows, columns], fill) = self;
        let (rows, columns) = (rows.min(S::LANES), columns.min(S::LANES));
        let filled = if fill { S::LANES } else { rows };
        let mut to = vec![9.0; 16 * 20];
        // SAFETY: `from` has 16 rows of 17 values, `to` has 16 rows of 20.
        unsafe { simd.transpose(from.as_ptr(), 17, [rows, columns], to.as_mut_ptr(), 20, filled) };
        for (column, to) in to.chunks(20).enumerate() {
            for (row, value) in to.iter().enumerate() {
                let expected = match (column < columns, row < rows, row < filled) {
                    (true, true, _) => from[row * 17 + column],
                    (true, false, true) => 0.0,
                    _ => 9.0,
                };
                assert_eq!(*value, expected, "row {row}, column {column} of [{rows}, {columns}]");
            }
        }
        to
    }
}

#[test]
fn transpose_moves_columns_to_rows() {
    let from: Vec<f32> = (0..16 * 17).map(|value| value as f32 + 1.0).collect();
    for isa in Isa::available() {
        for (rows, columns) in
            (0..=16).flat_map(|rows| (0..=16).map(move |columns| (rows, columns)))
        {
            for fill in [false, true] {
                isa.run(Transpose(&from, [rows, columns], fill));
            }
        }
    }
}

struct Mask(Dropout, u64);

impl Kernel for Mask {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f32> {
        let mut out = vec![0.0; S::LANES];
        // SAFETY: `out` has the length of a vector.
        unsafe { simd.store(out.as_mut_ptr(), simd.dropout_mask(self.0, self.1)) };
        out
    }
}

#[test]
fn dropout_masks_are_equal_on_every_instruction_set() {
    let dropout = Dropout { key: [0xffff_fff0, 77], threshold: 1 << 31, scale: 2.0 };
    for index in [0, 5, 1 << 20, (1 << 32) - 6, (1 << 32) - 1, 1 << 32, (7 << 32) + 3] {
        for isa in Isa::available() {
            let mask = isa.run(Mask(dropout, index));
            let expected: Vec<f32> =
                (0..mask.len() as u64).map(|lane| dropout.factor(index + lane)).collect();
            assert_eq!(mask, expected, "{isa:?}, index {index}");
        }
    }
}
