//! The explorer as one file that needs no server and no network.

use std::sync::atomic::{AtomicBool, Ordering};

use graph_diffuser::explain::ExplainError;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Explorer, Question, TraceQuestion, page};

/// Graphs of a file when nobody says how many, as long as they fit.
pub(crate) const USUAL_GRAPHS: usize = 30;
/// Bytes of traces after which such a file has no more graphs.
const USUAL_BYTES: usize = 12 << 20;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A page, and how many graphs are in it.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) html: String,
    pub(crate) graphs: usize,
}

/// The page with the listed graphs in it; where `as_fits`, with as many as make no file too large.
///
/// Nothing where `stop` was set before it was done.
pub(crate) fn export(
    explorer: &mut Explorer<'_>,
    as_fits: bool,
    stop: &AtomicBool,
) -> Result<Option<Export>, ExplainError> {
    let stopped = || stop.load(Ordering::SeqCst);
    while !stopped() && explorer.score_some() {}
    let mut traces = Vec::new();
    let mut bytes = 0;
    for &number in explorer.numbers() {
        if stopped() {
            return Ok(None);
        }
        let trace = packed_graph(explorer, number)?;
        bytes += trace.len();
        if as_fits && bytes > USUAL_BYTES && !traces.is_empty() {
            break;
        }
        traces.push(trace);
    }
    let kept = &explorer.numbers()[..traces.len()];
    let read =
        |text: String| serde_json::from_str::<Value>(&text).expect("it was written a moment ago");
    let mut introduction = read(explorer.answer(&Question::Introduction)?);
    let mut scores = read(explorer.answer(&Question::EvalMetrics(0))?);
    round(&mut scores);
    if let Some(graphs) = introduction["graphs"].as_array_mut() {
        graphs.truncate(kept.len());
    }
    if let Some(scores) = scores["scores"].as_array_mut() {
        scores.retain(|score| {
            score["number"].as_u64().is_some_and(|number| kept.contains(&(number as usize)))
        });
    }
    scores["all"] = json!(kept.len());
    let data =
        format!("{{\"run\":{introduction},\"scores\":{scores},\"traces\":[{}]}}", traces.join(","));
    Ok(Some(Export { html: assemble(&data), graphs: kept.len() }))
}

fn packed_graph(explorer: &Explorer<'_>, number: usize) -> Result<String, ExplainError> {
    let first = TraceQuestion { graph: Some(number), places: true, ..TraceQuestion::default() };
    let drawn = explorer.draw(&first)?;
    let telling = drawn.telling;
    let rows = explorer.explainer.default_rows(&explorer.explainer.dataset().graphs.get(number));
    let drawn =
        if rows.len() > 1 { explorer.draw(&TraceQuestion { rows, ..first })? } else { drawn };
    let mut value = serde_json::to_value(drawn).expect("plain data serialises");
    value["telling"] = json!(telling);
    // Nothing in a file can be asked for later.
    value["whole"] = json!(true);
    pack(&mut value);
    round(&mut value);
    Ok(value.to_string())
}

/// Writes rows of weights as text. The page makes averages of heads, and attention where it has both its parts.
fn pack(drawn: &mut Value) {
    let trace = &mut drawn["trace"];
    for layer in trace["layers"].as_array_mut().into_iter().flatten() {
        layer["mean"] = Value::Null;
        for head in layer["heads"].as_array_mut().into_iter().flatten() {
            if !head["position"].is_null() && !head["content"].is_null() {
                head["attention"] = Value::Null;
            }
            for part in ["position", "content", "attention"] {
                head[part].as_array_mut().into_iter().flatten().for_each(pack_row);
            }
        }
    }
    for row in trace["walks"].as_array_mut().into_iter().flatten() {
        row.as_array_mut().into_iter().flatten().for_each(pack_row);
    }
}

/// `[most, digits]`: two digits of base 64 a number, its root as a share of the root of the largest.
///
/// A number is right to a four-thousandth of the largest, and a small one to a few thousandths of itself.
fn pack_row(row: &mut Value) {
    let weights: Vec<f64> =
        row.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    let most = weights.iter().copied().fold(1e-30, f64::max);
    let digits = weights.iter().flat_map(|weight| {
        let share = (4095.0 * (weight / most).max(0.0).sqrt()).round() as usize;
        [share / 64, share % 64].map(|digit| char::from(DIGITS[digit]))
    });
    *row = json!([most, digits.collect::<String>()]);
}

