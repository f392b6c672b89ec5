"use strict";
// State, controls and keys. What is seen stands in the address, so that a view can be linked.

const $ = (id) => document.getElementById(id);
const embedded = $("data");
const source = embedded ? new Embedded(embedded.textContent) : new Program();
/** How many numbers are asked for at once when rows are fetched ahead. */
const AHEAD = 100_000;
const LISTED_AT_ONCE = 200;

let run = null;
let known = null;
const scores = new Map();
const state = { graph: null, smiles: null, colours: new Map(), node: null, other: null, layer: null, head: null, step: null, weights: true, texts: false };
let hovered = null;
let brush = null;
let original = null;
let turn = 0;
let shownInList = LISTED_AT_ONCE;
let playing = null;

// The address.

function remember() {
  const parts = new URLSearchParams();
  if (state.smiles) parts.set("smiles", state.smiles);
  else if (state.graph !== null) parts.set("graph", state.graph);
  if (state.colours.size) parts.set("colours", [...state.colours].map((pair) => pair.join(":")).join(","));
  for (const key of ["node", "other", "layer", "head", "step"]) if (state[key] !== null) parts.set(key, state[key]);
  if (!state.weights) parts.set("weights", "off");
  if (state.texts) parts.set("texts", "predictions");
  history.replaceState(null, "", `#${parts}`);
}

function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const number = (key) => (/^\d+$/.test(parts.get(key) ?? "") ? Number(parts.get(key)) : null);
  state.smiles = source.canAsk && run.molecules ? parts.get("smiles") : null;
  state.graph = number("graph") ?? run.graphs[0]?.[0] ?? null;
  if (state.graph === null && source.canAsk && run.molecules) state.smiles ??= "CC(=O)Oc1ccccc1C(=O)O";
  const pairs = (parts.get("colours") ?? "").split(",").map((pair) => pair.split(":").map(Number));
  state.colours = new Map(source.canAsk ? pairs.filter(([cell, colour]) => Number.isInteger(cell) && colour < run.colours.length) : []);
  for (const key of ["node", "other", "layer", "head", "step"]) state[key] = number(key);
  state.weights = parts.get("weights") !== "off";
  state.texts = parts.get("texts") === "predictions";
}

// Graphs and rows.

const asked = () => ({ graph: state.smiles ? null : state.graph, smiles: state.smiles, colours: [...state.colours] });

async function busily(work) {
  const slow = setTimeout(() => { $("busy").hidden = false; }, 150);
  try {
    return await work();
  } finally {
    clearTimeout(slow);
    $("busy").hidden = true;
  }
}

function complain(error) {
  $("fault").textContent = error.message;
  $("fault").hidden = false;
}

/**
 * Opens the graph that the state names, with the rows of some nodes. True once it is shown, false where that
 * fails and the picture before stays, null where something else was asked for meanwhile.
 */
async function open(rows = []) {
  const mine = ++turn;
  stopPlaying();
  try {
    const what = asked();
    const next = new Known(what, await busily(() => source.trace(what, rows, true)));
    const place = (node) => (node !== null && node < next.columns ? node : null);
    const node = place(state.node) ?? next.telling ?? next.rows.keys().next().value;
    const other = place(state.other);
    await need(next, [node, other]);
    if (mine !== turn) return null;
    known = next;
    hovered = null;
    if (!what.colours.length) original = known;
    const clamp = (value, most, usual) => (value === null ? usual : Math.min(value, most));
    Object.assign(state, {
      node, other,
      layer: clamp(state.layer, known.layers - 1, known.layers - 1),
      head: clamp(state.head, known.heads - 1, null),
      step: clamp(state.step, known.steps, Math.min(4, known.steps)),
    });
    $("fault").hidden = true;
    build();
    fetchAhead(mine);
    return true;
  } catch (error) {
    if (mine !== turn) return null;
    complain(error);
    return false;
  }
}

/** Makes sure that the rows of some nodes are here. */
async function need(graph, nodes) {
  const wanted = [...new Set(nodes)].filter((node) => node !== null);
  // Of a large graph only some nodes are drawn: those near the asked rows and those that they attend to.
  const isPart = graph.drawing.nodes.length < graph.nodes;
  const missing = wanted.filter((node) => !graph.rows.has(node) || (isPart && !graph.drawing.nodes.includes(node)));
  if (!missing.length) return;
  graph.add(await busily(() => source.trace(graph.what, isPart ? wanted : missing, isPart)));
  if (isPart && graph === known) build();
}

