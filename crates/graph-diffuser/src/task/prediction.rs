//! Predictions for single graphs, and their form in CSV and JSON output.

use graph_diffuser_data::{Schema, TargetSchema};
use serde_json::{Map, Value, json};

use super::multiclass::argmax;

/// Prediction for one graph.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// Value of each regression target.
    Regression(Vec<f32>),
    /// Probability of each binary label.
    Probabilities(Vec<f32>),
    /// Class of the graph.
    Class(ClassPrediction),
    /// Class of each node.
    NodeClasses(Vec<ClassPrediction>),
    /// Indices of the predicted sub-tokens in the vocabulary.
    SubTokens(Vec<u32>),
    /// Most probable links, in descending order of probability.
    Links(Vec<PredictedLink>),
}

/// Predicted class and class probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassPrediction {
    /// Most probable class; `None` if an output is NaN.
    pub class: Option<u32>,
    /// Probability of each class.
    pub probabilities: Vec<f32>,
}

impl ClassPrediction {
    /// Computes the softmax of the logits of one row.
    pub(super) fn of(logits: &[f32]) -> Self {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exponentials: Vec<f64> =
            logits.iter().map(|&logit| f64::from(logit - max).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        let probabilities = exponentials.into_iter().map(|value| (value / sum) as f32).collect();
        Self { class: argmax(logits, logits.len())[0], probabilities }
    }
}

/// Predicted link between two nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictedLink {
    /// Indices of the nodes, in ascending order.
    pub pair: [u32; 2],
    /// Probability of the link.
    pub probability: f32,
}

/// Logistic function.
pub(super) fn sigmoid(value: f64) -> f32 {
    (1.0 / (1.0 + (-value).exp())) as f32
}

/// Returns the name at `index`, or the index if there is no name.
fn name(names: &[String], index: usize) -> String {
    names.get(index).cloned().unwrap_or_else(|| index.to_string())
}

/// Returns the shortest JSON number that round-trips; `null` for NaN.
fn json_number(value: f32) -> Value {
    value.to_string().parse::<serde_json::Number>().map_or(Value::Null, Value::Number)
}

/// Returns the names of the columns that predictions add to a CSV file.
pub fn csv_columns(schema: &Schema) -> Vec<String> {
    let suffixed = |count: usize, suffix: &str| {
        (0..count)
            .map(|target| match schema.names.targets.get(target) {
                Some(name) => format!("{name}_{suffix}"),
                None if count == 1 => suffix.to_owned(),
                None => format!("{target}_{suffix}"),
            })
            .collect()
    };
    match schema.targets {
        TargetSchema::Regression(count) => suffixed(count, "pred"),
        TargetSchema::Multilabel(count) => suffixed(count, "prob"),
        TargetSchema::Multiclass(count) => {
            let classes =
                (0..count).map(|class| format!("prob_{}", name(&schema.names.classes, class)));
            ["class".to_owned(), "class_prob".to_owned()].into_iter().chain(classes).collect()
        }
        TargetSchema::NodeMulticlass(_)
        | TargetSchema::SubTokens(_)
        | TargetSchema::LinkPrediction => {
            vec!["prediction".into()]
        }
    }
}

impl Prediction {
    /// Returns the cells of the prediction in a CSV file, one per column of [`csv_columns`].
    pub fn csv_cells(&self, schema: &Schema) -> Vec<String> {
        let plain = |value: &f32| if value.is_nan() { String::new() } else { value.to_string() };
        match self {
            Self::Regression(values) | Self::Probabilities(values) => {
                values.iter().map(plain).collect()
            }
            Self::Class(ClassPrediction { class, probabilities }) => {
                let class = class.map(|class| class as usize);
                let named = class.map_or(String::new(), |class| name(&schema.names.classes, class));
                let likely = class.map_or(String::new(), |class| plain(&probabilities[class]));
                [named, likely].into_iter().chain(probabilities.iter().map(plain)).collect()
            }
            Self::NodeClasses(_) | Self::SubTokens(_) | Self::Links(_) => {
                vec![self.to_json(schema).to_string()]
            }
        }
    }

