// A worker: a clock that goes on while nobody looks at the page (page.js asks then as often as else). It is told when.
"use strict";

let clock = 0;
addEventListener("message", (event) => {
  clearInterval(clock);
  if (event.data) clock = setInterval(() => postMessage(null), 1000);
});
