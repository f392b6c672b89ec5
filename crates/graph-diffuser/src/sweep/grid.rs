//! Axes of a grid search and ranges of seeds, as written on the command line.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::SweepError;

/// Half-open range of seeds, written `0..10`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SeedRange(pub Range<u64>);

/// Axis of a grid: one setting and its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Path of the setting, such as `optim.lr`.
    pub path: String,
    /// Values, each a TOML value or a bare word, as given.
    pub values: Vec<String>,
}

/// Returns the Cartesian product of the axes as overrides; the last axis varies fastest.
pub(super) fn combinations(grid: &[Axis]) -> Vec<Vec<String>> {
    grid.iter().fold(vec![Vec::new()], |combinations, axis| {
        let extended = combinations.iter().flat_map(|combination| {
            axis.values.iter().map(|value| {
                let mut combination = combination.clone();
                combination.push(format!("{}={value}", axis.path));
                combination
            })
        });
        extended.collect()
    })
}

impl FromStr for Axis {
    type Err = SweepError;

    /// Parses `optim.lr=3e-4,8e-4`; commas inside brackets, braces or quotes belong to the value.
    fn from_str(text: &str) -> Result<Self, SweepError> {
        let error = |reason| SweepError::Axis { axis: text.to_owned(), reason };
        let (path, list) = text.split_once('=').ok_or_else(|| error("missing `=`"))?;
        let path = path.trim().to_owned();
        if path.split('.').any(str::is_empty) {
            return Err(error("empty key"));
        }
        let mut values = vec![String::new()];
        let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
        for char in list.chars() {
            let was_escaped = std::mem::take(&mut escaped);
            match (quote, char) {
                (Some('"'), '\\') if !was_escaped => escaped = true,
                (Some(open), char) if char == open && !was_escaped => quote = None,
                (None, '"' | '\'') => quote = Some(char),
                (None, '[' | '{') => depth += 1,
                (None, ']' | '}') => {
                    depth =
                        depth.checked_sub(1).ok_or_else(|| error("unmatched closing bracket"))?;
                }
                (None, ',') if depth == 0 => {
                    values.push(String::new());
                    continue;
                }
                _ => {}
            }
            values.last_mut().expect("never empty").push(char);
        }
        if quote.is_some() || depth > 0 {
            return Err(error("unclosed quote or bracket"));
        }
        let values: Vec<String> = values.iter().map(|value| value.trim().to_owned()).collect();
        if values.iter().any(String::is_empty) {
            return Err(error("empty value"));
        }
        Ok(Self { path, values })
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.path, self.values.join(","))
    }
}

impl FromStr for SeedRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seed = |text: &str| text.trim().parse::<u64>().ok();
        let range = text.split_once("..").and_then(|(first, end)| Some(seed(first)?..seed(end)?));
        let range = range.filter(|range| !range.is_empty());
        range
            .map(Self)
            .ok_or_else(|| "expected a non-empty range such as `0..10` (seeds 0 to 9)".to_owned())
    }
}

impl TryFrom<String> for SeedRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SeedRange> for String {
    fn from(seeds: SeedRange) -> Self {
        seeds.to_string()
    }
}

impl fmt::Display for SeedRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}..{}", self.0.start, self.0.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_inside_brackets_or_quotes_do_not_separate_values() {
        let cases: [(&str, &[&str]); 5] = [
            ("a.b=1,2", &["1", "2"]),
            ("a = [1, 2] , [3]", &["[1, 2]", "[3]"]),
            (r#"a={kind="x",n=[1,2]},{kind="y"}"#, &[r#"{kind="x",n=[1,2]}"#, r#"{kind="y"}"#]),
            (r#"a="x,y",'z,"w',word"#, &[r#""x,y""#, r#"'z,"w'"#, "word"]),
            (r#"a="\",",b"#, &[r#""\",""#, "b"]),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<Axis>().expect(text).values, expected, "{text}");
        }
        for text in ["a", "a=", "a=1,", "a=,1", "=1", "a..b=1", "a=[1,2", "a=1]", "a=\"1"] {
            assert!(text.parse::<Axis>().is_err(), "{text} was accepted");
        }
    }
}
