"use strict";
// Data access: from the server over HTTP, or from the data embedded in an exported file.

/** Decodes a row of weights; a row packed by `pack_row` of the export is `[max, digits]`. */
function unpack(row) {
  if (typeof row[1] !== "string") return row;
  const [max, digits] = row;
  const weights = new Float64Array(digits.length / 2);
  for (let i = 0; i < weights.length; i++) {
    const root = parseInt(digits.slice(2 * i, 2 * i + 2), 16) / 255;
    weights[i] = max * root * root;
  }
  return weights;
}

/** Data source backed by the HTTP server. */
class ServerSource {
  isLive = true;

  info() { return this.request("/api/run"); }

  scores(from, target) { return this.request(target === null ? `/api/scores/${from}` : `/api/scores/${from}/${target}`); }

  /** `signal` cancels the request, and its computation if that has not begun. */
  trace(query, rows, layout, signal) {
    const body = JSON.stringify({ ...query, rows, layout }, (_, value) => value ?? undefined);
    return this.request("/api/trace", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
  }

  async request(path, options) {
    let response;
    try {
      response = await fetch(path, options);
    } catch {
      throw new Error("The server does not respond. Is `graph-diffuser explore` still running?");
    }
    const body = await response.json();
    if (!response.ok) throw new Error(body.hint ? `${body.error}. Hint: ${body.hint}` : body.error);
    return body;
  }
}

/** Data source embedded in an exported file. */
class EmbeddedSource {
  isLive = false;

  constructor(text) {
    this.data = JSON.parse(text);
    this.decoded = new Map();
  }

  async info() { return this.data.run; }

  async scores(from, target) {
    const { scores, total } = this.data.scores;
    const ofTarget = (score) => (target === null || !score.targets ? score : { ...score, ...score.targets[target], target });
    return { scores: from > 0 ? [] : scores.map(ofTarget), total };
  }

  /** Decompresses the trace of a graph once; the file holds it as base64 in the zlib format. */
  async decode(graph) {
    if (!this.decoded.has(graph) && Object.hasOwn(this.data.traces, graph)) {
      if (typeof DecompressionStream === "undefined") {
        throw new Error("This browser cannot decompress the data of this page. Open it with a browser from 2023 or later.");
      }
      const bytes = Uint8Array.from(atob(this.data.traces[graph]), (character) => character.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      this.decoded.set(graph, JSON.parse(await new Response(stream).text()));
    }
    return this.decoded.get(graph);
  }

  async trace(query, rows) {
    const response = query.smiles ? undefined : await this.decode(query.graph);
    if (!response) throw new Error("This graph is not in the exported file.");
    if (rows.some((row) => !response.trace.rows.includes(row))) throw new Error("This node is not in the exported file.");
    return response;
  }
}

/** One graph with the attention rows loaded so far. */
class GraphView {
  constructor(query, response) {
    const { graph, cls, outcome, edge_weights: edgeWeights, layers, walks } = response.trace;
    Object.assign(this, { query, graph, cls, edgeWeights, outcome });
    this.defaultNode = response.default_node;
    this.fullTrace = response.full_trace;
    this.hasTargets = response.has_targets;
    this.id = response.id;
    this.smiles = response.smiles;
    this.layout = response.layout;
    this.layers = layers.length;
    this.heads = layers[0].heads.length;
    this.steps = walks ? walks[0].length - 1 : 0;
    this.rows = new Map();
    this.add(response);
  }

  get nodes() { return this.graph.nodes; }

  get columns() { return this.graph.nodes + (this.cls ? 1 : 0); }

  /** Adds the rows of another response for the same graph. */
  add(response) {
    if (response.layout) [this.layout, this.spacing] = [response.layout, undefined];
    const { rows, layers, walks, outcome } = response.trace;
    rows.forEach((node, i) => {
      const row = (matrix) => matrix && matrix[i];
      const heads = layers.map((layer) => layer.heads.map((head) => ({
        position: row(head.position), content: row(head.content), attention: row(head.attention),
      })));
      const links = outcome.kind === "links" ? outcome.probabilities[i] : null;
      this.rows.set(node, { heads, walks: row(walks), groundTruth: response.ground_truth && response.ground_truth[i], links });
    });
  }

  /** Position, content and attention of a query node, for one head or averaged over heads. */
  components(node, layer, head) {
    const heads = this.rows.get(node).heads[layer];
    const selected = (head === null ? heads : [heads[head]]).map(complete);
    const mean = (name) => selected[0][name] && average(selected.map((components) => components[name]));
    return { position: mean("position"), content: mean("content"), attention: mean("attention") };
  }

  /** Random-walk distribution after `step` steps from the node; null for the CLS node. */
  walk(node, step) {
    const walks = this.rows.get(node).walks;
    return walks ? unpack(walks[step]) : null;
  }

  groundTruth(node) { return this.rows.get(node)?.groundTruth ?? []; }

  label(node) { return node < this.nodes ? this.graph.labels[node] : "CLS"; }

  /** Name of a node, such as `23 (C)`, or its index alone if that is its label. */
  name(node) {
    const label = this.label(node);
    if (node >= this.nodes) return "CLS";
    return label === String(node) ? label : `${node} (${label})`;
  }
}

/** Computes attention if an exported file omits it: the normalized product of position and content. */
function complete({ position, content, attention }) {
  const components = { position: position && unpack(position), content: content && unpack(content) };
  if (attention) return { ...components, attention: unpack(attention) };
  const product = Float64Array.from(components.position, (weight, node) => weight * components.content[node]);
  const sum = product.reduce((sum, weight) => sum + weight, 0) || 1;
  return { ...components, attention: product.map((weight) => weight / sum) };
}

function average(rows) {
  if (rows.length === 1) return rows[0];
  return Float64Array.from(rows[0], (_, node) => rows.reduce((sum, row) => sum + row[node], 0) / rows.length);
}

/** Formats a number with three significant digits. */
function formatNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e6) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

function formatPercent(value) { return `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)}%`; }