/** Fetches the other rows of a small graph, so that the pictures follow the pointer at once. */
async function fetchAhead(mine) {
  delete document.body.dataset.rows;
  if (!source.canAsk || !known.whole) return;
  const perRow = known.columns * (3 * known.layers * (known.heads + 1) + known.steps + 1);
  const count = Math.max(1, Math.floor(AHEAD / perRow));
  const missing = [...Array(known.columns).keys()].filter((node) => !known.rows.has(node));
  for (let at = 0; at < missing.length && mine === turn; at += count) {
    try {
      const drawn = await source.trace(known.what, missing.slice(at, at + count), false);
      if (mine === turn) known.add(drawn);
    } catch {
      return; // the next click asks again, and says what is wrong
    }
  }
  if (mine === turn) document.body.dataset.rows = "all";
}

async function choose(node, asSecond = false) {
  const mine = turn;
  try {
    await need(known, asSecond ? [state.node, node] : [node, state.other]);
  } catch (error) {
    complain(error);
    return;
  }
  if (mine !== turn) return;
  if (asSecond) state.other = node === state.node ? null : node;
  else state.node = node;
  $("compare").checked = state.other !== null || ($("compare").checked && !asSecond);
  hovered = null;
  render();
}

function openGraph(number) {
  Object.assign(state, { graph: number, smiles: null, node: null, other: null, colours: new Map() });
  $("compare").checked = false;
  open();
}

async function openMolecule(smiles) {
  const before = { ...state };
  Object.assign(state, { smiles, node: null, other: null, colours: new Map() });
  if ((await open()) === false) Object.assign(state, before);
}

async function paint(node) {
  if (brush === null || node >= known.nodes) return;
  const before = new Map(state.colours);
  if (original?.graph.node_features[node][0] === brush) state.colours.delete(node);
  else state.colours.set(node, brush);
  if ((await open([state.node])) === false) state.colours = before;
}

// Pictures.

const told = (isChooser) => ({
  over(node, event) {
    point(node);
    tip(node, event);
    if (isChooser && known.rows.has(node) && node !== hovered && brush === null) {
      hovered = node;
      render();
    }
  },
  out() {
    $("tip").hidden = true;
    point(null);
    if (isChooser && hovered !== null) {
      hovered = null;
      render();
    }
  },
  click(node, event) {
    if (isChooser && brush !== null) paint(node);
    else choose(node, event.shiftKey || ($("compare").checked && node !== state.node));
  },
  overEdge(pair, event) {
    if (isChooser && known.edgeWeights) edgeTip(pair, event);
  },
});

const graphPicture = new Picture($("graph-stage"), "plain", told(true));
const walkPicture = new Picture($("walk-stage"), "heat", told(false));
let equations = [];

const pictures = () => [graphPicture, ...(known.steps ? [walkPicture] : []), ...equations.flatMap((equation) => equation.pictures.map(({ picture }) => picture))];

function point(node) { pictures().forEach((picture) => picture.pointAt(node)); }

function build() {
  graphPicture.build(known);
  if (known.steps) walkPicture.build(known);
  $("walk-panel").hidden = !known.steps;
  document.querySelector(".lower").classList.toggle("without-walks", !known.steps);
  equations = [];
  $("equations").replaceChildren();
  buildControls();
  render();
}

function buildEquation(letter) {
  const { position, content } = known.parts(state.node, 0, 0);
  const parts = position && content ? ["position", "content", "attention"] : position ? ["position", "attention"] : ["attention"];
  const host = make("div", { className: `equation ${parts.length === 1 ? "one" : ""}` });
  if (parts.length === 2) host.style.gridTemplateColumns = "minmax(0,1fr) 22px minmax(0,1fr)";
  const panels = parts.map((part, place) => {
    const note = make("p", { className: "quiet small" });
    const stage = make("div", { className: "stage" });
    const title = make("h3", { text: part[0].toUpperCase() + part.slice(1) });
    if (letter) title.append(" ", make("span", { className: `tag ${letter.toLowerCase()}`, text: `of ${letter}` }));
    if (place) host.append(make("div", { className: "sign", text: part === "attention" ? "=" : "×", "aria-hidden": "true" }));
    host.append(make("article", { className: "panel" }, make("header", {}, title, note), stage));
    const picture = new Picture(stage, "heat", told(false));
    picture.build(known);
    return { part, picture, note };
  });
  $("equations").append(host);
  return { letter, pictures: panels };
}

