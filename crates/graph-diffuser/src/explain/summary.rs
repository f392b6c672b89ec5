//! One-line summaries of predictions and targets.

use super::trace::{AttentionTrace, PredictionAndTarget};

/// Returns a one-line summary of prediction and target.
pub fn headline(trace: &AttentionTrace, node: usize) -> String {
    let class = |names: &[String], class: u32| {
        names.get(class as usize).cloned().unwrap_or_else(|| class.to_string())
    };
    let verdict = |is_correct: bool| if is_correct { "correct" } else { "wrong" };
    let named = |names: &[String], target: usize, count: usize| match names.get(target) {
        Some(name) => format!("{name}: "),
        None if count > 1 => format!("target {target}: "),
        None => String::new(),
    };
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
        PredictionAndTarget::GraphValues { predicted, targets, names } => {
            let first = format!(
                "{}predicted {}, {}",
                truncate(&named(names, 0, predicted.len()), 40),
                format_value(predicted[0]),
                truth(targets[0].map(format_value))
            );
            if predicted.len() > 1 {
                format!("{first} (and {} more)", predicted.len() - 1)
            } else {
                first
            }
        }
        PredictionAndTarget::GraphLabels { probabilities, targets, names } => {
            let labeled = targets.iter().position(Option::is_some).unwrap_or(0);
            let first = format!(
                "{}predicted {:.0}%, {}",
                truncate(&named(names, labeled, probabilities.len()), 40),
                100.0 * probabilities[labeled],
                truth(
                    targets[labeled].map(|label| if label > 0.5 { "yes" } else { "no" }.to_owned())
                )
            );
            if targets.len() > 1 {
                format!("{first} (and {} more)", targets.len() - 1)
            } else {
                first
            }
        }
        PredictionAndTarget::GraphClass { probabilities, predicted, target, names } => format!(
            "Predicted {} ({:.0}%), {}",
            class(names, *predicted),
            100.0 * probabilities[*predicted as usize],
            truth(target.map(|target| {
                format!("{} ({})", class(names, target), verdict(*predicted == target))
            }))
        ),
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

/// Returns prediction and target as shown in the list of graphs.
pub(super) fn abbreviate(outcome: &PredictionAndTarget) -> (String, String) {
    const WIDTH: usize = 18;
    let class = |names: &[String], class: u32| {
        names.get(class as usize).map_or_else(|| class.to_string(), |name| truncate(name, WIDTH))
    };
    let first = |values: &[f32]| values.first().copied().map_or_else(String::new, format_value);
    let first_label = |values: &[Option<f32>]| {
        values.first().copied().flatten().map_or_else(|| "?".into(), format_value)
    };
    match outcome {
        PredictionAndTarget::NodeClasses { predicted, targets, .. } => {
            let correct = num_correct(predicted, targets);
            (format!("{correct} correct"), format!("of {}", num_labeled(targets)))
        }
        PredictionAndTarget::GraphValues { predicted, targets, .. } => {
            (first(predicted), first_label(targets))
        }
        PredictionAndTarget::GraphLabels { probabilities, targets, .. } => {
            let labeled = targets.iter().position(Option::is_some).unwrap_or(0);
            (first(&probabilities[labeled..]), first_label(&targets[labeled..]))
        }
        PredictionAndTarget::GraphClass { predicted, target, names, .. } => (
            class(names, *predicted),
            target.map_or_else(String::new, |target| class(names, target)),
        ),
        PredictionAndTarget::SubTokens { predicted, targets, names } => {
            let text = |tokens: &[u32]| {
                let words: Vec<String> = tokens.iter().map(|&token| class(names, token)).collect();
                truncate(&words.join(" "), WIDTH)
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
        let unlabeled = PredictionAndTarget::GraphValues {
            predicted: vec![1.0],
            targets: vec![None],
            names: vec![],
        };
        assert_eq!(abbreviate(&unlabeled), ("1".into(), "?".into()));
    }
}
