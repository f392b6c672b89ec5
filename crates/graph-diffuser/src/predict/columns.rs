//! Predictions as CSV cells and as JSON, with the target and class names of the training data.

use graph_diffuser_data::{Schema, TargetSchema};
use serde_json::{Map, Value, json};

use super::{ClassPrediction, Prediction};

/// Returns the name at `index`, or the index if there is no name.
fn name(names: &[String], index: usize) -> String {
    names.get(index).cloned().unwrap_or_else(|| index.to_string())
}

/// Returns the shortest JSON number that round-trips; `null` for NaN.
fn json_number(value: f32) -> Value {
    value.to_string().parse::<serde_json::Number>().map_or(Value::Null, Value::Number)
}

/// Returns the names of the columns that predictions add to a CSV file.
pub(super) fn columns(schema: &Schema) -> Vec<String> {
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

/// Returns the cells of a prediction, one per column of [`columns`].
pub(super) fn cells(prediction: &Prediction, schema: &Schema) -> Vec<String> {
    let plain = |value: &f32| if value.is_nan() { String::new() } else { value.to_string() };
    match prediction {
        Prediction::Regression(values) | Prediction::Probabilities(values) => {
            values.iter().map(plain).collect()
        }
        Prediction::Class(ClassPrediction { class, probabilities }) => {
            let class = class.map(|class| class as usize);
            let named = class.map_or(String::new(), |class| name(&schema.names.classes, class));
            let likely = class.map_or(String::new(), |class| plain(&probabilities[class]));
            [named, likely].into_iter().chain(probabilities.iter().map(plain)).collect()
        }
        Prediction::NodeClasses(_) | Prediction::SubTokens(_) | Prediction::Links(_) => {
            vec![to_json(prediction, schema).to_string()]
        }
    }
}

/// Returns a prediction as JSON, with the names of [`columns`] as keys.
pub(super) fn to_json(prediction: &Prediction, schema: &Schema) -> Value {
    let classes = &schema.names.classes;
    let class_name = |class: Option<u32>| class.map(|class| name(classes, class as usize));
    let likely = |found: &ClassPrediction| match found.class {
        Some(class) => json_number(found.probabilities[class as usize]),
        None => Value::Null,
    };
    match prediction {
        Prediction::Regression(values) | Prediction::Probabilities(values) => {
            let named =
                columns(schema).into_iter().zip(values.iter().map(|&value| json_number(value)));
            Value::Object(named.collect::<Map<String, Value>>())
        }
        Prediction::Class(found) => {
            let each = found.probabilities.iter().enumerate();
            let all: Map<String, Value> = each
                .map(|(class, &probability)| (name(classes, class), json_number(probability)))
                .collect();
            json!({ "class": class_name(found.class), "class_prob": likely(found), "probabilities": all })
        }
        Prediction::NodeClasses(nodes) => json!({
            "node_classes": nodes.iter().map(|node| class_name(node.class)).collect::<Vec<_>>(),
            "node_class_probs": nodes.iter().map(likely).collect::<Vec<_>>(),
        }),
        Prediction::SubTokens(tokens) => {
            json!({ "words": tokens.iter().map(|&token| class_name(Some(token))).collect::<Vec<_>>() })
        }
        Prediction::Links(links) => {
            let link = |link: &super::PredictedLink| json!({ "pair": link.pair, "prob": json_number(link.probability) });
            json!({ "links": links.iter().map(link).collect::<Vec<_>>() })
        }
    }
}

/// Quotes a CSV cell if necessary.
pub(super) fn csv_quote(cell: &str, delimiter: u8) -> String {
    let is_special = |byte: u8| byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r');
    if cell.bytes().any(is_special) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
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
        assert_eq!(columns(&values), ["logp_pred", "mass_pred"]);
        assert_eq!(cells(&Prediction::Regression(vec![0.1, f32::NAN]), &values), ["0.1", ""]);
        let labels = schema(TargetSchema::Multilabel(1), &[], &[]);
        assert_eq!(columns(&labels), ["prob"]);
        let classes = schema(TargetSchema::Multiclass(2), &["kind"], &["safe", "toxic"]);
        assert_eq!(columns(&classes), ["class", "class_prob", "prob_safe", "prob_toxic"]);
        let found =
            Prediction::Class(ClassPrediction { class: Some(1), probabilities: vec![0.25, 0.75] });
        assert_eq!(cells(&found, &classes), ["toxic", "0.75", "0.25", "0.75"]);
        assert_eq!(
            to_json(&found, &classes).to_string(),
            r#"{"class":"toxic","class_prob":0.75,"probabilities":{"safe":0.25,"toxic":0.75}}"#
        );
    }

    #[test]
    fn cell_is_quoted_only_if_necessary() {
        assert_eq!(csv_quote("a;b", b','), "a;b");
        assert_eq!(csv_quote("a,\"b\"", b','), "\"a,\"\"b\"\"\"");
    }
}
