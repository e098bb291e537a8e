// The tip of charts, on the scaler's page and in reports of simulations.
"use strict";

// Shows a text beside the pointer, inside the window; hides the tip if there is none.
function showTip(text, {x, y}) {
  const tip = document.getElementById("tip");
  tip.textContent = text;
  tip.hidden = !text;
  const rightmost = document.documentElement.clientWidth - tip.offsetWidth - 4;
  tip.style.left = `${Math.max(4, Math.min(x + 14, rightmost))}px`;
  tip.style.top = `${y + 18}px`;
}
