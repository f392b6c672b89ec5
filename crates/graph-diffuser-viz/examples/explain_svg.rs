//! Draws what a pretrained model attends to in a molecule.
//!
//! `cargo run --example explain_svg -- attention.svg` writes the figure to a file.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use graph_diffuser::Device;
use graph_diffuser::explain::Explainer;
use graph_diffuser::pretrained::Pretrained;
use graph_diffuser_viz::figure::{FigureView, draw_attention};

fn main() -> Result<(), Box<dyn Error>> {
    let cache = tempfile::tempdir()?; // or `DataDirs::from_env().cache`
    let saved = Pretrained::Zinc.open(cache.path())?.saved_model()?;
    let explainer = Explainer::from_saved(&saved, 0, &Device::flex())?;

    let molecule = explainer.molecule("CC(=O)Nc1ccc(O)cc1")?;
    let node = explainer.most_focused_node(&molecule);
    let trace = explainer.trace(&molecule, None, &[node]);
    let layer = trace.layers.len() - 1;
    let figure = draw_attention(&trace, FigureView { node, layer, head: None });

    let svg = figure.to_svg();
    println!("{}: {} bytes of SVG", figure.title(), svg.len());
    // As a test, the example is run with other arguments.
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    if let Some(path) = path.filter(|path| path.extension().is_some_and(|end| end == "svg")) {
        fs::write(path, svg)?;
    }
    Ok(())
}

#[test]
fn example_runs() {
    main().expect("the example runs");
}
