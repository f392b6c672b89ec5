"use strict";
// State, controls and keyboard shortcuts. The URL fragment holds the state, so that a view can be linked.

const $ = (id) => document.getElementById(id);
const embedded = $("data");
const source = embedded ? new EmbeddedSource(embedded.textContent) : new ServerSource();
/** Number of values per request when rows are prefetched. */
const PREFETCH_VALUES = 100_000;
const LIST_PAGE_SIZE = 200;

let run = null;
let current = null;
const scores = new Map();
const state = { graph: null, smiles: null, colors: new Map(), node: null, other: null, layer: null, head: null, step: null, target: null, weights: true, predictions: false, allHeads: false };
/** True if all targets are listed. */
let isExpanded = false;
/** Cancels the requests for the graph that is being loaded. */
let requests = new AbortController();
/** Node and event of the last tooltip, which is updated when the graph changes. */
let pointed = null;
let hovered = null;
let brush = null;
let original = null;
/** Incremented with each graph that is loaded; responses to older requests are dropped. */
let generation = 0;
let listLimit = LIST_PAGE_SIZE;
let playing = null;

// URL fragment.

function writeFragment() {
  const params = new URLSearchParams();
  if (state.smiles) params.set("smiles", state.smiles);
  else if (state.graph !== null) params.set("graph", state.graph);
  if (state.colors.size) params.set("colors", [...state.colors].map((pair) => pair.join(":")).join(","));
  for (const key of ["node", "other", "layer", "head", "step", "target"]) if (state[key] !== null) params.set(key, state[key]);
  if (state.allHeads) params.set("heads", "all");
  if (!state.weights) params.set("weights", "off");
  if (state.predictions) params.set("labels", "predictions");
  history.replaceState(null, "", `#${params}`);
}

function readFragment() {
  const params = new URLSearchParams(location.hash.slice(1));
  const index = (key) => (/^\d+$/.test(params.get(key) ?? "") ? Number(params.get(key)) : null);
  state.smiles = source.isLive && run.molecules ? params.get("smiles") : null;
  state.graph = index("graph") ?? run.graphs[0]?.[0] ?? null;
  if (state.graph === null && source.isLive && run.molecules) state.smiles ??= "CC(=O)Oc1ccccc1C(=O)O";
  const pairs = (params.get("colors") ?? "").split(",").map((pair) => pair.split(":").map(Number));
  state.colors = new Map(source.isLive ? pairs.filter(([cell, color]) => Number.isInteger(cell) && color < run.colors.length) : []);
  for (const key of ["node", "other", "layer", "head", "step", "target"]) state[key] = index(key);
  if (state.target !== null && (run.targets.length < 2 || state.target >= run.targets.length)) state.target = null;
  state.allHeads = params.get("heads") === "all";
  state.weights = params.get("weights") !== "off";
  state.predictions = params.get("labels") === "predictions";
}

// Graphs and rows.

const currentQuery = () => ({ graph: state.smiles ? null : state.graph, smiles: state.smiles, colors: [...state.colors] });

async function withBusyIndicator(work) {
  const timer = setTimeout(() => { $("busy").hidden = false; }, 150);
  try {
    return await work();
  } finally {
    clearTimeout(timer);
    $("busy").hidden = true;
  }
}

function showError(error) {
  $("error").textContent = error.message;
  $("error").hidden = false;
}

/**
 * Loads the graph named by the state, with the rows of some nodes. Returns true once it is shown, false if it
 * failed and the previous graph stays, null if another graph was requested in the meantime.
 */
async function loadGraph(rows = []) {
  const mine = ++generation;
  stopPlaying();
  requests.abort();
  requests = new AbortController();
  const { signal } = requests;
  try {
    const query = currentQuery();
    const next = new GraphView(query, await withBusyIndicator(() => source.trace(query, rows, true, signal)));
    const valid = (node) => (node !== null && node < next.columns ? node : null);
    const node = valid(state.node) ?? next.defaultNode ?? next.rows.keys().next().value;
    const other = valid(state.other);
    await ensureRows(next, [node, other]);
    if (mine !== generation) return null;
    const isSameGraph = current && current.query.graph === next.query.graph && current.query.smiles === next.query.smiles;
    current = next;
    hovered = null;
    if (!isSameGraph) Object.assign(zoom, { scale: 1, x: 0, y: 0 });
    if (!query.colors.length) original = current;
    const clamp = (value, max, fallback) => (value === null ? fallback : Math.min(value, max));
    Object.assign(state, {
      node, other,
      layer: clamp(state.layer, current.layers - 1, current.layers - 1),
      head: clamp(state.head, current.heads - 1, null),
      step: clamp(state.step, current.steps, Math.min(4, current.steps)),
    });
    $("error").hidden = true;
    document.body.classList.remove("stale");
    build();
    if (pointed && isSameGraph && !$("tooltip").hidden) nodeTooltip(pointed.node, pointed.event);
    else $("tooltip").hidden = true;
    prefetchRows(mine, signal);
    return true;
  } catch (error) {
    if (mine !== generation) return null;
    showError(error);
    return false;
  }
}

