"use strict";
// A graph as SVG: nodes at their coordinates, shaded by weight or filled by category.

const SVG = "http://www.w3.org/2000/svg";
/** SVG units per layout unit. */
const UNIT = 40;

let ramp = [];

function svg(name, attributes = {}, parent = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (parent) parent.append(element);
  return element;
}

/** Color of a value between 0 and 1 in the colormap, which is reversed on a dark background. */
function shade(value) {
  const colors = isDark() ? [...ramp].reverse() : ramp;
  const position = Math.min(1, Math.max(0, value || 0)) * (colors.length - 1);
  const first = Math.min(colors.length - 2, Math.floor(position));
  const channels = [0, 1, 2].map((channel) => {
    const [low, high] = [colors[first], colors[first + 1]].map((color) => parseInt(color.slice(1 + 2 * channel, 3 + 2 * channel), 16));
    return Math.round(low + (position - first) * (high - low));
  });
  return `rgb(${channels.join(" ")})`;
}

/** Text color that contrasts with the fill color. */
function textColor(fill) {
  const channels = fill.startsWith("#")
    ? [1, 3, 5].map((at) => parseInt(fill.slice(at, at + 2), 16))
    : fill.match(/\d+/g).map(Number);
  return 3 * channels[0] + 6 * channels[1] + channels[2] < 1200 ? "#ffffff" : "#1b2026";
}

function isDark() { return document.documentElement.dataset.theme === "dark"; }

/** Undirected edges, each with the weights of its directions and its bond order. */
function undirectedEdges(view) {
  const bonds = view.graph.structure.bonds;
  const pairs = new Map();
  view.graph.edges.forEach(([source, target], edge) => {
    if (source === target) return;
    const ends = [Math.min(source, target), Math.max(source, target)];
    const key = ends.join();
    if (!pairs.has(key)) pairs.set(key, { ends, order: bonds ? bonds[edge] : 1, weights: [] });
    pairs.get(key).weights.push({ source, target, weight: view.edgeWeights ? view.edgeWeights[edge] : null });
  });
  const all = [...pairs.values()];
  for (const pair of all) pair.isDirected = new Set(pair.weights.map(({ source }) => source)).size === 1;
  return all;
}

/** Zoom of all figures: magnification, and offset of the center in SVG units. */
const zoom = { scale: 1, x: 0, y: 0 };
const MAX_ZOOM = 12;

/**
 * Scale of a color map: weights from `low` to `high`. Weights that are nearly equal get one medium color instead of the
 * darkest. Large weights with small differences are not drawn from zero, with a contrast in proportion to their range.
 */
function colorScale(rows, nodes) {
  let [low, high] = [Infinity, 0];
  rows.forEach((weights, i) => weights.forEach((weight, other) => {
    if (other !== nodes[i]) [low, high] = [Math.min(low, weight), Math.max(high, weight)];
  }));
  if (!Number.isFinite(low)) [low, high] = [0, 1];
  const isUniform = high - low <= 0.02 * high;
  if (low < 0.5 * high) low = 0;
  const range = Math.max(high - low, 1e-12);
  const contrast = low > 0 ? Math.min(1, 2 * range / high) : 1;
  const from = low > 0 ? 0.3 - 0.2 * contrast : 0;
  const to = 0.3 + 0.7 * contrast;
  return { low, high, isUniform, shade: (weight) => (isUniform ? 0.3 : from + (to - from) * (weight - low) / range) };
}

/** Fifth percentile of the distance between a node and its nearest neighbor. */
function nodeSpacing(coordinates) {
  const distances = coordinates.map(([x, y], node) => {
    let min = Infinity;
    coordinates.forEach(([u, v], other) => { if (other !== node) min = Math.min(min, Math.hypot(x - u, y - v)); });
    return min;
  }).sort((left, right) => left - right);
  const spacing = distances[Math.floor(distances.length / 20)];
  return Number.isFinite(spacing) ? spacing : 1;
}

