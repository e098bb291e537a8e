"use strict";
// Says the values under the pointer. What is drawn tells all that is needed: the axes are attributes
// of a chart, and its lines have names.

function points(path) {
  const corners = [];
  for (const [, letter, first, second] of
    path.getAttribute("d").matchAll(/([MLHV])(-?[\d.]+)(?: (-?[\d.]+))?/g)) {
    const [, y] = corners.at(-1) || [];
    if (letter === "H") corners.push([+first, y]);
    else if (letter === "V") corners.push([corners.at(-1)[0], +first]);
    else corners.push([+first, +second]);
  }
  return corners;
}

function height(places, x) {
  const after = places.findIndex(([at]) => at > x);
  if (after === 0 || places.at(-1)[0] < x - 0.5) return null;
  if (after < 0) return places.at(-1)[1];
  const [[x0, y0], [x1, y1]] = [places[after - 1], places[after]];
  return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

function text(svg, x) {
  const axes = JSON.parse(svg.dataset.axes), share = (x - axes.left) / axes.width;
  if (share < 0 || share > 1) return "";
  const {low, high, log} = axes;
  const value = log ? low * (high / low) ** share : low + (high - low) * share;
  const said = [...svg.querySelectorAll("path[data-name]")].flatMap((path) => {
    path.places ||= points(path);
    const y = height(path.places, x);
    const is = axes.top * (axes.bottom - y) / axes.height;
    return y === null ? [] : [`${path.dataset.name}: ${+is.toPrecision(4)}`];
  });
  return [`${axes.x}: ${+value.toPrecision(4)}`, ...said].join("\n");
}

for (const svg of document.querySelectorAll("svg[data-axes]")) {
  const show = (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    showTip(text(svg, x), {x: event.clientX, y: event.clientY});
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", () => showTip("", {x: 0, y: 0}));
}
