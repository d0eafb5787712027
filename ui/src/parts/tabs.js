// Tabs with the keys of a list: left, right, Home, End.
import { fill, h } from "../dom.js";

/**
 * `tabs`: {name: {title, show(panel)}}; `show` fills the panel when its tab is chosen. The address keeps the choice
 * (?tab=name), without a new entry in the history of the browser.
 */
export function tabs({ tabs: all, chosen, label, onChoice = () => {} }) {
  const names = Object.keys(all);
  const panel = h("div", { role: "tabpanel", id: "tab-panel", class: "tab-panel" });
  const buttons = Object.fromEntries(
    names.map((name) => [name, h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "tab-panel", onclick: () => choose(name) }, all[name].title)]),
  );
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label, onkeydown: key }, Object.values(buttons));

  function choose(name) {
    for (const [other, button] of Object.entries(buttons)) {
      button.setAttribute("aria-selected", other === name);
      button.tabIndex = other === name ? 0 : -1;
    }
    panel.setAttribute("aria-labelledby", `tab-${name}`);
    const [path, parameters = ""] = location.hash.split("?");
    const next = new URLSearchParams(parameters);
    next.set("tab", name);
    history.replaceState(null, "", `${path}?${next}`);
    onChoice(name);
    fill(panel);
    all[name].show(panel);
  }

  function key(event) {
    const at = names.findIndex((name) => buttons[name] === document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    const name = names[(to + names.length) % names.length];
    choose(name);
    buttons[name].focus();
    event.preventDefault();
  }

  return { element: h("div", {}, list, panel), panel, choose, first: () => choose(names.includes(chosen) ? chosen : names[0]) };
}
