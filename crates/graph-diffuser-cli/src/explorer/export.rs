//! Export of the explorer to one self-contained HTML file.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use graph_diffuser::explain::ExplainError;
use graph_diffuser::nn::CancelFlag;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{ApiRequest, Explorer, TraceRequest, page};

/// Default number of graphs in a file, as long as they fit into `DEFAULT_BYTES`.
pub(crate) const DEFAULT_GRAPHS: usize = 12;
/// Maximum size of the compressed traces in a file with the default number of graphs.
const DEFAULT_BYTES: usize = 2_600_000;

/// Digits of base64url.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A self-contained page and the number of graphs in it.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) html: String,
    pub(crate) graphs: usize,
}

/// Renders the page with the listed graphs, or with `limit_size` as many as fit into
/// `DEFAULT_BYTES`.
///
/// Returns `None` if `stop` was set before the page was complete.
pub(crate) fn export(
    explorer: &Explorer<'_>,
    limit_size: bool,
    stop: &AtomicBool,
) -> Result<Option<Export>, ExplainError> {
    let stopped = || stop.load(Ordering::SeqCst);
    while !stopped() && explorer.score_batch() {}
    let mut traces = Vec::new();
    let mut bytes = 0;
    for &graph in explorer.graphs() {
        if stopped() {
            return Ok(None);
        }
        let trace = compress(&packed_trace(explorer, graph)?);
        bytes += trace.len();
        if limit_size && bytes > DEFAULT_BYTES && !traces.is_empty() {
            break;
        }
        traces.push(format!("\"{graph}\":\"{trace}\""));
    }
    let kept = &explorer.graphs()[..traces.len()];
    let parse = |json: String| serde_json::from_str::<Value>(&json).expect("responses are JSON");
    let mut info = parse(explorer.respond(&ApiRequest::Info, &CancelFlag::default())?);
    let mut scores = parse(explorer.scores_of_all_targets());
    round(&mut scores);
    if let Some(graphs) = info["graphs"].as_array_mut() {
        graphs.truncate(kept.len());
    }
    if let Some(scores) = scores["scores"].as_array_mut() {
        scores.retain(|score| {
            score["index"].as_u64().is_some_and(|index| kept.contains(&(index as usize)))
        });
    }
    scores["total"] = json!(kept.len());
    let traces = traces.join(",");
    let data = format!("{{\"run\":{info},\"scores\":{scores},\"traces\":{{{traces}}}}}");
    Ok(Some(Export { html: assemble(&data), graphs: kept.len() }))
}

fn packed_trace(explorer: &Explorer<'_>, graph: usize) -> Result<String, ExplainError> {
    let first = TraceRequest { graph: Some(graph), layout: true, ..TraceRequest::default() };
    let never = CancelFlag::default();
    let response = explorer.trace(&first, &never)?;
    let default_node = response.default_node;
    let rows = explorer.explainer.default_rows(&explorer.explainer.dataset().graphs.get(graph));
    let response = if rows.len() > 1 {
        explorer.trace(&TraceRequest { rows, ..first }, &never)?
    } else {
        response
    };
    let mut value = serde_json::to_value(response).expect("responses are plain data");
    value["default_node"] = json!(default_node);
    // A file cannot request further rows.
    value["full_trace"] = json!(true);
    pack(&mut value);
    round(&mut value);
    Ok(value.to_string())
}

/// Compresses a trace in the zlib format, as base64.
fn compress(trace: &str) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(trace.as_bytes()).and_then(|()| encoder.finish());
    base64(&written.expect("writing to memory succeeds"))
}

