// What the page can't do without a script: say aloud what has changed, keep its title true, draw an hour of lag.
"use strict";

(() => {
  let said = null;

  // Who can't see the page hears a change of state once, and not every second how old the look is.
  function announce() {
    const state = document.querySelector("#live .state[data-words]");
    if (!state) return;
    const words = state.dataset.words;
    if (said !== null && said !== words) document.getElementById("announcer").textContent = words;
    said = words;
    const level = ["bad", "warn", "busy", "idle", "good"].find((one) => state.classList.contains(one));
    document.title = document.title.replace(/: (bad|warn|busy|idle|good) ·/, `: ${level} ·`);
  }

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  let plot = null;
  let drawn = 0;

  async function draw() {
    const place = document.getElementById("plot");
    if (!place || !window.uPlot || Date.now() - drawn < 4000) return;
    drawn = Date.now();
    const answer = await fetch(place.dataset.history);
    if (!answer.ok) return;
    const found = await answer.json();
    const data = [found.at, found.age, found.behind];
    if (plot) {
      plot.setData(data);
      return;
    }
    const clock = (seconds, length) => new Date(seconds * 1000).toISOString().slice(11, 11 + length);
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--edge") }, ticks: { stroke: colour("--edge") } };
    plot = new uPlot(
      {
        width: place.clientWidth - 16,
        height: 220,
        scales: { y: { range: (_, least, most) => [0, Math.max(most, 1)] }, n: { range: (_, least, most) => [0, Math.max(most, 1)] } },
        axes: [{ ...axis, values: (_, at, _axis, _space, apart) => at.map((one) => clock(one, apart < 60 ? 8 : 5)) }, { ...axis, label: "seconds" }, { ...axis, scale: "n", side: 1, label: "records", grid: { show: false } }],
        series: [
          { label: "UTC", value: (_, at) => (at === null ? "" : clock(at, 8)) },
          { label: "seconds since the commit", stroke: colour("--link"), width: 2 },
          { label: "records behind", scale: "n", stroke: colour("--warn"), width: 1 },
        ],
      },
      data,
      place,
    );
  }

  addEventListener("resize", () => {
    const place = document.getElementById("plot");
    if (plot) plot.setSize({ width: place.clientWidth - 16, height: 220 });
  });
  // Its colours are drawn, not styled.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (plot) plot.destroy();
    plot = null;
    drawn = 0;
    draw();
  });
  document.addEventListener("htmx:afterSwap", () => {
    announce();
    draw();
  });
  // A server that does not answer: what stands there is old, and says so.
  for (const name of ["htmx:sendError", "htmx:responseError"]) {
    document.addEventListener(name, () => {
      const state = document.querySelector("#live .state");
      if (!state || state.classList.contains("lost")) return;
      state.className = "state bad lost";
      state.querySelector(".words").textContent = "This page's server does not answer; what stands below is old.";
    });
  }
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.target.id === "found") event.target.setAttribute("aria-busy", "false");
  });
  document.addEventListener("DOMContentLoaded", () => {
    announce();
    draw();
  });
})();
