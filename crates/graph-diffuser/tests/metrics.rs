//! Metrics compared with recorded results of scikit-learn, SciPy and OGB's evaluators.

use std::path::PathBuf;

use graph_diffuser::task::binary::{average_precision, roc_auc};
use graph_diffuser::task::link_prediction::{LinkMetrics, RankingMetrics};
use graph_diffuser::task::multiclass::{accuracy, macro_f1};
use graph_diffuser::task::regression::{mean_absolute_error, r2, root_mean_square_error, spearman};
use graph_diffuser::task::sub_tokens::TokenSetMetrics;
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Deserialize)]
struct Labels {
    columns: usize,
    predicted: Vec<f64>,
    targets: Vec<Option<f64>>,
    average_precision: Option<f64>,
    roc_auc: Option<f64>,
}

#[derive(Deserialize)]
struct Values {
    columns: usize,
    predicted: Vec<f64>,
    targets: Vec<Option<f64>>,
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
struct SubTokens {
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

/// Returns the recorded cases of one kind of metric.
fn recorded<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/metrics.json");
    let text = std::fs::read_to_string(path).expect("a fixture");
    let mut all: serde_json::Value = serde_json::from_str(&text).expect("valid JSON");
    let cases: Vec<T> = serde_json::from_value(all[kind].take()).expect("cases of this kind");
    assert!(!cases.is_empty());
    cases
}

fn missing_as_nan(values: &[Option<f64>]) -> Vec<f64> {
    values.iter().map(|value| value.unwrap_or(f64::NAN)).collect()
}

/// Asserts that a metric equals the recorded one; `None` is an undefined metric (NaN).
#[track_caller]
fn assert_close(metric: &str, case: usize, actual: f64, expected: Option<f64>) {
    let close = expected.map_or(actual.is_nan(), |expected| (actual - expected).abs() <= 1e-6);
    assert!(close, "{metric} of case {case} is {actual}, expected {expected:?}");
}

#[test]
fn multilabel_metrics_match_ogb() {
    for (case, recorded) in recorded::<Labels>("labels").into_iter().enumerate() {
        let targets = missing_as_nan(&recorded.targets);
        let actual = average_precision(&recorded.predicted, &targets, recorded.columns);
        assert_close("average precision", case, actual, recorded.average_precision);
        let actual = roc_auc(&recorded.predicted, &targets, recorded.columns);
        assert_close("ROC-AUC", case, actual, recorded.roc_auc);
    }
}

#[test]
fn regression_metrics_match_scikit_learn_scipy_and_ogb() {
    for (case, recorded) in recorded::<Values>("values").into_iter().enumerate() {
        let (predicted, targets, columns) =
            (&recorded.predicted, missing_as_nan(&recorded.targets), recorded.columns);
        assert_close("MAE", case, mean_absolute_error(predicted, &targets), recorded.mae);
        assert_close(
            "RMSE",
            case,
            root_mean_square_error(predicted, &targets, columns),
            recorded.rmse,
        );
        assert_close("R²", case, r2(predicted, &targets, columns), recorded.r2);
        assert_close("Spearman", case, spearman(predicted, &targets, columns), recorded.spearman);
    }
}

#[test]
fn classification_metrics_match_scikit_learn() {
    for (case, recorded) in recorded::<Classes>("classes").into_iter().enumerate() {
        let (predicted, targets) = (&recorded.predicted, &recorded.targets);
        assert_close("accuracy", case, accuracy(predicted, targets), Some(recorded.accuracy));
        assert_close("macro-F1", case, macro_f1(predicted, targets), Some(recorded.macro_f1));
    }
}

#[test]
fn sub_token_metrics_match_ogb() {
    for (case, recorded) in recorded::<SubTokens>("words").into_iter().enumerate() {
        let names = recorded.predicted.iter().zip(&recorded.references);
        let graphs: Vec<TokenSetMetrics> =
            names.map(|(predicted, reference)| TokenSetMetrics::of(predicted, reference)).collect();
        let mean = |of: fn(&TokenSetMetrics) -> f64| {
            graphs.iter().map(of).sum::<f64>() / graphs.len() as f64
        };
        assert_close("precision", case, mean(|graph| graph.precision), Some(recorded.precision));
        assert_close("recall", case, mean(|graph| graph.recall), Some(recorded.recall));
        assert_close("F1", case, mean(|graph| graph.f1), Some(recorded.f1));
    }
}

#[test]
fn link_metrics_match_ogb() {
    for (case, recorded) in recorded::<Links>("links").into_iter().enumerate() {
        let actual = LinkMetrics::of(&recorded.vectors, recorded.width, &recorded.positives)
            .expect("positive pairs");
        let compare = |kind: &str, actual: RankingMetrics, expected: &Ranks| {
            assert_close(&format!("{kind} MRR"), case, actual.mrr, Some(expected.mrr));
            for (hits, expected) in
                actual.hits.into_iter().zip([expected.hits_1, expected.hits_3, expected.hits_10])
            {
                assert_close(&format!("{kind} hits"), case, hits, Some(expected));
            }
        };
        compare("raw", actual.raw, &recorded.raw);
        compare("filtered", actual.filtered, &recorded.filtered);
        compare("filtered, no self", actual.filtered_no_self, &recorded.filtered_no_self);
    }
}
