"use strict";
// A graph as SVG: nodes in their places, shaded by weights or tinted by kind.

const SVG = "http://www.w3.org/2000/svg";
/** Units of the picture between neighbours. */
const UNIT = 40;

let ramp = [];

function svg(name, attributes = {}, parent = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (parent) parent.append(element);
  return element;
}

/** A share between nothing and one as a colour: light to dark, or on a dark ground dark to light. */
function shade(share) {
  const colours = isDark() ? [...ramp].reverse() : ramp;
  const place = Math.min(1, Math.max(0, share || 0)) * (colours.length - 1);
  const first = Math.min(colours.length - 2, Math.floor(place));
  const parts = [0, 1, 2].map((channel) => {
    const [low, high] = [colours[first], colours[first + 1]].map((colour) => parseInt(colour.slice(1 + 2 * channel, 3 + 2 * channel), 16));
    return Math.round(low + (place - first) * (high - low));
  });
  return `rgb(${parts.join(" ")})`;
}

function inkOn(fill) {
  const parts = fill.startsWith("#")
    ? [1, 3, 5].map((at) => parseInt(fill.slice(at, at + 2), 16))
    : fill.match(/\d+/g).map(Number);
  return 3 * parts[0] + 6 * parts[1] + parts[2] < 1200 ? "#ffffff" : "#1b2026";
}

function isDark() { return document.documentElement.dataset.theme === "dark"; }

/** Each pair of neighbours once, with both directions' weights and the lines of its bond. */
function neighbours(known) {
  const bonds = known.graph.structure.bonds;
  const pairs = new Map();
  known.graph.edges.forEach(([source, target], edge) => {
    if (source === target) return;
    const ends = [Math.min(source, target), Math.max(source, target)];
    const key = ends.join();
    if (!pairs.has(key)) pairs.set(key, { ends, lines: bonds ? bonds[edge] : 1, weights: [] });
    pairs.get(key).weights.push({ source, target, weight: known.edgeWeights ? known.edgeWeights[edge] : null });
  });
  return [...pairs.values()];
}

/** The distance that few pairs of nodes undercut. */
function nearest(places) {
  const all = places.map(([x, y], node) => {
    let least = Infinity;
    places.forEach(([u, v], other) => { if (other !== node) least = Math.min(least, Math.hypot(x - u, y - v)); });
    return least;
  }).sort((left, right) => left - right);
  const found = all[Math.floor(all.length / 20)];
  return Number.isFinite(found) ? found : 1;
}

/** A picture of one graph. `told` hears of pointers: over(node, event), out(), click(node, event), overEdge(pair, event). */
class Picture {
  constructor(stage, kind, told) {
    Object.assign(this, { stage, kind, told });
  }

  build(known) {
    const { nodes, places } = known.drawing;
    this.known = known;
    this.isGrid = known.graph.structure.kind === "grid";
    this.place = new Map(nodes.map((node, at) => [node, [places[at][0] * UNIT, places[at][1] * UNIT]]));
    known.nearest ??= nearest(places);
    this.radius = Math.min(19, Math.max(3, 0.4 * UNIT * known.nearest));
    this.thick = null;
    this.root = svg("svg", { class: this.kind, role: "img", viewBox: this.box(places) });
    if (!(this.isGrid && this.kind === "heat")) this.drawEdges();
    this.bodies = new Map(nodes.map((node) => [node, this.drawNode(node)]));
    this.marks = svg("g", {}, this.root);
    this.overMarks = svg("g", {}, this.root);
    this.stage.replaceChildren(this.root);
    this.listen();
  }

  box(places) {
    const axis = (which) => places.map((place) => place[which] * UNIT);
    const [left, right] = [Math.min(...axis(0)), Math.max(...axis(0))];
    const [top, bottom] = [Math.min(...axis(1)), Math.max(...axis(1))];
    // A small molecule is not blown up to the size of a large one.
    const width = Math.max(right - left + 1.3 * UNIT, 7 * UNIT);
    const height = Math.max(bottom - top + 1.3 * UNIT, 4.5 * UNIT);
    return [(left + right - width) / 2, (top + bottom - height) / 2, width, height].map((number) => number.toFixed(1)).join(" ");
  }

  drawEdges() {
    const group = svg("g", {}, this.root);
    this.edges = [];
    for (const pair of neighbours(this.known)) {
      const [from, to] = pair.ends.map((node) => this.place.get(node));
      if (!from || !to) continue;
      const lines = svg("g", { class: "bond" }, group);
      this.edges.push({ pair, lines, from, to });
      this.drawBond(this.edges.at(-1), 1.8);
    }
  }