    /// Returns the prediction as JSON, with the names of [`csv_columns`] as keys.
    pub fn to_json(&self, schema: &Schema) -> Value {
        let classes = &schema.names.classes;
        let class_name = |class: Option<u32>| class.map(|class| name(classes, class as usize));
        let likely = |found: &ClassPrediction| match found.class {
            Some(class) => json_number(found.probabilities[class as usize]),
            None => Value::Null,
        };
        match self {
            Self::Regression(values) | Self::Probabilities(values) => {
                let named = csv_columns(schema)
                    .into_iter()
                    .zip(values.iter().map(|&value| json_number(value)));
                Value::Object(named.collect::<Map<String, Value>>())
            }
            Self::Class(found) => {
                let each = found.probabilities.iter().enumerate();
                let all: Map<String, Value> = each
                    .map(|(class, &probability)| (name(classes, class), json_number(probability)))
                    .collect();
                json!({ "class": class_name(found.class), "class_prob": likely(found), "probabilities": all })
            }
            Self::NodeClasses(nodes) => json!({
                "node_classes": nodes.iter().map(|node| class_name(node.class)).collect::<Vec<_>>(),
                "node_class_probs": nodes.iter().map(likely).collect::<Vec<_>>(),
            }),
            Self::SubTokens(tokens) => {
                json!({ "words": tokens.iter().map(|&token| class_name(Some(token))).collect::<Vec<_>>() })
            }
            Self::Links(links) => {
                let link = |link: &PredictedLink| json!({ "pair": link.pair, "prob": json_number(link.probability) });
                json!({ "links": links.iter().map(link).collect::<Vec<_>>() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::{FeatureSchema, Names};

    use super::*;

    fn schema(targets: TargetSchema, target_names: &[&str], classes: &[&str]) -> Schema {
        let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let names =
            Names { targets: strings(target_names), classes: strings(classes), ..Names::default() };
        Schema {
            node_features: FeatureSchema::None,
            edge_features: FeatureSchema::None,
            targets,
            names,
        }
    }

    #[test]
    fn cells_match_the_columns_of_the_schema() {
        let values = schema(TargetSchema::Regression(2), &["logp", "mass"], &[]);
        assert_eq!(csv_columns(&values), ["logp_pred", "mass_pred"]);
        assert_eq!(Prediction::Regression(vec![0.1, f32::NAN]).csv_cells(&values), ["0.1", ""]);
        let labels = schema(TargetSchema::Multilabel(1), &[], &[]);
        assert_eq!(csv_columns(&labels), ["prob"]);
        let classes = schema(TargetSchema::Multiclass(2), &["kind"], &["safe", "toxic"]);
        assert_eq!(csv_columns(&classes), ["class", "class_prob", "prob_safe", "prob_toxic"]);
        let found =
            Prediction::Class(ClassPrediction { class: Some(1), probabilities: vec![0.25, 0.75] });
        assert_eq!(found.csv_cells(&classes), ["toxic", "0.75", "0.25", "0.75"]);
        assert_eq!(
            found.to_json(&classes).to_string(),
            r#"{"class":"toxic","class_prob":0.75,"probabilities":{"safe":0.25,"toxic":0.75}}"#
        );
    }

    #[test]
    fn class_probabilities_do_not_overflow_for_large_logits() {
        // exp(0) : exp(ln 3) = 1 : 3.
        let found = ClassPrediction::of(&[1000.0, 1000.0 + 3.0_f32.ln()]);
        assert_eq!(found.class, Some(1));
        assert!((found.probabilities[1] - 0.75).abs() < 1e-4, "{found:?}");
        assert_eq!(ClassPrediction::of(&[f32::NAN, 1.0]).class, None);
    }
}
