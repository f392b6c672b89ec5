//! Axis scale with ticks at round numbers.

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    step: f64,
}

impl Scale {
    /// Covers a range with at most about `count` steps of 1, 2 or 5 times a power of ten.
    pub(crate) fn covering(low: f64, high: f64, count: f64) -> Self {
        let (low, high) = if low < high { (low, high) } else { (low - 0.05, low + 0.05) };
        let rough = (high - low) / count;
        let power = 10_f64.powf(rough.log10().floor());
        let factor =
            [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * (1.0 - 1e-9));
        let step = factor.unwrap_or(10.0) * power;
        Self {
            low: (low / step + 1e-9).floor() * step,
            high: (high / step - 1e-9).ceil() * step,
            step,
        }
    }

    /// Covers probabilities, from zero to one.
    pub(crate) const UNIT: Self = Self { low: 0.0, high: 1.0, step: 0.2 };

    /// Covers whole numbers from zero to exactly `high`.
    pub(crate) fn from_zero(high: f64, count: f64) -> Self {
        Self { low: 0.0, high, step: Self::covering(0.0, high, count).step.max(1.0) }
    }

    /// Covers whole numbers from zero to the next tick above `high`.
    pub(crate) fn from_zero_covering(high: f64, count: f64) -> Self {
        let Self { step, .. } = Self::from_zero(high, count);
        Self { low: 0.0, high: (high / step - 1e-9).ceil().max(1.0) * step, step }
    }

    /// Returns the upper end.
    pub(crate) fn last(&self) -> f64 {
        self.high
    }

    pub(crate) fn ticks(&self) -> Vec<f64> {
        let count = ((self.high - self.low) / self.step + 1e-6).floor() as usize;
        (0..=count.min(50)).map(|tick| self.low + tick as f64 * self.step).collect()
    }

    pub(crate) fn label(&self, tick: f64) -> String {
        if self.high.abs().max(self.low.abs()) >= 1e6 {
            return format!("{tick:.1e}");
        }
        let decimals = (-(self.step * 1.000_001).log10().floor()).max(0.0) as usize;
        let text = format!("{tick:.decimals$}");
        // Avoid a negative zero.
        if text.trim_start_matches('-').chars().all(|letter| "0.".contains(letter)) {
            text.replace('-', "")
        } else {
            text
        }
    }

    /// Returns the position of a value: 0 at the lower end, 1 at the upper end.
    pub(crate) fn fraction(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        let labels = |low: f64, high: f64| {
            let scale = Scale::covering(low, high, 6.0);
            assert!(scale.low <= low && scale.high >= high, "{scale:?}");
            scale.ticks().into_iter().map(|tick| scale.label(tick)).collect::<Vec<_>>()
        };
        assert_eq!(labels(0.31, 0.99), ["0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(0.068, 0.0712), ["0.068", "0.069", "0.070", "0.071", "0.072"]);
        assert_eq!(labels(0.0, 2500.0), ["0", "500", "1000", "1500", "2000", "2500"]);
        assert_eq!(labels(-0.1, 0.2), ["-0.10", "-0.05", "0.00", "0.05", "0.10", "0.15", "0.20"]);
    }
}
