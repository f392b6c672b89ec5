"use strict";
// Predictions as text, bars and tables. Strings are always set as text content, never as HTML.

function make(name, { text, className, ...attributes } = {}, ...children) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function bar({ label, fraction, value, isTarget = false, click = null }) {
  const name = click ? make("button", { text: label, type: "button" }) : make("span", { text: label });
  name.classList.add("label");
  name.title = label;
  if (click) name.addEventListener("click", click);
  const fill = make("i");
  fill.style.width = `${Math.min(100, 100 * fraction)}%`;
  return make("li", { className: isTarget ? "target" : "" }, name, make("span", { className: "track" }, fill), make("span", { className: "value", text: value }));
}

function className(outcome, index) { return outcome.names?.[index] ?? String(index); }

/** Names of prediction and true value of a graph-level target; the latter is null if missing. */
function describeTarget(target) {
  const name = (index) => target.classes?.[index] ?? (target.kind === "binary" ? ["no", "yes"][index] : String(index));
  const truth = target.target === null ? null : target.kind === "regression" ? formatNumber(target.target) : name(target.target);
  switch (target.kind) {
    case "regression": return { predicted: formatNumber(target.predicted), truth };
    case "binary": return { predicted: formatPercent(target.probability), truth, isCorrect: (target.probability > 0.5) === (target.target === 1) };
    default: return { predicted: `${name(target.predicted)} (${formatPercent(target.probabilities[target.predicted])})`, truth, isCorrect: target.predicted === target.target };
  }
}

function joinTokens(outcome, tokens) { return tokens.map((token) => className(outcome, token)).join(" ") || "none"; }

function chip(isCorrect) {
  return make("span", { className: `chip ${isCorrect ? "correct" : "wrong"}`, text: isCorrect ? "✓ correct" : "✗ wrong" });
}

function labeled(label, value) { return make("span", {}, `${label} `, make("b", { text: value })); }

/**
 * Summary line above the figures for one query node. `tag` is A or B if two nodes are compared, `chosen` the index of a
 * target or null.
 */
function summaryLine(view, node, tag, chosen) {
  const { outcome, hasTargets } = view;
  const line = make("p", { className: "summary-line" });
  if (tag) line.append(make("span", { className: `tag ${tag.toLowerCase()}`, text: tag }));
  const query = make("span", { className: "muted", text: `node ${view.name(node)}` });
  const compare = (predicted, target, isCorrect) => {
    line.append(labeled("predicted", predicted));
    if (hasTargets && target !== null) line.append(labeled("true", target), ...(isCorrect === undefined ? [] : [chip(isCorrect)]));
  };
  switch (outcome.kind) {
    case "node_classes": {
      const correct = outcome.targets.filter((target, i) => target === outcome.predicted[i]).length;
      if (node < view.nodes) {
        line.append(query);
        const [predicted, target] = [outcome.predicted[node], outcome.targets[node]];
        compare(className(outcome, predicted), target === null ? null : className(outcome, target), predicted === target);
      }
      if (tag !== "B") line.append(make("span", { className: "muted", text: `${correct} of ${outcome.targets.filter((target) => target !== null).length} nodes correct` }));
      return line;
    }
    case "graph": {
      const shown = outcome.targets[chosen] ?? outcome.targets.find((target) => target.target !== null) ?? outcome.targets[0];
      const { predicted, truth, isCorrect } = describeTarget(shown);
      if (shown.name !== "target") line.append(make("span", { className: "muted", text: shown.name }));
      compare(predicted, truth, isCorrect);
      if (shown.kind === "regression" && hasTargets && truth !== null) line.append(make("span", { className: "muted", text: `absolute error ${formatNumber(Math.abs(shown.predicted - shown.target))}` }));
      if (outcome.targets.length > 1) line.append(make("span", { className: "muted", text: `and ${outcome.targets.length - 1} more` }));
      break;
    }
    case "sub_tokens":
      compare(joinTokens(outcome, outcome.predicted), joinTokens(outcome, outcome.targets));
      break;
    case "links": {
      const linked = outcome.targets.filter(([source]) => source === node).map(([, target]) => target);
      const row = view.rows.get(node)?.links;
      if (row) line.append(labeled("links predicted", `${linked.filter((other) => row[other] > 0.5).length} of ${linked.length}`));
      break;
    }
  }
  query.textContent = `query node ${view.name(node)}`;
  line.append(query);
  return line;
}

/** Number of targets that are shown before the others are asked for. */
const SHOWN_TARGETS = 12;

