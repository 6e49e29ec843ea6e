{
  const form = document.getElementById("survey");
  // A basic string of TOML: as in JSON, but without halves of characters and with DEL written out.
  const quoted = (text) => JSON.stringify(text.toWellFormed ? text.toWellFormed() : text).replace(/\x7f/g, "\\u007f");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const parts = { before: {}, after: {}, ratings: {}, texts: {} };
    for (const input of form.querySelectorAll("input[type=radio]:checked, textarea")) {
      const [part, name] = input.name.split(".");
      parts[part][name] = input.type === "radio" ? input.value : quoted(input.value.trim());
    }
    const code = document.getElementById("code").value.trim();
    const lines = [`code = ${quoted(code)}`];
    for (const [part, answers] of Object.entries(parts)) {
      lines.push("", `[${part}]`, ...Object.entries(answers).map(([name, value]) => `${name} = ${value}`));
    }
    const some = Object.keys(parts.after).length ? "after" : "before";
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/plain" }));
    link.download = `survey-${some}-${Math.random().toString(36).slice(2, 8)}.toml`;
    document.body.append(link);
    link.click();
    link.remove();
    document.getElementById("saved").textContent = `Saved as ${link.download}, among your downloads. Give it to your teacher.`;
  });
}
