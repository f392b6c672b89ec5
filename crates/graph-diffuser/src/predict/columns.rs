//! Predictions as cells of a table and as JSON, under the names of the training data.

use graph_diffuser_data::{Schema, TargetSchema};
use serde_json::{Map, Value, json};

use super::{ClassPrediction, Prediction};

/// A name, or the number where there is none.
fn name(names: &[String], number: usize) -> String {
    names.get(number).cloned().unwrap_or_else(|| number.to_string())
}

/// A number of single precision as short as it can be written; JSON has no NaN.
fn number(value: f32) -> Value {
    value.to_string().parse::<serde_json::Number>().map_or(Value::Null, Value::Number)
}

/// What the columns are called that a prediction adds to a table.
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

/// The cells of a prediction, one for each of [`columns`].
pub(super) fn cells(prediction: &Prediction, schema: &Schema) -> Vec<String> {
    let plain = |value: &f32| if value.is_nan() { String::new() } else { value.to_string() };
    match prediction {
        Prediction::Values(values) | Prediction::Probabilities(values) => {
            values.iter().map(plain).collect()
        }
        Prediction::Class(ClassPrediction { class, probabilities }) => {
            let class = class.map(|class| class as usize);
            let named = class.map_or(String::new(), |class| name(&schema.names.classes, class));
            let likely = class.map_or(String::new(), |class| plain(&probabilities[class]));
            [named, likely].into_iter().chain(probabilities.iter().map(plain)).collect()
        }
        Prediction::NodeClasses(_) | Prediction::Words(_) | Prediction::Links(_) => {
            vec![to_json(prediction, schema).to_string()]
        }
    }
}

/// A prediction under the same names.
pub(super) fn to_json(prediction: &Prediction, schema: &Schema) -> Value {
    let classes = &schema.names.classes;
    let class_name = |class: Option<u32>| class.map(|class| name(classes, class as usize));
    let likely = |found: &ClassPrediction| match found.class {
        Some(class) => number(found.probabilities[class as usize]),
        None => Value::Null,
    };
    match prediction {
        Prediction::Values(values) | Prediction::Probabilities(values) => {
            let named = columns(schema).into_iter().zip(values.iter().map(|&value| number(value)));
            Value::Object(named.collect::<Map<String, Value>>())
        }
        Prediction::Class(found) => {
            let each = found.probabilities.iter().enumerate();
            let all: Map<String, Value> =
                each.map(|(class, &share)| (name(classes, class), number(share))).collect();
            json!({ "class": class_name(found.class), "class_prob": likely(found), "probabilities": all })
        }
        Prediction::NodeClasses(nodes) => json!({
            "node_classes": nodes.iter().map(|node| class_name(node.class)).collect::<Vec<_>>(),
            "node_class_probs": nodes.iter().map(likely).collect::<Vec<_>>(),
        }),
        Prediction::Words(words) => {
            json!({ "words": words.iter().map(|&word| class_name(Some(word))).collect::<Vec<_>>() })
        }
        Prediction::Links(links) => {
            let link = |link: &super::PredictedLink| json!({ "pair": link.pair, "prob": number(link.probability) });
            json!({ "links": links.iter().map(link).collect::<Vec<_>>() })
        }
    }
}

/// A cell as it is written into a table.
pub(super) fn quoted(cell: &str, delimiter: u8) -> String {
    let special = |byte: u8| byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r');
    if cell.bytes().any(special) {
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
    fn columns_and_cells_belong_together() {
        let values = schema(TargetSchema::Regression(2), &["logp", "mass"], &[]);
        assert_eq!(columns(&values), ["logp_pred", "mass_pred"]);
        assert_eq!(cells(&Prediction::Values(vec![0.1, f32::NAN]), &values), ["0.1", ""]);
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
    fn a_cell_is_quoted_where_it_must_be() {
        assert_eq!(quoted("a;b", b','), "a;b");
        assert_eq!(quoted("a,\"b\"", b','), "\"a,\"\"b\"\"\"");
    }
}
