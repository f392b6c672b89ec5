//! Parsing of a cell to a number.

use super::NumericCsvError;

/// Parses a non-negative integer.
///
/// # Errors
/// Returns an error that describes the content of the cell.
pub(crate) fn parse_u32(cell: &[u8]) -> Result<u32, NumericCsvError> {
    let mut value = 0_u64;
    for &byte in cell {
        if !byte.is_ascii_digit() {
            return Err(not_an_integer(cell));
        }
        value = value * 10 + u64::from(byte - b'0');
        if value > u64::from(u32::MAX) {
            return Err(if cell.iter().all(u8::is_ascii_digit) {
                NumericCsvError::TooLarge { cell: shown(cell) }
            } else {
                not_an_integer(cell)
            });
        }
    }
    if cell.is_empty() { Err(NumericCsvError::MissingValue) } else { Ok(value as u32) }
}

fn not_an_integer(cell: &[u8]) -> NumericCsvError {
    match parse_f32(cell) {
        Ok(value) if value < 0.0 => NumericCsvError::Negative { cell: shown(cell) },
        Ok(_) => NumericCsvError::NotAnInteger { cell: shown(cell) },
        Err(error) => error,
    }
}

/// Parses a finite float.
///
/// # Errors
/// Returns an error that describes the content of the cell.
pub(crate) fn parse_f32(cell: &[u8]) -> Result<f32, NumericCsvError> {
    match short_decimal(cell).or_else(|| std::str::from_utf8(cell).ok()?.parse().ok()) {
        // Parsed as `f64` and then rounded to `f32`, as in the reference loaders, for equal values.
        Some(value) if (value as f32).is_finite() => Ok(value as f32),
        Some(_) => Err(NumericCsvError::NotFinite { cell: shown(cell) }),
        None if cell.is_empty() => Err(NumericCsvError::MissingValue),
        None if std::str::from_utf8(cell).is_err() => Err(NumericCsvError::NotUtf8),
        None => Err(NumericCsvError::NotANumber { cell: shown(cell) }),
    }
}

/// Parses a finite float; an empty cell, `""` and `nan` in any case are NaN.
///
/// # Errors
/// Returns an error that describes the content of the cell.
pub(crate) fn parse_f32_or_nan(cell: &[u8]) -> Result<f32, NumericCsvError> {
    if cell.is_empty() || cell == b"\"\"" || cell.eq_ignore_ascii_case(b"nan") {
        Ok(f32::NAN)
    } else {
        parse_f32(cell)
    }
}

/// Parses decimals of up to 15 digits without exponent, with one correctly rounded division.
fn short_decimal(cell: &[u8]) -> Option<f64> {
    let (negative, digits) = match cell.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, cell),
    };
    // 15 digits stay below 2⁵³, and powers of ten up to 10²² are exact.
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let (mut mantissa, mut seen, mut point) = (0_u64, 0_usize, None);
    for &byte in digits {
        match byte {
            b'0'..=b'9' => {
                mantissa = mantissa * 10 + u64::from(byte - b'0');
                seen += 1;
            }
            b'.' if point.is_none() => point = Some(seen),
            _ => return None,
        }
    }
    if seen == 0 || seen > 15 {
        return None;
    }
    let decimals = seen - point.unwrap_or(seen);
    let value = mantissa as f64 / POWERS_OF_TEN[decimals];
    Some(if negative { -value } else { value })
}

const POWERS_OF_TEN: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Returns the text of a cell for messages, truncated to 24 characters.
fn shown(cell: &[u8]) -> String {
    let text = String::from_utf8_lossy(&cell[..cell.len().min(64)]);
    let mut short: String = text.chars().take(24).collect();
    if short.len() < cell.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn floats_equal_those_of_the_standard_library() {
        for text in [
            "0.001",
            "-2.5",
            "1.7750730514526367",
            "3",
            ".5",
            "5.",
            "1e-3",
            "-0",
            "123456789.123456",
            "1e-50",
        ] {
            assert_eq!(
                parse_f32(text.as_bytes()).unwrap(),
                text.parse::<f64>().unwrap() as f32,
                "{text}"
            );
        }
        for text in ["1e39", "nan", "-inf"] {
            assert!(
                matches!(parse_f32(text.as_bytes()), Err(NumericCsvError::NotFinite { .. })),
                "{text}"
            );
        }
        for text in ["", ".", "-", "1..2", "1-2", "0x1"] {
            assert!(parse_f32(text.as_bytes()).is_err(), "{text}");
        }
        assert!(
            parse_f32_or_nan(b"").unwrap().is_nan() && parse_f32_or_nan(b"NaN").unwrap().is_nan()
        );
    }

    proptest! {
        #[test]
        fn any_decimal_is_rounded_correctly(
            mantissa in -999_999_999_999_i64..1_000_000_000_000, decimals in 0_usize..12,
        ) {
            let text = format!("{:.decimals$}", mantissa as f64 / 1e6);
            prop_assert_eq!(parse_f32(text.as_bytes()).unwrap(), text.parse::<f64>().unwrap() as f32);
        }
    }
}