/** Loads the rows of some nodes if they are missing. */
async function ensureRows(view, nodes) {
  const wanted = [...new Set(nodes)].filter((node) => node !== null);
  // Of a large graph only the nodes near the requested rows, and those that they attend to, are drawn.
  const isPartial = view.layout.nodes.length < view.nodes;
  const missing = wanted.filter((node) => !view.rows.has(node) || (isPartial && !view.layout.nodes.includes(node)));
  if (!missing.length) return;
  view.add(await withBusyIndicator(() => source.trace(view.query, isPartial ? wanted : missing, isPartial)));
  if (isPartial && view === current) build();
}

/** Loads the remaining rows of a small graph, so that the figures follow the pointer without delay. */
async function prefetchRows(mine, signal) {
  delete document.body.dataset.rows;
  if (!source.isLive || !current.fullTrace) return;
  const valuesPerRow = current.columns * (3 * current.layers * (current.heads + 1) + current.steps + 1);
  const count = Math.max(1, Math.floor(PREFETCH_VALUES / valuesPerRow));
  const missing = [...Array(current.columns).keys()].filter((node) => !current.rows.has(node));
  for (let at = 0; at < missing.length && mine === generation; at += count) {
    try {
      const response = await source.trace(current.query, missing.slice(at, at + count), false, signal);
      if (mine === generation) current.add(response);
    } catch {
      return; // the next click repeats the request and shows the error
    }
  }
  if (mine === generation) document.body.dataset.rows = "all";
}

async function selectNode(node, asSecond = false) {
  const mine = generation;
  try {
    await ensureRows(current, asSecond ? [state.node, node] : [node, state.other]);
  } catch (error) {
    showError(error);
    return;
  }
  if (mine !== generation) return;
  if (asSecond) state.other = node === state.node ? null : node;
  else state.node = node;
  $("compare").checked = state.other !== null || ($("compare").checked && !asSecond);
  hovered = null;
  render();
}

function openGraph(index) {
  Object.assign(state, { graph: index, smiles: null, node: null, other: null, colors: new Map() });
  $("compare").checked = false;
  loadGraph();
}

async function openMolecule(smiles) {
  const before = { ...state };
  Object.assign(state, { smiles, node: null, other: null, colors: new Map() });
  if ((await loadGraph()) !== false) return;
  Object.assign(state, before);
  showStale();
}

/** Marks the figures as those of the previous graph, which the failed request did not replace. */
function showStale() {
  document.body.classList.add("stale");
  $("summary").replaceChildren(make("p", { className: "summary-line muted", text: current ? "No prediction. The figures show the previous graph." : "No prediction." }));
}

async function paintCell(node) {
  if (brush === null || node >= current.nodes) return;
  const before = new Map(state.colors);
  if (original?.graph.node_features[node][0] === brush) state.colors.delete(node);
  else state.colors.set(node, brush);
  if ((await loadGraph([state.node])) === false) state.colors = before;
}

// Figures.

const pointerHandlers = (isMain) => ({
  over(node, event) {
    pointed = { node, event };
    highlight(node);
    nodeTooltip(node, event);
    if (isMain && current.rows.has(node) && node !== hovered && brush === null) {
      hovered = node;
      render();
    }
  },
  out() {
    pointed = null;
    $("tooltip").hidden = true;
    highlight(null);
    if (isMain && hovered !== null) {
      hovered = null;
      render();
    }
  },
  click(node, event) {
    if (drag?.hasMoved) return;
    if (isMain && brush !== null) paintCell(node);
    else selectNode(node, event.shiftKey || ($("compare").checked && node !== state.node));
  },
  overEdge(pair, event) {
    if (isMain && current.edgeWeights) edgeTooltip(pair, event);
  },
});

const graphFigure = new Figure($("graph-stage"), "plain", pointerHandlers(true));
const walkFigure = new Figure($("walk-stage"), "heat", pointerHandlers(false));
/** One row of figures per query node: position × content = attention. */
let equations = [];

const figures = () => [graphFigure, ...(current.steps ? [walkFigure] : []), ...equations.flatMap((panels) => panels.map(({ figure }) => figure))];