/** The darkest shade stands for the most that is given to another node. */
function most(weights, node) {
  let most = 1e-9;
  weights.forEach((weight, other) => { if (other !== node) most = Math.max(most, weight); });
  return most;
}

function render() {
  if (!known) return;
  const node = hovered ?? state.node;
  const pair = state.other === null ? [node] : [node, state.other];
  const letters = pair.length > 1 ? ["A", "B"] : [null];
  if (equations.length !== pair.length) {
    $("equations").replaceChildren();
    equations = letters.map(buildEquation);
  }
  document.body.classList.toggle("compared", pair.length > 1);
  document.body.classList.toggle("of-grid", known.graph.structure.kind === "grid");
  const parts = pair.map((one) => known.parts(one, state.layer, state.head));
  equations.forEach((equation, place) => {
    for (const { part, picture, note } of equation.pictures) {
      // Two nodes are compared on one scale.
      const scale = Math.max(...parts.map((of, at) => most(of[part], pair[at])));
      picture.heat(parts[place][part], scale);
      note.textContent = `0 to ${short(scale)}, itself ${short(parts[place][part][pair[place]])}`;
      mark(picture, pair, place, part === "attention");
      picture.describe(`${part} of node ${known.name(pair[place])}: most ${short(scale)}`);
    }
  });
  renderGraph(pair);
  renderWalk(pair[0]);
  renderWords(pair, parts);
  remember();
}

function mark(picture, pair, place, withCounted) {
  picture.unmark();
  if (withCounted) known.counted(pair[place]).forEach((other) => picture.halo(other, "counted"));
  picture.halo(pair[place], place ? "second" : "first");
  if (pair.length > 1) picture.letter(pair[place], "AB"[place], place ? "second" : "first");
}

function renderGraph(pair) {
  const { outcome } = known;
  const showPredictions = state.texts && outcome.kind === "node_classes";
  graphPicture.tint((node) => (showPredictions && node < known.nodes ? className(outcome, outcome.predicted[node]) : known.label(node)));
  graphPicture.unmark();
  known.counted(pair[0]).forEach((other) => graphPicture.halo(other, "counted"));
  if (showPredictions && known.isTrue) outcome.predicted.forEach((predicted, node) => { if (predicted !== outcome.targets[node]) graphPicture.cross(node); });
  const changed = changedPredictions();
  changed.forEach((node) => graphPicture.halo(node, "changed"));
  pair.forEach((node, place) => {
    graphPicture.halo(node, place ? "second" : "first");
    if (pair.length > 1) graphPicture.letter(node, "AB"[place], place ? "second" : "first");
  });
  const byWeight = state.weights && known.edgeWeights !== null;
  const [low, high] = graphPicture.thicken(byWeight);
  const drawn = known.drawing.nodes.length < known.nodes ? `${known.drawing.nodes.length} of ${known.nodes} nodes; ` : "";
  const weights = known.edgeWeights === null || !Number.isFinite(low) ? "" : high - low > 1e-4 ? `edge weights ${short(low)} to ${short(high)}` : `all edges weigh ${short(high)}`;
  $("graph-note").textContent = state.colours.size
    ? `${state.colours.size} recoloured: ${changed.length} ${changed.length === 1 ? "prediction" : "predictions"} changed (dotted)`
    : drawn + weights;
  graphPicture.describe(`The graph: ${known.nodes} nodes. Node ${known.name(pair[0])} is chosen. Arrow keys choose another.`);
}

/** Nodes whose predicted class is another than before cells were recoloured. */
function changedPredictions() {
  if (!state.colours.size || !original || original.what.graph !== known.what.graph || known.outcome.kind !== "node_classes") return [];
  return known.outcome.predicted.flatMap((predicted, node) => (predicted === original.outcome.predicted[node] ? [] : [node]));
}

function renderWalk(node) {
  if (!known.steps) return;
  const walk = known.walk(node, state.step);
  $("step").value = state.step;
  $("step-out").textContent = state.step === 1 ? "1 step" : `${state.step} steps`;
  walkPicture.unmark();
  if (!walk) {
    walkPicture.heat([], 1);
    $("walk-note").textContent = "no walk leaves the CLS node";
    return;
  }
  const scale = Math.max(1e-9, ...walk);
  walkPicture.heat(walk, scale);
  walkPicture.halo(node, "first");
  $("walk-note").textContent = `where a walk is, at most ${percent(scale)}`;
  walkPicture.describe(`Where a walk from node ${known.name(node)} is after ${state.step} steps: most ${percent(scale)} at one node`);
}

