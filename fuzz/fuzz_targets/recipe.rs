//! Fuzzes recipes; an assignment may follow after a line `---`.
#![no_main]

use graph_diffuser::recipe::Recipe;
use graph_diffuser_data::Diagnostic as _;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (text, assignment) = text.split_once("\n---\n").unwrap_or((text, ""));
    let assignments = if assignment.is_empty() { vec![] } else { vec![assignment.to_owned()] };
    match Recipe::parse(text, "fuzz", &assignments) {
        Err(error) => drop((error.to_string(), error.hint())),
        Ok(recipe) => {
            let again = Recipe::parse(&recipe.to_toml(), "again", &[])
                .expect("a written recipe can be parsed");
            assert_eq!(recipe, again);
        }
    }
});
