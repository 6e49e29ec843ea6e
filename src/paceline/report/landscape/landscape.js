(() => {
  const { data, config, color, text, chosen, font, flat } = frame;
  const place = (id) => document.getElementById(id);
  const short = (value) => (value === null ? "no finite number" : Number(value.toPrecision(4)).toString());
  const column = () => chosen("column") ?? "loss";
  const logarithmic = () => column() === "loss" && chosen("scale") === "log";
  const flatten = (table) => table.flat().filter((value) => value !== null);

  // ---- heights: the logarithm is taken here, so that surface, contour and their colour bar have the same ticks
  function heights(table, numbers) {
    if (!logarithmic()) return { z: table, ticks: {} };
    const low = Math.min(...numbers), high = Math.max(...numbers);
    const marks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const n of high / low > 1000 ? [1] : high / low > 30 ? [1, 3] : [1, 2, 3, 5, 7]) {
        const value = n * 10 ** power;
        if (value >= low && value <= high) marks.push(Number(value.toPrecision(3)));
      }
    }
    const every = Math.ceil(marks.length / 7), kept = marks.filter((_, at) => at % every === 0);
    const ticks = kept.length > 1 ? { tickvals: kept.map(Math.log10), ticktext: kept.map(String) } : {};
    const log = (value) => (value === null ? null : Math.log10(value));
    return { z: table.map((row) => (Array.isArray(row) ? row.map(log) : log(row))), ticks };
  }

  const bar = (ticks) => ({
    thickness: 10, len: 0.8, outlinewidth: 0, tickfont: font(), ticks: "outside", tickcolor: color("line"),
    title: { text: text(column()), font: font(), side: "right" }, ...ticks,
  });
  const words = (table, surface) => table.map((row, i) => row.map((value, j) =>
    `${text(column())} ${short(value)}<br>at ${short(surface.x[j])}, ${short(surface.y[i])}`));
  const axisTitle = (number) => (data.surface.plane === "pca"
    ? `${number === 1 ? "first" : "second"} main axis` : `${number === 1 ? "first" : "second"} direction`);
  const onSurface = () => data.path && data.surface && data.surface.plane === "pca";
  const pathWords = () => data.path.step.map((step, at) =>
    `step ${step.toLocaleString("en")}<br>${text(column())} there ${short(data.path.values[column()]?.[at] ?? null)}`);

  // ---- the surface, where there is WebGL
  const eye = { x: 1.18, y: -1.48, z: 0.9 };
  const solid = data.surface && (() => {
    const canvas = document.createElement("canvas");
    const context = canvas.getContext("webgl2") ?? canvas.getContext("webgl");
    context?.getExtension("WEBGL_lose_context")?.loseContext(); // browsers allow few at a time
    return Boolean(context);
  })();

  function surface() {
    const own = data.surface, table = own.values[column()];
    if (!table) return null;
    const numbers = flatten(table), { z, ticks } = heights(table, numbers);
    const traces = [{
      type: "surface", x: own.x, y: own.y, z, text: words(table, own), hoverinfo: "text", colorscale: "Cividis",
      showscale: false, lighting: { ambient: 0.75, diffuse: 0.5, specular: 0.06, roughness: 0.9 },
      contours: {
        x: { highlight: false }, y: { highlight: false },
        z: { show: true, highlight: false, usecolormap: false, color: "rgba(255,255,255,.35)", width: 1 },
      },
    }];
    if (onSurface()) {
      const all = flatten(z), lift = 0.015 * (Math.max(...all) - Math.min(...all)); // else half of it is inside
      const over = (places) => ({
        type: "scatter3d", x: places.x, y: places.y,
        z: heights(places.heights[column()] ?? [], numbers).z.map((one) => (one === null ? null : one + lift)),
      });
      const paint = color("run-1"), last = data.path.x.length - 1;
      traces.push(
        { ...over(data.path.trail), mode: "lines", hoverinfo: "skip", line: { color: paint, width: 5 } },
        {
          ...over(data.path), mode: "markers", text: pathWords(), hoverinfo: "text",
          marker: { color: paint, size: data.path.x.map((_, at) => (at === last ? 7 : 4)) },
        },
      );
    }
    const axis = (title, extra = {}) => ({
      title: { text: title, font: font() }, tickfont: { ...font(), size: 11 }, gridcolor: color("line"), zeroline: false,
      showspikes: false, backgroundcolor: "rgba(0,0,0,0)", color: color("soft"), nticks: 5, ...extra,
    });
    return [traces, {
      font: font(), paper_bgcolor: "rgba(0,0,0,0)", margin: { l: 0, r: 0, t: 0, b: 0 }, showlegend: false,
      hoverlabel: { bgcolor: color("paper"), bordercolor: color("soft"), font: { ...font(), color: color("ink") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: color("soft"), activecolor: color("ink") },
      uirevision: "stay", // a new theme or scale keeps the view
      scene: {
        uirevision: "stay", dragmode: "turntable", aspectmode: "manual", aspectratio: { x: 1, y: 1, z: 0.7 },
        camera: { eye, center: { x: 0, y: 0, z: -0.12 }, up: { x: 0, y: 0, z: 1 } },
        xaxis: axis(axisTitle(1)), yaxis: axis(axisTitle(2)), zaxis: axis(text(column()), ticks),
      },
    }];
  }

  function turn(way) {
    const shown = place("plot-surface"), now = shown._fullLayout.scene._scene.getCamera();
    let { x, y, z } = now.eye;
    let far = Math.hypot(x, y, z), round = Math.atan2(y, x), high = Math.asin(z / far);
    if (way === "left") round -= Math.PI / 12;
    if (way === "right") round += Math.PI / 12;
    if (way === "up") high = Math.min(1.5, high + Math.PI / 18);
    if (way === "down") high = Math.max(-0.2, high - Math.PI / 18);
    if (way === "in") far = Math.max(0.6, far / 1.15);
    if (way === "out") far = Math.min(5, far * 1.15);
    x = far * Math.cos(high) * Math.cos(round); y = far * Math.cos(high) * Math.sin(round); z = far * Math.sin(high);
    Plotly.relayout(shown, { "scene.camera": { ...now, eye: way === "reset" ? eye : { x, y, z } } });
  }
  if (data.surface && !solid) {
    for (const id of ["plot-surface", "turn"]) place(id).hidden = true;
    place("no-webgl").hidden = false;
  }
  place("turn")?.addEventListener("click", (event) => {
    const way = event.target.closest("button")?.dataset.turn;
    if (way) turn(way);
  });

  // ---- the contour, with the path or the weights on it
  function contour() {
    const own = data.surface, table = own.values[column()];
    if (!table) return null;
    const { z, ticks } = heights(table, flatten(table));
    const wide = (values) => values.at(-1) - values[0];
    const ratio = wide(own.x) / wide(own.y);
    const traces = [{
      type: "contour", x: own.x, y: own.y, z, text: words(table, own), hoverinfo: "text", colorscale: "Cividis",
      ncontours: 24, line: { width: 0.6, color: "rgba(255,255,255,.45)" }, colorbar: bar(ticks), connectgaps: false,
    }];
    traces.push(onSurface() ? path(true) : {
      type: "scatter", mode: "markers", x: [0], y: [0], hovertemplate: "the weights<extra></extra>",
      marker: { symbol: "cross", size: 11, color: "#fff", line: { color: "#000", width: 1.5 } },
    });
    const equal = ratio > 0.5 && ratio < 2 ? { scaleanchor: "x", constrain: "domain" } : {};
    const shape = flat(
      { title: { text: axisTitle(1) }, range: [own.x[0], own.x.at(-1)], constrain: "domain" },
      { title: { text: axisTitle(2) }, range: [own.y[0], own.y.at(-1)], showgrid: false, ...equal },
    );
    return [traces, shape];
  }

  function path(light) {
    const { x, y } = data.path, last = x.length - 1;
    const paint = light ? "#fff" : color("run-0");
    return {
      type: "scatter", mode: "lines+markers", x, y, text: pathWords(), hovertemplate: "%{text}<extra></extra>",
      line: { color: paint, width: 2 },
      marker: {
        color: paint, size: x.map((_, at) => (at === last ? 12 : 6)),
        symbol: x.map((_, at) => (at === last ? "cross" : "circle")),
        line: { color: light ? "#000" : color("paper"), width: 1 },
      },
    };
  }

  const figures = {
    "plot-surface": surface,
    "plot-contour": contour,
    "plot-path": () => [[path(false)], flat({ title: { text: "first main axis" } }, { title: { text: "second main axis" } })],
  };
  const still = { ...config, modeBarButtons: [["toImage"]] };

  frame.start(() => {
    if (place("scale")) place("scale").hidden = column() !== "loss";
    for (const [id, figure] of Object.entries(figures)) {
      const shown = place(id);
      if (!shown || (id === "plot-surface" && !solid)) continue;
      const [traces, shape] = figure() ?? [[], flat({}, {})];
      Plotly.react(shown, traces, shape, id === "plot-surface" ? still : config);
    }
    frame.plot(data.figures);
  });
})();
