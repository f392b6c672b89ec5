//! Plots of an evaluation: parity, residuals, ROC, precision-recall, calibration, confusion.

use graph_diffuser::explain::summary::truncate;
use graph_diffuser::task::curves::{
    CalibrationBin, ConfusionMatrix, Histogram, expected_calibration_error,
};
use graph_diffuser::task::{Metric, UncertaintyCalibration};

use crate::canvas::{Anchor, Canvas, Point, Style, TextStyle};
use crate::chart::{Chart, Mark, Scale};
use crate::color::{BLUE, FOREGROUND, INK, OUTLINE, SKY, VERMILLION, WHITE, ramp};
use crate::font::{CENTER, text_width};

use super::evaluation::{EvaluationKind, TargetEvaluation};

/// Maximum number of points of a parity plot.
const MAX_DOTS: usize = 1000;
/// Maximum number of classes of a confusion matrix; the others are merged.
const MAX_CLASSES: usize = 16;

/// Plot with a caption.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plot {
    /// Name in file names, such as `parity`.
    pub(super) name: &'static str,
    pub(super) caption: String,
    pub(super) canvas: Canvas,
}

impl TargetEvaluation {
    /// Draws all plots of the target.
    pub(super) fn plots(&self) -> Vec<Plot> {
        let mut plots = self.plots_of_kind();
        plots.extend(self.uncertainty.as_ref().map(uncertainty));
        plots
    }

    fn plots_of_kind(&self) -> Vec<Plot> {
        match &self.kind {
            EvaluationKind::Regression { pairs, residuals } => {
                let mut plots = vec![self.parity(pairs)];
                plots.extend(residuals.as_ref().map(|histogram| self.residuals(pairs, histogram)));
                plots
            }
            EvaluationKind::Binary {
                roc,
                precision_recall,
                prevalence,
                calibration,
                classes,
                confusion,
            } => {
                let mut plots = Vec::new();
                plots.extend(roc.as_ref().map(|curve| self.roc(curve)));
                let curve = precision_recall.as_ref();
                plots.extend(curve.map(|curve| self.precision_recall(curve, *prevalence)));
                plots.push(self.calibration(
                    calibration,
                    "predicted probability",
                    "fraction of positives",
                ));
                plots.push(self.confusion(confusion, classes, " at threshold 0.5"));
                plots
            }
            EvaluationKind::Multiclass { classes, confusion, calibration } => {
                let mut plots = vec![self.confusion(confusion, classes, "")];
                if !calibration.is_empty() {
                    let x = "probability of the predicted class";
                    plots.push(self.calibration(calibration, x, "fraction of correct predictions"));
                }
                plots
            }
        }
    }

    fn metric(&self, wanted: Metric) -> String {
        let found = self.metrics.iter().find(|(metric, _)| *metric == wanted);
        found.map_or("–".to_owned(), |(_, value)| format_significant(*value))
    }

    fn parity(&self, pairs: &[[f64; 2]]) -> Plot {
        let finite = pairs.iter().filter(|pair| pair.iter().all(|value| value.is_finite()));
        let finite: Vec<Point> = finite.copied().collect();
        let low = finite.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let high = finite.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = if low.is_finite() { (low, high) } else { (0.0, 1.0) };
        let scale = Scale::covering(low, high, 5.0);
        let labels = [format!("true {}", self.target), format!("predicted {}", self.target)];
        let title = "Predicted and true values".to_owned();
        let mut chart = Chart::small(title, labels, [scale; 2]).square();
        let ends = [scale.ticks()[0], *scale.ticks().last().unwrap_or(&high)];
        chart.line(&[[ends[0]; 2], [ends[1]; 2]], &reference_line());
        let step = finite.len().div_ceil(MAX_DOTS).max(1);
        let shown: Vec<Point> = finite.iter().copied().step_by(step).collect();
        chart.dots(&shown);
        let drawn = if step > 1 { format!("; {} are drawn", shown.len()) } else { String::new() };
        let caption = format!(
            "Predicted over true values of {} test samples{drawn}; dashed: identity. R² {}, MAE {}, RMSE {}.",
            self.samples,
            self.metric(Metric::R2),
            self.metric(Metric::Mae),
            self.metric(Metric::Rmse)
        );
        Plot { name: "parity", caption, canvas: chart.draw(&[]) }
    }

