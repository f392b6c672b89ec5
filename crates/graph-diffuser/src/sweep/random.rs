//! Random search: distributions of settings, and the configurations drawn from them.

use std::fmt;
use std::str::FromStr;

use graph_diffuser_data::{RandomStream, SeedTree};
use serde::{Deserialize, Serialize};

use super::{Axis, SweepError};

/// Draws of a trial after which its search space counts as exhausted.
const MAX_DRAWS: usize = 1000;

/// Search space of user data, used if none is given.
const DEFAULT_SPACE: [&str; 5] = [
    "optim.lr=1e-4..3e-3@log",
    "model.hidden_dim=64,96,128",
    "model.layers=2..6",
    "model.dropout=0.0..0.3",
    "train.batch_size=32,64,128",
];

/// Random search: configurations drawn independently from a search space.
///
/// ```
/// use graph_diffuser::sweep::RandomSearch;
///
/// let space = ["optim.lr=1e-4..3e-3@log".parse()?, "model.layers=2..6".parse()?];
/// let search = RandomSearch::new(8, space.to_vec(), 0)?;
/// assert_eq!(search.trials.len(), 8);
/// // A longer search with the same seed begins with the same trials.
/// assert_eq!(RandomSearch::new(20, space.to_vec(), 0)?.trials[..8], search.trials);
/// # Ok::<(), graph_diffuser::sweep::SweepError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomSearch {
    /// Seed of the draws, independent of the seeds of the runs.
    pub search_seed: u32,
    /// Distribution of each setting.
    pub space: Vec<Dimension>,
    /// Drawn configurations, each as overrides such as `optim.lr=4.132e-4`.
    pub trials: Vec<Vec<String>>,
}

/// Dimension of a search space: one setting and its distribution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Dimension {
    /// Path of the setting, such as `optim.lr`.
    pub path: String,
    /// Distribution, as given.
    spec: String,
    distribution: Distribution,
}

/// Distribution of one setting; bounds are included.
#[derive(Debug, Clone, PartialEq)]
enum Distribution {
    Choice(Vec<String>),
    Integers { low: i64, high: i64, log: bool },
    Floats { low: f64, high: f64, log: bool },
}

impl RandomSearch {
    /// Draws `num_trials` distinct configurations.
    ///
    /// Every setting of every trial has its own random stream, so that its value depends neither on
    /// the number of trials nor on the other dimensions. A configuration that was drawn before is
    /// drawn again.
    ///
    /// # Errors
    /// Returns an error if the space has fewer distinct configurations.
    pub fn new(
        num_trials: usize,
        space: Vec<Dimension>,
        search_seed: u32,
    ) -> Result<Self, SweepError> {
        let seeds = SeedTree::new(u64::from(search_seed));
        let mut trials: Vec<Vec<String>> = Vec::with_capacity(num_trials);
        for index in 0..num_trials {
            let stream =
                |axis: &Dimension| seeds.stream_at(&format!("search {}", axis.path), index as u64);
            let mut streams: Vec<RandomStream> = space.iter().map(stream).collect();
            let draw = || -> Vec<String> {
                let values = space.iter().zip(&mut streams).map(|(axis, stream)| {
                    format!("{}={}", axis.path, axis.distribution.sample(stream))
                });
                values.collect()
            };
            let trial = std::iter::repeat_with(draw)
                .take(MAX_DRAWS)
                .find(|trial| !trials.contains(trial))
                .ok_or(SweepError::SpaceExhausted { trials: num_trials, found: index })?;
            trials.push(trial);
        }
        Ok(Self { search_seed, space, trials })
    }

    /// Returns the default search space, for recipes that train on user data.
    pub fn default_space() -> Vec<Dimension> {
        DEFAULT_SPACE.map(|text| text.parse().expect("the default space is valid")).to_vec()
    }
}

impl Dimension {
    /// Describes the distribution for a report.
    pub fn describe(&self) -> String {
        let spec = self.spec.strip_suffix("@log").unwrap_or(&self.spec);
        match &self.distribution {
            Distribution::Choice(values) => format!("one of `{}`", values.join("`, `")),
            Distribution::Integers { log: false, .. } | Distribution::Floats { log: false, .. } => {
                format!("uniform in `{spec}`")
            }
            Distribution::Integers { log: true, .. } | Distribution::Floats { log: true, .. } => {
                format!("log-uniform in `{spec}`")
            }
        }
    }
}

