// What the answer of /flashlane/data looks like. All of it is text: a prompt, a key's name or an
// error can hold anything, so nothing here is ever read as markup.

import { draw } from "./chart.js";

const NUMBER = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const ONE = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 1 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const SHARE = new Intl.NumberFormat("en-GB", { style: "percent", maximumFractionDigits: 0 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const LANES = {
  direct: "the whole prompt",
  pflash: "a shortened prompt",
  verify: "shortened, then checked",
  "": "requests without a lane",
};
const NONE = "–";
const TIMES = [[1, " ms"], [1000, " s"], [60_000, " min"], [3_600_000, " h"]];
const COUNTS = [[1, ""], [1000, "k"], [1_000_000, "M"], [1_000_000_000, "G"]];
const MACHINE_NAME = /^[0-9a-f]{32,}$/;

const byId = (id) => document.getElementById(id);
const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);

export function el(name, className, ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

/** Milliseconds as people say them. */
export function duration(ms) {
  if (ms === null || ms === undefined) return NONE;
  const sign = ms < 0 ? "−" : "";
  const size = Math.abs(ms);
  if (size === 0) return "0 s";
  if (size < 999.5) return `${sign}${NUMBER.format(size)} ms`;
  if (size < 59_950) return `${sign}${ONE.format(size / 1000)} s`;
  const minutes = Math.round(size / 60_000);
  if (size < 5_970_000) return `${sign}${ONE.format(size / 60_000)} min`;
  return `${sign}${NUMBER.format(Math.floor(minutes / 60))} h ${minutes % 60} min`;
}

const bytes = (n) => (n >= 2 ** 30 ? `${ONE.format(n / 2 ** 30)} GiB` : `${NUMBER.format(n / 2 ** 20)} MiB`);
const clip = (text, most = 48) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const signed = (n) => NUMBER.format(n).replace("-", "−");
const short = (n) => COMPACT.format(n).replace("-", "−").replace("K", "k");

export function lane(name) {
  const known = Object.hasOwn(LANES, name) && name;
  return el("span", `lane${known ? ` lane-${name}` : ""}`, clip(name, 10) || "no lane");
}

function figures({ lanes, verdicts }) {
  const requests = sum(lanes, "requests");
  const saved = sum(lanes, "time_saved_ms");
  const tokens = sum(lanes, "tokens_saved");
  const original = sum(lanes, "original_tokens");
  const wrong = sum(lanes, "wrong");
  const said = wrong + sum(lanes, "right") + sum(lanes, "slow");
  const shortened = lanes.filter((row) => row.lane && row.lane !== "direct");
  const shown = [
    ["Requests", NUMBER.format(requests), `${NUMBER.format(sum(shortened, "requests"))} shortened`],
    ["Waiting saved", duration(saved), "to the first token"],
    ["Tokens saved", short(tokens), original ? `${SHARE.format(tokens / original)} of all prompt tokens` : ""],
    ["Reported wrong", NUMBER.format(wrong), said ? `of ${NUMBER.format(said)} reports` : "no reports"],
  ];
  const accepted = verdicts.find((row) => row.verdict === "accepted");
  if (verdicts.length) {
    const checked = NUMBER.format(sum(verdicts, "requests"));
    shown.splice(3, 0, ["Passed the check", SHARE.format(accepted ? accepted.share : 0), `of ${checked} answers`]);
  }
  byId("figures").replaceChildren(
    ...shown.map(([name, value, note]) => el("dl", "", el("dt", "", name), el("dd", "", value), el("dd", "note", note))),
  );
}

export function charts({ buckets, bucket_s }) {
  const of = (name) => buckets.map((bucket) => ({ start: bucket.start, value: bucket[name] }));
  const shared = { width_s: bucket_s };
  draw(byId("chart-time"), {
    ...shared,
    buckets: of("time_saved_ms"),
    what: "Time to first token saved",
    units: TIMES,
    long: duration,
  });
  draw(byId("chart-tokens"), {
    ...shared,
    buckets: of("tokens_saved"),
    what: "Prompt tokens not processed",
    units: COUNTS,
    long: (n) => `${signed(n)} tokens`,
  });
}

function lanes(rows) {
  const labels = [...document.querySelectorAll("#lanes thead th")].map((cell) => cell.textContent);
  const cell = (text, index, className = "") => {
    const node = el("td", className || (["0", "0 s", NONE].includes(text) ? "zero-value" : ""), el("span", "", text));
    node.dataset.label = labels[index];
    return node;
  };
  const body = rows.map((row) => {
    const head = el("th", "", lane(row.lane), el("span", "lane-note", LANES[row.lane] ?? ""));
    head.scope = "row";
    return el(
      "tr",
      "",
      head,
      cell(NUMBER.format(row.requests), 1),
      cell(NUMBER.format(row.failed), 2, row.failed ? "bad" : ""),
      cell(duration(row.ttft_p50_ms), 3),
      cell(duration(row.ttft_p95_ms), 4),
      cell(signed(row.tokens_saved), 5),
      cell(duration(row.time_saved_ms), 6, row.time_saved_ms < 0 ? "bad" : ""),
      cell(NUMBER.format(row.wrong), 7, row.wrong ? "bad" : ""),
    );
  });
  document.querySelector("#lanes tbody").replaceChildren(...body);
}

function track(share) {
  const bar = el("i");
  bar.style.width = `${100 * Math.min(Math.max(share, 0), 1)}%`;
  return el("span", "track", bar);
}

function bars(id, rows) {
  byId(id).hidden = !rows.length;
  const parts = rows.flatMap(([name, share, note]) => [el("dt", "", clip(name, 16)), track(share), el("dd", "", note)]);
  document.querySelector(`#${id} .bars`).replaceChildren(...parts);
}

function backends(rows) {
  byId("backends").hidden = !rows?.length;
  const cards = (rows ?? []).map((row) => {
    const title = el("h3", "", row.name, el("span", `state state-${row.state}`, row.state));
    const context = `${NUMBER.format(row.slots)} × ${NUMBER.format(row.context_tokens)} tokens`;
    const parts = [title, el("p", "muted", `${row.model} · `, el("span", "whole", context))];
    if (row.error) parts.push(el("p", "bad", clip(row.error, 400)));
    if (row.pool) parts.push(...pool(row.pool));
    return el("article", "card", ...parts);
  });
  document.querySelector("#backends .cards").replaceChildren(...cards);
}

function pool(found) {
  const { hits } = found;
  const reused = Object.values(hits).reduce((total, n) => total + n, 0);
  const outer = [found.ram_bytes && `${bytes(found.ram_bytes)} in memory`, found.disk_bytes && `${bytes(found.disk_bytes)} on disk`];
  return [
    track(found.budget_tokens ? found.resident_tokens / found.budget_tokens : 0),
    el("p", "muted", `KVFlash (${found.policy}): ${NUMBER.format(found.resident_tokens)} of ${NUMBER.format(found.budget_tokens)} tokens resident`),
    el("p", "muted", `${NUMBER.format(reused)} prefixes found again, ${NUMBER.format(found.misses)} not; ${NUMBER.format(found.restored_tokens)} tokens restored`),
    outer.some(Boolean) ? el("p", "muted", outer.filter(Boolean).join(", ")) : null,
  ];
}

const sentence = (reasons) => {
  const text = reasons.map((reason) => reason.text).join("; ");
  return text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "";
};

function marks(row) {
  const found = [];
  const tag = (kind, text) => found.push(el("span", `tag ${kind}`, text));
  if (row.verdict === "accepted") tag("good", "checked");
  if (row.verdict === "doubted") tag("warn", "doubted, answered by the direct lane");
  if (row.verdict === "unchecked") tag("warn", "not checked");
  if (row.status !== "ok") tag("bad", `${row.status} ${row.error}`.trim());
  if (row.feedback) tag(row.feedback === "right" ? "good" : "bad", `client: ${row.feedback}`);
  return found;
}

function recent(rows, now) {
  const items = rows.map((row) => {
    const when = new Date(row.time * 1000);
    const old = now - row.time > 43_200;
    const named = [row.model, row.kind, row.deployment, row.key_alias];
    const about = [...new Set(named)].filter((name) => name && !MACHINE_NAME.test(name)).map((name) => clip(name)).join(" · ");
    const doubts = row.verdict === "doubted" ? sentence(row.verdict_reasons) : "";
    const details = el("p", "muted", about);
    for (const mark of marks(row)) details.append(" · ", mark);
    const why = el("div", "why", el("p", "", sentence(row.reasons) || "No decision was made."), doubts ? el("p", "muted", doubts) : null, details);
    why.title = row.request_id;
    const shortened = row.original_tokens !== null && row.kept_tokens !== null && row.kept_tokens < row.original_tokens;
    const tokens = row.original_tokens ?? row.kept_tokens;
    const size = shortened
      ? `${NUMBER.format(row.original_tokens)} → ${NUMBER.format(row.kept_tokens)} tokens`
      : tokens === null ? "" : `${NUMBER.format(tokens)} tokens`;
    const direct = row.lane !== "direct" && row.predicted_direct_ms !== null ? ` instead of ${duration(row.predicted_direct_ms)}` : "";
    const wait = row.ttft_ms === null ? "" : `${duration(row.ttft_ms)}${direct}`;
    return el(
      "li",
      "",
      el("time", "when muted", old ? DAY.format(when) : CLOCK.format(when)),
      lane(row.lane),
      why,
      el("div", "numbers", size ? el("p", "", size) : null, wait ? el("p", "muted", wait) : null),
    );
  });
  byId("recent").replaceChildren(...(items.length ? items : [el("li", "empty", "No requests in this span of time.")]));
}

function footer({ config, now, scope }) {
  const at = (time) => CLOCK.format(new Date(time * 1000));
  const parts = [`As of ${at(now)}.`];
  if (scope === "key") parts.push("Only requests of this key are shown.");
  if (config) {
    const read = new Date(config.loaded_at * 1000);
    const times = config.reloads === 1 ? "once" : `${config.reloads} times`;
    parts.push(`Config in force since ${DAY.format(read)}, ${CLOCK.format(read)}${config.reloads ? `, read again ${times}` : ""}.`);
    if (config.waiting.length) parts.push(`A restart is needed for ${config.waiting.join(", ")}.`);
    if (!config.watched) parts.push("The file is not watched.");
  }
  byId("footer").textContent = parts.join(" ");
}

/** Show an answer of /flashlane/data. */
export function show(data) {
  const { report } = data;
  byId("version").textContent = data.version;
  for (const id of ["saved", "per-lane"]) byId(id).hidden = !report.lanes.length;
  figures(report);
  charts(report);
  lanes(report.lanes);
  bars("verdicts", report.verdicts.map((v) => [v.verdict, v.share, `${NUMBER.format(v.requests)} (${SHARE.format(v.share)})`]));
  bars("drafts", report.drafts.map((d) => [d.kind || "other", d.acceptance, `${SHARE.format(d.acceptance)} of ${short(d.draft_tokens)}`]));
  backends(data.backends);
  recent(data.recent, data.now);
  footer(data);
}