function renderWords(pair, parts) {
  const named = known.what.smiles ? "Your molecule" : `Graph ${known.what.graph}${state.colours.size ? ", recoloured" : ""}`;
  $("graph").textContent = named;
  document.title = `${named} · ${run.recipe}`;
  const bonds = known.graph.structure.kind === "molecule";
  $("size").textContent = `${known.nodes} ${bonds ? "atoms" : "nodes"}, ${neighbours(known).length} ${bonds ? "bonds" : "edges"}`;
  $("verdicts").replaceChildren(...pair.map((node, place) => verdict(known, node, pair.length > 1 ? "AB"[place] : null)));
  $("counted-key").hidden = !pair.some((node) => known.counted(node).length);
  $("outcome").replaceChildren(outcomeDetails(known, pair[0], choose));
  $("details-title").textContent = ["node_classes", "links"].includes(known.outcome.kind) ? `Prediction for node ${known.name(pair[0])}` : "Prediction";
  $("most").replaceChildren(...mostAttended(known, pair[0], parts[0].attention, choose));
  $("chosen").textContent = named;
  for (const button of $("list").querySelectorAll("button")) button.setAttribute("aria-current", String(!known.what.smiles && Number(button.dataset.number) === known.what.graph));
}

// Tips.

function tip(node, event) {
  const from = hovered ?? state.node;
  const lines = [];
  if (known.rows.has(from)) {
    const parts = known.parts(from, state.layer, state.head);
    for (const part of ["position", "content", "attention"]) if (parts[part]) lines.push([part, parts[part][node]]);
    const walk = known.steps ? known.walk(from, state.step) : null;
    if (walk && node < known.nodes) lines.push([`walk, ${state.step} steps`, walk[node]]);
  }
  const heading = node === from ? `node ${known.name(node)}, itself` : `${known.name(from)} → ${known.name(node)}`;
  showTip(heading, lines, event);
}

function edgeTip(pair, event) {
  showTip("edge weights", pair.weights.map(({ source: from, target, weight }) => [`${from} → ${target}`, weight]), event);
}

function showTip(heading, lines, event) {
  const exact = (value) => (value === undefined ? "–" : value >= 0.001 ? value.toFixed(5) : value.toExponential(3));
  $("tip").replaceChildren(make("b", { text: heading }), ...lines.map(([what, value]) => make("span", { text: what }, make("em", { text: exact(value) }))));
  $("tip").hidden = false;
  const box = $("tip").getBoundingClientRect();
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - 12 - box.width : event.clientX + 16;
  const top = event.clientY + 16 + box.height > innerHeight ? event.clientY - 12 - box.height : event.clientY + 16;
  $("tip").style.left = `${Math.max(4, left)}px`;
  $("tip").style.top = `${Math.max(4, top)}px`;
}

// Controls.

function choices(host, name, options, chosen, pick) {
  host.querySelectorAll(".choice").forEach((choice) => choice.remove());
  for (const [value, text] of options) {
    const input = make("input", { type: "radio", name, value: String(value), "aria-label": `${name} ${text}` });
    input.checked = value === chosen;
    input.addEventListener("change", () => pick(value));
    host.append(make("label", { className: "choice" }, input, make("span", { text })));
  }
}

function buildControls() {
  const numbers = (count) => [...Array(count).keys()].map((number) => [number, String(number)]);
  choices($("layers"), "layer", numbers(known.layers), state.layer, (layer) => { state.layer = layer; render(); });
  choices($("heads"), "head", [[null, "mean"], ...numbers(known.heads)], state.head, (head) => { state.head = head; render(); });
  $("step").max = known.steps;
  $("weights").checked = state.weights;
  $("texts").checked = state.texts;
  $("compare").checked ||= state.other !== null;
  $("weights-switch").hidden = known.edgeWeights === null;
  $("texts-switch").hidden = known.outcome.kind !== "node_classes";
  const canPaint = source.canAsk && run.colours.length > 0 && known.graph.structure.kind === "grid";
  $("paint-switch").hidden = !canPaint;
  if (!canPaint) brush = null;
  $("paint").checked = brush !== null;
  $("palette").hidden = brush === null;
  $("reset").hidden = state.colours.size === 0;
}

function buildPalette() {
  $("palette").replaceChildren(...run.colours.map(([letter, fill], colour) => {
    const button = make("button", { text: letter, type: "button", role: "radio", "aria-checked": String(colour === brush), "aria-label": `colour ${letter}` });
    button.style.background = fill;
    button.addEventListener("click", () => { brush = colour; buildPalette(); });
    return button;
  }));
}