function highlight(node) { figures().forEach((figure) => figure.highlight(node)); }

function build() {
  $("thumbnails").replaceChildren();
  graphFigure.build(current);
  if (current.steps) walkFigure.build(current);
  $("walk-panel").hidden = !current.steps;
  document.querySelector(".lower").classList.toggle("without-walks", !current.steps);
  equations = [];
  $("equations").replaceChildren();
  buildControls();
  render();
  setZoom(zoom.scale, zoom.x, zoom.y);
}

function buildEquation(letter) {
  const { position, content } = current.components(state.node, 0, 0);
  const names = position && content ? ["position", "content", "attention"] : position ? ["position", "attention"] : ["attention"];
  const host = make("div", { className: `equation ${names.length === 1 ? "one" : ""}` });
  if (names.length === 2) host.classList.add("two");
  const panels = names.map((name, i) => {
    const note = make("p", { className: "muted small" });
    const stage = make("div", { className: "stage" });
    const title = make("h3", { text: name[0].toUpperCase() + name.slice(1) });
    if (letter) title.append(" ", make("span", { className: `tag ${letter.toLowerCase()}`, text: `of ${letter}` }));
    if (i) host.append(make("div", { className: "sign", text: name === "attention" ? "=" : "×", "aria-hidden": "true" }));
    host.append(make("article", { className: "panel" }, make("header", {}, title, note), stage));
    const figure = new Figure(stage, "heat", pointerHandlers(false));
    figure.build(current);
    return { name, figure, note };
  });
  $("equations").append(host);
  return panels;
}

/** Text of a color scale, such as `0 to 0.31`. */
function describeScale({ low, high, isUniform }) {
  return isUniform ? `uniform, ${formatNumber(high)}` : `${formatNumber(low)} to ${formatNumber(high)}`;
}

function render() {
  if (!current) return;
  const node = hovered ?? state.node;
  const queries = state.other === null ? [node] : [node, state.other];
  const letters = queries.length > 1 ? ["A", "B"] : [null];
  if (equations.length !== queries.length) {
    $("equations").replaceChildren();
    equations = letters.map(buildEquation);
  }
  document.body.classList.toggle("compared", queries.length > 1);
  document.body.classList.toggle("is-grid", current.graph.structure.kind === "grid");
  const components = queries.map((query) => current.components(query, state.layer, state.head));
  equations.forEach((panels, i) => {
    for (const { name, figure, note } of panels) {
      // Two nodes are compared on the same scale.
      const scale = colorScale(components.map((weights) => weights[name]), queries);
      figure.setWeights(components[i][name], scale);
      note.textContent = `${describeScale(scale)}; self ${formatNumber(components[i][name][queries[i]])}`;
      mark(figure, queries, i, name === "attention");
      figure.describe(`${name} of query node ${current.name(queries[i])}: ${describeScale(scale)}`);
    }
  });
  renderGraph(queries);
  renderWalk(queries[0]);
  renderText(queries, components);
  renderMultiples(queries[0]);
  $("compare-hint").hidden = !$("compare").checked || state.other !== null;
  writeFragment();
}

/** Thumbnails of all layers and heads; a click selects one of them. */
function renderMultiples(node) {
  $("multiples").hidden = !state.allHeads;
  if (!state.allHeads) return;
  const has = (name) => Boolean(current.components(node, 0, 0)[name]);
  const part = has($("part").value) ? $("part").value : "attention";
  for (const option of $("part").options) option.disabled = !has(option.value);
  const host = $("thumbnails");
  if (host.childElementCount !== current.layers * (current.heads + 1)) {
    host.style.setProperty("--heads", current.heads);
    host.replaceChildren(...[...Array(current.layers).keys()].flatMap((layer) => [
      make("span", { className: "layer muted small", text: `Layer ${layer}` }),
      ...[...Array(current.heads).keys()].map((head) => {
        const button = make("button", { type: "button", "aria-label": `Layer ${layer}, head ${head}`, title: `Layer ${layer}, head ${head}`, "data-layer": layer, "data-head": head }, make("canvas"));
        button.addEventListener("click", () => { Object.assign(state, { layer, head }); buildControls(); render(); });
        return button;
      }),
    ]));
  }
  for (const button of host.querySelectorAll("button")) {
    const [layer, head] = [Number(button.dataset.layer), Number(button.dataset.head)];
    const weights = current.components(node, layer, head)[part];
    button.setAttribute("aria-pressed", String(layer === state.layer && head === state.head));
    drawThumbnail(button.firstElementChild, current, weights, colorScale([weights], [node]), node);
  }
}

