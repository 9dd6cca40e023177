// A worker: a clock that goes on while nobody looks at the page (page.js asks then as often as else).
"use strict";

setInterval(() => postMessage(null), 5000);