function step(kind, by) {
  const count = kind === "layer" ? known.layers : known.heads;
  const now = kind === "head" && state.head === null ? -1 : state[kind];
  const next = Math.min(count - 1, Math.max(kind === "head" ? -1 : 0, now + by));
  state[kind] = next < 0 ? null : next;
  buildControls();
  render();
}

function walkStep(by) {
  state.step = Math.min(known.steps, Math.max(0, state.step + by));
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
  playing = setInterval(() => (state.step < known.steps ? walkStep(1) : stopPlaying()), 450);
}

/** The nearest node in a direction, by angle and distance. */
function move(x, y) {
  const from = graphPicture.place.get(state.node);
  let [best, least] = [null, Infinity];
  for (const [node, [u, v]] of graphPicture.place) {
    const [along, aside] = [(u - from[0]) * x + (v - from[1]) * y, Math.abs((u - from[0]) * y - (v - from[1]) * x)];
    const cost = along + 2.5 * aside;
    if (node !== state.node && along > 1 && cost < least) [best, least] = [node, cost];
  }
  if (best !== null) choose(best);
}

function neighbourGraph(by) {
  const numbers = listed().map(([number]) => number);
  const at = numbers.indexOf(state.graph);
  const next = numbers[Math.min(numbers.length - 1, Math.max(0, at + by))];
  if (next !== undefined && (next !== state.graph || state.smiles)) openGraph(next);
}

// The list.

function matches([number, nodes], text) {
  const size = text.match(/^n\s*([<>=])\s*(\d+)$/);
  if (size) return { "<": nodes < size[2], ">": nodes > size[2], "=": nodes === Number(size[2]) }[size[1]];
  return String(number).includes(text);
}

