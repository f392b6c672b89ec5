"use strict";
// Where numbers come from: the program over HTTP, or the file that the page is in. Then rows of attention by node.

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const DIGIT = new Map([...DIGITS].map((digit, place) => [digit, place]));

/** A row of weights as it is, or unpacked from `[most, digits]`: see `pack_row` of the export. */
function unpack(row) {
  if (typeof row[1] !== "string") return row;
  const [most, digits] = row;
  const weights = new Float64Array(digits.length / 2);
  for (let place = 0; place < weights.length; place++) {
    const share = (64 * DIGIT.get(digits[2 * place]) + DIGIT.get(digits[2 * place + 1])) / 4095;
    weights[place] = most * share * share;
  }
  return weights;
}

/** Asks the program. */
class Program {
  canAsk = true;

  introduction() { return this.read("/api/run"); }

  scores(from) { return this.read(`/api/scores/${from}`); }

  trace(what, rows, places) {
    const question = { graph: what.graph, smiles: what.smiles, colours: what.colours, rows, places };
    const body = JSON.stringify(question, (_, value) => value ?? undefined);
    return this.read("/api/trace", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  }

  async read(path, options) {
    let response;
    try {
      response = await fetch(path, options);
    } catch {
      throw new Error("The program does not answer. Was it ended?");
    }
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.hint ? `${answer.error}. Hint: ${answer.hint}` : answer.error);
    return answer;
  }
}

/** Reads what was written into the page. */
class Embedded {
  canAsk = false;

  constructor(text) {
    this.data = JSON.parse(text);
    this.traces = new Map(this.data.traces.map((drawn) => [drawn.trace.graph.number, drawn]));
  }

  async introduction() { return this.data.run; }

  async scores(from) { return from > 0 ? { scores: [], all: this.data.scores.all } : this.data.scores; }

  async trace(what, rows) {
    const drawn = what.smiles ? undefined : this.traces.get(what.graph);
    if (!drawn) throw new Error("This graph is not in the file.");
    if (rows.some((row) => !drawn.trace.rows.includes(row))) throw new Error("This node is not in the file.");
    return drawn;
  }
}

/** One graph with the rows that are known so far. */
class Known {
  constructor(what, drawn) {
    const { graph, cls, outcome, edge_weights: edgeWeights, layers, walks } = drawn.trace;
    Object.assign(this, { what, graph, cls, edgeWeights, outcome });
    this.telling = drawn.telling;
    this.whole = drawn.whole;
    this.isTrue = drawn.known;
    this.drawing = drawn.drawing;
    this.layers = layers.length;
    this.heads = layers[0].heads.length;
    this.steps = walks ? walks[0].length - 1 : 0;
    this.rows = new Map();
    this.add(drawn);
  }

  get nodes() { return this.graph.nodes; }

  get columns() { return this.graph.nodes + (this.cls ? 1 : 0); }

  add(drawn) {
    if (drawn.drawing) [this.drawing, this.nearest] = [drawn.drawing, undefined];
    const { rows, layers, walks, outcome } = drawn.trace;
    rows.forEach((node, place) => {
      const part = (matrix) => matrix && matrix[place];
      const heads = layers.map((layer) => layer.heads.map((head) => ({
        position: part(head.position), content: part(head.content), attention: part(head.attention),
      })));
      const links = outcome.kind === "links" ? outcome.probabilities[place] : null;
      this.rows.set(node, { heads, walks: part(walks), counted: drawn.counted && drawn.counted[place], links });
    });
  }

  /** Position, content and attention of one node, by one head or on average over all. */
  parts(node, layer, head) {
    const heads = this.rows.get(node).heads[layer];
    const asked = (head === null ? heads : [heads[head]]).map(complete);
    const mean = (part) => asked[0][part] && average(asked.map((parts) => parts[part]));
    return { position: mean("position"), content: mean("content"), attention: mean("attention") };
  }

  /** Where a walk from the node is after so many steps; the CLS node walks nowhere. */
  walk(node, step) {
    const walks = this.rows.get(node).walks;
    return walks ? unpack(walks[step]) : null;
  }

  counted(node) { return this.rows.get(node)?.counted ?? []; }

  label(node) { return node < this.nodes ? this.graph.labels[node] : "CLS"; }

  /** `23 (C)`, or the number alone where that is the label. */
  name(node) {
    const label = this.label(node);
    if (node >= this.nodes) return "CLS";
    return label === String(node) ? label : `${node} (${label})`;
  }
}

/** A file leaves attention out where both its parts are there: it is their product, normalised. */
function complete({ position, content, attention }) {
  const parts = { position: position && unpack(position), content: content && unpack(content) };
  if (attention) return { ...parts, attention: unpack(attention) };
  const product = Float64Array.from(parts.position, (weight, node) => weight * parts.content[node]);
  const sum = product.reduce((sum, weight) => sum + weight, 0) || 1;
  return { ...parts, attention: product.map((weight) => weight / sum) };
}

function average(rows) {
  if (rows.length === 1) return rows[0];
  return Float64Array.from(rows[0], (_, node) => rows.reduce((sum, row) => sum + row[node], 0) / rows.length);
}

/** Three digits that count. */
function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e6) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

function percent(value) { return `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)}%`; }
