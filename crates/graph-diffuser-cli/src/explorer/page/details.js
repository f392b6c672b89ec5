"use strict";
// What was predicted, in words, bars and tables. Text is only ever set as text.

function make(name, { text, className, ...attributes } = {}, ...children) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function bar({ what, share, value, isTrue = false, click = null }) {
  const name = click ? make("button", { text: what, type: "button" }) : make("span", { text: what });
  name.classList.add("what");
  name.title = what;
  if (click) name.addEventListener("click", click);
  const fill = make("i");
  fill.style.width = `${Math.min(100, 100 * share)}%`;
  return make("li", { className: isTrue ? "true" : "" }, name, make("span", { className: "track" }, fill), make("span", { className: "value", text: value }));
}

function className(outcome, number) { return outcome.names?.[number] ?? String(number); }

function targetName(outcome, place) {
  return outcome.names?.[place] ?? (outcome.kind === "graph_values" && outcome.predicted.length === 1 ? "value" : `target ${place}`);
}

function chip(isRight) {
  return make("span", { className: `chip ${isRight ? "right" : "wrong"}`, text: isRight ? "✓ right" : "✗ wrong" });
}

function said(label, value) { return make("span", {}, `${label} `, make("b", { text: value })); }

/** The line above the pictures, for one node. `tag` is A or B where two are compared. */
function verdict(known, node, tag) {
  const { outcome, isTrue } = known;
  const line = make("p", { className: "verdict" });
  if (tag) line.append(make("span", { className: `tag ${tag.toLowerCase()}`, text: tag }));
  const about = make("span", { className: "quiet", text: `node ${known.name(node)}` });
  const compared = (predicted, target, isRight) => {
    line.append(said("predicted", predicted));
    if (isTrue && target !== null) line.append(said("true", target), ...(isRight === undefined ? [] : [chip(isRight)]));
  };
  switch (outcome.kind) {
    case "node_classes": {
      const right = outcome.targets.filter((target, place) => target === outcome.predicted[place]).length;
      if (node < known.nodes) {
        line.append(about);
        const [predicted, target] = [outcome.predicted[node], outcome.targets[node]];
        compared(className(outcome, predicted), className(outcome, target), predicted === target);
      }
      if (tag !== "B") line.append(make("span", { className: "quiet", text: `${right} of ${known.nodes} nodes of the graph right` }));
      return line;
    }
    case "graph_values": {
      const target = outcome.targets[0];
      if (outcome.names[0]) line.append(make("span", { className: "quiet", text: outcome.names[0] }));
      compared(short(outcome.predicted[0]), target === null ? null : short(target));
      if (isTrue && target !== null) line.append(make("span", { className: "quiet", text: `off by ${short(Math.abs(outcome.predicted[0] - target))}` }));
      if (outcome.predicted.length > 1) line.append(make("span", { className: "quiet", text: `and ${outcome.predicted.length - 1} more` }));
      break;
    }
    case "graph_labels": {
      const place = Math.max(0, outcome.targets.findIndex((target) => target !== null));
      const target = outcome.targets[place];
      line.append(make("span", { className: "quiet", text: targetName(outcome, place) }));
      compared(percent(outcome.probabilities[place]), target === null ? null : target > 0.5 ? "yes" : "no", target === null ? undefined : (outcome.probabilities[place] > 0.5) === (target > 0.5));
      break;
    }
    case "graph_class":
      compared(`${className(outcome, outcome.predicted)} (${percent(outcome.probabilities[outcome.predicted])})`, className(outcome, outcome.target), outcome.predicted === outcome.target);
      break;
    case "words": {
      const words = (numbers) => numbers.map((word) => className(outcome, word)).join(" ") || "nothing";
      compared(words(outcome.predicted), words(outcome.targets));
      break;
    }
    case "links": {
      const linked = outcome.targets.filter(([source]) => source === node).map(([, target]) => target);
      const row = known.rows.get(node)?.links;
      if (row) line.append(said("links predicted", `${linked.filter((other) => row[other] > 0.5).length} of ${linked.length}`));
      break;
    }
  }
  about.textContent = `attention of node ${known.name(node)}`;
  line.append(about);
  return line;
}

/** Everything that was predicted, as bars or a table. */
function outcomeDetails(known, node, choose) {
  const { outcome, isTrue } = known;
  const list = (bars) => make("ol", { className: "bars" }, ...bars);
  const likeliest = (probabilities, isTarget) => {
    const order = probabilities.map((_, place) => place).sort((left, right) => probabilities[right] - probabilities[left]);
    const shown = order.filter((place, rank) => rank < 5 || isTarget(place)).slice(0, 8);
    return list(shown.map((place) => bar({ what: className(outcome, place), share: probabilities[place], value: percent(probabilities[place]), isTrue: isTrue && isTarget(place) })));
  };
  switch (outcome.kind) {
    case "node_classes":
      if (node >= known.nodes) return make("p", { className: "quiet", text: "Choose a node." });
      return likeliest(outcome.probabilities[node], (place) => place === outcome.targets[node]);
    case "graph_class":
      return likeliest(outcome.probabilities, (place) => place === outcome.target);
    case "graph_labels":
      return list(outcome.probabilities.map((probability, place) => bar({
        what: targetName(outcome, place), share: probability, value: percent(probability), isTrue: isTrue && outcome.targets[place] > 0.5,
      })));
    case "graph_values": {
      const heads = ["", "predicted", ...(isTrue ? ["true", "off by"] : [])];
      const row = (value, place) => {
        const target = outcome.targets[place];
        const cells = [targetName(outcome, place), short(value), ...(isTrue ? [short(target), target === null ? "–" : short(Math.abs(value - target))] : [])];
        return make("tr", {}, ...cells.map((text) => make("td", { text })));
      };
      return make("table", { className: "values" }, make("tr", {}, ...heads.map((text) => make("th", { text }))), ...outcome.predicted.map(row));
    }
    case "words": {
      const words = (numbers) => numbers.map((word) => className(outcome, word)).join(" ") || "nothing";
      return make("p", {}, said("predicted", words(outcome.predicted)), make("br"), said("true", words(outcome.targets)));
    }
    default: {
      const row = known.rows.get(node)?.links;
      if (!row) return make("p", { className: "quiet", text: "Choose a node." });
      const linked = new Set(outcome.targets.filter(([source]) => source === node).map(([, target]) => target));
      const order = [...row.keys()].filter((other) => other !== node).sort((left, right) => row[right] - row[left]);
      const shown = order.filter((other, rank) => rank < 5 || linked.has(other)).slice(0, 10);
      return list(shown.map((other) => bar({ what: known.name(other), share: row[other], value: percent(row[other]), isTrue: linked.has(other), click: () => choose(other) })));
    }
  }
}

/** The nodes that most of the attention goes to. */
function mostAttended(known, node, attention, choose) {
  const order = [...attention.keys()].sort((left, right) => attention[right] - attention[left]).slice(0, 6);
  const most = attention[order[0]] || 1;
  return order.map((other) => bar({
    what: other === node ? "itself" : known.name(other), share: attention[other] / most, value: percent(attention[other]),
    click: other === node ? null : () => choose(other),
  }));
}
