// The scaler's page: asks the API once a second and shows what it says. Whatever comes from there
// (names are users') gets into the page as text, never as markup.
"use strict";

const KEY = "carpool-token";
const POLL_MS = 1000;

const byId = (id) => document.getElementById(id);
let token = sessionStorage.getItem(KEY) || "";
let chosen = named();
let past = {name: "", last: 0, samples: []};

// -- one function ------------------------------------------------------------------------------

function plotsOf(samples, details) {
  const of = (name) => samples.map((sample) => sample[name]);
  const last = samples[samples.length - 1] || {classes: {}};
  const kinds = [...new Set(samples.flatMap((sample) => Object.keys(sample.classes)))].sort();
  const count = (kind, which) =>
    samples.map(({classes}) => (classes[kind] ? classes[kind][which] : 0));
  const seen = (series) => series.filter(({values}) => values.some((value) => value));
  const total = (which) => samples.reduce((sum, sample) => sum + sample[which], 0);
  const largest = Math.max(0, ...(details.plan ? details.plan.classes.map((c) => c.batch_size) : []));
  const ready = Object.values(last.classes).reduce((sum, [up]) => sum + up, 0);
  const allowed = 1 - past.percentile;
  return [
    {title: "Rate", now: rate(last.rate_rps), write: number,
      series: [{name: "requests a second", values: of("rate_rps")},
        {name: "waiting", values: of("queued")}]},
    {title: "Instances by class", now: `${ready} ready`, write: number, stacked: true, whole: true,
      series: seen(kinds.flatMap((kind, colour) => [{name: kind, values: count(kind, 0), colour},
        {name: `${kind}, loading`, values: count(kind, 1), colour, faint: true}]))},
    {title: "Batch size", now: number(last.mean_batch), write: number,
      series: [{name: "requests in a batch, mean", values: of("mean_batch")}],
      limit: largest ? {value: largest, name: `largest planned, ${largest}`} : null},
    {title: "Latency", now: `p99 ${duration(last.p99_s)}`, write: duration,
      series: [{name: "p50", values: of("p50_s")}, {name: "p99", values: of("p99_s")}],
      limit: past.slo ? {value: past.slo, name: `objective, ${duration(past.slo)}`} : null},
    {title: "SLO violations", now: percent(last.miss_ratio), write: percent,
      series: [{name: "late, failed, expired or refused", values: of("miss_ratio")}],
      limit: past.slo ? {value: allowed, name: `allowed, ${percent(allowed)}`} : null},
    past.priced
      ? {title: "Cost", now: `${number(last.cost_per_hour)} an hour`, write: number,
        series: [{name: "at the rate of each second", values: of("cost_per_hour")}]}
      : {title: "Resources reserved", now: `cores: ${number(last.cores)}`, write: number,
        series: [{name: "cores", values: of("cores")},
          ...seen([{name: "percent of a GPU", values: of("gpu_percent")}])]},
    {title: "Cold starts", now: `${total("waits")} waited for`, write: number, bars: true, whole: true,
      series: [{name: "instances started", values: of("starts")},
        {name: "waited for", values: of("waits")}]},
  ];
}

function showFunction(details) {
  const samples = past.samples;
  const times = samples.map((sample) => sample.at_s);
  byId("function").hidden = false;
  byId("name").textContent = details.name;
  const longest = past.kept * past.every;
  const figures = plotsOf(samples, details).map((plot) => figure(plot, times, longest));
  byId("plots").replaceChildren(...figures);
  showPointed();
  const plan = details.plan;
  byId("plan-title").textContent = plan ? `Plan ${plan.version} of ${plan.policy}` : "No plan yet";
  byId("plan").hidden = !plan;
  byId("plan").tBodies[0].replaceChildren(...(plan ? plan.classes : []).map((kind) => row([
    kind.name, number(kind.cpu), kind.gpu ? `${number(kind.gpu)} %` : "–", String(kind.batch_size),
    String(kind.replicas), duration(kind.exec_s)])));
  list(byId("explain"), [...(plan ? plan.explain : []), ...details.remarks]);
  byId("decisions-title").textContent = details.decisions.length ? "Latest decisions" : "No decisions yet";
  byId("decisions").replaceChildren(...[...details.decisions].reverse().map((decision) => {
    const item = element("li");
    item.append(element("time", clock(decision.at_s)), decision.text);
    return item;
  }));
  showShadow(plan);
  showVersions();
}

function showVersions() {
  const {comparison} = past;
  const box = byId("versions");
  box.hidden = !comparison;
  if (!comparison) return;
  byId("versions-title").textContent = `Versions, since ${clock(comparison.since_s)}`;
  byId("versions-cost").textContent =
    past.priced ? "cost of 1000 requests" : "core-seconds of 1000 requests";
  box.querySelector("tbody").replaceChildren(...comparison.versions.map((each) => {
    const share = `${number(each.percent)} %`;
    if (!each.measured) return row([each.name, share, "not scaled", ...Array(8).fill("–")]);
    const part = (count) => (each.requests ? percent(count / each.requests) : "–");
    const spent = past.priced ? each.cost : each.core_s;
    return row([each.name, share, String(each.requests), rate(each.rate_rps),
      duration(each.p50_s), duration(each.p95_s), duration(each.p99_s), part(each.late),
      part(each.refused), part(each.errors),
      each.requests ? number(spent / each.requests * 1000) : "–"]);
  }));
}

