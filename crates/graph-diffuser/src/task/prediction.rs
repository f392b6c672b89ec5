//! Predictions for single graphs, and their form in CSV and JSON output.

use graph_diffuser_data::{Schema, TargetKind, TargetSchema};
use serde_json::{Map, Value, json};

use super::multiclass::argmax;

/// Prediction for one graph.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// Graph-level targets.
    Graph(Vec<TargetPrediction>),
    /// Class of each node.
    NodeClasses(Vec<ClassPrediction>),
    /// Indices of the predicted sub-tokens in the vocabulary.
    SubTokens(Vec<u32>),
    /// Most probable links, in descending order of probability.
    Links(Vec<PredictedLink>),
}

/// Prediction of one graph-level target.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetPrediction {
    /// Value of a regression target.
    Value(f32),
    /// Probability of the positive class of a binary target.
    Probability(f32),
    /// Class of a multi-class target.
    Class(ClassPrediction),
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
    pub(crate) fn of(logits: &[f32]) -> Self {
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
pub(crate) fn sigmoid(value: f64) -> f32 {
    (1.0 / (1.0 + (-value).exp())) as f32
}

/// Returns the shortest JSON number that round-trips; `null` for NaN.
fn json_number(value: f32) -> Value {
    value.to_string().parse::<serde_json::Number>().map_or(Value::Null, Value::Number)
}

/// Returns the names of the columns that predictions add to a CSV file.
///
/// `NAME_pred` holds the value of a regression target or the class of a target with class names,
/// `NAME_prob` the probability of the positive class of a binary target, and `NAME_prob_CLASS` the
/// probability of each class of a multi-class target.
pub fn csv_columns(schema: &Schema) -> Vec<String> {
    let TargetSchema::Graph(kinds) = &schema.targets else { return vec!["prediction".into()] };
    let columns = |(target, kind): (usize, &TargetKind)| {
        let name = schema.names.target(target, kinds.len());
        let class = |class: usize| format!("{name}_prob_{}", schema.names.class(target, class));
        match kind {
            TargetKind::Regression(_) => vec![format!("{name}_pred")],
            TargetKind::Binary if schema.names.classes(target).is_empty() => {
                vec![format!("{name}_prob")]
            }
            TargetKind::Binary => vec![format!("{name}_pred"), format!("{name}_prob")],
            TargetKind::Multiclass(count) => {
                [format!("{name}_pred")].into_iter().chain((0..*count).map(class)).collect()
            }
        }
    };
    kinds.iter().enumerate().flat_map(columns).collect()
}

impl TargetPrediction {
    /// Returns the values of the columns of target `target` in [`csv_columns`].
    fn values(&self, schema: &Schema, target: usize) -> Vec<Value> {
        let names = &schema.names;
        match self {
            Self::Value(value) => vec![json_number(*value)],
            Self::Probability(probability) if names.classes(target).is_empty() => {
                vec![json_number(*probability)]
            }
            Self::Probability(probability) if probability.is_nan() => {
                vec![Value::Null, Value::Null]
            }
            Self::Probability(probability) => {
                let class = names.class(target, usize::from(*probability > 0.5));
                vec![class.into(), json_number(*probability)]
            }
            Self::Class(ClassPrediction { class, probabilities }) => {
                let class = class.map(|class| names.class(target, class as usize));
                let probabilities = probabilities.iter().map(|&value| json_number(value));
                [class.into()].into_iter().chain(probabilities).collect()
            }
        }
    }
}

impl TargetPrediction {
    /// Returns whether no value is NaN or infinite.
    pub fn is_finite(&self) -> bool {
        match self {
            Self::Value(value) | Self::Probability(value) => value.is_finite(),
            Self::Class(prediction) => prediction.is_finite(),
        }
    }
}

impl ClassPrediction {
    /// Returns whether no probability is NaN or infinite.
    pub fn is_finite(&self) -> bool {
        self.class.is_some() && self.probabilities.iter().all(|value| value.is_finite())
    }
}

impl Prediction {
    /// Returns whether no value is NaN or infinite.
    pub fn is_finite(&self) -> bool {
        match self {
            Self::Graph(targets) => targets.iter().all(TargetPrediction::is_finite),
            Self::NodeClasses(nodes) => nodes.iter().all(ClassPrediction::is_finite),
            Self::SubTokens(_) => true,
            Self::Links(links) => links.iter().all(|link| link.probability.is_finite()),
        }
    }

    /// Returns the cells of the prediction in a CSV file, one per column of [`csv_columns`].
    pub fn csv_cells(&self, schema: &Schema) -> Vec<String> {
        let cell = |value: Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text,
            other => other.to_string(),
        };
        match self {
            Self::Graph(_) => self.values(schema).into_iter().map(cell).collect(),
            Self::NodeClasses(_) | Self::SubTokens(_) | Self::Links(_) => {
                vec![self.to_json(schema).to_string()]
            }
        }
    }

    /// Returns the prediction as JSON, with the names of [`csv_columns`] as keys.
    pub fn to_json(&self, schema: &Schema) -> Value {
        let class_name =
            |class: Option<u32>| class.map(|class| schema.names.class(0, class as usize));
        match self {
            Self::Graph(_) => {
                let named = csv_columns(schema).into_iter().zip(self.values(schema));
                Value::Object(named.collect::<Map<String, Value>>())
            }
            Self::NodeClasses(nodes) => {
                let likely = |found: &ClassPrediction| match found.class {
                    Some(class) => json_number(found.probabilities[class as usize]),
                    None => Value::Null,
                };
                json!({
                    "node_classes": nodes.iter().map(|node| class_name(node.class)).collect::<Vec<_>>(),
                    "node_class_probs": nodes.iter().map(likely).collect::<Vec<_>>(),
                })
            }
            Self::SubTokens(tokens) => {
                json!({ "words": tokens.iter().map(|&token| class_name(Some(token))).collect::<Vec<_>>() })
            }
            Self::Links(links) => {
                let link = |link: &PredictedLink| json!({ "pair": link.pair, "prob": json_number(link.probability) });
                json!({ "links": links.iter().map(link).collect::<Vec<_>>() })
            }
        }
    }

    /// Returns the values of the columns of graph-level targets.
    fn values(&self, schema: &Schema) -> Vec<Value> {
        let Self::Graph(targets) = self else { return Vec::new() };
        let values = targets.iter().enumerate();
        values.flat_map(|(target, prediction)| prediction.values(schema, target)).collect()
    }
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::{FeatureSchema, Names, Standardization};

    use super::*;

    fn schema(targets: TargetSchema, target_names: &[&str], classes: &[&[&str]]) -> Schema {
        let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let names = Names {
            targets: strings(target_names),
            classes: classes.iter().map(|names| strings(names)).collect(),
            ..Names::default()
        };
        Schema {
            node_features: FeatureSchema::None,
            edge_features: FeatureSchema::None,
            targets,
            names,
        }
    }

    #[test]
    fn cells_match_the_columns_of_the_schema() {
        let kinds = [
            TargetKind::Regression(Standardization::IDENTITY),
            TargetKind::Binary,
            TargetKind::Binary,
            TargetKind::Multiclass(2),
        ];
        let mixed = schema(
            TargetSchema::Graph(kinds.to_vec()),
            &["logp", "toxic", "active", "class"],
            &[&[], &[], &["no", "yes"], &["A", "B"]],
        );
        let columns = [
            "logp_pred",
            "toxic_prob",
            "active_pred",
            "active_prob",
            "class_pred",
            "class_prob_A",
            "class_prob_B",
        ];
        assert_eq!(csv_columns(&mixed), columns);
        let class = ClassPrediction { class: Some(1), probabilities: vec![0.25, 0.75] };
        let prediction = Prediction::Graph(vec![
            TargetPrediction::Value(0.1),
            TargetPrediction::Probability(0.5),
            TargetPrediction::Probability(0.75),
            TargetPrediction::Class(class),
        ]);
        let cells = ["0.1", "0.5", "yes", "0.75", "B", "0.25", "0.75"];
        assert_eq!(prediction.csv_cells(&mixed), cells);
        assert_eq!(prediction.to_json(&mixed)["class_pred"], "B");
        let unnamed = schema(TargetSchema::binary(1), &[], &[]);
        assert_eq!(csv_columns(&unnamed), ["target_prob"]);
        let two = schema(TargetSchema::regression(2), &[], &[]);
        assert_eq!(csv_columns(&two), ["target_0_pred", "target_1_pred"]);
        let nan = Prediction::Graph(vec![TargetPrediction::Value(f32::NAN); 2]);
        assert_eq!(nan.csv_cells(&two), ["", ""]);
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
