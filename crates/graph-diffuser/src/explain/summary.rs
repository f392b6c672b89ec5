//! One-line summaries of predictions and targets.

use super::trace::{AttentionTrace, PredictionAndTarget, TracedTarget};

/// Returns a one-line summary of prediction and target.
pub fn headline(trace: &AttentionTrace, node: usize) -> String {
    let class = |names: &[String], class: u32| {
        names.get(class as usize).cloned().unwrap_or_else(|| class.to_string())
    };
    let verdict = |is_correct: bool| if is_correct { "correct" } else { "wrong" };
    let truth = |label: Option<String>| {
        label.map_or_else(|| "no label".to_owned(), |label| format!("true {label}"))
    };
    match &trace.outcome {
        PredictionAndTarget::NodeClasses { predicted, targets, names, .. }
            if node < targets.len() =>
        {
            let target = truth(targets[node].map(|target| {
                format!("{} ({})", class(names, target), verdict(predicted[node] == target))
            }));
            format!("Node {node}: predicted {}, {target}", class(names, predicted[node]))
        }
        PredictionAndTarget::NodeClasses { predicted, targets, .. } => {
            let correct = num_correct(predicted, targets);
            format!("{correct} of {} nodes correct", num_labeled(targets))
        }
        PredictionAndTarget::Graph { targets } => {
            let shown = first_observed(targets);
            let (predicted, target) = describe(&targets[shown], class);
            let name = if targets.len() > 1 || targets[shown].name() != "target" {
                format!("{}: ", truncate(targets[shown].name(), 40))
            } else {
                String::new()
            };
            let verdict = match &targets[shown] {
                TracedTarget::Multiclass { predicted, target: Some(target), .. } => {
                    format!(" ({})", verdict(predicted == target))
                }
                _ => String::new(),
            };
            let more = match targets.len() {
                1 => String::new(),
                count => format!(" (and {} more)", count - 1),
            };
            format!("{name}predicted {predicted}, {}{verdict}{more}", truth(target))
        }
        PredictionAndTarget::SubTokens { predicted, targets, names } => {
            let text = |tokens: &[u32]| {
                let words: Vec<String> = tokens.iter().map(|&token| class(names, token)).collect();
                if words.is_empty() { "(none)".to_owned() } else { truncate(&words.join(" "), 36) }
            };
            format!("Predicted {}, true {}", text(predicted), text(targets))
        }
        PredictionAndTarget::Links { probabilities, targets } => {
            let row = trace.rows.iter().position(|&row| row == node);
            let linked: Vec<usize> = targets
                .iter()
                .filter(|pair| pair[0] as usize == node)
                .map(|pair| pair[1] as usize)
                .collect();
            let found = row
                .and_then(|row| probabilities.get(row))
                .map_or(0, |row| linked.iter().filter(|&&other| row[other] > 0.5).count());
            format!("Node {node}: {found} of {} links predicted", linked.len())
        }
    }
}

/// Returns the index of the first target whose true value is known, or 0.
pub(super) fn first_observed(targets: &[TracedTarget]) -> usize {
    targets.iter().position(TracedTarget::is_observed).unwrap_or(0)
}

/// Formats prediction and true value of one target.
fn describe(
    target: &TracedTarget,
    class: impl Fn(&[String], u32) -> String,
) -> (String, Option<String>) {
    let percent = |probability: f32| format!("{:.0}%", 100.0 * probability);
    match target {
        TracedTarget::Regression { predicted, target, .. } => {
            (format_value(*predicted), target.map(format_value))
        }
        TracedTarget::Binary { probability, target, classes, .. } => {
            let label = |label: u32| match classes.as_slice() {
                [] => if label == 1 { "yes" } else { "no" }.to_owned(),
                _ => class(classes, label),
            };
            (percent(*probability), target.map(label))
        }
        TracedTarget::Multiclass { probabilities, predicted, target, classes, .. } => {
            let likely = percent(probabilities[*predicted as usize]);
            let predicted = format!("{} ({likely})", class(classes, *predicted));
            (predicted, target.map(|target| class(classes, target)))
        }
    }
}

/// Longest name of a class in the list of graphs.
const LIST_WIDTH: usize = 18;

fn short_class(names: &[String], class: u32) -> String {
    names.get(class as usize).map_or_else(|| class.to_string(), |name| truncate(name, LIST_WIDTH))
}

/// Returns prediction and true value of one target as shown in the list of graphs.
pub(super) fn abbreviate_target(target: &TracedTarget) -> (String, String) {
    let (predicted, truth) = describe(target, short_class);
    (predicted, truth.unwrap_or_else(|| "?".into()))
}

/// Returns prediction and target as shown in the list of graphs.
pub(super) fn abbreviate(outcome: &PredictionAndTarget) -> (String, String) {
    match outcome {
        PredictionAndTarget::NodeClasses { predicted, targets, .. } => {
            let correct = num_correct(predicted, targets);
            (format!("{correct} correct"), format!("of {}", num_labeled(targets)))
        }
        PredictionAndTarget::Graph { targets } => {
            abbreviate_target(&targets[first_observed(targets)])
        }
        PredictionAndTarget::SubTokens { predicted, targets, names } => {
            let text = |tokens: &[u32]| {
                let words: Vec<String> =
                    tokens.iter().map(|&token| short_class(names, token)).collect();
                truncate(&words.join(" "), LIST_WIDTH)
            };
            (text(predicted), text(targets))
        }
        PredictionAndTarget::Links { targets, .. } => {
            (String::new(), format!("{} links", targets.len() / 2))
        }
    }
}

fn num_correct(predicted: &[u32], targets: &[Option<u32>]) -> usize {
    let pairs = predicted.iter().zip(targets);
    pairs.filter(|(predicted, target)| **target == Some(**predicted)).count()
}

fn num_labeled(targets: &[Option<u32>]) -> usize {
    targets.iter().flatten().count()
}

/// Formats a value with three significant digits and without trailing zeros.
pub fn format_value(value: f32) -> String {
    let value = f64::from(value);
    if value == 0.0 {
        return "0".into();
    }
    if value.abs() < 1e-4 {
        return format!("{value:.0e}");
    }
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Truncates a text to `max_chars` characters.
pub fn truncate(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        text.to_owned()
    } else {
        text.chars().take(max_chars - 1).chain(['.']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_significant_digits() {
        let texts = [0.0, 0.5, 0.123_456, 12.345, 1234.5, 0.000_01, -0.25].map(format_value);
        assert_eq!(texts, ["0", "0.5", "0.123", "12.3", "1234", "1e-5", "-0.25"]);
    }

    #[test]
    fn abbreviations_show_correct_nodes_and_missing_labels() {
        let classes = PredictionAndTarget::NodeClasses {
            probabilities: vec![],
            predicted: vec![1, 2, 0, 0, 0],
            targets: vec![Some(1), Some(2), Some(3), Some(0), None],
            names: vec![],
        };
        assert_eq!(abbreviate(&classes), ("3 correct".into(), "of 4".into()));
        let target = TracedTarget::Regression { name: "y".into(), predicted: 1.0, target: None };
        let unlabeled = PredictionAndTarget::Graph { targets: vec![target] };
        assert_eq!(abbreviate(&unlabeled), ("1".into(), "?".into()));
    }
}
