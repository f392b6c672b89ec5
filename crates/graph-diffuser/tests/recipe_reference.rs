//! The committed recipe reference equals what the config types generate.

use std::path::Path;

use graph_diffuser::recipe::Recipe;

#[test]
fn committed_recipe_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/recipe-reference.md");
    let generated = Recipe::reference();
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "docs/guide/recipe-reference.md is out of date; update it with \
         `graph-diffuser recipe reference > docs/guide/recipe-reference.md`"
    );
}
