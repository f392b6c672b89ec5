//! Interpretation of table cells: numbers, decimal commas, missing values, dates and identifiers.

/// Returns `true` for an empty cell or a common marker of a missing value.
pub(super) fn is_missing(cell: &str) -> bool {
    cell.is_empty()
        || ["nan", "na", "n/a", "#n/a", "<na>", "null", "none", "-"]
            .iter()
            .any(|word| word.eq_ignore_ascii_case(cell))
}

/// Parses a number with a decimal point.
pub(super) fn parse_number(cell: &str) -> Option<f64> {
    cell.parse().ok()
}

/// Returns `true` for a number with a decimal comma, such as `-1,5` or `1.234,5`.
pub(crate) fn has_decimal_comma(cell: &str) -> bool {
    cell.contains(',') && parse_decimal_comma(cell).is_some()
}

/// Parses an integer or a number with a decimal comma and optional points between thousands.
pub(super) fn parse_decimal_comma(cell: &str) -> Option<f64> {
    let (integer, fraction) = cell.split_once(',').unwrap_or((cell, "0"));
    let groups: Vec<&str> = integer.split('.').collect();
    let are_thousands = groups[1..].iter().all(|group| group.len() == 3);
    // As in `.5`, the integer part may be left out.
    let has_digits = integer.ends_with(|last: char| last.is_ascii_digit())
        || cell.contains(',') && matches!(integer, "" | "-" | "+");
    (are_thousands && has_digits && fraction.starts_with(|first: char| first.is_ascii_digit()))
        .then(|| format!("{}.{fraction}", groups.concat()).parse().ok())?
}

/// Returns `true` if the comma of a number may separate thousands, as in `1,234`.
pub(super) fn may_be_thousands(cell: &str) -> bool {
    cell.split_once(',').is_some_and(|(integer, fraction)| {
        let digits = integer.trim_start_matches(['-', '+']);
        fraction.len() == 3 && (1..=3).contains(&digits.len()) && !digits.starts_with('0')
    })
}

/// Returns `true` for a date such as `2024-05-31`, `31.05.2024` or `5/31/24`, with or without a
/// time.
pub(super) fn is_date(cell: &str) -> bool {
    let date = cell.split([' ', 'T']).next().unwrap_or_default();
    ['-', '.', '/'].into_iter().any(|separator| {
        let parts: Vec<&str> = date.split(separator).collect();
        let is_number = |part: &&str| {
            (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        let [first, middle, last] = parts[..] else { return false };
        let has_year = [first, last].iter().any(|part| part.len() == 4) || last.len() == 2;
        parts.iter().all(is_number) && middle.len() <= 2 && has_year
    })
}

/// Splits a column name into lowercase words, at punctuation and before capitals: `CompoundID` has
/// the words `compound` and `id`.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous = ' ';
    for char in name.chars() {
        if !char.is_alphanumeric() || char.is_uppercase() && previous.is_lowercase() {
            words.push(String::new());
        }
        if char.is_alphanumeric() {
            words.last_mut().expect("never empty").extend(char.to_lowercase());
        }
        previous = char;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Orders two class names as negative and positive: `no` before `yes`, `inactive` before `active`,
/// otherwise alphabetically, as in scikit-learn.
pub(super) fn negative_first(first: String, second: String) -> [String; 2] {
    const NEGATIVE: [&str; 12] = [
        "no", "n", "false", "f", "negative", "neg", "fail", "failed", "absent", "low", "0", "none",
    ];
    let is_negative = |class: &str, other: &str| {
        let (class, other) = (class.to_lowercase(), other.to_lowercase());
        let stem =
            class.strip_suffix(&other).map(|prefix| prefix.trim_end_matches([' ', '-', '_']));
        NEGATIVE.contains(&class.as_str())
            || matches!(stem, Some("in" | "non" | "not" | "un" | "im" | "no"))
    };
    match (is_negative(&first, &second), is_negative(&second, &first)) {
        (true, false) => [first, second],
        (false, true) => [second, first],
        _ if first <= second => [first, second],
        _ => [second, first],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_commas_are_parsed_with_points_between_thousands() {
        let cases = [
            ("3,119", 3.119),
            ("-0,5", -0.5),
            ("1.234,5", 1234.5),
            ("12", 12.0),
            (",44", 0.44),
            ("-,5", -0.5),
        ];
        for (cell, expected) in cases {
            assert_eq!(parse_decimal_comma(cell), Some(expected), "{cell}");
        }
        for cell in ["1.23,5", "a,5", "1,", "1,2,3", "", ",", "-", "-,"] {
            assert_eq!(parse_decimal_comma(cell), None, "{cell}");
        }
        assert!(has_decimal_comma("1,5") && !has_decimal_comma("15"));
        assert!(may_be_thousands("1,234") && may_be_thousands("-12,000"));
        assert!(!may_be_thousands("0,123") && !may_be_thousands("1,23"));
    }

    #[test]
    fn dates_are_recognized_and_numbers_are_not() {
        for cell in ["2024-05-31", "31.05.2024", "5/31/24", "2024-05-31 12:00", "2024-05-31T12:00Z"]
        {
            assert!(is_date(cell), "{cell}");
        }
        for cell in ["1.5", "-3", "2024", "1.2.3.4", "1-2", "C-C-C", "10.123.456"] {
            assert!(!is_date(cell), "{cell}");
        }
    }

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(words("CompoundID"), ["compound", "id"]);
        assert_eq!(words("Unnamed: 0"), ["unnamed", "0"]);
        assert_eq!(words("assay_date"), ["assay", "date"]);
        assert_eq!(words("logS"), ["log", "s"]);
    }

    #[test]
    fn negative_class_comes_first() {
        let order = |first: &str, second: &str| negative_first(first.into(), second.into());
        assert_eq!(order("yes", "no"), ["no", "yes"]);
        assert_eq!(order("active", "inactive"), ["inactive", "active"]);
        assert_eq!(order("Toxic", "non-toxic"), ["non-toxic", "Toxic"]);
        assert_eq!(order("TRUE", "FALSE"), ["FALSE", "TRUE"]);
        assert_eq!(order("b", "a"), ["a", "b"]);
    }
}