/// Packs the rows of weights into text, and drops what the page can compute: means over heads, and
/// attention from position and content.
fn pack(response: &mut Value) {
    let trace = &mut response["trace"];
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

/// Packs a row of weights into `[max, digits]`: two hexadecimal digits per weight encode
/// `round(255 * sqrt(weight / max))`.
///
/// The square root keeps small weights apart; 8 bits are enough for colors and two digits.
fn pack_row(row: &mut Value) {
    let weights: Vec<f64> =
        row.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    let max = weights.iter().copied().fold(1e-30, f64::max);
    let mut digits = String::with_capacity(2 * weights.len());
    for weight in weights {
        let code = (255.0 * (weight / max).max(0.0).sqrt()).round() as u8;
        let _ = write!(digits, "{code:02x}");
    }
    *row = json!([max, digits]);
}

/// Rounds every float to four significant digits.
fn round(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let rounded =
                number.as_f64().and_then(|number| format!("{number:.3e}").parse::<f64>().ok());
            *value = rounded.map_or(Value::Null, |rounded| json!(rounded));
        }
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Object(values) => values.values_mut().for_each(round),
        _ => {}
    }
}

/// Assembles page, style, scripts and data into one document.
///
/// The content security policy allows the embedded style and script by hash and nothing else.
fn assemble(data: &str) -> String {
    let style = page::STYLE;
    let scripts = page::SCRIPTS.map(|(_, script)| script).concat();
    let policy = format!(
        "default-src 'none'; img-src data:; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; \
         form-action 'none'",
        base64(&Sha256::digest(scripts.as_bytes())),
        base64(&Sha256::digest(style.as_bytes()))
    );
    let mut html = page::HTML.to_owned();
    for (path, _) in page::SCRIPTS {
        html = html.replace(&format!("  <script src=\"{path}\" defer></script>\n"), "");
    }
    // `</script>` or `<!--` inside a string would end or extend the element.
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

/// Encodes bytes as standard base64.
fn base64(bytes: &[u8]) -> String {
    let digit = |value: u32| match char::from(DIGITS[value as usize % 64]) {
        '-' => '+',
        '_' => '/',
        other => other,
    };
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let padded = chunk.iter().chain([&0, &0]).take(3);
        let bits = padded.fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte));
        for (place, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            text.push(if place <= chunk.len() { digit(bits >> shift) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_rfc_4648_test_vectors() {
        let written =
            ["", "f", "fo", "foo", "foob", "\u{fb}\u{f0}"].map(|text| base64(text.as_bytes()));
        assert_eq!(written, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "w7vDsA=="]);
    }

    #[test]
    fn packed_weights_are_rounded_to_8_bits_of_their_square_root() {
        let weights = [0.0, 0.001, 0.02, 0.3, 0.31];
        let mut row = json!(weights);
        pack_row(&mut row);
        let digits = row[1].as_str().unwrap();
        assert_eq!(digits.len(), 2 * weights.len());
        for (index, weight) in weights.into_iter().enumerate() {
            let code = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).unwrap();
            let root = f64::from(code) / 255.0;
            assert!((root - (weight / 0.31_f64).sqrt()).abs() <= 0.5 / 255.0, "{weight}");
        }
        let mut values = json!({"a": [0.123_456, 7, "x"], "b": 12345.678});
        round(&mut values);
        assert_eq!(values, json!({"a": [0.1235, 7, "x"], "b": 12350.0}));
    }

    #[test]
    fn compressed_traces_are_zlib() {
        // A zlib stream of the best compression starts with 78 da.
        assert!(compress("{}").starts_with("eN"));
        assert!(compress(&"0.125,".repeat(1000)).len() < 100);
    }

    #[test]
    fn embedded_data_is_escaped_and_no_external_resource_is_loaded() {
        let html = assemble("{\"name\":\"</script><script>alert(1)</script>\"}");
        assert!(html.contains("\\u003c/script>\\u003cscript>alert(1)"));
        assert_eq!(
            html.matches("<script").count(),
            2,
            "one element for the data, one for the scripts"
        );
        for external in ["src=\"", "<link rel=\"stylesheet\"", "http://", "https://"] {
            let found: Vec<&str> = html.lines().filter(|line| line.contains(external)).collect();
            // XML namespaces are identifiers and are not fetched.
            assert!(found.iter().all(|line| line.contains("www.w3.org")), "{external}: {found:?}");
        }
    }
}