function showShadow(plan) {
  const {shadow} = past;
  const box = byId("shadow");
  box.hidden = !shadow;
  if (!shadow) return;
  const held = (who, amounts) => row([who, number(amounts.core_s), number(amounts.gpu_percent_s),
    past.priced ? number(amounts.cost) : "–", duration(amounts.short_s)]);
  box.querySelector("tbody").replaceChildren(
    held(`${plan ? plan.policy : "the plan"}, active`, shadow.live),
    held(`${shadow.policy}, shadow`, shadow.shadow));
  const would = shadow.plan ? shadow.plan.classes.map((kind) =>
    `${kind.replicas} × ${kind.name}: ${number(kind.cpu)} cores, ${number(kind.gpu)} % of a GPU, ` +
    `batches of ${kind.batch_size}`) : [];
  list(box.querySelector("ul"), would);
}

// What is under the pointer, which stays where it is while the plots are drawn again.
let pointed = null;

function showPointed() {
  const at = pointed && document.elementFromPoint(pointed.x, pointed.y);
  const drawing_ = at && at.closest("#plots svg");
  showTip(drawing_ ? drawing_.pointedAt(pointed.x) : "", pointed || {x: 0, y: 0});
}

for (const kind of ["pointermove", "pointerdown", "pointerleave"]) {
  byId("plots").addEventListener(kind, (event) => {
    for (const line of document.querySelectorAll(".cursor")) line.remove();
    pointed = kind === "pointerleave" ? null : {x: event.clientX, y: event.clientY};
    showPointed();
  });
}

// -- all functions -----------------------------------------------------------------------------

function showFunctions({functions, trouble}) {
  list(byId("troubles"), [...(trouble ? [trouble] : []),
    ...functions.flatMap((each) => each.notes.map((note) => `${each.name}: ${note}`))]);
  byId("functions").hidden = !functions.length;
  const body = byId("functions").tBodies[0];
  const focused = document.activeElement && document.activeElement.dataset.name;
  body.replaceChildren(...functions.map((each) => {
    const button = element("button", each.name, {type: "button", "data-name": each.name});
    button.addEventListener("click", () => choose(each.name));
    const made = row([button, each.policy || "–", rate(each.rate_rps),
      String(each.queued), String(each.planned), String(each.ready), String(each.loading),
      each.unplaced_rps ? rate(each.unplaced_rps) : "–"]);
    if (each.name === chosen) made.setAttribute("aria-current", "true");
    if (each.notes.length) made.classList.add("bad");
    return made;
  }));
  if (focused) {
    const again = [...body.querySelectorAll("button")].find((b) => b.dataset.name === focused);
    if (again) again.focus();
  }
}

function choose(name) {
  chosen = name;
  location.hash = encodeURIComponent(name);
  poll();
}

function named() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // typed by hand
  }
}

// -- asking ------------------------------------------------------------------------------------

class Refused extends Error {}

async function ask(path) {
  const headers = token ? {authorization: `Bearer ${token}`} : {};
  const answer = await fetch(path, {headers, cache: "no-store"});
  if (answer.status === 401) throw new Refused();
  const document_ = await answer.json();
  if (!answer.ok) throw new Error(document_.error || `status ${answer.status}`);
  return document_;
}

async function remember(name) {
  if (past.name !== name) past = {name, last: 0, samples: []};
  const mine = past;
  const path = `v1/history/${encodeURIComponent(name)}`;
  let fresh = await ask(`${path}?after=${mine.last}`);
  if (fresh.last < mine.last) { // the scaler has started again
    mine.samples = [];
    fresh = await ask(`${path}?after=0`);
  }
  mine.samples = [...mine.samples, ...fresh.samples.filter((s) => s.number > mine.last ||
    !mine.samples.length)].slice(-fresh.kept);
  Object.assign(mine, {last: fresh.last, slo: fresh.slo_s, percentile: fresh.percentile,
    priced: fresh.priced, every: fresh.every_s, kept: fresh.kept, shadow: fresh.shadow,
    comparison: fresh.comparison});
}

function state(text, bad) {
  const place = byId("state");
  if (place.textContent !== text) place.textContent = text;
  place.classList.toggle("bad", bad);
}

async function look() {
  const all = await ask("v1/functions");
  byId("login").hidden = true;
  byId("main").hidden = false;
  if (!all.functions.some((each) => each.name === chosen)) {
    chosen = all.functions.length ? all.functions[0].name : "";
  }
  showFunctions(all);
  byId("function").hidden = !chosen;
  if (chosen) {
    const name = chosen;
    const [details] = await Promise.all([ask(`v1/functions/${encodeURIComponent(name)}`),
      remember(name)]);
    if (name === chosen) showFunction(details);
  }
  state(all.functions.length ? "live" : "no function has a scaling policy (label com.carpool.scale.policy)", false);
}

let asking = false, again = false, timer = 0;

async function poll() {
  if (asking) { again = true; return; }
  clearTimeout(timer);
  asking = true;
  try {
    await look();
  } catch (error) {
    if (error instanceof Refused) { askToken(); asking = false; return; }
    state(`the scaler does not answer (${error.message}); trying again`, true);
  }
  asking = false;
  timer = setTimeout(poll, again ? 0 : POLL_MS);
  again = false;
}

function askToken() {
  state(token ? "this is not the scaler's token" : "the scaler requires its token", Boolean(token));
  token = "";
  sessionStorage.removeItem(KEY);
  byId("main").hidden = true;
  byId("login").hidden = false;
  byId("token").focus();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem(KEY, token);
  byId("token").value = "";
  poll();
});
addEventListener("hashchange", () => {
  chosen = named();
  poll();
});
poll();