/** Figure of one graph. `handlers` are called on pointer events: over(node, event), out(), click(node, event), overEdge(pair, event). */
class Figure {
  constructor(stage, kind, handlers) {
    Object.assign(this, { stage, kind, handlers });
  }

  build(view) {
    const { nodes, coordinates } = view.layout;
    this.view = view;
    this.isGrid = view.graph.structure.kind === "grid";
    this.coordinates = new Map(nodes.map((node, i) => [node, [coordinates[i][0] * UNIT, coordinates[i][1] * UNIT]]));
    view.spacing ??= nodeSpacing(coordinates);
    // Arrows need more room between nodes.
    const share = undirectedEdges(view).some(({ isDirected }) => isDirected) ? 0.28 : 0.4;
    this.radius = Math.min(19, Math.max(3, share * UNIT * view.spacing));
    this.widthByWeight = null;
    this.base = this.viewBox(coordinates);
    this.root = svg("svg", { class: this.kind, role: "img" });
    this.applyZoom();
    if (!(this.isGrid && this.kind === "heat")) this.drawEdges();
    this.bodies = new Map(nodes.map((node) => [node, this.drawNode(node)]));
    this.marks = svg("g", {}, this.root);
    this.hoverMarks = svg("g", {}, this.root);
    this.stage.replaceChildren(this.root);
    this.addListeners();
  }

  viewBox(coordinates) {
    const axis = (dimension) => coordinates.map((point) => point[dimension] * UNIT);
    const [left, right] = [Math.min(...axis(0)), Math.max(...axis(0))];
    const [top, bottom] = [Math.min(...axis(1)), Math.max(...axis(1))];
    // A minimum size, so that small molecules are not enlarged.
    const width = Math.max(right - left + 1.3 * UNIT, 7 * UNIT);
    const height = Math.max(bottom - top + 1.3 * UNIT, 4.5 * UNIT);
    return [(left + right - width) / 2, (top + bottom - height) / 2, width, height];
  }

  applyZoom() {
    const [left, top, width, height] = this.base;
    const [shownWidth, shownHeight] = [width / zoom.scale, height / zoom.scale];
    const box = [left + width / 2 + zoom.x - shownWidth / 2, top + height / 2 + zoom.y - shownHeight / 2, shownWidth, shownHeight];
    this.root.setAttribute("viewBox", box.map((value) => value.toFixed(2)).join(" "));
  }

  /** SVG coordinates of a point of the window. */
  toSvg(clientX, clientY) {
    const point = new DOMPoint(clientX, clientY).matrixTransform(this.root.getScreenCTM().inverse());
    return [point.x, point.y];
  }

  drawEdges() {
    const group = svg("g", {}, this.root);
    this.edges = [];
    for (const pair of undirectedEdges(this.view)) {
      const [from, to] = pair.ends.map((node) => this.coordinates.get(node));
      if (!from || !to) continue;
      const lines = svg("g", { class: "bond" }, group);
      this.edges.push({ pair, lines, from, to });
      this.drawBond(this.edges.at(-1), 1.8);
    }
  }

  /** Draws one, two or three lines; the second line of an aromatic bond (order 4) is thin. */
  drawBond({ pair, lines, from, to }, width) {
    const length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
    const normal = [-(to[1] - from[1]) / length, (to[0] - from[0]) / length];
    const gap = Math.max(2.5, 0.34 * this.radius) + width / 2;
    const offsets = { 2: [-gap / 2, gap / 2], 3: [-gap, 0, gap], 4: [-gap / 2, gap / 2] }[pair.order] ?? [0];
    lines.replaceChildren();
    offsets.forEach((offset, i) => svg("line", {
      class: "edge", "stroke-width": (pair.order === 4 && i === 1 ? Math.min(width, 1) : width).toFixed(2),
      x1: from[0] + offset * normal[0], y1: from[1] + offset * normal[1], x2: to[0] + offset * normal[0], y2: to[1] + offset * normal[1],
    }, lines));
    if (pair.isDirected) this.drawArrowHead(pair, lines, width);
    const hitArea = svg("line", { stroke: "transparent", "stroke-width": 12, x1: from[0], y1: from[1], x2: to[0], y2: to[1] }, lines);
    hitArea.addEventListener("pointermove", (event) => this.handlers.overEdge?.(pair, event));
    hitArea.addEventListener("pointerleave", () => this.handlers.out());
  }