impl Distribution {
    /// Draws a value, in the form of an override.
    fn sample(&self, stream: &mut RandomStream) -> String {
        match self {
            Self::Choice(values) => values[stream.below(values.len())].clone(),
            Self::Integers { low, high, log: false } => {
                // The parser limits the width of the interval.
                let count = usize::try_from(high - low + 1).unwrap_or(usize::MAX);
                (low + stream.below(count) as i64).to_string()
            }
            Self::Integers { low, high, log: true } => {
                let value = log_uniform(*low as f64, (high + 1) as f64, stream).floor();
                (value as i64).clamp(*low, *high).to_string()
            }
            Self::Floats { low, high, log } => {
                let value = if *log {
                    log_uniform(*low, *high, stream)
                } else {
                    low + (high - low) * stream.uniform()
                };
                // Four significant digits keep names and reports readable.
                let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
                format_float(rounded.clamp(*low, *high))
            }
        }
    }

    fn parse(spec: &str) -> Result<Option<Self>, &'static str> {
        let (range, log) = match spec.strip_suffix("@log") {
            Some(range) => (range.trim_end(), true),
            None => (spec, false),
        };
        let bounds = range.split_once("..").map(|(low, high)| [low.trim(), high.trim()]);
        let is_number = |text: &str| text.parse::<f64>().is_ok();
        let [low, high] = match bounds {
            Some(bounds) if bounds.iter().all(|bound| is_number(bound)) => bounds,
            Some(bounds) if log || bounds.iter().any(|bound| is_number(bound)) => {
                return Err("expected numbers LO..HI");
            }
            None if log => return Err("`@log` requires a range LO..HI"),
            _ => return Ok(None),
        };
        if let (Ok(low), Ok(high)) = (low.parse::<i64>(), high.parse::<i64>()) {
            let limit = 1_i64 << 52; // exact as a float
            if low < -limit || high > limit {
                return Err("the bounds are too large");
            }
            check_bounds(low as f64, high as f64, log)?;
            return Ok(Some(Self::Integers { low, high, log }));
        }
        let [low, high] = [low, high].map(|bound| bound.parse().unwrap_or(f64::NAN));
        check_bounds(low, high, log)?;
        Ok(Some(Self::Floats { low, high, log }))
    }
}

fn check_bounds(low: f64, high: f64, log: bool) -> Result<(), &'static str> {
    if !(low.is_finite() && high.is_finite() && (high - low).is_finite()) {
        return Err("the bounds must be finite");
    }
    if low >= high {
        return Err("the upper bound must be larger than the lower bound");
    }
    if log && low <= 0.0 {
        return Err("a logarithmic range must be positive");
    }
    Ok(())
}

fn log_uniform(low: f64, high: f64, stream: &mut RandomStream) -> f64 {
    (low.ln() + (high.ln() - low.ln()) * stream.uniform()).exp()
}

/// Formats a float as TOML, with an exponent for small numbers.
fn format_float(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 { format!("{value:e}") } else { format!("{value:?}") }
}

impl FromStr for Dimension {
    type Err = SweepError;

    /// Parses `optim.lr=1e-4..3e-3@log`, `model.layers=2..6` or `model.hidden_dim=64,128`.
    fn from_str(text: &str) -> Result<Self, SweepError> {
        let error = |reason| SweepError::Dimension { dimension: text.to_owned(), reason };
        let Axis { path, values } = text.parse().map_err(|axis| match axis {
            SweepError::Axis { reason, .. } => error(reason),
            other => other,
        })?;
        let range = match values.as_slice() {
            [spec] => Distribution::parse(spec).map_err(error)?,
            _ => None,
        };
        let spec = values.join(",");
        Ok(Self { path, spec, distribution: range.unwrap_or(Distribution::Choice(values)) })
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.path, self.spec)
    }
}

impl TryFrom<String> for Dimension {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|error: SweepError| error.to_string())
    }
}