function mark(figure, queries, i, withGroundTruth) {
  figure.clearMarks();
  if (withGroundTruth) current.groundTruth(queries[i]).forEach((other) => figure.halo(other, "ground-truth"));
  figure.halo(queries[i], i ? "second" : "first");
  if (queries.length > 1) figure.letter(queries[i], "AB"[i], i ? "second" : "first");
}

function renderGraph(queries) {
  const { outcome } = current;
  const showPredictions = state.predictions && outcome.kind === "node_classes";
  graphFigure.setCategories((node) => (showPredictions && node < current.nodes ? className(outcome, outcome.predicted[node]) : current.label(node)));
  graphFigure.clearMarks();
  current.groundTruth(queries[0]).forEach((other) => graphFigure.halo(other, "ground-truth"));
  if (showPredictions && current.hasTargets) outcome.predicted.forEach((predicted, node) => { if (outcome.targets[node] !== null && predicted !== outcome.targets[node]) graphFigure.cross(node); });
  const changed = changedPredictions();
  changed.forEach((node) => graphFigure.halo(node, "changed"));
  queries.forEach((node, i) => {
    graphFigure.halo(node, i ? "second" : "first");
    if (queries.length > 1) graphFigure.letter(node, "AB"[i], i ? "second" : "first");
  });
  const byWeight = state.weights && current.edgeWeights !== null;
  const [low, high] = graphFigure.setEdgeWidths(byWeight);
  const drawn = current.layout.nodes.length < current.nodes ? `${current.layout.nodes.length} of ${current.nodes} nodes; ` : "";
  const weights = current.edgeWeights === null || !Number.isFinite(low) ? "" : high - low > 1e-4 ? `edge weight range ${formatNumber(low)} to ${formatNumber(high)}` : `edge weight ${formatNumber(high)}`;
  $("graph-note").textContent = state.colors.size
    ? `${state.colors.size} recolored: ${changed.length} ${changed.length === 1 ? "prediction" : "predictions"} changed (dotted)`
    : drawn + weights;
  graphFigure.describe(`Graph with ${current.nodes} nodes; query node ${current.name(queries[0])}. Use the arrow keys to select another node.`);
}

/** Nodes whose predicted class changed after cells were recolored. */
function changedPredictions() {
  if (!state.colors.size || !original || original.query.graph !== current.query.graph || current.outcome.kind !== "node_classes") return [];
  return current.outcome.predicted.flatMap((predicted, node) => (predicted === original.outcome.predicted[node] ? [] : [node]));
}

function renderWalk(node) {
  if (!current.steps) return;
  const walk = current.walk(node, state.step);
  $("step").value = state.step;
  $("step-out").textContent = state.step === 1 ? "1 step" : `${state.step} steps`;
  walkFigure.clearMarks();
  if (!walk) {
    walkFigure.setWeights([], colorScale([], []));
    $("walk-note").textContent = "not defined for the CLS node";
    return;
  }
  const max = Math.max(1e-9, ...walk);
  walkFigure.setWeights(walk, { shade: (weight) => weight / max });
  walkFigure.halo(node, "first");
  $("walk-note").textContent = `random-walk distribution, max ${formatPercent(max)}`;
  walkFigure.describe(`Random-walk distribution after ${state.step} steps from node ${current.name(node)}: max ${formatPercent(max)}`);
}

function renderText(queries, components) {
  const title = current.query.smiles ? "Your molecule" : `Graph ${current.query.graph}${state.colors.size ? ", recolored" : ""}`;
  $("graph").textContent = title;
  document.title = `${title} · ${run.recipe}`;
  const isMolecule = current.graph.structure.kind === "molecule";
  $("size").textContent = `${current.nodes} ${isMolecule ? "atoms" : "nodes"}, ${undirectedEdges(current).length} ${isMolecule ? "bonds" : "edges"}`;
  $("row").textContent = [current.id, current.smiles].filter(Boolean).join(" · ");
  $("row").title = $("row").textContent;
  $("row").hidden = !$("row").textContent;
  $("summary").replaceChildren(...queries.map((node, i) => summaryLine(current, node, queries.length > 1 ? "AB"[i] : null, state.target)));
  $("ground-truth-key").hidden = !queries.some((node) => current.groundTruth(node).length);
  const targets = { chosen: state.target, isExpanded, choose: chooseTarget, toggle: () => { isExpanded = !isExpanded; render(); } };
  $("outcome").replaceChildren(outcomeDetails(current, queries[0], selectNode, targets));
  $("details-title").textContent = ["node_classes", "links"].includes(current.outcome.kind) ? `Prediction for node ${current.name(queries[0])}` : "Prediction";
  $("top-attended").replaceChildren(...topAttended(current, queries[0], components[0].attention, selectNode));
  $("current").textContent = title;
  for (const button of $("list").querySelectorAll("button")) button.setAttribute("aria-current", String(!current.query.smiles && Number(button.dataset.index) === current.query.graph));
}

