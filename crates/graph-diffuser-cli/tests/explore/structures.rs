//! Tests of drawn graphs and long lists in a browser; skipped with a message if none is installed.

use std::fs;

use serde_json::json;

use crate::TestDir;
use crate::browser::Browser;
use crate::pages::{FITS, READY, assert_no_errors};

/// Settings of a model that is trained in seconds.
const TINY: [&str; 5] = [
    "model.hidden_dim=8",
    "model.layers=1",
    "model.virtual_edges.num_steps=3",
    "train.epochs=1",
    "train.batch_size=4",
];

/// Returns the number of pairs of edges without a common node whose straight lines cross.
const CROSSINGS: &str = "(() => {
    const lines = graphFigure.edges.map(({ pair, from, to }) => ({ ends: pair.ends, from, to }));
    const side = ([a, b], [c, d], [e, f]) => Math.sign((c - a) * (f - b) - (d - b) * (e - a));
    const cross = (p, q) => !p.ends.some((end) => q.ends.includes(end)) &&
        side(p.from, p.to, q.from) !== side(p.from, p.to, q.to) &&
        side(q.from, q.to, p.from) !== side(q.from, q.to, p.to);
    return lines.flatMap((p, i) => lines.slice(i + 1).filter((q) => cross(p, q))).length;
})()";

#[test]
fn directed_edges_have_arrows_and_rings_have_no_crossings() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    // The first test graph is a directed path, the second an undirected hexagon.
    let path = r#""edges": [[0, 1], [1, 2], [2, 3]], "directed": true"#;
    let ring = r#""edges": [[0, 3], [3, 1], [1, 5], [5, 2], [2, 4], [4, 0]]"#;
    let graph = |edges: &str, nodes: usize, split: &str, target: usize| {
        format!("{{\"nodes\": {nodes}, {edges}, \"target\": {target}.5, \"split\": \"{split}\"}}\n")
    };
    let splits = ["train", "train", "train", "valid", "test"];
    let lines: String = splits
        .iter()
        .enumerate()
        .map(|(index, split)| graph(path, 4, split, index) + &graph(ring, 6, split, index + 1))
        .collect();
    fs::write(dir.path("mine.jsonl"), lines).expect("the directory is writable");
    dir.train("mine.jsonl", &TINY);
    let explorer = dir.explore(&[]);
    browser.resize(1440, 900);
    browser.open(&explorer.address);
    browser.wait_for(READY);
    assert_eq!(browser.text("#graph"), "Graph 8");
    assert_eq!(browser.evaluate("graphFigure.edges.length"), 3);
    let arrows = "document.querySelectorAll('#graph-stage .arrow').length";
    assert_eq!(browser.evaluate(arrows), 3);
    // Each arrow ends at the circle of the target: its tip is nearer to it than to the source.
    let tips = "graphFigure.edges.every(({ pair, lines }) => {
        const [{ source, target }] = pair.weights;
        const tip = lines.querySelector('.arrow').points[0];
        const distance = (node) => { const [x, y] = graphFigure.coordinates.get(node); return Math.hypot(x - tip.x, y - tip.y); };
        return target === source + 1 && distance(target) < distance(source) && distance(target) >= graphFigure.radius;
    })";
    assert_eq!(browser.evaluate(tips), true);
    browser.screenshot("directed-1440");
    browser.press("n");
    browser.wait_for("$('graph').textContent === 'Graph 9' && graphFigure.edges.length === 6");
    assert_eq!(browser.evaluate(arrows), 0);
    assert_eq!(browser.evaluate(CROSSINGS), 0);
    browser.screenshot("hexagon-1440");
    assert_no_errors(&mut browser);
}

#[test]
fn atoms_have_symbols_inside_their_circles_and_bonds_their_order() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    dir.train_molecules();
    let explorer = dir.explore(&[]);
    browser.resize(1440, 900);
    // Glycine as a zwitterion, with a nitrile and a double bond.
    let smiles = "[NH3%2B]C(CC%23N)C(=O)[O-]";
    browser.open(&format!("{}#smiles={smiles}", explorer.address));
    browser.wait_for(READY);
    assert_eq!(browser.text("#error"), "");
    let labels =
        "[...document.querySelectorAll('#graph-stage .node text')].map((text) => text.textContent)";
    let labels = browser.evaluate(labels).to_string();
    for label in ["N+", "O-", "\"C\"", "\"N\""] {
        assert!(
            labels.replace('⁺', "+").replace(['⁻', '−'], "-").contains(label),
            "{label}: {labels}"
        );
    }
    let fits = "[...document.querySelectorAll('#graph-stage .node')].every((node) => {
        const [text, circle] = [node.querySelector('text'), node.querySelector('circle')];
        return !text || text.getComputedTextLength() <= 2 * circle.r.baseVal.value;
    })";
    assert_eq!(browser.evaluate(fits), true, "{labels}");
    // One transparent line per bond receives the pointer.
    let orders = "graphFigure.edges.map(({ lines }) => lines.querySelectorAll('line.edge').length).sort().join('')";
    assert_eq!(browser.evaluate(orders), "1111123");
    browser.screenshot("charges-1440");
    assert_no_errors(&mut browser);
}

#[test]
fn long_lists_of_targets_are_collapsed() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    let names: Vec<String> = (0..14).map(|target| format!("value{target}")).collect();
    dir.train_table(&format!("smiles,{}", names.join(",")), |row, smiles| {
        let values = (0..14).map(|target| format!(",{}.5", (row + target) % 4));
        smiles.to_owned() + &values.collect::<String>()
    });
    let explorer = dir.explore(&["--split", "train"]);
    browser.open(&explorer.address);
    browser.wait_for(READY);
    let count = "document.querySelectorAll('#outcome table.values tr:has(td)').length";
    assert_eq!(browser.evaluate(count), 12);
    assert_eq!(browser.text("#more-targets"), "Show all 14 targets");
    browser.click("#more-targets");
    browser.wait_for(&format!("{count} === 14"));
    assert_eq!(browser.text("#more-targets"), "Show fewer targets");
    browser.click("#more-targets");
    browser.wait_for(&format!("{count} === 12"));
    browser.resize(390, 844);
    browser.wait_for(FITS);
    assert_no_errors(&mut browser);

    // The report shows plots of six targets, and those of the others on request.
    let output = dir.run(&["report", "run", "-o", "report"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    browser.open(&format!("file://{}", dir.path("report/report.html").display()));
    let targets = |state: &str| format!("document.querySelectorAll('{state} h4').length");
    let all = browser.evaluate(&targets("section"));
    assert_eq!(browser.evaluate(&targets("details")), json!(all.as_u64().unwrap_or(0) - 6));
    assert!(all.as_u64() > Some(6), "{all}");
}

#[test]
fn default_export_of_the_pretrained_grid_is_small_and_opens() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = TestDir::new();
    let output = dir.run(&["explore", "--pretrained", "grid", "-o", "grid.html"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let bytes = fs::metadata(dir.path("grid.html")).expect("the page is written").len();
    assert!(bytes < 3_000_000, "{bytes} bytes");
    browser.open(&format!("file://{}", dir.path("grid.html").display()));
    browser.wait_for("document.querySelectorAll('#equations .panel .body').length > 0");
    assert_eq!(
        browser.evaluate("run.graphs.length > 0 && scores.size === run.graphs.length"),
        true
    );
    assert_eq!(browser.evaluate("$('live').hidden"), true);
    assert_no_errors(&mut browser);
}