  drawArrowHead(pair, lines, width) {
    const [{ source, target }] = pair.weights;
    const [from, to] = [this.coordinates.get(source), this.coordinates.get(target)];
    const length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
    const along = [(to[0] - from[0]) / length, (to[1] - from[1]) / length];
    const [size, half] = [4 + 2 * width, 2.5 + width];
    const at = (back, side) => {
      const distance = length - this.radius - 1.5 - back;
      return `${(from[0] + distance * along[0] - side * along[1]).toFixed(2)},${(from[1] + distance * along[1] + side * along[0]).toFixed(2)}`;
    };
    svg("polygon", { class: "arrow", points: [at(0, 0), at(size, half), at(size, -half)].join(" ") }, lines);
  }

  drawNode(node) {
    const [x, y] = this.coordinates.get(node);
    const group = svg("g", { class: "node", "data-node": node }, this.root);
    const size = UNIT - 3;
    const body = this.isGrid && this.kind === "heat" && node < this.view.nodes
      ? svg("rect", { class: "body", x: x - size / 2, y: y - size / 2, width: size, height: size, rx: 6 }, group)
      : svg("circle", { class: "body", cx: x, cy: y, r: this.radius }, group);
    const text = this.radius >= 6 ? svg("text", { x, y }, group) : null;
    return { group, body, text };
  }

  addListeners() {
    const nodeAt = (event) => {
      const group = event.target.closest?.(".node");
      return group ? Number(group.dataset.node) : null;
    };
    this.root.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch") return;
      const node = nodeAt(event);
      if (node !== null) this.handlers.over(node, event);
    });
    this.root.addEventListener("pointerout", (event) => { if (nodeAt(event) !== null) this.handlers.out(); });
    this.root.addEventListener("click", (event) => { if (nodeAt(event) !== null) this.handlers.click(nodeAt(event), event); });
  }

  setNode(node, text, fill) {
    const { body, text: element } = this.bodies.get(node);
    body.setAttribute("fill", fill);
    if (!element) return;
    const label = [...text].length > 4 ? `${[...text].slice(0, 3).join("")}.` : text;
    const room = this.isGrid && this.kind === "heat" ? 15 : this.radius;
    element.textContent = label;
    element.setAttribute("font-size", Math.min(1.15 * room, 2.45 * room / Math.max(1, [...label].length)).toFixed(1));
    element.setAttribute("fill", textColor(fill));
  }

  /** Shades the nodes by weight on a color scale. */
  setWeights(weights, scale) {
    for (const node of this.bodies.keys()) this.setNode(node, this.view.label(node), shade(scale.shade(weights[node] ?? 0)));
  }

  /** Fills the nodes by category, with the text returned by `textOf`. */
  setCategories(textOf) {
    for (const node of this.bodies.keys()) {
      const fill = this.view.layout.fills[node] ?? (isDark() ? "#39434d" : "#eef1f4");
      this.setNode(node, textOf(node), fill);
    }
  }

  /** Sets the line widths by edge weight, or all equal; returns the range of the mean weights. */
  setEdgeWidths(byWeight) {
    const mean = ({ pair }) => pair.weights.reduce((sum, { weight }) => sum + weight, 0) / pair.weights.length;
    const means = this.edges.map(mean);
    const [low, high] = [Math.min(...means), Math.max(...means)];
    if (this.widthByWeight === byWeight) return [low, high];
    this.widthByWeight = byWeight;
    this.edges.forEach((edge, i) => {
      const fraction = high - low > 1e-6 ? (means[i] - low) / (high - low) : 0.3;
      this.drawBond(edge, byWeight ? 1 + 6 * fraction : 1.8);
    });
    return [low, high];
  }

  halo(node, kind, parent = this.marks) {
    const at = this.coordinates.get(node);
    if (!at) return;
    const grow = { "ground-truth": 4, first: 2, second: 2, hover: 1, changed: 5 }[kind];
    const dashes = (perimeter) => (kind === "ground-truth" ? { "stroke-dasharray": (perimeter / 24).toFixed(2) } : {});
    if (this.isGrid && this.kind === "heat" && node < this.view.nodes) {
      const half = (UNIT - 3) / 2 + grow / 2 - 1;
      svg("rect", { class: `halo ${kind}`, x: at[0] - half, y: at[1] - half, width: 2 * half, height: 2 * half, rx: 7, ...dashes(8 * half) }, parent);
    } else {
      const radius = this.radius + grow;
      svg("circle", { class: `halo ${kind}`, cx: at[0], cy: at[1], r: radius, ...dashes(2 * Math.PI * radius) }, parent);
    }
  }

  letter(node, text, kind) {
    const at = this.coordinates.get(node);
    if (at) svg("text", { class: `letter ${kind}`, x: at[0] + this.radius + 4, y: at[1] - this.radius - 1 }, this.marks).textContent = text;
  }

  cross(node) {
    const [x, y] = this.coordinates.get(node) ?? [];
    if (x === undefined) return;
    const [half, shift] = [0.28 * this.radius, 0.75 * this.radius];
    for (const sign of [-1, 1]) {
      svg("line", { class: "cross", x1: x + shift - half, y1: y - shift - sign * half, x2: x + shift + half, y2: y - shift + sign * half }, this.marks);
    }
  }

  clearMarks() { this.marks.replaceChildren(); }

  highlight(node) {
    this.hoverMarks.replaceChildren();
    if (node !== null) this.halo(node, "hover", this.hoverMarks);
  }

  describe(text) { this.root.setAttribute("aria-label", text); }
}