// Tooltips.

function nodeTooltip(node, event) {
  const query = hovered ?? state.node;
  const lines = [];
  if (current.rows.has(query)) {
    const components = current.components(query, state.layer, state.head);
    for (const name of ["position", "content", "attention"]) if (components[name]) lines.push([name, components[name][node]]);
    const walk = current.steps ? current.walk(query, state.step) : null;
    if (walk && node < current.nodes) lines.push([`random walk, ${state.step} steps`, walk[node]]);
  }
  const heading = node === query ? `node ${current.name(node)}, self` : `${current.name(query)} → ${current.name(node)}`;
  showTooltip(heading, lines, event);
}

function edgeTooltip(pair, event) {
  showTooltip("edge weights", pair.weights.map(({ source: from, target, weight }) => [`${from} → ${target}`, weight]), event);
}

function showTooltip(heading, lines, event) {
  const exact = (value) => (value === undefined ? "–" : value >= 0.001 ? value.toFixed(5) : value.toExponential(3));
  $("tooltip").replaceChildren(make("b", { text: heading }), ...lines.map(([name, value]) => make("span", { text: name }, make("em", { text: exact(value) }))));
  $("tooltip").hidden = false;
  const box = $("tooltip").getBoundingClientRect();
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - 12 - box.width : event.clientX + 16;
  const top = event.clientY + 16 + box.height > innerHeight ? event.clientY - 12 - box.height : event.clientY + 16;
  $("tooltip").style.left = `${Math.max(4, left)}px`;
  $("tooltip").style.top = `${Math.max(4, top)}px`;
}

// Controls.

function radioGroup(host, name, options, selected, onChange) {
  host.querySelectorAll(".option").forEach((option) => option.remove());
  for (const [value, text] of options) {
    const input = make("input", { type: "radio", name, value: String(value), "aria-label": `${name} ${text}` });
    input.checked = value === selected;
    input.addEventListener("change", () => onChange(value));
    host.append(make("label", { className: "option" }, input, make("span", { text })));
  }
}

function buildControls() {
  const indices = (count) => [...Array(count).keys()].map((index) => [index, String(index)]);
  radioGroup($("layers"), "layer", indices(current.layers), state.layer, (layer) => { state.layer = layer; render(); });
  radioGroup($("heads"), "head", [[null, "mean"], ...indices(current.heads)], state.head, (head) => { state.head = head; render(); });
  $("step").max = current.steps;
  $("weights").checked = state.weights;
  $("predictions").checked = state.predictions;
  $("compare").checked ||= state.other !== null;
  $("weights-switch").hidden = current.edgeWeights === null;
  $("predictions-switch").hidden = current.outcome.kind !== "node_classes";
  const canPaint = source.isLive && run.colors.length > 0 && current.graph.structure.kind === "grid";
  $("paint-switch").hidden = !canPaint;
  if (!canPaint) brush = null;
  $("paint").checked = brush !== null;
  $("palette").hidden = brush === null;
  // The button keeps its place, so that recoloring does not move the graph.
  $("reset").hidden = !canPaint || (brush === null && state.colors.size === 0);
  $("reset").disabled = state.colors.size === 0;
}

function buildPalette() {
  $("palette").replaceChildren(...run.colors.map(([letter, fill], color) => {
    const button = make("button", { text: letter, type: "button", role: "radio", "aria-checked": String(color === brush), "aria-label": `color ${letter}` });
    button.style.background = fill;
    button.addEventListener("click", () => { brush = color; buildPalette(); });
    return button;
  }));
}

function changeIndex(kind, by) {
  const count = kind === "layer" ? current.layers : current.heads;
  const now = kind === "head" && state.head === null ? -1 : state[kind];
  const next = Math.min(count - 1, Math.max(kind === "head" ? -1 : 0, now + by));
  state[kind] = next < 0 ? null : next;
  buildControls();
  render();
}

function changeStep(by) {
  state.step = Math.min(current.steps, Math.max(0, state.step + by));
  render();
}

function stopPlaying() {
  clearInterval(playing);
  playing = null;
  $("play").textContent = "▶";
}

