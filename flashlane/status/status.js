// Asks for the key, fetches what the proxy knows, and keeps it fresh.

import { charts, show } from "./view.js";

const STORE = "flashlane-key";
const EVERY_MS = 15_000;
const DATA = "flashlane/data";

const byId = (id) => document.getElementById(id);
let key = "";
let last = null;
let asked = 0;

// A browser may forbid storage; the key is then asked for after each reload.
function stored(value) {
  try {
    if (value === undefined) return sessionStorage.getItem(STORE) ?? "";
    if (value) sessionStorage.setItem(STORE, value);
    else sessionStorage.removeItem(STORE);
  } catch {
    // nothing to keep it in
  }
  return value ?? "";
}

function say(text) {
  byId("message").textContent = text;
  byId("message").hidden = !text;
}

function showing(data) {
  byId("login").hidden = Boolean(data);
  for (const id of ["content", "controls", "footer"]) byId(id).hidden = !data;
}

function forget(text = "") {
  asked++; // an answer on its way belongs to the key that is gone
  key = stored("");
  last = null;
  showing(null);
  say(text);
  byId("key").value = "";
  byId("key").focus();
}

async function refresh() {
  if (!key) return;
  const mine = ++asked;
  const hours = document.querySelector("input[name=span]:checked").value;
  let reply;
  let body;
  try {
    reply = await fetch(`${DATA}?hours=${encodeURIComponent(hours)}`, { headers: { Authorization: `Bearer ${key}` } });
    body = await reply.json().catch(() => ({}));
  } catch (error) {
    if (mine !== asked) return;
    if (last) say("The proxy does not answer. What is shown may be out of date.");
    else forget(error instanceof TypeError && /[^\x21-\xff]/.test(key) ? "A key has no such characters." : "The proxy does not answer.");
    return;
  }
  if (mine !== asked) return;
  if (reply.ok) {
    last = body;
    stored(key);
    showing(body);
    show(body);
    say(body.config?.error ? `The config file is not in force: ${body.config.error}` : "");
    return;
  }
  // Without a database LiteLLM knows one key, and says of any other that it cannot look it up.
  const unknown = reply.status === 401 || body.error?.type === "no_db_connection";
  const text = unknown ? "This key is not valid." : (body.error?.message ?? body.detail ?? `The proxy answered ${reply.status}.`);
  if (unknown || reply.status === 403 || !last) forget(text);
  else say(text);
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  key = byId("key").value.trim();
  refresh();
});
byId("forget").addEventListener("click", () => forget());
byId("spans").addEventListener("change", refresh);
document.addEventListener("visibilitychange", () => document.hidden || refresh());

// A long log takes its time to count: the page waits ten times as long as that before it asks again.
async function keepFresh() {
  const began = performance.now();
  if (!document.hidden) await refresh();
  setTimeout(keepFresh, Math.max(EVERY_MS, 10 * (performance.now() - began)));
}
setTimeout(keepFresh, EVERY_MS);
new ResizeObserver(() => last && charts(last.report)).observe(byId("chart-time"));

key = stored();
if (key) refresh();
else forget();
