//! Prediction for a row of a file: the average of all models, its spread and its domain.

use graph_diffuser_data::{Schema, TargetSchema};
use serde_json::{Value, json};

use crate::domain::DomainCheck;
use crate::statistics::MeanStd;
use crate::task::{ClassPrediction, Prediction, TargetPrediction, csv_columns};

/// Column of the similarity to the nearest training molecule.
const SIMILARITY: &str = "nearest_train_similarity";

/// Prediction for one graph, with the spread over the members of an ensemble.
#[derive(Debug, Clone, PartialEq)]
pub struct RowPrediction {
    /// Prediction of the model, or of the average of an ensemble.
    pub prediction: Prediction,
    /// Sample standard deviation over the members of an ensemble for each graph-level target: of
    /// the value, of the probability of the positive class, or of the predicted class; empty for a
    /// single model and for other tasks.
    pub std: Vec<f32>,
    /// Comparison with the training molecules, if they are known.
    pub domain: Option<DomainCheck>,
    /// False if an output of a model is NaN or infinite.
    pub is_finite: bool,
}

impl RowPrediction {
    /// Creates the prediction of an average from the predictions of the members, which are empty
    /// for a single model.
    pub(super) fn new(prediction: Prediction, members: &[&Prediction]) -> Self {
        let std = match &prediction {
            Prediction::Graph(targets) if !members.is_empty() => {
                let std = |(target, average): (usize, &TargetPrediction)| {
                    let values: Vec<f64> =
                        members.iter().map(|member| value(member, target, average)).collect();
                    MeanStd::new(&values).and_then(|stats| stats.std).unwrap_or(f64::NAN) as f32
                };
                targets.iter().enumerate().map(std).collect()
            }
            _ => Vec::new(),
        };
        let is_finite = prediction.is_finite();
        Self { prediction, std, domain: None, is_finite }
    }
}

/// Returns the quantity of a member whose spread is reported.
fn value(member: &Prediction, target: usize, average: &TargetPrediction) -> f64 {
    let Prediction::Graph(targets) = member else { return f64::NAN };
    let value = match (&targets[target], average) {
        (TargetPrediction::Value(value) | TargetPrediction::Probability(value), _) => *value,
        (
            TargetPrediction::Class(member),
            TargetPrediction::Class(ClassPrediction { class: Some(class), .. }),
        ) => member.probabilities[*class as usize],
        (TargetPrediction::Class(_), _) => f32::NAN,
    };
    f64::from(value)
}

/// Columns that predictions add to a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowColumns<'a> {
    pub(super) schema: &'a Schema,
    /// True for ensembles, which add `NAME_std` for every graph-level target.
    pub(super) std: bool,
    /// Adds the similarity to the nearest training molecule.
    pub(super) similarity: bool,
}

impl RowColumns<'_> {
    /// Returns the names of the columns.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names = csv_columns(self.schema);
        names.extend(self.std_names());
        names.extend(self.similarity.then(|| SIMILARITY.to_owned()));
        names
    }

    fn std_names(&self) -> Vec<String> {
        match &self.schema.targets {
            TargetSchema::Graph(kinds) if self.std => (0..kinds.len())
                .map(|target| format!("{}_std", self.schema.names.target(target, kinds.len())))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the cells of a row, one per column; empty cells without a prediction.
    pub(super) fn cells(&self, row: Option<&RowPrediction>) -> Vec<String> {
        let Some(row) = row else { return vec![String::new(); self.names().len()] };
        let mut cells = row.prediction.csv_cells(self.schema);
        cells.extend(row.std.iter().map(|&std| number(f64::from(std), || std.to_string())));
        if self.similarity {
            let similarity = row.domain.map_or(f64::NAN, |domain| domain.similarity);
            cells.push(number(similarity, || format!("{similarity:.4}")));
        }
        cells
    }

    /// Returns the prediction of a row as JSON, with the names of the columns as keys.
    pub(super) fn json(&self, row: Option<&RowPrediction>) -> Value {
        let Some(row) = row else { return Value::Null };
        let mut value = row.prediction.to_json(self.schema);
        if let Value::Object(object) = &mut value {
            for (name, std) in self.std_names().into_iter().zip(&row.std) {
                object.insert(
                    name,
                    number(f64::from(*std), || std.to_string()).parse().unwrap_or(Value::Null),
                );
            }
            if let (true, Some(domain)) = (self.similarity, row.domain) {
                object
                    .insert(SIMILARITY.to_owned(), json!((domain.similarity * 1e4).round() / 1e4));
            }
        }
        value
    }
}

/// Returns an empty cell for NaN.
fn number(value: f64, format: impl FnOnce() -> String) -> String {
    if value.is_nan() { String::new() } else { format() }
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::{FeatureSchema, Names, Standardization, TargetKind};

    use super::*;

    fn class(class: u32, probabilities: [f32; 2]) -> TargetPrediction {
        TargetPrediction::Class(ClassPrediction {
            class: Some(class),
            probabilities: probabilities.to_vec(),
        })
    }

    fn schema() -> Schema {
        let kinds = vec![
            TargetKind::Regression(Standardization::IDENTITY),
            TargetKind::Binary,
            TargetKind::Multiclass(2),
        ];
        Schema {
            node_features: FeatureSchema::None,
            edge_features: FeatureSchema::None,
            targets: TargetSchema::Graph(kinds),
            names: Names { targets: vec!["y".into(), "b".into(), "c".into()], ..Names::default() },
        }
    }

    #[test]
    fn std_is_that_of_values_and_probabilities() {
        let member = |value, probability, last| {
            let targets = vec![
                TargetPrediction::Value(value),
                TargetPrediction::Probability(probability),
                last,
            ];
            Prediction::Graph(targets)
        };
        let members =
            [member(1.0, 0.25, class(0, [0.75, 0.25])), member(3.0, 0.75, class(1, [0.25, 0.75]))];
        let average = member(2.0, 0.5, class(0, [0.5, 0.5]));
        let mut row = RowPrediction::new(average, &[&members[0], &members[1]]);
        // The sample standard deviation of two values is their difference over the root of two.
        let half = (0.5 / 2.0_f64.sqrt()) as f32;
        assert_eq!(row.std, [2.0_f64.sqrt() as f32, half, half]);
        row.domain = Some(DomainCheck { similarity: 0.123_456, has_unusual_size: false });
        let schema = schema();
        let columns = RowColumns { schema: &schema, std: true, similarity: true };
        let names = columns.names();
        assert_eq!(names[names.len() - 4..], ["y_std", "b_std", "c_std", SIMILARITY]);
        let cells = columns.cells(Some(&row));
        assert_eq!(cells.len(), names.len());
        assert_eq!(cells.last().map(String::as_str), Some("0.1235"));
        assert_eq!(columns.cells(None), vec![""; names.len()]);
        let json = columns.json(Some(&row));
        assert_eq!((&json["y_pred"], &json[SIMILARITY]), (&json!(2), &json!(0.1235)));
        assert_eq!(json["y_std"], "1.4142135".parse::<f64>().expect("a number"));
    }

    #[test]
    fn single_models_have_no_std() {
        let row = RowPrediction::new(Prediction::Graph(vec![TargetPrediction::Value(1.0)]), &[]);
        assert!(row.std.is_empty());
        let schema = schema();
        let columns = RowColumns { schema: &schema, std: false, similarity: false };
        assert_eq!(columns.names(), csv_columns(&schema));
    }
}