function listed() {
  const text = $("search").value.trim().replace(/^#/, "");
  const graphs = text ? run.graphs.filter((graph) => matches(graph, text)) : [...run.graphs];
  const error = ([number], missing) => scores.get(number)?.error ?? missing;
  const order = {
    worst: (left, right) => error(right, -1) - error(left, -1),
    best: (left, right) => error(left, Infinity) - error(right, Infinity),
    large: (left, right) => right[1] - left[1],
    small: (left, right) => left[1] - right[1],
  }[$("sort").value];
  return order ? graphs.sort((left, right) => order(left, right) || left[0] - right[0]) : graphs;
}

function renderList() {
  const graphs = listed();
  const worst = Math.max(1e-9, ...[...scores.values()].map((score) => score.error ?? 0));
  $("list").replaceChildren(...graphs.slice(0, shownInList).map(([number, nodes]) => {
    const score = scores.get(number);
    const button = make("button", { type: "button", "data-number": number, "aria-current": String(!state.smiles && number === state.graph) },
      make("span", { className: "number", text: String(number) }), make("span", { className: "nodes", text: `${nodes} nodes` }));
    if (score) {
      const meter = make("i", { className: "meter" });
      meter.style.width = `${(score.error ?? 0) / worst * 40}%`;
      const text = score.truth.startsWith("of ") ? `${score.predicted} ${score.truth}` : `${score.predicted}, true ${score.truth}`;
      button.append(make("span", { className: "error", text: score.error === null ? "" : short(score.error), title: `error: ${run.error}` }), make("span", { className: "said", text }), meter);
    }
    button.addEventListener("click", () => { openGraph(number); if (isNarrow.matches) $("chooser").open = false; });
    return make("li", {}, button);
  }));
  $("more").hidden = graphs.length <= shownInList;
  const all = run.total > run.graphs.length ? `The first ${run.graphs.length} of ${run.total} graphs of the ${run.split} split.` : `${run.total} graphs of the ${run.split} split.`;
  $("list-note").textContent = graphs.length ? `${all} Error: ${run.error}.` : run.total ? "No graph is like that." : "No graphs are here. Type a SMILES.";
}

/** Scores come while they are computed; the list is drawn anew now and then. */
async function followScores() {
  $("scoring").hidden = false;
  for (;;) {
    let answer;
    try {
      answer = await source.scores(scores.size);
    } catch {
      return;
    }
    answer.scores.forEach((score) => scores.set(score.number, score));
    $("scoring").firstElementChild.style.width = `${100 * scores.size / Math.max(1, answer.all)}%`;
    $("scoring").setAttribute("aria-valuenow", Math.round(100 * scores.size / Math.max(1, answer.all)));
    if (answer.scores.length) renderList();
    if (scores.size >= answer.all) break;
    await new Promise((wake) => setTimeout(wake, 700));
  }
  $("scoring").hidden = true;
}

// Light and dark.

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isNarrow = matchMedia("(max-width: 760px)");

function stored(value) {
  try {
    if (value !== undefined) localStorage.setItem("graph-diffuser-theme", value);
    return localStorage.getItem("graph-diffuser-theme");
  } catch {
    return null; // a page from a file may not remember
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const colours = isDark() ? [...ramp].reverse() : ramp;
  $("bar").style.background = `linear-gradient(to right, ${colours.join(", ")})`;
  render();
}

const usualTheme = () => stored() ?? (prefersDark.matches ? "dark" : "light");

function switchTheme() {
  const theme = isDark() ? "light" : "dark";
  stored(theme);
  setTheme(theme);
}

// Keys and wiring.

const KEYS = {
  ArrowLeft: () => move(-1, 0), ArrowRight: () => move(1, 0), ArrowUp: () => move(0, -1), ArrowDown: () => move(0, 1),
  n: () => neighbourGraph(1), p: () => neighbourGraph(-1),
  "[": () => step("layer", -1), "]": () => step("layer", 1),
  h: () => step("head", -1), l: () => step("head", 1), m: () => { state.head = null; buildControls(); render(); },
  ",": () => walkStep(-1), ".": () => walkStep(1), " ": play,
  c: () => $("compare").click(), e: () => $("weights").click(), r: () => { if (!$("paint-switch").hidden) $("paint").click(); },
  x: () => { if (state.other !== null) { [state.node, state.other] = [state.other, state.node]; render(); } },
  "/": () => { $("chooser").open = true; $("search").focus(); }, t: switchTheme, "?": () => $("help-dialog").showModal(),
};

function onKey(event) {
  const target = event.target;
  if (event.key === "Escape" && target.matches("input, select")) return target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || $("help-dialog").open || !known) return;
  const takesText = target.matches("input[type=text], input[type=search], select");
  const usesKey = target.matches("input, button, summary, select") && (event.key === " " || (target.type !== "checkbox" && target.tagName === "INPUT" && event.key.startsWith("Arrow")));
  if (takesText || usesKey || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
}

function wire() {
  document.addEventListener("keydown", onKey);
  $("theme").addEventListener("click", switchTheme);
  $("help").addEventListener("click", KEYS["?"]);
  $("previous").addEventListener("click", KEYS.p);
  $("next").addEventListener("click", KEYS.n);
  $("search").addEventListener("input", () => { shownInList = LISTED_AT_ONCE; renderList(); });
  $("sort").addEventListener("change", () => { renderList(); $("list").scrollTop = 0; });
  $("more").addEventListener("click", () => { shownInList += 5 * LISTED_AT_ONCE; renderList(); });
  $("compare").addEventListener("change", (event) => { if (!event.target.checked) { state.other = null; render(); } });
  $("weights").addEventListener("change", (event) => { state.weights = event.target.checked; render(); });
  $("texts").addEventListener("change", (event) => { state.texts = event.target.checked; render(); });
  $("paint").addEventListener("change", (event) => { brush = event.target.checked ? 0 : null; buildPalette(); buildControls(); });
  $("reset").addEventListener("click", () => { state.colours = new Map(); open([state.node]); });
  $("step").addEventListener("input", (event) => { stopPlaying(); state.step = Number(event.target.value); render(); });
  $("play").addEventListener("click", play);
  $("smiles-form").addEventListener("submit", (event) => { event.preventDefault(); openMolecule($("smiles").value.trim()); });
  prefersDark.addEventListener("change", () => setTheme(usualTheme()));
  isNarrow.addEventListener("change", () => { $("chooser").open = !isNarrow.matches; });
  addEventListener("hashchange", () => { recall(); open(); });
}

async function start() {
  try {
    run = await source.introduction();
  } catch (error) {
    complain(error);
    return;
  }
  ramp = run.ramp;
  setTheme(usualTheme());
  $("run").textContent = `${run.recipe}${run.run && run.run !== run.recipe ? ` · ${run.run}` : ""} · ${run.split}`;
  $("smiles-form").hidden = !(source.canAsk && run.molecules);
  $("chooser").open = !isNarrow.matches;
  recall();
  if (state.smiles) $("smiles").value = state.smiles;
  wire();
  buildPalette();
  renderList();
  await open();
  followScores();
}

start();
