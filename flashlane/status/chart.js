// Bars over time with axes, as SVG. Only attributes and text nodes: nothing is parsed as markup.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 172;
const EDGE = { top: 10, right: 4, bottom: 22, left: 52 };
const STEPS = [1, 2, 2.5, 5, 10];

const make = (name, attributes, ...children) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

/** Ticks that people count in, from at or below `low` to at or above `high`, zero among them. */
export function ticks(low, high, wanted = 4) {
  const span = Math.max(high, 0) - Math.min(low, 0) || 1;
  const power = 10 ** Math.floor(Math.log10(span / wanted));
  const step = power * STEPS.find((s) => s * power * wanted >= span * 0.999);
  const first = Math.floor(Math.min(low, 0) / step);
  const last = Math.max(Math.ceil(Math.max(high, 0) / step), first + 1);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

const NUMBER = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 2 });
const tick = (value, unit) => `${NUMBER.format(value).replace("-", "−")}${value ? unit : ""}`;

/** Times on whole hours or days, few enough to stand side by side in `width` pixels. */
export function timeTicks(from, to, width) {
  const wanted = Math.max(2, Math.floor(width / 60));
  const hour = 3600;
  const widths = [1 / 12, 1 / 4, 1 / 2, 1, 2, 3, 6, 12, 24, 48, 168, 336, 720, 2160, 8760].map((h) => h * hour);
  const step = widths.find((w) => (to - from) / w <= wanted) ?? widths.at(-1) * 10;
  const shift = -new Date(from * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from + shift) / step) * step - shift; at <= to; at += step) found.push(at);
  return { step, at: found };
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/**
 * Draw `buckets` ({start, value}, each `width_s` long) into `holder`.
 * The axis counts in `units` ([size, name], ascending), the largest that suits; `long` writes a
 * value for the tooltip and the label.
 */
export function draw(holder, { buckets, width_s, units, long, what }) {
  const width = Math.max(holder.clientWidth, 200);
  const values = buckets.map((bucket) => bucket.value);
  const most = Math.max(...values.map(Math.abs), 0);
  const [size, unit] = units.findLast(([least]) => most >= 2 * least) ?? units[0];
  // Where nothing was saved there is a line to stand on, and nothing to count in.
  const marks = most ? ticks(Math.min(...values) / size, Math.max(...values) / size).map((mark) => mark * size) : [0];
  const [low, high] = [marks[0], most ? marks.at(-1) : 1];
  const from = buckets.length ? buckets[0].start : 0;
  const to = buckets.length ? buckets.at(-1).start + width_s : 1;
  const x = (at) => EDGE.left + ((at - from) / (to - from)) * (width - EDGE.left - EDGE.right);
  const y = (v) => EDGE.top + ((high - v) / (high - low)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const total = values.reduce((sum, value) => sum + value, 0);
  const svg = make("svg", {
    viewBox: `0 0 ${width} ${HEIGHT}`,
    role: "img",
    "aria-label": `${what}: ${long(total)} in ${buckets.length} intervals`,
  });
  for (const mark of marks) {
    svg.append(
      make("line", { class: mark === 0 ? "zero" : "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(mark), y2: y(mark) }),
      make("text", { x: EDGE.left - 8, y: y(mark) + 4, "text-anchor": "end" }, tick(mark / size, unit)),
    );
  }
  if (buckets.length) {
    const { step, at } = timeTicks(from, to, width - EDGE.left - EDGE.right);
    for (const time of at) {
      const place = x(time);
      const anchor = place > width - 24 ? "end" : place < EDGE.left + 16 ? "start" : "middle";
      const text = (step >= 86400 ? day : clock).format(new Date(time * 1000));
      svg.append(make("text", { x: anchor === "end" ? width - EDGE.right : place, y: HEIGHT - 6, "text-anchor": anchor }, text));
    }
  }
  const gap = Math.min(3, ((x(from + width_s) - x(from)) * 0.2));
  for (const { start, value } of buckets) {
    const left = x(start) + gap / 2;
    const wide = Math.max(x(start + width_s) - x(start) - gap, 1);
    const when = new Date(start * 1000);
    svg.append(
      make(
        "g",
        {},
        make("title", {}, `${day.format(when)}, ${clock.format(when)}: ${long(value)}`),
        make("rect", { class: "over", x: x(start), y: EDGE.top, width: wide + gap, height: HEIGHT - EDGE.top - EDGE.bottom }),
        make("rect", {
          class: value < 0 ? "loss" : "gain",
          x: left,
          y: Math.min(y(value), y(0)),
          width: wide,
          height: Math.abs(y(value) - y(0)),
          rx: Math.min(1.5, wide / 2),
        }),
      ),
    );
  }
  holder.replaceChildren(svg);
}
