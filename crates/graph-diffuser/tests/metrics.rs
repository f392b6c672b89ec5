//! By another hand: metrics against what scikit-learn, SciPy and OGB's evaluators gave.

use std::path::PathBuf;

use graph_diffuser::task::link_prediction::{LinkMetrics, RankingMetrics};
use graph_diffuser::task::multiclass::{accuracy, macro_f1};
use graph_diffuser::task::multilabel::{average_precision, roc_auc};
use graph_diffuser::task::regression::{mean_absolute_error, r2, root_mean_square_error, spearman};
use graph_diffuser::task::sub_tokens::TokenSetMetrics;
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Deserialize)]
struct Labels {
    columns: usize,
    predicted: Vec<f32>,
    targets: Vec<Option<f32>>,
    average_precision: Option<f64>,
    roc_auc: Option<f64>,
}

#[derive(Deserialize)]
struct Values {
    columns: usize,
    predicted: Vec<f32>,
    targets: Vec<Option<f32>>,
    mae: Option<f64>,
    rmse: Option<f64>,
    r2: Option<f64>,
    spearman: Option<f64>,
}

#[derive(Deserialize)]
struct Classes {
    predicted: Vec<Option<u32>>,
    targets: Vec<u32>,
    accuracy: f64,
    macro_f1: f64,
}

#[derive(Deserialize)]
struct Words {
    predicted: Vec<Vec<u32>>,
    references: Vec<Vec<u32>>,
    precision: f64,
    recall: f64,
    f1: f64,
}

#[derive(Deserialize)]
struct Links {
    width: usize,
    vectors: Vec<f32>,
    positives: Vec<[u32; 2]>,
    raw: Ranks,
    filtered: Ranks,
    filtered_no_self: Ranks,
}

#[derive(Deserialize)]
struct Ranks {
    mrr: f64,
    #[serde(rename = "hits@1")]
    hits_1: f64,
    #[serde(rename = "hits@3")]
    hits_3: f64,
    #[serde(rename = "hits@10")]
    hits_10: f64,
}

/// The recorded cases of one kind of metric.
fn recorded<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/metrics.json");
    let text = std::fs::read_to_string(path).expect("the fixture is in the tree");
    let mut all: serde_json::Value = serde_json::from_str(&text).expect("sound JSON");
    let cases: Vec<T> = serde_json::from_value(all[kind].take()).expect("cases of this kind");
    assert!(!cases.is_empty());
    cases
}

fn missing_as_nan(values: &[Option<f32>]) -> Vec<f32> {
    values.iter().map(|value| value.unwrap_or(f32::NAN)).collect()
}

/// `None` is a metric that is not defined.
#[track_caller]
fn assert_near(what: &str, case: usize, ours: f64, expected: Option<f64>) {
    let near = expected.map_or(ours.is_nan(), |expected| (ours - expected).abs() <= 1e-6);
    assert!(near, "{what} of case {case} is {ours}, not {expected:?}");
}

#[test]
fn metrics_of_labels_are_those_of_ogb() {
    for (case, recorded) in recorded::<Labels>("labels").into_iter().enumerate() {
        let targets = missing_as_nan(&recorded.targets);
        let ours = average_precision(&recorded.predicted, &targets, recorded.columns);
        assert_near("average precision", case, ours, recorded.average_precision);
        let ours = roc_auc(&recorded.predicted, &targets, recorded.columns);
        assert_near("the area", case, ours, recorded.roc_auc);
    }
}

#[test]
fn metrics_of_values_are_those_of_scikit_learn_scipy_and_ogb() {
    for (case, recorded) in recorded::<Values>("values").into_iter().enumerate() {
        let (predicted, targets, columns) =
            (&recorded.predicted, missing_as_nan(&recorded.targets), recorded.columns);
        assert_near("MAE", case, mean_absolute_error(predicted, &targets), recorded.mae);
        assert_near(
            "RMSE",
            case,
            root_mean_square_error(predicted, &targets, columns),
            recorded.rmse,
        );
        assert_near("R²", case, r2(predicted, &targets, columns), recorded.r2);
        assert_near("Spearman", case, spearman(predicted, &targets, columns), recorded.spearman);
    }
}

#[test]
fn metrics_of_classes_are_those_of_scikit_learn() {
    for (case, recorded) in recorded::<Classes>("classes").into_iter().enumerate() {
        let (predicted, targets) = (&recorded.predicted, &recorded.targets);
        assert_near("accuracy", case, accuracy(predicted, targets), Some(recorded.accuracy));
        assert_near("macro-F1", case, macro_f1(predicted, targets), Some(recorded.macro_f1));
    }
}

#[test]
fn metrics_of_words_are_those_of_ogb() {
    for (case, recorded) in recorded::<Words>("words").into_iter().enumerate() {
        let names = recorded.predicted.iter().zip(&recorded.references);
        let graphs: Vec<TokenSetMetrics> =
            names.map(|(ours, theirs)| TokenSetMetrics::of(ours, theirs)).collect();
        let mean = |of: fn(&TokenSetMetrics) -> f64| {
            graphs.iter().map(of).sum::<f64>() / graphs.len() as f64
        };
        assert_near("precision", case, mean(|graph| graph.precision), Some(recorded.precision));
        assert_near("recall", case, mean(|graph| graph.recall), Some(recorded.recall));
        assert_near("F1", case, mean(|graph| graph.f1), Some(recorded.f1));
    }
}

#[test]
fn ranks_of_links_are_those_of_ogb() {
    for (case, recorded) in recorded::<Links>("links").into_iter().enumerate() {
        let ours = LinkMetrics::of(&recorded.vectors, recorded.width, &recorded.positives)
            .expect("there are pairs");
        let compare = |what: &str, ours: RankingMetrics, expected: &Ranks| {
            assert_near(&format!("{what} MRR"), case, ours.mrr, Some(expected.mrr));
            for (hits, expected) in
                ours.hits.into_iter().zip([expected.hits_1, expected.hits_3, expected.hits_10])
            {
                assert_near(&format!("{what} hits"), case, hits, Some(expected));
            }
        };
        compare("raw", ours.raw, &recorded.raw);
        compare("filtered", ours.filtered, &recorded.filtered);
        compare("filtered, no self", ours.filtered_no_self, &recorded.filtered_no_self);
    }
}