    fn residuals(&self, pairs: &[[f64; 2]], histogram: &Histogram) -> Plot {
        let Histogram { start, width, counts } = histogram;
        let end = start + width * counts.len() as f64;
        let most = counts.iter().copied().max().unwrap_or(1) as f64;
        let scales = [Scale::covering(*start, end, 4.0), Scale::from_zero_covering(most, 5.0)];
        let labels = ["predicted − true".to_owned(), "samples".to_owned()];
        let mut chart = Chart::small("Residuals".to_owned(), labels, scales).square();
        for (bin, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let low = start + width * bin as f64;
            let style = Style::fill(SKY).outlined(OUTLINE, 0.5);
            chart.bar([low, low + width], count as f64, style);
        }
        chart.line(&[[0.0, 0.0], [0.0, most]], &reference_line());
        let finite: Vec<f64> = pairs
            .iter()
            .map(|[target, predicted]| predicted - target)
            .filter(|residual| residual.is_finite())
            .collect();
        let bias = finite.iter().sum::<f64>() / finite.len() as f64;
        let caption =
            format!("Residuals of the test samples; mean (bias) {}.", format_significant(bias));
        Plot { name: "residuals", caption, canvas: chart.draw(&[]) }
    }

    fn roc(&self, curve: &[[f64; 2]]) -> Plot {
        let labels = ["false-positive rate".to_owned(), "true-positive rate".to_owned()];
        let mut chart = Chart::small("ROC curve".to_owned(), labels, [Scale::UNIT; 2]).square();
        chart.line(&[[0.0, 0.0], [1.0, 1.0]], &reference_line());
        chart.line(curve, &Style::stroke(BLUE, 2.0));
        let caption = format!(
            "ROC curve of {} test samples, area {}; dashed: random.",
            self.samples,
            self.metric(Metric::RocAuc)
        );
        Plot { name: "roc", caption, canvas: chart.draw(&[]) }
    }

    fn precision_recall(&self, curve: &[[f64; 2]], prevalence: f64) -> Plot {
        let labels = ["recall".to_owned(), "precision".to_owned()];
        let title = "Precision-recall curve".to_owned();
        let mut chart = Chart::small(title, labels, [Scale::UNIT; 2]).square();
        chart.line(&[[0.0, prevalence], [1.0, prevalence]], &reference_line());
        // The precision of a point holds from the previous recall to its own.
        let mut steps = Vec::with_capacity(2 * curve.len());
        let mut recall = 0.0;
        for &[next, precision] in curve {
            steps.extend([[recall, precision], [next, precision]]);
            recall = next;
        }
        chart.line(&steps, &Style::stroke(BLUE, 2.0));
        let caption = format!(
            "Precision-recall curve, average precision {}; dashed: fraction of positives, {}.",
            self.metric(Metric::AveragePrecision),
            format_significant(prevalence)
        );
        Plot { name: "precision-recall", caption, canvas: chart.draw(&[]) }
    }

    fn calibration(&self, bins: &[CalibrationBin], x: &str, y: &str) -> Plot {
        let labels = [x.to_owned(), y.to_owned()];
        let mut chart = Chart::small("Calibration".to_owned(), labels, [Scale::UNIT; 2]).square();
        let most = bins.iter().map(|bin| bin.count).max().unwrap_or(1) as f64;
        for bin in bins {
            let low = (10.0 * bin.predicted).floor().min(9.0) / 10.0;
            // Bars of counts are at most a quarter of the height.
            let height = 0.25 * bin.count as f64 / most;
            let style = Style::fill(SKY).opacity(0.45);
            chart.bar([low + 0.01, low + 0.09], height, style);
            chart.text([low + 0.05, height], bin.count.to_string());
        }
        chart.line(&[[0.0, 0.0], [1.0, 1.0]], &reference_line());
        let points: Vec<Point> = bins.iter().map(|bin| [bin.predicted, bin.observed]).collect();
        chart.line(&points, &Style::stroke(BLUE, 2.0));
        for point in points {
            chart.mark(point, Mark::Circle, BLUE);
        }
        let caption = format!(
            "Calibration: {y} over {x}, with the number of samples in each bin; dashed: \
             calibrated. Expected calibration error {}.",
            format_significant(expected_calibration_error(bins))
        );
        Plot { name: "calibration", caption, canvas: chart.draw(&[]) }
    }

