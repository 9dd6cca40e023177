// What the page can't do without a script: say aloud what has changed, keep its title true, draw an hour of lag, say how
// old it is by now, and stand still for who reads it.
"use strict";

(() => {
  const HELD_MS = 30000; // whoever has left a selection behind must not take what is old for what is
  const title = document.title;
  let said = null;

  function titled(level) {
    return title.replace(/: (bad|warn|busy|idle|good) ·/, `: ${level} ·`);
  }

  function aloud(words) {
    document.getElementById("announcer").textContent = words;
  }

  // Who can't see the page hears a change of state once, and not every second how old the look is, or what readers see.
  function announce() {
    const state = document.querySelector("#live .state[data-words]");
    if (!state) return;
    const heard = state.dataset.heard;
    if (said !== null && said !== heard) aloud(state.dataset.words);
    said = heard;
    const level = ["bad", "warn", "busy", "idle", "good"].find((one) => state.classList.contains(one));
    document.title = titled(level);
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
    // As wide as its longest figure: the label stands behind it. Twice 5 px for the tick and the gap.
    const wide = (chart, figures) => {
      if (!figures) return 50;
      chart.ctx.font = "12px system-ui";
      return 20 + Math.max(...figures.map((one) => chart.ctx.measureText(one).width));
    };
    // Below it stands the moment under the mouse, or the newest.
    const told = (words) => (chart, _value, row, at) => {
      const one = chart.data[row].at(at ?? -1);
      return one == null ? "?" : words(one);
    };
    plot = new uPlot(
      {
        width: place.clientWidth - 16,
        height: 220,
        scales: { y: { range: (_, least, most) => [0, Math.max(most, 1)] }, n: { range: (_, least, most) => [0, Math.max(most, 1)] } },
        axes: [{ ...axis, values: (_, at, _axis, _space, apart) => at.map((one) => clock(one, apart < 60 ? 8 : 5)) }, { ...axis, size: wide, label: "seconds" }, { ...axis, size: wide, scale: "n", side: 1, label: "records", grid: { show: false } }],
        series: [
          { label: "UTC", value: told((at) => clock(at, 8)) },
          { label: "seconds since the commit", value: told(String), stroke: colour("--link"), width: 2 },
          { label: "records behind", value: told((one) => one.toLocaleString("en")), scale: "n", stroke: colour("--warn"), width: 1 },
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

  // How old the look is that stands there, by this machine's clock alone: the server's may be another one.
  let came = Date.now();

  function span(seconds) {
    for (const [least, size, unit] of [[172800, 86400, "d"], [5400, 3600, "h"], [120, 60, "min"]]) {
      if (seconds >= least) return `${Number((seconds / size).toPrecision(3))} ${unit}`;
    }
    return `${seconds.toFixed(seconds >= 10 ? 0 : 1)} s`;
  }

  setInterval(() => {
    const age = document.querySelector("#live .age");
    if (age) age.firstChild.data = span(Number(age.dataset.age) + Math.max(Date.now() - came, 0) / 1000);
  }, 1000);

  // Who reads what stands there keeps it: by the button as long as he likes, by a selection for a while.
  const hold = document.getElementById("hold");
  let since = null; // when the selection was seen first
  let scrolled = [];

  function still(words) {
    const held = document.getElementById("held");
    if (held.textContent !== words) held.textContent = words;
  }

  function isHeld() {
    return hold.getAttribute("aria-pressed") === "true";
  }

  function isSelecting(place) {
    const selection = getSelection();
    const inside = selection.rangeCount && !selection.isCollapsed && selection.getRangeAt(0).intersectsNode(place);
    since = inside ? since || Date.now() : null;
    return inside && Date.now() - since < HELD_MS;
  }

  if (hold) {
    hold.hidden = false;
    hold.addEventListener("click", () => {
      hold.setAttribute("aria-pressed", String(!isHeld()));
      still(isHeld() ? "held still" : "");
      if (!isHeld()) htmx.trigger("#live", "sse:seen");
    });
  }
  // Tables are held, an alarm is not: the newest answer says how all is, and the age goes on of what else stands there.
  function alarm(answer) {
    const state = document.querySelector("#live .state[data-words]");
    const newest = new DOMParser().parseFromString(answer, "text/html").querySelector(".state[data-words]");
    if (!state || !newest) return;
    state.className = newest.className;
    state.dataset.words = newest.dataset.words;
    state.dataset.heard = newest.dataset.heard;
    const words = state.querySelector(".words");
    if (words.textContent !== state.dataset.words) words.textContent = state.dataset.words; // it may be selected
    announce();
  }

  document.addEventListener("htmx:beforeSwap", (event) => {
    const place = event.target;
    if (place.id !== "live" || !event.detail.shouldSwap) return;
    if (isHeld() || isSelecting(place)) {
      event.detail.shouldSwap = false;
      if (!isHeld()) still("held while you select");
      alarm(event.detail.serverResponse);
      return;
    }
    still("");
    scrolled = [...place.querySelectorAll(".scroll, pre")].map((one) => [one.id, one.scrollLeft, one.scrollTop]);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.id === "live") {
      came = Date.now();
      for (const [id, left, top] of scrolled) document.getElementById(id)?.scrollTo({ left, top, behavior: "instant" });
    }
    announce();
    draw();
  });

  // A server that does not answer, or has nothing to show any more: what stands there is old, and says so.
  function lost(request) {
    const state = document.querySelector("#live .state");
    const code = request.status ? `HTTP ${request.status}` : null;
    const words = `This page's server ${code ? `answers ${code}${why(request)}` : "does not answer"}; what stands below is old.`;
    if (!state || (state.classList.contains("lost") && said === words)) return;
    said = words;
    state.className = "state bad lost";
    state.querySelector(".words").textContent = said;
    aloud(said);
    document.title = `${code || "No answer"} · ${titled("bad")}`;
  }

  // What the page of an error has at its top.
  function why(request) {
    const found = new DOMParser().parseFromString(request.responseText, "text/html").querySelector(".state h1");
    return found ? `: ${found.textContent}` : "";
  }

  function missing(place, status) {
    const state = document.createElement("p");
    state.className = "state bad";
    state.setAttribute("role", "alert");
    state.textContent = `It could not be had: ${status ? `HTTP ${status}` : "no answer"}.`;
    place.replaceChildren(state);
  }

  // One answer that comes late is no server that is gone: it is asked again at once, and is lost at the second.
  let asked = 0;
  let late = false;
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    if (event.target.id === "live") late = false;
  });

  for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
    document.addEventListener(name, (event) => {
      if (event.target.id === "found") missing(event.target, event.detail.xhr.status);
      else if (name === "htmx:timeout" && !late) {
        late = true;
        asked = 0;
        htmx.trigger("#live", "sse:seen"); // it waits until this one is over, in place of what else waits
      } else lost(event.detail.xhr);
    });
  }

  // A browser has six connections to a server: pages that nobody looks at must not hold them all. They ask now and then.
  let source = null;
  htmx.createEventSource = (address) => {
    if (source) source.close();
    source = new EventSource(address);
    if (document.hidden) source.close();
    return source;
  };
  document.addEventListener("visibilitychange", () => {
    if (!source) return;
    if (document.hidden) source.close();
    else if (source.readyState === EventSource.CLOSED) {
      // As if both had just come into the page: the extension opens another one, and listens to it.
      for (const place of document.querySelectorAll("[sse-connect], #live")) htmx.trigger(place, "htmx:afterProcessNode");
    }
  });
  // The title of a page that nobody looks at is read all the same, but a browser may wake its clocks once a minute only.
  // A worker's goes on, beside the page's own: whichever is first asks, and the other one finds that it was just asked.
  // It is there from the beginning, and rests meanwhile: a server that hangs would not give it when it is needed.
  const AGAIN_MS = 4000; // with a beat a second: every 5 at most
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.id !== "live") return;
    if (document.hidden && asked && performance.now() - asked < AGAIN_MS) event.preventDefault();
    else asked = performance.now();
  });
  if (document.getElementById("live") && window.Worker) {
    const beat = new Worker("/static/beat.js");
    beat.addEventListener("message", () => {
      if (document.hidden) htmx.trigger("#live", "sse:seen");
    });
    const rests = () => beat.postMessage(document.hidden);
    document.addEventListener("visibilitychange", rests);
    rests();
  }
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.target.id === "found") event.target.setAttribute("aria-busy", "false");
  });
  document.addEventListener("DOMContentLoaded", () => {
    announce();
    draw();
  });
})();