impl From<Dimension> for String {
    fn from(dimension: Dimension) -> Self {
        dimension.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(dimensions: &[&str]) -> Vec<Dimension> {
        dimensions.iter().map(|text| text.parse().expect(text)).collect()
    }

    /// Returns the values that a dimension takes in many trials.
    fn values(dimension: &str, trials: usize) -> Vec<f64> {
        // A second dimension makes the trials distinct.
        let search = RandomSearch::new(trials, space(&[dimension, "b=0.0..1e6"]), 0);
        let trials = search.expect("enough configurations").trials;
        let value = |trial: &Vec<String>| {
            let (path, value) = trial[0].split_once('=').expect("an override");
            assert_eq!(path, "a");
            value.parse().expect("a number")
        };
        trials.iter().map(value).collect()
    }

    #[test]
    fn integer_bounds_give_all_integers_and_both_bounds() {
        for spec in ["a=2..6", "a=2..6@log"] {
            let mut drawn = values(spec, 200);
            drawn.sort_by(f64::total_cmp);
            drawn.dedup();
            assert_eq!(drawn, [2.0, 3.0, 4.0, 5.0, 6.0], "{spec}");
        }
        let search = RandomSearch::new(20, space(&["a=-3..40"]), 0).expect("44 configurations");
        assert!(search.trials.iter().all(|trial| !trial[0].contains('.')), "{search:?}");
    }

    #[test]
    fn uniform_and_log_uniform_ranges_have_the_right_median() {
        let below = |spec: &str, limit: f64| {
            let drawn = values(spec, 2000);
            assert!(drawn.iter().all(|value| (1e-4..=1e-2).contains(value)), "{spec}");
            drawn.iter().filter(|value| **value < limit).count() as f64 / 2000.0
        };
        // Four standard deviations of a fraction near one half are 0.045.
        assert!((below("a=1e-4..1e-2", 5.05e-3) - 0.5).abs() < 0.045);
        assert!((below("a=1e-4..1e-2@log", 1e-3) - 0.5).abs() < 0.045);
    }

    #[test]
    fn trials_depend_on_the_seed_but_not_on_other_trials_or_dimensions() {
        let search = |trials, dimensions: &[&str], seed| {
            RandomSearch::new(trials, space(dimensions), seed).expect("valid search").trials
        };
        let both = ["optim.lr=1e-4..3e-3@log", "model.dropout=0.0..0.5"];
        let five = search(5, &both, 0);
        assert_eq!(five, search(9, &both, 0)[..5]);
        assert_ne!(five, search(5, &both, 1));
        let alone = search(5, &both[1..], 0);
        for (trial, alone) in five.iter().zip(alone) {
            assert_eq!(trial[1..], alone);
        }
    }

    #[test]
    fn trials_are_distinct_and_an_exhausted_space_is_an_error() {
        let dimensions = space(&["model.layers=1..3", "model.hidden_dim=32,64"]);
        let mut trials = RandomSearch::new(6, dimensions.clone(), 0).expect("six exist").trials;
        trials.sort();
        trials.dedup();
        assert_eq!(trials.len(), 6);
        let error = RandomSearch::new(7, dimensions, 0).expect_err("only six exist");
        assert!(matches!(error, SweepError::SpaceExhausted { trials: 7, found: 6 }), "{error}");
    }

    #[test]
    fn specifications_survive_a_round_trip_and_invalid_ones_are_rejected() {
        for text in ["a.b=1e-4..3e-3@log", "a=2..6", "a=-0.5..0.5", "a=x,y", r#"a="../b",[1,2]"#] {
            assert_eq!(text.parse::<Dimension>().expect(text).to_string(), text);
        }
        assert_eq!(RandomSearch::default_space().len(), DEFAULT_SPACE.len());
        for text in [
            "a",
            "a=",
            "=1..2",
            "a=2..1",
            "a=1..1",
            "a=0..1@log",
            "a=-1.0..1.0@log",
            "a=1..x",
            "a=1..inf",
            "a=5@log",
            "a=0..9007199254740993",
        ] {
            assert!(text.parse::<Dimension>().is_err(), "{text} was accepted");
        }
    }
}