function play() {
  if (playing) return stopPlaying();
  state.step = 0;
  render();
  $("play").textContent = "❚❚";
  playing = setInterval(() => (state.step < current.steps ? changeStep(1) : stopPlaying()), 450);
}

/** Selects the nearest node in a direction, by angle and distance. */
function moveSelection(x, y) {
  const from = graphFigure.coordinates.get(state.node);
  let [best, minCost] = [null, Infinity];
  for (const [node, [u, v]] of graphFigure.coordinates) {
    const [along, across] = [(u - from[0]) * x + (v - from[1]) * y, Math.abs((u - from[0]) * y - (v - from[1]) * x)];
    const cost = along + 2.5 * across;
    if (node !== state.node && along > 1 && cost < minCost) [best, minCost] = [node, cost];
  }
  if (best !== null) selectNode(best);
}

function openAdjacentGraph(by) {
  const indices = filteredGraphs().map(([index]) => index);
  const at = indices.indexOf(state.graph);
  const next = indices[Math.min(indices.length - 1, Math.max(0, at + by))];
  if (next !== undefined && (next !== state.graph || state.smiles)) openGraph(next);
}

// List of graphs.

function matches([index, nodes, id, smiles], text) {
  const size = text.match(/^n\s*([<>=])\s*(\d+)$/);
  if (size) return { "<": nodes < size[2], ">": nodes > size[2], "=": nodes === Number(size[2]) }[size[1]];
  return String(index).includes(text) || id?.toLowerCase().includes(text.toLowerCase()) || smiles?.includes(text);
}

