/* Move the meaning of a word below the word, and let Escape close it. What
   shows and hides it is aids.css. */
(() => {
  const MARGIN = 12;

  const place = (use) => {
    const box = use.querySelector(".glossary-meaning");
    box.style.marginLeft = "0";
    const { left, width } = box.getBoundingClientRect();
    const room = document.documentElement.clientWidth - MARGIN - width;
    const word = [...use.querySelector("a").getClientRects()].pop();
    const wanted = Math.max(MARGIN, Math.min(word.left, room));
    box.style.marginLeft = `${wanted - left}px`;
  };

  const shown = (event) => {
    const use = event.target.closest?.(".glossary-use");
    if (use && !use.contains(event.relatedTarget)) place(use);
  };
  const left = (event) => {
    const use = event.target.closest?.(".glossary-use");
    if (use && !use.contains(event.relatedTarget)) {
      use.classList.remove("dismissed");
    }
  };

  document.addEventListener("mouseover", shown);
  document.addEventListener("focusin", shown);
  document.addEventListener("mouseout", left);
  document.addEventListener("focusout", left);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const use of document.querySelectorAll(
      ".glossary-use:hover, .glossary-use:focus-within")) {
      use.classList.add("dismissed");
    }
  });
})();

/* Explorers: say which keys move them, and show beside a slider where it
   stands. The words are those that a screen reader hears from the slider. */
document.addEventListener("DOMContentLoaded", () => {
  for (const explorer of document.querySelectorAll("figure.explorer")) {
    const keys = document.createElement("p");
    keys.className = "explorer-keys";
    keys.textContent = "With the keyboard: Tab goes from one control to the "
      + "next, the arrow keys change it"
      + (explorer.querySelector("button") ? ", Enter presses a button." : ".");
    explorer.querySelector("figcaption")?.after(keys);
    for (const slider of explorer.querySelectorAll("input[type=range]")) {
      const value = document.createElement("span");
      value.className = "explorer-value";
      value.ariaHidden = "true";
      slider.after(value);
      const show = () => {
        value.textContent = slider.getAttribute("aria-valuetext");
      };
      new MutationObserver(show).observe(
        slider, { attributeFilter: ["aria-valuetext"] });
      show();
    }
  }
});
