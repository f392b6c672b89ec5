//! Saved models: checks before anything is allocated.

use std::time::{Duration, Instant};

use graph_diffuser::Device;
use graph_diffuser::explain::Explainer;
use graph_diffuser::predict::Predictor;
use graph_diffuser::pretrained::Pretrained;
use graph_diffuser::run::{SavedModel, SavedModelError};
use graph_diffuser_data::{FeatureSchema, Standardization, TargetKind, TargetSchema};

fn saved() -> SavedModel {
    let cache = tempfile::tempdir().expect("a temporary directory");
    let run = Pretrained::Zinc.open(cache.path()).expect("unpacked");
    run.saved_model().expect("readable")
}

#[test]
fn schema_of_a_huge_model_is_an_error_before_memory_is_allocated() {
    let mut saved = saved();
    saved.schema.schema.node_features = FeatureSchema::Categorical(vec![1 << 31]);
    let start = Instant::now();
    let error = Predictor::from_saved(&saved, &Device::flex()).expect_err("other shapes");
    assert!(error.to_string().contains("shape mismatch for tensor"), "{error}");
    assert!(Explainer::from_saved(&saved, 0, &Device::flex()).is_err());
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn weights_belong_to_the_schema_that_they_were_saved_with() {
    let mut saved = saved();
    Predictor::from_saved(&saved, &Device::flex()).expect("its own schema");
    let other = Standardization { mean: 1.0, std: 2.0 };
    saved.schema.schema.targets = TargetSchema::Graph(vec![TargetKind::Regression(other)]);
    let error = Predictor::from_saved(&saved, &Device::flex()).expect_err("another schema");
    assert!(matches!(error, SavedModelError::OtherSchema), "{error}");
}