function filteredGraphs() {
  const text = $("search").value.trim().replace(/^#/, "");
  const graphs = text ? run.graphs.filter((graph) => matches(graph, text)) : [...run.graphs];
  const error = ([index], missing) => scores.get(index)?.error ?? missing;
  const order = {
    worst: (left, right) => error(right, -1) - error(left, -1),
    best: (left, right) => error(left, Infinity) - error(right, Infinity),
    large: (left, right) => right[1] - left[1],
    small: (left, right) => left[1] - right[1],
  }[$("sort").value];
  return order ? graphs.sort((left, right) => order(left, right) || left[0] - right[0]) : graphs;
}

function renderList() {
  const graphs = filteredGraphs();
  const maxError = Math.max(1e-9, ...[...scores.values()].map((score) => score.error ?? 0));
  $("list").replaceChildren(...graphs.slice(0, listLimit).map(([index, nodes, id, smiles]) => {
    const score = scores.get(index);
    const button = make("button", { type: "button", "data-index": index, "aria-current": String(!state.smiles && index === state.graph) },
      make("span", { className: "index", text: String(index) }), make("span", { className: "nodes", text: `${nodes} nodes` }));
    if (score) {
      const meter = make("i", { className: "meter" });
      meter.style.width = `${(score.error ?? 0) / maxError * 40}%`;
      const target = run.targets.length > 1 ? `${run.targets[score.target]}: ` : "";
      const text = score.truth.startsWith("of ") ? `${score.predicted} ${score.truth}` : `${score.predicted}, true ${score.truth}`;
      button.append(make("span", { className: "error", text: score.error === null ? "" : formatNumber(score.error), title: `error: ${run.error}` }), make("span", { className: "prediction", text: target + text, title: target + text }), meter);
    }
    if (id || smiles) button.append(make("span", { className: "row-label", text: id ?? smiles, title: [id, smiles].filter(Boolean).join(" · ") }));
    button.addEventListener("click", () => { openGraph(index); if (isNarrow.matches) $("graphs").open = false; });
    return make("li", {}, button);
  }));
  $("more").hidden = graphs.length <= listLimit;
  const total = run.total > run.graphs.length ? `First ${run.graphs.length} of ${run.total} graphs of the ${run.split} split.` : `${run.total} ${run.total === 1 ? "graph" : "graphs"} of the ${run.split} split.`;
  const error = state.target === null ? run.error : `error of ${run.targets[state.target]}`;
  $("list-note").textContent = graphs.length ? `${total} Error: ${error}.` : run.total ? "No matching graphs." : "No dataset loaded. Enter a SMILES string.";
}

function buildTargets() {
  $("target-field").hidden = run.targets.length < 2;
  $("target").replaceChildren(make("option", { value: "", text: "mean over targets" }), ...run.targets.map((name, target) => make("option", { value: target, text: name })));
  $("target").value = state.target ?? "";
}

/** Shows the predictions and errors of one target, or of all if it is null. */
function chooseTarget(target) {
  state.target = target;
  $("target").value = target ?? "";
  scores.clear();
  renderList();
  render();
  pollScores();
}

/** Polls the scores while they are computed, and updates the list. */
async function pollScores() {
  const { target } = state;
  $("scoring").hidden = false;
  for (;;) {
    let response;
    try {
      response = await source.scores(scores.size, target);
    } catch {
      return;
    }
    if (target !== state.target) return; // another target was chosen
    response.scores.forEach((score) => scores.set(score.index, score));
    const percent = 100 * scores.size / Math.max(1, response.total);
    $("scoring").firstElementChild.style.width = `${percent}%`;
    $("scoring").setAttribute("aria-valuenow", Math.round(percent));
    if (response.scores.length) renderList();
    if (scores.size >= response.total) break;
    await new Promise((resolve) => setTimeout(resolve, 700));
  }
  $("scoring").hidden = true;
}

// Zoom. All figures show the same part of the graph.

/** Fingers and buttons that are down, by pointer. */
const pointers = new Map();
/** Pan or pinch in progress, or the last one. */
let drag = null;

function setZoom(scale, x, y) {
  const next = Math.min(MAX_ZOOM, Math.max(1, scale));
  const [, , width, height] = graphFigure.base;
  const limit = (value, size) => Math.min(size, Math.max(-size, value));
  Object.assign(zoom, { scale: next, x: limit(x, (width - width / next) / 2), y: limit(y, (height - height / next) / 2) });
  figures().forEach((figure) => figure.applyZoom());
  document.body.classList.toggle("zoomed", next > 1);
  $("zoom-out").disabled = $("zoom-reset").disabled = next === 1;
}

/** Zooms by a factor; the point of the graph at `at`, in SVG units, keeps its place. */
function zoomBy(factor, at = null) {
  const scale = Math.min(MAX_ZOOM, Math.max(1, zoom.scale * factor));
  const [left, top, width, height] = graphFigure.base;
  const center = [left + width / 2 + zoom.x, top + height / 2 + zoom.y];
  const [x, y] = at ?? graphFigure.coordinates.get(state.node) ?? center;
  const share = 1 - zoom.scale / scale;
  setZoom(scale, zoom.x + share * (x - center[0]), zoom.y + share * (y - center[1]));
}

function addZoomListeners() {
  const figureAt = (event) => figures().find((figure) => figure.stage.contains(event.target));
  document.addEventListener("wheel", (event) => {
    const figure = current && figureAt(event);
    if (!figure || !(figure === graphFigure || event.ctrlKey)) return;
    event.preventDefault();
    zoomBy(Math.exp(-Math.sign(event.deltaY) * Math.min(0.35, Math.abs(event.deltaY) / 250)), figure.toSvg(event.clientX, event.clientY));
  }, { passive: false });
  document.addEventListener("pointerdown", (event) => {
    const figure = current && figureAt(event);
    if (!figure || event.button > 0) return;
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
    drag = { figure, hasMoved: false };
  });
  document.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before || !drag) return;
    const now = [event.clientX, event.clientY];
    if (Math.hypot(now[0] - before[0], now[1] - before[1]) < (drag.hasMoved ? 0.5 : 4)) return;
    drag.hasMoved = zoom.scale > 1 || pointers.size > 1;
    const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    if (others.length) {
      const distance = (point) => Math.hypot(point[0] - others[0][0], point[1] - others[0][1]) || 1;
      zoomBy(distance(now) / distance(before), drag.figure.toSvg((now[0] + others[0][0]) / 2, (now[1] + others[0][1]) / 2));
    } else if (zoom.scale > 1) {
      const [from, to] = [drag.figure.toSvg(...before), drag.figure.toSvg(...now)];
      setZoom(zoom.scale, zoom.x + from[0] - to[0], zoom.y + from[1] - to[1]);
    }
    pointers.set(event.pointerId, now);
  });
  for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, (event) => pointers.delete(event.pointerId));
  $("zoom-in").addEventListener("click", () => zoomBy(1.5));
  $("zoom-out").addEventListener("click", () => zoomBy(1 / 1.5));
  $("zoom-reset").addEventListener("click", () => setZoom(1, 0, 0));
}

// Theme.

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isNarrow = matchMedia("(max-width: 760px)");

