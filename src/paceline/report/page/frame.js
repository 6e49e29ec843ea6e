"use strict";
// What every page needs: its data, colours from the style sheet, switches, light and dark, paper. A page's own script
// follows this one in the same element, makes its figures with these and ends with frame.start(draw).
const frame = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["toImage", "resetScale2d"]],
    doubleClick: "reset",
    // Without these two, a drag on a phone scrolls nothing and the wheel is caught by every figure.
    scrollZoom: false,
    showTips: false,
  };

  // ---- colours come from the style sheet, so figures and text always agree
  const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const faded = (hex, alpha) => {
    const part = (at) => parseInt(hex.slice(at, at + 2), 16);
    return `rgba(${part(1)}, ${part(3)}, ${part(5)}, ${alpha})`;
  };
  const dash = (run) => (run.dash ? run.dash.split(" ").map((n) => n + "px").join(",") : "solid");
  // Plotly reads a little HTML and its own %{...} in labels; names of runs are text.
  const text = (value) =>
    String(value).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/%\{/g, "% {");
  const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;
  const font = () => ({ family: getComputedStyle(document.body).fontFamily, size: 12, color: color("soft") });

  // the look of a flat figure; x and y are Plotly's axes
  function flat(x, y, extra = {}) {
    const common = {
      gridcolor: color("grid"), linecolor: color("line"), zeroline: false, automargin: true, fixedrange: false,
      tickcolor: color("line"), title: { font: font(), standoff: 8 },
    };
    return {
      font: font(), showlegend: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 8, r: 12, t: 30, b: 8 }, hovermode: "closest", dragmode: "zoom",
      hoverlabel: { bgcolor: color("paper"), bordercolor: color("soft"), font: { ...font(), color: color("ink") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: color("soft"), activecolor: color("ink") },
      xaxis: {
        ...common, showgrid: false, showline: true, ticks: "outside", ticklen: 4, nticks: 7, ...x,
        title: { ...common.title, ...x.title },
      },
      yaxis: { ...common, nticks: 6, ...y, title: { ...common.title, ...y.title } },
      ...extra,
    };
  }

  // ticks that a person would choose: round steps when the curve spans little, 1 2 5 or whole decades when much
  function logTicks(traces) {
    let low = Infinity, high = 0;
    for (const { y } of traces) for (const v of y) if (v > 0) { low = Math.min(low, v); high = Math.max(high, v); }
    if (high / low > 2000) return { dtick: 1 };
    if (high / low > 8) return { dtick: "D2" };
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? 1;
    const tickvals = [];
    for (let n = Math.ceil(low / step); n * step <= high; n++) tickvals.push(Number((n * step).toPrecision(12)));
    return tickvals.length > 1 ? { tickvals } : {};
  }

  // ==== figures: what a declared figure says, as Plotly's traces and layout
  // ---- how numbers of each form are written: on the axis, under the pointer
  const forms = {
    number: ["~g", ".3~g", ""],
    count: ["~s", ",.4~r", ""],
    share: [".0%", ".1%", ""],
    seconds: ["~s", ".3~s", "s"],
    bytes: ["~s", ".3~s", "B"],
    year: ["d", "d", ""],
    name: ["", "", ""],
  };

  // a value that a switch chooses is {by, of}: the switch's name and a value for each of its buttons
  function settled(value) {
    if (Array.isArray(value)) return typeof value[0] === "object" && value[0] !== null ? value.map(settled) : value;
    if (typeof value !== "object" || value === null) return value;
    if (value.by === undefined) return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, settled(v)]));
    const wish = chosen(value.by) ?? Object.keys(value.of)[0];
    return Object.hasOwn(value.of, wish) ? settled(value.of[wish]) : null;
  }

  function hover(one, figure, share) {
    if (one.hover === null) return { hoverinfo: "skip", hovertemplate: null };
    if (one.hover) return { hovertemplate: `${one.hover}<extra></extra>` };
    const line = (name, axis, form) => {
      const [, format, suffix] = forms[form];
      return form === "name" ? `%{${name}} ${text(axis.title)}` : `${text(axis.title)} %{${name}:${format}}${suffix}`;
    };
    const y = line("y", figure.y, share ? "share" : figure.y.form);
    const x = line("x", figure.x, figure.x.form);
    return { hovertemplate: `<b>${text(one.name)}</b><br>${y}<br>${x}%{customdata}<extra></extra>` };
  }
  const said = (words) => words.split("<br>").map((part) => part && "<br>" + text(part)).join("");
  const more = (one) => (one.hover ? one.said : one.x.map((_, at) => said(one.said[at] ?? "")));

  // an interval about a line is a band, about a point it is whiskers
  function band(one) {
    const paint = color(one.paint);
    const edge = (values, fill) => ({
      type: "scatter", mode: "lines", x: one.x, y: values, hoverinfo: "skip", line: { width: 0, color: paint },
      fillcolor: faded(paint, 0.16), ...(fill ? { fill: "tonexty" } : {}),
    });
    return [edge(one.low, false), edge(one.high, true)];
  }
  const whiskers = (middle, low, high, paint, on = false) => ({
    type: "data", symmetric: false,
    ...(on ? { color: color("ink"), thickness: 1.2, width: 5 } : { color: faded(paint, 0.6), thickness: 1.5, width: 3 }),
    array: high.map((end, at) => Math.max(0, end - middle[at])),
    arrayminus: low.map((end, at) => Math.max(0, middle[at] - end)),
  });

  // ---- a map: pale to strong up to 1, and beyond 1 in another color
  const mixed = (from, to, part) => {
    const channel = (hex, at) => parseInt(hex.slice(at, at + 2), 16);
    return `rgb(${[1, 3, 5].map((at) => Math.round(channel(from, at) + part * (channel(to, at) - channel(from, at)))).join(",")})`;
  };
  function map(one) {
    const most = Math.max(1.001, ...one.z.flat()), paper = color("grid"), more = color("run-1");
    const scale = [[0, paper], [0.02 / most, mixed(paper, color(one.paint), 0.25)], [1 / most, color(one.paint)]]
      .concat([[1.0005 / most, mixed(paper, more, 0.6)], [1, more]]);
    return [{
      type: "heatmap", x: one.x, y: one.y, z: one.z, zmin: 0, zmax: most, colorscale: scale, showscale: false,
      ygap: 3, hovertemplate: `${one.hover}<extra></extra>`,
    }];
  }

  function drawn(one, figure, share, sums) {
    const paint = color(one.paint);
    if (one.kind === "map") return map(one);
    if (one.kind === "bars") {
      const y = share ? one.y.map((value, at) => value / sums[at]) : one.y;
      return [{
        type: "bar", x: one.x, y, customdata: more(one), marker: { color: paint }, ...hover(one, figure, share),
        ...(one.low.length ? { error_y: whiskers(one.y, one.low, one.high, paint, true) } : {}),
      }];
    }
    const points = one.kind === "points" || one.whiskers;
    const traces = one.low.length && !points ? band(one) : [];
    if (one.kind === "band") return traces;
    const line = one.kind === "line", size = one.size || (line ? 6 : 8);
    traces.push({
      type: "scatter", mode: line ? (one.marker ? "lines+markers" : "lines") : "markers", x: one.x, y: one.y,
      customdata: more(one),
      line: { color: one.alpha < 1 ? faded(paint, one.alpha) : paint, width: one.width, dash: dash(one) },
      marker: {
        color: one.hollow ? color("paper") : paint, symbol: one.marker || "circle", size,
        line: { color: paint, width: one.hollow ? 2 : 0 }, ...(one.sparse ? { maxdisplayed: one.sparse } : {}),
      },
      ...hover(one, figure),
      ...(points && one.low.length ? { error_y: whiskers(one.y, one.low, one.high, paint) } : {}),
      ...(points && one.left.length ? { error_x: whiskers(one.x, one.left, one.right, paint) } : {}),
    });
    return traces;
  }

  // ---- lines across, with their names; on a logarithmic axis shapes take numbers and names their logarithms
  function across(marks, figure, ends) {
    const shapes = [], annotations = [];
    for (const mark of marks) {
      const upright = mark.axis === "x", at = mark.at, to = mark.to ?? mark.at;
      const place = upright
        ? { yref: "paper", y0: 0, y1: 1, x0: at, x1: to } : { xref: "paper", x0: 0, x1: 1, y0: at, y1: to };
      const filled = mark.to !== null;
      shapes.push({
        type: filled ? "rect" : "line", layer: "below", ...place,
        line: { color: color("soft"), width: filled ? 0 : 1, dash: "3px,3px" },
        ...(filled ? { fillcolor: faded(color("soft"), 0.14) } : {}),
      });
      if (!mark.label) continue;
      const spot = figure[mark.axis].log ? Math.log10(at) : at;
      const late = upright && figure.x.log && Math.log10(at / ends[0]) > 0.5 * Math.log10(ends[1] / ends[0]);
      annotations.push({
        showarrow: false, text: text(mark.label), font: { color: color("soft"), size: 12 },
        ...(upright
          ? { x: spot, yref: "paper", y: 1, yanchor: "bottom", xanchor: late ? "right" : "left" }
          : { y: spot, xref: "paper", x: 0, xanchor: "left", yanchor: "bottom" }),
      });
    }
    return { shapes, annotations };
  }

  const numbers = (traces, axis) => traces.flatMap((one) => one[axis]).filter((value) => typeof value === "number");

  // ---- ticks of a logarithmic axis, as a person would put and write them
  const short = (value) => Number(value.toPrecision(4));
  function written(value, form) {
    if (form === "share") return `${short(100 * value)}%`;
    if (form === "seconds") {
      return value >= 1 ? `${short(value)} s` : value >= 1e-3 ? `${short(1e3 * value)} ms` : `${short(1e6 * value)} µs`;
    }
    for (const [size, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (form === "bytes" ? value >= size : value >= Math.max(size, 1e4)) {
        return `${short(value / size)}${form === "bytes" ? ` ${name}B` : name}`;
      }
    }
    return form === "bytes" ? `${short(value)} B` : short(value).toLocaleString("en", { maximumFractionDigits: 12 });
  }
  function steps(low, high) {
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? rough;
    return Array.from({ length: 12 }, (_, at) => Number(((Math.ceil(low / step) + at) * step).toPrecision(12)))
      .filter((value) => value <= high);
  }
  function placed(spec, values) {
    const usable = values.filter((value) => value > 0);
    if (!spec.log || !usable.length) return {};
    const low = Math.min(...usable) / 1.02, high = Math.max(...usable) * 1.02;
    const powers = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) powers.push(10 ** power);
    const inside = (list) => list.filter((value) => value >= low && value <= high);
    const finer = [[1, 2, 5], [1, 3]].map((within) => powers.flatMap((one) => within.map((k) => k * one)));
    const lists = (spec.ticks.length ? [spec.ticks] : [...finer, powers]).map(inside);
    const fit = lists.find((list) => list.length <= 6) ?? lists.at(-1);
    const every = Math.ceil(fit.length / 6);
    let places = fit.filter((_, at) => at % every === 0);
    if (places.length < 3 && high / low < 10) places = steps(low, high);
    return { tickvals: places, ticktext: places.map((value) => written(value, spec.form)) };
  }

  function axis(spec, values, share) {
    const [format, , suffix] = forms[share ? "share" : spec.form];
    const ticks = spec.dtick ? { dtick: spec.dtick } : spec.tickformat && spec.log ? logTicks([{ y: values }])
      : share ? {} : placed(spec, values);
    return {
      title: spec.title ? { text: share ? "share of a step" : spec.title } : {}, // an empty one takes room as well
      tickformat: spec.tickformat || format, ticksuffix: suffix,
      type: spec.form === "name" ? "category" : spec.log ? "log" : "linear", minor: { showgrid: false },
      ...(spec.zero && !spec.log ? { rangemode: "tozero" } : {}), ...(spec.range ? { range: spec.range } : {}), ...ticks,
    };
  }

  // traces and layout of a figure
  function built(figure) {
    const own = settled(figure);
    own.series = own.series.filter((one) => one.x && one.y);
    const share = own.shares && chosen(own.id + "-as") === "share";
    const sums = own.shares ? own.series[0].x.map((_, at) => own.series.reduce((sum, one) => sum + one.y[at], 0)) : [];
    const traces = own.series.flatMap((one) => drawn(one, own, share, sums));
    const along = numbers(traces, "x"), ends = [Math.min(...along), Math.max(...along)];
    // what is marked along y belongs into the figure, also where no point is
    for (const mark of own.marks) {
      if (mark.axis !== "y" || !mark.stretches || !along.length) continue;
      const unseen = { mode: "markers", marker: { opacity: 0 }, hoverinfo: "skip" };
      traces.push({ type: "scatter", x: [ends[0]], y: [mark.at], ...unseen });
    }
    const shape = flat({ ...axis(own.x, along), ...(own.grouped ? { ticks: "" } : {}) }, axis(own.y, numbers(traces, "y"), share),
      {
        barmode: own.grouped ? "group" : "stack", bargap: own.grouped ? 0.45 : 0.35, bargroupgap: own.grouped ? 0.08 : 0, ...across(own.marks, own, ends),
        // names of upright lines stand between the figure and the buttons above it
        ...(own.marks.some((mark) => mark.axis === "x" && mark.label) ? { margin: { l: 8, r: 12, t: 48, b: 8 } } : {}),
      });
    return [traces, shape];
  }

  function plot(figures) {
    for (const one of figures) {
      const [traces, shape] = built(one);
      Plotly.react(document.getElementById(one.id), traces, shape, config);
    }
  }

  // draws the page, and again whenever a switch or the colours change
  function start(draw) {
    // ---- light and dark: the system's wish, unless the address or the button says otherwise
    const button = document.getElementById("theme");
    const system = matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    let drawn = false;
    function settle() {
      button.textContent = dark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"}`);
      if (drawn) draw();
    }
    function fromAddress() {
      const wish = location.hash.slice(1);
      if (wish === "dark" || wish === "light") root.dataset.theme = wish;
      settle();
    }
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      settle();
    });
    system.addEventListener("change", settle);
    addEventListener("hashchange", fromAddress);
    fromAddress();

    for (const input of document.querySelectorAll(".switch input")) input.addEventListener("change", () => draw());

    // ---- paper: light colours, every table open
    let before = null;
    addEventListener("beforeprint", () => {
      before = { theme: root.dataset.theme, open: [...document.querySelectorAll("details")].map((one) => one.open) };
      root.dataset.theme = "light";
      document.querySelectorAll("details").forEach((one) => { one.open = true; });
      settle();
    });
    addEventListener("afterprint", () => {
      if (!before) return;
      if (before.theme) root.dataset.theme = before.theme; else delete root.dataset.theme;
      document.querySelectorAll("details").forEach((one, at) => { one.open = before.open[at]; });
      before = null;
      settle();
    });

    draw();
    drawn = true;
  }

  return { data, config, color, faded, dash, text, chosen, font, flat, logTicks, plot, start };
})();