/** Draws a thumbnail of the weights of a graph on a canvas. */
function drawThumbnail(canvas, view, weights, scale, query) {
  const { nodes, coordinates } = view.layout;
  const ratio = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth || 112, canvas.clientHeight || 76];
  Object.assign(canvas, { width: width * ratio, height: height * ratio });
  const context = canvas.getContext("2d");
  const axis = (dimension) => coordinates.map((point) => point[dimension]);
  const bounds = [0, 1].map((dimension) => [Math.min(...axis(dimension)), Math.max(...axis(dimension))]);
  const unit = Math.min(...[width, height].map((length, i) => (length - 10) / (bounds[i][1] - bounds[i][0] + 0.9)), 16);
  const place = ([x, y]) => [width / 2 + (x - (bounds[0][0] + bounds[0][1]) / 2) * unit, height / 2 + (y - (bounds[1][0] + bounds[1][1]) / 2) * unit];
  const style = getComputedStyle(document.documentElement);
  context.scale(ratio, ratio);
  const isGrid = view.graph.structure.kind === "grid";
  const at = new Map(nodes.map((node, i) => [node, place(coordinates[i])]));
  if (!isGrid) {
    context.strokeStyle = style.getPropertyValue("--faint-edge");
    context.beginPath();
    for (const [source, target] of view.graph.edges) {
      if (!at.has(source) || !at.has(target)) continue;
      context.moveTo(...at.get(source));
      context.lineTo(...at.get(target));
    }
    context.stroke();
  }
  const radius = Math.max(1.2, 0.42 * unit);
  for (const [node, [x, y]] of at) {
    context.fillStyle = shade(scale.shade(weights[node] ?? 0));
    context.strokeStyle = style.getPropertyValue(node === query ? "--ring" : "--node-line");
    context.lineWidth = node === query ? 1.8 : 0.5;
    context.beginPath();
    if (isGrid) context.rect(x - radius, y - radius, 2 * radius, 2 * radius);
    else context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fill();
    context.stroke();
  }
}