    fn confusion(&self, matrix: &ConfusionMatrix, classes: &[String], note: &str) -> Plot {
        let (kept, matrix) = matrix.merge_rare(MAX_CLASSES);
        let mut names: Vec<String> = kept
            .iter()
            .map(|&class| classes.get(class).cloned().unwrap_or_else(|| class.to_string()))
            .collect();
        names.resize_with(matrix.classes(), || "other".to_owned());
        let caption = format!(
            "Confusion matrix{note}: number of test samples, shaded by the fraction of the true \
             class; accuracy {}.",
            format_significant(matrix.accuracy())
        );
        Plot { name: "confusion", caption, canvas: draw_confusion(&matrix, &names) }
    }
}

/// Draws the observed over the expected error of an ensemble.
fn uncertainty(calibration: &UncertaintyCalibration) -> Plot {
    let points: Vec<Point> = calibration
        .bins
        .iter()
        .map(|bin| [bin.expected_rmse, bin.observed_rmse])
        .filter(|point| point.iter().all(|value| value.is_finite()))
        .collect();
    let most = points.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
    let scale = Scale::from_zero_covering(most, 4.0);
    let labels = ["expected RMSE".to_owned(), "observed RMSE".to_owned()];
    let title = "Uncertainty".to_owned();
    let mut chart = Chart::small(title, labels, [scale; 2]).square();
    let end = *scale.ticks().last().unwrap_or(&most);
    chart.line(&[[0.0; 2], [end; 2]], &reference_line());
    chart.line(&points, &Style::stroke(BLUE, 2.0));
    for point in points {
        chart.mark(point, Mark::Circle, BLUE);
    }
    let caption = format!(
        "Observed over expected error of {} test samples in bins of equal size, by standard \
         deviation over the members; dashed: calibrated. Correlation of standard deviation and \
         error {}, expected normalized calibration error {}.",
        calibration.samples,
        format_significant(calibration.spearman),
        format_significant(calibration.ence)
    );
    Plot { name: "uncertainty", caption, canvas: chart.draw(&[]) }
}

/// Draws a confusion matrix, shaded by the fraction of the true class.
fn draw_confusion(matrix: &ConfusionMatrix, names: &[String]) -> Canvas {
    const FONT_SIZE: f64 = 12.0;
    let classes = matrix.classes();
    let names: Vec<String> = names.iter().map(|name| truncate(name, 14)).collect();
    let widest = names.iter().map(|name| text_width(name, FONT_SIZE, false)).fold(16.0, f64::max);
    let cell = (256.0 / classes as f64).clamp(24.0, 72.0);
    let (left, top) = (widest + 44.0, 44.0);
    let side = cell * classes as f64;
    let is_vertical = widest > cell - 6.0;
    let bottom = top + side + if is_vertical { widest + 10.0 } else { 20.0 };
    let mut canvas =
        Canvas::new((left + side + 16.0).max(190.0), bottom + 26.0, "Confusion matrix");
    let label = TextStyle::new(FONT_SIZE, FOREGROUND);
    canvas.text([16.0, 24.0], "Confusion matrix", TextStyle::new(14.0, FOREGROUND).bold());
    for (row, name) in names.iter().enumerate() {
        let y = top + cell * (row as f64 + 0.5) + CENTER * FONT_SIZE;
        canvas.text([left - 8.0, y], name, label.anchor(Anchor::End));
        let x = left + cell * (row as f64 + 0.5);
        if is_vertical {
            let at = [x + CENTER * FONT_SIZE, top + side + 8.0];
            canvas.text(at, name, label.anchor(Anchor::End).vertical());
        } else {
            canvas.text([x, top + side + 16.0], name, label.anchor(Anchor::Middle));
        }
        for column in 0..classes {
            let count = matrix.counts[row][column];
            let fill = ramp(count as f64 / matrix.support(row).max(1) as f64);
            let corner = [left + cell * column as f64, top + cell * row as f64];
            canvas.rectangle(corner, [cell; 2], Style::fill(fill).outlined(WHITE, 1.0));
            let color = if fill.is_dark() { WHITE } else { INK };
            let text = count.to_string();
            let style = TextStyle::new((0.3 * cell).clamp(9.0, 15.0), color).fit(&text, cell - 4.0);
            let at = [corner[0] + cell / 2.0, corner[1] + cell / 2.0 + CENTER * style.size];
            canvas.text(at, text, style.anchor(Anchor::Middle));
        }
    }
    let middle = label.anchor(Anchor::Middle);
    canvas.text([left + side / 2.0, bottom + 12.0], "predicted class", middle);
    canvas.text([20.0, top + side / 2.0], "true class", middle.vertical());
    canvas
}

