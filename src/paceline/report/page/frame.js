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

  return { data, config, color, faded, dash, text, chosen, font, flat, logTicks, start };
})();