  /** One, two or three lines; the second of an aromatic bond is thin. */
  drawBond({ pair, lines, from, to }, width) {
    const length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
    const side = [-(to[1] - from[1]) / length, (to[0] - from[0]) / length];
    const step = Math.max(2.5, 0.34 * this.radius) + width / 2;
    const shifts = { 2: [-step / 2, step / 2], 3: [-step, 0, step], 4: [-step / 2, step / 2] }[pair.lines] ?? [0];
    lines.replaceChildren();
    shifts.forEach((shift, place) => svg("line", {
      class: "edge", "stroke-width": (pair.lines === 4 && place === 1 ? Math.min(width, 1) : width).toFixed(2),
      x1: from[0] + shift * side[0], y1: from[1] + shift * side[1], x2: to[0] + shift * side[0], y2: to[1] + shift * side[1],
    }, lines));
    const wide = svg("line", { stroke: "transparent", "stroke-width": 12, x1: from[0], y1: from[1], x2: to[0], y2: to[1] }, lines);
    wide.addEventListener("pointermove", (event) => this.told.overEdge?.(pair, event));
    wide.addEventListener("pointerleave", () => this.told.out());
  }

  drawNode(node) {
    const [x, y] = this.place.get(node);
    const group = svg("g", { class: "node", "data-node": node }, this.root);
    const size = UNIT - 3;
    const body = this.isGrid && this.kind === "heat" && node < this.known.nodes
      ? svg("rect", { class: "body", x: x - size / 2, y: y - size / 2, width: size, height: size, rx: 6 }, group)
      : svg("circle", { class: "body", cx: x, cy: y, r: this.radius }, group);
    const text = this.radius >= 6 ? svg("text", { x, y }, group) : null;
    return { group, body, text };
  }

  listen() {
    const of = (event) => {
      const group = event.target.closest?.(".node");
      return group ? Number(group.dataset.node) : null;
    };
    this.root.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch") return;
      const node = of(event);
      if (node !== null) this.told.over(node, event);
    });
    this.root.addEventListener("pointerout", (event) => { if (of(event) !== null) this.told.out(); });
    this.root.addEventListener("click", (event) => { if (of(event) !== null) this.told.click(of(event), event); });
  }

  write(node, text, fill) {
    const { body, text: element } = this.bodies.get(node);
    body.setAttribute("fill", fill);
    if (!element) return;
    const label = [...text].length > 4 ? `${[...text].slice(0, 3).join("")}.` : text;
    const room = this.isGrid && this.kind === "heat" ? 15 : this.radius;
    element.textContent = label;
    element.setAttribute("font-size", Math.min(1.15 * room, 2.9 * room / Math.max(1, [...label].length)).toFixed(1));
    element.setAttribute("fill", inkOn(fill));
  }

  /** Shades by weights; `most` is the darkest. */
  heat(weights, most) {
    for (const node of this.bodies.keys()) this.write(node, this.known.label(node), shade((weights[node] ?? 0) / most));
  }

  /** Tints by kind, with the text that `textOf` gives. */
  tint(textOf) {
    for (const node of this.bodies.keys()) {
      const fill = this.known.drawing.fills[node] ?? (isDark() ? "#39434d" : "#eef1f4");
      this.write(node, textOf(node), fill);
    }
  }

  /** Thick lines weigh much; without weights all are alike. */
  thicken(byWeight) {
    const mean = ({ pair }) => pair.weights.reduce((sum, { weight }) => sum + weight, 0) / pair.weights.length;
    const means = this.edges.map(mean);
    const [low, high] = [Math.min(...means), Math.max(...means)];
    if (this.thick === byWeight) return [low, high];
    this.thick = byWeight;
    this.edges.forEach((edge, place) => {
      const share = high - low > 1e-6 ? (means[place] - low) / (high - low) : 0.3;
      this.drawBond(edge, byWeight ? 1 + 6 * share : 1.8);
    });
    return [low, high];
  }

  halo(node, kind, parent = this.marks) {
    const at = this.place.get(node);
    if (!at) return;
    const grow = { counted: 4, first: 2, second: 2, over: 1, changed: 5 }[kind];
    const dashes = (around) => (kind === "counted" ? { "stroke-dasharray": (around / 24).toFixed(2) } : {});
    if (this.isGrid && this.kind === "heat" && node < this.known.nodes) {
      const half = (UNIT - 3) / 2 + grow / 2 - 1;
      svg("rect", { class: `halo ${kind}`, x: at[0] - half, y: at[1] - half, width: 2 * half, height: 2 * half, rx: 7, ...dashes(8 * half) }, parent);
    } else {
      const radius = this.radius + grow;
      svg("circle", { class: `halo ${kind}`, cx: at[0], cy: at[1], r: radius, ...dashes(2 * Math.PI * radius) }, parent);
    }
  }

  letter(node, text, kind) {
    const at = this.place.get(node);
    if (at) svg("text", { class: `letter ${kind}`, x: at[0] + this.radius + 4, y: at[1] - this.radius - 1 }, this.marks).textContent = text;
  }

  cross(node) {
    const [x, y] = this.place.get(node) ?? [];
    if (x === undefined) return;
    const [half, shift] = [0.28 * this.radius, 0.75 * this.radius];
    for (const way of [-1, 1]) {
      svg("line", { class: "cross", x1: x + shift - half, y1: y - shift - way * half, x2: x + shift + half, y2: y - shift + way * half }, this.marks);
    }
  }

  unmark() { this.marks.replaceChildren(); }

  pointAt(node) {
    this.overMarks.replaceChildren();
    if (node !== null) this.halo(node, "over", this.overMarks);
  }

  describe(text) { this.root.setAttribute("aria-label", text); }
}
