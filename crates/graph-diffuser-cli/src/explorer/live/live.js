// Learning curves of a run, polled while it trains.
"use strict";

const INTERVAL_MS = 1000;
const WIDTH = 420, HEIGHT = 200, LEFT = 52, RIGHT = 10, TOP = 10, BOTTOM = 26;
const LOWER_IS_BETTER = new Set(["loss", "mae", "rmse"]);

/** Records of each member by epoch: a resumed run may repeat an epoch. */
let members = [];
let received = 0;

const byId = id => document.getElementById(id);

function element(name, attributes = {}, text = null) {
  const created = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  if (text !== null) created.textContent = text;
  return created;
}

function html(name, className, text) {
  const created = document.createElement(name);
  if (className) created.className = className;
  if (text !== undefined) created.textContent = text;
  return created;
}

const formatted = value => value === null || value === undefined ? "–"
  : Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(+value.toPrecision(4));

/** Round numbers that divide a range into at most five parts. */
function ticks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(step => step >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step); tick * step <= high + step * 1e-9; tick += 1) found.push(tick * step);
  return found;
}

/** Points of one quantity of one member, without missing values. */
const points = (records, value) => records.map(record => [record.epoch, value(record)])
  .filter(([, number]) => number !== null && number !== undefined);

/** Draws curves `{kind, name, points, best}` as one chart. */
function chart(title, curves) {
  const all = curves.flatMap(curve => curve.points);
  const figure = html("figure");
  const caption = html("figcaption");
  caption.append(html("h2", "", title));
  const legend = html("span", "legend");
  for (const kind of new Set(curves.map(curve => curve.kind))) {
    const last = curves.filter(curve => curve.kind === kind && curve.points.length).at(-1);
    legend.append(html("span", kind, `${curves[0].name ?? kind} ${formatted(last?.points.at(-1)[1])}`));
  }
  caption.append(legend);
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title} by epoch` });
  figure.append(caption, svg);
  if (!all.length) return figure;
  const epochs = Math.max(2, ...all.map(([epoch]) => epoch));
  let low = Math.min(...all.map(([, value]) => value)), high = Math.max(...all.map(([, value]) => value));
  if (low === high) { low -= Math.abs(low) / 10 || 1; high += Math.abs(high) / 10 || 1; }
  const x = epoch => LEFT + (epoch - 1) / (epochs - 1) * (WIDTH - LEFT - RIGHT);
  const y = value => TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM);
  for (const tick of ticks(low, high)) {
    svg.append(element("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick) }));
    svg.append(element("text", { class: "label", x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, formatted(tick)));
  }
  for (const tick of ticks(1, epochs).filter(Number.isInteger)) {
    svg.append(element("text", { class: "label", x: x(tick), y: HEIGHT - 6, "text-anchor": "middle" }, tick));
  }
  for (const { kind, points, best, last } of curves) {
    if (!points.length) continue;
    const path = points.map(([epoch, value], index) => `${index ? "L" : "M"}${x(epoch).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    svg.append(element("path", { class: `curve ${kind}${last ? " last" : ""}`, d: points.length > 1 ? path : `${path}h1` }));
    const marked = points.find(([epoch]) => epoch === best);
    if (marked) svg.append(element("circle", { class: `best ${kind}`, cx: x(marked[0]), cy: y(marked[1]), r: 4 }));
  }
  return figure;
}

function draw(progress) {
  const histories = members.map(records => [...records.values()].sort((left, right) => left.epoch - right.epoch));
  const names = [...new Set(histories.flat().flatMap(record => Object.keys(record.valid?.metrics ?? {})))];
  const curves = (kind, value, name) => histories.map((records, member) => ({
    kind, name, last: member === histories.length - 1, points: points(records, value),
    best: kind === "valid" ? records.findLast(record => record.best)?.epoch : undefined,
  }));
  if (histories.some(records => records.length)) byId("charts").replaceChildren(
    chart("Loss", [...curves("train", record => record.train_loss), ...curves("valid", record => record.valid?.loss)]),
    ...names.filter(name => name !== "loss").map(name =>
      chart(`${name} ${LOWER_IS_BETTER.has(name) ? "↓" : "↑"}`, curves("valid", record => record.valid?.metrics[name]))),
    chart("Learning rate", curves("train", record => record.lr, "")),
  );
  const all = progress.epochs * progress.members;
  const percent = progress.is_finished ? 100 : 100 * progress.total / all;
  byId("done").setAttribute("width", percent);
  byId("bar").setAttribute("aria-valuenow", Math.round(percent));
  const current = progress.members > 1 && !progress.is_finished ? `member ${Math.max(1, members.length)} of ${progress.members}, ` : "";
  const epoch = histories.at(-1)?.at(-1)?.epoch ?? 0;
  byId("state").textContent = progress.is_finished ? "finished" : `${current}epoch ${epoch} of ${progress.epochs}`;
  const seconds = histories.flat().slice(-10).map(record => record.seconds);
  const mean = seconds.reduce((sum, value) => sum + value, 0) / seconds.length;
  byId("summary").textContent = seconds.length ? `${formatted(mean)} s per epoch; the circle marks the best epoch` : "waiting for the first epoch";
  byId("run").textContent = progress.run;
  document.title = `${progress.run} – graph-diffuser`;
}

/** Identifies the run of this page. */
let id;

async function poll() {
  let wait = INTERVAL_MS;
  try {
    const response = await fetch(`/api/progress/${received}`);
    const progress = await response.json();
    if (!response.ok) throw new Error(progress.error);
    id ??= progress.id;
    if (progress.id !== id) throw new Error("another run is at this address");
    if (progress.total < received) { members = []; received = 0; }
    for (const record of progress.records) {
      while (members.length <= record.member) members.push(new Map());
      members[record.member].set(record.epoch, record);
    }
    received += progress.records.length;
    draw(progress);
    if (received < progress.total) wait = 0;
    else if (progress.is_finished) return;
  } catch (error) {
    byId("state").textContent = `no connection to the program, which may have ended (${error.message})`;
    wait = 5 * INTERVAL_MS;
  }
  setTimeout(poll, wait);
}

poll();
