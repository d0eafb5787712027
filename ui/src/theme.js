// Light, dark, or as the system has it.
const KEY = "headrace.theme";
const ORDER = ["system", "light", "dark"];

export const theme = {
  get: () => localStorage.getItem(KEY) ?? "system",
  apply() {
    if (this.get() === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.get();
  },
  next() {
    localStorage.setItem(KEY, ORDER[(ORDER.indexOf(this.get()) + 1) % ORDER.length]);
    this.apply();
    window.dispatchEvent(new Event("headrace-theme"));
  },
};

/** A colour of the theme that is shown now, for canvases. */
export function colour(name, element = document.documentElement) {
  return getComputedStyle(element).getPropertyValue(`--${name}`).trim();
}