/** Indices of the targets that are shown: the chosen one first, then the first ones or all. */
function shownTargets(count, chosen, isExpanded) {
  const order = [...Array(count).keys()].filter((target) => target !== chosen);
  if (chosen !== null && chosen < count) order.unshift(chosen);
  return isExpanded ? order : order.slice(0, SHOWN_TARGETS);
}

/** All predictions of the graph or node, as bars or a table. `targets` chooses and expands those of a graph. */
function outcomeDetails(view, node, select, targets) {
  const { outcome, hasTargets } = view;
  const list = (bars) => make("ol", { className: "bars" }, ...bars);
  const topClasses = (probabilities, isTarget, names = outcome.names) => {
    const order = probabilities.map((_, index) => index).sort((left, right) => probabilities[right] - probabilities[left]);
    const shown = order.filter((index, rank) => rank < 5 || isTarget(index)).slice(0, 8);
    return list(shown.map((index) => bar({ label: className({ names }, index), fraction: probabilities[index], value: formatPercent(probabilities[index]), isTarget: hasTargets && isTarget(index) })));
  };
  switch (outcome.kind) {
    case "node_classes":
      if (node >= view.nodes) return make("p", { className: "muted", text: "Select a node." });
      return topClasses(outcome.probabilities[node], (index) => index === outcome.targets[node]);
    case "graph": {
      if (outcome.targets.length === 1 && outcome.targets[0].kind === "multiclass") {
        const [{ probabilities, target, classes }] = outcome.targets;
        return topClasses(probabilities, (index) => index === target, classes);
      }
      if (outcome.targets.every((target) => target.kind === "binary")) {
        const shown = shownTargets(outcome.targets.length, targets.chosen, targets.isExpanded);
        const bars = shown.map((index) => {
          const { name, probability, target } = outcome.targets[index];
          const item = bar({ label: name, fraction: probability, value: formatPercent(probability), isTarget: hasTargets && target === 1, click: outcome.targets.length > 1 ? () => targets.choose(index) : null });
          item.classList.toggle("chosen", index === targets.chosen);
          return item;
        });
        return make("div", {}, list(bars), ...moreTargets(outcome.targets.length, targets));
      }
      const headings = ["target", "predicted", ...(hasTargets ? ["true", "abs. error"] : [])];
      const row = (index) => {
        const target = outcome.targets[index];
        const { predicted, truth } = describeTarget(target);
        const error = target.kind === "regression" && truth !== null ? formatNumber(Math.abs(target.predicted - target.target)) : "–";
        const cells = [target.name, predicted, ...(hasTargets ? [truth ?? "–", error] : [])];
        return make("tr", { className: index === targets.chosen && outcome.targets.length > 1 ? "chosen" : "" }, ...cells.map((text) => make("td", { text })));
      };
      const shown = shownTargets(outcome.targets.length, targets.chosen, targets.isExpanded);
      const table = make("table", { className: "values" }, make("tr", {}, ...headings.map((text) => make("th", { text }))), ...shown.map(row));
      return make("div", {}, table, ...moreTargets(outcome.targets.length, targets));
    }
    case "sub_tokens":
      return make("p", {}, labeled("predicted", joinTokens(outcome, outcome.predicted)), make("br"), labeled("true", joinTokens(outcome, outcome.targets)));
    default: {
      const row = view.rows.get(node)?.links;
      if (!row) return make("p", { className: "muted", text: "Select a node." });
      const linked = new Set(outcome.targets.filter(([source]) => source === node).map(([, target]) => target));
      const order = [...row.keys()].filter((other) => other !== node).sort((left, right) => row[right] - row[left]);
      const shown = order.filter((other, rank) => rank < 5 || linked.has(other)).slice(0, 10);
      return list(shown.map((other) => bar({ label: view.name(other), fraction: row[other], value: formatPercent(row[other]), isTarget: linked.has(other), click: () => select(other) })));
    }
  }
}

/** Button that shows all targets or fewer again, if there are many. */
function moreTargets(count, targets) {
  if (count <= SHOWN_TARGETS) return [];
  const button = make("button", { type: "button", className: "small", id: "more-targets", text: targets.isExpanded ? "Show fewer targets" : `Show all ${count} targets` });
  button.addEventListener("click", targets.toggle);
  return [button];
}

/** Bars of the nodes with the largest attention weights. */
function topAttended(view, node, attention, select) {
  const order = [...attention.keys()].sort((left, right) => attention[right] - attention[left]).slice(0, 6);
  const max = attention[order[0]] || 1;
  return order.map((other) => bar({
    label: other === node ? "self" : view.name(other), fraction: attention[other] / max, value: formatPercent(attention[other]),
    click: other === node ? null : () => select(other),
  }));
}