/// Four digits of every number that is not whole.
fn round(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let short =
                number.as_f64().and_then(|number| format!("{number:.3e}").parse::<f64>().ok());
            *value = short.map_or(Value::Null, |short| json!(short));
        }
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Object(values) => values.values_mut().for_each(round),
        _ => {}
    }
}

/// The files of the page in one, with the data; a policy names its style and script and forbids all else.
fn assemble(data: &str) -> String {
    let style = page::STYLE;
    let scripts = page::SCRIPTS.map(|(_, script)| script).concat();
    let policy = format!(
        "default-src 'none'; img-src data:; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; \
         form-action 'none'",
        base_64(&Sha256::digest(scripts.as_bytes())),
        base_64(&Sha256::digest(style.as_bytes()))
    );
    let mut html = page::HTML.to_owned();
    for (path, _) in page::SCRIPTS {
        html = html.replace(&format!("  <script src=\"{path}\" defer></script>\n"), "");
    }
    // A closing tag inside a string would end the element; so would a comment keep it open.
    let data = data.replace('<', "\\u003c");
    html.replace(
        "  <link rel=\"stylesheet\" href=\"/style.css\">\n",
        &format!("  <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n  <style>{style}</style>\n"),
    )
    .replace(
        "</body>",
        &format!("<script type=\"application/json\" id=\"data\">{data}</script>\n<script>{scripts}</script>\n</body>"),
    )
}

fn base_64(bytes: &[u8]) -> String {
    let digit = |place: u32| match char::from(DIGITS[place as usize % 64]) {
        '-' => '+',
        '_' => '/',
        other => other,
    };
    let of_three = |three: &[u8]| {
        let bits = three
            .iter()
            .chain([&0, &0])
            .take(3)
            .fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte));
        let letters = [18, 12, 6, 0].map(|shift| digit(bits >> shift));
        let used = three.len() + 1;
        letters.into_iter().take(used).chain(std::iter::repeat_n('=', 4 - used)).collect::<String>()
    };
    bytes.chunks(3).map(of_three).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_64_is_that_of_everybody() {
        let written =
            ["", "f", "fo", "foo", "foob", "\u{fb}\u{f0}"].map(|text| base_64(text.as_bytes()));
        assert_eq!(written, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "w7vDsA=="]);
    }

    #[test]
    fn packed_numbers_are_nearly_the_same() {
        let weights = [0.0, 0.001, 0.02, 0.3, 0.31];
        let mut row = json!(weights);
        pack_row(&mut row);
        let digits = row[1].as_str().unwrap().as_bytes();
        let place = |digit: u8| DIGITS.iter().position(|&other| other == digit).unwrap() as f64;
        for (pair, weight) in digits.chunks(2).zip(weights) {
            let share = (64.0 * place(pair[0]) + place(pair[1])) / 4095.0;
            assert!((share * share * 0.31 - weight).abs() <= 0.005 * weight, "{weight}");
        }
        let mut numbers = json!({"a": [0.123_456, 7, "x"], "b": 12345.678});
        round(&mut numbers);
        assert_eq!(numbers, json!({"a": [0.1235, 7, "x"], "b": 12350.0}));
    }

    #[test]
    fn data_cannot_leave_its_element_and_nothing_is_loaded() {
        let html = assemble("{\"name\":\"</script><script>alert(1)</script>\"}");
        assert!(html.contains("\\u003c/script>\\u003cscript>alert(1)"));
        assert_eq!(html.matches("<script").count(), 2, "the data and the program");
        for outside in ["src=\"", "<link rel=\"stylesheet\"", "http://", "https://"] {
            let found: Vec<&str> = html.lines().filter(|line| line.contains(outside)).collect();
            // Names of namespaces are no addresses.
            assert!(found.iter().all(|line| line.contains("www.w3.org")), "{outside}: {found:?}");
        }
    }
}