function storedTheme(value) {
  try {
    if (value !== undefined) localStorage.setItem("graph-diffuser-theme", value);
    return localStorage.getItem("graph-diffuser-theme");
  } catch {
    return null; // pages loaded from a file may have no storage
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const colors = isDark() ? [...ramp].reverse() : ramp;
  $("ramp").style.background = `linear-gradient(to right, ${colors.join(", ")})`;
  render();
}

const preferredTheme = () => storedTheme() ?? (prefersDark.matches ? "dark" : "light");

function switchTheme() {
  const theme = isDark() ? "light" : "dark";
  storedTheme(theme);
  setTheme(theme);
}

// Keyboard shortcuts and event listeners.

const KEYS = {
  ArrowLeft: () => moveSelection(-1, 0), ArrowRight: () => moveSelection(1, 0), ArrowUp: () => moveSelection(0, -1), ArrowDown: () => moveSelection(0, 1),
  n: () => openAdjacentGraph(1), p: () => openAdjacentGraph(-1),
  "[": () => changeIndex("layer", -1), "]": () => changeIndex("layer", 1),
  h: () => changeIndex("head", -1), l: () => changeIndex("head", 1), m: () => { state.head = null; buildControls(); render(); },
  ",": () => changeStep(-1), ".": () => changeStep(1), " ": play,
  "+": () => zoomBy(1.5), "=": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5), 0: () => setZoom(1, 0, 0), g: () => $("all-heads").click(),
  c: () => $("compare").click(), e: () => $("weights").click(), r: () => { if (!$("paint-switch").hidden) $("paint").click(); },
  x: () => { if (state.other !== null) { [state.node, state.other] = [state.other, state.node]; render(); } },
  "/": () => { $("graphs").open = true; $("search").focus(); }, t: switchTheme, "?": () => $("help-dialog").showModal(),
};

function onKey(event) {
  const target = event.target;
  if (event.key === "Escape" && target.matches("input, select")) return target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || $("help-dialog").open || !current) return;
  const takesText = target.matches("input[type=text], input[type=search], select");
  const usesKey = target.matches("input, button, summary, select") && (event.key === " " || (target.type !== "checkbox" && target.tagName === "INPUT" && event.key.startsWith("Arrow")));
  if (takesText || usesKey || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
}

function addListeners() {
  document.addEventListener("keydown", onKey);
  $("theme").addEventListener("click", switchTheme);
  $("help").addEventListener("click", KEYS["?"]);
  $("previous").addEventListener("click", KEYS.p);
  $("next").addEventListener("click", KEYS.n);
  $("search").addEventListener("input", () => { listLimit = LIST_PAGE_SIZE; renderList(); });
  $("sort").addEventListener("change", () => { renderList(); $("list").scrollTop = 0; });
  $("more").addEventListener("click", () => { listLimit += 5 * LIST_PAGE_SIZE; renderList(); });
  $("compare").addEventListener("change", (event) => { if (!event.target.checked) state.other = null; render(); });
  $("all-heads").addEventListener("change", (event) => { state.allHeads = event.target.checked; render(); });
  $("part").addEventListener("change", render);
  $("target").addEventListener("change", (event) => chooseTarget(event.target.value === "" ? null : Number(event.target.value)));
  addZoomListeners();
  $("weights").addEventListener("change", (event) => { state.weights = event.target.checked; render(); });
  $("predictions").addEventListener("change", (event) => { state.predictions = event.target.checked; render(); });
  $("paint").addEventListener("change", (event) => { brush = event.target.checked ? 0 : null; buildPalette(); buildControls(); });
  $("reset").addEventListener("click", () => { state.colors = new Map(); loadGraph([state.node]); });
  $("step").addEventListener("input", (event) => { stopPlaying(); state.step = Number(event.target.value); render(); });
  $("play").addEventListener("click", play);
  $("smiles-form").addEventListener("submit", (event) => { event.preventDefault(); openMolecule($("smiles").value.trim()); });
  prefersDark.addEventListener("change", () => setTheme(preferredTheme()));
  isNarrow.addEventListener("change", () => { $("graphs").open = !isNarrow.matches; });
  addEventListener("hashchange", () => { readFragment(); buildTargets(); $("all-heads").checked = state.allHeads; loadGraph(); });
}

async function start() {
  try {
    run = await source.info();
  } catch (error) {
    showError(error);
    return;
  }
  ramp = run.ramp;
  setTheme(preferredTheme());
  const names = [run.run, run.recipe].filter((name, i, all) => name && all.indexOf(name) === i);
  $("run").textContent = `${names.join(" · ")} · ${run.split} split`;
  $("live").hidden = !run.is_unfinished;
  $("smiles-form").hidden = !(source.isLive && run.molecules);
  $("graphs").open = !isNarrow.matches;
  readFragment();
  if (state.smiles) $("smiles").value = state.smiles;
  addListeners();
  buildPalette();
  buildTargets();
  $("all-heads").checked = state.allHeads;
  renderList();
  await loadGraph();
  pollScores();
}

start();
