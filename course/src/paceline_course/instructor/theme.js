"use strict";
{
  const root = document.documentElement, button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const settle = () => {
    button.hidden = false;
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"}`);
  };
  const wish = location.hash.slice(1);
  if (wish === "dark" || wish === "light") root.dataset.theme = wish;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; settle(); });
  system.addEventListener("change", settle);
  settle();
}