fn reference_line() -> Style {
    Style::stroke(VERMILLION, 1.5).dashed(&[6.0, 4.0])
}

/// Formats a number with four significant digits.
pub(super) fn format_significant(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let digits = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    match digits {
        -4..=5 => format!("{value:.*}", (3 - digits).clamp(0, 4) as usize),
        _ => format!("{value:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use graph_diffuser::task::curves::calibration_curve;

    use super::*;

    fn evaluation(kind: EvaluationKind) -> TargetEvaluation {
        TargetEvaluation {
            target: "a <&> b".into(),
            samples: 3,
            metrics: vec![],
            worst: vec![],
            uncertainty: None,
            kind,
        }
    }

    #[test]
    fn plots_of_degenerate_data_have_no_nan() {
        let pairs = vec![[1.0, f64::NAN], [1.0, 1.0]];
        let residuals = Histogram::new(&[0.0], 10);
        let binary = EvaluationKind::Binary {
            roc: None,
            precision_recall: None,
            prevalence: 0.0,
            calibration: vec![],
            classes: vec!["0".into(), "1".into()],
            confusion: ConfusionMatrix::new(2, []),
        };
        let regression = EvaluationKind::Regression { pairs, residuals };
        for (kind, count) in [(regression, 2), (binary, 2)] {
            let plots = evaluation(kind).plots();
            assert_eq!(plots.len(), count);
            for Plot { canvas, caption, .. } in plots {
                let svg = canvas.to_svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                assert!(!caption.contains("NaN") && !svg.contains("<&>"), "{caption}");
            }
        }
    }

    #[test]
    fn ensembles_have_a_plot_of_expected_and_observed_errors() {
        let stds: Vec<f64> = (1..=20).map(f64::from).collect();
        let errors: Vec<f64> = stds.iter().map(|std| 2.0 * std).collect();
        let calibration = UncertaintyCalibration::new("y".into(), &stds, &errors);
        let kind = EvaluationKind::Regression { pairs: vec![], residuals: None };
        let evaluation = TargetEvaluation { uncertainty: Some(calibration), ..evaluation(kind) };
        let plots = evaluation.plots();
        let names: Vec<&str> = plots.iter().map(|plot| plot.name).collect();
        assert_eq!(names, ["parity", "uncertainty"]);
        assert!(plots[1].caption.contains("20 test samples"), "{}", plots[1].caption);
        let constant = UncertaintyCalibration::new("y".into(), &[0.0; 10], &[0.0; 10]);
        let svg = uncertainty(&constant).canvas.to_svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn binary_plots_have_curves_and_counts() {
        let kind = EvaluationKind::Binary {
            roc: Some(vec![[0.0, 0.0], [0.5, 1.0], [1.0, 1.0]]),
            precision_recall: Some(vec![[1.0, 0.5]]),
            prevalence: 0.25,
            calibration: calibration_curve([(0.31, true), (0.99, false)], 10),
            classes: vec!["no".into(), "yes".into()],
            confusion: ConfusionMatrix::new(2, [(0, 1), (1, 1), (1, 1)]),
        };
        let plots = evaluation(kind).plots();
        let names: Vec<&str> = plots.iter().map(|plot| plot.name).collect();
        assert_eq!(names, ["roc", "precision-recall", "calibration", "confusion"]);
        assert!(plots[1].caption.contains("0.2500"), "{}", plots[1].caption);
        let confusion = plots[3].canvas.to_svg();
        assert!(confusion.contains(">yes<") && confusion.contains(">2<"), "{confusion}");
        assert!(plots[3].caption.contains("accuracy 0.6667"), "{}", plots[3].caption);
    }

    #[test]
    fn numbers_have_four_significant_digits() {
        let texts =
            [0.84493, 20.3958, 12345.6, -0.00012, 1.5e-9, 0.0, f64::NAN].map(format_significant);
        assert_eq!(texts, ["0.8449", "20.40", "12346", "-0.0001", "1.500e-9", "0.000", "–"]);
    }
}
